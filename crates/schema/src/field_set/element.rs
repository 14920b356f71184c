//! One step of a path into an object, with its order and its two text forms.
//! In: names, keys, values. Out: the forms that conflicts print (`[name="a"]`) and that FieldsV1 stores (`k:{"name":"a"}`).

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::go_format;

/// One step of a path: into a struct or map by name, or into a list by key, value or position.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a struct or a key of a map.
    Field(Box<str>),
    /// The item of a list whose fields have these values; sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set.
    Value(Value),
    /// The item of a list at this position.
    Index(i64),
}

impl PathElement {
    /// A field by name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A list item by its key fields.
    pub fn key(mut fields: Vec<(Box<str>, Value)>) -> Self {
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(fields.into())
    }

    /// Reads a FieldsV1 key. `None` for an unknown kind of step, which is dropped.
    pub(super) fn decode(text: &str) -> Result<Option<Self>, String> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err("key must be 2 characters long".into());
        }
        if bytes[1] != b':' {
            return Err(format!("missing colon: {text}"));
        }
        // The second byte is ASCII, so the first is a whole character only if it is ASCII too.
        let Some(rest) = text.get(2..).filter(|_| bytes[0].is_ascii()) else { return Ok(None) };
        let invalid = |why: serde_json::Error| format!("{text}: {why}");
        Ok(Some(match bytes[0] {
            b'f' => Self::Field(rest.into()),
            b'v' => Self::Value(serde_json::from_str(rest).map_err(invalid)?),
            b'k' => {
                let fields: serde_json::Map<String, Value> = serde_json::from_str(rest).map_err(invalid)?;
                Self::key(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
            }
            b'i' => Self::Index(rest.parse().map_err(|_| format!("{text}: not a number"))?),
            _ => return Ok(None),
        }))
    }

    /// Its FieldsV1 key.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut out = String::with_capacity(name.len() + 2);
                out.push_str("f:");
                out.push_str(name);
                out
            }
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    push_json_string(&mut out, name);
                    out.push(':');
                    push_json(&mut out, value);
                }
                out.push('}');
                out
            }
            Self::Value(value) => {
                let mut out = String::from("v:");
                push_json(&mut out, value);
                out
            }
            Self::Index(at) => format!("i:{at}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let fields = a.iter().zip(b.iter());
                fields
                    .map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare_values(x, y)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// As Kubernetes prints it: `.name`, `[port=80,protocol="TCP"]`, `[="x"]`, `[3]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", print(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", print(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// Whether server-side apply treats two values as equal: JSON equality, except that `1` equals `1.0`.
pub(crate) fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal_values(a, b)))
        }
        _ => a == b,
    }
}

/// A total order over values: numbers, strings, booleans, lists, objects, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => a
            .iter()
            .zip(b)
            .map(|(a, b)| compare_values(a, b))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        (Value::Object(a), Value::Object(b)) => {
            let sorted = |map: &serde_json::Map<String, Value>| {
                let mut fields: Vec<_> = map.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                fields
            };
            let (a, b) = (sorted(a), sorted(b));
            a.iter()
                .zip(&b)
                .map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare_values(x, y)))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or(f64::INFINITY);
            float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal)
        }
    }
}

fn print(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::String(text) => go_format::quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name}={}", print(value))).collect(),
        scalar => go_format::plain(scalar),
    }
}

fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_json_string(out, text),
        other => out.push_str(&other.to_string()),
    }
}

/// Most names and keys need no escaping, which makes this faster than `serde_json`.
fn push_json_string(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}
