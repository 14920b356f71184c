//! The webhooks of a running operator: the listener, and the task that keeps API servers calling and trusting it. In: the
//! webhooks, and what the process shares. Out: a server that answers until it is stopped. It serves at once; that API servers
//! cannot be told yet is logged, fails readiness, and is tried again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use konverge_runtime::{Error, Result};
use konverge_serve::{BindOptions, Certificates, Listener, Server, SharedCertificates, Tls};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::configuration::{self, Address, Registration};
use super::conversion::{self, Conversions};
use super::server::{Endpoints, limits};
use super::trust::{self, Trust};
use super::{AnyWebhook, Cluster, Endpoint, WebhookSpec};
use crate::metrics::Metrics;
use crate::operator::{CachedReads, Manager, Phase};
use crate::probes::HealthCheck;
use crate::settings::{BindAddress, Settings, WebhookSettings};
use crate::state::States;
use crate::storage_migration::{Migrated, migrate_storage};
use crate::versions::Versions;

/// Where cert-manager's certificates are mounted by convention. What is there is served without being asked for.
const USUAL_DIRECTORY: &str = "/tmp/k8s-webhook-server/serving-certs";

/// How often a directory is looked at: Kubernetes takes about a minute to change a mounted Secret.
const LOOK_AT_FILES_AFTER: Duration = Duration::from_secs(10);

/// How often the Secret is read. A new CA is trusted for ten minutes before it is used, so no replica comes too late.
const LOOK_AT_SECRET_AFTER: Duration = Duration::from_secs(60);

/// How often API servers are told again although nothing changed: somebody may have deleted a configuration.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The pause after a failure.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A failure that lasts is logged as often as this.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The pause after a migration that failed, which doubles up to the next one.
const MIGRATE_AGAIN_AFTER: Duration = Duration::from_secs(10);
const MIGRATE_AT_LEAST_EVERY: Duration = Duration::from_secs(600);

/// A webhook, and the state that its controller was given.
pub(crate) struct Served {
    pub webhook: Arc<dyn AnyWebhook>,
    pub states: States,
}

/// The readiness check of webhooks: whether API servers were told of them.
pub(crate) const CHECK: &str = "webhooks";

/// Answers requests to webhooks within this process.
pub type LocalHandler = Arc<dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, http::Response<Bytes>> + Send + Sync>;

/// Is told which handler answers the webhooks of a host, until the returned value is dropped.
pub type LocalWebhooks = Arc<dyn Fn(&str, LocalHandler) -> ServedLocally + Send + Sync>;

/// Webhooks that are served within this process until this is dropped.
pub type ServedLocally = Box<dyn Send + Sync>;

/// How requests come to the webhooks.
pub(crate) enum ServedBy {
    /// Over HTTPS.
    Listener(BindAddress),
    /// From an API server in this process, in a test.
    Process(LocalWebhooks),
}

impl ServedBy {
    /// None if settings switch webhooks off.
    pub(crate) fn of(settings: &Settings, local: Option<LocalWebhooks>) -> Option<Self> {
        local.map(Self::Process).or_else(|| settings.webhook.listen().map(Self::Listener))
    }
}

/// The webhooks of an operator while they are served. Dropping it ends everything at once; [`WebhookServer::stop`] lets requests
/// finish.
pub(crate) struct WebhookServer {
    serving: Serving,
    _tasks: Tasks,
}

enum Serving {
    Listener(Server),
    Process(ServedLocally),
}

/// What works beside the listener. It ends when this is dropped.
struct Tasks {
    registrar: JoinHandle<()>,
    /// Writes objects anew that are stored in an old version; none if no kind has several versions.
    migration: Option<JoinHandle<()>>,
}

impl WebhookServer {
    /// Begins to answer. Has to be called within a tokio runtime.
    pub(crate) fn start(
        manager: &Manager<'_>,
        webhooks: Vec<Served>,
        versions: Vec<Versions>,
        served_by: ServedBy,
        phase: watch::Receiver<Phase>,
    ) -> Result<Self> {
        let settings = manager.settings;
        let mut place = Place::of(settings, manager.client.default_namespace());
        // Nobody trusts this one. It is replaced as soon as the shared one is known.
        let certificates = Certificates::in_memory(&place.names, SystemTime::now())?;
        let specs = webhooks.iter().map(|served| served.webhook.spec().clone()).collect();
        let reads = Arc::new(CachedReads::new(manager, phase));
        let endpoint = |Served { webhook, states }| {
            let meter = manager.metrics.webhook(&webhook.spec().path());
            let cluster = Cluster { client: manager.client.clone(), reads: reads.clone(), states };
            Endpoint::new(webhook, Arc::new(cluster), meter)
        };
        let conversions = (!versions.is_empty())
            .then(|| Conversions::new(versions.clone(), manager.metrics.webhook(conversion::PATH)));
        let endpoints = Endpoints::new(webhooks.into_iter().map(endpoint), conversions);
        let (serving, trust) = match served_by {
            ServedBy::Listener(address) => {
                let server = bind(address, certificates.clone())?.serve(endpoints);
                tracing::info!(address = %server.local_addr(), "webhooks are served");
                place.found_at(server.local_addr());
                (Serving::Listener(server), Some(place.trust(&settings.webhook, &manager.client)))
            }
            ServedBy::Process(serve) => {
                let handler: LocalHandler = Arc::new(move |request| endpoints.clone().answer_locally(request));
                (Serving::Process(serve(&place.host(), handler)), None)
            }
        };
        let converts = Arc::new(Notify::new());
        let registrar = Registrar {
            trust,
            place,
            certificates,
            client: manager.client.clone(),
            field_manager: settings.field_manager().to_owned(),
            webhooks: specs,
            versions: versions.iter().map(Versions::definition_name).collect(),
            converts: converts.clone(),
            metrics: manager.metrics.clone(),
            known: None,
            told: None,
        };
        let check = manager.health.readiness(CHECK);
        let migration = (!versions.is_empty())
            .then(|| tokio::spawn(migrate(manager.client.clone(), registrar.versions.clone(), converts)));
        Ok(Self { serving, _tasks: Tasks { registrar: tokio::spawn(registrar.run(check)), migration } })
    }

    /// Stops accepting, lets running requests finish for this long, and cuts off the rest.
    pub(crate) async fn stop(self, within: Duration) {
        match self.serving {
            Serving::Listener(server) => {
                server.stop(within).await;
            }
            Serving::Process(served) => drop(served),
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.registrar.abort();
        if let Some(migration) = &self.migration {
            migration.abort();
        }
    }
}

/// Where an operator's webhooks are.
pub(crate) struct Place {
    /// The name of the operator's configurations: its own, as far as objects can be called so.
    pub operator: String,
    /// The namespace that the operator runs in.
    pub home: String,
    pub address: Address,
    /// The Secret with the certificates.
    pub secret: String,
    /// The names in the certificate.
    names: Vec<String>,
    /// Whether the address is that of the listener, on this machine.
    is_local: bool,
}

impl Place {
    pub(crate) fn of(settings: &Settings, namespace: &str) -> Self {
        let operator = object_name(&settings.name);
        let service = settings.webhook.service.as_deref().unwrap_or_default();
        let (home, service) = match service.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None if service.is_empty() => (namespace.to_owned(), format!("{operator}-webhook")),
            None => (namespace.to_owned(), service.to_owned()),
        };
        let secret = format!("{service}-cert");
        match &settings.webhook.url {
            Some(url) => {
                let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
                let names = host.map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect();
                Self { operator, home, address: Address::Url(url.clone()), secret, names, is_local: false }
            }
            None if settings.webhook.is_local() => {
                let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
                let address = Address::Url(format!("https://{}", settings.webhook.address));
                Self { operator, home, address, secret, names, is_local: true }
            }
            None => {
                let names = ["", ".svc", ".svc.cluster.local"].map(|end| format!("{service}.{home}{end}")).into();
                let address = Address::Service { namespace: home.clone(), name: service };
                Self { operator, home, address, secret, names, is_local: false }
            }
        }
    }

    /// Says which port the listener has. Only an address on this machine depends on it.
    fn found_at(&mut self, listener: SocketAddr) {
        if self.is_local {
            self.address = Address::Url(format!("https://{listener}"));
        }
    }

    /// The host that API servers call.
    fn host(&self) -> String {
        match &self.address {
            Address::Url(_) => self.names.first().cloned().unwrap_or_default(),
            Address::Service { namespace, name } => format!("{name}.{namespace}.svc"),
        }
    }

    fn trust(&self, settings: &WebhookSettings, client: &Client) -> Trust {
        let usual = || Some(PathBuf::from(USUAL_DIRECTORY)).filter(|directory| has_certificate(directory));
        match settings.cert_dir.clone().or_else(usual) {
            Some(directory) => Trust::Directory(directory),
            None => Trust::in_secret(client.clone(), &self.home, self.secret.clone(), self.names.clone()),
        }
    }
}

/// A time as people read it.
fn date(time: Option<SystemTime>) -> String {
    time.and_then(|time| jiff::Timestamp::try_from(time).ok())
        .map_or_else(|| "unknown".to_owned(), |time| time.to_string())
}

/// A name that Services and Secrets take: small letters, digits and hyphens.
fn object_name(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let plain = plain.trim_matches('-');
    if plain.starts_with(|c: char| c.is_ascii_lowercase()) { plain.to_owned() } else { format!("operator-{plain}") }
}

fn has_certificate(directory: &Path) -> bool {
    directory.join("tls.crt").exists()
}

/// Tells API servers of the webhooks, and renews certificates.
struct Registrar {
    /// None if an API server in this process calls, which needs no certificates.
    trust: Option<Trust>,
    place: Place,
    certificates: Certificates,
    client: Client,
    field_manager: String,
    webhooks: Vec<WebhookSpec>,
    /// The CRDs with several versions.
    versions: Vec<String>,
    /// Told when API servers know how to convert.
    converts: Arc<Notify>,
    metrics: Metrics,
    known: Option<SharedCertificates>,
    /// The CAs that API servers were told last, none if they need none, and when.
    told: Option<(Option<String>, Instant)>,
}

impl Registrar {
    async fn run(mut self, check: HealthCheck) {
        let mut logged: Option<(String, Instant)> = None;
        loop {
            let pause = match self.step(SystemTime::now()).await {
                Ok(()) => {
                    check.pass();
                    if logged.take().is_some() {
                        tracing::info!("the certificates of webhooks are in order again");
                    }
                    match self.trust {
                        Some(Trust::Directory(_)) => LOOK_AT_FILES_AFTER,
                        Some(Trust::Secret { .. }) => LOOK_AT_SECRET_AFTER,
                        None => TELL_AGAIN_AFTER,
                    }
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    // An operator that was ready stays ready: its certificate is good for weeks.
                    if self.told.is_none() {
                        check.fail(why.clone());
                    }
                    let is_logged = |(last, at): &(String, Instant)| *last == why && at.elapsed() < LOG_AGAIN_AFTER;
                    if !logged.as_ref().is_some_and(is_logged) {
                        tracing::warn!(why, "API servers cannot be told of webhooks yet; trying again");
                        logged = Some((why, Instant::now()));
                    }
                    TRY_AGAIN_AFTER
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn step(&mut self, now: SystemTime) -> Result<()> {
        let Some(trust) = &self.trust else { return self.tell(None).await };
        let shared = trust.look(self.known.as_ref(), now).await?;
        let served = |shared: &SharedCertificates| (shared.certificate_pem.clone(), shared.key_pem.clone());
        if self.known.as_ref().map(served) != Some(served(&shared)) {
            trust::serve(&self.certificates, &shared)?;
            tracing::info!(expires = date(shared.expires()), "webhooks serve a new certificate");
        }
        self.metrics.webhook_certificates(shared.expires(), shared.ca_expires());
        let bundle = shared.ca_pem.clone();
        self.known = Some(shared);
        self.tell(Some(bundle)).await
    }

    /// Tells API servers which CAs to trust and what to send. Whoever fills a directory without a CA does that themselves.
    async fn tell(&mut self, bundle: Option<String>) -> Result<()> {
        let is_known = |(told, at): &(Option<String>, Instant)| *told == bundle && at.elapsed() < TELL_AGAIN_AFTER;
        if self.told.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        if bundle.as_ref().is_none_or(|bundle| !bundle.is_empty()) {
            let encoded = bundle.as_ref().map(|bundle| BASE64_STANDARD.encode(bundle));
            let registration = Registration {
                operator: &self.place.operator,
                home: &self.place.home,
                address: &self.place.address,
                ca_bundle: encoded.as_deref(),
            };
            let webhooks: Vec<&WebhookSpec> = self.webhooks.iter().collect();
            for configuration in configuration::configurations(&webhooks, &registration) {
                self.apply(&configuration).await?;
            }
            for definition in &self.versions {
                self.apply_conversion(definition, &conversion::strategy(&registration)).await?;
            }
        }
        // Whoever fills a directory without a CA has told API servers how to convert, too.
        self.converts.notify_one();
        if self.told.is_none() {
            tracing::info!(webhooks = self.webhooks.len(), "API servers are told of webhooks");
        }
        self.told = Some((bundle, Instant::now()));
        Ok(())
    }

    /// Server-side apply of `spec.conversion`: the rest of the CRD belongs to whoever installed it.
    async fn apply_conversion(&self, definition: &str, conversion: &Value) -> Result<()> {
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
        if api.get_metadata_opt(definition).await?.is_none() {
            let why = format!("the CRD {definition} is not installed; --print-crds prints it");
            return Err(Error::new(why));
        }
        let own = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": definition}, "spec": {"conversion": conversion},
        });
        let params = PatchParams::apply(&format!("{}-conversion", self.field_manager)).force();
        api.patch(definition, &params, &Patch::Apply(&own)).await?;
        Ok(())
    }

    /// Server-side apply: entries of others in the same configuration stay.
    async fn apply(&self, configuration: &Value) -> Result<()> {
        let kind = configuration["kind"].as_str().unwrap_or_default();
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
        let params = PatchParams::apply(&self.field_manager).force();
        api.patch(&self.place.operator, &params, &Patch::Apply(configuration)).await?;
        Ok(())
    }
}

/// Writes the objects of these CRDs anew if they are stored in an old version, as soon as API servers can convert them. What
/// fails is tried again: an operator works as well before it is done.
async fn migrate(client: Client, definitions: Vec<String>, converts: Arc<Notify>) {
    converts.notified().await;
    let (mut left, mut pause) = (definitions, MIGRATE_AGAIN_AFTER);
    loop {
        let mut failed = Vec::new();
        for definition in left {
            match migrate_storage(&client, &definition).await {
                Ok(migrated) if migrated.is_unchanged() => {}
                Ok(Migrated { version, before, objects, .. }) => {
                    let before = before.join(",");
                    tracing::info!(definition, version, before, objects, "all objects are stored in one version");
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    tracing::warn!(definition, why, again = ?pause, "objects could not be migrated to the stored version");
                    failed.push(definition);
                }
            }
        }
        if failed.is_empty() {
            return;
        }
        left = failed;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MIGRATE_AT_LEAST_EVERY);
    }
}

fn bind(address: BindAddress, certificates: Certificates) -> Result<Listener> {
    let mut failed = None;
    for candidate in address.candidates() {
        let (address, port, tls) = (candidate.ip(), candidate.port(), Tls::On(certificates.clone()));
        match Listener::bind(BindOptions { address, port, tls, limits: limits(), ..BindOptions::default() }) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    let failed = failed.map(|error| konverge_core::ErrorChain(&error).to_string()).unwrap_or_default();
    Err(Error::permanent(format!(
        "cannot serve webhooks: {failed}; --webhook-bind-address takes another address, or 0 for none"
    )))
}
