//! What was asked of the server. In: a request. Out: a [`Call`], which prints as `apply Deployment default/web`. Never
//! looks at the server.

use std::fmt;
use std::ops::Deref;

use http::{Method, header, request::Parts};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What is asked for. Server-side apply is a verb of its own, unlike in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// Objects of a kind.
    List,
    /// Changes of objects of a kind.
    Watch,
    /// A new object.
    Create,
    /// An object in the place of what is there.
    Update,
    /// Some fields: merge, strategic or JSON patch.
    Patch,
    /// Server-side apply.
    Apply,
    /// An object shall go.
    Delete,
    /// Objects of a kind shall go.
    DeleteCollection,
}

impl Verb {
    /// Every verb that changes something.
    pub const WRITES: [Verb; 6] =
        [Verb::Create, Verb::Update, Verb::Patch, Verb::Apply, Verb::Delete, Verb::DeleteCollection];

    /// Every verb that changes nothing.
    pub const READS: [Verb; 3] = [Verb::Get, Verb::List, Verb::Watch];

    /// Whether it changes something.
    pub fn writes(self) -> bool {
        Self::WRITES.contains(&self)
    }

    fn of(parts: &Parts, named: bool) -> Option<Self> {
        let watch = || {
            let query = parts.uri.query().unwrap_or_default();
            query.split('&').any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
        };
        let applies = || {
            let format = parts.headers.get(header::CONTENT_TYPE).and_then(|format| format.to_str().ok());
            format.is_some_and(|format| format.starts_with("application/apply-patch+"))
        };
        Some(match (&parts.method, named) {
            (&Method::GET | &Method::HEAD, true) => Self::Get,
            (&Method::GET | &Method::HEAD, false) if watch() => Self::Watch,
            (&Method::GET | &Method::HEAD, false) => Self::List,
            (&Method::POST, _) => Self::Create,
            (&Method::PUT, _) => Self::Update,
            (&Method::PATCH, _) if applies() => Self::Apply,
            (&Method::PATCH, _) => Self::Patch,
            (&Method::DELETE, true) => Self::Delete,
            (&Method::DELETE, false) => Self::DeleteCollection,
            _ => return None,
        })
    }
}

/// One verb where several may stand.
impl IntoIterator for Verb {
    type Item = Verb;
    type IntoIter = std::iter::Once<Verb>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

/// As in RBAC, in one word.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// One request about objects, and what it was answered with.
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
    /// Whether it was to change something.
    pub fn writes(&self) -> bool {
        self.verb.writes()
    }

    /// Whether it was about this kind, itself or a part of it.
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

/// Calls in their order. A slice of them, with a way to look at all at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls(pub(crate) Vec<Call>);

impl Calls {
    /// Each as a text, to compare with what is expected.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(Call::to_string).collect()
    }

    /// Those that `which` takes.
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

/// A request about objects as its path and method tell it; the kind is still to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Asked {
    /// Nothing for requests that are not about objects: discovery, health.
    pub fn of(parts: &Parts) -> Option<Self> {
        let decoded: Option<Vec<String>> = parts
            .uri
            .path()
            .trim_matches('/')
            .split('/')
            .map(|segment| Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned()))
            .collect();
        let decoded = decoded?;
        let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        // A namespace is itself an object, with parts of its own.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, below @ ..] if !below.is_empty() => (Some(*namespace), below),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            verb: Verb::of(parts, name.is_some())?,
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, uri: &str, format: &str, expect: Option<&str>) {
        let request = http::Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, format);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let call = Asked::of(&parts).map(|asked| {
            let Asked { verb, group, plural, namespace, name, subresource, .. } = asked;
            Call { verb, group, kind: plural, subresource, namespace, name, body: None, code: Some(200) }.to_string()
        });
        assert_eq!(call.as_deref(), expect, "{method} {uri}");
    }

    #[test]
    fn requests_as_calls() {
        let json = "application/json";
        check("GET", "/api/v1/namespaces/default/pods/web", json, Some("get pods default/web"));
        check("GET", "/api/v1/namespaces/default", json, Some("get namespaces default"));
        check("PUT", "/api/v1/namespaces/default/finalize", json, Some("update namespaces/finalize default"));
        check("GET", "/apis/apps/v1/deployments?limit=5", json, Some("list deployments"));
        check("GET", "/apis/apps/v1/deployments?limit=5&watch=true", json, Some("watch deployments"));
        check("GET", "/api/v1/namespaces/a/pods?watch=1", json, Some("watch pods a/"));
        check("POST", "/api/v1/namespaces/a/pods", json, Some("create pods a/"));
        check("PATCH", "/api/v1/nodes/n", "application/merge-patch+json", Some("patch nodes n"));
        check("PATCH", "/api/v1/nodes/n/status", "application/apply-patch+yaml", Some("apply nodes/status n"));
        check("DELETE", "/api/v1/nodes/n", json, Some("delete nodes n"));
        check("DELETE", "/api/v1/nodes", json, Some("deletecollection nodes"));
        check("GET", "/apis/g.io/v1/things/system%3Aadmin", json, Some("get things system:admin"));
        check("GET", "/apis/apps/v1", json, None);
        check("GET", "/version", json, None);
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
