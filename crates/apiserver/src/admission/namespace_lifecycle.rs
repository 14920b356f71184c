//! NamespaceLifecycle: nothing is created in a namespace that does not exist or is being deleted, and the namespaces that a
//! cluster cannot be without are not deleted.

use serde_json::Value;

use konverge_core::Status;
use konverge_store::Condition;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};
use crate::namespace;

/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => attributes.namespace.is_some(),
            Operation::Update | Operation::Connect => false,
            Operation::Delete => attributes.is_about("", "namespaces"),
        }
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _: &'a mut Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        decided(match attributes.operation {
            Operation::Delete => may_be_deleted(attributes),
            _ => {
                admission.in_namespace = true;
                accepts(attributes).map(drop)
            }
        })
    }
}

fn may_be_deleted(attributes: &Attributes<'_>) -> Result<(), Status> {
    match PROTECTED.contains(&attributes.name) {
        true => Err(attributes.forbidden("this namespace may not be deleted")),
        false => Ok(()),
    }
}

/// Makes sure that the namespace exists and is not being deleted. Gives the condition that it stays so until the commit.
pub(crate) fn accepts(attributes: &Attributes<'_>) -> Result<Option<Condition>, Status> {
    let Some(namespace) = attributes.namespace else { return Ok(None) };
    let Some((condition, terminating)) = namespace::find(attributes.server, namespace)? else {
        return Err(Status::not_found("", "namespaces", namespace));
    };
    if terminating {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("namespace {namespace} is being terminated");
        let status = attributes.forbidden(why);
        return Err(status.with_cause("NamespaceTerminating", &message, "metadata.namespace"));
    }
    Ok(Some(condition))
}
