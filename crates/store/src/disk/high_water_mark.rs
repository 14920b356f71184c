//! The high-water mark: a small text file beside the database with the format of the store and the newest durable revision.
//! If the database file is missing, or is an older copy that is consistent in itself, it contradicts this file, and the
//! store refuses to start.
//!
//! It is rewritten in place after each durable transaction or append to the log and before its commits are acknowledged, without
//! an fsync of its own: a killed process leaves the page cache behind, so it is exact then; after a power loss it may lag. It
//! is never ahead of the database and its log together.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::{FORMAT, error::OpenError, files};
use crate::Revision;

pub(crate) struct HighWaterMark {
    file: File,
    path: PathBuf,
}

impl HighWaterMark {
    /// Creates the file of a store that reached `durable`. The content is on disk before the file has its name.
    pub(crate) fn create(path: &Path, durable: Revision) -> Result<HighWaterMark, OpenError> {
        let fail = OpenError::io(path);
        let new = path.with_extension("mark.new");
        let mut file = files::private().truncate(true).create(true).open(&new).map_err(&fail)?;
        file.write_all(line(FORMAT, durable).as_bytes()).map_err(&fail)?;
        file.sync_all().map_err(&fail)?;
        std::fs::rename(&new, path).map_err(&fail)?;
        files::sync_parent(path).map_err(&fail)?;
        Ok(HighWaterMark { file, path: path.into() })
    }

    /// Opens an existing file and reads its revision; `None` if there is no file.
    pub(crate) fn open(path: &Path) -> Result<Option<(HighWaterMark, Revision)>, OpenError> {
        let fail = OpenError::io(path);
        let mut file = match files::private().open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(&fail)?,
        };
        let mut bytes = Vec::new();
        // One byte more than a whole line, so that a longer file is noticed without reading all of it.
        let whole = line(FORMAT, Revision::ZERO).len() as u64;
        (&mut file).take(whole + 1).read_to_end(&mut bytes).map_err(&fail)?;
        let (format, durable) = std::str::from_utf8(&bytes)
            .ok()
            .and_then(parse)
            .ok_or_else(|| OpenError::damaged(path, "its content is not the line the store wrote there"))?;
        if format != FORMAT {
            return Err(OpenError::Newer { file: path.into(), format, known: FORMAT });
        }
        Ok(Some((HighWaterMark { file, path: path.into() }, durable)))
    }

    /// Call when, and only when, everything up to `durable` is on disk.
    pub(crate) fn advance(&mut self, durable: Revision) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(line(FORMAT, durable).as_bytes())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The line has the same length for all revisions, so that it can be overwritten in place. Later formats keep its layout, so
/// that an older program can tell "newer" from "damaged".
fn line(format: u64, durable: Revision) -> String {
    let text = format!("konverge-store format={format:010} durable={:020}", durable.0);
    format!("{text} check={:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn parse(text: &str) -> Option<(u64, Revision)> {
    let (format, rest) = text.strip_prefix("konverge-store format=")?.split_once(" durable=")?;
    let (durable, _) = rest.split_once(' ')?;
    let (format, durable) = (format.parse().ok()?, Revision(durable.parse().ok()?));
    (line(format, durable) == text).then_some((format, durable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_line_is_noticed() {
        let good = line(1, Revision(42));
        assert_eq!(parse(&good), Some((1, Revision(42))));
        assert_eq!(parse(&line(7, Revision(u64::MAX))), Some((7, Revision(u64::MAX))));
        for at in 0..good.len() {
            assert_eq!(parse(&good[..at]), None, "cut to {at}");
            for other in ["0", "9", "x", " ", "\n"] {
                let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
                assert!(changed == good || parse(&changed).is_none(), "{changed}");
            }
        }
        assert_eq!(parse(&format!("{good}\n")), None);
    }
}
