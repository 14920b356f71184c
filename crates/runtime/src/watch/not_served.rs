//! Why a server does not serve a kind. In: a kind, and the server's discovery documents. Out: a sentence that says what is
//! wrong and what to do: a CRD that is not installed, another version, a wrong plural name, or a wrong scope. Nothing is retried.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use konverge_core::ErrorChain;
use kube::Client;
use kube::api::ApiResource;

/// How long discovery may take. The sentence is for people, and is not worth a longer wait.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How many kinds a sentence names at most.
const MAX_KINDS: usize = 10;

/// The groups of Kubernetes itself that have a dot in their names; those without one are all its own.
const BUILT_IN_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The groups that Kubernetes defines and others serve, by an API server of their own.
const AGGREGATED_GROUPS: [&str; 3] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];

/// The server does not serve a kind. Errors with this cause have the reason `NotServed`, and are retried: somebody may
/// install the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NotServed {
    /// The kind: `Widget`.
    pub kind: String,
    /// Its group and version: `example.com/v1`.
    pub api_version: String,
    /// What is wrong and what to do: see [`explain_not_served`].
    pub why: String,
}

impl NotServed {
    /// The server does not serve this kind, and this is why.
    pub fn new(resource: &ApiResource, why: String) -> Self {
        Self { kind: resource.kind.clone(), api_version: resource.api_version.clone(), why }
    }
}

/// Asks the server's discovery why it does not serve a kind, in this namespace or in all of them, and returns a sentence for
/// logs and errors. It names the kind, its group and version, what is served instead, and what to do. The plural of
/// `resource` may be empty if it is unknown.
///
/// Makes a few requests, which every authenticated client may make by default. If discovery fails as well, the sentence says
/// that and guesses nothing.
pub async fn explain_not_served(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> String {
    let served = match tokio::time::timeout(DISCOVERY_TIMEOUT, discover(client, resource)).await {
        Ok(served) => served.map_err(|error| ErrorChain(&error).to_string()),
        Err(_) => Err(format!("it took longer than {DISCOVERY_TIMEOUT:?}")),
    };
    explain(resource, namespace, served.as_ref().map_err(String::as_str))
}

/// What a server serves of one group: the versions, the preferred one first, each with its kinds.
type ServedGroup = Vec<(String, Vec<ServedKind>)>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServedKind {
    kind: String,
    plural: String,
    is_namespaced: bool,
}

async fn discover(client: &Client, resource: &ApiResource) -> kube::Result<ServedGroup> {
    let mut served = ServedGroup::new();
    let (group, wanted) = (&resource.group, &resource.version);
    let versions = if group.is_empty() {
        client.list_core_api_versions().await?.versions
    } else {
        let groups = client.list_api_groups().await?.groups;
        groups.into_iter().find(|served| served.name == *group).map(versions).unwrap_or_default()
    };
    for version in versions {
        let listed = match group.is_empty() {
            true => client.list_core_api_resources(&version).await,
            false => client.list_api_group_resources(&with_group(group, &version)).await,
        };
        match listed {
            Ok(listed) => served.push((version, kinds(listed.resources))),
            // Each version may be served by another server, one of which may be away.
            Err(error) if version == *wanted => return Err(error),
            Err(_) => {}
        }
    }
    Ok(served)
}

/// The versions of a group, the preferred one first.
fn versions(group: APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.map(|preferred| preferred.version);
    let others = group.versions.into_iter().map(|served| served.version);
    let others = others.filter(|version| preferred.as_ref() != Some(version)).collect::<Vec<_>>();
    preferred.into_iter().chain(others).collect()
}

/// The kinds of a discovery document, without subresources.
fn kinds(resources: Vec<APIResource>) -> Vec<ServedKind> {
    let kinds = resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let kind =
        |APIResource { kind, name, namespaced, .. }| ServedKind { kind, plural: name, is_namespaced: namespaced };
    kinds.map(kind).collect()
}

/// `served` is what discovery said, or why it failed.
fn explain(resource: &ApiResource, namespace: Option<&str>, served: Result<&ServedGroup, &str>) -> String {
    let ApiResource { group, api_version, kind, .. } = resource;
    let why = match served {
        Ok(served) => why(resource, namespace, served),
        Err(error) => {
            let group = if group.is_empty() { "\"\"" } else { group };
            format!(
                "why is not known, because discovery fails as well ({error}); kubectl api-resources --api-group={group} \
                 shows what is served"
            )
        }
    };
    format!("the server does not serve {kind} of {api_version}: {why}")
}

fn why(resource: &ApiResource, namespace: Option<&str>, served: &ServedGroup) -> String {
    let ApiResource { group, version, kind, plural, .. } = resource;
    let is_it = |served: &&ServedKind| served.kind == *kind;
    let here = served.iter().find(|(served, _)| served == version);
    let elsewhere = served.iter().filter(|(_, kinds)| kinds.iter().any(|served| is_it(&served)));
    let elsewhere: Vec<String> = elsewhere.map(|(version, _)| with_group(group, version)).collect();
    let install = what_to_install(group, plural);
    match here.and_then(|(_, kinds)| kinds.iter().find(is_it)) {
        Some(served) if !plural.is_empty() && served.plural != *plural => {
            format!("its plural name is {}, not {plural}; correct the plural name", served.plural)
        }
        Some(ServedKind { is_namespaced: false, .. }) if namespace.is_some() => format!(
            "its objects are in no namespace, but it was asked for in the namespace {}; declare it as a cluster-scoped kind",
            namespace.unwrap_or_default()
        ),
        // It was installed after the request that failed.
        Some(_) => "it has only just been installed".to_owned(),
        None if !elsewhere.is_empty() => {
            let serve = match Origin::of(group) {
                Origin::Custom => format!(", or let the CustomResourceDefinition serve {version}"),
                Origin::BuiltIn | Origin::Aggregated => String::new(),
            };
            format!("it is served as {}; use that version{serve}", elsewhere.join(", "))
        }
        None => match here.or(served.first()) {
            None => format!("there is no kind of the group {group}; {install}"),
            Some((version, kinds)) => {
                let mut names: Vec<&str> = kinds.iter().take(MAX_KINDS).map(|served| served.kind.as_str()).collect();
                if kinds.len() > MAX_KINDS {
                    names.push("…");
                }
                let kinds = if names.is_empty() { "no kinds".to_owned() } else { names.join(", ") };
                format!("{} has {kinds}; {install}", with_group(group, version))
            }
        },
    }
}

/// Who brings the kinds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    BuiltIn,
    Aggregated,
    Custom,
}

impl Origin {
    fn of(group: &str) -> Self {
        match group {
            _ if !group.contains('.') || BUILT_IN_GROUPS.contains(&group) => Self::BuiltIn,
            _ if AGGREGATED_GROUPS.contains(&group) => Self::Aggregated,
            _ => Self::Custom,
        }
    }
}

fn what_to_install(group: &str, plural: &str) -> String {
    match (Origin::of(group), plural) {
        (Origin::BuiltIn, _) => "this version of Kubernetes does not have it, or it is not enabled".to_owned(),
        (Origin::Aggregated, _) => {
            format!(
                "install the API server of that group, such as metrics-server; kubectl get apiservices shows those of {group}"
            )
        }
        (Origin::Custom, "") => "install its CustomResourceDefinition".to_owned(),
        (Origin::Custom, plural) => format!("install the CustomResourceDefinition {plural}.{group}"),
    }
}

fn with_group(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: api_version.into(),
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    #[test]
    fn the_sentence_says_what_is_wrong_and_what_to_do() {
        type Kinds<'a> = &'a [(&'a str, &'a str)];
        let widgets = || resource("example.com/v1", "Widget", "widgets");
        let group = |versions: &[(&str, Kinds<'_>)]| -> Result<ServedGroup, &'static str> {
            let kind = |(kind, plural): &(&str, &str)| ServedKind {
                kind: (*kind).into(),
                plural: (*plural).into(),
                is_namespaced: *kind != "Cluster",
            };
            let version = |(version, kinds): &(&str, Kinds<'_>)| {
                (String::from(*version), kinds.iter().map(kind).collect::<Vec<_>>())
            };
            Ok(versions.iter().map(version).collect())
        };
        let crd = "install the CustomResourceDefinition widgets.example.com";
        let not_enabled = "this version of Kubernetes does not have it, or it is not enabled";
        let unknown = |group: &str| {
            format!(
                "why is not known, because discovery fails as well (503); kubectl api-resources --api-group={group} shows \
                 what is served"
            )
        };
        for (wanted, namespace, served, expect) in [
            (widgets(), None, Err("503"), unknown("example.com")),
            (resource("v1", "Widget", "widgets"), None, Err("503"), unknown("\"\"")),
            (resource("apps/v1", "Widget", "widgets"), None, Err("503"), unknown("apps")),
            (widgets(), None, group(&[]), format!("there is no kind of the group example.com; {crd}")),
            (
                widgets(),
                None,
                group(&[("v1", &[("Gadget", "gadgets"), ("Gizmo", "gizmos")])]),
                format!("example.com/v1 has Gadget, Gizmo; {crd}"),
            ),
            (widgets(), None, group(&[("v2", &[])]), format!("example.com/v2 has no kinds; {crd}")),
            (
                widgets(),
                None,
                group(&[("v2", &[("Widget", "widgets")]), ("v1beta1", &[("Widget", "widgets")])]),
                "it is served as example.com/v2, example.com/v1beta1; use that version, or let the \
                 CustomResourceDefinition serve v1"
                    .to_owned(),
            ),
            (
                resource("autoscaling/v2beta2", "Widget", "widgets"),
                None,
                group(&[("v2", &[("Widget", "widgets")])]),
                "it is served as autoscaling/v2; use that version".to_owned(),
            ),
            (
                widgets(),
                None,
                group(&[("v1", &[("Widget", "widgetries")])]),
                "its plural name is widgetries, not widgets; correct the plural name".to_owned(),
            ),
            (widgets(), Some("shop"), group(&[("v1", &[("Widget", "widgets")])]), "it has only just been installed".into()),
            (
                resource("example.com/v1", "Cluster", "clusters"),
                Some("shop"),
                group(&[("v1", &[("Cluster", "clusters")])]),
                "its objects are in no namespace, but it was asked for in the namespace shop; declare it as a cluster-scoped \
                 kind"
                    .to_owned(),
            ),
            (
                resource("example.com/v1", "Widget", ""),
                None,
                group(&[]),
                "there is no kind of the group example.com; install its CustomResourceDefinition".to_owned(),
            ),
            (
                resource("v1", "Widget", "widgets"),
                None,
                group(&[("v1", &[("Pod", "pods")])]),
                format!("v1 has Pod; {not_enabled}"),
            ),
            (
                resource("resource.k8s.io/v1", "Widget", "widgets"),
                None,
                group(&[]),
                format!("there is no kind of the group resource.k8s.io; {not_enabled}"),
            ),
            (
                resource("metrics.k8s.io/v1beta1", "Widget", "widgets"),
                None,
                group(&[]),
                "there is no kind of the group metrics.k8s.io; install the API server of that group, such as metrics-server; \
                 kubectl get apiservices shows those of metrics.k8s.io"
                    .to_owned(),
            ),
        ] {
            let sentence = explain(&wanted, namespace, served.as_ref().map_err(|error| *error));
            let begin = format!("the server does not serve {} of {}: ", wanted.kind, wanted.api_version);
            assert_eq!(sentence.strip_prefix(&begin), Some(expect.as_str()), "{served:?}");
        }
    }
}
