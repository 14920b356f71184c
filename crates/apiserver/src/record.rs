//! The stored form of an object: its JSON with apiVersion, kind and metadata first, without its resourceVersion, which is the
//! revision that the store gives it. In: an object. Out: the bytes to store, and from stored bytes the bytes that every reader
//! and watcher gets, spliced and never serialised again.

use bytes::Bytes;
use serde_json::{Map, Value};

use konverge_store::{Entry, Revision};

/// Where the resourceVersion goes. Only an apiVersion and a kind come before it, and neither can hold a quote.
const METADATA: &[u8] = b"\"metadata\":{";

/// The bytes to store for `object`.
pub(crate) fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    out.push(b'{');
    for name in ["apiVersion", "kind"] {
        write_field(&mut out, name, fields.get(name).unwrap_or(&Value::Null));
        out.push(b',');
    }
    out.extend_from_slice(METADATA);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let stored = metadata.iter().filter(|(name, _)| *name != "resourceVersion");
    for (at, (name, value)) in stored.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_field(&mut out, name, value);
    }
    out.push(b'}');
    for (name, value) in fields {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            out.push(b',');
            write_field(&mut out, name, value);
        }
    }
    out.push(b'}');
    Bytes::from(out.into_boxed_slice())
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
    let at = stored.windows(METADATA.len()).position(|window| window == METADATA);
    at.expect("encode writes metadata into every record") + METADATA.len()
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &Value) {
    serde_json::to_writer(&mut *out, name).expect("writing to memory does not fail");
    out.push(b':');
    serde_json::to_writer(out, value).expect("writing to memory does not fail");
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
            }
        }
    }
}
