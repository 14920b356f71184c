//! The cluster of a kubeconfig, for commands that change it. In: objects as JSON. Out: what changed. It knows no kinds: the server says by which
//! paths they are reached.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use konverge::kube::{self, Client};
use konverge::{ClusterError, Settings};
use konverge_core::{ErrorChain, error_chain};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::Instant;

use crate::data_dir::DataDir;
use crate::manifests::called;

/// Which cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The label of nodes whose Pods are simulated.
const SIMULATED: &str = "konverge.dev/simulated";

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The largest page of a list.
const PAGE: usize = 500;

/// How long an answer may take. API servers end requests of this kind after a minute themselves.
const ANSWERED_WITHIN: Duration = Duration::from_secs(65);

/// How long the first answer may take: who mistyped an address need not wait for a minute.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Why a cluster was not read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("{0}")]
    NoCluster(String),
    #[error("the cluster does not know the kind {kind} of {api_version}; is its CRD installed?")]
    UnknownKind { api_version: String, kind: String },
    #[error("{what}: {why}")]
    Refused { what: String, why: String, code: u16 },
}

impl RemoteError {
    fn new(what: &str, error: kube::Error) -> Self {
        let code = match &error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        Self::Refused { what: what.to_owned(), why: words(error), code }
    }

    /// The HTTP code of the server's answer; 0 if there was none.
    pub(crate) fn code(&self) -> u16 {
        if let Self::Refused { code, .. } = self { *code } else { 0 }
    }
}

/// A cluster.
pub(crate) struct RemoteCluster {
    client: Client,
    url: String,
    /// What the server says of its kinds, by group and version.
    resources: Mutex<HashMap<String, Value>>,
}

/// How an object is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApplyOptions<'a> {
    pub manager: &'a str,
    /// Takes fields over that others manage.
    pub force: bool,
    /// The server decides, and stores nothing.
    pub dry_run: bool,
}

/// What an apply did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Configured,
    Unchanged,
}

impl Change {
    /// As kubectl says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Configured => "configured",
            Change::Unchanged => "unchanged",
        }
    }
}

impl RemoteCluster {
    /// The cluster that kubectl would use.
    pub(crate) async fn connect(args: &ClusterArgs) -> Result<Self, RemoteError> {
        let settings = Settings {
            kubeconfig: args.kubeconfig.iter().cloned().collect(),
            context: args.context.clone(),
            ..Settings::default()
        };
        let no_cluster = |error: &(dyn std::error::Error + 'static)| {
            let own = DataDir::new(crate::args::DATA_DIR.as_ref()).kubeconfig();
            let hint = match std::path::absolute(&own) {
                Ok(path) if path.exists() => {
                    format!("`export KUBECONFIG={}` is that of `konverge dev` here", path.display())
                }
                _ => "KUBECONFIG, --kubeconfig and --context name one, and `konverge dev` starts one on this machine"
                    .to_owned(),
            };
            RemoteError::NoCluster(format!("{}; {hint}", unusable(error)))
        };
        let config = settings.cluster().await.map_err(|error| no_cluster(&error))?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|error| no_cluster(&error))?;
        let cluster = Self { client, url, resources: Mutex::default() };
        let silent = |why: &str| {
            RemoteError::NoCluster(format!("no cluster answers at {}: {why}; {}", cluster.url, advice(why)))
        };
        let version = tokio::time::timeout(FIRST_ANSWER_WITHIN, cluster.send("GET", "/version", None));
        match version.await {
            Ok(Ok(_)) => {}
            Ok(Err(RemoteError::Refused { why, code: 0, .. })) => return Err(silent(&why)),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(silent(&format!("nothing came within {} s", FIRST_ANSWER_WITHIN.as_secs()))),
        }
        Ok(cluster)
    }

    /// A cluster that a client reaches, without a kubeconfig.
    pub(crate) fn over(client: Client, url: String) -> Self {
        Self { client, url, resources: Mutex::default() }
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A client, for what is no object.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether its Pods are simulated, so that nobody serves webhooks there.
    pub(crate) async fn is_simulated(&self) -> bool {
        let path = format!("/api/v1/nodes?limit=1&labelSelector={SIMULATED}%3Dtrue");
        let nodes = self.send("GET", &path, None).await;
        nodes.is_ok_and(|nodes| nodes["items"].as_array().is_some_and(|nodes| !nodes.is_empty()))
    }

    /// Whether the server is one of this program.
    pub(crate) async fn is_konverge(&self) -> bool {
        let version = self.send("GET", "/version", None).await.unwrap_or_default();
        version["gitVersion"].as_str().is_some_and(|version| version.contains("konverge"))
    }

    /// Whether the objects of its kind are in namespaces.
    pub(crate) async fn is_namespaced(&self, object: &Value) -> Result<bool, RemoteError> {
        Ok(self.resource(object).await?["namespaced"] == true)
    }

    /// The path of an object.
    pub(crate) async fn path(&self, object: &Value) -> Result<String, RemoteError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = self.resource(object).await?;
        let namespace = match text(&object["metadata"]["namespace"]) {
            _ if resource["namespaced"] != true => String::new(),
            none if none.is_empty() => "/namespaces/default".to_owned(),
            namespace => format!("/namespaces/{namespace}"),
        };
        let (plural, name) = (text(&resource["name"]), text(&object["metadata"]["name"]));
        Ok(format!("{}{namespace}/{plural}/{name}", root(&text(&object["apiVersion"]))))
    }

    /// What the server says of the kind of an object.
    async fn resource(&self, object: &Value) -> Result<Value, RemoteError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let unknown = || RemoteError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() };
        let resources = self.resources(&api_version).await?.ok_or_else(unknown)?;
        let is_it = |resource: &&Value| resource["kind"] == kind && !text(&resource["name"]).contains('/');
        resources["resources"].as_array().into_iter().flatten().find(is_it).cloned().ok_or_else(unknown)
    }

    /// What the server says of the kinds of one version; none if there is no such version.
    async fn resources(&self, api_version: &str) -> Result<Option<Value>, RemoteError> {
        if let Some(known) = self.resources.lock().get(api_version) {
            return Ok(Some(known.clone()));
        }
        match self.send("GET", &root(api_version), None).await {
            Ok(resources) => {
                self.resources.lock().insert(api_version.to_owned(), resources.clone());
                Ok(Some(resources))
            }
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets what it knows of kinds, because new ones were installed.
    pub(crate) fn forget_kinds(&self) {
        self.resources.lock().clear();
    }

    /// The paths of all lists of objects in a namespace that can be deleted: others, such as metrics, only show something.
    pub(crate) async fn lists_in(&self, namespace: &str) -> Result<Vec<String>, RemoteError> {
        let groups = self.send("GET", "/apis", None).await?;
        let preferred = |group: &Value| group["preferredVersion"]["groupVersion"].as_str().map(str::to_owned);
        let groups = groups["groups"].as_array().into_iter().flatten().filter_map(preferred);
        let mut lists = Vec::new();
        for api_version in std::iter::once("v1".to_owned()).chain(groups) {
            let resources = self.resources(&api_version).await?.unwrap_or_default();
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                let can =
                    |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|one| one == verb));
                if resource["namespaced"] == true && can("list") && can("delete") && !name.contains('/') {
                    lists.push(format!("{}/namespaces/{namespace}/{name}", root(&api_version)));
                }
            }
        }
        Ok(lists)
    }

    /// An object, if it is there.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, RemoteError> {
        match self.send("GET", path, None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects of a list, of which the query may select some.
    pub(crate) async fn list(&self, path: &str, query: &str) -> Result<Vec<Value>, RemoteError> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = self.send("GET", &format!("{path}?limit={PAGE}{query}{next}"), None).await?;
            if let Some(found) = page["items"].as_array_mut() {
                items.append(found);
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => {
                    next = format!("&continue={}", utf8_percent_encode(token, NON_ALPHANUMERIC));
                }
                _ => return Ok(items),
            }
        }
    }

    /// Applies an object by server-side apply. Fields that the server does not know are an error.
    pub(crate) async fn apply(&self, object: &Value, options: ApplyOptions<'_>) -> Result<Change, RemoteError> {
        let path = self.path(object).await?;
        let before = self.get(&path).await?;
        let ApplyOptions { manager, force, dry_run } = options;
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let query = format!("?fieldManager={manager}&force={force}&fieldValidation=Strict{dry_run}");
        let after = self.send("PATCH", &format!("{path}{query}"), Some(object)).await;
        let after = after.map_err(|error| explained(error, object))?;
        // A controller may write the status between the two, and a dry run has no new version.
        let compared = |object: &Value| {
            let mut object = object.clone();
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|field, _| !["managedFields", "resourceVersion"].contains(&field.as_str()));
            }
            object
        };
        Ok(match before {
            None => Change::Created,
            Some(before) if compared(&before) == compared(&after) => Change::Unchanged,
            Some(_) => Change::Configured,
        })
    }

    /// Changes fields of an object by a merge patch, whoever manages them.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, RemoteError> {
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let request = request.body(patch.to_string().into_bytes());
        let request = request.map_err(|error| RemoteError::NoCluster(error.to_string()))?;
        self.answer(path, request).await
    }

    /// Deletes an object, and what it owns before it. Whether it was there.
    pub(crate) async fn delete(&self, path: &str) -> Result<bool, RemoteError> {
        self.delete_by(path, "Foreground").await
    }

    /// Deletes an object as kubectl does: what it owns goes after it. Whether it was there.
    pub(crate) async fn delete_in_background(&self, path: &str) -> Result<bool, RemoteError> {
        self.delete_by(path, "Background").await
    }

    async fn delete_by(&self, path: &str, policy: &str) -> Result<bool, RemoteError> {
        match self.send("DELETE", &format!("{path}?propagationPolicy={policy}"), None).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until an object is gone; whether it is.
    pub(crate) async fn wait_gone(&self, path: &str, within: Duration) -> Result<bool, RemoteError> {
        let deadline = Instant::now() + within;
        while self.get(path).await?.is_some() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(true)
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, RemoteError> {
        let what = || body.map_or_else(|| format!("{method} {path}"), called);
        let request = http::Request::builder().method(method).uri(path);
        let request = match method {
            "PATCH" => request.header("content-type", "application/apply-patch+yaml"),
            _ => request,
        };
        let body_bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = request.body(body_bytes).map_err(|error| RemoteError::NoCluster(error.to_string()))?;
        self.answer(&what(), request).await
    }

    /// The answer to a request, which a server that accepts connections and says nothing does not hold up for ever.
    async fn answer(&self, what: &str, request: http::Request<Vec<u8>>) -> Result<Value, RemoteError> {
        match tokio::time::timeout(ANSWERED_WITHIN, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| RemoteError::new(what, error)),
            Err(_) => {
                let why = format!("the cluster has not answered within {} s", ANSWERED_WITHIN.as_secs());
                Err(RemoteError::Refused { what: what.to_owned(), why, code: 0 })
            }
        }
    }
}

/// Why no client can be made, in as few words as it takes. Where files, variables and the service account of a Pod were tried, the kubeconfig is what people
/// have.
pub(crate) fn unusable(error: &(dyn std::error::Error + 'static)) -> String {
    if !matches!(error.downcast_ref::<ClusterError>(), Some(ClusterError::Unknown { .. })) {
        return ErrorChain(error).to_string();
    }
    let mut said: Vec<String> = error_chain(error).map(ToString::to_string).collect();
    let mut why = said.pop().unwrap_or_default();
    // A cause that repeats its own cause says more than that.
    while let Some(longer) = said.pop_if(|longer| longer.ends_with(why.as_str())) {
        why = longer;
    }
    format!("there is no cluster to talk to: {why}")
}

/// Why there is no answer, in as few words as it takes: of a connection that failed, the last cause says it all.
pub(crate) fn words(error: kube::Error) -> String {
    match &error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            error_chain(&error).last().map_or_else(|| error.to_string(), ToString::to_string)
        }
        kube::Error::SerdeError(_) => "its answer is none of an API server".to_owned(),
        _ => format!("{:#}", konverge::Error::from(error)),
    }
}

/// What to do where a server does not answer, by what the connection says.
pub(crate) fn advice(why: &str) -> &'static str {
    let lower = why.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["unknownissuer", "invalid peer certificate", "certificate"]) {
        "the kubeconfig's CA is not the server's: get a new kubeconfig, or set certificate-authority"
    } else if has(&["dns", "resolve", "lookup address", "name or service"]) {
        "the host name is not known: is a VPN needed, or is the cluster gone?"
    } else if has(&["refused"]) {
        "nobody listens there: start the cluster (`konverge dev`, `minikube start`, …), or choose another with --context or KUBECONFIG"
    } else {
        "is a VPN or a proxy needed? `curl -vk` with the address shows how far it gets"
    }
}

/// What to do about a refusal.
fn explained(error: RemoteError, object: &Value) -> RemoteError {
    let RemoteError::Refused { what, why, code } = error else { return error };
    let hint = match code {
        409 if why.contains("conflict") => "; --force-conflicts takes these fields over".to_owned(),
        422 if why.contains("exactly one of url or service") => {
            let kind = object["kind"].as_str().unwrap_or_default();
            match kind {
                "CustomResourceDefinition" => format!(
                    "; an operator outside of the cluster serves its conversion: `kubectl patch crd {} --type=merge -p \
                     '{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'` takes that out",
                    object["metadata"]["name"].as_str().unwrap_or_default()
                ),
                _ => format!(
                    "; an operator outside of the cluster serves these webhooks: `kubectl delete {} {}` takes them out",
                    kind.to_lowercase(),
                    object["metadata"]["name"].as_str().unwrap_or_default()
                ),
            }
        }
        _ => String::new(),
    };
    RemoteError::Refused { what, why: format!("{why}{hint}"), code }
}

fn root(api_version: &str) -> String {
    match api_version.contains('/') {
        true => format!("/apis/{api_version}"),
        false => format!("/api/{api_version}"),
    }
}

/// Runs a command that talks to a cluster, and makes an exit code of it.
pub(crate) fn block_on<E: std::error::Error + 'static>(
    command: impl Future<Output = Result<std::process::ExitCode, E>>,
) -> std::process::ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            std::process::ExitCode::FAILURE
        }
    }
}
