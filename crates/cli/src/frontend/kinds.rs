//! Finds a kind by name. In: a name as people write it (`Pod`, `pods`, `po`, `applications.cloudnative.elide.dev`). Out: the
//! path of its objects, or a 400 that lists all kinds. The names come from the API server's discovery.

use serde_json::Value;

use konverge_core::Status;

use super::api_client::Reader;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watchable {
    group: String,
    version: String,
    plural: String,
    kind: String,
    names: Vec<String>,
    namespaced: bool,
}

impl Watchable {
    /// `Pod`
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Where its objects are, in one namespace or in all.
    pub(super) fn path(&self, namespace: Option<&str>) -> Result<String, Status> {
        let Watchable { group, version, plural, kind, .. } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) if self.namespaced => Ok(format!("{root}/namespaces/{namespace}/{plural}")),
            Some(_) => Err(Status::bad_request(format!("a {kind} is in no namespace: leave namespace out"))),
            None => Ok(format!("{root}/{plural}")),
        }
    }

    fn is_called(&self, word: &str) -> bool {
        let full = format!("{}.{}", self.plural, self.group);
        let names = self.names.iter().chain([&self.plural, &self.kind, &full]);
        names.into_iter().any(|name| name.eq_ignore_ascii_case(word))
    }
}

/// The kind that `word` means; the first in the order clients prefer.
pub(super) async fn find(api: &Reader, word: &str) -> Result<Watchable, Status> {
    let mut known = Vec::new();
    for path in ["/api", "/apis"] {
        known.extend(watchable(&api.json_as(path, AGGREGATED).await?));
    }
    let found = known.iter().find(|kind| kind.is_called(word));
    found.cloned().ok_or_else(|| {
        let mut kinds: Vec<&str> = known.iter().map(|kind| kind.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        Status::bad_request(format!("there is no kind {word:?} to watch; there is: {}", kinds.join(", ")))
    })
}

/// Everything in a discovery document that can be watched.
fn watchable(document: &Value) -> Vec<Watchable> {
    fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
        value[field].as_array().into_iter().flatten()
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for group in list(document, "items") {
        for version in list(group, "versions") {
            for resource in list(version, "resources").filter(|one| list(one, "verbs").any(|verb| verb == "watch")) {
                let names = list(resource, "shortNames").chain([&resource["singularResource"]]).map(text);
                found.push(Watchable {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    plural: text(&resource["resource"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    names: names.collect(),
                    namespaced: resource["scope"] == "Namespaced",
                });
            }
        }
    }
    found
}
