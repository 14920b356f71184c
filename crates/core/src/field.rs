//! A problem with one field: where it is, what kind it is, what the value was. In: facts from a check.
//! Out: the exact texts and reasons Kubernetes clients know. Never decides what is wrong.

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

/// Where a field is, as Kubernetes writes it: `spec.containers[0].image`, `metadata.labels[app]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    /// The path of the object itself, which prints as nothing.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path that starts at `name`.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The field `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self([&self.0, ".", name].concat()) }
    }

    /// The `index`-th item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The entry `key` of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text; empty for the object itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What is wrong with a field. The name is the `reason` of a cause, the text opens its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A required field is absent.
    Required,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is none of an enumeration.
    NotSupported,
    /// The value must be unique and is not.
    Duplicate,
    /// The field may not be set here.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// What the value names does not exist.
    NotFound,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The check itself failed.
    Internal,
}

impl FieldErrorKind {
    /// The machine-readable reason of a cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

/// One problem with one field.
///
/// ```
/// use konverge_core::{FieldError, FieldPath};
/// let size = FieldPath::new("spec").child("size");
/// assert_eq!(
///     FieldError::invalid(size, 0.into(), "must be greater than 0").to_string(),
///     "spec.size: Invalid value: 0: must be greater than 0"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// Where.
    pub path: FieldPath,
    /// The offending value, unless the message should not show it.
    pub value: Option<Value>,
    /// What to do about it; may be empty.
    pub detail: String,
}

impl FieldError {
    /// `path: Required value[: detail]`
    pub fn required(path: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    /// `path: Invalid value: value: detail`
    pub fn invalid(path: FieldPath, value: Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(value), detail)
    }

    /// `path: Unsupported value: value: supported values: "a", "b"`
    pub fn not_supported<'a>(path: FieldPath, value: Value, supported: impl IntoIterator<Item = &'a str>) -> Self {
        let supported: Vec<String> = supported.into_iter().map(|one| format!("{one:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(FieldErrorKind::NotSupported, path, Some(value), detail)
    }

    /// `path: Duplicate value: value`
    pub fn duplicate(path: FieldPath, value: Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, Some(value), "")
    }

    /// `path: Forbidden: detail`
    pub fn forbidden(path: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    /// `path: Too long: may not be more than max bytes`
    pub fn too_long(path: FieldPath, max: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, path, None, format!("may not be more than {max} bytes"))
    }

    /// `path: Too many: actual: must have at most max items`
    pub fn too_many(path: FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(FieldErrorKind::TooMany, path, Some(actual.into()), format!("must have at most {max} {items}"))
    }

    /// Any other combination.
    pub fn new(kind: FieldErrorKind, path: FieldPath, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { kind, path, value, detail: detail.into() }
    }

    /// The cause that a `Status` carries for this error.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.kind.reason().to_owned(), message: self.body(), field: self.path.to_string() }
    }

    /// The message without the path.
    fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        if let Some(value) = &self.value {
            body.push_str(": ");
            body.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}
