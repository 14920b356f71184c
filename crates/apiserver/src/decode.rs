//! Decodes the body of a request. In: bytes and their media type. Out: a value, and the duplicate fields that strict decoding
//! reports. Does not know schemas. The depth is limited, so later stages may recurse.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, with_deserializer_from_slice_with_options};

use konverge_core::Status;
use konverge_schema::{Budget, OverBudget};

use crate::work::over_budget;

mod protobuf;
mod unicode;
mod yaml_document;

pub(crate) use protobuf::{protobuf, protobuf_delete_options};

/// How deep an object may be nested. The stored object is a little deeper, because of its managed fields, and must be readable
/// for a parser that goes 128 levels deep.
pub(crate) const MAX_DEPTH: usize = 120;

/// How much aliases of YAML may add to a body: more than people write, and done within milliseconds.
const MAX_ALIASED: usize = 100_000;

/// The length of the paths of all values of an object together. Errors and managed fields contain paths; many short keys under
/// one long key would fill the memory.
const MAX_PATH_BYTES: usize = 64 * 1024 * 1024;

/// How many duplicate fields are reported, and how long their paths may be together.
const MAX_DUPLICATES: usize = 100;
const MAX_DUPLICATE_BYTES: usize = 64 * 1024;

/// Reading this many bytes of JSON takes as long as one step of other work. YAML takes a step for each byte.
const BYTES_PER_STEP: usize = 8;

/// A body that was read.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// What it holds.
    pub value: Value,
    /// The paths of fields that were given more than once, as strict decoding reports them.
    pub duplicates: Vec<String>,
}

/// Reads JSON. What is not Unicode in a text becomes U+FFFD, as in Go.
pub(crate) fn json(body: &[u8], budget: &Budget) -> Result<Decoded, Status> {
    let decoded = valid_json(body, budget);
    match &decoded {
        Err(status) if status.code == 400 => match unicode::replaced(body) {
            Some(body) => valid_json(&body, budget),
            None => decoded,
        },
        _ => decoded,
    }
}

fn valid_json(body: &[u8], budget: &Budget) -> Result<Decoded, Status> {
    spend(budget, body.len() / BYTES_PER_STEP)?;
    let duplicates = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Seed { path: &Path::Root, duplicates: &duplicates, budget }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| unreadable("json", &error, budget))?;
    check_shape(&value)?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

/// Reads YAML (and so JSON), the first document. Aliases and depth are bounded by the parser's budget.
pub(crate) fn yaml(body: &[u8], budget: &Budget) -> Result<Decoded, Status> {
    // Most "YAML" that clients send is JSON, whose parser is faster and reports duplicates.
    // What begins alike and is no JSON may be YAML in its flow style.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        match json(body, budget) {
            Err(status) if status.code == 400 => {}
            decoded => return decoded,
        }
    }
    spend(budget, body.len())?;
    let body = yaml_document::first(body);
    if yaml_document::begins_with_tab(body) {
        let why = "error converting YAML to JSON: yaml: found character that cannot start any token";
        return Err(Status::bad_request(format!("{why}; indent with spaces instead of tabs")));
    }
    let duplicates = RefCell::new(Vec::new());
    // Duplicate keys are refused or not by the request's `fieldValidation`; and messages must not repeat the body.
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        // Kubernetes reads YAML 1.1, where file modes like 0644 are octal.
        legacy_octal_numbers: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    };
    let value = with_deserializer_from_slice_with_options(body, options, |reader| {
        Seed { path: &Path::Root, duplicates: &duplicates, budget }.deserialize(reader)
    });
    let value = value.map_err(|error| unreadable("yaml", &error, budget))?;
    check_shape(&value)?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

/// Refuses an object that is nested too deeply or whose keys are too long, also after a patch.
pub(crate) fn check_shape(value: &Value) -> Result<(), Status> {
    if depth_exceeds(value, MAX_DEPTH) {
        return Err(too_deep());
    }
    let mut left = MAX_PATH_BYTES;
    if !paths_fit(value, 0, &mut left) {
        return Err(Status::too_large(
            "Request entity too large: the keys of the object are too long for how much is nested under them; \
             shorten the keys, or nest less",
        ));
    }
    Ok(())
}

/// Whether a value is nested more than so many levels deep. Looks no deeper than that.
pub(crate) fn depth_exceeds(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(items) => most == 0 || items.iter().any(|item| depth_exceeds(item, most - 1)),
        Value::Object(fields) => most == 0 || fields.values().any(|field| depth_exceeds(field, most - 1)),
        _ => false,
    }
}

pub(crate) fn too_deep() -> Status {
    Status::bad_request(format!("the object is nested more than {MAX_DEPTH} levels deep; make it flatter"))
}

/// Takes the length of each value's path from what is left.
fn paths_fit(value: &Value, prefix: usize, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(prefix) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| paths_fit(item, prefix + 4, left)),
        Value::Object(fields) => fields.iter().all(|(name, value)| paths_fit(value, prefix + name.len() + 1, left)),
        _ => true,
    }
}

fn spend(budget: &Budget, steps: usize) -> Result<(), Status> {
    budget.spend(steps as u64);
    budget.check().map_err(over_budget)
}

fn unreadable(format: &str, error: &dyn fmt::Display, budget: &Budget) -> Status {
    match budget.check() {
        Err(why) => over_budget(why),
        Ok(()) => Status::bad_request(format!("the request body is not readable as {format}: {error}")),
    }
}

/// The path of the reader; built on the stack, so a body without duplicates costs nothing.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Seed<'a> {
    path: &'a Path<'a>,
    duplicates: &'a RefCell<Vec<String>>,
    budget: &'a Budget,
}

impl Seed<'_> {
    /// Aliases of YAML repeat a text at the cost of two bytes, so texts count for the budget.
    fn text<E: serde::de::Error>(&self, length: usize) -> Result<(), E> {
        if self.budget.produce(length) { Ok(()) } else { Err(E::custom(OverBudget::Bytes)) }
    }

    fn note_duplicate(&self, path: &Path<'_>) {
        let mut duplicates = self.duplicates.borrow_mut();
        let room = |told: &[String]| told.iter().map(String::len).sum::<usize>() < MAX_DUPLICATE_BYTES;
        if duplicates.len() < MAX_DUPLICATES && room(&duplicates) {
            duplicates.push(path.to_string());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.text(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.text(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match items.next_element_seed(Seed { path: &path, duplicates: self.duplicates, budget: self.budget })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            self.text::<A::Error>(name.len())?;
            let path = Path::Field(self.path, &name);
            let value =
                entries.next_value_seed(Seed { path: &path, duplicates: self.duplicates, budget: self.budget })?;
            if map.contains_key(&name) {
                self.note_duplicate(&path);
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies() {
        for (body, expect, duplicates) in [
            (r#"{"a":1,"b":[{"c":1.5}]}"#, Some(json!({"a": 1, "b": [{"c": 1.5}]})), vec![]),
            (
                r#"{"a":{"b":1,"b":2},"l":[{"x":1,"x":2}]}"#,
                Some(json!({"a": {"b": 2}, "l": [{"x": 2}]})),
                vec!["a.b", "l[0].x"],
            ),
            ("{\"a\":1} trailing", None, vec![]),
            ("{\"a\":", None, vec![]),
            ("", None, vec![]),
        ] {
            let got = json(body.as_bytes(), Budget::unlimited()).ok();
            assert_eq!(got.as_ref().map(|decoded| &decoded.value), expect.as_ref(), "{body}");
            assert_eq!(got.unwrap_or_default().duplicates, duplicates, "{body}");
        }
    }

    #[test]
    fn yaml_in_its_flow_style_is_no_json() {
        for (body, expect) in [
            ("{a: b, c: [d]}", Some(json!({"a": "b", "c": ["d"]}))),
            ("{\"a\": 1}", Some(json!({"a": 1}))),
            ("{\"a\": 1", None),
        ] {
            let got = yaml(body.as_bytes(), Budget::unlimited()).ok().map(|decoded| decoded.value);
            assert_eq!(got, expect, "{body}");
        }
    }

    #[test]
    fn what_is_not_unicode_is_replaced() {
        for (body, expect) in [
            (&b"{\"a\":\"\xff\"}"[..], json!({"a": "\u{fffd}"})),
            (b"{\"a\":\"x\xe2\x82y\"}", json!({"a": "x\u{fffd}\u{fffd}y"})),
            (br#"{"a":"\ud800"}"#, json!({"a": "\u{fffd}"})),
            (br#"{"a":"\ud800\ud83d\ude00\udc00x"}"#, json!({"a": "\u{fffd}\u{1f600}\u{fffd}x"})),
            (br#"{"a":"\\ud800"}"#, json!({"a": "\\ud800"})),
        ] {
            let got = json(body, Budget::unlimited()).unwrap_or_else(|status| panic!("{body:?}: {status}"));
            assert_eq!(got.value, expect, "{}", String::from_utf8_lossy(body));
        }
        assert_eq!(json(b"{\"a\":\xff}", Budget::unlimited()).unwrap_err().code, 400);
    }

    #[test]
    fn bombs_end_in_an_error() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(json(deep.as_bytes(), Budget::unlimited()).unwrap_err().code, 400);
        assert_eq!(yaml(deep.as_bytes(), Budget::unlimited()).unwrap_err().code, 400);
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..10 {
            let items = vec![format!("*a{}", level - 1); 9].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert_eq!(yaml(bomb.as_bytes(), Budget::unlimited()).unwrap_err().code, 400);
    }

    #[test]
    fn small_bodies_that_would_become_large_are_refused() {
        let aliases = format!("a: &a \"{}\"\nl: [{}]\n", "x".repeat(100_000), vec!["*a"; 1000].join(","));
        let long = "k".repeat(500_000);
        let many = |field: &str| vec![field; 100_000].join(",");
        let numbered: Vec<String> = (0..100_000).map(|at| format!("\"{at}\":1")).collect();
        for (body, expect) in [
            (aliases, Err(413)),
            (format!("{{\"{long}\":{{{}}}}}", numbered.join(",")), Err(413)),
            (format!("{{\"{long}\":[{}]}}", many("1")), Err(413)),
            (format!("{{\"{long}\":{{{}}}}}", many("\"a\":1")), Ok(1)),
            (format!("{{\"k\":{{{}}}}}", many("\"a\":1")), Ok(MAX_DUPLICATES)),
        ] {
            let got = yaml(body.as_bytes(), &Budget::new(10_000_000, 16 << 20));
            let got = got.map(|decoded| decoded.duplicates.len()).map_err(|status| status.code);
            assert_eq!(got, expect, "{}", &body[..20]);
        }
        assert_eq!(json(b"[1,2,3,4,5,6,7,8]", &Budget::new(1, 100)).unwrap_err().code, 400);
    }

    #[test]
    fn yaml_reads_what_people_write() {
        for (text, expect, duplicates) in [
            ("a: 1\nb: [x, 2.5, true, null, ~]\n", json!({"a": 1, "b": ["x", 2.5, true, null, null]}), vec![]),
            ("a: \"1\"\nb: '2'\nc: yes\nd: 0x10\n", json!({"a": "1", "b": "2", "c": true, "d": 16}), vec![]),
            ("a: {b: 1, b: 2}\nc: 1\nc: 2\n", json!({"a": {"b": 2}, "c": 2}), vec!["a.b", "c"]),
            ("base: &b {x: 1}\nuse: *b\n", json!({"base": {"x": 1}, "use": {"x": 1}}), vec![]),
            ("1: a\ntrue: b\n", json!({"1": "a", "true": "b"}), vec![]),
            ("", Value::Null, vec![]),
            ("text", json!("text"), vec![]),
            (
                "a: 0644\nb: 0\nc: 0.5\nd: 0o17\ne: -010\n",
                json!({"a": 420, "b": 0, "c": 0.5, "d": 15, "e": -8}),
                vec![],
            ),
            ("a: 1\n---\nb: 2\n", json!({"a": 1}), vec![]),
            ("a: 1\n---\n", json!({"a": 1}), vec![]),
            ("a: 1\n...\nb: [\n", json!({"a": 1}), vec![]),
            ("%YAML 1.1\n# c\n---\na: |\n  x\n  ---\n", json!({"a": "x\n---\n"}), vec![]),
            ("a: ---b\n", json!({"a": "---b"}), vec![]),
        ] {
            let decoded =
                yaml(text.as_bytes(), Budget::unlimited()).unwrap_or_else(|status| panic!("{text:?}: {status}"));
            assert_eq!(
                (decoded.value, decoded.duplicates),
                (expect, duplicates.into_iter().map(String::from).collect()),
                "{text:?}"
            );
        }
        for text in ["a: b: c", "a: [", "- a\nb: c", "\ta: 1", "\t\na: 1", "a: *nobody", "\u{0}"] {
            assert_eq!(
                yaml(text.as_bytes(), Budget::unlimited()).map(|decoded| decoded.value).unwrap_err().code,
                400,
                "{text:?}"
            );
        }
        let decoded =
            yaml(b"kind: ConfigMap\ndata:\n  a: \"1\"\n  b: |\n    two\n    lines\n", Budget::unlimited()).unwrap();
        assert_eq!(decoded.value, json!({"kind": "ConfigMap", "data": {"a": "1", "b": "two\nlines\n"}}));
    }
}
