//! MutatingAdmissionPolicy: changes objects before they are checked and stored. In: a request with its object. Out: the object
//! with the patches of all policies, one after the other, or the refusal of those that failed.
//!
//! When a policy has changed the object, the whole chain of admission plugins runs a second time, as in kube-apiserver; then
//! only policies whose reinvocation policy is `IfNeeded` are evaluated again.

use serde_json::Value;

use konverge_cel::{Compiled, Composer, Declared, Evaluation, Inputs, Output, Permissions, Returns, Stop};
use konverge_core::Status;

use super::patch::{apply_configuration, json_patch};
use super::validating::resource_check;
use super::{Binding, Invocation, Kind, Policy, are_judged, invocations};
use crate::admission::match_conditions::Matching;
use crate::admission::matching::Through;
use crate::admission::patched::{ChangedBy, PatchTarget};
use crate::admission::question;
use crate::admission::versioned::{Versioned, namespace_object, reassign, restore, unassigned};
use crate::admission::{Admission, Attributes, Operation, Plugin, Reinvocation, Verdict};
use crate::subresource::Subresource;
use crate::work::over_budget;
use crate::{defaults, scale};

pub(crate) struct MutatingAdmissionPolicy;

/// What a policy of this kind does.
pub(super) struct Rules {
    mutations: Vec<Mutation>,
    /// Whether the policy is evaluated again after others have changed the object.
    if_needed: bool,
}

struct Mutation {
    expression: Compiled,
    returns: Returns,
}

impl Kind for Rules {
    const POLICIES: &'static str = "mutatingadmissionpolicies";
    const BINDINGS: &'static str = "mutatingadmissionpolicybindings";

    fn compile(spec: &Value, composer: &Composer, declared: Declared) -> Self {
        let declared = Declared { patches: true, ..declared };
        let mutation = |json: &Value| {
            let (field, returns) = match json["patchType"].as_str() {
                Some("JSONPatch") => ("jsonPatch", Returns::JsonPatch),
                _ => ("applyConfiguration", Returns::Apply),
            };
            let expression = json[field]["expression"].as_str().unwrap_or_default();
            Mutation { expression: composer.compile(expression, returns, declared), returns }
        };
        Self {
            mutations: spec["mutations"].as_array().into_iter().flatten().map(mutation).collect(),
            if_needed: spec["reinvocationPolicy"] == "IfNeeded",
        }
    }
}

/// A policy, its binding, and the namespace and name of its parameters.
pub(crate) type PolicyKey = (String, String, String, String);

impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && !matches!(attributes.subresource, Subresource::Binding | Subresource::Eviction)
            && are_judged(attributes)
            && !attributes.server.policies.mutating.hooks(attributes.server).is_empty()
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        Box::pin(admit(attributes, object, &mut admission.reinvocation))
    }
}

/// Why a policy could not be applied.
struct Failure {
    message: String,
    reason: &'static str,
}

impl Failure {
    fn new(policy: &str, binding: Option<&Binding>, why: &str, reason: &'static str) -> Self {
        let message = match binding {
            Some(binding) => format!("policy '{policy}' with binding '{}' denied request: {why}", binding.name),
            None => format!("policy {policy:?} denied request: {why}"),
        };
        Self { message, reason }
    }
}

async fn admit(attributes: &Attributes<'_>, object: &mut Value, reinvocation: &mut Reinvocation) -> Result<(), Status> {
    let hooks = attributes.server.policies.mutating.hooks(attributes.server);
    let found = invocations(attributes, Some(object), &hooks).await?;
    if found.is_empty() {
        return Ok(());
    }
    reinvocation.policies.begin(reinvocation.begun, object);
    let namespace = namespace_object(attributes)?;
    let mut run = Run { attributes, namespace, permissions: Permissions::default(), dirty: false };
    let mut failures = Vec::new();
    for invocation in &found {
        let (policy, binding, through, params) = match invocation {
            Invocation::Evaluate { policy, binding, through, params } => (*policy, *binding, through, params),
            Invocation::Failed { policy, binding, why } => {
                failures.push(Failure::new(&policy.name, *binding, why, ""));
                continue;
            }
        };
        let failed = |why: &str| policy.fail.then(|| Failure::new(&policy.name, Some(binding), why, "Invalid"));
        match run.conditions(policy, object, through, params.as_ref()).await? {
            Matching::Yes => {}
            Matching::No => continue,
            Matching::Failed(why) => {
                failures.extend(failed(&why));
                continue;
            }
        }
        let key = key(policy, binding, params.as_ref());
        if reinvocation.begun && !reinvocation.policies.is_due(&key) {
            continue;
        }
        let before = object.clone();
        for mutation in &policy.rules.mutations {
            if let Err(why) = run.mutate(policy, mutation, object, through, params.as_ref()).await? {
                failures.extend(failed(&why));
            }
        }
        if *object != before {
            reinvocation.policies.changed();
            reinvocation.needed = true;
        }
        if policy.rules.if_needed {
            reinvocation.policies.invoked(key);
        }
    }
    if run.dirty {
        reinvocation.policies.changed();
        reinvocation.needed = true;
    }
    reinvocation.policies.end(object);
    let Some(first) = failures.first() else { return Ok(()) };
    let mut status = attributes.forbidden("");
    status.message.clone_from(&first.message);
    if !first.reason.is_empty() {
        status.reason = first.reason.to_owned();
    }
    Err(failures.iter().fold(status, |status, failure| status.with_cause("", &failure.message, "")))
}

fn key(policy: &Policy<Rules>, binding: &Binding, params: Option<&Value>) -> PolicyKey {
    let text =
        |field: &str| params.and_then(|params| params["metadata"][field].as_str()).unwrap_or_default().to_owned();
    (policy.name.clone(), binding.name.clone(), text("namespace"), text("name"))
}

/// The policies of one request, one after the other.
struct Run<'r, 'a> {
    attributes: &'r Attributes<'a>,
    namespace: Option<Value>,
    permissions: Permissions,
    /// Whether a patch was applied.
    dirty: bool,
}

impl Run<'_, '_> {
    async fn conditions(
        &mut self,
        policy: &Policy<Rules>,
        object: &Value,
        through: &Through,
        params: Option<&Value>,
    ) -> Result<Matching, Status> {
        let attributes = *self.attributes;
        let (view, _) = unassigned(&attributes, object);
        let versioned = Versioned::new(&attributes, Some(&view), through).await?;
        let (request, check) = (versioned.unmatched_request(&attributes), resource_check(&attributes));
        let inputs = Inputs {
            object: versioned.object.as_deref(),
            old_object: versioned.old.as_deref(),
            request: &request,
            namespace: None,
            params,
            authorizer: Some(&check),
        };
        let matches = |asked: &Permissions| {
            let evaluation = Evaluation::new(&policy.composer, &inputs, asked, attributes.budget);
            policy.conditions.matches(evaluation, policy.fail)
        };
        question::evaluate(&attributes, &mut self.permissions, matches).await
    }

    /// Applies one patch. The inner error is of the policy.
    async fn mutate(
        &mut self,
        policy: &Policy<Rules>,
        mutation: &Mutation,
        object: &mut Value,
        through: &Through,
        params: Option<&Value>,
    ) -> Result<Result<(), String>, Status> {
        if let Some(error) = mutation.expression.error() {
            return Ok(Err(error.detail().to_owned()));
        }
        let attributes = *self.attributes;
        let (view, assigned) = unassigned(&attributes, object);
        let versioned = Versioned::new(&attributes, Some(&view), through).await?;
        let Some(current) = versioned.object.as_deref() else { return Ok(Ok(())) };
        let (request, check) = (versioned.request(&attributes), resource_check(&attributes));
        let inputs = Inputs {
            object: Some(current),
            old_object: versioned.old.as_deref(),
            request: &request,
            namespace: self.namespace.as_ref(),
            params,
            authorizer: Some(&check),
        };
        let evaluate = |asked: &Permissions| {
            let mut evaluation = Evaluation::new(&policy.composer, &inputs, asked, attributes.budget);
            match evaluation.evaluate(&mutation.expression) {
                Err(stop @ Stop::OutOfCost) => Ok(Err(stop.to_string())),
                result => result,
            }
        };
        let output = match question::evaluate(&attributes, &mut self.permissions, evaluate).await? {
            Ok(output) => output,
            Err(why) => return Ok(Err(why)),
        };
        let matched = match through {
            Through::Same => attributes.resource,
            Through::Equivalent(resource) => resource,
        };
        let target = PatchTarget::of(&attributes, matched, ChangedBy::Policy);
        let patched = match (output, mutation.returns) {
            (Output::Apply(config), _) => match config {
                Ok(config) => apply_configuration(&target, current, config)?,
                Err(why) => Err(why),
            },
            (Output::JsonPatch(operations), _) => match operations {
                Ok(operations) => json_patch(&target, current, &operations, attributes.budget)?,
                Err(why) => Err(why),
            },
            _ => Err("type mismatch: the expression gives no patch".to_owned()),
        };
        let mut patched = match patched {
            Ok(patched) => patched,
            Err(why) => return Ok(Err(why)),
        };
        self.dirty = true;
        if let (Subresource::Scale, Some(paths)) = (attributes.subresource, &attributes.resource.scale) {
            *object = scale::set(object, &patched, attributes.resource, paths)?;
            return Ok(Ok(()));
        }
        defaults::fill(matched, &mut patched, attributes.budget).map_err(over_budget)?;
        let mut restored = restore(&attributes, patched, through).await?;
        reassign(&mut restored, assigned);
        *object = restored;
        Ok(Ok(()))
    }
}
