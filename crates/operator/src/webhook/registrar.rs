//! The task that keeps API servers calling and trusting the listener. In: certificates as they change, who leads, and what API
//! servers have stored. Out: the certificate that is served, and the operator's entries in configurations and CRDs. That API servers
//! cannot be told yet is logged, fails readiness, and is tried again.
//!
//! All replicas serve, and the leader tells API servers: during an update two releases run beside each other, and must not overwrite
//! each other's entries. Any replica tells what nobody has told, such as conversions that only the newer release has.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use konverge_runtime::{Error, Leadership, Liveness, Result};
use konverge_serve::{Certificates, SharedCertificates};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::WebhookSpec;
use super::callers::Callers;
use super::configuration::{self, Registration};
use super::conversion;
use super::registration::Place;
use super::trust::{self, Trust};
use crate::metrics::Metrics;
use crate::probes::HealthCheck;

/// How often a directory is read: three small files. A new certificate is to be served within a second.
const LOOK_AT_FILES_AFTER: Duration = Duration::from_millis(500);

/// How often the Secret is read. A new CA is trusted for ten minutes before it is used, so no replica comes too late.
const LOOK_AT_SECRET_AFTER: Duration = Duration::from_secs(60);

/// How often it is checked that API servers still have what they were told: somebody may have deleted or changed it, such as an
/// instance of the former release that ends.
const COMPARE_AFTER: Duration = Duration::from_secs(60);

/// The pause after a failure.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A failure that lasts is logged as often as this.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Tells API servers of the webhooks, and renews certificates.
pub(super) struct Registrar {
    /// None if an API server in this process calls, which needs no certificates.
    pub trust: Option<Trust>,
    /// Whom the listener answers; none if everybody.
    pub callers: Option<Callers>,
    pub place: Place,
    pub certificates: Certificates,
    pub client: Client,
    pub leadership: Leadership,
    pub field_manager: String,
    pub webhooks: Vec<WebhookSpec>,
    /// The CRDs with several versions.
    pub versions: Vec<String>,
    /// Told when API servers know how to convert.
    pub converts: Arc<Notify>,
    pub metrics: Metrics,
    pub known: Option<SharedCertificates>,
    pub told: Option<Told>,
    /// Why API servers could not be told, and when to try again.
    pub refused: Option<(String, Instant)>,
}

/// What API servers have, as far as is known.
pub(super) struct Told {
    /// The CAs, none if they need none.
    bundle: Option<String>,
    /// The resource version of each object that has entries of the operator.
    versions: Vec<Option<String>>,
    /// Whether this instance told them all of it. Otherwise another one has told them, or a part of it.
    is_ours: bool,
    checked: Instant,
}

impl Registrar {
    pub(super) async fn run(self, check: HealthCheck, liveness: Arc<Liveness>) {
        let logged: Option<(String, Instant)> = None;
        fn round(
            (registrar, check, logged): &mut (Registrar, HealthCheck, Option<(String, Instant)>),
        ) -> BoxFuture<'_, ()> {
            registrar.round(check, logged).boxed()
        }
        keep_going(&liveness, (self, check, logged), round).await;
    }

    /// Looks and tells once, and waits until the next time.
    async fn round(&mut self, check: &HealthCheck, logged: &mut Option<(String, Instant)>) {
        let pause = self.look_and_tell(check, logged).await;
        // A new leader tells API servers at once.
        let waits = self.told.as_ref().is_some_and(|told| !told.is_ours) && self.leadership.term().is_none();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.leadership.begun(), if waits => {}
        }
    }

    /// Out: the pause until the next time.
    async fn look_and_tell(&mut self, check: &HealthCheck, logged: &mut Option<(String, Instant)>) -> Duration {
        let stepped = self.step(SystemTime::now(), Instant::now()).await;
        let pause = match (&self.trust, &stepped) {
            (Some(Trust::Directory(_) | Trust::UsualDirectory(_)), _) => LOOK_AT_FILES_AFTER,
            (_, Err(_)) => TRY_AGAIN_AFTER,
            (Some(Trust::Secret { .. }), Ok(())) => LOOK_AT_SECRET_AFTER,
            (None, Ok(())) => COMPARE_AFTER,
        };
        match stepped {
            Ok(()) => {
                check.pass();
                if logged.take().is_some() {
                    tracing::info!("the certificates of webhooks are in order again");
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
                    *logged = Some((why, Instant::now()));
                }
            }
        }
        pause
    }

    async fn step(&mut self, time: SystemTime, now: Instant) -> Result<()> {
        let bundle = self.look(time).await?;
        if let Some((why, until)) = &self.refused
            && now < *until
        {
            return Err(Error::new(why.clone()));
        }
        let told = self.tell(bundle, now).await;
        self.refused = told.as_ref().err().map(|error| (format!("{error:#}"), now + TRY_AGAIN_AFTER));
        told
    }

    /// Serves the newest certificate. Out: the CAs that API servers have to know; none if they need none.
    async fn look(&mut self, time: SystemTime) -> Result<Option<String>> {
        let Some(trust) = &self.trust else { return Ok(None) };
        if let Some(Err(error)) = self.callers.as_ref().map(Callers::look) {
            tracing::warn!(%error, "the CA of before is believed");
        }
        let shared = trust.look(self.known.as_ref(), time).await?;
        if self.known.as_ref() != Some(&shared) {
            let served = |shared: &SharedCertificates| (shared.certificate_pem.clone(), shared.key_pem.clone());
            if self.known.as_ref().map(served) != Some(served(&shared)) {
                trust::serve(&self.certificates, &shared)?;
                tracing::info!(expires = date(shared.expires()), "webhooks serve a new certificate");
            }
            self.metrics.webhook_certificates(shared.expires(), shared.ca_expires());
        }
        let bundle = shared.ca_pem.clone();
        self.known = Some(shared);
        Ok(Some(bundle))
    }

    /// Tells API servers which CAs to trust and what to send, unless they know. Whoever fills a directory without a CA does that
    /// themselves.
    async fn tell(&mut self, bundle: Option<String>, now: Instant) -> Result<()> {
        if bundle.as_ref().is_some_and(String::is_empty) {
            // They have told API servers how to convert, too.
            self.converts.notify_one();
            self.told = Some(Told { bundle, versions: Vec::new(), is_ours: true, checked: now });
            return Ok(());
        }
        let leads = self.leadership.term().is_some();
        let known = self.told.as_ref().filter(|told| told.bundle == bundle && (told.is_ours || !leads));
        if known.is_some_and(|told| now.saturating_duration_since(told.checked) < COMPARE_AFTER) {
            return Ok(());
        }
        let entries = self.entries(bundle.as_deref());
        let mut stored = Vec::new();
        for entry in &entries {
            stored.push(self.stored_version(entry).await?);
        }
        let is_unchanged = known.is_some_and(|told| told.versions == stored);
        let is_of_others = !leads && stored.iter().all(Option::is_some);
        let mut is_ours = known.is_some_and(|told| told.is_ours) && is_unchanged;
        if !is_unchanged && !is_of_others {
            // Whoever told only a part of it tells all of it as soon as it leads.
            is_ours = leads || stored.iter().all(Option::is_none);
            for (entry, stored) in entries.iter().zip(&mut stored) {
                // Whoever does not lead leaves the rest to the leader.
                if leads || stored.is_none() {
                    *stored = self.apply(entry).await?;
                }
            }
        }
        if self.told.is_none() {
            tracing::info!(webhooks = self.webhooks.len(), "API servers are told of webhooks");
        }
        self.converts.notify_one();
        self.told = Some(Told { bundle, versions: stored, is_ours, checked: now });
        Ok(())
    }

    /// What API servers are told: configurations, and how CRDs are converted.
    fn entries(&self, bundle: Option<&str>) -> Vec<Entry> {
        let encoded = bundle.map(|bundle| BASE64_STANDARD.encode(bundle));
        let registration = Registration {
            operator: &self.place.operator,
            home: &self.place.home,
            address: &self.place.address,
            ca_bundle: encoded.as_deref(),
        };
        let webhooks: Vec<&WebhookSpec> = self.webhooks.iter().collect();
        let configurations = configuration::configurations(&webhooks, &registration).into_iter().map(|own| Entry {
            kind: own["kind"].as_str().unwrap_or_default().to_owned(),
            group: "admissionregistration.k8s.io",
            name: self.place.operator.clone(),
            own,
            is_definition: false,
        });
        let definitions = self.versions.iter().map(|definition| Entry {
            kind: "CustomResourceDefinition".to_owned(),
            group: "apiextensions.k8s.io",
            name: definition.clone(),
            own: json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": definition}, "spec": {"conversion": conversion::strategy(&registration)},
            }),
            is_definition: true,
        });
        configurations.chain(definitions).collect()
    }

    fn api(&self, entry: &Entry) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(entry.group, "v1", &entry.kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk))
    }

    /// The version in which an object is stored that has entries of the operator. A CRD has to be there, and has one if it says where conversions are served
    /// and which CA is trusted: whoever installs it does not know the latter.
    async fn stored_version(&self, entry: &Entry) -> Result<Option<String>> {
        if !entry.is_definition {
            let found = self.api(entry).get_metadata_opt(&entry.name).await?;
            return Ok(found.map(|found| found.metadata.resource_version.unwrap_or_default()));
        }
        let found = self.api(entry).get_opt(&entry.name).await?;
        let found = found
            .ok_or_else(|| Error::new(format!("the CRD {} is not installed; --print-crds prints it", entry.name)))?;
        let conversion = &found.data["spec"]["conversion"];
        let has_ca = conversion["webhook"]["clientConfig"]["caBundle"].as_str().is_some_and(|ca| !ca.is_empty());
        let is_told = conversion["strategy"] == "Webhook" && (has_ca || self.trust.is_none());
        Ok(is_told.then(|| found.metadata.resource_version.unwrap_or_default()))
    }

    /// Server-side apply: entries of others in the same configuration stay, and the rest of a CRD belongs to whoever installed it.
    async fn apply(&self, entry: &Entry) -> Result<Option<String>> {
        let manager = match entry.is_definition {
            true => format!("{}-conversion", self.field_manager),
            false => self.field_manager.clone(),
        };
        let params = PatchParams::apply(&manager).force();
        let (api, own) = (self.api(entry), Patch::Apply(&entry.own));
        let stored = match api.patch(&entry.name, &params, &own).await {
            Err(kube::Error::Api(refused)) if refused.code == 422 && self.readdress(entry).await? => {
                api.patch(&entry.name, &params, &own).await?
            }
            applied => applied?,
        };
        Ok(Some(stored.metadata.resource_version.unwrap_or_default()))
    }

    /// Replaces addresses of the other kind, a URL or a service, which somebody else has put into the object. Says whether there
    /// were some.
    async fn readdress(&self, entry: &Entry) -> Result<bool> {
        let api = self.api(entry);
        // Without a live object, something else was refused.
        let Some(live) = api.get_opt(&entry.name).await? else { return Ok(false) };
        let operations = configuration::readdressed(&serde_json::to_value(live)?, &entry.own);
        if operations.is_empty() {
            return Ok(false);
        }
        let patch = serde_json::from_value(operations.into())?;
        api.patch(&entry.name, &PatchParams::default(), &Patch::<Value>::Json(patch)).await?;
        Ok(true)
    }
}

/// What the operator owns of an object.
struct Entry {
    group: &'static str,
    kind: String,
    name: String,
    own: Value,
    is_definition: bool,
}

/// Runs rounds for ever. A panic ends the round that it happened in: without the next one the certificate would expire some day while the
/// operator looks healthy.
async fn keep_going<S>(liveness: &Liveness, mut state: S, round: impl for<'a> Fn(&'a mut S) -> BoxFuture<'a, ()>) {
    loop {
        match AssertUnwindSafe(round(&mut state)).catch_unwind().await {
            Ok(()) => liveness.worked(),
            Err(panic) => tokio::time::sleep(liveness.panicked(&*panic)).await,
        }
    }
}

/// A time as people read it.
fn date(time: Option<SystemTime>) -> String {
    time.and_then(|time| jiff::Timestamp::try_from(time).ok())
        .map_or_else(|| "unknown".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests;
