//! MutatingAdmissionWebhook: webhooks that change objects before they are checked and stored, one after the other. In: a request
//! with its object. Out: the object with the patches of all webhooks, or the refusal of the first one that says no.

use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use konverge_cel::Permissions;
use konverge_core::Status;
use konverge_schema::{ManagedFields, size};

use super::{Failure, PATCH, Webhook, WebhookType, are_called, versioned};
use crate::admission::matching::Through;
use crate::admission::patched::{ChangedBy, PatchTarget};
use crate::admission::versioned::{Versioned, reassign, restore, unassigned};
use crate::admission::{Admission, Attributes, Operation, Plugin, Verdict};
use crate::json_patch::{Refused, apply, find};
use crate::subresource::Subresource;
use crate::work::{self, over_budget};
use crate::{decode, defaults, meta, scale, write_only};

/// What a request may still compute after its webhooks were asked: validating and storing an object takes about as much as what
/// was computed until now, or more.
const AFTER: u64 = work::INLINE_STEPS / 4 * 3;

pub(crate) struct MutatingAdmissionWebhook;

impl Plugin for MutatingAdmissionWebhook {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let Attributes { server, .. } = *attributes;
        are_called(attributes) && !server.webhooks.mutating.hooks(server, WebhookType::Mutating).is_empty()
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        Box::pin(admit(attributes, object, admission))
    }
}

async fn admit(attributes: &Attributes<'_>, object: &mut Value, admission: &mut Admission) -> Result<(), Status> {
    let again = admission.reinvocation.begun;
    admission.reinvocation.webhooks.begin(again, object);
    let managers = object["metadata"].get("managedFields").cloned();
    let called = call_all(attributes, object, admission).await;
    if object["metadata"].get("managedFields") != managers.as_ref()
        && let Err(why) = ManagedFields::of(object)
    {
        let metadata = meta::of_mut(object);
        metadata.remove("managedFields");
        metadata.extend(managers.map(|managers| ("managedFields".to_owned(), managers)));
        admission.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
             admission controller; please fix your requests: {why}"
        ));
    }
    admission.reinvocation.webhooks.end(object);
    called
}

async fn call_all(attributes: &Attributes<'_>, object: &mut Value, admission: &mut Admission) -> Result<(), Status> {
    let Attributes { server, operation, .. } = *attributes;
    let again = admission.reinvocation.begun;
    let mut permissions = Permissions::default();
    for (index, hook) in server.webhooks.mutating.hooks(server, WebhookType::Mutating).iter().enumerate() {
        // Most webhooks are about something else, and nothing is copied for them.
        if hook.resources.matches(attributes, (operation != Operation::Delete).then_some(&*object))?.is_none() {
            continue;
        }
        let (view, assigned) = unassigned(attributes, object);
        let seen = (operation != Operation::Delete).then_some(&view);
        let Some(through) = hook.concerns(attributes, seen, &mut permissions).await? else { continue };
        // The second run asks nobody for the first time.
        if again && !admission.reinvocation.webhooks.is_due(&hook.key) {
            continue;
        }
        let versioned = versioned(attributes, seen, &through).await?;
        work::leave(attributes.budget, AFTER)?;
        let began = Instant::now();
        let answer = hook.call(attributes, &versioned).await;
        answer.remarks.add_to(hook, admission);
        let at = format!("round_{}_index_{index}", u8::from(again));
        let patched = match answer.patch {
            Ok(operations) if operations.is_empty() => Ok(None),
            Ok(operations) => {
                let patched = patched(attributes, hook, &versioned, &through, object, &operations).await;
                if patched.is_ok() && attributes.context.audit.as_ref().is_some_and(|audit| audit.wants_request()) {
                    let note = PatchNote {
                        configuration: &hook.configuration,
                        webhook: &hook.name,
                        patch: &operations,
                        patch_type: "JSONPatch",
                    };
                    admission.annotate(&format!("{PATCH}{at}"), text(&note));
                }
                patched
            }
            Err(failure) => Err(failure),
        };
        hook.observe(attributes, began.elapsed(), patched.as_ref().err());
        let changed = match patched {
            Ok(Some(mut patched)) => {
                reassign(&mut patched, assigned);
                let changed = patched != *object;
                *object = patched;
                Ok(changed)
            }
            Ok(None) => Ok(false),
            Err(failure) => Err(failure),
        };
        let mutated = *changed.as_ref().unwrap_or(&false);
        let note = MutationNote { configuration: &hook.configuration, webhook: &hook.name, mutated };
        admission.annotate(&format!("{}{at}", hook.ty.audit_prefix()), text(&note));
        if mutated {
            admission.reinvocation.webhooks.changed();
            admission.reinvocation.needed = true;
        }
        if hook.if_needed {
            admission.reinvocation.webhooks.invoked(hook.key.clone());
        }
        if let Err(failure) = changed {
            hook.failed(failure, &at, attributes, admission)?;
        }
    }
    Ok(())
}

/// What the audit log has of each call, with the fields in the order of kube-apiserver.
#[derive(Serialize)]
struct MutationNote<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// What the audit log has of each patch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchNote<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a [Value],
    patch_type: &'static str,
}

fn text(note: &impl Serialize) -> String {
    serde_json::to_string(note).expect("writing to memory does not fail")
}

/// The object with the patch of a webhook, in the version of the request.
async fn patched(
    attributes: &Attributes<'_>,
    hook: &Webhook,
    versioned: &Versioned<'_>,
    through: &Through,
    object: &Value,
    operations: &[Value],
) -> Result<Option<Value>, Failure> {
    let Some(current) = versioned.object.as_deref() else {
        return Err(Failure::Internal(Status::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        ))));
    };
    let mut patched = current.clone();
    for operation in operations {
        // A patch that copies its own copies ends at the budget.
        let copied = operation["from"].as_str().and_then(|from| find(&patched, from)).map_or(0, size);
        attributes.budget.produce(size(operation) + copied);
        attributes.budget.check().map_err(|why| Failure::Internal(over_budget(why)))?;
        apply(&mut patched, operation).map_err(|refused| {
            Failure::Internal(Status::internal(match refused {
                Refused::Test(path) => format!("testing value {path} failed: test failed"),
                Refused::Error(why) => why,
            }))
        })?;
    }
    take(attributes, through, object, patched).await.map(Some).map_err(Failure::Internal)
}

/// Reads a patched object as its kind, and turns it back into the version of the request.
async fn take(
    attributes: &Attributes<'_>,
    through: &Through,
    object: &Value,
    mut patched: Value,
) -> Result<Value, Status> {
    let Attributes { resource, subresource, budget, .. } = *attributes;
    decode::check_shape(&patched)?;
    // The options of a connection have no schema.
    if attributes.operation == Operation::Connect {
        return Ok(patched);
    }
    let matched = match through {
        Through::Same => resource,
        Through::Equivalent(resource) => resource,
    };
    // Fields that the kind does not have are dropped, as by any decoder that is not strict.
    PatchTarget::of(attributes, matched, ChangedBy::Webhook).read(&mut patched)?;
    if let (Subresource::Scale, Some(paths)) = (subresource, &resource.scale) {
        return scale::set(object, &patched, resource, paths);
    }
    let sent_kind = resource.subresource(subresource.name()).map(|info| &info.gvk);
    if sent_kind.is_some_and(|kind| *kind != resource.gvk()) {
        return Ok(patched);
    }
    write_only::merge(matched.behaviour, &mut patched);
    defaults::fill(matched, &mut patched, budget).map_err(over_budget)?;
    restore(attributes, patched, through).await
}
