//! Recorded calls, as small values that print well: `apply Deployment default/web`. Plain data; `machine` records them.

use std::fmt;
use std::ops::Deref;

pub use konverge::Verb;
use serde_json::Value;

/// One recorded request about objects, and the code of its answer. Prints as `apply Deployment default/web`.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What was asked for.
    pub verb: Verb,
    /// The group of the kind; empty for the core group.
    pub group: String,
    /// The kind: `Deployment`. The plural, if the server does not know it.
    pub kind: String,
    /// Which part of the object: `status`, `scale`.
    pub subresource: Option<String>,
    /// Where; none for what is in no namespace, and for all namespaces at once.
    pub namespace: Option<String>,
    /// Which object; none for collections, and for names that the server makes.
    pub name: Option<String>,
    /// What was sent: an object, or a patch.
    pub body: Option<Value>,
    /// The HTTP code of the answer; none while there is no answer, or if it was lost.
    pub code: Option<u16>,
}

impl Call {
    /// Whether the call asks for a change. A review, such as a `SelfSubjectAccessReview`, is sent as a create and changes
    /// nothing.
    pub fn writes(&self) -> bool {
        let is_review = self.verb == Verb::Create
            && self.kind.to_lowercase().trim_end_matches('s').ends_with("review")
            && matches!(self.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io");
        self.verb.writes() && !is_review
    }

    /// Whether the call is about this kind, or about a subresource of it.
    pub fn is_about(&self, kind: &str) -> bool {
        self.kind == kind
    }
}

/// `apply Deployment default/web`, and what went wrong: `patch WebApp/status default/web → 409`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.kind)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}")?,
            (Some(namespace), None) => write!(f, " {namespace}/")?,
            (None, Some(name)) => write!(f, " {name}")?,
            (None, None) => {}
        }
        match self.code {
            Some(200..=299) => Ok(()),
            Some(code) => write!(f, " → {code}"),
            None => write!(f, " → no answer"),
        }
    }
}

/// Recorded calls in their order. It is a slice of [`Call`]s; [`lines`](Calls::lines) is for `assert_eq!`, and printing it
/// shows one call a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls(pub(crate) Vec<Call>);

impl Calls {
    /// Each call as a text, to compare with what a test expects.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(Call::to_string).collect()
    }

    /// The calls that `which` is true of.
    pub fn only(&self, which: impl Fn(&Call) -> bool) -> Calls {
        Self(self.0.iter().filter(|call| which(call)).cloned().collect())
    }
}

impl Deref for Calls {
    type Target = [Call];

    fn deref(&self) -> &[Call] {
        &self.0
    }
}

/// One a line.
impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|call| writeln!(f, "{call}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_no_writes() {
        for (verb, group, kind, expect) in [
            (Verb::Create, "authorization.k8s.io", "SelfSubjectAccessReview", false),
            (Verb::Create, "authentication.k8s.io", "tokenreviews", false),
            (Verb::Create, "example.com", "Review", true),
            (Verb::Create, "", "Pod", true),
            (Verb::Get, "", "Pod", false),
        ] {
            let (group, kind) = (group.to_owned(), kind.to_owned());
            let call =
                Call { verb, group, kind, subresource: None, namespace: None, name: None, body: None, code: None };
            assert_eq!(call.writes(), expect, "{call:?}");
        }
    }

    #[test]
    fn what_went_wrong_is_shown() {
        let mut call = Call {
            verb: Verb::Apply,
            group: "apps".into(),
            kind: "Deployment".into(),
            subresource: None,
            namespace: Some("default".into()),
            name: Some("web".into()),
            body: None,
            code: Some(503),
        };
        assert_eq!(call.to_string(), "apply Deployment default/web → 503");
        call.code = None;
        assert_eq!(Calls(vec![call]).to_string(), "apply Deployment default/web → no answer\n");
    }
}
