//! Checks the JSON types of a built-in object, as decoding it into Go structs does. In: an object and its type. Out: the
//! first value that does not fit, with the error text of Go's decoder, which the server answers with 400. Struct and field
//! names are those of Go where the table has them; a named string such as `v1.PullPolicy` is called `string`.
//! JSON is parsed no deeper than 128 levels, so the walk recurses.

use serde_json::{Number, Value};

use crate::arena::{Arena, Scalar, Shape, TypeId};

mod base64;
mod quantity;
mod time;

use time::Precision;

pub use quantity::{canonical_quantity, quantity};

/// A value of a built-in object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Checks that every value has its declared JSON type, and that integers, times, quantities and bytes can be parsed.
///
/// ```
/// use konverge_schema::{Arena, Node, Scalar, Shape, check_types};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let count = arena.add(Node { shape: Shape::Scalar(Scalar::Int32), ..Node::default() });
/// let refused = check_types(&arena, count, &json!("three")).unwrap_err();
/// assert_eq!(refused.to_string(), "json: cannot unmarshal string into Go value of type int32");
/// ```
pub fn check_types(arena: &Arena, root: TypeId, object: &Value) -> Result<(), DecodeError> {
    check(arena, root, object, Source::Json)
}

/// The same for an object that a strategic merge patch, server-side apply or an apply configuration of a policy made. Go does not
/// decode it from JSON, but converts it field by field, and says in other words what does not fit.
///
/// A number that is too large for its field is refused, too. Go would drop its upper bits without a word.
///
/// ```
/// use konverge_schema::{Arena, Node, Scalar, Shape, check_restorable};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let text = arena.add(Node { shape: Shape::Scalar(Scalar::String), ..Node::default() });
/// let labels = arena.add(Node { shape: Shape::Map { value: text, atomic: false }, ..Node::default() });
/// let refused = check_restorable(&arena, labels, &json!("a=b")).unwrap_err();
/// assert_eq!(refused.to_string(), "cannot restore map from string");
/// ```
pub fn check_restorable(arena: &Arena, root: TypeId, object: &Value) -> Result<(), DecodeError> {
    check(arena, root, object, Source::Map)
}

fn check(arena: &Arena, root: TypeId, object: &Value, source: Source) -> Result<(), DecodeError> {
    let decoder = Decoder { arena, source };
    decoder.value(root, object, &FieldChain { owner: None, above: None, name: "" }).map_err(DecodeError)
}

/// What Go makes its structs of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Json,
    Map,
}

/// A chain of field names. Go leaves out indexes and map keys.
struct FieldChain<'a> {
    /// The struct that declares the field.
    owner: Option<TypeId>,
    above: Option<&'a FieldChain<'a>>,
    name: &'a str,
}

impl FieldChain<'_> {
    fn path(&self) -> String {
        match self.above {
            Some(above) if above.owner.is_some() => format!("{}.{}", above.path(), self.name),
            _ => self.name.to_owned(),
        }
    }
}

struct Decoder<'a> {
    arena: &'a Arena,
    source: Source,
}

impl Decoder<'_> {
    fn value(&self, id: TypeId, value: &Value, chain: &FieldChain<'_>) -> Result<(), String> {
        let node = self.arena.node(id);
        match (&node.shape, value) {
            // Go ignores a null; a value without a declared type is kept as it is.
            (_, Value::Null) | (Shape::Any | Shape::Opaque, _) => Ok(()),
            (Shape::Struct { fields, .. }, Value::Object(map)) => {
                for (name, value) in map {
                    if let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) {
                        self.value(fields[at].ty, value, &FieldChain { owner: Some(id), above: Some(chain), name })?;
                    }
                }
                Ok(())
            }
            (Shape::Map { value: inner, .. }, Value::Object(map)) => {
                map.values().try_for_each(|value| self.value(*inner, value, chain))
            }
            (Shape::List { item, .. }, Value::Array(items)) => {
                items.iter().try_for_each(|value| self.value(*item, value, chain))
            }
            (Shape::Scalar(scalar), value) => self.scalar(*scalar, id, value, chain),
            (shape, _) if self.source == Source::Map => Err(unrestorable(shape, value)),
            _ => Err(self.refusal(kind_of(value), chain, &self.go_type(id))),
        }
    }

    fn scalar(&self, scalar: Scalar, id: TypeId, value: &Value, chain: &FieldChain<'_>) -> Result<(), String> {
        match (scalar, value) {
            (Scalar::String | Scalar::IntOrString, Value::String(_)) | (Scalar::Boolean, Value::Bool(_)) => Ok(()),
            (Scalar::Int32 | Scalar::IntOrString, Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok());
                self.number(fits, number, chain, "int32")
            }
            (Scalar::Int64, Value::Number(number)) => self.number(number.is_i64(), number, chain, "int64"),
            (Scalar::Number, Value::Number(_)) => Ok(()),
            (Scalar::Time, Value::String(text)) => time::check(text, Precision::Any),
            (Scalar::MicroTime, Value::String(text)) => time::check(text, Precision::Microseconds),
            (Scalar::Time | Scalar::MicroTime, value) => Err(self.refusal(kind_of(value), chain, "string")),
            (Scalar::Bytes, Value::String(text)) => base64::check(text).map_err(|why| match self.source {
                Source::Json => why,
                Source::Map => format!("error decoding from json: {why}"),
            }),
            // Go also decodes bytes from a list of numbers below 256.
            (Scalar::Bytes, Value::Array(items)) if items.iter().all(|item| item.as_u64().is_some_and(|b| b < 256)) => {
                Ok(())
            }
            (Scalar::Quantity, Value::String(text)) => quantity::check(text),
            (Scalar::Quantity, value) => quantity::check(&value.to_string()),
            (_, value) if self.source == Source::Map => Err(inconvertible(scalar, value, &self.go_type(id))),
            (_, value) => Err(self.refusal(kind_of(value), chain, &self.go_type(id))),
        }
    }

    fn number(&self, fits: bool, number: &Number, chain: &FieldChain<'_>, go_type: &str) -> Result<(), String> {
        match self.source {
            _ if fits => Ok(()),
            Source::Json => Err(self.refusal(&format!("number {number}"), chain, go_type)),
            Source::Map => {
                let found = if number.is_f64() { "float64" } else { "int64" };
                Err(format!("cannot convert {found} to {go_type}"))
            }
        }
    }

    fn refusal(&self, found: &str, chain: &FieldChain<'_>, go_type: &str) -> String {
        match chain.owner {
            None => format!("json: cannot unmarshal {found} into Go value of type {go_type}"),
            Some(owner) => {
                let owner = self.name_of(owner).map_or("", |name| name.rsplit('.').next().unwrap_or(name));
                format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {go_type}",
                    chain.path()
                )
            }
        }
    }

    /// The name of a type, for error messages. A use that adds a default or a patch rule to a named type has a node of its
    /// own, which is found by its fields.
    fn name_of(&self, id: TypeId) -> Option<&str> {
        let fields = |id: TypeId| match &self.arena.node(id).shape {
            Shape::Struct { fields, .. } => Some(fields),
            _ => None,
        };
        let same = |named: TypeId| match (fields(id), fields(named)) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name && a.ty == b.ty),
            _ => false,
        };
        let exact = self.arena.names().filter(|(_, named)| *named == id).map(|(name, _)| name).min();
        exact.or_else(|| self.arena.names().filter(|(_, named)| same(*named)).map(|(name, _)| name).min())
    }

    /// How Go prints a type: `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
    fn go_type(&self, id: TypeId) -> String {
        match &self.arena.node(id).shape {
            Shape::Scalar(Scalar::String | Scalar::Time | Scalar::MicroTime) => "string".to_owned(),
            Shape::Scalar(Scalar::Bytes) => "[]uint8".to_owned(),
            Shape::Scalar(Scalar::Int32 | Scalar::IntOrString) => "int32".to_owned(),
            Shape::Scalar(Scalar::Int64) => "int64".to_owned(),
            Shape::Scalar(Scalar::Number) => "float64".to_owned(),
            Shape::Scalar(Scalar::Boolean) => "bool".to_owned(),
            Shape::Scalar(Scalar::Quantity) => "resource.Quantity".to_owned(),
            Shape::Map { value, .. } => format!("map[string]{}", self.go_type(*value)),
            Shape::List { item, .. } => format!("[]{}", self.go_type(*item)),
            Shape::Struct { .. } => match self.name_of(id) {
                Some(name) => {
                    let mut parts = name.rsplit('.');
                    let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    format!("{package}.{kind}")
                }
                None => "struct".to_owned(),
            },
            Shape::Any | Shape::Opaque => "interface {}".to_owned(),
        }
    }
}

/// The error of Go's converter for a value that is no list, map or struct.
fn unrestorable(shape: &Shape, value: &Value) -> String {
    let found = go_kind(value);
    match shape {
        Shape::Struct { .. } => format!("cannot restore struct from: {found}"),
        Shape::Map { .. } => format!("cannot restore map from {found}"),
        _ => format!("cannot restore slice from {found}"),
    }
}

/// The error of Go's converter for a scalar of another type. Only between numbers and texts it speaks of a conversion.
fn inconvertible(scalar: Scalar, value: &Value, go_type: &str) -> String {
    let found = go_kind(value);
    match (scalar, value) {
        (Scalar::Bytes, _) => format!("cannot restore slice from {found}"),
        (Scalar::String, Value::Number(number)) if !number.is_f64() => format!("cannot convert {found} to {go_type}"),
        (Scalar::Int32 | Scalar::Int64, Value::Number(_)) => format!("cannot convert {found} to {go_type}"),
        _ => format!("unrecognized type: {go_type}"),
    }
}

/// The kind of a JSON value in Go's reflection.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// The name of a JSON type in the errors of Go's decoder.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
