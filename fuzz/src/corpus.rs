//! Inputs that are kept: one directory for each target, one file for each input, named by what it holds.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// The kept inputs of a target.
pub(crate) struct Corpus(PathBuf);

impl Corpus {
    pub(crate) fn of(target: &str) -> Self {
        Self(root().join(target))
    }

    /// The names of all targets with inputs.
    #[cfg(test)]
    pub(crate) fn names() -> io::Result<Vec<String>> {
        fs::read_dir(root())?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// All inputs with their names, in the order of the names. A target may have none.
    pub(crate) fn inputs(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut inputs = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            inputs.push((name, fs::read(&path)?));
        }
        inputs.sort();
        Ok(inputs)
    }

    /// Keeps an input that a target failed with, and returns its path.
    pub(crate) fn keep(&self, input: &[u8]) -> io::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        fs::create_dir_all(&self.0)?;
        let path = self.0.join(format!("fault-{:016x}", hasher.finish()));
        fs::write(&path, input)?;
        Ok(path)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}
