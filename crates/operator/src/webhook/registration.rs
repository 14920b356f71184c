//! The webhooks of a running operator: the listener, and the tasks beside it. In: the webhooks, and what the process shares. Out: a
//! server that answers until it is stopped. It serves at once; `registrar` tells API servers.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use konverge_runtime::{Error, Leadership, Liveness, Result, panic_message};
use konverge_serve::{BindOptions, Certificates, Listener, Server, Tls};
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::callers::Callers;
use super::configuration::Address;
use super::conversion::{self, Conversions};
use super::registrar::Registrar;
use super::server::{Endpoints, limits};
use super::trust::Trust;
use super::{AnyWebhook, Cluster, Endpoint};
use crate::operator::{CachedReads, Manager, Phase};
use crate::settings::{BindAddress, Settings, WebhookSettings};
use crate::state::States;
use crate::storage_migration::{Migrated, migrate_storage};
use crate::versions::Versions;

/// Where cert-manager's certificates are mounted by convention. What is there is served without being asked for, unless others could
/// have put it there.
const USUAL_DIRECTORY: &str = "/tmp/k8s-webhook-server/serving-certs";

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
            let cluster = Cluster { client: manager.every_client.clone(), reads: reads.clone(), states };
            Endpoint::new(webhook, Arc::new(cluster), meter)
        };
        let conversions = (!versions.is_empty())
            .then(|| Conversions::new(versions.clone(), manager.metrics.webhook(conversion::PATH)));
        let callers = settings.webhook.client_ca.as_deref().map(Callers::from_file).transpose()?;
        let endpoints = Endpoints::new(webhooks.into_iter().map(endpoint), conversions, callers.clone());
        let (serving, trust) = match served_by {
            ServedBy::Listener(address) => {
                let server = bind(address, certificates.clone(), callers.as_ref())?.serve(endpoints);
                tracing::info!(address = %server.local_addr(), "webhooks are served");
                place.found_at(server.local_addr());
                (Serving::Listener(server), Some(place.trust(&settings.webhook, &manager.every_client)))
            }
            ServedBy::Process(serve) => {
                let handler: LocalHandler = Arc::new(move |request| endpoints.clone().answer_locally(request));
                (Serving::Process(serve(&place.host(), handler)), None)
            }
        };
        let converts = Arc::new(Notify::new());
        let registrar = Registrar {
            trust,
            callers,
            place,
            certificates,
            client: manager.every_client.clone(),
            leadership: manager.leadership.clone(),
            field_manager: settings.field_manager().to_owned(),
            webhooks: specs,
            versions: versions.iter().map(Versions::definition_name).collect(),
            converts: converts.clone(),
            metrics: manager.metrics.clone(),
            known: None,
            told: None,
            refused: None,
        };
        let check = manager.health.readiness(CHECK);
        let liveness = Arc::new(Liveness::of("the task that registers webhooks"));
        let lives = liveness.clone();
        manager.health.liveness_from(CHECK, move || lives.check());
        let migration =
            (!versions.is_empty()).then(|| tokio::spawn(migrate(manager, registrar.versions.clone(), converts)));
        Ok(Self { serving, _tasks: Tasks { registrar: tokio::spawn(registrar.run(check, liveness)), migration } })
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
        let mut place = match &settings.webhook.url {
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
        };
        place.names.extend_from_slice(&settings.webhook.certificate_names);
        place
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
        let usual = || Some(Trust::UsualDirectory(USUAL_DIRECTORY.into())).filter(Trust::has_certificate);
        let directory = settings.cert_dir.clone().map(Trust::Directory).or_else(usual);
        directory
            .unwrap_or_else(|| Trust::in_secret(client.clone(), &self.home, self.secret.clone(), self.names.clone()))
    }
}

/// The certificates of the webhooks, for instances that also talk to each other; none if somebody else than the operator makes them.
#[cfg(feature = "ha")]
pub(crate) fn shared_trust(settings: &Settings, client: &Client) -> Option<Trust> {
    let trust = Place::of(settings, client.default_namespace()).trust(&settings.webhook, client);
    Some(trust).filter(|trust| matches!(trust, Trust::Secret { .. }))
}

/// A name that Services and Secrets take: small letters, digits and hyphens.
fn object_name(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let plain = plain.trim_matches('-');
    if plain.starts_with(|c: char| c.is_ascii_lowercase()) { plain.to_owned() } else { format!("operator-{plain}") }
}

/// Writes the objects of these CRDs anew if they are stored in an old version, as soon as API servers can convert them. What
/// fails is tried again: an operator works as well before it is done. Only the leader does it.
fn migrate(
    manager: &Manager<'_>,
    definitions: Vec<String>,
    converts: Arc<Notify>,
) -> impl Future<Output = ()> + Send + use<> {
    let (client, leadership) = (manager.client.clone(), manager.leadership.clone());
    async move {
        converts.notified().await;
        migrate_all(client, leadership, definitions).await;
    }
}

async fn migrate_all(client: Client, leadership: Leadership, definitions: Vec<String>) {
    let (mut left, mut pause) = (definitions, MIGRATE_AGAIN_AFTER);
    loop {
        leadership.begun().await;
        let mut failed = Vec::new();
        for definition in left {
            // A panic is a failure like others: the task goes on.
            let migrated = AssertUnwindSafe(migrate_storage(&client, &definition)).catch_unwind().await;
            let panicked =
                |panic: Box<dyn Any + Send>| Err(Error::new(format!("it panicked: {}", panic_message(&*panic))));
            match migrated.unwrap_or_else(panicked) {
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

fn bind(address: BindAddress, certificates: Certificates, callers: Option<&Callers>) -> Result<Listener> {
    let mut failed = None;
    for candidate in address.candidates() {
        let (address, port, tls) = (candidate.ip(), candidate.port(), Tls::On(certificates.clone()));
        let client_ca = callers.map(Callers::ca);
        match Listener::bind(BindOptions { address, port, tls, client_ca, limits: limits() }) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    let failed = failed.map(|error| konverge_core::ErrorChain(&error).to_string()).unwrap_or_default();
    Err(Error::permanent(format!(
        "cannot serve webhooks: {failed}; --webhook-bind-address takes another address, or 0 for none"
    )))
}
