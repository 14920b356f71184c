//! Several problems of one object at once. In: what is wrong where. Out: one error that names every field.

use std::fmt;

use konverge_core::{Cause, FieldError, FieldPath};
use serde::Serialize;
use serde_json::Value;

/// Collects what is wrong with an object, field by field.
///
/// ```
/// use konverge_runtime::FieldErrors;
///
/// let (size, version, host) = (0, "", "localhost".to_owned());
/// let mut errors = FieldErrors::new();
/// if !host.contains('.') {
///     errors.invalid("spec.host", &host, "must have a dot");
/// }
/// if size <= 0 {
///     errors.invalid("spec.size", size, "must be greater than 0");
/// }
/// if version.is_empty() {
///     errors.required("spec.version", "version must be specified");
/// }
/// let error = errors.into_result().unwrap_err();
/// assert_eq!(error.to_string(), "spec.host: must have a dot; spec.size: must be greater than 0; spec.version: version must be specified");
/// assert_eq!(error.causes()[1].message, "Invalid value: 0: must be greater than 0");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldErrors {
    errors: Vec<FieldError>,
}

/// A value as errors show it; one that is not JSON is shown as null.
fn shown(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl FieldErrors {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any problem.
    pub fn push(&mut self, error: FieldError) -> &mut Self {
        self.errors.push(error);
        self
    }

    /// The value at `path` (`spec.ports[0].name`) is malformed or out of bounds.
    pub fn invalid(&mut self, path: &str, value: impl Serialize, detail: impl Into<String>) -> &mut Self {
        self.push(FieldError::invalid(FieldPath::new(path), shown(value), detail))
    }

    /// The value at `path` is missing.
    pub fn required(&mut self, path: &str, detail: impl Into<String>) -> &mut Self {
        self.push(FieldError::required(FieldPath::new(path), detail))
    }

    /// The value at `path` may not be set.
    pub fn forbidden(&mut self, path: &str, detail: impl Into<String>) -> &mut Self {
        self.push(FieldError::forbidden(FieldPath::new(path), detail))
    }

    /// The value at `path` is none of those supported.
    pub fn not_supported(&mut self, path: &str, value: impl Serialize, supported: &[&str]) -> &mut Self {
        let supported = supported.iter().copied();
        self.push(FieldError::not_supported(FieldPath::new(path), shown(value), supported))
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Every problem, in the order found.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.errors.iter()
    }

    /// Every problem in the words a `Status` has for it.
    pub fn causes(&self) -> Vec<Cause> {
        self.errors.iter().map(FieldError::cause).collect()
    }

    /// Fine if nothing is wrong.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// `spec.size: must be greater than 0; spec.version: …`
impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            match error.detail.as_str() {
                "" => write!(f, "{error}")?,
                detail => write!(f, "{}: {detail}", error.path)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error] }
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        self.errors.extend(errors);
    }
}
