//! What API servers are told: the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration of an operator. In: its
//! webhooks, and where they are served. Out: manifests. Never sends anything.

use serde_json::{Map, Value, json};

use super::WebhookSpec;
use crate::kind::Scope;

/// Where API servers reach the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A Service in the cluster, at its port 443.
    Service { namespace: String, name: String },
    /// An address outside of the cluster: `https://host:9443`.
    Url(String),
}

/// Whose webhooks, and where.
pub(crate) struct Registration<'a> {
    /// The name of the operator, and of its configurations.
    pub operator: &'a str,
    /// The namespace that the operator runs in.
    pub home: &'a str,
    pub address: &'a Address,
    /// The CAs that API servers trust, as PEM in base64; none if somebody else fills them in.
    pub ca_bundle: Option<&'a str>,
}

/// The configurations; one for each sort of webhook that there is.
pub(crate) fn configurations(webhooks: &[&WebhookSpec], registration: &Registration<'_>) -> Vec<Value> {
    let of = |is_mutating: bool| webhooks.iter().filter(move |webhook| webhook.is_mutating == is_mutating);
    let sorts = [("MutatingWebhookConfiguration", true), ("ValidatingWebhookConfiguration", false)];
    sorts
        .into_iter()
        .filter(|(_, is_mutating)| of(*is_mutating).next().is_some())
        .map(|(kind, is_mutating)| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": registration.operator},
                "webhooks": of(is_mutating).map(|webhook| entry(webhook, registration)).collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn entry(webhook: &WebhookSpec, registration: &Registration<'_>) -> Value {
    let (api, options) = (webhook.kind.resource(), &webhook.options);
    let resource = match webhook.subresource.as_str() {
        "" => api.plural.clone(),
        part => format!("{}/{part}", api.plural),
    };
    let scope = match webhook.kind.scope() {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let operations: Vec<&str> = webhook.operations.iter().map(|operation| operation.as_str()).collect();
    let mut entry = json!({
        "name": webhook.name(),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config(&webhook.path(), registration),
        "matchPolicy": options.match_policy.as_str(),
        "rules": [{
            "apiGroups": [api.group], "apiVersions": [api.version], "operations": operations,
            "resources": [resource], "scope": scope,
        }],
        "sideEffects": options.side_effects.as_str(),
        "timeoutSeconds": options.timeout.as_secs(),
    });
    if webhook.is_mutating {
        entry["reinvocationPolicy"] = options.reinvocation.as_str().into();
    }
    for (field, value) in criteria(webhook) {
        entry[field] = value;
    }
    if options.namespaces.is_none() && api.group.is_empty() && api.plural == "pods" {
        // Otherwise an operator whose last Pod is gone could never start again: its own webhook would be missing.
        entry["namespaceSelector"] = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [registration.home]},
        ]});
    }
    entry
}

/// Which requests the webhook asked to be called for, besides its kind and operations: the fields of its entry.
pub(crate) fn criteria(webhook: &WebhookSpec) -> Map<String, Value> {
    let options = &webhook.options;
    let mut criteria = Map::new();
    criteria.insert("failurePolicy".to_owned(), options.failure_policy.as_str().into());
    for (field, selector) in [("namespaceSelector", &options.namespaces), ("objectSelector", &options.objects)] {
        if let Some(selector) = selector {
            criteria.insert(field.to_owned(), json!(selector));
        }
    }
    if !options.conditions.is_empty() {
        let condition = |(name, expression): &(String, String)| json!({"name": name, "expression": expression});
        criteria.insert("matchConditions".to_owned(), options.conditions.iter().map(condition).collect());
    }
    criteria
}

pub(super) fn client_config(path: &str, registration: &Registration<'_>) -> Value {
    let mut config = match registration.address {
        Address::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}})
        }
        Address::Url(base) => json!({"url": format!("{}{path}", base.trim_end_matches('/'))}),
    };
    if let Some(bundle) = registration.ca_bundle {
        config["caBundle"] = bundle.into();
    }
    config
}

/// The JSON patch that gives entries of a live object the kind of address that the own ones have. Who installed the object with the
/// other kind owns that field, so an apply would leave both there, which no API server takes.
pub(super) fn readdressed(live: &Value, own: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    let mut move_to = |path: String, live: &Value, own: &Value| {
        for (kept, other) in [("url", "service"), ("service", "url")] {
            if own[kept].is_null() || live[other].is_null() {
                continue;
            }
            operations.push(json!({"op": "remove", "path": format!("{path}/{other}")}));
            operations.push(json!({"op": "add", "path": format!("{path}/{kept}"), "value": own[kept]}));
        }
    };
    let conversion = "/spec/conversion/webhook/clientConfig";
    if let (Some(live), Some(own)) = (live.pointer(conversion), own.pointer(conversion)) {
        move_to(conversion.to_owned(), live, own);
    }
    let webhooks = |of: &'_ Value| of["webhooks"].as_array().cloned().unwrap_or_default();
    let own = webhooks(own);
    for (index, live) in webhooks(live).iter().enumerate() {
        if let Some(own) = own.iter().find(|own| own["name"] == live["name"]) {
            move_to(format!("/webhooks/{index}/clientConfig"), &live["clientConfig"], &own["clientConfig"]);
        }
    }
    if !operations.is_empty() {
        let version = &live["metadata"]["resourceVersion"];
        operations.insert(0, json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    }
    operations
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use konverge_runtime::Result;

    use super::*;
    use crate::builders::{ClusterRole, Deployment, Pod};
    use crate::kind::Kind;
    use crate::webhook::{
        Admission, AnyWebhook, FailurePolicy, MatchPolicy, Operation, ReinvocationPolicy, SideEffects, Webhook,
    };

    async fn pass<T: Kind>(_: Admission<T>) -> Result<()> {
        Ok(())
    }

    async fn same<T: Kind>(request: Admission<T>) -> Result<T> {
        Ok(request.object().clone())
    }

    fn entries(webhooks: &[Arc<dyn AnyWebhook>], address: &Address) -> Vec<Value> {
        let specs: Vec<&WebhookSpec> = webhooks.iter().map(|webhook| webhook.spec()).collect();
        let registration = Registration { operator: "shops", home: "shop", address, ca_bundle: Some("Q0E=") };
        configurations(&specs, &registration)
    }

    #[test]
    fn the_defaults_are_the_safe_ones() {
        let address = Address::Service { namespace: "shop".into(), name: "shops-webhook".into() };
        let webhooks = [Webhook::mutating(same::<Deployment>).erased(), Webhook::validating(pass::<Pod>).erased()];
        let service = |path: &str| {
            json!({
                "service": {"namespace": "shop", "name": "shops-webhook", "path": path, "port": 443}, "caBundle": "Q0E=",
            })
        };
        let expect = json!([
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "shops"},
                "webhooks": [{
                    "name": "mutate.deployment.apps", "admissionReviewVersions": ["v1"],
                    "clientConfig": service("/mutate-apps-v1-deployment"), "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent", "reinvocationPolicy": "Never", "sideEffects": "None", "timeoutSeconds": 10,
                    "rules": [{
                        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["deployments"], "scope": "Namespaced",
                    }],
                }],
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "shops"},
                "webhooks": [{
                    "name": "validate.pod.core", "admissionReviewVersions": ["v1"],
                    "clientConfig": service("/validate--v1-pod"), "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent", "sideEffects": "None", "timeoutSeconds": 10,
                    "rules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["pods"], "scope": "Namespaced",
                    }],
                    "namespaceSelector": {"matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop"]},
                    ]},
                }],
            },
        ]);
        assert_eq!(Value::from(entries(&webhooks, &address)), expect);
    }

    #[test]
    fn every_option_is_told() {
        let selector = |app: &str| LabelSelector {
            match_labels: Some([("app".to_owned(), app.to_owned())].into()),
            ..LabelSelector::default()
        };
        let all = Webhook::mutating(same::<ClusterRole>)
            .named("roles.shops.example.com")
            .path("/roles")
            .operations([Operation::Delete, Operation::Connect])
            .subresource("status")
            .namespaces(selector("a"))
            .objects(selector("b"))
            .match_condition("not-me", "request.userInfo.username != 'me'")
            .match_policy(MatchPolicy::Exact)
            .failure_policy(FailurePolicy::Ignore)
            .side_effects(SideEffects::NoneOnDryRun)
            .reinvocation(ReinvocationPolicy::IfNeeded)
            .timeout(Duration::from_secs(3));
        let found = entries(&[all.erased()], &Address::Url("https://laptop:9443".into()));
        let expect = json!({
            "name": "roles.shops.example.com", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://laptop:9443/roles", "caBundle": "Q0E="}, "failurePolicy": "Ignore",
            "matchPolicy": "Exact", "reinvocationPolicy": "IfNeeded", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 3,
            "rules": [{
                "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE", "CONNECT"],
                "resources": ["clusterroles/status"], "scope": "Cluster",
            }],
            "namespaceSelector": {"matchLabels": {"app": "a"}}, "objectSelector": {"matchLabels": {"app": "b"}},
            "matchConditions": [{"name": "not-me", "expression": "request.userInfo.username != 'me'"}],
        });
        assert_eq!(found[0]["webhooks"], json!([expect]));
    }

    #[test]
    fn addresses_of_the_other_kind_are_replaced() {
        let live = json!({"metadata": {"resourceVersion": "7"},
            "spec": {"conversion": {"webhook": {"clientConfig": {"service": {"name": "a"}}}}},
            "webhooks": [{"name": "other", "clientConfig": {"service": {"name": "b"}}},
                         {"name": "own", "clientConfig": {"url": "https://a"}}]});
        let own = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://b/convert"}}}},
            "webhooks": [{"name": "own", "clientConfig": {"service": {"name": "c"}}}]});
        let expect = [
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}),
            json!({"op": "remove", "path": "/spec/conversion/webhook/clientConfig/service"}),
            json!({"op": "add", "path": "/spec/conversion/webhook/clientConfig/url", "value": "https://b/convert"}),
            json!({"op": "remove", "path": "/webhooks/1/clientConfig/url"}),
            json!({"op": "add", "path": "/webhooks/1/clientConfig/service", "value": {"name": "c"}}),
        ];
        assert_eq!(readdressed(&live, &own), expect);
        assert!(readdressed(&own, &own).is_empty(), "nothing to do");
    }
}
