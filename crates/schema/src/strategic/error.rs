//! The errors of a strategic merge patch, with the texts of Kubernetes, and the `Status` to answer with.

use konverge_core::Status;
use serde_json::{Map, Value};

use crate::arena::{Arena, Scalar, Shape, TypeId};
use crate::go_format;

/// Why a strategic merge patch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The object or the patch is not a JSON object: 400.
    #[error("invalid JSON document")]
    NotAnObject,
    /// `$deleteFromPrimitiveList` without a field: 400.
    #[error("invalid patch format of primitive list")]
    DeleteListFormat,
    /// `$retainKeys` that is not a list, or a patch that sets a field it does not name: 400.
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    /// `$setElementOrder` without a field: 400.
    #[error("invalid patch format of setElementOrder list")]
    SetOrderFormat,
    /// A list to merge holds lists: 422.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// A list item without its merge key: 500.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item.
        item: String,
        /// The name of the field.
        key: String,
    },
    /// A `$patch` directive that does not exist there: 500.
    #[error("unknown patch type: {directive} in map: {object}")]
    UnknownDirective {
        /// The directive.
        directive: String,
        /// The object it stands in.
        object: String,
    },
    /// Anything else that does not fit the type: 500.
    #[error("{0}")]
    Type(String),
}

impl StrategicError {
    /// The answer to the client.
    pub fn status(&self) -> Status {
        match self {
            Self::NotAnObject | Self::DeleteListFormat | Self::RetainKeysFormat | Self::SetOrderFormat => {
                Status::bad_request(self.to_string())
            }
            Self::ListOfLists => {
                Status::failure(422, "Invalid", "the server rejected our request due to an error in our request")
            }
            Self::NoMergeKey { .. } | Self::UnknownDirective { .. } | Self::Type(_) => {
                Status::failure(500, "", self.to_string())
            }
        }
    }

    pub(super) fn no_merge_key(item: &Value, key: &str) -> Self {
        Self::NoMergeKey { item: go_format::plain(item), key: key.into() }
    }

    pub(super) fn unknown_directive(directive: &Value, object: &Map<String, Value>) -> Self {
        let directive = match directive {
            Value::String(text) => text.clone(),
            other => format!("%!s({}={})", go_format::go_type_name(other), go_format::plain(other)),
        };
        Self::UnknownDirective { directive, object: go_format::plain(&Value::Object(object.clone())) }
    }

    pub(super) fn expected_list(actual: &Value) -> Self {
        Self::expected("[]interface {}", actual)
    }

    pub(super) fn expected_map(actual: &Value) -> Self {
        Self::expected("map[string]interface {}", actual)
    }

    fn expected(kind: &str, actual: &Value) -> Self {
        let actual = match actual {
            Value::Null => "%!s(<nil>)",
            other => go_format::go_type_name(other),
        };
        Self::Type(format!("expected a {kind}, but received a {actual}"))
    }
}

pub(super) fn unknown_field(arena: &Arena, ty: TypeId, name: &str) -> StrategicError {
    let known = arena.names().find(|(_, id)| *id == ty).map_or("", |(known, _)| known);
    let kind = known.rsplit('.').next().unwrap_or_default();
    StrategicError::Type(format!("unable to find api field in struct {kind} for the json field {name:?}"))
}

/// The name of this kind of type in Go.
pub(super) fn describe_type(shape: &Shape) -> &'static str {
    match shape {
        Shape::Map { .. } => "map",
        Shape::List { .. } => "slice",
        Shape::Scalar(Scalar::Boolean) => "bool",
        Shape::Scalar(Scalar::Int32) => "int32",
        Shape::Scalar(Scalar::Int64) => "int64",
        Shape::Scalar(Scalar::Number) => "float64",
        Shape::Scalar(Scalar::String) => "string",
        _ => "struct",
    }
}
