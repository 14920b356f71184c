//! Why a server does not serve a kind. In: a kind, and the server's discovery documents. Out: a sentence that says what is
//! wrong and what to do: a CRD that is not installed, another version, or a wrong plural name. Nothing is retried.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::Client;
use kube::api::ApiResource;

/// How long discovery may take. The sentence is for people, and is not worth a longer wait.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How many kinds a sentence names at most.
const MAX_KINDS: usize = 10;

/// Asks the server's discovery why it does not serve a kind, and returns a sentence for logs and errors. It names the kind,
/// its group and version, what is served instead, and what to do. The plural of `resource` may be empty if it is unknown.
///
/// Makes a few requests, which every authenticated client may make by default. If discovery fails as well, the sentence says
/// only that the kind is not served.
pub async fn explain_not_served(client: &Client, resource: &ApiResource) -> String {
    let served = tokio::time::timeout(DISCOVERY_TIMEOUT, discover(client, resource)).await;
    explain(resource, &served.ok().and_then(Result::ok).unwrap_or_default())
}

/// What a server serves of one group.
#[derive(Debug, Default)]
struct ServedGroup {
    /// Whether discovery was answered; if not, the versions are empty.
    is_known: bool,
    /// The versions, the preferred one first, each with its kinds.
    versions: Vec<(String, Vec<ServedKind>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServedKind {
    kind: String,
    plural: String,
}

async fn discover(client: &Client, resource: &ApiResource) -> kube::Result<ServedGroup> {
    let mut served = ServedGroup { is_known: true, ..ServedGroup::default() };
    if resource.group.is_empty() {
        for version in client.list_core_api_versions().await?.versions {
            let kinds = kinds(client.list_core_api_resources(&version).await?.resources);
            served.versions.push((version, kinds));
        }
        return Ok(served);
    }
    let groups = client.list_api_groups().await?.groups;
    let Some(group) = groups.into_iter().find(|group| group.name == resource.group) else { return Ok(served) };
    for version in versions(group) {
        let kinds = kinds(client.list_api_group_resources(&format!("{}/{version}", resource.group)).await?.resources);
        served.versions.push((version, kinds));
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
    kinds.map(|resource| ServedKind { kind: resource.kind, plural: resource.name }).collect()
}

fn explain(resource: &ApiResource, served: &ServedGroup) -> String {
    let ApiResource { group, version, api_version, kind, plural } = resource;
    let is_it = |served: &&ServedKind| served.kind == *kind;
    let here = served.versions.iter().find(|(served, _)| served == version);
    let elsewhere = served.versions.iter().filter(|(_, kinds)| kinds.iter().any(|served| is_it(&served)));
    let elsewhere: Vec<String> = elsewhere.map(|(version, _)| with_group(group, version)).collect();
    let install = match (group.is_empty(), plural.is_empty()) {
        (true, _) => "this version of Kubernetes does not have it".to_owned(),
        (false, true) => "install its CustomResourceDefinition".to_owned(),
        (false, false) => format!("install the CustomResourceDefinition {plural}.{group}"),
    };
    let why = match here.and_then(|(_, kinds)| kinds.iter().find(is_it)) {
        Some(served) if !plural.is_empty() && served.plural != *plural => {
            format!("its plural name is {}, not {plural}; correct the plural name", served.plural)
        }
        // It was installed after the request that failed.
        Some(_) => "it has only just been installed".to_owned(),
        None if !elsewhere.is_empty() => {
            format!(
                "it is served as {}; use that version, or let the CustomResourceDefinition serve {version}",
                elsewhere.join(", ")
            )
        }
        None if !served.is_known => install,
        None if served.versions.is_empty() => format!("there is no kind of the group {group}; {install}"),
        None => {
            let (version, kinds) = here.unwrap_or(&served.versions[0]);
            let mut names: Vec<&str> = kinds.iter().take(MAX_KINDS).map(|served| served.kind.as_str()).collect();
            if kinds.len() > MAX_KINDS {
                names.push("…");
            }
            let kinds = if names.is_empty() { "no kinds".to_owned() } else { names.join(", ") };
            format!("{} has {kinds}; {install}", with_group(group, version))
        }
    };
    format!("the server does not serve {kind} of {api_version}: {why}")
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
        let widgets = || resource("example.com/v1", "Widget", "widgets");
        let group = |versions: &[(&str, &[(&str, &str)])]| ServedGroup {
            is_known: true,
            versions: versions
                .iter()
                .map(|(version, kinds)| {
                    let kinds = kinds.iter();
                    let kinds =
                        kinds.map(|(kind, plural)| ServedKind { kind: (*kind).into(), plural: (*plural).into() });
                    ((*version).into(), kinds.collect())
                })
                .collect(),
        };
        let crd = "install the CustomResourceDefinition widgets.example.com";
        for (wanted, served, expect) in [
            (widgets(), ServedGroup::default(), crd.to_owned()),
            (widgets(), group(&[]), format!("there is no kind of the group example.com; {crd}")),
            (
                widgets(),
                group(&[("v1", &[("Gadget", "gadgets"), ("Gizmo", "gizmos")])]),
                format!("example.com/v1 has Gadget, Gizmo; {crd}"),
            ),
            (widgets(), group(&[("v2", &[])]), format!("example.com/v2 has no kinds; {crd}")),
            (
                widgets(),
                group(&[("v2", &[("Widget", "widgets")]), ("v1beta1", &[("Widget", "widgets")])]),
                "it is served as example.com/v2, example.com/v1beta1; use that version, or let the \
                 CustomResourceDefinition serve v1"
                    .to_owned(),
            ),
            (
                widgets(),
                group(&[("v1", &[("Widget", "widgetries")])]),
                "its plural name is widgetries, not widgets; correct the plural name".to_owned(),
            ),
            (
                resource("example.com/v1", "Widget", ""),
                group(&[]),
                "there is no kind of the group example.com; install its CustomResourceDefinition".to_owned(),
            ),
            (
                resource("v1", "Widget", "widgets"),
                group(&[("v1", &[("Pod", "pods")])]),
                "v1 has Pod; this version of Kubernetes does not have it".to_owned(),
            ),
        ] {
            let sentence = explain(&wanted, &served);
            let begin = format!("the server does not serve Widget of {}: ", wanted.api_version);
            assert_eq!(sentence.strip_prefix(&begin), Some(expect.as_str()), "{served:?}");
        }
    }
}
