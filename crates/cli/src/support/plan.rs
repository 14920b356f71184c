//! What is collected. In: the project, the server, and what runs the operator. Out: a list of files, each with where it comes from. Pure: `collect` reads.

use std::path::PathBuf;

use serde_json::Value;

use crate::data_dir::DataDir;
use crate::description::{Description, text};
use crate::doctor::{OwnProject, Workload, kinds, proxy};

/// How many objects of a kind are collected.
pub(super) const MOST_OBJECTS: usize = 100;

/// How many lines, and bytes, of each log.
const MOST_LINES: usize = 20_000;
const MOST_LOG_BYTES: usize = 2 << 20;

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub path: String,
    pub about: String,
    pub source: Source,
}

/// Where the content of a file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A file on this machine.
    File(PathBuf),
    /// A page of the API server, as it is.
    Page(String),
    /// An object.
    Object(String),
    /// The first objects of a list.
    List(String),
    /// The first objects of a kind of the operator, by group, plural and version.
    Kind(crate::doctor::ListedKind),
    /// Those objects of a list that belong to the operator's objects. In: group and plural.
    Children { group: String, plural: String },
    /// Events of this namespace, and those about objects of the operator's kinds.
    Events(String),
}

fn item(path: impl Into<String>, about: impl Into<String>, source: Source) -> Item {
    Item { path: path.into(), about: about.into(), source }
}

/// What is on this machine.
pub(super) fn of_project(project: &OwnProject) -> Vec<Item> {
    let mut items = Vec::new();
    for name in ["PROJECT", "Cargo.toml", "Cargo.lock"] {
        let path = project.directory.join(name);
        if path.is_file() {
            items.push(item(format!("project/{name}"), "of the project", Source::File(path)));
        }
    }
    let data = DataDir::new(&project.directory.join(crate::args::DATA_DIR));
    for (path, about) in data.dev_logs().into_iter().zip(["the log of `konverge dev`", "the same, earlier"]) {
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            items.push(item(format!("dev/{name}"), about, Source::File(path)));
        }
    }
    items
}

/// What every cluster has.
pub(super) fn of_cluster(is_konverge: bool) -> Vec<Item> {
    let page =
        |name: &str, about: &str, path: &str| item(format!("cluster/{name}"), about, Source::Page(path.to_owned()));
    let mut items = vec![
        page("version.json", "the version of the server", "/version"),
        page("readyz.txt", "whether the server is ready", "/readyz?verbose"),
        item(
            "cluster/mutatingwebhookconfigurations.json",
            "webhooks",
            Source::List("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations".into()),
        ),
        item(
            "cluster/validatingwebhookconfigurations.json",
            "webhooks",
            Source::List("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".into()),
        ),
        item(
            "cluster/apiservices.json",
            "APIs of others",
            Source::List("/apis/apiregistration.k8s.io/v1/apiservices".into()),
        ),
        item("cluster/nodes.json", "nodes", Source::List("/api/v1/nodes".into())),
    ];
    if is_konverge {
        items.push(page("metrics.txt", "metrics of the server, its controllers and the operators in it", "/metrics"));
        items.push(page("leader.json", "who holds which Lease", "/leader"));
        items.push(page("permissions.json", "whose rights were asked for", "/permissions"));
    }
    items
}

/// The operator: its Deployment, Pods, logs and pages, its kinds, their objects and what belongs to them.
pub(super) fn of_operator(
    project: &OwnProject,
    workload: Option<&Workload>,
    deployed: &[String],
    since: Option<i64>,
) -> Vec<Item> {
    let namespace = &project.target.namespace;
    let mut items = Vec::new();
    for path in deployed {
        let name = path.trim_start_matches('/').replace('/', "_");
        items.push(item(
            format!("operator/deployed/{name}.json"),
            "as `konverge deploy` left it, or as it is now",
            Source::Object(path.clone()),
        ));
    }
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    for (plural, path) in [
        ("pods", core("pods")),
        ("services", core("services")),
        ("serviceaccounts", core("serviceaccounts")),
        ("deployments", format!("/apis/apps/v1/namespaces/{namespace}/deployments")),
        ("replicasets", format!("/apis/apps/v1/namespaces/{namespace}/replicasets")),
        ("statefulsets", format!("/apis/apps/v1/namespaces/{namespace}/statefulsets")),
        ("leases", format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")),
        ("secrets", core("secrets")),
        ("configmaps", core("configmaps")),
    ] {
        items.push(item(
            format!("operator/{plural}.json"),
            format!("in the namespace {namespace}"),
            Source::List(path),
        ));
    }
    for pod in workload.iter().flat_map(|workload| &workload.pods) {
        items.extend(logs(pod, since));
        items.extend(pages(pod, project.operator.as_ref().ok()));
    }
    items.push(item("events.json", "events of the operator and of its objects", Source::Events(namespace.clone())));
    for kind in kinds(project) {
        let name = format!("{}.{}", kind.plural, kind.group);
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        items.push(item(format!("crds/{name}.json"), "a CRD of the operator", Source::Object(path)));
        items.push(item(format!("objects/{name}.json"), "objects of the operator's kind", Source::Kind(kind)));
    }
    for (group, plural) in project.operator.as_ref().map(children).unwrap_or_default() {
        let name = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        items.push(item(
            format!("children/{name}.json"),
            "what belongs to the operator's objects",
            Source::Children { group, plural },
        ));
    }
    items
}

/// The logs of a Pod, also those before the last restart.
fn logs(pod: &Value, since: Option<i64>) -> Vec<Item> {
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    let since = since.map_or_else(String::new, |seconds| format!("&sinceSeconds={seconds}"));
    let mut items = Vec::new();
    let spec = &pod["spec"];
    let containers =
        ["initContainers", "containers"].into_iter().flat_map(|kind| spec[kind].as_array().into_iter().flatten());
    for container in containers.map(|container| text(&container["name"])) {
        let of = |previous: bool| {
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&timestamps=true&tailLines={MOST_LINES}&limitBytes={MOST_LOG_BYTES}{since}"
            );
            if previous { format!("{path}&previous=true") } else { path }
        };
        items.push(item(format!("operator/logs/{name}/{container}.log"), "a log", Source::Page(of(false))));
        let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        if statuses.any(|status| status["name"] == container.as_str() && status["restartCount"].as_u64() > Some(0)) {
            let about = "the log before the last restart";
            items.push(item(format!("operator/logs/{name}/{container}.previous.log"), about, Source::Page(of(true))));
        }
    }
    items
}

/// What the operator in a Pod tells: metrics with its queues and caches, probes, who leads.
fn pages(pod: &Value, operator: Option<&Description>) -> Vec<Item> {
    let Some(operator) = operator else { return Vec::new() };
    let name = text(&pod["metadata"]["name"]);
    let mut items = Vec::new();
    let mut page = |port: Option<u16>, path: &str, file: &str, about: &str| {
        if let Some(port) = port {
            items.push(item(format!("operator/pages/{name}/{file}"), about, Source::Page(proxy(pod, port, path))));
        }
    };
    let settings = &operator.settings;
    page(operator.metrics_port(), &settings.metrics.path, "metrics.txt", "metrics: queues, caches, reconciles");
    let verbose = |path: &str| format!("{path}?verbose");
    page(operator.health_port(), &verbose(&settings.health.liveness_path), "liveness.txt", "the liveness probe");
    page(operator.health_port(), &verbose(&settings.health.readiness_path), "readiness.txt", "the readiness probe");
    page(operator.health_port(), "/leader", "leader.json", "who leads, and which shards it has");
    items
}

/// The kinds that the operator writes, by group and plural.
fn children(operator: &Description) -> Vec<(String, String)> {
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let own = operator.kinds();
    let rules = operator.rules.cluster.iter().chain(operator.rules.namespaces.iter().flat_map(|(_, rules)| rules));
    let mut found = Vec::new();
    for rule in rules {
        let writes = texts(&rule["verbs"]).iter().any(|verb| ["create", "patch", "*"].contains(&verb.as_str()));
        for group in texts(&rule["apiGroups"]) {
            for plural in texts(&rule["resources"]) {
                let is_own = own.iter().any(|kind| kind.group == group && kind.plural == plural);
                let is_plain = !plural.contains(['/', '*']) && group != "*" && plural != "events";
                if writes && is_plain && !is_own && !found.contains(&(group.clone(), plural.clone())) {
                    found.push((group.clone(), plural));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn logs_of_all_containers() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"},
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 0}]}});
        let paths: Vec<String> = logs(&pod, Some(60)).into_iter().map(|item| item.path).collect();
        assert_eq!(
            paths,
            [
                "operator/logs/p/i.log",
                "operator/logs/p/a.log",
                "operator/logs/p/a.previous.log",
                "operator/logs/p/b.log"
            ]
        );
        let Source::Page(path) = &logs(&pod, Some(60))[2].source else { panic!("a log is a page") };
        assert!(path.contains("container=a&") && path.ends_with("&sinceSeconds=60&previous=true"), "{path}");
    }
}
