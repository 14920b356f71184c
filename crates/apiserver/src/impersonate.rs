//! Impersonation: a user who may acts as another one. In: who asks, the `Impersonate-` headers, and what is asked. Out: the
//! user to act as, or the refusal. As in Kubernetes 1.36, several modes are tried: those that limit what may be done as the
//! other user come first, the verb `impersonate`, which limits nothing, comes last. The first refusal is the answer.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use konverge_core::{NameRule, Status, check_name};
use konverge_schema::go_quote;

use crate::authorize::{Asked, Attributes, Authorizer, Decision, ResourceAttributes, forbidden};
use crate::user::{ANONYMOUS, MASTERS, UNAUTHENTICATED, UserInfo, service_account_groups, split_service_account};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE: &str = "system:node:";

/// From this many groups or extra values on, one question about all of them is asked before one about each.
const MANY: usize = 4;

/// One way to impersonate.
struct Mode {
    name: &'static str,
    /// Whether a user can be impersonated in this way.
    applies: fn(wanted: &UserInfo, requestor: &UserInfo) -> bool,
}

const CONSTRAINED: [Mode; 4] = [
    Mode {
        name: "associated-node",
        applies: |wanted, requestor| {
            let node = node_of(&wanted.name).filter(|_| only_named(wanted));
            let own = requestor.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
            node.is_some_and(|node| split_service_account(&requestor.name).is_some() && own == Some(&[node.to_owned()]))
        },
    },
    Mode { name: "arbitrary-node", applies: |wanted, _| only_named(wanted) && node_of(&wanted.name).is_some() },
    Mode {
        name: "serviceaccount",
        applies: |wanted, _| only_named(wanted) && split_service_account(&wanted.name).is_some(),
    },
    Mode {
        name: "user-info",
        applies: |wanted, _| node_of(&wanted.name).is_none() && split_service_account(&wanted.name).is_none(),
    },
];

/// A user that a request may be made as.
pub(crate) struct ImpersonatedUser {
    pub user: UserInfo,
    /// The verb of the mode that limits what may be done so; empty if nothing is limited.
    pub constraint: String,
}

/// The user that a request is to be made as; none if it asks for no impersonation.
pub(crate) async fn impersonated(
    authorizer: &dyn Authorizer,
    requestor: &UserInfo,
    headers: &HeaderMap,
    asked: &Asked<'_>,
) -> Result<Option<ImpersonatedUser>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let mut first = None;
    for mode in CONSTRAINED.iter().filter(|mode| (mode.applies)(&wanted, requestor)) {
        let check = Check { authorizer, requestor, mode: mode.name };
        match check.constrained(&wanted, asked).await {
            Ok(user) => return Ok(Some(ImpersonatedUser { user, constraint: check.verb() })),
            Err(status) => first = first.or(Some(status)),
        }
    }
    let legacy = Check { authorizer, requestor, mode: "" };
    match legacy.user(&wanted).await {
        Ok(user) => Ok(Some(ImpersonatedUser { user, constraint: String::new() })),
        Err(status) => Err(first.unwrap_or(status)),
    }
}

/// What the headers ask for, as it is.
fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    // A header that is there always counts, whatever its bytes are: left out, the request would be made as the real user.
    let decoded = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let text = |name| headers.get(name).map(decoded).unwrap_or_default();
    let groups = headers.get_all(GROUP).iter().map(decoded).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), |key| key.into_owned());
        extra.entry(key).or_default().push(decoded(value));
    }
    let wanted = UserInfo { name: text(USER), uid: text(UID), groups, extra };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if only_named(&wanted) {
        return Ok(None);
    }
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| go_quote(item)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if wanted.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&wanted.groups) };
    let entries = wanted.extra.iter().map(|(key, values)| format!("{}:{}", go_quote(key), list(values)));
    let extra = match wanted.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => format!("map[string][]string{{{}}}", entries.collect::<Vec<_>>().join(", ")),
    };
    let uid = go_quote(&wanted.uid);
    Err(Status::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:{extra}}} without impersonating a user name"
    )))
}

/// The questions of one mode; that without a name is the verb `impersonate`.
struct Check<'a> {
    authorizer: &'a dyn Authorizer,
    requestor: &'a UserInfo,
    mode: &'static str,
}

impl Check<'_> {
    /// Whether the request may be made as the other user, and whether the other user may be impersonated at all.
    async fn constrained(&self, wanted: &UserInfo, asked: &Asked<'_>) -> Result<UserInfo, Status> {
        let mut attributes = asked.by(self.requestor);
        let verb = format!("impersonate-on:{}:{}", self.mode, attributes.verb);
        attributes.verb = &verb;
        self.allowed(attributes).await?;
        self.user(wanted).await
    }

    async fn user(&self, wanted: &UserInfo) -> Result<UserInfo, Status> {
        let limited = !self.mode.is_empty();
        let own_group = if limited { AUTHENTICATION } else { "" };
        let mut user = wanted.clone();
        let (mut resource, mut namespace, mut name) = ("users", "", &*wanted.name);
        if let Some(node) = node_of(&wanted.name).filter(|_| limited) {
            (resource, name) = ("nodes", if self.mode == "associated-node" { "*" } else { node });
            user.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((of, account)) = split_service_account(&wanted.name) {
            (resource, namespace, name) = ("serviceaccounts", of, account);
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(of);
            }
        }
        self.ask(own_group, resource, "", namespace, name).await?;
        if !wanted.uid.is_empty() {
            self.ask(AUTHENTICATION, "uids", "", "", &wanted.uid).await?;
        }
        self.groups(own_group, &wanted.groups).await?;
        self.extra(&wanted.extra).await?;
        let has = |group: &str| user.groups.iter().any(|known| known == group);
        let add = match &*user.name {
            ANONYMOUS => Some(UNAUTHENTICATED),
            _ if has(UNAUTHENTICATED) => None,
            _ => Some("system:authenticated"),
        };
        if let Some(group) = add.filter(|group| !has(group)) {
            user.groups.push(group.to_owned());
        }
        Ok(user)
    }

    async fn groups(&self, own_group: &str, groups: &[String]) -> Result<(), Status> {
        if !self.mode.is_empty() {
            let refused = |name, why| Err(self.refused(own_group, "groups", "", name, why));
            if groups.iter().any(String::is_empty) {
                return refused("", "impersonating the empty string group is not allowed");
            }
            if groups.iter().any(|group| group == MASTERS) {
                return refused(MASTERS, "impersonating the system:masters group is not allowed");
            }
            if groups.len() >= MANY && self.ask(own_group, "groups", "", "", "*").await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.ask(own_group, "groups", "", "", group).await?;
        }
        Ok(())
    }

    async fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Status> {
        if !self.mode.is_empty() {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(self.refused(AUTHENTICATION, "userextras", "", "", &why));
            }
            let values: usize = extra.values().map(Vec::len).sum();
            if values >= MANY && self.ask(AUTHENTICATION, "userextras", "*", "", "*").await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.ask(AUTHENTICATION, "userextras", key, "", value).await?;
            }
        }
        Ok(())
    }

    async fn ask(
        &self,
        group: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let verb = self.verb();
        let resource =
            ResourceAttributes { group, version: "v1", resource, subresource, namespace, name, fields: None };
        self.allowed(Attributes { user: self.requestor, verb: &verb, path: "", resource: Some(resource) }).await
    }

    async fn allowed(&self, attributes: Attributes<'_>) -> Result<(), Status> {
        match self.authorizer.authorize(attributes).await {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny { reason } | Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason)),
        }
    }

    fn refused(&self, group: &str, resource: &str, subresource: &str, name: &str, why: &str) -> Status {
        let verb = self.verb();
        let resource = ResourceAttributes { group, version: "v1", resource, subresource, name, ..Default::default() };
        forbidden(&Attributes { user: self.requestor, verb: &verb, path: "", resource: Some(resource) }, why)
    }

    fn verb(&self) -> String {
        if self.mode.is_empty() { "impersonate".to_owned() } else { format!("impersonate:{}", self.mode) }
    }
}

/// Whether nothing but a name is set.
fn only_named(user: &UserInfo) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// The node that a user is.
fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| check_name(name, NameRule::Subdomain, false).is_empty())
}

/// Why an extra value cannot be impersonated in a limited mode.
fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    let in_path = |letter: char| letter.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(letter);
    let (domain, path) = key.split_once('/').unwrap_or((key, ""));
    let prefixed = check_name(domain, NameRule::Subdomain, false).is_empty() && !path.is_empty();
    if key.is_empty() {
        Some("impersonating the empty string key in extra is not allowed".to_owned())
    } else if !prefixed || !path.chars().all(in_path) {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        let key = go_quote(key);
        Some(format!("impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key}: {why}"))
    } else if key.chars().any(char::is_uppercase) {
        Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", go_quote(key)))
    } else if values.iter().any(String::is_empty) {
        Some("impersonating the empty string value in extra is not allowed".to_owned())
    } else {
        None
    }
}
