//! What `konverge dev` says in a project, kept in a file, so that `konverge support` can collect it. In: lines. Out: the newest of them in one file, and those before in
//! another. Only its owner can read it. A file that cannot be written is given up, because the terminal has the lines as well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// When a file has this many bytes, the next one begins.
const MOST_BYTES: u64 = 4 << 20;

/// A log of two files.
#[derive(Debug)]
pub(super) struct LogFile {
    newest: PathBuf,
    previous: PathBuf,
    most: u64,
    file: Option<(File, u64)>,
}

impl LogFile {
    /// Goes on with the files of an earlier start.
    pub(super) fn new([newest, previous]: [PathBuf; 2]) -> Self {
        Self::with_limit(newest, previous, MOST_BYTES)
    }

    fn with_limit(newest: PathBuf, previous: PathBuf, most: u64) -> Self {
        let file = open(&newest).ok();
        Self { newest, previous, most, file }
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) {
        if self.file.as_ref().is_some_and(|(_, length)| *length >= self.most) {
            // The file is open until the new one is, and a name that cannot be changed leaves it as it is.
            self.file = fs::rename(&self.newest, &self.previous).and_then(|()| open(&self.newest)).ok();
        }
        let Some((file, length)) = &mut self.file else { return };
        match file.write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => *length += line.len() as u64 + 1,
            Err(_) => self.file = None,
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_have_the_newest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let [newest, previous] = [folder.path().join("a"), folder.path().join("b")];
        let mut log = LogFile::with_limit(newest.clone(), previous.clone(), 6);
        for line in ["1", "2", "3", "4"] {
            log.line(line);
        }
        assert_eq!(
            (fs::read_to_string(&previous).unwrap(), fs::read_to_string(&newest).unwrap()),
            ("1\n2\n3\n".into(), "4\n".into())
        );
        // The next start goes on.
        let mut log = LogFile::with_limit(newest.clone(), previous.clone(), 6);
        ["5", "6", "7"].iter().for_each(|line| log.line(line));
        assert_eq!(
            (fs::read_to_string(&previous).unwrap(), fs::read_to_string(&newest).unwrap()),
            ("4\n5\n6\n".into(), "7\n".into())
        );
        // Where there is no folder, nothing is kept, and nothing fails.
        LogFile::with_limit(folder.path().join("no/a"), folder.path().join("no/b"), 6).line("8");
    }
}
