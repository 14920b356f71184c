//! Whether files have changed. In: files, or a directory to look through. Out: the moment one of them is another, and has
//! come to rest. Looks every now and then: what is looked at are some hundred names, and no system does it alike otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);
/// Editors write a file in several steps; this long after the last of them it is whole.
const REST: Duration = Duration::from_millis(150);

/// Files as they were when last looked at.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// What tells two states of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
}

impl Files {
    /// These files instead. Those that were known stay as they were last seen: what was saved while a build ran has
    /// changed since.
    pub fn follow(&mut self, paths: &[PathBuf]) {
        let seen = |path: &PathBuf| self.0.get(path).copied().unwrap_or_else(|| stamp(path));
        self.0 = paths.iter().map(|path| (path.clone(), seen(path))).collect();
    }

    /// All sources and manifests below a directory as they are now; what is built or hidden is no source.
    pub fn below(directory: &Path) -> Self {
        let mut files = Self::default();
        files.walk(directory);
        files
    }

    /// These as well.
    pub fn add(&mut self, others: Files) {
        self.0.extend(others.0);
    }

    /// Waits until one of them is another than it was.
    pub async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.look() {
                break;
            }
        }
        while {
            tokio::time::sleep(REST).await;
            self.look()
        } {}
    }

    /// Whether one has changed since the last look.
    fn look(&mut self) -> bool {
        let mut changed = false;
        for (path, known) in &mut self.0 {
            let now = stamp(path);
            changed |= now != *known;
            *known = now;
        }
        changed
    }

    fn walk(&mut self, directory: &Path) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name != "target" && !name.starts_with('.') => self.walk(&path),
                Ok(kind) if kind.is_file() && (name.ends_with(".rs") || name.starts_with("Cargo.")) => {
                    self.0.insert(path.clone(), stamp(&path));
                }
                _ => {}
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp { changed: metadata.modified().ok(), length: metadata.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_manifests_are_seen_to_change() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "");
        write("src/main.rs", "fn main() {}");
        write("target/debug/build.rs", "");
        write(".git/hook.rs", "");
        write("README.md", "");
        let mut files = Files::below(home.path());
        let names: Vec<_> = files.0.keys().map(|path| path.strip_prefix(home.path()).unwrap().to_owned()).collect();
        assert_eq!(names, [PathBuf::from("Cargo.toml"), PathBuf::from("src/main.rs")]);
        assert!(!files.look());
        write("src/main.rs", "fn main() { }");
        assert!(files.look());
        assert!(!files.look());
        std::fs::remove_file(home.path().join("src/main.rs")).unwrap();
        assert!(files.look());
        // What is saved before it is known which files count is not missed.
        write("src/main.rs", "");
        files.follow(&[home.path().join("src/main.rs")]);
        assert!(files.look());
        assert_eq!(files.0.len(), 1);
    }
}
