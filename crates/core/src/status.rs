//! The `Status` object: what every failed request, and a finished delete, answers with.
//! In: what happened. Out: code, reason, message and causes exactly as Kubernetes clients expect them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::field::FieldError;

/// How many field errors one answer names. A body of three megabytes can have a million of them, which nobody reads; without a
/// limit the answer would take hundreds of megabytes.
const MOST_FIELD_ERRORS: usize = 1000;

/// A Kubernetes `Status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(tag = "kind", rename = "Status", rename_all = "camelCase")]
pub struct Status {
    #[serde(default = "v1")]
    api_version: String,
    #[serde(default)]
    metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the failure is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP code; a deletion that is done has none.
    #[serde(default, skip_serializing_if = "is_no_code")]
    pub code: u16,
}

/// The list metadata a `Status` carries: empty, but for the fresh token of an expired list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    continue_token: String,
}

/// What a `Status` is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (plural) for 403, 404 and 409, the kind for 422.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry for each problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// How long to wait before trying again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One problem among the causes of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// For programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// A finished request that has nothing else to say.
    pub fn success(details: StatusDetails) -> Self {
        Self { status: "Success".into(), details: Some(Box::new(details)), ..Self::failure(0, "", "") }
    }

    /// A request that was done and left nothing to show.
    pub fn done(code: u16) -> Self {
        Self { status: "Success".into(), ..Self::failure(code, "", "") }
    }

    /// Any failure.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            api_version: v1(),
            metadata: ListMeta::default(),
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            details: None,
            code,
        }
    }

    /// 404: `deployments.apps "x" not found`
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource, group));
        Self::failure(404, "NotFound", message).about(group, resource, name)
    }

    /// 409: `configmaps "x" already exists`
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, group));
        Self::failure(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409: `Operation cannot be fulfilled on deployments.apps "x": why`
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(resource, group));
        Self::failure(409, "Conflict", message).about(group, resource, name)
    }

    /// 409: the object is not the one the writer has read.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 403: `deployments.apps "x" is forbidden: why`
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let subject = match name {
            "" => qualified(resource, group),
            name => format!("{} {name:?}", qualified(resource, group)),
        };
        Self::failure(403, "Forbidden", format!("{subject} is forbidden: {why}")).about(group, resource, name)
    }

    /// 422: `Deployment.apps "x" is invalid: spec.selector: Required value`
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let (named, more) = errors.split_at(errors.len().min(MOST_FIELD_ERRORS));
        let mut texts: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        // Like Kubernetes: each text once, however many fields it is about.
        texts.extend(named.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())));
        if !more.is_empty() {
            texts.push(format!("and {} more errors", more.len()));
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {list}", qualified(kind, group));
        let mut status = Self::failure(422, "Invalid", message).about(group, kind, name);
        status.details_mut().causes = named.iter().map(FieldError::cause).collect();
        status
    }

    /// 400
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 405
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, "MethodNotAllowed", message).about("", "", "")
    }

    /// 405: `patch is not supported on resources of kind "widgets.example.com"`
    pub fn method_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", qualified(resource, group));
        Self::failure(405, "MethodNotAllowed", message).about(group, resource, "")
    }

    /// 410: what was asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 413
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::failure(413, "RequestEntityTooLarge", message)
    }

    /// 500: `Internal error occurred: why`
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {why}");
        Self::failure(500, "InternalError", message).with_cause("", &why.to_string(), "")
    }

    /// Says which object this is about.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    /// Adds one cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let cause = Cause { reason: reason.into(), message: message.into(), field: field.into() };
        self.details_mut().causes.push(cause);
        self
    }

    /// Asks the client to come back after `seconds`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Hands out a fresh token with an expired list.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.metadata.continue_token = token;
        self
    }

    /// The details, made when there are none yet.
    pub fn details_mut(&mut self) -> &mut StatusDetails {
        self.details.get_or_insert_default()
    }
}

fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn is_no_code(code: &u16) -> bool {
    *code == 0
}

fn v1() -> String {
    "v1".to_owned()
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldPath;

    #[test]
    fn equal_texts_stand_once_and_many_errors_are_counted() {
        let path = || FieldPath::new("metadata").child("finalizers");
        let of = |errors: &[FieldError]| Status::invalid("", "ConfigMap", "c", errors);
        let twice = of(&[FieldError::required(path(), ""), FieldError::required(path(), "")]);
        assert_eq!(twice.message, "ConfigMap \"c\" is invalid: metadata.finalizers: Required value");
        assert_eq!(twice.details.unwrap().causes.len(), 2);
        let many: Vec<_> = (0..5000).map(|at| FieldError::required(path().index(at), "")).collect();
        let many = of(&many);
        assert!(many.message.ends_with(", and 4000 more errors]"), "{}", &many.message[many.message.len() - 100..]);
        assert_eq!(many.details.unwrap().causes.len(), MOST_FIELD_ERRORS);
    }
}
