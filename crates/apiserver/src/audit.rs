//! The audit log: who asked for what, and how it ended. In: requests on their way through the server, and the policy that says how much
//! of each is recorded. Out: events, at most four for each request. Without a policy nothing of this runs.
//!
//! ```text
//! policy   which requests, and how much of them: pure
//! event    what is known of a request, as a line
//! log      the queue and the thread that writes lines
//! file     the file, and what becomes of full ones
//! ```
//!
//! A request carries its [`RequestAudit`] in its context, and every stage adds what it finds out. No stage reads it.

mod event;
mod file;
mod log;
mod metrics;
mod policy;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, header};
use parking_lot::Mutex;
use serde_json::Value;

use konverge_core::Status;

use crate::authorize::Attributes;
use crate::body::Body;
use crate::env::Environment;
use crate::user::UserInfo;

use event::{Event, Facts, Head, Impersonated, ObjectReference, ResponseStatus, SentObject};
use log::AuditLog;
use policy::{Audited, Level, Stage, Stages};

pub(crate) use metrics::AuditMetrics;

pub use log::{AuditFormat, AuditLogOptions, AuditMode, AuditOutput};
pub use policy::{AuditPolicy, AuditPolicyError};

/// The longest user agent, name, namespace, uid or version that is recorded, in bytes, and what shows that there was more. Valid
/// names are shorter; what a client sent is recorded before it is validated.
const MAX_TEXT: usize = 1024;
const CUT: &str = "...TRUNCATED";

/// The audit log of a server: who asked for what, and how it ended, a line for each event.
///
/// Every event that could not be written is counted in `apiserver_audit_error_total`.
/// [`ApiServer::flush_audit_log`](crate::ApiServer::flush_audit_log) waits for those that are being written, before the process ends.
///
/// ```
/// use konverge_apiserver::{AuditLogOptions, AuditOptions, AuditOutput, AuditPolicy, Options};
/// let policy = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").unwrap();
/// let audit = AuditOptions { policy, log: AuditLogOptions::new(AuditOutput::Stdout) };
/// let options = Options { audit: Some(audit), ..Options::default() };
/// ```
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Which requests are audited.
    pub policy: AuditPolicy,
    /// How events are written.
    pub log: AuditLogOptions,
}

/// Audits requests by a policy.
pub(crate) struct Auditor {
    policy: AuditPolicy,
    log: AuditLog,
    metrics: Arc<AuditMetrics>,
    env: Arc<dyn Environment>,
}

impl Auditor {
    /// Opens the log.
    pub(crate) fn open(
        options: &AuditOptions,
        metrics: &Arc<AuditMetrics>,
        env: &Arc<dyn Environment>,
    ) -> io::Result<Self> {
        let log = AuditLog::open(&options.log, metrics.clone())?;
        Ok(Self { policy: options.policy.clone(), log, metrics: metrics.clone(), env: env.clone() })
    }

    /// Begins to audit a request, unless the policy says that nothing of it is recorded. There is no user if its credential is not
    /// believed.
    pub(crate) fn begin(
        self: &Arc<Self>,
        parts: &Parts,
        asked: &Attributes<'_>,
        user: Option<&Arc<UserInfo>>,
        audit_id: &Arc<str>,
    ) -> Option<Arc<RequestAudit>> {
        let Attributes { verb, path, resource, .. } = *asked;
        let config = self.policy.evaluate(&Audited { user: user.map(|user| &**user), verb, path, resource });
        self.metrics.level(config.level);
        if config.level == Level::None {
            return None;
        }
        let head = Head {
            level: config.level,
            omit_managed_fields: config.omit_managed_fields,
            audit_id: audit_id.clone(),
            uri: parts.uri.path_and_query().map_or("/", |whole| whole.as_str()).to_owned(),
            verb: verb.to_owned(),
            user: user.cloned(),
            source_ips: source_ips(&parts.headers, parts.extensions.get::<SocketAddr>().map(SocketAddr::ip)),
            user_agent: user_agent(&parts.headers),
            received: self.env.now(),
        };
        let facts = Facts { object: resource.as_ref().map(ObjectReference::of), ..Facts::default() };
        Some(Arc::new(RequestAudit {
            auditor: self.clone(),
            omit_stages: config.omit_stages,
            head: Arc::new(head),
            facts: Mutex::new(facts),
            deprecated: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }))
    }

    /// Waits until every event that was made before is written.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }
}

/// The audit of one request.
pub(crate) struct RequestAudit {
    auditor: Arc<Auditor>,
    omit_stages: Stages,
    head: Arc<Head>,
    facts: Mutex<Facts>,
    deprecated: AtomicBool,
    /// Whether the request is refused because its first event could not be written. Then it has no other.
    refused: AtomicBool,
}

impl fmt::Debug for RequestAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestAudit").field("level", &self.head.level).finish_non_exhaustive()
    }
}

impl RequestAudit {
    /// Adds an annotation. The first one of a name stays.
    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        let mut facts = self.facts.lock();
        if !facts.annotations.contains_key(key) {
            facts.annotations.insert(key.to_owned(), value.into());
        }
    }

    /// The request is made as another user. The constraint is the verb of a mode that limits what may be done so.
    pub(crate) fn impersonated(&self, user: &Arc<UserInfo>, constraint: String) {
        self.facts.lock().impersonated = Some(Impersonated { user: user.clone(), constraint });
    }

    /// The request is about a version that is deprecated.
    pub(crate) fn is_deprecated(&self) {
        self.deprecated.store(true, Relaxed);
    }

    /// Whether what was sent is recorded.
    pub(crate) fn wants_request(&self) -> bool {
        self.head.level >= Level::Request
    }

    /// Whether what is answered is recorded.
    pub(crate) fn wants_response(&self) -> bool {
        self.head.level >= Level::RequestResponse
    }

    /// The client sent this object; `made` is how the server reads it.
    pub(crate) fn sent(&self, object: &Value, made: impl FnOnce() -> Option<Vec<u8>>) {
        let made = if self.wants_request() { made() } else { None };
        let mut facts = self.facts.lock();
        let reference = facts.object.get_or_insert_default();
        for (field, name) in [
            (&mut reference.namespace, "namespace"),
            (&mut reference.name, "name"),
            (&mut reference.uid, "uid"),
            (&mut reference.resource_version, "resourceVersion"),
        ] {
            if field.is_empty() {
                // The object is what the client sent, and may have any metadata.
                *field = cut(object["metadata"][name].as_str().unwrap_or_default().as_bytes());
            }
        }
        facts.request = made.map(|json| SentObject::Object(json.into()));
    }

    /// The client sent options and no object.
    pub(crate) fn sent_options(&self, options: &Value) {
        if self.wants_request() {
            self.facts.lock().request = Some(SentObject::Object(options.to_string().into()));
        }
    }

    /// The client sent this patch.
    pub(crate) fn sent_patch(&self, patch: impl FnOnce() -> Bytes) {
        if self.wants_request() {
            self.facts.lock().request = Some(SentObject::Patch(patch()));
        }
    }

    /// The answer is this object.
    pub(crate) fn answers(&self, json: &[u8]) {
        if self.wants_response() {
            self.facts.lock().response = Some(Bytes::copy_from_slice(json));
        }
    }

    /// The answer is this `Status`.
    pub(crate) fn answers_status(&self, status: &Status, code: u16) {
        let json = self.wants_response().then(|| serde_json::to_vec(status).ok()).flatten();
        let mut facts = self.facts.lock();
        facts.status = Some(ResponseStatus::of(status.clone(), code));
        facts.response = json.map(Bytes::from);
    }

    /// Records that the request has come. False if that must be in the log and cannot be written: then the request is refused.
    pub(crate) async fn received(&self) -> bool {
        let recorded = match self.event(Stage::RequestReceived) {
            Some(event) => self.auditor.log.record(Event { at: self.head.received, ..event }).await,
            None => true,
        };
        if !recorded {
            self.auditor.metrics.rejected();
            self.refused.store(true, Relaxed);
        }
        recorded
    }

    /// Records that a request whose credential is not believed was refused. It has no other event.
    pub(crate) async fn unauthorized(&self) {
        self.record(Stage::ResponseStarted).await;
    }

    async fn record(&self, stage: Stage) {
        if let Some(event) = self.event(stage) {
            self.auditor.log.record(event).await;
        }
    }

    /// The event of a stage, unless the policy omits it.
    fn event(&self, stage: Stage) -> Option<Event> {
        if self.omit_stages.contains(stage) || self.refused.load(Relaxed) {
            return None;
        }
        self.auditor.metrics.event();
        Some(Event { head: self.head.clone(), stage, at: self.auditor.env.now(), facts: self.facts.lock().clone() })
    }

    /// What is added when a request is over.
    fn conclude(&self) {
        if self.deprecated.load(Relaxed) {
            self.annotate("k8s.io/deprecated", "true");
        }
    }
}

/// Records how a request ends, also if nobody waits for its answer any more.
pub(crate) struct Ending {
    audit: Option<Arc<RequestAudit>>,
    /// Whether the request goes on after its answer has begun. It has an event for that.
    runs_long: bool,
}

impl Ending {
    pub(crate) fn new(audit: Option<&Arc<RequestAudit>>, runs_long: bool) -> Self {
        Self { audit: audit.cloned(), runs_long }
    }

    /// The server failed.
    pub(crate) async fn panicked(mut self, why: String) {
        let Some(audit) = self.audit.take() else { return };
        let status = Status::failure(500, "InternalError", format!("APIServer panic'd: {why}"));
        audit.facts.lock().status = Some(ResponseStatus::of(status, 500));
        audit.record(Stage::Panic).await;
    }

    /// The request is answered. One that runs long is over when its body is.
    pub(crate) async fn answered(mut self, response: Response<Body>) -> Response<Body> {
        let Some(audit) = self.audit.clone() else { return response };
        let code = response.status().as_u16();
        audit.facts.lock().status.get_or_insert_with(|| ResponseStatus::code(code));
        if self.runs_long {
            audit.record(Stage::ResponseStarted).await;
            return response.map(|body| body.guarded(self));
        }
        audit.conclude();
        self.audit = None;
        audit.record(Stage::ResponseComplete).await;
        response
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(audit) = self.audit.take() else { return };
        if audit.facts.lock().status.is_none() {
            let mut status = Status::done(200);
            "Connection closed early".clone_into(&mut status.message);
            audit.facts.lock().status = Some(ResponseStatus::of(status, 200));
            // kube-apiserver says of each request that runs long that its answer has begun, also if it never did.
            if self.runs_long
                && let Some(event) = audit.event(Stage::ResponseStarted)
            {
                audit.auditor.log.submit(event);
            }
        }
        audit.conclude();
        if let Some(event) = audit.event(Stage::ResponseComplete) {
            audit.auditor.log.submit(event);
        }
    }
}

/// Where a request comes from: what proxies say of it, and then the address of the connection.
fn source_ips(headers: &HeaderMap, connection: Option<IpAddr>) -> Vec<IpAddr> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let mut ips: Vec<IpAddr> = text("x-forwarded-for").split(',').filter_map(parse).collect();
    ips.extend(parse(text("x-real-ip")).filter(|ip| !ips.contains(ip)));
    let connection = connection.map(|ip| ip.to_canonical());
    ips.extend(connection.filter(|ip| ips.last() != Some(ip)));
    ips
}

fn user_agent(headers: &HeaderMap) -> String {
    cut(headers.get(header::USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default())
}

/// A text that is not longer than it may be.
fn cut(bytes: &[u8]) -> String {
    match bytes.get(..MAX_TEXT) {
        Some(first) if bytes.len() > MAX_TEXT => String::from_utf8_lossy(first).into_owned() + CUT,
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests;
