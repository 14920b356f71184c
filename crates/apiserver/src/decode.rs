//! A request's body as JSON. In: bytes and their media type. Out: a value, and what strict decoding has to
//! say about it (fields given twice). Never knows a schema. Depth is limited by the parsers: 128 levels.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use konverge_core::Status;

/// A body that was read.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// What it holds.
    pub value: Value,
    /// The paths of fields that were given more than once, as strict decoding reports them.
    pub duplicates: Vec<String>,
}

/// Reads JSON.
pub(crate) fn json(body: &[u8]) -> Result<Decoded, Status> {
    let duplicates = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Seed { path: &Path::Root, duplicates: &duplicates }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| unreadable("json", &error))?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

/// Reads YAML (and so JSON), one document. Aliases and depth are bounded by the parser's budget.
pub(crate) fn yaml(body: &[u8]) -> Result<Decoded, Status> {
    // Most "YAML" that clients send is JSON; that road is faster and reports duplicates.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return json(body);
    }
    let value = serde_saphyr::from_slice::<Value>(body).map_err(|error| unreadable("yaml", &error))?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

fn unreadable(format: &str, error: &dyn fmt::Display) -> Status {
    Status::bad_request(format!("the request body is not readable as {format}: {error}"))
}

/// Where the reader is; built on the stack so that a clean body costs nothing.
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

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match items.next_element_seed(Seed { path: &path, duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let value = entries.next_value_seed(Seed { path: &path, duplicates: self.duplicates })?;
            if map.contains_key(&name) {
                self.duplicates.borrow_mut().push(path.to_string());
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
            let got = json(body.as_bytes()).ok();
            assert_eq!(got.as_ref().map(|decoded| &decoded.value), expect.as_ref(), "{body}");
            assert_eq!(got.unwrap_or_default().duplicates, duplicates, "{body}");
        }
    }

    #[test]
    fn bombs_end_in_an_error() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(json(deep.as_bytes()).unwrap_err().code, 400);
        assert_eq!(yaml(deep.as_bytes()).unwrap_err().code, 400);
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..10 {
            let items = vec![format!("*a{}", level - 1); 9].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert_eq!(yaml(bomb.as_bytes()).unwrap_err().code, 400);
    }

    #[test]
    fn yaml_reads_what_people_write() {
        let decoded = yaml(b"kind: ConfigMap\ndata:\n  a: \"1\"\n  b: |\n    two\n    lines\n").unwrap();
        assert_eq!(decoded.value, json!({"kind": "ConfigMap", "data": {"a": "1", "b": "two\nlines\n"}}));
    }
}
