//! Archives of `tar`, as `kubectl cp` sends and reads them. In: the bytes of an archive as they come. Out: its files and
//! directories, one by one; and archives of such. Links, devices and owners are passed over. Pure.

use bytes::Bytes;

use super::files::Entry;

const BLOCK: usize = 512;

/// The longest name that is read, and the longest header that extends another.
const MAX_EXTENSION: usize = 64 << 10;

/// What is wrong with an archive, or with what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TarError(pub String);

/// Reads an archive.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// What came of the next header.
    header: Vec<u8>,
    /// The member that is being read.
    member: Option<Member>,
    /// A name from a header that extends the next one.
    long_name: Option<String>,
    ended: bool,
}

#[derive(Debug)]
struct Member {
    name: String,
    kind: u8,
    mode: u32,
    /// What is still to come, with and without what fills the last block.
    left: usize,
    padding: usize,
    content: Vec<u8>,
}

impl Reader {
    /// Takes bytes, and hands out the members that are whole. `limit` is the largest file.
    pub(super) fn receive(&mut self, mut bytes: &[u8], limit: usize) -> Result<Vec<(String, Entry)>, TarError> {
        let mut members = Vec::new();
        while !bytes.is_empty() && !self.ended {
            let Some(member) = &mut self.member else {
                let part = (BLOCK - self.header.len()).min(bytes.len());
                self.header.extend_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
                if self.header.len() == BLOCK {
                    let header = std::mem::take(&mut self.header);
                    self.begin(&header, limit)?;
                    // A member without content is whole.
                    members.extend(self.finish()?);
                }
                continue;
            };
            let content = member.left.min(bytes.len());
            member.content.extend_from_slice(&bytes[..content]);
            member.left -= content;
            let padding = if member.left == 0 { member.padding.min(bytes.len() - content) } else { 0 };
            member.padding -= padding;
            bytes = &bytes[content + padding..];
            members.extend(self.finish()?);
        }
        Ok(members)
    }

    /// Whether the end of the archive was read.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the archive broke off.
    pub(super) fn is_within_a_member(&self) -> bool {
        self.member.is_some() || !self.header.is_empty()
    }

    /// Reads a header.
    fn begin(&mut self, header: &[u8], limit: usize) -> Result<(), TarError> {
        if header.iter().all(|byte| *byte == 0) {
            self.ended = true;
            return Ok(());
        }
        let sum: u64 = header
            .iter()
            .enumerate()
            .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if octal(&header[148..156]) != Some(sum) {
            return Err(TarError("This does not look like a tar archive".into()));
        }
        let kind = header[156];
        let extends = matches!(kind, b'L' | b'x' | b'g' | b'K');
        let size = match kind {
            // Links and devices have no content, whatever their header says.
            b'1'..=b'6' => 0,
            _ => octal(&header[124..136]).and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX),
        };
        if size > if extends { MAX_EXTENSION } else { limit } {
            let name = String::from_utf8_lossy(until_zero(&header[..100])).into_owned();
            return Err(TarError(format!("{name}: a simulated container has no room for a file of this size")));
        }
        let name = match self.long_name.take().filter(|_| !extends) {
            Some(name) => name,
            None => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(until_zero(bytes)).into_owned();
                let (prefix, name) = (text(&header[345..500]), text(&header[..100]));
                let is_posix = &header[257..263] == b"ustar\0";
                if is_posix && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
            }
        };
        let mode = octal(&header[100..108]).and_then(|mode| u32::try_from(mode & 0o7777).ok()).unwrap_or(0o644);
        let padding = size.next_multiple_of(BLOCK) - size;
        self.member = Some(Member { name, kind, mode, left: size, padding, content: Vec::new() });
        Ok(())
    }

    /// The member that is being read, if it is whole and one that is kept.
    fn finish(&mut self) -> Result<Option<(String, Entry)>, TarError> {
        let Some(member) = self.member.take_if(|member| member.left == 0 && member.padding == 0) else {
            return Ok(None);
        };
        let Member { name, kind, mode, content, .. } = member;
        Ok(match kind {
            b'0' | 0 | b'7' if name.ends_with('/') => Some((name, Entry::Directory)),
            b'0' | 0 | b'7' => Some((name, Entry::File { mode, content: content.into() })),
            b'5' => Some((name, Entry::Directory)),
            b'L' => {
                self.long_name = Some(String::from_utf8_lossy(until_zero(&content)).into_owned());
                None
            }
            b'x' => {
                self.long_name = pax_path(&content);
                None
            }
            _ => None,
        })
    }
}

/// The `path` of an extended header: lines of their length, a space, a name, `=`, and a value.
fn pax_path(mut content: &[u8]) -> Option<String> {
    let mut path = None;
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&content[..space]).ok()?.parse().ok()?;
        let line = content.get(space + 1..length)?;
        content = &content[length..];
        let line = std::str::from_utf8(line).ok()?.trim_end_matches('\n');
        if let Some(value) = line.strip_prefix("path=") {
            path = Some(value.to_owned());
        }
    }
    path
}

/// An archive of files and directories by name.
pub(super) fn write(members: &[(String, Entry)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, entry) in members {
        let (kind, mode, content) = match entry {
            Entry::File { mode, content } => (b'0', *mode, content.clone()),
            Entry::Directory => (b'5', 0o755, Bytes::new()),
        };
        if name.len() > 100 {
            let long = [name.as_bytes(), &[0]].concat();
            append(&mut archive, "././@LongLink", b'L', 0o644, &long);
        }
        append(&mut archive, name, kind, mode, &content);
    }
    archive.extend([0; 2 * BLOCK]);
    archive
}

fn append(archive: &mut Vec<u8>, name: &str, kind: u8, mode: u32, content: &[u8]) {
    let mut header = [0; BLOCK];
    let short = &name.as_bytes()[..name.len().min(100)];
    header[..short.len()].copy_from_slice(short);
    let mut field = |at: usize, text: String| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    field(100, format!("{mode:07o}"));
    field(108, format!("{:07o}", 0));
    field(116, format!("{:07o}", 0));
    field(124, format!("{:011o}", content.len()));
    field(136, format!("{:011o}", 0));
    field(148, " ".repeat(8));
    field(257, "ustar  ".to_owned());
    header[156] = kind;
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    archive.extend(header);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(until_zero(field)).ok()?.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File { mode: 0o640, content: Bytes::copy_from_slice(text.as_bytes()) }
    }

    fn read(archive: &[u8], step: usize, limit: usize) -> Result<Vec<(String, Entry)>, TarError> {
        let mut reader = Reader::default();
        let mut members = Vec::new();
        for piece in archive.chunks(step) {
            members.extend(reader.receive(piece, limit)?);
        }
        Ok(members)
    }

    #[test]
    fn what_is_written_can_be_read() {
        let members = vec![
            ("tmp".to_owned(), Entry::Directory),
            ("tmp/empty".to_owned(), file("")),
            ("tmp/hello".to_owned(), file("hello")),
            (format!("tmp/{}", "long/".repeat(40)), Entry::Directory),
            (format!("tmp/{}", "x".repeat(300)), file(&"y".repeat(BLOCK))),
        ];
        let archive = write(&members);
        assert!(archive.len().is_multiple_of(BLOCK));
        for step in [archive.len(), 1, 511, 513] {
            assert_eq!(read(&archive, step, 1024), Ok(members.clone()), "{step}");
        }
    }

    #[test]
    fn bad_archives_are_refused() {
        let good = write(&[("a".to_owned(), file("hello"))]);
        let mut broken = good.clone();
        broken[0] = b'b';
        let refused = Err(TarError("This does not look like a tar archive".into()));
        assert_eq!(read(&broken, 512, 1024), refused);
        assert_eq!(read(&[b'x'; 2048], 512, 1024), refused);
        assert_eq!(read(&good[..300], 7, 1024), Ok(vec![]));
        assert!(
            read(&good, 512, 4).is_err_and(|TarError(why)| why.starts_with("a: a simulated container has no room"))
        );
        // What follows the end is not looked at.
        assert_eq!(read(&[&good[..], b"rest"].concat(), 512, 1024).map(|members| members.len()), Ok(1));
    }

    #[test]
    fn names_in_extended_headers() {
        for (content, expect) in [
            (&b"11 path=ab\n"[..], Some("ab")),
            (b"12 mtime=1.\n11 path=ab\n", Some("ab")),
            (b"99 path=ab\n", None),
            (b"x path=ab\n", None),
            (b"", None),
        ] {
            assert_eq!(pax_path(content).as_deref(), expect, "{content:?}");
        }
    }
}
