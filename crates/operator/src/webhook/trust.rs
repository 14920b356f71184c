//! How API servers come to trust the listener. In: a directory that somebody fills, or nothing. Out: the certificate that is
//! served, and the CAs that API servers are told. Nothing here decides when to look; `registration` does.
//!
//! Without a directory the operator makes a CA and a certificate, and keeps both in a Secret that all its replicas share. A
//! replica that loses a race for the Secret reads what the winner wrote.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{Error, Result};
use konverge_serve::{Certificates, SharedCertificates};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde_json::json;

/// The files that cert-manager mounts.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";
/// Only in the Secret that the operator makes.
const CA_KEY: &str = "ca.key";

/// How often a lost race for the Secret is run again at once.
const MOST_RACES: u32 = 5;

/// Where certificates come from.
pub(crate) enum Trust {
    /// A directory that somebody else fills.
    Directory(PathBuf),
    /// The same, but nobody named it: its files have to be of somebody who may decide.
    UsualDirectory(PathBuf),
    /// A Secret of this name that the operator makes, for these names of the listener.
    Secret { secrets: Box<Api<Secret>>, name: String, names: Vec<String> },
}

impl Trust {
    pub(super) fn in_secret(client: Client, namespace: &str, name: String, names: Vec<String>) -> Self {
        Self::Secret { secrets: Box::new(Api::namespaced(client, namespace)), name, names }
    }

    /// Whether there is a certificate that may be used. One that may not be used is said.
    pub(super) fn has_certificate(&self) -> bool {
        match self {
            Self::UsualDirectory(directory) if directory.join(CERTIFICATE).exists() => {
                let read = read_directory(directory, check_owner);
                let warn = |error: &Error| {
                    let why = format!("{error:#}");
                    tracing::warn!(
                        why,
                        "certificates in the usual directory are not used; --webhook-cert-dir names a directory that is"
                    );
                };
                read.inspect_err(warn).is_ok()
            }
            Self::UsualDirectory(_) => false,
            Self::Directory(_) | Self::Secret { .. } => true,
        }
    }

    /// What to serve and to tell. `known` is what was found the last time: if the Secret is gone, it is put back.
    pub(crate) async fn look(&self, known: Option<&SharedCertificates>, now: SystemTime) -> Result<SharedCertificates> {
        match self {
            Self::Directory(directory) => read_directory(directory, |_| Ok(())),
            Self::UsualDirectory(directory) => read_directory(directory, check_owner),
            Self::Secret { secrets, name, names } => share(secrets, name, names, known, now).await,
        }
    }
}

/// Serves a certificate from now on. Connections that are open stay as they are.
pub(super) fn serve(certificates: &Certificates, shared: &SharedCertificates) -> Result<()> {
    Ok(certificates.replace(&shared.certificate_pem, &shared.key_pem)?)
}

fn read_directory(directory: &Path, check: fn(&File) -> Result<(), String>) -> Result<SharedCertificates> {
    let read = |name: &str| -> Result<String> {
        let (path, mut text) = (directory.join(name), String::new());
        let cannot = |why: String| Error::new(format!("cannot read {}: {why}", path.display()));
        let mut file = File::open(&path).map_err(|error| cannot(error.to_string()))?;
        check(&file).map_err(cannot)?;
        file.read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
        Ok(text)
    };
    Ok(SharedCertificates {
        // Who fills the directory may tell API servers themselves.
        ca_pem: if directory.join(CA).exists() { read(CA)? } else { String::new() },
        ca_key_pem: String::new(),
        certificate_pem: read(CERTIFICATE)?,
        key_pem: read(KEY)?,
    })
}

/// Whether a file is one that only root or the user of this process can have written. The usual directory is below `/tmp`, where
/// anybody on a shared machine may put a CA for API servers to trust.
fn check_owner(file: &File) -> Result<(), String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        judge_owner(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw())?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

#[cfg(unix)]
fn judge_owner(owner: u32, mode: u32, user: u32) -> Result<(), String> {
    if owner != 0 && owner != user {
        return Err(format!("it belongs to the user {owner}, and this process runs as {user}"));
    }
    if mode & 0o002 != 0 {
        return Err(format!("every user may write it (mode {:o})", mode & 0o777));
    }
    Ok(())
}

/// The certificates of the Secret, after whatever was due.
async fn share(
    secrets: &Api<Secret>,
    name: &str,
    names: &[String],
    known: Option<&SharedCertificates>,
    now: SystemTime,
) -> Result<SharedCertificates> {
    for _ in 0..MOST_RACES {
        let found = secrets.get_opt(name).await?;
        let kept = found.as_ref().map(read_secret);
        let wanted = match kept.as_ref().or(known) {
            None => SharedCertificates::make(names, now)?,
            Some(shared) => shared.next(names, now)?.unwrap_or_else(|| shared.clone()),
        };
        if kept.as_ref() == Some(&wanted) {
            return Ok(wanted);
        }
        // With the version that was read, or as a new object: whoever comes second is refused.
        let written = match found {
            Some(mut secret) => {
                put_into(&mut secret, &wanted);
                secrets.replace(name, &PostParams::default(), &secret).await
            }
            None => {
                let secret = json!({"type": "kubernetes.io/tls", "metadata": {"name": name}});
                let mut secret: Secret = serde_json::from_value(secret)?;
                put_into(&mut secret, &wanted);
                secrets.create(&PostParams::default(), &secret).await
            }
        };
        match written {
            Ok(secret) => return Ok(read_secret(&secret)),
            // Another replica was faster: what it wrote is as good. A Secret that was deleted meanwhile is made anew.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::new(format!("others change the Secret {name} all the time")))
}

fn read_secret(secret: &Secret) -> SharedCertificates {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
        // What is no text is no certificate either, and is made anew.
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    SharedCertificates {
        ca_pem: text(CA),
        ca_key_pem: text(CA_KEY),
        certificate_pem: text(CERTIFICATE),
        key_pem: text(KEY),
    }
}

fn put_into(secret: &mut Secret, shared: &SharedCertificates) {
    let SharedCertificates { ca_pem, ca_key_pem, certificate_pem, key_pem } = shared.clone();
    let texts = [(CA, ca_pem), (CA_KEY, ca_key_pem), (CERTIFICATE, certificate_pem), (KEY, key_pem)];
    let data = secret.data.get_or_insert_default();
    data.extend(texts.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))));
    secret.meta_mut().managed_fields = None;
}

#[cfg(test)]
mod tests;
