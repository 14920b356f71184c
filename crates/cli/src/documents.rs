//! Manifests of the user: files, directories and standard input, as JSON or YAML with any number of documents. In: paths. Out: the
//! documents with where they are from, or why one cannot be read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The largest file. An object has at most 3 MiB, and nobody keeps thousands of large ones in a file.
const MOST_BYTES: u64 = 64 << 20;

/// The endings of files that are read in a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// One object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// `shop.yaml`, or `shop.yaml document 2` if there are several.
    pub source: String,
    pub object: Value,
}

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read {source_name}")]
    Read { source_name: String, source: io::Error },
    #[error("{0} has more than {MOST_BYTES} bytes")]
    TooLarge(String),
    #[error("{source_name} is neither YAML nor JSON: {why}")]
    Parse { source_name: String, why: String },
    #[error("{source_name} is no object: {found}")]
    NoObject { source_name: String, found: String },
}

/// The objects of files, of all files in directories and below them, and of standard input (`-`). Lists are taken apart.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            let read = io::stdin().lock().take(MOST_BYTES + 1).read_to_string(&mut text);
            read.map_err(|source| ReadError::Read { source_name: "standard input".into(), source })?;
            documents.extend(parse("standard input", &text)?);
        } else if path.is_dir() {
            for file in files(path)? {
                documents.extend(read(&file)?);
            }
        } else {
            documents.extend(read(path)?);
        }
    }
    Ok(documents)
}

/// The manifests in a directory and below it, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source| ReadError::Read { source_name: directory.display().to_string(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_manifest = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
        // A link to a directory may lead back to where it is.
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path)?);
        } else if is_manifest {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<Document>, ReadError> {
    let source_name = path.display().to_string();
    let failed = |source| ReadError::Read { source_name: source_name.clone(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    parse(&source_name, &text)
}

/// The objects of a text.
pub(crate) fn parse(source_name: &str, text: &str) -> Result<Vec<Document>, ReadError> {
    if text.len() as u64 > MOST_BYTES {
        return Err(ReadError::TooLarge(source_name.to_owned()));
    }
    let pieces = split(text);
    let several = pieces.len() > 1;
    let mut documents = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if piece.lines().all(is_comment) {
            continue;
        }
        let source = if several { format!("{source_name} document {}", at + 1) } else { source_name.to_owned() };
        let parsed = serde_saphyr::from_str::<Value>(piece);
        let object =
            parsed.map_err(|error| ReadError::Parse { source_name: source.clone(), why: error.to_string() })?;
        flatten(source, object, &mut documents)?;
    }
    Ok(documents)
}

/// An object, or the objects of a list.
fn flatten(source: String, mut object: Value, documents: &mut Vec<Document>) -> Result<(), ReadError> {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array();
    match &mut object {
        Value::Null => {}
        Value::Object(fields) if is_list => {
            let items = fields.remove("items").unwrap_or_default();
            for (at, item) in items.as_array().into_iter().flatten().enumerate() {
                flatten(format!("{source} items[{at}]"), item.clone(), documents)?;
            }
        }
        Value::Object(_) => documents.push(Document { source, object }),
        other => {
            let found = other.to_string().chars().take(40).collect();
            return Err(ReadError::NoObject { source_name: source, found });
        }
    }
    Ok(())
}

/// The documents of a YAML text. A line of three hyphens is between two.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match documents.last_mut() {
            Some(document) if line.trim_end() != "---" => *document += &format!("{line}\n"),
            _ => documents.push(String::new()),
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_apart_by_lines() {
        for (text, expect) in [
            ("", &[][..]),
            ("a: 1\n", &["a: 1\n"]),
            ("---\na: 1\n---\nb: 2\n---\n", &["a: 1\n", "b: 2\n"]),
            ("text: one---\n  two\n", &["text: one---\n  two\n"]),
        ] {
            assert_eq!(split(text), expect, "{text:?}");
        }
    }

    #[test]
    fn files_directories_and_lists() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        std::fs::create_dir(directory.path().join("deep")).unwrap();
        write("b.yaml", "kind: A\n---\n# nothing\n---\nkind: B\n");
        write("a.json", r#"{"kind": "List", "items": [{"kind": "C"}, {"kind": "D"}]}"#);
        write("deep/c.yml", "kind: E\n");
        write("notes.txt", "no: manifest");
        let found = read_all(&[directory.path().to_owned()]).unwrap();
        let brief = |document: &Document| {
            let name = document.source.rsplit('/').next().unwrap_or_default().to_owned();
            format!("{name} {}", document.object["kind"].as_str().unwrap_or_default())
        };
        let found: Vec<String> = found.iter().map(brief).collect();
        assert_eq!(
            found,
            ["a.json items[0] C", "a.json items[1] D", "b.yaml document 1 A", "b.yaml document 3 B", "c.yml E"]
        );
        for (text, expect) in [("[1]", "is no object: [1]"), ("a: [", "is neither YAML nor JSON")] {
            write("bad.yaml", text);
            let error = read_all(&[directory.path().join("bad.yaml")]).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        assert!(read_all(&[directory.path().join("none.yaml")]).unwrap_err().to_string().starts_with("cannot read "));
    }
}
