//! Manifests as templates of a chart. In: a description. Out: the templates, by file. Each rule here says which field of which kind a value of the
//! chart fills; everything else is as kubectl gets it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::template_header;
use crate::description::{Description, ScopedRules};
use crate::manifests::{COMPONENT_LABEL, CONTAINER, Manifest, NAME_LABEL, Part, manifests, scoped_role};
use crate::yaml::{INCLUDE, INCLUDE_KEYS, Reader, block, document, expr, when, with};

/// The namespace of the release. `$` is the root also within a loop.
const NAMESPACE: &str = "$.Release.Namespace | quote";

/// The labels that the template `labels` sets.
const SHARED_LABELS: [&str; 5] = [
    NAME_LABEL,
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// What the namespace is in a loop over those that are watched.
const WATCHED: &str = "konverge-watched-namespace";

/// The templates, by file.
pub(super) fn templates(operator: &Description) -> Vec<(String, String)> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for manifest in manifests(operator) {
        // A release is in a namespace that is there; roles for watched namespaces follow below.
        if manifest.object["kind"] == "Namespace" || (is_own_role(&manifest) && operator.scoped.is_some()) {
            continue;
        }
        let Manifest { part, file, object } = manifest;
        let file = format!("{}/{}", part.directory(), file.trim_start_matches("bases/"));
        let condition = condition(part, &object);
        *files.entry(file).or_default() += &conditional(condition, &template(object, operator));
    }
    if let Some(scoped) = &operator.scoped {
        files.insert(format!("{}/role.yaml", Part::Rbac.directory()), own_roles(operator, scoped));
    }
    files.into_iter().map(|(file, text)| (file, format!("{}{text}", template_header()))).collect()
}

/// Whether this is the role of the operator itself, or its binding.
fn is_own_role(manifest: &Manifest) -> bool {
    manifest.part == Part::Rbac && ["role.yaml", "role_binding.yaml"].contains(&manifest.file.as_str())
}

/// When an object is there; always, if nothing is said.
fn condition(part: Part, object: &Value) -> Option<&'static str> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match (part, object["kind"].as_str().unwrap_or_default()) {
        (Part::Crd, _) => Some("$.Values.crds.enabled"),
        (Part::Webhook, _) => Some("$.Values.webhook.enabled"),
        (Part::Rbac, _) if name.ends_with("-webhook-certificates") => Some("$.Values.webhook.enabled"),
        (Part::Rbac, _) if name.ends_with("-leader-election") => Some("$.Values.leaderElection.enabled"),
        (Part::Prometheus, "PrometheusRule") => Some("and $.Values.metrics.enabled $.Values.prometheusRule.enabled"),
        (Part::Prometheus, _) => Some("and $.Values.metrics.enabled $.Values.serviceMonitor.enabled"),
        (Part::Grafana, _) => Some("and $.Values.metrics.enabled $.Values.grafanaDashboard.enabled"),
        (Part::RestrictEgress, _) => Some("and $.Values.networkPolicy.enabled $.Values.networkPolicy.restrictEgress"),
        (Part::Manager, "NetworkPolicy") => Some("$.Values.networkPolicy.enabled"),
        (Part::Manager, "PodDisruptionBudget") => Some("$.Values.podDisruptionBudget.enabled"),
        (Part::Manager, "Service") if object["metadata"]["labels"][COMPONENT_LABEL] == "metrics" => {
            Some("$.Values.metrics.enabled")
        }
        _ => None,
    }
}

fn conditional(condition: Option<&str>, text: &str) -> String {
    match condition {
        Some(condition) => format!("{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"),
        None => format!("---\n{text}"),
    }
}

/// An object with its places.
fn template(mut object: Value, operator: &Description) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "CustomResourceDefinition" => {
            let (keep, policy) = ("$.Values.crds.keep", "helm.sh/resource-policy");
            match object["metadata"]["annotations"].as_object_mut() {
                Some(own) if !own.is_empty() => drop(own.insert(policy.to_owned(), when(keep, json!("keep")))),
                _ => object["metadata"]["annotations"] = when(keep, json!({policy: "keep"})),
            }
            if operator.webhooks.is_some() && object["spec"]["conversion"].is_object() {
                let conversion = object["spec"]["conversion"].take();
                object["spec"]["conversion"] = when("$.Values.webhook.enabled", conversion);
            }
        }
        "Deployment" | "StatefulSet" => workload(&mut object, operator),
        "PrometheusRule" => object["metadata"]["labels"][INCLUDE_KEYS] = "$.Values.prometheusRule.labels".into(),
        "ConfigMap" => object["metadata"]["labels"][INCLUDE_KEYS] = "$.Values.grafanaDashboard.labels".into(),
        "ServiceAccount" => object["metadata"]["annotations"] = with("$.Values.serviceAccount.annotations"),
        "NetworkPolicy" => network_policy(&mut object, operator),
        "ServiceMonitor" => {
            object["metadata"]["labels"][INCLUDE_KEYS] =
                without("$.Values.serviceMonitor.labels", SHARED_LABELS).into();
            object["spec"]["endpoints"][0]["interval"] = expr("$.Values.serviceMonitor.interval");
        }
        "ClusterRole" => aggregate(&mut object),
        _ => {}
    }
    labels(&mut object, operator);
    in_release(&mut object, &operator.namespace);
    document(&object, Reader::Helm)
}

/// The labels of every object of the chart, with those that the object has of its own.
fn labels(object: &mut Value, operator: &Description) {
    let own = object["metadata"]["labels"].take();
    let include = format!("include \"{}.labels\" $", operator.name);
    let own = own.as_object().cloned().unwrap_or_default();
    let is_own = |(label, _): &(String, Value)| !SHARED_LABELS.contains(&label.as_str());
    let mut labels: Map<String, Value> = own.into_iter().filter(is_own).collect();
    labels.insert(INCLUDE.to_owned(), include.into());
    object["metadata"]["labels"] = Value::Object(labels);
}

/// The namespace of the release instead of the fixed one, wherever it is: in metadata, in subjects, in the addresses of webhooks.
fn in_release(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "namespace" && text == namespace => *value = expr(NAMESPACE),
                    Value::String(text) if key == "namespace" && text == WATCHED => *value = expr(". | quote"),
                    Value::Array(items) if key == "values" => {
                        let own = |item: &&mut Value| item.as_str() == Some(namespace);
                        items.iter_mut().filter(own).for_each(|item| *item = expr(NAMESPACE));
                    }
                    value => in_release(value, namespace),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| in_release(item, namespace)),
        _ => {}
    }
}

fn aggregate(role: &mut Value) {
    let labels = role["metadata"]["labels"].as_object_mut().into_iter().flatten();
    for (_, value) in labels.filter(|(label, _)| label.contains("/aggregate-to-")) {
        *value = when("$.Values.rbac.aggregate", json!("true"));
    }
}

/// The Deployment or StatefulSet.
fn workload(workload: &mut Value, operator: &Description) {
    workload["spec"]["replicas"] = expr("$.Values.replicas");
    // By a pointer: an index would write `volumeClaimTemplates: null` into a Deployment, which has no such field.
    let claims = workload.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        claim["spec"]["resources"]["requests"]["storage"] = expr("$.Values.persistence.size | quote");
        claim["spec"]["storageClassName"] = with("$.Values.persistence.storageClass");
    }
    let template = &mut workload["spec"]["template"];
    let own = template["metadata"]["annotations"].take();
    template["metadata"]["annotations"] = plus(own, "$.Values.podAnnotations");
    let own = template["metadata"]["labels"].take();
    template["metadata"]["labels"] = plus(own, "$.Values.podLabels");
    let pod = &mut template["spec"];
    for (field, value) in [
        ("affinity", "affinity"),
        ("imagePullSecrets", "imagePullSecrets"),
        ("nodeSelector", "nodeSelector"),
        ("priorityClassName", "priorityClassName"),
        ("tolerations", "tolerations"),
    ] {
        pod[field] = with(&format!("$.Values.{value}"));
    }
    let container = &mut pod["containers"][0];
    debug_assert!(container["name"] == CONTAINER, "it has one container");
    container["image"] = expr(&format!("include \"{}.image\" $ | quote", operator.name));
    container["imagePullPolicy"] = expr("$.Values.image.pullPolicy");
    container["resources"] = block("$.Values.resources");
    container["env"] = match container["env"].take() {
        Value::Array(own) => own.into_iter().chain([with("$.Values.extraEnv")]).collect(),
        _ => with("$.Values.extraEnv"),
    };
    container["args"] = arguments(operator);
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        match port["name"].as_str() {
            Some("metrics") => *port = when("$.Values.metrics.enabled", port.take()),
            Some("webhook") => *port = when("$.Values.webhook.enabled", port.take()),
            _ => {}
        }
    }
}

/// Some keys of its own, and those of a value.
fn plus(own: Value, expression: &str) -> Value {
    let mut fields = own.as_object().cloned().unwrap_or_default();
    let expression = without(expression, fields.keys().map(String::as_str));
    fields.insert(INCLUDE_KEYS.to_owned(), expression.into());
    Value::Object(fields)
}

/// A value without the keys that are beside it, which must not be there twice.
fn without<'a>(expression: &str, keys: impl IntoIterator<Item = &'a str>) -> String {
    let keys: String = keys.into_iter().map(|key| format!(" {key:?}")).collect();
    match keys.is_empty() {
        true => expression.to_owned(),
        false => format!("omit ({expression} | default dict){keys}"),
    }
}

fn arguments(operator: &Description) -> Value {
    let mut arguments = vec![json!(format!("--operator-name={}", operator.name))];
    if operator.raft.is_none() {
        arguments.push(when("$.Values.leaderElection.enabled", json!("--leader-elect")));
    }
    arguments.push(expr("printf \"--log-level=%s\" $.Values.logLevel | quote"));
    if operator.metrics_port().is_some() {
        arguments.push(when("not $.Values.metrics.enabled", json!("--metrics-enabled=false")));
    }
    if operator.webhooks.is_some() {
        arguments.push(when("not $.Values.webhook.enabled", json!("--webhook-enabled=false")));
    }
    if operator.scoped.is_some() {
        let namespaces = expr("printf \"--namespace=%s\" (join \",\" $.Values.watchNamespaces) | quote");
        arguments.push(when("$.Values.watchNamespaces", namespaces));
    }
    arguments.push(with("$.Values.extraArgs"));
    arguments.into()
}

fn network_policy(policy: &mut Value, operator: &Description) {
    if policy["spec"]["egress"].is_array() {
        let rules = policy["spec"]["egress"].as_array_mut().into_iter();
        rules.for_each(|rules| rules.push(with("$.Values.networkPolicy.extraEgress")));
        return;
    }
    let (metrics, webhook) = (operator.metrics_port(), operator.webhook_port());
    let (open, of_members) = match policy["spec"]["ingress"].as_array().map(Vec::as_slice) {
        // What members of Raft say to each other stays as it is.
        Some([open, members @ ..]) if open["from"].is_null() => (open["ports"].clone(), members.to_vec()),
        Some(members) => (Value::Null, members.to_vec()),
        None => (Value::Null, Vec::new()),
    };
    let ports = open.as_array().cloned().unwrap_or_default();
    let mut rules = Vec::new();
    for port in ports {
        let number = port["port"].as_u64().and_then(|number| u16::try_from(number).ok());
        let mut rule = json!({"ports": [port]});
        if number == operator.health_port() {
            // Metrics may be served beside the probes, which the kubelet always has to reach.
            rules.push(rule);
        } else if number == metrics {
            rule["from"] = with("$.Values.networkPolicy.metricsFrom");
            rules.push(when("$.Values.metrics.enabled", rule));
        } else if number == webhook {
            rules.push(when("$.Values.webhook.enabled", rule));
        } else {
            rules.push(rule);
        }
    }
    rules.extend(of_members);
    if !rules.is_empty() {
        policy["spec"]["ingress"] = rules.into();
    }
}

/// The operator's own roles: for all namespaces, or for each that it watches.
fn own_roles(operator: &Description, scoped: &ScopedRules) -> String {
    let render = |objects: Vec<Value>| -> String {
        let labelled = |mut object: Value| {
            object["metadata"]["labels"] = json!({NAME_LABEL: operator.name});
            format!("---\n{}", template(object, operator))
        };
        objects.into_iter().map(labelled).collect()
    };
    let everywhere = |rules: &[Value]| {
        let mut only = operator.clone();
        only.rules.cluster = rules.to_vec();
        only.rules.namespaces.clear();
        let objects = manifests(&only).into_iter().filter(is_own_role).map(|manifest| manifest.object).collect();
        render(objects)
    };
    let inside = render(scoped_role(operator, WATCHED, &scoped.namespaced));
    format!(
        "{{{{- if $.Values.watchNamespaces }}}}\n{{{{- range $.Values.watchNamespaces }}}}\n{inside}{{{{- end }}}}\n{}{{{{- else }}}}\n{}{{{{- end }}}}\n",
        everywhere(&scoped.cluster),
        everywhere(&operator.rules.cluster)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::example;

    #[test]
    fn what_a_definition_has_of_its_own_stays() {
        let check = |metadata: Value, expect: &[&str]| {
            let mut shop = example();
            for (field, value) in metadata.as_object().unwrap() {
                shop.definitions[0]["metadata"][field] = value.clone();
            }
            let files = templates(&shop);
            let (_, text) = files.iter().find(|(file, _)| file == "crd/example.com_shops.yaml").unwrap();
            for part in expect {
                assert!(text.contains(part), "{part:?} is not in\n{text}");
            }
        };
        let keep = "helm.sh/resource-policy: keep\n";
        check(
            json!({}),
            &["  {{- if $.Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"],
        );
        check(
            json!({
                "annotations": {"api-approved.kubernetes.io": "https://example.com/1"},
                "labels": {"app.kubernetes.io/part-of": "shops", "app.kubernetes.io/version": "0"},
            }),
            &[
                "  annotations:\n    api-approved.kubernetes.io: https://example.com/1\n    {{- if $.Values.crds.keep }}\n",
                keep,
                "app.kubernetes.io/part-of: shops\n",
            ],
        );
    }

    #[test]
    fn no_label_is_there_twice() {
        let files = templates(&example());
        let (_, text) = files.iter().find(|(file, _)| file == "manager/deployment.yaml").unwrap();
        let expect = "{{- with omit ($.Values.podLabels | default dict) \"app.kubernetes.io/component\" \"app.kubernetes.io/name\"";
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn a_deployment_claims_no_volumes() {
        let files = templates(&example());
        let (_, text) = files.iter().find(|(file, _)| file == "manager/deployment.yaml").unwrap();
        assert!(!text.contains("volumeClaimTemplates"), "{text}");
    }
}
