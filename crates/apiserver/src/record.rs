//! The stored form of an object: its JSON with kind, apiVersion and metadata first, without its resourceVersion, which is the
//! revision that the store gives it. In: an object. Out: the bytes to store, and from stored bytes the bytes that every reader
//! and watcher gets, spliced and never serialised again.

use std::io;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::{self, Finder};
use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value};

use konverge_store::{Entry, Revision};

/// Where the resourceVersion goes. Only a kind and an apiVersion come before it, and neither can hold a quote.
const METADATA: &[u8] = b"\"metadata\":{";

/// Finds fields that every write or read looks for. To prepare a search costs more than to search a whole object.
static FIND_METADATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(METADATA));
static FIND_OWNER_REFERENCES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(OWNER_REFERENCES));
static FIND_DELETION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(DELETION_TIMESTAMP));

/// Names of fields for [`mentions`].
pub(crate) const OWNER_REFERENCES: &str = "ownerReferences";
pub(crate) const DELETION_TIMESTAMP: &str = "deletionTimestamp";

/// The bytes to store for `object`.
pub(crate) fn encode(object: &Value) -> Bytes {
    // More than most objects have. The store keeps a copy that is as long as it has to be.
    let mut out = Vec::with_capacity(2048);
    write(object, |name| name != "resourceVersion", &mut out);
    Bytes::from(out)
}

/// Appends the JSON of an object that is not in the store, in the order of a stored one.
pub(crate) fn write_object(object: &Value, out: &mut Vec<u8>) {
    write(object, |_| true, out);
}

fn write(object: &Value, keeps: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    out.push(b'{');
    for name in ["kind", "apiVersion"] {
        if let Some(value) = fields.get(name) {
            write_field(out, name, value);
            out.push(b',');
        }
    }
    out.extend_from_slice(METADATA);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (at, (name, value)) in metadata.iter().filter(|(name, _)| keeps(name)).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_field(out, name, value);
    }
    out.push(b'}');
    for (name, value) in fields {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            out.push(b',');
            write_field(out, name, value);
        }
    }
    out.push(b'}');
}

/// The object as it is stored, with its resourceVersion.
pub(crate) fn decode(entry: &Entry) -> Value {
    let mut object: Value = serde_json::from_slice(&entry.value).expect("the store holds only what encode wrote");
    object["metadata"]["resourceVersion"] = Value::String(entry.revision.0.to_string());
    object
}

/// Appends the object's JSON, with `revision` as its resourceVersion.
pub(crate) fn splice(stored: &[u8], revision: Revision, out: &mut Vec<u8>) {
    let at = insertion_point(stored);
    out.extend_from_slice(&stored[..at]);
    splice_rest(stored, at, revision, out);
}

/// The same without kind and apiVersion: the items of a list of a built-in kind do not repeat what the list says.
pub(crate) fn splice_item(stored: &[u8], revision: Revision, out: &mut Vec<u8>) {
    let at = insertion_point(stored);
    out.push(b'{');
    out.extend_from_slice(METADATA);
    splice_rest(stored, at, revision, out);
}

fn splice_rest(stored: &[u8], at: usize, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    let mut digits = [0; 20];
    out.extend_from_slice(decimal(revision.0, &mut digits));
    out.push(b'"');
    if stored.get(at) != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(&stored[at..]);
}

fn insertion_point(stored: &[u8]) -> usize {
    let at = FIND_METADATA.find(stored);
    at.expect("encode writes metadata into every record") + METADATA.len()
}

/// Whether a record may have a field of this name: a cheap check with false positives but no false negatives.
pub(crate) fn mentions(stored: &[u8], field: &str) -> bool {
    let found = match field {
        OWNER_REFERENCES => FIND_OWNER_REFERENCES.find(stored),
        DELETION_TIMESTAMP => FIND_DELETION.find(stored),
        field => memmem::find(stored, field.as_bytes()),
    };
    found.is_some()
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &Value) {
    write_text(out, name);
    out.push(b':');
    write_value(out, value);
}

/// The same bytes as those of serde_json but for numbers, in half the instructions: most of an object is text without escapes.
fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            out.push(b'{');
            for (at, (name, value)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_field(out, name, value);
            }
            out.push(b'}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            value.serialize(&mut Serializer::with_formatter(out, GoNumbers)).expect("writing to memory does not fail");
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Without a branch for each byte, so that the compiler looks at many at once.
    let is_plain =
        |text: &[u8]| !text.iter().fold(false, |found, b| found | (*b < b' ') | (*b == b'"') | (*b == b'\\'));
    if is_plain(text.as_bytes()) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("writing to memory does not fail");
    }
}

/// Writes numbers as Go does: `1.0` is stored as `1`, and with it becomes an integer.
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            return match text.split_once('e') {
                Some((digits, exponent)) if !exponent.starts_with('-') => write!(writer, "{digits}e+{exponent}"),
                _ => writer.write_all(text.as_bytes()),
            };
        }
        write!(writer, "{value}")
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, expect) in [
            ("1.0", "1"),
            ("-0.0", "-0"),
            ("1e3", "1000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.5e300", "1.5e+300"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("8846916604822359.0", "8846916604822359"),
            ("2.5", "2.5"),
        ] {
            let spec: Value = serde_json::from_str(number).unwrap();
            let stored = encode(&json!({"apiVersion": "v1", "kind": "X", "metadata": {}, "spec": spec}));
            let expect = format!(r#"{{"kind":"X","apiVersion":"v1","metadata":{{}},"spec":{expect}}}"#);
            assert_eq!(std::str::from_utf8(&stored).unwrap(), expect, "{number}");
        }
    }

    #[test]
    fn text_is_written_as_serde_json_writes_it() {
        for text in ["", "plain", "ü \u{7f}\u{2028}", "a\"b", "a\\b", "tab\t", "\n", "\u{0}\u{1f}"] {
            for text in [text.to_owned(), text.repeat(40), format!("{}{text}", "x".repeat(64))] {
                let spec = json!({text.clone(): [text, null, true, {}, []]});
                let stored = encode(&json!({"metadata": {}, "spec": spec}));
                let expect = format!(r#"{{"metadata":{{}},"spec":{spec}}}"#);
                assert_eq!(std::str::from_utf8(&stored).unwrap(), expect);
            }
        }
    }

    #[test]
    fn spliced_bytes_are_the_object_with_its_revision() {
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"metadata": "{"}}),
            json!({"apiVersion": "a/v1", "kind": "X", "metadata": {"name": "ü\"", "resourceVersion": "3"}, "spec": [1, 2.5]}),
            json!({"apiVersion": "v1", "kind": "Empty", "metadata": {}}),
        ] {
            for revision in [0, 7, u64::MAX] {
                let mut expect = object.clone();
                expect["metadata"]["resourceVersion"] = revision.to_string().into();
                let mut out = Vec::new();
                splice(&encode(&object), Revision(revision), &mut out);
                assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expect);
                out.clear();
                write_object(&expect, &mut out);
                assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expect);
                out.clear();
                splice_item(&encode(&object), Revision(revision), &mut out);
                let fields = expect.as_object_mut().unwrap();
                fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
                assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expect);
            }
        }
    }
}
