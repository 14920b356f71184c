//! Admission policies: expressions in CEL that refuse or change requests, and their bindings. In: policies and bindings as they
//! are in the store, and a request. Out: which policies concern the request, with which parameters.
//!
//! ```text
//! source    compiles policies once, when they change
//! params    the parameters of a binding; param_access: who may name them
//! validating, mutating    what the two kinds do; patch: how mutations are applied
//! type_check    what the types of the kinds say about expressions, for the status
//! ```
//!
//! A policy that does not compile, or whose parameters are missing, refuses only the requests that it matches, and only if its
//! failure policy says so.

mod mutating;
mod param_access;
mod params;
mod patch;
mod source;
mod type_check;
mod validating;

use std::sync::Arc;

use serde_json::Value;

use konverge_cel::{Composer, Declared};
use konverge_core::Status;

use super::match_conditions::MatchConditions;
use super::matching::{MatchResources, Through};
use super::{Attributes, GROUP};
use crate::resource::Resource;
use crate::server::Server;
use params::{ParamKind, ParamRef};
use source::Source;

pub(crate) use mutating::{MutatingAdmissionPolicy, PolicyKey};
pub(crate) use param_access::check_param_access;
pub(crate) use type_check::run;
pub(crate) use validating::{ValidatingAdmissionPolicy, resource_check};

/// The policies of a server, compiled.
#[derive(Default)]
pub(crate) struct Policies {
    validating: Source<validating::Rules>,
    mutating: Source<mutating::Rules>,
}

impl Policies {
    /// Whether a write of this resource may have changed policies.
    fn concern(group: &str, plural: &str) -> bool {
        group == GROUP && plural.contains("admissionpolic")
    }

    /// Whether any policy is bound.
    pub(crate) fn are_there(&self, server: &Server) -> bool {
        !self.validating.hooks(server).is_empty()
    }

    /// Compiles policies that were just written, so that their writer waits for it and nobody else.
    pub(crate) fn committed(server: &Server, resource: &Resource) {
        if Self::concern(&resource.group, &resource.plural) {
            server.policies.validating.hooks(server);
            server.policies.mutating.hooks(server);
        }
    }
}

/// What one kind of policy compiles to.
trait Kind: Sized + Send + Sync + 'static {
    /// The plural names of the policies and of their bindings.
    const POLICIES: &'static str;
    const BINDINGS: &'static str;

    /// Compiles what this kind has beyond variables and match conditions.
    fn compile(spec: &Value, composer: &Composer, declared: Declared) -> Self;
}

/// A compiled policy.
struct Policy<K> {
    name: String,
    /// What it was compiled from.
    spec: Value,
    /// Whether errors refuse the request.
    fail: bool,
    constraints: MatchResources,
    param_kind: Option<ParamKind>,
    composer: Composer,
    conditions: MatchConditions,
    rules: K,
}

impl<K: Kind> Policy<K> {
    fn compile(name: &str, spec: &Value) -> Self {
        let param_kind = ParamKind::read(&spec["paramKind"]);
        let declared = Declared { params: param_kind.is_some(), authorizer: true, patches: false };
        let mut composer = Composer::default();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            // One that does not compile is an error of the expressions that use it.
            let _ = composer.define(text("name"), text("expression"), declared);
        }
        Self {
            name: name.to_owned(),
            spec: spec.clone(),
            fail: spec["failurePolicy"] != "Ignore",
            constraints: MatchResources::read(&spec["matchConstraints"]),
            conditions: MatchConditions::compile(&composer, &spec["matchConditions"], declared),
            rules: K::compile(spec, &composer, declared),
            param_kind,
            composer,
        }
    }
}

/// What puts a policy into effect.
struct Binding {
    name: String,
    policy: String,
    resources: Option<MatchResources>,
    params: Option<ParamRef>,
    /// What happens if a validation fails.
    actions: Vec<String>,
}

impl Binding {
    fn read(name: &str, spec: &Value) -> Self {
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: name.to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            resources: spec["matchResources"].is_object().then(|| MatchResources::read(&spec["matchResources"])),
            params: ParamRef::read(&spec["paramRef"]),
            actions: actions.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}

/// A policy with its bindings.
struct Hook<K> {
    policy: Arc<Policy<K>>,
    bindings: Vec<Arc<Binding>>,
}

/// One evaluation of a policy that a request asks for, or why it is not possible.
enum Invocation<'h, K> {
    Evaluate { policy: &'h Policy<K>, binding: &'h Binding, through: Through, params: Option<Value> },
    Failed { policy: &'h Policy<K>, binding: Option<&'h Binding>, why: String },
}

/// Finds the policies that concern a request, in the order of their names, with each of their parameters.
async fn invocations<'h, K: Kind>(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    hooks: &'h [Hook<K>],
) -> Result<Vec<Invocation<'h, K>>, Status> {
    let mut found = Vec::new();
    for Hook { policy, bindings } in hooks {
        let policy = &**policy;
        let failed = |binding: Option<&'h Binding>, why: String| {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let why = format!("failed to configure {what}: {why}");
            policy.fail.then_some(Invocation::Failed { policy, binding, why })
        };
        let through = match policy.constraints.matches(attributes, object) {
            Ok(Some(through)) => through,
            Ok(None) => continue,
            Err(status) => {
                found.extend(failed(None, status.message));
                continue;
            }
        };
        let kind = match policy.param_kind.as_ref().map(|kind| kind.resource(attributes.server)).transpose() {
            Ok(kind) => kind,
            Err(why) => {
                found.extend(failed(None, why));
                continue;
            }
        };
        for binding in bindings {
            let binding = &**binding;
            match binding.resources.as_ref().map(|resources| resources.matches(attributes, object)).transpose() {
                Ok(None | Some(Some(_))) => {}
                Ok(Some(None)) => continue,
                Err(status) => {
                    found.extend(failed(Some(binding), status.message));
                    continue;
                }
            }
            let params = match (&kind, &binding.params) {
                (Some(kind), Some(reference)) => match reference.find(attributes, kind).await? {
                    Ok(params) => params.into_iter().map(Some).collect(),
                    Err(why) => {
                        found.extend(failed(Some(binding), why));
                        continue;
                    }
                },
                _ => vec![None],
            };
            for params in params {
                found.push(Invocation::Evaluate { policy, binding, through: through.clone(), params });
            }
        }
    }
    Ok(found)
}

/// Whether policies judge requests for a resource. They do not judge themselves, nor what is asked before every request.
fn are_judged(attributes: &Attributes<'_>) -> bool {
    let group = &*attributes.resource.group;
    !Policies::concern(group, &attributes.resource.plural)
        && !matches!(group, "authentication.k8s.io" | "authorization.k8s.io")
}
