//! Tar archives, as POSIX `ustar` has them. In: files. Out: bytes that depend on nothing but the files: owned by root, of the first second of 1970, in
//! the order in which they are given.

/// The size of a record, in which everything is rounded up.
const RECORD: usize = 512;

/// How long names of files, and of the folders before them, may be.
const NAME: usize = 100;
const FOLDER: usize = 155;

/// The end of an archive is two empty records.
const END: usize = 2 * RECORD;

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    /// Adds a file. Names have at most 100 bytes, their folders 155, and contents at most 8 GiB, which everything here has.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.0.extend_from_slice(&header(path, mode, content.len(), b'0'));
        self.0.extend_from_slice(content);
        let rest = content.len() % RECORD;
        if rest > 0 {
            self.0.resize(self.0.len() + RECORD - rest, 0);
        }
    }

    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str) {
        self.0.extend_from_slice(&header(path, 0o755, 0, b'5'));
    }

    /// The archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + END, 0);
        self.0
    }
}

fn header(path: &str, mode: u32, size: usize, kind: u8) -> [u8; RECORD] {
    // A long path is in two fields, of which the first has folders.
    let at = if path.len() <= NAME {
        None
    } else {
        path.rmatch_indices('/').map(|(at, _)| at).filter(|at| *at <= FOLDER).find(|at| path.len() - at - 1 <= NAME)
    };
    let (folder, name) = at.map_or(("", path), |at| (&path[..at], &path[at + 1..]));
    assert!(name.len() <= NAME, "callers shorten names");
    let mut header = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    // User and group.
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    // The time.
    put(136, b"00000000000\0");
    // The checksum counts as spaces while it is summed up.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\0");
    put(263, b"00");
    put(345, folder.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The files of an archive, as a reader of the format finds them.
    pub(crate) fn read(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut files = Vec::new();
        let mut at = 0;
        while archive[at] != 0 {
            let header = &archive[at..at + RECORD];
            let text = |range: std::ops::Range<usize>| {
                let field = &header[range];
                let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
                String::from_utf8(field[..end].to_vec()).unwrap().trim().to_owned()
            };
            let number = |range| usize::from_str_radix(&text(range), 8).unwrap();
            let sum: usize = header
                .iter()
                .enumerate()
                .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { usize::from(*byte) })
                .sum();
            assert_eq!((number(148..156), &header[257..262], number(136..148)), (sum, &b"ustar"[..], 0));
            let size = number(124..136);
            at += RECORD;
            let path = match (text(345..500), text(0..100)) {
                (folder, name) if folder.is_empty() => name,
                (folder, name) => format!("{folder}/{name}"),
            };
            files.push((path, number(100..108) as u32, archive[at..at + size].to_vec()));
            at += size.div_ceil(RECORD) * RECORD;
        }
        assert_eq!(archive.len() - at, END);
        files
    }

    #[test]
    fn files_are_read_back() {
        let mut tar = Tar::default();
        tar.directory("a/");
        tar.file("a/empty", 0o644, b"");
        tar.file("a/exact", 0o755, &[7; RECORD]);
        tar.file("b", 0o600, b"text");
        let long = format!("{}/{}/c", "d".repeat(60), "e".repeat(60));
        tar.file(&long, 0o600, b"far");
        let files = read(&tar.finish());
        let expect = [
            ("a/", 0o755, Vec::new()),
            ("a/empty", 0o644, Vec::new()),
            ("a/exact", 0o755, vec![7; RECORD]),
            ("b", 0o600, b"text".to_vec()),
            (long.as_str(), 0o600, b"far".to_vec()),
        ];
        assert_eq!(files, expect.map(|(path, mode, content)| (path.to_owned(), mode, content)));
    }
}
