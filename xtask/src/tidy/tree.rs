//! The files that checks look at. In: a repository, or a made-up list of files. Out: paths with sizes and texts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Larger files are not read; another check reports them.
const TEXT_MAX_BYTES: u64 = 1 << 20;

/// The files of a repository, by path with `/` between folders.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<String, File>);

#[derive(Debug)]
struct File {
    bytes: u64,
    text: Option<String>,
}

impl Tree {
    /// The files that git tracks or would track: also files that are not added yet, but no ignored ones.
    pub(super) fn of_repository(root: &Path) -> Result<Self, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).split('\0').filter(|path| !path.is_empty()) {
            let file = root.join(path);
            // A tracked file that was just deleted is still listed.
            let Ok(metadata) = std::fs::metadata(&file) else { continue };
            let bytes = metadata.len();
            let text = if bytes <= TEXT_MAX_BYTES { std::fs::read_to_string(&file).ok() } else { None };
            files.insert(path.to_owned(), File { bytes, text });
        }
        Ok(Self(files))
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Every path with its size.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file.bytes))
    }

    /// Every text file with its text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// Every Rust file with its text.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.text.as_deref()
    }

    /// Whether there is a file or a folder of this path.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.0.contains_key(path)
            || self.0.range(folder.clone()..).next().is_some_and(|(file, _)| file.starts_with(&folder))
    }

    /// The names of the folders of `crates/` that are packages.
    pub(super) fn crates(&self) -> BTreeSet<&str> {
        let manifests = self.0.keys().filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
        manifests.filter(|name| !name.contains('/')).collect()
    }
}

#[cfg(test)]
impl Tree {
    /// A made-up tree.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File { bytes: text.len() as u64, text: Some(text.to_owned()) };
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_crates() {
        let tree = Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", ""), ("crates/notes.md", "")]);
        let cases = [
            ("crates/a", true),
            ("crates/a/", true),
            ("crates/a/src/lib.rs", true),
            ("crates", true),
            ("crates/b", false),
        ];
        for (path, expect) in cases {
            assert_eq!(tree.has(path), expect, "{path}");
        }
        assert_eq!(tree.crates().into_iter().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_repository_is_what_git_would_track() {
        let root = tempfile::tempdir().unwrap();
        let git = Command::new("git").args(["init", "--quiet"]).current_dir(root.path()).status().unwrap();
        assert!(git.success());
        for (file, text) in [("a.txt", "a"), (".gitignore", "b.txt\n"), ("b.txt", "b")] {
            std::fs::write(root.path().join(file), text).unwrap();
        }
        std::fs::write(root.path().join("raw"), [0xff, 0xfe]).unwrap();
        let tree = Tree::of_repository(root.path()).unwrap();
        assert_eq!(tree.sizes().collect::<Vec<_>>(), [(".gitignore", 6), ("a.txt", 1), ("raw", 2)]);
        assert_eq!(tree.texts().collect::<Vec<_>>(), [(".gitignore", "b.txt\n"), ("a.txt", "a")]);
    }
}
