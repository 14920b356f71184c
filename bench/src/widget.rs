//! The objects of the benchmarks: widgets, custom resources with a schema and a KiB of random text each. Out: request bodies
//! and paths. The text is random so that it does not compress, and seeded so that two runs send the same bytes.

use serde_json::{Value, json};

/// The path of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The path of widgets.
pub(crate) const WIDGETS: &str = "/apis/bench.konverge.dev/v1/namespaces/default/widgets";

/// How much random text a widget has.
const PAYLOAD_BYTES: usize = 1024;

/// The path of one widget.
pub(crate) fn path(number: usize) -> String {
    format!("{WIDGETS}/{}", name(number))
}

/// The widget with this number, as JSON.
pub(crate) fn widget(number: usize) -> Vec<u8> {
    let mut random = Random::new(number as u64);
    let color = ["red", "green", "blue"][number % 3];
    let object = json!({
        "apiVersion": "bench.konverge.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name(number), "namespace": "default", "labels": {"app": "bench", "color": color}},
        "spec": {"color": color, "payload": random.text(PAYLOAD_BYTES), "sequence": 0, "size": number % 100},
    });
    object.to_string().into_bytes()
}

/// The widget with this number as a server returns it: with uid, resourceVersion and other fields that a server sets, and with
/// one field manager.
pub(crate) fn stored(number: usize, revision: usize, sequence: u64) -> Value {
    let mut object: Value = serde_json::from_slice(&widget(number)).expect("a widget is JSON");
    let fields = |names: &[&str]| names.iter().map(|name| (format!("f:{name}"), json!({}))).collect::<Value>();
    let metadata = &mut object["metadata"];
    metadata["uid"] = format!("a0c4d5f2-3b1e-4c8d-9e6f-{number:012}").into();
    metadata["resourceVersion"] = revision.to_string().into();
    metadata["generation"] = 1.into();
    metadata["creationTimestamp"] = "2026-11-01T12:00:00Z".into();
    metadata["managedFields"] = json!([{
        "manager": "bench", "operation": "Update", "apiVersion": "bench.konverge.dev/v1",
        "time": "2026-11-01T12:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": fields(&["app", "color"])},
            "f:spec": fields(&["color", "payload", "sequence", "size"]),
        },
    }]);
    object["spec"]["sequence"] = sequence.into();
    object
}

/// A merge patch that sets a widget's sequence number.
pub(crate) fn renumber(sequence: usize) -> Vec<u8> {
    json!({"spec": {"sequence": sequence}}).to_string().into_bytes()
}

/// The sequence number in a widget's JSON. The search begins at the end, because the long payload comes before the number.
pub(crate) fn sequence(json: &[u8]) -> Option<usize> {
    const FIELD: &[u8] = b"\"sequence\":";
    let at = json.windows(FIELD.len()).rposition(|window| window == FIELD)? + FIELD.len();
    let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let mut number = None;
    for digit in digits {
        number = Some(number.unwrap_or(0) * 10 + usize::from(digit - b'0'));
    }
    number
}

/// The definition of widgets: a structural schema of the usual size, with a status of its own.
pub(crate) fn definition() -> Vec<u8> {
    definition_of("widgets", &[])
}

/// The path of objects that are like widgets but for their plural name.
pub(crate) fn path_of(plural: &str) -> String {
    WIDGETS.replace("widgets", plural)
}

/// The same definition under another plural name, with these rules in CEL for the spec.
pub(crate) fn definition_of(plural: &str, rules: &[&str]) -> Vec<u8> {
    let mut spec = json!({
        "type": "object",
        "required": ["payload"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "payload": {"type": "string", "maxLength": 4096},
            "sequence": {"type": "integer", "minimum": 0},
            "size": {"type": "integer", "minimum": 0, "maximum": 1000, "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
    });
    if !rules.is_empty() {
        spec["x-kubernetes-validations"] = rules.iter().map(|rule| json!({"rule": rule})).collect();
    }
    let status = json!({
        "type": "object",
        "properties": {
            "ready": {"type": "boolean"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status"],
                    "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                },
            },
        },
    });
    let schema: Value = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let (singular, kind) = match plural {
        "widgets" => ("widget".to_owned(), "Widget".to_owned()),
        other => (format!("{other}-one"), format!("{}{}", other[..1].to_uppercase(), &other[1..])),
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.konverge.dev")},
        "spec": {
            "group": "bench.konverge.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    });
    definition.to_string().into_bytes()
}

/// The name of this widget.
pub(crate) fn name(number: usize) -> String {
    format!("widget-{number:06}")
}

/// Random numbers that are the same in every run (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds have to start far apart, and none at zero.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number between 0 and 1, without 0.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(length + 9);
        while text.len() < length {
            let bits = self.next_u64() >> 4;
            text.extend((0..10).map(|at| char::from(LETTERS[(bits >> (at * 6)) as usize & 63])));
        }
        text.truncate(length);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widgets_differ_and_are_the_same_again() {
        assert_eq!(widget(7), widget(7));
        let payload = |number| serde_json::from_slice::<Value>(&widget(number)).unwrap()["spec"]["payload"].clone();
        assert_ne!(payload(7), payload(8));
        assert_eq!(payload(7).as_str().map(str::len), Some(PAYLOAD_BYTES));
    }

    #[test]
    fn sequence_numbers_are_found() {
        for (json, expect) in [
            (r#"{"spec":{"payload":"x","sequence":17,"size":1}}"#, Some(17)),
            (r#"{"note":"\"sequence\":1","spec":{"sequence":0}}"#, Some(0)),
            (r#"{"spec":{"sequence":}}"#, None),
            (r#"{"spec":{}}"#, None),
        ] {
            assert_eq!(sequence(json.as_bytes()), expect, "{json}");
        }
    }
}
