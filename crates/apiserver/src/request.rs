//! Parses requests. In: method, path and query. Out: the endpoint, the object and the options, or the `Status` for an invalid
//! one. Does not know the registry or the store.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::IntErrorKind;
use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use konverge_core::{FieldError, FieldPath, FieldSelector, LabelSelector, Status};

use crate::validation::is_duration;
use crate::verb::Verb;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/`
    Root,
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz`, and a single check below them.
    Health { probe: &'static str, check: Option<String> },
    /// `/metrics`
    Metrics,
    /// `/api`: the core group's versions.
    CoreVersions,
    /// `/apis`: all other groups.
    Groups,
    /// `/apis/G`
    Group { group: String },
    /// `/api/v1`, `/apis/G/V`: the resources of a group's version.
    Resources { group: String, version: String },
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v2`
    OldOpenApi,
    /// `/openapi/v3/apis/G/V`
    OpenApi { group: String, version: String },
    /// `/.well-known/openid-configuration`: who issues the tokens of service accounts.
    OpenIdConfiguration,
    /// `/openid/v1/jwks`: the keys that verify them.
    TokenKeys,
    /// Objects.
    Objects(Arc<ObjectPath>),
    /// Anything else.
    Unknown,
}

/// The objects a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    pub group: String,
    pub version: String,
    pub resource: String,
    /// Absent for cluster-scoped objects and for all namespaces at once.
    pub namespace: Option<String>,
    /// Absent for collections.
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// Whether the path itself asks for a watch, as old clients do: `/api/v1/watch/pods`.
    pub watch: bool,
}

/// Reads a path.
pub(crate) fn endpoint(path: &str) -> Endpoint {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let segments = segments(path);
    if !path.contains('%') {
        return if segments.contains(&"") { Endpoint::Unknown } else { of_segments(&segments) };
    }
    let Some(decoded) = decoded(&segments) else { return Endpoint::Unknown };
    of_segments(&decoded.iter().map(|segment| &**segment).collect::<Vec<_>>())
}

fn of_segments(segments: &[&str]) -> Endpoint {
    match segments {
        [] => Endpoint::Root,
        ["version"] => Endpoint::Version,
        ["metrics"] => Endpoint::Metrics,
        [probe] if let Some(probe) = self::probe(probe) => Endpoint::Health { probe, check: None },
        [probe, check] if let Some(probe) = self::probe(probe) => {
            Endpoint::Health { probe, check: Some((*check).to_owned()) }
        }
        [".well-known", "openid-configuration"] => Endpoint::OpenIdConfiguration,
        ["openid", "v1", "jwks"] => Endpoint::TokenKeys,
        ["openapi", "v2"] => Endpoint::OldOpenApi,
        ["openapi", "v3"] => Endpoint::OpenApiIndex,
        ["openapi", "v3", "api", version] => Endpoint::OpenApi { group: String::new(), version: (*version).to_owned() },
        ["openapi", "v3", "apis", group, version] => {
            Endpoint::OpenApi { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["api"] => Endpoint::CoreVersions,
        ["api", version] => Endpoint::Resources { group: String::new(), version: (*version).to_owned() },
        ["api", version, "watch", rest @ ..] if !rest.is_empty() => watched("", version, rest),
        ["api", version, rest @ ..] => objects("", version, rest),
        ["apis"] => Endpoint::Groups,
        ["apis", group] => Endpoint::Group { group: (*group).to_owned() },
        ["apis", group, version] => Endpoint::Resources { group: (*group).to_owned(), version: (*version).to_owned() },
        ["apis", group, version, "watch", rest @ ..] if !rest.is_empty() => watched(group, version, rest),
        ["apis", group, version, rest @ ..] => objects(group, version, rest),
        _ => Endpoint::Unknown,
    }
}

fn probe(name: &str) -> Option<&'static str> {
    match name {
        "healthz" => Some("/healthz"),
        "livez" => Some("/livez"),
        "readyz" => Some("/readyz"),
        _ => None,
    }
}

/// A path that asks for a watch of a collection, or of one object.
fn watched(group: &str, version: &str, rest: &[&str]) -> Endpoint {
    match objects(group, version, rest) {
        Endpoint::Objects(target) if target.subresource.is_none() => {
            Endpoint::Objects(Arc::new(ObjectPath { watch: true, ..(*target).clone() }))
        }
        _ => Endpoint::Unknown,
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Endpoint {
    // A namespace is itself an object: /namespaces/NAME/status is its status, /namespaces/NAME/pods its pods.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, below @ ..] if !below.is_empty() => (Some((*namespace).to_owned()), below),
        rest => (None, rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(name), None),
        [resource, name, subresource] => (resource, Some(name), Some(subresource)),
        // What follows is the path that is asked for behind the proxy.
        [resource, name, proxy, ..] if *proxy == "proxy" && group.is_empty() => (resource, Some(name), Some(proxy)),
        _ => return Endpoint::Unknown,
    };
    Endpoint::Objects(Arc::new(ObjectPath {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: (*resource).to_owned(),
        namespace,
        name: name.map(|name| (*name).to_owned()),
        subresource: subresource.map(|name| (*name).to_owned()),
        watch: false,
    }))
}

/// What is between the slashes. Looks at each byte: segments are so short that searching costs more.
fn segments(path: &str) -> Vec<&str> {
    // Most paths have at most so many.
    let mut segments = Vec::with_capacity(8);
    let mut begin = 0;
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            segments.push(&path[begin..at]);
            begin = at + 1;
        }
    }
    if !path.is_empty() {
        segments.push(&path[begin..]);
    }
    segments
}

/// The segments as they are meant; nothing for those that no object can have.
fn decoded<'p>(segments: &[&'p str]) -> Option<Vec<Cow<'p, str>>> {
    let decode = |segment: &&'p str| {
        let segment = percent_decode_str(segment).decode_utf8().ok()?;
        (!segment.is_empty() && !segment.contains('/')).then_some(segment)
    };
    segments.iter().map(decode).collect()
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    values: HashMap<String, Vec<String>>,
}

/// What to do about fields the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl Query {
    /// Reads what comes after the question mark.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decode(name)).or_default().push(decode(value));
        }
        Self { values }
    }

    /// The value of a parameter; the empty string is the same as none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.first().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.values.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Sets a parameter to a text, a number, a switch, or several of them; null removes it.
    pub(crate) fn set(&mut self, name: &str, value: &Value) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values: Vec<String> = match value {
            Value::Null => Vec::new(),
            Value::Array(values) => values.iter().map(text).collect(),
            value => vec![text(value)],
        };
        match values.is_empty() {
            true => drop(self.values.remove(name)),
            false => drop(self.values.insert(name.to_owned(), values)),
        }
    }

    /// A switch: `true`, `1`, or just there.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let given = self.values.get(name).and_then(|values| values.first());
        given.is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A switch that knows whether it was given.
    pub(crate) fn switch(&self, name: &str) -> Option<bool> {
        self.values.contains_key(name).then(|| self.flag(name))
    }

    /// A number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let parse = |text: &str| {
            text.parse().map_err(|error: std::num::ParseIntError| {
                let why = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            })
        };
        self.values.get(name).and_then(|values| values.first()).map(|text| parse(text)).transpose()
    }

    /// Refuses a `timeout` that is no duration. The time itself is not limited by it: writes end within their budgets.
    pub(crate) fn check_timeout(&self) -> Result<(), Status> {
        match self.get("timeout").filter(|text| !is_duration(text)) {
            Some(text) => Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL: time: invalid duration {text:?}"
            ))),
            None => Ok(()),
        }
    }

    /// The label selector; everything when there is none.
    pub(crate) fn labels(&self) -> Result<LabelSelector, Status> {
        LabelSelector::parse(self.get("labelSelector").unwrap_or_default())
            .map_err(|error| Status::bad_request(error.to_string()))
    }

    /// The field selector; everything when there is none.
    pub(crate) fn fields(&self) -> Result<FieldSelector, Status> {
        FieldSelector::parse(self.get("fieldSelector").unwrap_or_default())
            .map_err(|error| Status::bad_request(error.to_string()))
    }

    /// Whether the request is a dry run.
    pub(crate) fn dry_run(&self) -> bool {
        self.values.contains_key("dryRun")
    }

    /// What to do about unknown fields; the default is to warn.
    pub(crate) fn field_validation(&self) -> FieldValidation {
        match self.get("fieldValidation") {
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// Checks the parameters of a write; `kind` names the options object in the answer.
    pub(crate) fn check_write(&self, kind: &str, apply: bool) -> Result<(), Status> {
        let mut errors = Vec::new();
        let dry_run = self.values.get("dryRun").into_iter().flatten();
        let unknown: Vec<&String> = dry_run.filter(|value| *value != "All").collect();
        if !unknown.is_empty() {
            errors.push(FieldError::not_supported(FieldPath::new("dryRun"), serde_json::json!(unknown), ["All"]));
        }
        if let Some(value) = self.get("fieldValidation").filter(|v| !matches!(*v, "Ignore" | "Warn" | "Strict")) {
            let known = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported(FieldPath::new("fieldValidation"), value.into(), known));
        }
        let manager = self.get("fieldManager").unwrap_or_default();
        let path = FieldPath::new("fieldManager");
        if manager.len() > 128 {
            errors.push(FieldError::too_long(path.clone(), 128));
        }
        if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", c as u32);
            errors.push(FieldError::invalid(path.clone(), manager.into(), why));
        }
        if kind == "PatchOptions" {
            if apply && manager.is_empty() {
                errors.push(FieldError::required(path, "is required for apply patch"));
            }
            if !apply && self.get("force").is_some() {
                let path = FieldPath::new("force");
                errors.push(FieldError::forbidden(path, "may not be specified for non-apply patch"));
            }
        }
        invalid_options(kind, &errors)
    }
}

/// 422 about the options of a request, unless there are no errors.
pub(crate) fn invalid_options(kind: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", kind, "", errors)) }
}

/// The verb of a request for objects, as RBAC rules name it; none for a method that resources do not have.
pub(crate) fn verb(method: &Method, target: &ObjectPath, query: &Query) -> Option<Verb> {
    match (method, &target.name) {
        (&Method::GET | &Method::HEAD, _) if target.watch => Some(Verb::Watch),
        _ if target.watch => None,
        (&Method::GET | &Method::HEAD, Some(_)) => Some(Verb::Get),
        (&Method::GET | &Method::HEAD, None) if query.flag("watch") => Some(Verb::Watch),
        (&Method::GET | &Method::HEAD, None) => Some(Verb::List),
        (&Method::POST, _) => Some(Verb::Create),
        (&Method::PUT, _) => Some(Verb::Update),
        (&Method::PATCH, _) => Some(Verb::Patch),
        (&Method::DELETE, Some(_)) => Some(Verb::Delete),
        (&Method::DELETE, None) => Some(Verb::DeleteCollection),
        _ => None,
    }
}

/// Whether a method writes.
pub(crate) fn writes(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(group: &str, namespace: Option<&str>, resource: &str, name: Option<&str>, sub: Option<&str>) -> Endpoint {
        Endpoint::Objects(Arc::new(ObjectPath {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            subresource: sub.map(Into::into),
            watch: false,
        }))
    }

    /// The same as the path of a watch.
    fn watched(endpoint: Endpoint) -> Endpoint {
        let Endpoint::Objects(target) = endpoint else { panic!("{endpoint:?}") };
        Endpoint::Objects(Arc::new(ObjectPath { watch: true, ..(*target).clone() }))
    }

    #[test]
    fn paths() {
        for (path, expect) in [
            ("/", Endpoint::Root),
            ("/api", Endpoint::CoreVersions),
            ("/api/", Endpoint::CoreVersions),
            ("/apis/apps", Endpoint::Group { group: "apps".into() }),
            ("/apis/apps/v1", Endpoint::Resources { group: "apps".into(), version: "v1".into() }),
            ("/readyz/ping", Endpoint::Health { probe: "/readyz", check: Some("ping".into()) }),
            ("/openapi/v3/apis/apps/v1", Endpoint::OpenApi { group: "apps".into(), version: "v1".into() }),
            ("/api/v1/nodes", target("", None, "nodes", None, None)),
            ("/api/v1/namespaces", target("", None, "namespaces", None, None)),
            ("/api/v1/namespaces/a", target("", None, "namespaces", Some("a"), None)),
            ("/api/v1/namespaces/a/status", target("", None, "namespaces", Some("a"), Some("status"))),
            ("/api/v1/namespaces/a/pods", target("", Some("a"), "pods", None, None)),
            ("/api/v1/namespaces/a/pods/p/status", target("", Some("a"), "pods", Some("p"), Some("status"))),
            ("/apis/rbac/v1/roles/system%3Aadmin", target("rbac", None, "roles", Some("system:admin"), None)),
            ("/api/v1/watch/pods", watched(target("", None, "pods", None, None))),
            ("/api/v1/watch/namespaces", watched(target("", None, "namespaces", None, None))),
            ("/api/v1/watch/namespaces/a", watched(target("", None, "namespaces", Some("a"), None))),
            ("/api/v1/watch/namespaces/a/pods/p", watched(target("", Some("a"), "pods", Some("p"), None))),
            ("/apis/apps/v1/watch/deployments", watched(target("apps", None, "deployments", None, None))),
            ("/api/v1/watch/namespaces/a/pods/p/status", Endpoint::Unknown),
            ("/apis/a.b/v1/watch", target("a.b", None, "watch", None, None)),
            ("/api/v1/namespaces/a/pods/p/status/x", Endpoint::Unknown),
            ("/api/v1/pods//x", Endpoint::Unknown),
            ("/api/v1/pods/a%2Fb", Endpoint::Unknown),
            ("/api/v1/pods/a%00b", target("", None, "pods", Some("a\0b"), None)),
            ("/api/v1/pods/%ff", Endpoint::Unknown),
            ("/livez", Endpoint::Health { probe: "/livez", check: None }),
            ("/metrics", Endpoint::Metrics),
            ("/metrics/x", Endpoint::Unknown),
            ("/nowhere", Endpoint::Unknown),
        ] {
            assert_eq!(endpoint(path), expect, "{path}");
        }
    }

    #[test]
    fn write_parameters() {
        for (query, kind, apply, fits) in [
            ("", "CreateOptions", false, true),
            ("dryRun=All&fieldValidation=Strict&fieldManager=me", "CreateOptions", false, true),
            ("dryRun=some", "CreateOptions", false, false),
            ("dryRun=", "CreateOptions", false, false),
            ("fieldValidation=loose", "UpdateOptions", false, false),
            ("fieldManager=a%0Ab", "UpdateOptions", false, false),
            ("force=true", "PatchOptions", false, false),
            ("force=true&fieldManager=me", "PatchOptions", true, true),
            ("force=true", "PatchOptions", true, false),
        ] {
            let got = Query::parse(Some(query)).check_write(kind, apply);
            assert_eq!(got.is_ok(), fits, "{query}: {got:?}");
        }
    }
}
