//! Nulls as Go reads them. In: JSON. Out: a Rust type. In Go, a null for a list or a map is an empty one, and a null for anything
//! else leaves it as it was, so a field that is null is the same as no field. Objects are stored as Go writes them: `limits: null`.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Removes every field that is null, at any depth. Items of lists stay.
///
/// ```
/// let mut value = serde_json::json!({"a": null, "b": [{"c": null}, null]});
/// konverge_core::drop_nulls(&mut value);
/// assert_eq!(value, serde_json::json!({"b": [{}, null]}));
/// ```
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Reads a type from JSON whose nulls count as absent.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     #[serde(default)]
///     limits: Vec<u32>,
/// }
/// let spec: Spec = konverge_core::from_value_without_nulls(serde_json::json!({"limits": null})).unwrap();
/// assert!(spec.limits.is_empty());
/// ```
pub fn from_value_without_nulls<T: DeserializeOwned>(mut value: Value) -> Result<T, serde_json::Error> {
    drop_nulls(&mut value);
    serde_json::from_value(value)
}

/// Reads a type from the JSON of a stored object. Only if that fails, it is read again without its nulls: most types take those
/// that there are, and a type that tells null from absent keeps doing so.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     #[serde(default)]
///     limits: Vec<u32>,
/// }
/// let spec: Spec = konverge_core::from_stored(br#"{"limits": null}"#).unwrap();
/// assert!(spec.limits.is_empty());
/// ```
pub fn from_stored<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json).or_else(|error| {
        let again = serde_json::from_slice(json).and_then(from_value_without_nulls);
        // The first error has the line and column.
        again.map_err(|_| error)
    })
}

/// The same from a value.
///
/// ```
/// let list: Option<Vec<u32>> = konverge_core::from_stored_value(&serde_json::json!([1])).unwrap();
/// assert_eq!(list, Some(vec![1]));
/// ```
pub fn from_stored_value<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value).or_else(|error| from_value_without_nulls(value.clone()).map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Stored {
        list: Vec<u32>,
        map: BTreeMap<String, u32>,
        number: u32,
        inner: Option<Box<Stored>>,
        value: Value,
    }

    #[test]
    fn nulls_are_absent() {
        let list = |list: &[u32]| Stored { list: list.to_vec(), ..Stored::default() };
        for (json, expect) in [
            (r#"{"list": null}"#, Some(Stored::default())),
            (r#"{"map": null, "number": null, "list": [1]}"#, Some(list(&[1]))),
            (r#"{"inner": {"list": null}}"#, Some(Stored { inner: Some(Box::default()), ..Stored::default() })),
            // A value that is kept whole keeps its nulls if nothing else is wrong.
            (r#"{"value": {"a": null}}"#, Some(Stored { value: serde_json::json!({"a": null}), ..Stored::default() })),
            (r#"{"list": [null]}"#, None),
            (r#"{"list": "x"}"#, None),
            ("{", None),
        ] {
            let read = from_stored::<Stored>(json.as_bytes());
            match expect {
                Some(expect) => {
                    assert_eq!(read.expect(json), expect, "{json}");
                    let value = serde_json::from_str(json).unwrap();
                    assert_eq!(from_stored_value::<Stored>(&value).expect(json), expect, "{json}");
                }
                None => assert!(read.is_err(), "{json}"),
            }
        }
        let error = from_stored::<Stored>(b"{\n\"list\": \"x\"}").unwrap_err();
        assert_eq!(error.line(), 2, "{error}");
    }
}
