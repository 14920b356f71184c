//! The values of expressions. In: JSON beside its schema, borrowed. Out: values that expressions compute with; nothing of an
//! object is converted before an expression looks at it.

mod compare;
mod convert;
mod list;
mod map;
mod object;
mod time;

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::library::{Authority, Cidr, NamedFormat, Quantity, Semver, Url};
use crate::schema::{Kind, Schema};

pub(crate) use compare::{compare, equal};
pub(crate) use convert::{
    double_text, to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint,
};
pub(crate) use list::List;
pub(crate) use map::{Key, Map};
pub(crate) use object::Constructed;
pub(crate) use time::{Timestamp, parse_duration};

/// Why an expression has no value. Expressions can go on after it: `||` and `&&` absorb it.
pub(crate) type EvalError = Arc<str>;

/// A value, or why there is none.
pub(crate) type Answer<'a> = Result<Value<'a>, EvalError>;

#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    /// A type, by its name.
    Type(Text<'a>),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Quantity(Arc<Quantity>),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Semver(Arc<Semver>),
    Format(&'static NamedFormat),
    /// What a schema without a type keeps: it can only be compared.
    Preserved(&'a Json),
    /// The authorizer, what is asked of it, and what it decides.
    Authority(Arc<Authority>),
    /// The variables of a policy, each of which is evaluated when it is asked for.
    Variables,
    /// An object that the expression makes.
    Object(Arc<Constructed<'a>>),
}

/// A string, of the object or of the program where possible.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<'a> Value<'a> {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::String(Text::from(text.into()))
    }

    pub(crate) fn some(inner: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(inner)))
    }

    pub(crate) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Owned { items: Arc::new(items), schema: None })
    }

    pub(crate) fn texts(items: impl IntoIterator<Item = String>) -> Self {
        Self::list(items.into_iter().map(Self::text).collect())
    }

    /// The value of JSON that its schema describes. Objects that have been validated have no errors here.
    pub(crate) fn from_json(json: &'a Json, schema: &'a Schema) -> Answer<'a> {
        let wrong = |expected: &str| Err(format!("invalid data, expected {expected}, got {}", go_type(json)).into());
        if json.is_null() {
            return match schema.nullable {
                true => Ok(Self::Null),
                false => Err("invalid data, got null for schema with nullable=false".into()),
            };
        }
        match (schema.kind, json) {
            (Kind::IntOrString, Json::String(text)) => Ok(Self::String(text.as_str().into())),
            (Kind::IntOrString, Json::Number(number)) if number.is_i64() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            (Kind::IntOrString, _) => {
                Err("invalid data, expected XIntOrString value to be either a string or integer".into())
            }
            (Kind::Object, Json::Object(map)) => Ok(Self::Map(Map::Json { map, schema })),
            (Kind::Object, _) => Err("invalid data, expected a map for the provided schema with type=object".into()),
            (Kind::Array, Json::Array(items)) => Ok(Self::List(List::Json { items, schema })),
            (Kind::Array, _) => Err("invalid data, expected an array for the provided schema with type=array".into()),
            (Kind::String, Json::String(text)) => Ok(Self::String(text.as_str().into())),
            (Kind::Bytes, Json::String(text)) => convert::base64(text),
            (Kind::Duration, Json::String(text)) => time::open_api_duration(text).map(Self::Duration),
            (Kind::Date, Json::String(text)) => Timestamp::parse_date(text).map(Self::Timestamp),
            (Kind::DateTime, Json::String(text)) => Timestamp::parse_open_api(text).map(Self::Timestamp),
            (Kind::String | Kind::Bytes | Kind::Duration | Kind::Date | Kind::DateTime, _) => wrong("string"),
            (Kind::Boolean, Json::Bool(value)) => Ok(Self::Bool(*value)),
            (Kind::Boolean, _) => wrong("bool"),
            (Kind::Number, Json::Number(number)) => Ok(Self::Double(number.as_f64().unwrap_or_default())),
            (Kind::Number, _) => wrong("float"),
            (Kind::Integer, Json::Number(number)) if number.is_i64() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            (Kind::Integer, _) => wrong("int"),
            (Kind::Unknown, _) => Ok(Self::Preserved(json)),
        }
    }

    /// The value of JSON that no schema describes.
    pub(crate) fn dynamic(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Self::String(text.as_str().into()),
            Json::Array(items) => Self::List(List::Dynamic(items)),
            Json::Object(map) => Self::Map(Map::Dynamic(map)),
        }
    }

    /// The name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Preserved(_) => "unknown",
            Self::Authority(authority) => authority.type_name(),
            Self::Variables => "kubernetes.variables",
            Self::Object(_) => "Object",
        }
    }

    /// The Go type of simple values, which one message of cel-go has.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Optional(_) => "*types.Optional",
            other => other.type_name(),
        }
    }

    /// What `size` gives, and what costs are computed from; `None` for values that have no size.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Self::String(text) => characters(text),
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            _ => return None,
        })
    }

    /// Whether it is the zero value of its type.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(nanoseconds) => *nanoseconds == 0,
            Self::Timestamp(time) => time.is_zero(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.len() == 0,
            Self::Optional(inner) => inner.as_ref().is_none_or(|inner| inner.is_zero()),
            Self::Object(object) => object.fields.is_empty(),
            _ => false,
        }
    }
}

/// How many characters a text has; most are ASCII.
pub(crate) fn characters(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().count() as u64 }
}

/// As messages of cel-go show values.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&double_text(*value)),
            Self::String(text) | Self::Type(text) => f.write_str(text),
            other => f.write_str(other.type_name()),
        }
    }
}

/// The type that Go's decoder gives JSON.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
