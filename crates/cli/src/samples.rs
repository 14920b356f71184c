//! Samples, applied once for each start of `konverge dev`. In: a directory with manifests, and a cluster. Out: lines about what was applied, what is left
//! as it is, and what failed and why. A sample that cannot be applied yet, because the operator's webhooks or CRDs are not ready, is tried again for a
//! while. Fields that somebody else has changed since are never taken over.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use konverge_core::ErrorChain;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::counted::counted;
use crate::deploy::apply_rank;
use crate::description::text;
use crate::documents::{Document, read_all};
use crate::manifests::called;
use crate::remote_cluster::{ApplyOptions, RemoteCluster, RemoteError};

/// Who the fields of samples belong to.
const MANAGER: &str = "konverge-samples";

/// Where a project has its samples.
pub(crate) const DIRECTORY: &str = "config/samples";

/// How long an operator may take until it has registered its webhooks: it has to start, and to make certificates.
const WEBHOOKS_WITHIN: Duration = Duration::from_secs(30);

/// How long samples are tried again, all of them together.
const APPLIED_WITHIN: Duration = Duration::from_secs(60);

/// How long a listener on this machine may take to accept a connection.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(1);

/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);

/// Samples that are still to be applied.
#[derive(Debug)]
pub(crate) struct Samples {
    directory: PathBuf,
    /// Those that are left, in the order in which they are applied; none before they are read.
    left: Option<VecDeque<Document>>,
    /// Webhook configurations, and CRDs with conversions, that the operator registers when it starts.
    registered: Vec<Value>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    applied: usize,
    failed: usize,
}

/// What is done about a sample that was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It may be applied later.
    NotYet(String),
    /// Somebody else has changed the object.
    LeftAsItIs(String),
    /// It will not be applied as it is.
    Failed(String),
}

impl Samples {
    /// The samples in a directory, which is read when they are applied.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, left: None, registered: Vec::new(), counts: Counts::default() }
    }

    /// Waits, before anything is applied, until the operator has registered these webhook configurations and the conversions of these CRDs: a sample that comes
    /// earlier would be neither defaulted nor converted.
    pub(crate) fn after(&mut self, manifests: impl IntoIterator<Item = Value>) {
        self.registered = manifests.into_iter().filter(is_registered_by_operators).collect();
    }

    /// Applies what is left. The future may be dropped, and `apply` called again.
    pub(crate) async fn apply(&mut self, cluster: &RemoteCluster, say: impl Fn(&str)) {
        if self.left.is_none() {
            match read_all(std::slice::from_ref(&self.directory)) {
                Ok(documents) => self.left = Some(in_order(documents)),
                Err(error) => {
                    say(&format!("no samples are applied: {}", ErrorChain(&error)));
                    return;
                }
            }
        }
        if let Some(missing) = self.wait_for_webhooks(cluster).await {
            say(&format!(
                "the operator has not registered {missing} after {} s; its samples are applied all the same",
                WEBHOOKS_WITHIN.as_secs()
            ));
        }
        let deadline = Instant::now() + APPLIED_WITHIN;
        let mut said_why = false;
        while let Some(document) = self.left.as_ref().and_then(|left| left.front()).cloned() {
            let name = called(&document.object);
            match apply(cluster, &document).await {
                Ok(word) => {
                    self.counts.applied += 1;
                    say(&format!("sample {name} {word}"));
                }
                Err(Refusal::NotYet(why)) if Instant::now() < deadline => {
                    if !said_why {
                        say(&format!("sample {name} is tried again: {why}"));
                        said_why = true;
                    }
                    cluster.forget_kinds();
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                Err(Refusal::LeftAsItIs(why)) => say(&format!("sample {name} is left as it is: {why}")),
                Err(Refusal::NotYet(why) | Refusal::Failed(why)) => {
                    self.counts.failed += 1;
                    say(&format!("sample {name} ({}) failed: {why}", document.source));
                }
            }
            said_why = false;
            self.left.as_mut().and_then(VecDeque::pop_front);
        }
        say(&self.summary());
    }

    fn summary(&self) -> String {
        let directory = self.directory.display();
        match self.counts {
            Counts { applied: 0, failed: 0 } => format!("there are no samples to apply in {directory}"),
            Counts { applied, failed: 0 } => format!("applied {} of {directory}", counted(applied, "sample")),
            Counts { applied, failed } => {
                format!("applied {} of {directory}, and {failed} failed", counted(applied, "sample"))
            }
        }
    }

    /// Waits until everything is registered and served; returns what is not after a while. What an earlier run registered is still there, with an address at
    /// which nobody listens any more.
    async fn wait_for_webhooks(&self, cluster: &RemoteCluster) -> Option<String> {
        let deadline = Instant::now() + WEBHOOKS_WITHIN;
        loop {
            let mut missing = None;
            for expected in &self.registered {
                // A server that does not answer is asked again.
                let found = match cluster.path(expected).await {
                    Ok(path) => cluster.get(&path).await.ok().flatten().unwrap_or_default(),
                    Err(_) => Value::Null,
                };
                if !has_certificates(&found) || !is_served(&found).await {
                    missing = Some(called(expected));
                    break;
                }
            }
            if missing.is_none() || Instant::now() >= deadline {
                return missing;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The objects in an order in which each finds what it needs.
fn in_order(documents: Vec<Document>) -> VecDeque<Document> {
    // Kustomize reads its own file, and no server does.
    let is_object = |document: &Document| !text(&document.object["apiVersion"]).starts_with("kustomize.config.k8s.io/");
    let mut documents: Vec<Document> = documents.into_iter().filter(is_object).collect();
    documents.sort_by_key(|document| apply_rank(&document.object));
    documents.into()
}

async fn apply(cluster: &RemoteCluster, document: &Document) -> Result<&'static str, Refusal> {
    let object = &document.object;
    if text(&object["metadata"]["name"]).is_empty() {
        return Err(Refusal::Failed("it has no metadata.name".to_owned()));
    }
    let options = ApplyOptions { manager: MANAGER, force: false, dry_run: false };
    cluster.apply(object, options).await.map(|change| change.word()).map_err(|error| refusal(&error))
}

fn refusal(error: &RemoteError) -> Refusal {
    let RemoteError::Refused { why, code, .. } = error else { return Refusal::NotYet(error.to_string()) };
    match code {
        // Nobody answers yet, or one of those does not that the server has to ask.
        0 | 429 | 500 | 503 | 504 => Refusal::NotYet(why.clone()),
        409 => Refusal::LeftAsItIs(why.replace("; --force-conflicts takes these fields over", "")),
        404 if why.contains("namespaces \"") => {
            Refusal::Failed(format!("{why}; add its Namespace to the samples, or leave metadata.namespace out"))
        }
        _ => Refusal::Failed(why.clone()),
    }
}

/// Whether an operator registers this when it starts, with certificates that it makes.
fn is_registered_by_operators(manifest: &Value) -> bool {
    let is_configuration = text(&manifest["kind"]).ends_with("WebhookConfiguration");
    is_configuration || manifest["spec"]["conversion"]["strategy"] == "Webhook"
}

/// Whether an API server can trust what it is told to call.
fn has_certificates(found: &Value) -> bool {
    let has_ca = |client: &Value| client["caBundle"].as_str().is_some_and(|ca| !ca.is_empty());
    match found["webhooks"].as_array() {
        Some(webhooks) => webhooks.iter().all(|webhook| has_ca(&webhook["clientConfig"])),
        None => has_ca(&found["spec"]["conversion"]["webhook"]["clientConfig"]),
    }
}

/// Where an API server would call, of what is not a Service in the cluster.
fn addresses(found: &Value) -> BTreeSet<String> {
    let webhooks = found["webhooks"].as_array().into_iter().flatten().map(|webhook| &webhook["clientConfig"]);
    let clients = webhooks.chain([&found["spec"]["conversion"]["webhook"]["clientConfig"]]);
    let urls = clients.filter_map(|client| client["url"].as_str()?.parse::<http::Uri>().ok());
    urls.filter_map(|url| Some(format!("{}:{}", url.host()?, url.port_u16().unwrap_or(443)))).collect()
}

/// Whether somebody accepts connections at all these addresses.
async fn is_served(found: &Value) -> bool {
    for address in addresses(found) {
        let connected = tokio::time::timeout(ACCEPTED_WITHIN, TcpStream::connect(&address)).await;
        if !matches!(connected, Ok(Ok(_))) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_others_need_comes_first() {
        let document = |kind: &str, api: &str| Document {
            source: kind.to_owned(),
            object: json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}}),
        };
        let sorted = in_order(vec![
            document("Shop", "example.com/v1"),
            document("Kustomization", "kustomize.config.k8s.io/v1beta1"),
            document("Deployment", "apps/v1"),
            document("Basket", "example.com/v1"),
            document("Secret", "v1"),
            document("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
            document("Namespace", "v1"),
        ]);
        let kinds: Vec<&str> = sorted.iter().map(|document| document.source.as_str()).collect();
        assert_eq!(kinds, ["Namespace", "CustomResourceDefinition", "Secret", "Shop", "Basket", "Deployment"]);
    }

    #[test]
    fn which_refusals_pass() {
        let check = |code: u16, why: &str, expect: &str| {
            let error = RemoteError::Refused { what: "Shop a".into(), why: why.into(), code };
            let found = match refusal(&error) {
                Refusal::NotYet(_) => "not yet",
                Refusal::LeftAsItIs(_) => "left",
                Refusal::Failed(_) => "failed",
            };
            assert_eq!(found, expect, "{code} {why}");
        };
        check(0, "connection refused", "not yet");
        check(500, "failed calling webhook \"a\": connection refused", "not yet");
        check(503, "starting", "not yet");
        check(409, "Apply failed with 1 conflict", "left");
        check(422, "spec.replicas: Invalid value", "failed");
        check(400, "strict decoding error: unknown field", "failed");
        check(404, "namespaces \"shop\" not found", "failed");
        let unknown = RemoteError::UnknownKind { api_version: "example.com/v1".into(), kind: "Shop".into() };
        assert!(matches!(refusal(&unknown), Refusal::NotYet(_)));
    }

    #[test]
    fn webhooks_are_ready_with_their_certificates() {
        let check = |found: Value, expect: bool| assert_eq!(has_certificates(&found), expect, "{found}");
        check(Value::Null, false);
        check(json!({"webhooks": [{"clientConfig": {"caBundle": "Zm9v"}}]}), true);
        check(json!({"webhooks": [{"clientConfig": {"caBundle": "Zm9v"}}, {"clientConfig": {}}]}), false);
        check(json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Zm9v"}}}}}), true);
        check(json!({"spec": {"conversion": {"strategy": "None"}}}), false);
    }

    #[tokio::test]
    async fn webhooks_of_an_earlier_run_are_not_served() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = format!("https://{}/convert", listener.local_addr().expect("an address"));
        let gone = {
            let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            format!("https://{}/convert", other.local_addr().expect("an address"))
        };
        let service = json!({"service": {"name": "a"}});
        for (clients, expect) in [
            (vec![json!({"url": here})], true),
            (vec![json!({"url": gone})], false),
            (vec![json!({"url": here}), json!({"url": gone})], false),
            (vec![service], true),
        ] {
            let webhooks: Vec<Value> = clients.iter().map(|client| json!({"clientConfig": client})).collect();
            assert_eq!(is_served(&json!({"webhooks": webhooks})).await, expect, "{clients:?}");
            if let [client] = clients.as_slice() {
                let definition = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
                assert_eq!(is_served(&definition).await, expect, "{client}");
            }
        }
    }
}
