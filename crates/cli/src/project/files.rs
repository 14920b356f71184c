//! Whether files have changed. In: a directory, and the files that a build was made of. Out: the moment one of them is
//! another, and has come to rest. Looks every now and then: what is looked at are some hundred names, and no system does
//! it alike otherwise.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);
/// Editors write a file in several steps; this long after the last of them it is whole.
const REST: Duration = Duration::from_millis(150);

/// Files as they were when last looked at.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    seen: BTreeMap<PathBuf, Option<Stamp>>,
    /// Whether new sources below the directory count: as long as it is not known what a build is made of.
    new_ones: bool,
}

/// What tells two states of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
}

impl Stamp {
    /// A file as it is now; nothing if there is none.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Stamp { changed: metadata.modified().ok(), length: metadata.len() })
    }
}

impl Files {
    /// All sources and manifests below a directory; what is built or hidden is no source.
    pub(super) fn below(directory: &Path) -> Self {
        let mut files = Self { directory: directory.to_owned(), seen: BTreeMap::new(), new_ones: true };
        files.look();
        files
    }

    /// A build begins: whatever is saved from now on, in any source there is, has changed.
    pub(super) fn mark(&mut self) {
        self.new_ones = true;
        self.look();
    }

    /// What the build was made of, instead of all there is. What was saved while it ran has still changed.
    pub(super) fn follow(&mut self, paths: &[PathBuf]) {
        let seen = |path: &PathBuf| self.seen.get(path).copied().unwrap_or_else(|| Stamp::of(path));
        self.seen = paths.iter().map(|path| (path.clone(), seen(path))).collect();
        self.new_ones = false;
    }

    /// Waits until one of them is another than it was.
    pub(super) async fn changed(&mut self) {
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
        for (path, known) in &mut self.seen {
            let now = Stamp::of(path);
            changed |= now != *known;
            *known = now;
        }
        if self.new_ones {
            changed |= walk(&self.directory, &mut self.seen);
        }
        changed
    }
}

/// Adds the sources below a directory that are not known yet; whether there are any.
fn walk(directory: &Path, seen: &mut BTreeMap<PathBuf, Option<Stamp>>) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let mut found = false;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "target" && !name.starts_with('.') => found |= walk(&path, seen),
            Ok(kind) if kind.is_file() && (name.ends_with(".rs") || name.starts_with("Cargo.")) => {
                if let Entry::Vacant(new) = seen.entry(path) {
                    let stamp = Stamp::of(new.key());
                    new.insert(stamp);
                    found = true;
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_manifests_are_seen_to_change() {
        let data_dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = data_dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "");
        write("src/main.rs", "fn main() {}");
        write("target/debug/build.rs", "");
        write(".git/hook.rs", "");
        write("README.md", "");
        let mut files = Files::below(data_dir.path());
        let names: Vec<_> =
            files.seen.keys().map(|path| path.strip_prefix(data_dir.path()).unwrap().to_owned()).collect();
        assert_eq!(names, [PathBuf::from("Cargo.toml"), PathBuf::from("src/main.rs")]);
        assert!(!files.look());
        write("src/main.rs", "fn main() { }");
        assert!(files.look());
        assert!(!files.look());
        std::fs::remove_file(data_dir.path().join("src/main.rs")).unwrap();
        assert!(files.look());
        // A source that is new is a change, until it is known which files count.
        write("src/main.rs", "mod other;");
        write("src/other.rs", "");
        assert!(files.look());

        // What is saved while a build runs is not missed, also in a file that the build before did not need.
        files.follow(&[data_dir.path().join("src/main.rs")]);
        write("tests/late.rs", "");
        assert!(!files.look());
        files.mark();
        write("src/other.rs", "// more");
        files.follow(&["src/main.rs", "src/other.rs"].map(|name| data_dir.path().join(name)));
        assert!(files.look());
        assert!(!files.look());
        assert_eq!(files.seen.len(), 2);
    }
}
