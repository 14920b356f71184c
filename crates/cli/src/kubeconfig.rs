//! The file that tells kubectl and operators where the server is. An address and a CA come in; a file that only its
//! owner can read comes out, whole or not at all. What people add to the file with `kubectl config` stays: only the cluster and the user called
//! `konverge` are renewed. A kubeconfig without them is somebody else's, and is never touched.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::yaml;

/// The first line of ours. kubectl removes it when it writes the file.
const MARK: &str = "# Written by konverge; ";

/// The name of our cluster, our user and our context.
const NAME: &str = "konverge";

/// Why it was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error("{}: has no cluster and user called konverge with a context, so it is somebody else's and is left alone; move it away, or choose another file with --kubeconfig", .0.display())]
    Foreign(PathBuf),
    #[error("{}: is no YAML, and what somebody added to it would be lost; mend it, move it away, or choose another file with --kubeconfig", .0.display())]
    Broken(PathBuf),
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
    /// Puts it at this path, if what is there has our cluster and our user, or is nothing.
    pub(crate) fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        let failed = |source| KubeconfigError::Io { path: path.into(), source };
        let text = match read(path)? {
            Content::Nothing => self.text(),
            Content::Ours(config) => self.renewed(config),
        };
        write_private(path, &text).map_err(failed)
    }

    /// A kubeconfig with our cluster and our user as they are now, and all else as it was. If there is nothing else, it is
    /// the same text at each start.
    fn renewed(&self, mut config: Value) -> String {
        let own = self.text();
        let own_config: Value = serde_saphyr::from_str(&own).unwrap_or_default();
        for (list, field) in [("clusters", "cluster"), ("users", "user")] {
            let renewed = entry(&own_config, list).map(|entry| entry[field].clone()).unwrap_or_default();
            if let Some(entry) = entry_mut(&mut config, list) {
                entry[field] = renewed;
            }
        }
        if config == own_config {
            return own;
        }
        let first = format!("{MARK}the cluster and the user called {NAME} are renewed at each start.");
        format!("{first}\n{}", yaml::document(&config, yaml::Reader::Kubernetes))
    }

    fn text(&self) -> String {
        let Kubeconfig { server, ca_pem, token } = self;
        let ca =
            ca_pem.map_or(String::new(), |pem| format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)));
        format!(
            "{MARK}renewed at each start.
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

/// A kubeconfig of ours, with another token for our user and nobody else's credentials.
pub(crate) fn with_token(text: &str, token: &str) -> Option<String> {
    let config = ours(text)?;
    let context = config["contexts"].as_array()?.iter().find(|context| is_own_context(context))?;
    let own = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [entry(&config, "clusters")?],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [context],
        "current-context": context["name"],
    });
    Some(format!("{MARK}renewed at each start.\n{}", yaml::document(&own, yaml::Reader::Kubernetes)))
}

/// Whether this path may be written; asked before the server starts, too.
pub(crate) fn check(path: &Path) -> Result<(), KubeconfigError> {
    read(path).map(drop)
}

/// What is at the path of a kubeconfig that may be written.
enum Content {
    Nothing,
    /// A kubeconfig with our entries.
    Ours(Value),
}

fn read(path: &Path) -> Result<Content, KubeconfigError> {
    let foreign = || KubeconfigError::Foreign(path.into());
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() => Ok(Content::Nothing),
        Ok(text) => match ours(&text) {
            Some(config) => Ok(Content::Ours(config)),
            // The line stays when people edit the file, so what they added may be below it.
            None if text.starts_with(MARK) => match serde_saphyr::from_str::<Value>(&text) {
                Ok(config) if has_others(&config) => Err(foreign()),
                Ok(_) => Ok(Content::Nothing),
                Err(_) => Err(KubeconfigError::Broken(path.into())),
            },
            None => Err(foreign()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(Content::Nothing),
            io::ErrorKind::InvalidData => Err(foreign()),
            _ => Err(KubeconfigError::Io { path: path.into(), source: error }),
        },
    }
}

/// The kubeconfig in a text, if it has our cluster, our user and a context of both, whatever the context is called.
fn ours(text: &str) -> Option<Value> {
    let config: Value = serde_saphyr::from_str(text).ok()?;
    let has_entries = entry(&config, "clusters").is_some() && entry(&config, "users").is_some();
    let has_context = config["contexts"].as_array().is_some_and(|contexts| contexts.iter().any(is_own_context));
    (config["kind"] == "Config" && has_entries && has_context).then_some(config)
}

/// Whether a kubeconfig has a cluster, a user or a context that is not called as ours.
fn has_others(config: &Value) -> bool {
    let lists = ["clusters", "users", "contexts"].into_iter().filter_map(|list| config[list].as_array());
    lists.flatten().any(|entry| entry["name"] != NAME)
}

fn is_own_context(context: &Value) -> bool {
    context["context"]["cluster"] == NAME && context["context"]["user"] == NAME
}

/// Our entry in one of the lists of a kubeconfig.
fn entry<'a>(config: &'a Value, list: &str) -> Option<&'a Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == NAME)
}

fn entry_mut<'a>(config: &'a mut Value, list: &str) -> Option<&'a mut Value> {
    config[list].as_array_mut()?.iter_mut().find(|entry| entry["name"] == NAME)
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
        let config = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
        let other = with_token(&plain, "other").unwrap();
        let expect = Kubeconfig { server: "http://127.0.0.1:6443", ca_pem: None, token: "other" }.text();
        assert_eq!(config(&other), config(&expect));
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
        fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("written");
        let error = config.write(&path).expect_err("somebody else's").to_string();
        assert!(error.contains("move it away, or choose another file with --kubeconfig"), "{error}");
        let error = config.write(directory.path()).expect_err("a directory");
        assert!(error.to_string().contains("cannot write the kubeconfig"), "{error}");
    }

    /// As `kubectl config` writes the file: sorted, without comments.
    const EDITED: &str = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: b2xk
    server: https://127.0.0.1:1
  name: konverge
- cluster: {server: https://prod.example.com}
  name: prod
contexts:
- context: {cluster: konverge, namespace: shop, user: konverge}
  name: konverge
- context: {cluster: konverge, user: alice}
  name: as-alice
current-context: as-alice
kind: Config
preferences: {}
users:
- name: alice
  user: {token: hers}
- name: konverge
  user: {token: old}
";

    #[test]
    fn what_people_add_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        let config = Kubeconfig { server: "https://127.0.0.1:2", ca_pem: Some("new"), token: "secret" };
        let check = |given: &str, expect: Option<&str>| {
            fs::write(&path, given).expect("written");
            assert_eq!(check(&path).is_ok(), expect.is_some(), "{given}");
            assert_eq!(config.write(&path).is_ok(), expect.is_some(), "{given}");
            let read = |text: &str| serde_saphyr::from_str::<Value>(text).expect("YAML");
            let written = fs::read_to_string(&path).expect("a file");
            match expect {
                Some(expect) => assert_eq!(read(&written), read(expect), "{given}"),
                None => assert_eq!(written, given, "left alone"),
            }
            if expect.is_some() {
                config.write(&path).expect("once more");
                assert_eq!(fs::read_to_string(&path).expect("a file"), written, "the next start changes nothing");
            }
        };
        let renewed = EDITED
            .replace("https://127.0.0.1:1", "https://127.0.0.1:2")
            .replace("b2xk", "bmV3")
            .replace("token: old", "token: secret");
        check(EDITED, Some(&renewed));
        let renamed = |text: &str| text.replace("  name: konverge\n- context", "  name: local\n- context");
        check(&renamed(EDITED), Some(&renamed(&renewed)));
        check(&config.text().replace("default", "shop"), Some(&config.text().replace("default", "shop")));
        check(&config.text(), Some(&config.text()));
        // Somebody added to our file in an editor, where its first line stays, and broke it, or took our context out.
        let edited = format!("{MARK}renewed at each start.\n{EDITED}");
        check(&edited, Some(&renewed));
        check(&edited.replace("  name: prod", " name: prod"), None);
        check(&edited.replace("{cluster: konverge, ", "{cluster: prod, "), None);
        // Of our own entries alone nothing is kept.
        check(&config.text().replace("    user: konverge\n", ""), Some(&config.text()));
        check(&format!("{MARK}renewed at each start.\n"), Some(&config.text()));
        check(&EDITED.replace("- name: konverge", "- name: other"), None);
        check(
            &EDITED.replace("- context: {cluster: konverge, namespace: shop, user: konverge}", "- context: {}"),
            None,
        );

        let of_operator = with_token(EDITED, "operator").expect("ours");
        assert!(of_operator.contains("token: operator") && of_operator.contains("namespace: shop"), "{of_operator}");
        assert!(!of_operator.contains("hers") && !of_operator.contains("as-alice"), "{of_operator}");
    }
}
