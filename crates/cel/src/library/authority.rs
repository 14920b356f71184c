//! The authorizer: `authorizer.group('apps').resource('deployments').check('create').allowed()`. In: what is to be asked, piece
//! by piece. Out: the question, and what its answer says. Nobody is asked here: see [`Question`].

use std::collections::BTreeMap;
use std::sync::Arc;

use konverge_core::{NameRule, check_name};

use crate::value::{Answer, EvalError, Value};

use super::{Native, no_overload};

/// What an expression asks the authorizer. The evaluation stops at a question that has no answer yet, so that whoever
/// evaluates can ask it, wait, and evaluate again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Who would act.
    pub subject: Subject,
    /// `create`; for a path the method of the request in lower case.
    pub verb: String,
    /// What would be acted on.
    pub about: About,
}

/// Whose permissions are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The user who makes the request.
    Requester,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What permissions are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A path that is no resource.
    Path(String),
    /// A resource.
    Resource(ResourceCheck),
}

/// A resource that permissions are asked for. What is empty was not named.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceCheck {
    /// The API group.
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// `status`
    pub subresource: String,
    /// The namespace; empty for all of them, or for resources without.
    pub namespace: String,
    /// The object.
    pub name: String,
    /// Which fields the objects have, as selectors are written.
    pub field_selector: String,
    /// Which labels the objects have.
    pub label_selector: String,
}

/// What the authorizer answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, in the words of the authorizer.
    pub reason: String,
    /// Why there is no decision.
    pub error: Option<String>,
}

/// What the authorizer has answered so far.
pub type Permissions = BTreeMap<Question, Permission>;

/// The values that such expressions go through.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Authority {
    Authorizer(Subject),
    Path(Subject, String),
    Group(Subject, String),
    Resource(Subject, ResourceCheck),
    Decision(Permission),
}

impl Authority {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

pub(super) fn native(function: &str) -> Option<Native> {
    let native: Native = match function {
        "path" => path,
        "group" => group,
        "serviceAccount" => service_account,
        "resource" => resource,
        "subresource" => |args| with(args, "subresource", |check, text| check.subresource = text),
        "namespace" => |args| with(args, "namespace", |check, text| check.namespace = text),
        "name" => |args| with(args, "name", |check, text| check.name = text),
        "fieldSelector" => |args| with(args, "fieldSelector", |check, text| check.field_selector = text),
        "labelSelector" => |args| with(args, "labelSelector", |check, text| check.label_selector = text),
        "errored" => |args| decision(args, |permission| Value::Bool(permission.error.is_some())),
        "error" => |args| decision(args, |permission| Value::text(permission.error.clone().unwrap_or_default())),
        "allowed" => |args| decision(args, |permission| Value::Bool(permission.allowed)),
        "reason" => |args| decision(args, |permission| Value::text(permission.reason.clone())),
        _ => return None,
    };
    Some(native)
}

/// What `check` asks.
pub(crate) fn question(args: &[Value<'_>]) -> Result<Question, EvalError> {
    let [Value::Authority(authority), Value::String(verb)] = args else { return Err(no_overload("check", args)) };
    let (subject, about) = match &**authority {
        Authority::Path(subject, path) => (subject.clone(), About::Path(path.clone())),
        Authority::Resource(subject, check) => (subject.clone(), About::Resource(check.clone())),
        _ => return Err(no_overload("check", args)),
    };
    Ok(Question { subject, verb: verb.to_string(), about })
}

pub(crate) fn authority<'a>(authority: Authority) -> Value<'a> {
    Value::Authority(Arc::new(authority))
}

fn path<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authority(of), Value::String(path)] = args else { return Err("no such overload".into()) };
    let Authority::Authorizer(subject) = &**of else { return Err("no such overload".into()) };
    if path.trim().is_empty() {
        return Err("path must not be empty".into());
    }
    Ok(authority(Authority::Path(subject.clone(), path.to_string())))
}

fn group<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authority(of), Value::String(group)] = args else { return Err("no such overload".into()) };
    let Authority::Authorizer(subject) = &**of else { return Err("no such overload".into()) };
    Ok(authority(Authority::Group(subject.clone(), group.to_string())))
}

fn service_account<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authority(of), Value::String(namespace), Value::String(name)] = args else {
        return Err("no such overload".into());
    };
    let Authority::Authorizer(_) = &**of else { return Err("no such overload".into()) };
    if !check_name(name, NameRule::Subdomain, false).is_empty() {
        return Err("Invalid service account name".into());
    }
    if !check_name(namespace, NameRule::Label, false).is_empty() {
        return Err("Invalid service account namespace".into());
    }
    let subject = Subject::ServiceAccount { namespace: namespace.to_string(), name: name.to_string() };
    Ok(authority(Authority::Authorizer(subject)))
}

fn resource<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authority(of), Value::String(resource)] = args else { return Err("no such overload".into()) };
    let Authority::Group(subject, group) = &**of else { return Err("no such overload".into()) };
    if resource.trim().is_empty() {
        return Err("resource must not be empty".into());
    }
    let check = ResourceCheck { group: group.clone(), resource: resource.to_string(), ..ResourceCheck::default() };
    Ok(authority(Authority::Resource(subject.clone(), check)))
}

fn with<'a>(args: &[Value<'a>], function: &str, set: impl Fn(&mut ResourceCheck, String)) -> Answer<'a> {
    let [Value::Authority(of), Value::String(text)] = args else { return Err(no_overload(function, args)) };
    let Authority::Resource(subject, check) = &**of else { return Err("no such overload".into()) };
    let mut check = check.clone();
    set(&mut check, text.to_string());
    Ok(authority(Authority::Resource(subject.clone(), check)))
}

fn decision<'a>(args: &[Value<'a>], of: impl Fn(&Permission) -> Value<'a>) -> Answer<'a> {
    match args {
        [Value::Authority(authority)] => match &**authority {
            Authority::Decision(permission) => Ok(of(permission)),
            _ => Err("no such overload".into()),
        },
        _ => Err("no such overload".into()),
    }
}
