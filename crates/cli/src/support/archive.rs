//! The archive. In: texts and objects with secrets. Out: a `.tar.gz` without them, and a manifest of it. Everything passes the redactor on its way in, and nothing is
//! larger than its limit. Pure.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::redact::Redactor;
use crate::tar::Tar;

/// The largest file, and all files together, before they are compressed.
const MOST_BYTES: usize = 4 << 20;
const MOST_BYTES_TOGETHER: usize = 64 << 20;

/// The folder that everything is in, so that unpacking makes no mess.
const FOLDER: &str = "konverge-support";

/// The longest name of a file or folder; the format takes a little more.
const LONGEST_NAME: usize = 72;

/// What a file has in it.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A log or a page.
    Text(String),
    /// Objects, or what a program is to read.
    Objects(Vec<Value>),
    Json(Value),
}

/// Files that are added one by one.
pub(super) struct Archive {
    redactor: Redactor,
    files: Vec<(String, Vec<u8>)>,
    bytes: usize,
    lines: Vec<String>,
    missing: Vec<String>,
    removed: usize,
    most_bytes: usize,
}

impl Archive {
    pub(super) fn new(redactor: Redactor) -> Self {
        let missing = redactor.left_out().map(|why| format!("secrets: {why}")).into_iter().collect();
        Self {
            redactor,
            files: Vec::new(),
            bytes: 0,
            lines: Vec::new(),
            missing,
            removed: 0,
            most_bytes: MOST_BYTES_TOGETHER,
        }
    }

    /// Adds a file. `note` says what is special about it.
    pub(super) fn add(&mut self, path: &str, about: &str, content: Content, note: &str) {
        let text = match content {
            Content::Text(text) => self.redactor.text(&text),
            Content::Objects(mut objects) => {
                objects.iter_mut().for_each(|object| self.redactor.object(object));
                format!("{:#}\n", Value::Array(objects))
            }
            Content::Json(mut value) => {
                self.redactor.object(&mut value);
                format!("{value:#}\n")
            }
        };
        // What is in two lines of a text, or in a name, is searched for once more in the whole.
        let mut bytes = self.redactor.exact(&text).into_bytes();
        let removed = self.redactor.take_count();
        self.removed += removed;
        let mut notes: Vec<String> = Some(note.to_owned()).filter(|note| !note.is_empty()).into_iter().collect();
        if bytes.len() > MOST_BYTES {
            // The end of a text is what happened last.
            bytes.drain(..bytes.len() - MOST_BYTES);
            notes.push(format!("only its last {MOST_BYTES} bytes"));
        }
        let path = short(path);
        if self.bytes + bytes.len() > self.most_bytes {
            self.missing(&path, "the archive is full");
            return;
        }
        if removed > 0 {
            notes.push(format!("{removed} removed"));
        }
        self.bytes += bytes.len();
        let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
        self.lines.push(format!("{path}  {} bytes  {about}{notes}", bytes.len()));
        self.files.push((path, bytes));
    }

    /// Notes what is not in it, and why.
    pub(super) fn missing(&mut self, what: &str, why: &str) {
        let why = self.redactor.text(why);
        self.missing.push(format!("{what}: {why}"));
    }

    /// How many files there are, and how many secrets were removed.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.files.len(), self.removed, self.missing.len())
    }

    fn manifest(&self, head: &str) -> String {
        let mut text = format!("{head}\n\nWhat is in it:\n");
        for line in &self.lines {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(
            text,
            "\nRemoved: {} values. Values of Secrets, sensitive fields, variables and flags, tokens, passwords in URLs, private keys, credentials of the\n\
             kubeconfig, what was applied last and the details of managedFields are removed; so are values of Secrets wherever else they are found.",
            self.removed
        );
        text.push_str("\nWhat could not be read, or was left out:\n");
        for line in &self.missing {
            let _ = writeln!(text, "  {line}");
        }
        if self.missing.is_empty() {
            text.push_str("  nothing\n");
        }
        text
    }

    /// The bytes of the archive, with its manifest first.
    pub(super) fn finish(mut self, head: &str) -> std::io::Result<Vec<u8>> {
        let manifest = self.manifest(head);
        let manifest = self.redactor.exact(&manifest);
        let mut tar = Tar::default();
        tar.file(&format!("{FOLDER}/MANIFEST.txt"), 0o600, manifest.as_bytes());
        for (path, bytes) in &self.files {
            tar.file(&format!("{FOLDER}/{path}"), 0o600, bytes);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&tar.finish())?;
        encoder.finish()
    }
}

/// A path whose names are short enough for the format, and still told apart.
fn short(path: &str) -> String {
    let name = |name: &str| {
        if name.len() <= LONGEST_NAME {
            return name.to_owned();
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
        let digest: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let kept: String = name.chars().take(LONGEST_NAME / 2).filter(char::is_ascii).collect();
        let end = name.rsplit_once('.').map_or("", |(_, end)| end);
        format!("{kept}-{digest}.{end}")
    };
    path.split('/').map(name).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// The files of an archive.
    pub(crate) fn read(archive: &[u8]) -> Vec<(String, String)> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(archive), &mut bytes).unwrap();
        let files = crate::tar::tests::read(&bytes).into_iter();
        files.map(|(path, _, content)| (path, String::from_utf8(content).unwrap())).collect()
    }

    #[test]
    fn files_have_limits_and_a_manifest() {
        let mut archive = Archive::new(Redactor::new(["hunter22".to_owned()]));
        archive.add("a.log", "a log", Content::Text("it is hunter22\n".to_owned()), "");
        archive.add(
            "b.json",
            "objects",
            Content::Objects(vec![json!({"kind": "Secret", "data": {"a": "b"}})]),
            "100 of 200",
        );
        archive.add("c.log", "a long log", Content::Text("x".repeat(MOST_BYTES) + "the end"), "");
        archive.add(&format!("d/{}/e.json", "n".repeat(253)), "a long name", Content::Json(json!({})), "");
        archive.missing("pods", "forbidden, says hunter22");
        assert_eq!(archive.counts(), (4, 2, 1));
        let files = read(&archive.finish("konverge 1").unwrap());
        let find =
            |end: &str| files.iter().find(|(path, _)| path.ends_with(end)).map(|(_, text)| text.as_str()).unwrap();
        let manifest = find("MANIFEST.txt");
        for part in [
            "konverge 1",
            "a.log  16 bytes  a log (1 removed)",
            "100 of 200, 1 removed",
            "only its last",
            "pods: forbidden, says <removed>",
        ] {
            assert!(manifest.contains(part), "{part:?} is not in\n{manifest}");
        }
        assert_eq!(find("a.log"), "it is <removed>\n");
        assert!(find("c.log").len() == MOST_BYTES && find("c.log").ends_with("the end"));
        assert!(files.iter().all(|(path, text)| path.starts_with("konverge-support/") && !text.contains("hunter22")));
    }

    #[test]
    fn an_archive_that_is_full_says_so() {
        let mut archive = Archive { most_bytes: 10, ..Archive::new(Redactor::new([])) };
        for name in ["1.log", "2.log", "3.log"] {
            archive.add(name, "a log", Content::Text("12345".to_owned()), "");
        }
        assert_eq!(archive.counts(), (2, 0, 1));
        assert!(archive.manifest("").contains("3.log: the archive is full"));
    }
}
