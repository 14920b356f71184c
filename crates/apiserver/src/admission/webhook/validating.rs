//! ValidatingAdmissionWebhook: webhooks that only refuse. In: a request with its object as it will be stored. Out: the refusal of the
//! first one in their order that says no. All are called at the same time, so a request waits as long as the slowest takes.

use std::time::Instant;

use futures_util::future::join_all;
use serde_json::Value;

use konverge_cel::Permissions;
use konverge_core::Status;

use super::{WebhookType, are_called, versioned};
use crate::admission::{Admission, Attributes, Operation, Plugin, Verdict};
use crate::work;

/// What a request may still compute after its webhooks were asked, which is little.
const AFTER: u64 = work::INLINE_STEPS / 4;

pub(crate) struct ValidatingAdmissionWebhook;

impl Plugin for ValidatingAdmissionWebhook {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let Attributes { server, .. } = *attributes;
        are_called(attributes) && !server.webhooks.validating.hooks(server, WebhookType::Validating).is_empty()
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        let object = (attributes.operation != Operation::Delete).then_some(object);
        Box::pin(validate(attributes, object, admission))
    }
}

async fn validate<'a>(
    attributes: &'a Attributes<'a>,
    object: Option<&'a Value>,
    admission: &mut Admission,
) -> Result<(), Status> {
    let server = attributes.server;
    let hooks = server.webhooks.validating.hooks(server, WebhookType::Validating);
    let mut permissions = Permissions::default();
    let mut concerned = Vec::new();
    for hook in hooks.iter() {
        if let Some(through) = hook.concerns(attributes, object, &mut permissions).await? {
            concerned.push((hook, versioned(attributes, object, &through).await?));
        }
    }
    if concerned.is_empty() {
        return Ok(());
    }
    work::leave(attributes.budget, AFTER)?;
    let calls = concerned.iter().map(|(hook, versioned)| async move {
        let began = Instant::now();
        let answer = hook.call(attributes, versioned).await;
        hook.observe(attributes, began.elapsed(), answer.patch.as_ref().err());
        answer
    });
    let answers = work::without_slot(join_all(calls)).await;
    let mut refused = Ok(());
    for (index, ((hook, _), answer)) in concerned.iter().zip(answers).enumerate() {
        answer.remarks.add_to(hook, admission);
        if let Err(failure) = answer.patch {
            let failed = hook.failed(failure, &format!("round_0_index_{index}"), attributes, admission);
            refused = refused.and(failed);
        }
    }
    refused
}
