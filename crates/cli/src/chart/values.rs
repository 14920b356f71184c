//! The values of a chart. In: a description. Out: `values.yaml` with a comment above each value, and `values.schema.json`. Both are made of one
//! table, so no value lacks its schema.

use serde_json::{Map, Value, json};

use crate::description::Description;
use crate::generated_files::MARK;
use crate::yaml::{Reader, document};

/// A value that users of the chart may set.
struct ChartValue {
    /// `image.repository`
    path: &'static str,
    comment: &'static str,
    default: Value,
    /// Its schema, without the comment.
    schema: Value,
}

/// Sections have a comment of their own.
const SECTIONS: [(&str, &str); 12] = [
    ("image", "The image of the operator."),
    ("crds", "The CRDs are templates, not in the folder crds/, because Helm never upgrades what is in that folder."),
    ("rbac", "The roles of people who use the operator's kinds; the operator's own roles are always there."),
    ("serviceAccount", "The ServiceAccount that the operator runs as."),
    ("leaderElection", "Which of several replicas works."),
    ("metrics", "The metrics of the operator."),
    ("serviceMonitor", "A ServiceMonitor, which needs the CRDs of the Prometheus operator."),
    ("prometheusRule", "Alerts, which need the CRDs of the Prometheus operator."),
    ("grafanaDashboard", "A ConfigMap with a dashboard, which a sidecar of Grafana finds by its label."),
    ("persistence", "The volume of each member, which has the log of Raft."),
    ("networkPolicy", "Who may connect to the operator, and where it may connect to."),
    ("webhook", "The webhooks of the operator, whose certificates it makes itself."),
];

fn table(operator: &Description) -> Vec<ChartValue> {
    let repository = repository(&operator.image);
    let row = |path, comment, default, schema| ChartValue { path, comment, default, schema };
    let (switch, text, object) = (json!({"type": "boolean"}), json!({"type": "string"}), json!({"type": "object"}));
    let objects = json!({"type": "array", "items": {"type": "object"}});
    let resources = json!({
        "limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"},
    });
    let mut table = vec![
        row(
            "replicas",
            match operator.raft {
                None => "How many run. One leads, the others can take over at once.",
                Some(_) => {
                    "How many run. One leads as long as a majority of them is there, so it should be an odd number."
                }
            },
            json!(operator.raft.as_ref().map_or(2, |raft| raft.replicas)),
            json!({"type": "integer", "minimum": 0}),
        ),
        row(
            "image.repository",
            "The image without its tag.",
            json!(repository),
            json!({"type": "string", "minLength": 1}),
        ),
        row("image.tag", "The tag; empty is the version of the chart's application.", json!(""), text.clone()),
        row(
            "image.digest",
            "The digest instead of a tag: sha256:...",
            json!(""),
            json!({"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}),
        ),
        row(
            "image.pullPolicy",
            "When the image is pulled.",
            json!("IfNotPresent"),
            json!({"enum": ["Always", "IfNotPresent", "Never"]}),
        ),
        row("imagePullSecrets", "Secrets for the registry: [{name: registry}]", json!([]), objects.clone()),
        row("resources", "What the operator requests of a node, and its limits.", resources, object.clone()),
        row("nodeSelector", "Labels of the nodes that it may run on.", json!({}), object.clone()),
        row("tolerations", "Taints of nodes that it tolerates.", json!([]), objects.clone()),
        row("affinity", "Its affinities; replicas are spread over nodes and zones anyway.", json!({}), object.clone()),
        row("priorityClassName", "Its priority class; empty is the default one.", json!(""), text.clone()),
        row("podAnnotations", "More annotations of its Pods.", json!({}), object.clone()),
        row("podLabels", "More labels of its Pods.", json!({}), object.clone()),
        row(
            "extraArgs",
            "More flags of the operator; --help lists them.",
            json!([]),
            json!({"type": "array", "items": {"type": "string"}}),
        ),
        row("extraEnv", "More environment variables: [{name: A, value: b}]", json!([]), objects.clone()),
        row(
            "logLevel",
            "A level, or a filter such as info,kube=debug.",
            json!(operator.settings.logging.level),
            json!({"type": "string", "minLength": 1}),
        ),
        row(
            "crds.enabled",
            "Whether the CRDs are installed and upgraded with this release.",
            json!(true),
            switch.clone(),
        ),
        row(
            "crds.keep",
            "Whether they stay when the release is uninstalled. Without them, all their objects are deleted.",
            json!(true),
            switch.clone(),
        ),
        row(
            "rbac.aggregate",
            "Whether the roles admin, edit and view of the cluster have these rights, too.",
            json!(true),
            switch.clone(),
        ),
        row(
            "serviceAccount.annotations",
            "Its annotations, as clouds use them to give it rights of theirs.",
            json!({}),
            object.clone(),
        ),
        row(
            "podDisruptionBudget.enabled",
            "Whether a drain of nodes takes one Pod at a time.",
            json!(true),
            switch.clone(),
        ),
        row(
            "networkPolicy.enabled",
            "Whether only metrics, probes and webhooks can be reached.",
            json!(true),
            switch.clone(),
        ),
        row(
            "networkPolicy.metricsFrom",
            "Who may read metrics, as peers of a NetworkPolicy; empty is everybody.",
            json!([]),
            objects.clone(),
        ),
        row(
            "networkPolicy.restrictEgress",
            "Whether it may connect to nothing but DNS and the ports 443 and 6443. Leave it off if it talks to other systems.",
            json!(false),
            switch.clone(),
        ),
        row("networkPolicy.extraEgress", "More rules of what it may connect to.", json!([]), objects.clone()),
    ];
    match &operator.raft {
        None => table.push(row(
            "leaderElection.enabled",
            "Whether there is an election; without one run a single replica.",
            json!(true),
            switch.clone(),
        )),
        Some(raft) => {
            if let Some(data) = &raft.data {
                table.extend([
                    row(
                        "persistence.size",
                        "How large it is.",
                        json!(data.source),
                        json!({"type": "string", "minLength": 1}),
                    ),
                    row(
                        "persistence.storageClass",
                        "Its storage class; empty is the default one.",
                        json!(""),
                        text.clone(),
                    ),
                ]);
            }
        }
    }
    if operator.metrics_port().is_some() {
        table.extend([
            row(
                "metrics.enabled",
                "Whether metrics are served, with a Service in front of them.",
                json!(true),
                switch.clone(),
            ),
            row("serviceMonitor.enabled", "Whether there is one.", json!(false), switch.clone()),
            row(
                "serviceMonitor.interval",
                "How often Prometheus asks.",
                json!("30s"),
                json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}),
            ),
            row("serviceMonitor.labels", "Labels by which your Prometheus finds it.", json!({}), object.clone()),
            row("prometheusRule.enabled", "Whether there are some.", json!(false), switch.clone()),
            row("prometheusRule.labels", "Labels by which your Prometheus finds them.", json!({}), object.clone()),
            row("grafanaDashboard.enabled", "Whether there is one.", json!(false), switch.clone()),
            row("grafanaDashboard.labels", "More labels of it.", json!({}), object.clone()),
        ]);
    }
    if operator.webhooks.is_some() {
        table.push(row(
            "webhook.enabled",
            "Whether webhooks are served and called. Kinds with several versions need them.",
            json!(true),
            switch,
        ));
    }
    if operator.scoped.is_some() {
        table.push(row(
            "watchNamespaces",
            "The namespaces that it watches, and has rights in; empty is all of them.",
            json!([]),
            json!({"type": "array", "items": {"type": "string", "minLength": 1}}),
        ));
    }
    table
}

/// An image without its tag or digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    match image.rsplit_once(':') {
        // The colon before a slash is that of a port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// `values.yaml`, without its first line.
pub(super) fn text(operator: &Description) -> String {
    let table = table(operator);
    let (mut text, mut done) = (String::new(), Vec::new());
    for value in &table {
        let Some((section, _)) = value.path.split_once('.') else {
            text += &format!("\n# {}\n{}", value.comment, entry(value.path, &value.default, 0));
            continue;
        };
        if done.contains(&section) {
            continue;
        }
        done.push(section);
        text += &format!("\n{}{section}:\n", comment_of(section));
        let prefix = format!("{section}.");
        for value in table.iter().filter(|value| value.path.starts_with(&prefix)) {
            text += &format!("  # {}\n{}", value.comment, entry(&value.path[prefix.len()..], &value.default, 2));
        }
    }
    text
}

fn comment_of(section: &str) -> String {
    let found = SECTIONS.iter().find(|(name, _)| *name == section);
    found.map_or_else(String::new, |(_, comment)| format!("# {comment}\n"))
}

fn entry(key: &str, value: &Value, indent: usize) -> String {
    let text = document(&json!({key: value}), Reader::Kubernetes);
    text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// `values.schema.json`
pub(super) fn schema(operator: &Description) -> Value {
    // Charts that have this one as a part may give it values of all charts.
    let mut properties =
        Map::from_iter([("global".to_owned(), json!({"type": "object", "description": "Values of all charts."}))]);
    for ChartValue { path, comment, schema, .. } in table(operator) {
        let mut schema = schema;
        schema["description"] = comment.into();
        match path.split_once('.') {
            None => {
                properties.insert(path.to_owned(), schema);
            }
            Some((section, inner)) => {
                let description =
                    SECTIONS.iter().find(|(name, _)| *name == section).map_or(comment, |(_, comment)| comment);
                let whole = properties.entry(section).or_insert_with(|| {
                    json!({"type": "object", "description": description, "additionalProperties": false, "properties": {}})
                });
                whole["properties"][inner] = schema;
            }
        }
    }
    json!({
        "$comment": format!("{MARK}; `konverge generate chart` replaces this file. Remove this line to keep changes of yours."),
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_its_tag() {
        for (image, expect) in [
            ("shop", "shop"),
            ("shop:1", "shop"),
            ("localhost:5000/shop", "localhost:5000/shop"),
            ("localhost:5000/shop:1", "localhost:5000/shop"),
            ("ghcr.io/acme/shop@sha256:00", "ghcr.io/acme/shop"),
        ] {
            assert_eq!(repository(image), expect);
        }
    }
}
