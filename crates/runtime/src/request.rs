//! What a request to an API server does to which object. In: method, path, query and content type. Out: [`RequestInfo`],
//! with the parts that kube-apiserver reads from the same path. Pure: never looks at the body, never asks the server.

use std::fmt;

use http::{Method, header, request::Parts};
use percent_encoding::percent_decode_str;

/// What a request asks for. Server-side apply is a verb of its own here; for RBAC it is a `patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads the objects of a kind.
    List,
    /// Follows the changes of the objects of a kind.
    Watch,
    /// Creates an object, or calls a subresource such as `eviction`.
    Create,
    /// Replaces an object.
    Update,
    /// Changes some fields: merge, strategic merge or JSON patch.
    Patch,
    /// Server-side apply.
    Apply,
    /// Deletes an object.
    Delete,
    /// Deletes the objects of a kind.
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

    /// The verb as RBAC rules spell it: an apply is a `patch`.
    pub fn as_rbac(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch | Self::Apply => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The verb behind an HTTP method. A method that nobody knows counts as a write: a gate must not be passed by one.
    fn of(parts: &Parts, has_name: bool) -> Self {
        match (&parts.method, has_name) {
            (&Method::GET | &Method::HEAD | &Method::OPTIONS | &Method::TRACE, true) => Self::Get,
            (&Method::GET | &Method::HEAD | &Method::OPTIONS | &Method::TRACE, false) => {
                if has_flag(parts, "watch") {
                    Self::Watch
                } else {
                    Self::List
                }
            }
            (&Method::POST, _) => Self::Create,
            (&Method::PATCH, _) if is_apply(parts) => Self::Apply,
            (&Method::PATCH, _) => Self::Patch,
            (&Method::DELETE, true) => Self::Delete,
            (&Method::DELETE, false) => Self::DeleteCollection,
            _ => Self::Update,
        }
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

/// In lower case, as RBAC spells it, but for `apply`.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Apply { "apply" } else { self.as_rbac() })
    }
}

/// What a request does to which object, as its path and method tell it. The names are those of kube-apiserver's
/// `RequestInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// What is asked for.
    pub verb: Verb,
    /// The path as it was sent.
    pub path: String,
    /// The API group; empty for the core group, and for paths that are not about objects.
    pub group: String,
    /// The version of the API group; empty for paths that are not about objects.
    pub version: String,
    /// The plural of the kind: `deployments`; empty for paths that are not about objects.
    pub resource: String,
    /// The part of the object: `status`, `scale`.
    pub subresource: Option<String>,
    /// The namespace; none for objects without a namespace, and for all namespaces at once.
    pub namespace: Option<String>,
    /// The name; none for collections, and for creates, whose name is in the body.
    pub name: Option<String>,
    /// Whether the server is asked to persist nothing (`dryRun=All`).
    pub dry_run: bool,
}

impl RequestInfo {
    /// Reads the head of a request.
    ///
    /// ```
    /// use konverge_runtime::{RequestInfo, Verb};
    /// let request = http::Request::delete("/apis/apps/v1/namespaces/shop/deployments/web").body(()).unwrap();
    /// let info = RequestInfo::of(&request.into_parts().0);
    /// assert_eq!((info.verb, info.group.as_str(), info.resource.as_str()), (Verb::Delete, "apps", "deployments"));
    /// assert_eq!((info.namespace.as_deref(), info.name.as_deref()), (Some("shop"), Some("web")));
    /// ```
    pub fn of(parts: &Parts) -> Self {
        let path = parts.uri.path();
        let decode = |segment| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        let segments: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => ("", "", [].as_slice()),
        };
        // A namespace is an object itself, with subresources of its own.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, below @ ..] if !below.is_empty() => (Some(*namespace), below),
            rest => (None, rest),
        };
        let at = |index: usize| rest.get(index).map(|segment| (*segment).to_owned());
        Self {
            verb: Verb::of(parts, rest.len() > 1),
            path: path.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: at(0).unwrap_or_default(),
            subresource: at(2),
            namespace: namespace.map(str::to_owned),
            name: at(1),
            dry_run: has_flag(parts, "dryRun"),
        }
    }

    /// Whether the request is about objects. Discovery, health and the version are not.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// Whether the request may change something in the cluster: every `POST`, `PUT`, `PATCH` and `DELETE`, dry runs
    /// among them, except for reviews (`SelfSubjectAccessReview`, `TokenReview`), which are questions sent as a `POST`.
    pub fn writes(&self) -> bool {
        let is_review = self.verb == Verb::Create
            && self.resource.ends_with("reviews")
            && matches!(self.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io");
        self.verb.writes() && !is_review
    }
}

/// `apply deployments.apps/status shop/web`
impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_resource() {
            return write!(f, "{} {}", self.verb, self.path);
        }
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), name) => write!(f, " {namespace}/{}", name.as_deref().unwrap_or_default()),
            (None, Some(name)) => write!(f, " {name}"),
            (None, None) => Ok(()),
        }
    }
}

/// Whether a parameter of the query is there and not switched off.
fn has_flag(parts: &Parts, name: &str) -> bool {
    let mut pairs = parts.uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        key == name && !matches!(value, "false" | "0")
    })
}

fn is_apply(parts: &Parts) -> bool {
    let format = parts.headers.get(header::CONTENT_TYPE).and_then(|format| format.to_str().ok());
    format.is_some_and(|format| format.starts_with("application/apply-patch+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, uri: &str, expect: &str, writes: bool) {
        let format = if method == "APPLY" { "application/apply-patch+yaml" } else { "application/json" };
        let method = if method == "APPLY" { "PATCH" } else { method };
        let request = http::Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, format);
        let info = RequestInfo::of(&request.body(()).unwrap().into_parts().0);
        assert_eq!((info.to_string().as_str(), info.writes()), (expect, writes), "{method} {uri}");
    }

    #[test]
    fn requests_are_read_as_an_api_server_reads_them() {
        check("GET", "/api/v1/namespaces/a/pods/web", "get pods a/web", false);
        check("GET", "/api/v1/namespaces/a/pods/web?watch=true", "get pods a/web", false);
        check("GET", "/api/v1/namespaces/a", "get namespaces a", false);
        check("GET", "/api/v1/namespaces", "list namespaces", false);
        check("GET", "/apis/apps/v1/deployments?limit=5", "list deployments.apps", false);
        check("GET", "/apis/apps/v1/deployments?limit=5&watch=true", "watch deployments.apps", false);
        check("GET", "/api/v1/namespaces/a/pods?watch=0", "list pods a/", false);
        check("GET", "/apis/g.io/v1/things/system%3Aadmin", "get things.g.io system:admin", false);
        check("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize a", true);
        check("POST", "/api/v1/namespaces/a/pods", "create pods a/", true);
        check("POST", "/api/v1/namespaces/a/pods/web/eviction", "create pods/eviction a/web", true);
        check("PATCH", "/api/v1/nodes/n", "patch nodes n", true);
        check("APPLY", "/apis/apps/v1/namespaces/a/deployments/d/status", "apply deployments.apps/status a/d", true);
        check("DELETE", "/api/v1/nodes/n", "delete nodes n", true);
        check("DELETE", "/api/v1/nodes", "deletecollection nodes", true);
        check("DELETE", "/api/v1/nodes/n/proxy/a/b", "delete nodes/proxy n", true);
    }

    #[test]
    fn a_review_is_a_question_and_everything_unknown_is_a_write() {
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        check("POST", reviews, "create selfsubjectaccessreviews.authorization.k8s.io", false);
        check("DELETE", reviews, "deletecollection selfsubjectaccessreviews.authorization.k8s.io", true);
        check("POST", "/apis/example.com/v1/reviews", "create reviews.example.com", true);
        check("POST", "/api/v1/namespaces/a/pods?dryRun=All", "create pods a/", true);
        check("GET", "/version", "list /version", false);
        check("GET", "/apis/apps/v1", "list /apis/apps/v1", false);
        check("POST", "/somewhere/else", "create /somewhere/else", true);
        check("PURGE", "/api/v1/nodes/n", "update nodes n", true);
    }

    #[test]
    fn dry_runs_say_so() {
        for (query, expect) in [("", false), ("?dryRun=All", true), ("?fieldManager=a&dryRun=All", true)] {
            let request = http::Request::post(format!("/api/v1/nodes{query}")).body(()).unwrap();
            assert_eq!(RequestInfo::of(&request.into_parts().0).dry_run, expect, "{query}");
        }
    }
}
