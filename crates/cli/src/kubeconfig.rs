//! The file that tells kubectl and operators where the server is. An address and a CA come in; a file that only its
//! owner can read comes out, whole or not at all. It never touches a kubeconfig that someone else wrote.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The first line of ours.
const MARK: &str = "# Written by konverge; replaced at each start.";

/// Why it was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error("{}: not written by konverge, so it is left alone; choose another file with --kubeconfig", .0.display())]
    Foreign(PathBuf),
    #[error("cannot write the kubeconfig {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl KubeconfigError {
    /// Whether there was no space for it.
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}

/// What is in it.
#[derive(Debug)]
pub(crate) struct Kubeconfig<'a> {
    /// `https://127.0.0.1:6443`
    pub server: &'a str,
    /// The CA to trust, as PEM; none for plain HTTP.
    pub ca_pem: Option<&'a str>,
    /// The token of the administrator.
    pub token: &'a str,
}

impl Kubeconfig<'_> {
    /// Puts it at this path, if what is there is ours or nothing.
    pub(crate) fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        let failed = |source| KubeconfigError::Io { path: path.into(), source };
        check(path)?;
        write_private(path, &self.text()).map_err(failed)
    }

    fn text(&self) -> String {
        let Kubeconfig { server, ca_pem, token } = self;
        let ca =
            ca_pem.map_or(String::new(), |pem| format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)));
        format!(
            "{MARK}
apiVersion: v1
kind: Config
clusters:
- name: konverge
  cluster:
    server: {server}{ca}
users:
- name: konverge
  user:
    token: {token}
contexts:
- name: konverge
  context:
    cluster: konverge
    user: konverge
    namespace: default
current-context: konverge
"
        )
    }
}

/// A kubeconfig of ours with another token.
pub(crate) fn with_token(text: &str, token: &str) -> Option<String> {
    let (before, rest) = text.split_once("\n    token: ")?;
    let (_, after) = rest.split_once('\n')?;
    Some(format!("{before}\n    token: {token}\n{after}"))
}

/// Whether this path may be written; asked before the server starts, too.
pub(crate) fn check(path: &Path) -> Result<(), KubeconfigError> {
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() || text.starts_with(MARK) => Ok(()),
        Ok(_) => Err(KubeconfigError::Foreign(path.into())),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            io::ErrorKind::InvalidData => Err(KubeconfigError::Foreign(path.into())),
            _ => Err(KubeconfigError::Io { path: path.into(), source: error }),
        },
    }
}

/// Writes a file that only its owner can read, whole or not at all. One that is so already is left alone, which needs no space.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if is_private(path) && fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut next = path.as_os_str().to_owned();
    next.push(format!(".{}", std::process::id()));
    let next = PathBuf::from(next);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&next).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path)
    });
    if written.is_err() {
        // Nothing half-written stays; if it was not ours to begin with, the next start says so again.
        let _ = fs::remove_file(&next);
    }
    written
}

#[cfg(unix)]
fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o077 == 0)
}

#[cfg(not(unix))]
fn is_private(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text() {
        let plain = Kubeconfig { server: "http://127.0.0.1:6443", ca_pem: None, token: "secret" }.text();
        assert!(plain.contains("\n    server: http://127.0.0.1:6443\nusers:\n"), "{plain}");
        assert!(plain.contains("\n  user:\n    token: secret\ncontexts:"), "{plain}");
        assert!(plain.contains("\ncurrent-context: konverge\n") && plain.contains("namespace: default"), "{plain}");
        let other = with_token(&plain, "other").unwrap();
        assert_eq!(other, Kubeconfig { server: "http://127.0.0.1:6443", ca_pem: None, token: "other" }.text());
        assert_eq!(with_token("apiVersion: v1\n", "other"), None);
        let tls = Kubeconfig { server: "https://[::1]:1", ca_pem: Some("foo"), token: "secret" }.text();
        assert!(tls.contains("    server: https://[::1]:1\n    certificate-authority-data: Zm9v\nusers:\n"), "{tls}");
    }

    #[test]
    fn what_may_be_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Kubeconfig { server: "http://127.0.0.1:1", ca_pem: None, token: "secret" };
        let path = directory.path().join("deep/kubeconfig");
        config.write(&path).expect("a new one");
        config.write(&path).expect("our own");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(directory.path().join("deep")).expect("a directory").count(), 1, "no leftovers");

        for (theirs, allowed) in [(&b""[..], true), (b"apiVersion: v1\nkind: Config\n", false), (b"\xff\xfe", false)] {
            fs::write(&path, theirs).expect("written");
            assert_eq!(config.write(&path).is_ok(), allowed, "{theirs:?}");
            if !allowed {
                assert_eq!(fs::read(&path).expect("a file"), theirs, "left alone");
            }
        }
        let error = config.write(directory.path()).expect_err("a directory");
        assert!(error.to_string().contains("cannot write the kubeconfig"), "{error}");
    }
}
