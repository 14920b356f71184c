//! How API servers come to trust the listener. In: a directory that somebody fills, or nothing. Out: the certificate that is
//! served, and the CAs that API servers are told. Nothing here decides when to look; `registration` does.
//!
//! Without a directory the operator makes a CA and a certificate, and keeps both in a Secret that all its replicas share. A
//! replica that loses a race for the Secret reads what the winner wrote.

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
pub(super) enum Trust {
    /// A directory that somebody else fills.
    Directory(PathBuf),
    /// A Secret of this name that the operator makes, for these names of the listener.
    Secret { secrets: Box<Api<Secret>>, name: String, names: Vec<String> },
}

impl Trust {
    pub(super) fn in_secret(client: Client, namespace: &str, name: String, names: Vec<String>) -> Self {
        Self::Secret { secrets: Box::new(Api::namespaced(client, namespace)), name, names }
    }

    /// What to serve and to tell. `known` is what was found the last time: if the Secret is gone, it is put back.
    pub(super) async fn look(&self, known: Option<&SharedCertificates>, now: SystemTime) -> Result<SharedCertificates> {
        match self {
            Self::Directory(directory) => read_directory(directory),
            Self::Secret { secrets, name, names } => share(secrets, name, names, known, now).await,
        }
    }
}

/// Serves a certificate from now on. Connections that are open stay as they are.
pub(super) fn serve(certificates: &Certificates, shared: &SharedCertificates) -> Result<()> {
    Ok(certificates.replace(&shared.certificate_pem, &shared.key_pem)?)
}

fn read_directory(directory: &Path) -> Result<SharedCertificates> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))
    };
    Ok(SharedCertificates {
        // Who fills the directory may tell API servers themselves.
        ca_pem: read(CA).unwrap_or_default(),
        ca_key_pem: String::new(),
        certificate_pem: read(CERTIFICATE)?,
        key_pem: read(KEY)?,
    })
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
