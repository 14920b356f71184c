//! Webhooks of bundled operators that ran on the same data before and do not run now. In: the names of these operators. Out: their
//! configurations are gone; with them, every write of their kinds would be refused, because nobody answers.

use konverge::kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Preconditions};
use konverge::kube::{Api, Client};
use serde_json::{Value, json};

/// The kinds that say which webhooks are called, and their plural names for people.
const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

/// Deletes what these operators have left. A failure is logged, with what to do: `konverge dev` is of use without.
pub(crate) async fn remove(client: &Client, operators: impl Iterator<Item = &'static str>) {
    for operator in operators {
        for (kind, plural) in KINDS {
            match remove_one(client, operator, kind).await {
                Ok(false) => {}
                Ok(true) => tracing::info!(
                    operator,
                    kind,
                    "deleted the webhooks of an operator that does not run now; they come back with it"
                ),
                Err(error) => tracing::warn!(
                    operator,
                    error = format!("{error:#}"),
                    "webhooks of an operator that does not run refuse writes of its kinds; delete them with: kubectl delete {plural} {operator}"
                ),
            }
        }
    }
}

/// Whether there was a configuration to delete.
async fn remove_one(client: &Client, operator: &str, kind: &str) -> konverge::Result<bool> {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let Some(found) = api.get_opt(operator).await?.filter(|found| is_left(operator, &json!(found))) else {
        return Ok(false);
    };
    let metadata = found.metadata;
    let preconditions = Preconditions { uid: metadata.uid, resource_version: metadata.resource_version };
    api.delete(operator, &DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }).await?;
    Ok(true)
}

/// Whether a configuration is one that an operator in `konverge dev` made: nobody else has a part in it, and it calls this machine.
fn is_left(operator: &str, configuration: &Value) -> bool {
    let managers = configuration["metadata"]["managedFields"].as_array().into_iter().flatten();
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let is_local = |webhook: &Value| {
        let url = webhook["clientConfig"]["url"].as_str().unwrap_or_default();
        ["https://127.0.0.1:", "https://[::1]:"].into_iter().any(|start| url.starts_with(start))
    };
    managers.clone().count() > 0
        && managers.into_iter().all(|entry| entry["manager"] == operator && entry["operation"] == "Apply")
        && webhooks.into_iter().all(is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_operator_left_is_deleted() {
        let made = |managers: &[(&str, &str)], urls: &[&str]| {
            let managers: Vec<Value> = managers
                .iter()
                .map(|(manager, operation)| json!({"manager": manager, "operation": operation}))
                .collect();
            let webhooks: Vec<Value> = urls.iter().map(|url| json!({"clientConfig": {"url": url}})).collect();
            json!({"metadata": {"managedFields": managers}, "webhooks": webhooks})
        };
        let local = "https://127.0.0.1:41234/validate";
        let own = ("application", "Apply");
        for (configuration, expect) in [
            (made(&[own], &[local]), true),
            (made(&[own], &["https://[::1]:41234/validate", local]), true),
            (made(&[own], &[local, "https://example.com/validate"]), false),
            (made(&[own], &["https://127.0.0.1.example.com/validate"]), false),
            (made(&[own, ("kubectl", "Update")], &[local]), false),
            (made(&[("application", "Update")], &[local]), false),
            (made(&[("kubectl", "Apply")], &[local]), false),
            (made(&[], &[local]), false),
            (
                json!({"metadata": {"managedFields": [{"manager": "application", "operation": "Apply"}]},
                    "webhooks": [{"clientConfig": {"service": {"name": "application-webhook", "namespace": "default"}}}]}),
                false,
            ),
        ] {
            assert_eq!(is_left("application", &configuration), expect, "{configuration}");
        }
    }
}
