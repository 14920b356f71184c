//! Which requests are audited, and how much of them is recorded. In: a policy file of `audit.k8s.io/v1`, and who asks for what. Out:
//! the level, the stages and the form of the events of a request. Pure; the first rule that matches decides.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use konverge_core::{FieldError, FieldPath, NameRule, check_name};
use konverge_schema::Budget;

use crate::authorize::ResourceAttributes;
use crate::decode;
use crate::user::UserInfo;
use crate::write::unregistered;

const VERSION: &str = "audit.k8s.io/v1";

/// What reading a policy file may cost. A policy of a thousand rules takes a hundredth.
const STEPS: u64 = 20_000_000;
const BYTES: u64 = 16 * 1024 * 1024;

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Nothing.
    None,
    /// Who asked for what, and how it ended.
    Metadata,
    /// Also what was sent.
    Request,
    /// Also what was answered.
    RequestResponse,
}

impl Level {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// How far a request is when an event is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before it is processed.
    RequestReceived,
    /// A request that runs long has begun to be answered.
    ResponseStarted,
    /// It was answered.
    ResponseComplete,
    /// The server failed.
    Panic,
}

impl Stage {
    const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// Some of the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stages(u8);

impl Stages {
    fn of(names: &[String]) -> Self {
        let named = Stage::ALL.into_iter().filter(|stage| names.iter().any(|name| name == stage.name()));
        Self(named.fold(0, |stages, stage| stages | 1 << stage as u8))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// What a policy decides about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditConfig {
    pub level: Level,
    pub omit_stages: Stages,
    pub omit_managed_fields: bool,
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audited<'a> {
    /// None if the credential of the request is not believed.
    pub user: Option<&'a UserInfo>,
    pub verb: &'a str,
    pub path: &'a str,
    pub resource: Option<ResourceAttributes<'a>>,
}

/// Which requests are audited: a `Policy` of `audit.k8s.io/v1`.
///
/// ```
/// use konverge_apiserver::AuditPolicy;
/// let policy = AuditPolicy::parse(
///     "apiVersion: audit.k8s.io/v1
/// kind: Policy
/// rules:
/// - level: None
///   users: [system:kube-controller-manager]
/// - level: Metadata
/// ",
/// );
/// assert!(policy.is_ok());
/// let why = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{}]}").unwrap_err();
/// assert_eq!(why.to_string(), "rules[0].level: Required value");
/// ```
#[derive(Clone, Debug)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicyError(String);

impl fmt::Display for AuditPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuditPolicyError {}

#[derive(Clone, Debug)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

/// A policy as it is written.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    #[serde(deserialize_with = "or_default")]
    rules: Vec<WrittenRule>,
    #[serde(deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    omit_managed_fields: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenRule {
    #[serde(deserialize_with = "or_default")]
    level: String,
    #[serde(deserialize_with = "or_default")]
    users: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    user_groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    resources: Vec<GroupResources>,
    #[serde(deserialize_with = "or_default")]
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_default")]
    non_resource_urls: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroupResources {
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    resources: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    resource_names: Vec<String>,
}

/// Go reads null as nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl AuditPolicy {
    /// Reads a policy, in YAML or JSON. Fields that a policy does not have are ignored as kube-apiserver does it, and the log
    /// names them.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let refused = |why: &dyn fmt::Display| AuditPolicyError(format!("failed decoding: {why}"));
        let decoded = decode::yaml(text.as_bytes(), &Budget::new(STEPS, BYTES)).map_err(|why| refused(&why))?;
        let value = decoded.value;
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        for (field, given) in [("Kind", kind), ("apiVersion", version)] {
            if given.is_empty() {
                let why =
                    format!("Object '{field}' is missing: a policy begins with apiVersion: {VERSION}, kind: Policy");
                return Err(refused(&why));
            }
        }
        if (version, kind) != (VERSION, "Policy") {
            let why = format!("{}; write apiVersion: {VERSION}, kind: Policy", unregistered(kind, version));
            return Err(refused(&why));
        }
        let unknown: Vec<String> = decoded.duplicates.into_iter().chain(unknown_fields(&value)).collect();
        let written = Written::deserialize(&value).map_err(|why| refused(&why))?;
        if !unknown.is_empty() {
            let fields = unknown.join(", ");
            tracing::warn!(fields, "the audit policy has fields that are unknown or there twice, and they are ignored");
        }
        let errors = written.check();
        match errors.as_slice() {
            [] if written.rules.is_empty() => Err(AuditPolicyError("loaded illegal policy with 0 rules".to_owned())),
            [] => Ok(written.compile()),
            [one] => Err(AuditPolicyError(one.to_string())),
            several => {
                let mut texts: Vec<String> = Vec::new();
                for text in several.iter().map(ToString::to_string) {
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                let joined = texts.join(", ");
                Err(AuditPolicyError(if texts.len() == 1 { joined } else { format!("[{joined}]") }))
            }
        }
    }

    /// What becomes of a request.
    pub(crate) fn evaluate(&self, audited: &Audited<'_>) -> AuditConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(audited));
        let none = AuditConfig {
            level: Level::None,
            omit_stages: self.omit_stages,
            omit_managed_fields: self.omit_managed_fields,
        };
        rule.map_or(none, |rule| AuditConfig {
            level: rule.level,
            omit_stages: rule.omit_stages,
            omit_managed_fields: rule.omit_managed_fields,
        })
    }
}

impl Rule {
    /// Whether the request is what every field of the rule says. An empty list says nothing.
    fn matches(&self, audited: &Audited<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|item| item == text);
        let by_name = || audited.user.is_some_and(|user| has(&self.users, &user.name));
        let by_group = || audited.user.is_some_and(|user| user.groups.iter().any(|group| has(&self.groups, group)));
        if (!self.users.is_empty() && !by_name())
            || (!self.groups.is_empty() && !by_group())
            || (!self.verbs.is_empty() && !has(&self.verbs, audited.verb))
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return audited.resource.is_some_and(|resource| {
                (self.namespaces.is_empty() || has(&self.namespaces, resource.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|group| group.matches(&resource)))
            });
        }
        self.paths.is_empty()
            || (audited.resource.is_none() && self.paths.iter().any(|spec| matches_path(spec, audited.path)))
    }
}

impl GroupResources {
    fn matches(&self, asked: &ResourceAttributes<'_>) -> bool {
        let in_group = self.group == asked.group || self.group == "*";
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == asked.name);
        let resource = |wanted: &String| match wanted.as_str() {
            "*" => true,
            wanted if asked.subresource.is_empty() => {
                wanted == asked.resource || wanted.strip_suffix("/*") == Some(asked.resource)
            }
            wanted => {
                let whole = wanted.strip_prefix(asked.resource).and_then(|rest| rest.strip_prefix('/'));
                whole == Some(asked.subresource)
                    || wanted.strip_prefix("*/") == Some(asked.subresource)
                    || wanted.strip_suffix("/*") == Some(asked.resource)
            }
        };
        in_group && (self.resources.is_empty() || (named && self.resources.iter().any(resource)))
    }
}

/// Whether a path is what a rule says: the same, or below `/what/ever*`.
fn matches_path(spec: &str, path: &str) -> bool {
    spec == "*" || spec == path || (spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*')))
}

impl Written {
    /// What kube-apiserver refuses, too, in its words.
    fn check(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        check_stages(&self.omit_stages, &FieldPath::new("omitStages"), &mut errors);
        for (at, rule) in self.rules.iter().enumerate() {
            rule.check(&FieldPath::new("rules").index(at), &mut errors);
        }
        errors
    }

    fn compile(self) -> AuditPolicy {
        let omitted = Stages::of(&self.omit_stages);
        let rule = |rule: WrittenRule| Rule {
            level: level(&rule.level).unwrap_or(Level::None),
            users: rule.users,
            groups: rule.user_groups,
            verbs: rule.verbs,
            resources: rule.resources,
            namespaces: rule.namespaces,
            paths: rule.non_resource_urls,
            omit_stages: omitted.and(Stages::of(&rule.omit_stages)),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        };
        AuditPolicy {
            rules: self.rules.into_iter().map(rule).collect(),
            omit_stages: omitted,
            omit_managed_fields: self.omit_managed_fields,
        }
    }
}

impl WrittenRule {
    fn check(&self, path: &FieldPath, errors: &mut Vec<FieldError>) {
        let levels = Level::ALL.map(Level::name);
        match self.level.as_str() {
            "" => errors.push(FieldError::required(path.child("level"), "")),
            given if level(given).is_none() => {
                errors.push(FieldError::not_supported(path.child("level"), given.into(), levels));
            }
            _ => {}
        }
        let urls = path.child("nonResourceURLs");
        for (at, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let mut refuse = |why| errors.push(FieldError::invalid(urls.index(at), url.as_str().into(), why));
            if !url.starts_with('/') {
                refuse("non-resource URL rules must begin with a '/' character");
            }
            if url.char_indices().any(|(at, letter)| letter == '*' && at + 1 < url.len()) {
                refuse("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        let resources = path.child("resources");
        for GroupResources { group, resources: plural, resource_names: names } in &self.resources {
            let wrong = if matches!(group.as_str(), "" | "*") {
                Vec::new()
            } else {
                check_name(group, NameRule::Subdomain, false)
            };
            if !wrong.is_empty() {
                errors.push(FieldError::invalid(resources.child("group"), group.as_str().into(), wrong.join(",")));
            }
            if !names.is_empty() && plural.is_empty() {
                let why = "using resourceNames requires at least one resource";
                errors.push(FieldError::invalid(resources.child("resourceNames"), names.clone().into(), why));
            }
        }
        check_stages(&self.omit_stages, &path.child("omitStages"), errors);
        if !self.non_resource_urls.is_empty() && (!self.resources.is_empty() || !self.namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(urls, self.non_resource_urls.clone().into(), why));
        }
    }
}

fn check_stages(stages: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let known = Stage::ALL.map(Stage::name);
    for (at, stage) in stages.iter().enumerate().filter(|(_, stage)| !known.contains(&stage.as_str())) {
        let why = format!("allowed stages are {}", known.join(","));
        errors.push(FieldError::invalid(path.index(at), stage.as_str().into(), why));
    }
}

fn level(name: &str) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.name() == name)
}

/// The fields that a policy does not have.
fn unknown_fields(policy: &Value) -> Vec<String> {
    const POLICY: [&str; 6] = ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
    const RULE: [&str; 9] = [
        "level",
        "users",
        "userGroups",
        "verbs",
        "resources",
        "namespaces",
        "nonResourceURLs",
        "omitStages",
        "omitManagedFields",
    ];
    const RESOURCES: [&str; 3] = ["group", "resources", "resourceNames"];
    let mut unknown = Vec::new();
    let mut look = |object: &Value, known: &[&str], path: FieldPath| {
        let names = object.as_object().into_iter().flat_map(|fields| fields.keys());
        unknown.extend(
            names.filter(|name| !known.contains(&name.as_str())).map(|name| path.child(name).as_str().to_owned()),
        );
    };
    look(policy, &POLICY, FieldPath::root());
    for (at, rule) in policy["rules"].as_array().into_iter().flatten().enumerate() {
        let path = FieldPath::new("rules").index(at);
        look(rule, &RULE, path.clone());
        for (at, resources) in rule["resources"].as_array().into_iter().flatten().enumerate() {
            look(resources, &RESOURCES, path.child("resources").index(at));
        }
    }
    unknown
}

#[cfg(test)]
mod tests;
