//! Whether a user may do what a request asks for. In: the attributes of a request, as Kubernetes' authorizers know them.
//! Out: a decision, and for a denial the `Status` that kube-apiserver sends. Asked once for each request, before anything
//! is looked up.

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;

use konverge_core::{FieldSelector, NameRule, Status, check_name};

use crate::audit::RequestAudit;
use crate::node_authorizer::{self, NodeAuthorizer, Nodes};
use crate::rbac::{Rbac, RbacAuthorizer, Rule};
use crate::request::{self, Endpoint, ObjectPath, Query};
use crate::server::{ApiServer, Server};
use crate::user::{MASTERS, UserInfo};
use crate::verb::Verb;

/// Decides whether requests are allowed.
///
/// The server asks once for each request, before it looks up the resource, as kube-apiserver does. What it decides holds
/// for the whole request; a watch that was allowed goes on until it ends. The server's own tasks are not asked about.
pub trait Authorizer: Send + Sync + 'static {
    /// The decision about a request. May wait, for an authorizer that asks another server.
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;
}

impl fmt::Debug for dyn Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}

/// What an authorizer decides. A reason may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The request is processed.
    Allow {
        /// For access reviews and the audit log.
        reason: String,
    },
    /// The request is answered with 403, and no other authorizer is asked.
    Deny {
        /// Added to the message of the answer.
        reason: String,
    },
    /// The next authorizer is asked; after the last one, the request is answered with 403.
    NoOpinion {
        /// Added to the message of the answer.
        reason: String,
    },
}

/// One of those who decide what users may do, by the names of `--authorization-mode`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthorizationMode {
    /// Allows everything.
    AlwaysAllow,
    /// Allows nothing.
    AlwaysDeny,
    /// Allows what roles and bindings allow. A new store gets the roles and bindings that every cluster has.
    Rbac,
    /// Allows users that are nodes what a kubelet needs: to read what the pods on the node refer to, and to write what belongs
    /// to the node. Goes with the admission plugin `NodeRestriction`, and before RBAC.
    Node,
    /// Another authorizer.
    Other(Arc<dyn Authorizer>),
}

/// What an authorizer decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes<'a> {
    /// Who makes the request.
    pub user: &'a UserInfo,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection` for a resource. For any other
    /// path, the HTTP method in lower case.
    pub verb: &'a str,
    /// The path of the request.
    pub path: &'a str,
    /// The resource; none for discovery, health and other paths that are not resources.
    pub resource: Option<ResourceAttributes<'a>>,
}

/// The resource that a request is about. What a request does not name is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceAttributes<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version of the group: `v1`.
    pub version: &'a str,
    /// The plural name of the resource: `deployments`.
    pub resource: &'a str,
    /// `status`, `scale`, …
    pub subresource: &'a str,
    /// The namespace. A request for a namespace itself names it here, too.
    pub namespace: &'a str,
    /// The object. A list or watch whose field selector asks for one name has that name.
    pub name: &'a str,
    /// Which objects of a list, watch or deletecollection are asked for; none if the request does not say, or cannot be
    /// understood.
    pub fields: Option<&'a FieldSelector>,
}

/// Asks several authorizers in order, until one allows or denies. Members of `system:masters` may do everything.
pub(crate) struct Authorizers {
    authorizers: Vec<Arc<dyn Authorizer>>,
    modes: Vec<AuthorizationMode>,
    rbac: Arc<Rbac>,
}

/// What a user may do, as rules.
#[derive(Default)]
pub(crate) struct RulesOfUser {
    pub rules: Vec<Rule>,
    /// Whether there may be more than the rules say.
    pub incomplete: bool,
    pub error: Option<String>,
}

impl Authorizers {
    /// What a user may do in a namespace, as far as rules can say it.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> RulesOfUser {
        let mut found = RulesOfUser::default();
        let mut errors = Vec::new();
        for mode in &self.modes {
            match mode {
                AuthorizationMode::AlwaysAllow => found.rules.extend(Rule::everything()),
                AuthorizationMode::AlwaysDeny => {}
                AuthorizationMode::Rbac => {
                    let (rules, error) = self.rbac.rules_of(user, namespace);
                    found.rules.extend(rules);
                    errors.extend(error);
                }
                AuthorizationMode::Node if node_authorizer::node_of(user).is_some() => {
                    found.incomplete = true;
                    errors.push("node authorizer does not support user rule resolution".to_owned());
                }
                AuthorizationMode::Node => {}
                AuthorizationMode::Other(_) => {
                    found.incomplete = true;
                    errors.push("an authorizer does not support user rule resolution".to_owned());
                }
            }
        }
        found.error = match errors.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            // As Go's aggregate prints them.
            several => Some(format!("[{}]", several.join(", "))),
        };
        found
    }

    pub(crate) fn new(modes: &[AuthorizationMode], rbac: &Arc<Rbac>, nodes: &Arc<Nodes>) -> Self {
        let authorizer = |mode: &AuthorizationMode| -> Arc<dyn Authorizer> {
            match mode {
                AuthorizationMode::AlwaysAllow => Arc::new(Always(Decision::Allow { reason: String::new() })),
                AuthorizationMode::AlwaysDeny => {
                    Arc::new(Always(Decision::NoOpinion { reason: "Everything is forbidden.".to_owned() }))
                }
                AuthorizationMode::Rbac => Arc::new(RbacAuthorizer(rbac.clone())),
                AuthorizationMode::Node => Arc::new(NodeAuthorizer::new(nodes)),
                AuthorizationMode::Other(other) => other.clone(),
            }
        };
        let authorizers = modes.iter().map(authorizer).collect();
        Self { authorizers, modes: modes.to_vec(), rbac: rbac.clone() }
    }
}

impl Authorizer for Authorizers {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        if attributes.user.groups.iter().any(|group| group == MASTERS) {
            return Box::pin(ready(Decision::Allow { reason: String::new() }));
        }
        if let [only] = self.authorizers.as_slice() {
            return only.authorize(attributes);
        }
        Box::pin(async move {
            let mut reasons = Vec::new();
            for authorizer in &self.authorizers {
                match authorizer.authorize(attributes).await {
                    Decision::NoOpinion { reason } if reason.is_empty() => {}
                    Decision::NoOpinion { reason } => reasons.push(reason),
                    decided => return decided,
                }
            }
            Decision::NoOpinion { reason: reasons.join("\n") }
        })
    }
}

/// Decides the same about every request.
struct Always(Decision);

impl Authorizer for Always {
    fn authorize<'a>(&'a self, _: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        Box::pin(ready(self.0.clone()))
    }
}

/// What a request asks for, whoever makes it.
pub(crate) struct Asked<'r> {
    path: &'r str,
    verb: Cow<'static, str>,
    target: Option<&'r ObjectPath>,
    /// Whether the field selector can name the object.
    names: bool,
    selected: Option<FieldSelector>,
}

impl<'r> Asked<'r> {
    pub(crate) fn new(parts: &'r Parts, endpoint: &'r Endpoint, query: &Query) -> Self {
        let path = parts.uri.path();
        let Endpoint::Objects(target) = endpoint else {
            let verb = parts.method.as_str().to_ascii_lowercase().into();
            return Self { path, verb, target: None, names: false, selected: None };
        };
        let verb = request::verb(&parts.method, target, query);
        // As in kube-apiserver, a field selector names the object of a list or watch only: a rule that allows to create one
        // name must not allow to create any.
        let (names, selected) = match verb {
            Some(Verb::List | Verb::Watch) => (true, query.fields().ok()),
            Some(Verb::DeleteCollection) => (false, query.fields().ok()),
            _ => (false, None),
        };
        Self { path, verb: verb.map_or("", Verb::as_str).into(), target: Some(target), names, selected }
    }

    /// The same as a question about a user.
    pub(crate) fn by<'a>(&'a self, user: &'a UserInfo) -> Attributes<'a> {
        let fields = self.selected.as_ref().filter(|fields| !fields.is_everything());
        let name = fields.filter(|_| self.names).and_then(|fields| fields.exact("metadata.name"));
        let name = name.filter(|name| check_name(name, NameRule::PathSegment, false).is_empty());
        let resource = self.target.map(|target| ResourceAttributes { fields, ..resource_attributes(target, name) });
        Attributes { user, verb: &self.verb, path: self.path, resource }
    }
}

/// Asks the authorizer about a request; a denial is 403 in kube-apiserver's words. The audit log is told what was decided, and why.
pub(crate) async fn authorize(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    asked: &Asked<'_>,
    audit: Option<&RequestAudit>,
) -> Result<(), Status> {
    let attributes = asked.by(user);
    let (decision, reason, allowed) = match authorizer.authorize(attributes).await {
        Decision::Allow { reason } => ("allow", reason, Ok(())),
        Decision::Deny { reason } | Decision::NoOpinion { reason } => {
            let denied = forbidden(&attributes, &reason);
            ("forbid", reason, Err(denied))
        }
    };
    if let Some(audit) = audit {
        audit.annotate("authorization.k8s.io/decision", decision);
        audit.annotate("authorization.k8s.io/reason", reason);
    }
    allowed
}

/// Asks whether a user may do something else, too, than what the method of a request says.
pub(crate) async fn authorize_verb(
    server: &Server,
    user: &UserInfo,
    verb: Verb,
    path: &str,
    resource: ResourceAttributes<'_>,
) -> Result<(), Status> {
    let attributes = Attributes { user, verb: verb.as_str(), path, resource: Some(resource) };
    let decision = server.authorizer.authorize(attributes).await;
    server.rights.note(&attributes, matches!(decision, Decision::Allow { .. }));
    match decision {
        Decision::Allow { .. } => Ok(()),
        Decision::Deny { reason } | Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason)),
    }
}

impl ApiServer {
    /// Whether a user may make a request, for a program that answers some requests by itself. A denial is the `Status` that the
    /// server itself would answer with. Impersonation is not looked at.
    pub async fn authorize_request(&self, user: &UserInfo, parts: &Parts) -> Result<(), Status> {
        let (endpoint, query) = (request::endpoint(parts.uri.path()), Query::parse(parts.uri.query()));
        authorize(&*self.0.authorizer, user, &Asked::new(parts, &endpoint, &query), None).await
    }

    /// Whether a user may do something with a path that is not a resource, such as a page beside the API. The verb is the method in
    /// small letters.
    pub async fn authorize_path(&self, user: &UserInfo, verb: &str, path: &str) -> Result<(), Status> {
        let asked = Asked { path, verb: verb.to_owned().into(), target: None, names: false, selected: None };
        authorize(&*self.0.authorizer, user, &asked, None).await
    }
}

pub(crate) fn resource_attributes<'a>(target: &'a ObjectPath, selected: Option<&'a str>) -> ResourceAttributes<'a> {
    let name = target.name.as_deref().or(selected).unwrap_or_default();
    let is_namespace = target.group.is_empty() && target.resource == "namespaces";
    let namespace = if is_namespace { target.name.as_deref() } else { target.namespace.as_deref() };
    ResourceAttributes {
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        name,
        fields: None,
    }
}

pub(crate) fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let Attributes { user, verb, path, resource } = attributes;
    let user = &user.name;
    let denied = match resource {
        None => format!("User {user:?} cannot {verb} path {path:?}"),
        Some(ResourceAttributes { group, resource, subresource, namespace, .. }) => {
            let resource =
                if subresource.is_empty() { (*resource).into() } else { format!("{resource}/{subresource}") };
            let scope = match *namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
        }
    };
    // Browsers may show the message, and the path in it comes from anybody.
    let denied = denied.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { denied } else { format!("{denied}: {reason}") };
    match resource {
        Some(resource) => Status::forbidden(resource.group, resource.resource, resource.name, &why),
        None => Status::failure(403, "Forbidden", format!("forbidden: {why}")).about("", "", ""),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn denials_have_the_words_of_kube_apiserver() {
        let user = UserInfo::named("alice");
        #[track_caller]
        fn check(user: &UserInfo, method: Method, uri: &str, reason: &str, expect: &str) {
            let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
            let endpoint = request::endpoint(parts.uri.path());
            let query = Query::parse(parts.uri.query());
            struct Deny(String);
            impl Authorizer for Deny {
                fn authorize<'a>(&'a self, _: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
                    Box::pin(ready(Decision::Deny { reason: self.0.clone() }))
                }
            }
            let deny = Deny(reason.to_owned());
            let asked = Asked::new(&parts, &endpoint, &query);
            let denied = authorize(&deny, user, &asked, None);
            let status = futures_util::FutureExt::now_or_never(denied).unwrap().unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (403, expect));
        }
        let check = |method, uri, reason, expect| check(&user, method, uri, reason, expect);
        check(
            Method::GET,
            "/api/v1/namespaces/default/pods/web",
            "",
            r#"pods "web" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "default""#,
        );
        check(
            Method::GET,
            "/apis/apps/v1/deployments?watch=true",
            "no rule",
            r#"deployments.apps is forbidden: User "alice" cannot watch resource "deployments" in API group "apps" at the cluster scope: no rule"#,
        );
        check(
            Method::PATCH,
            "/api/v1/namespaces/default/pods/web/status",
            "",
            r#"pods "web" is forbidden: User "alice" cannot patch resource "pods/status" in API group "" in the namespace "default""#,
        );
        check(
            Method::GET,
            "/api/v1/secrets?fieldSelector=metadata.name%3Dtoken",
            "",
            r#"secrets "token" is forbidden: User "alice" cannot list resource "secrets" in API group "" at the cluster scope"#,
        );
        check(
            Method::DELETE,
            "/api/v1/namespaces/a/pods",
            "",
            r#"pods is forbidden: User "alice" cannot deletecollection resource "pods" in API group "" in the namespace "a""#,
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            "",
            r#"namespaces "a" is forbidden: User "alice" cannot get resource "namespaces" in API group "" in the namespace "a""#,
        );
        check(Method::POST, "/healthz", "", r#"forbidden: User "alice" cannot post path "/healthz""#);
        check(Method::GET, "/a&b", "", r#"forbidden: User "alice" cannot get path "/a&amp;b""#);
    }
}
