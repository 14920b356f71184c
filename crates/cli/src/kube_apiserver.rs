//! The program under the name `kube-apiserver`: what envtest and its relatives start. In: the flags of kube-apiserver. It says
//! which of them have no effect, serves HTTPS with client certificates, keeps all objects in memory, and stops on SIGTERM.

mod flags;
mod settings;

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http::{Request, Response};
use konverge::Metrics;
use konverge_apiserver::{
    Aggregation, Anonymous, ApiServer, AuditOptions, Authentication, Body, Collector, MoreMetrics, OpenError, Options,
    Storage,
};
use konverge_core::{KUBERNETES_VERSION, Status};
use konverge_serve::{BindError, BindOptions, CertificateError, Certificates, Limits, Listener, StopSignals, Tls};
use tower_service::Service;

use crate::args::LogFormat;
use crate::audit::{self, AuditError};
use crate::authentication::{authenticate, refuse};
use crate::run::{BLOCKING_THREADS_TIMEOUT, GRACE, SHUTDOWN_TIMEOUT};
use crate::users::{self, UsersError};
use crate::{huge_pages, log, open_files, own_service, upgrade};

use flags::Flags;
use settings::{Pair, Settings};

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeApiserverError {
    #[error("{0}")]
    Flags(String),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("cannot read {path}")]
    Read { path: String, source: std::io::Error },
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot create the service kubernetes: {}", .0.message)]
    OwnService(Status),
    #[error("the system refused")]
    System(#[from] std::io::Error),
}

/// Runs until it is asked to stop. The arguments are those after the name of the program.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<(), KubeApiserverError> {
    let flags = Flags::parse(arguments).map_err(KubeApiserverError::Flags)?;
    if flags.is_set("help", false) {
        print!("{}", flags::help());
        return Ok(());
    }
    if flags.is_set("version", false) || flags.last("version") == Some("raw") {
        println!("Kubernetes v{KUBERNETES_VERSION} (konverge {})", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let settings = Settings::new(&flags).map_err(KubeApiserverError::Flags)?;
    let format = if flags.last("logging-format") == Some("json") { LogFormat::Json } else { LogFormat::Text };
    // klog's level 4 is for debugging, and its levels above 5 trace requests.
    log::start(format, settings.verbosity.saturating_sub(3).min(2), false);
    for notice in &settings.notices {
        eprintln!("kube-apiserver: {notice}");
    }
    huge_pages::avoid();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(&settings));
    runtime.shutdown_timeout(BLOCKING_THREADS_TIMEOUT);
    outcome
}

/// Starts everything in this order and stops it in the reverse order.
async fn serve(settings: &Settings) -> Result<(), KubeApiserverError> {
    let mut stop = StopSignals::listen(SHUTDOWN_TIMEOUT)?;
    let tokens = settings.tokens.as_deref().map(users::read_tokens).transpose()?.unwrap_or_default();
    let service_accounts = users::read_issuer(&settings.signing_key, &settings.verifying_keys)?;
    let mut service_accounts =
        service_accounts.named(settings.issuers.clone(), settings.audiences.clone()).at_most(settings.max_expiration);
    if let Some(uri) = &settings.jwks_uri {
        service_accounts = service_accounts.with_jwks_uri(uri.clone());
    }
    let (jwt, from_file) = settings.token_issuers.load(service_accounts.issuers())?;
    let anonymous = match from_file {
        // As in kube-apiserver, a file that says who is anonymous stands alone.
        Some(_) if settings.anonymous_given => {
            return Err(KubeApiserverError::Users(UsersError::AnonymousTwice("--anonymous-auth")));
        }
        Some(anonymous) => anonymous,
        None if settings.anonymous => Anonymous::Unprivileged,
        None => Anonymous::Refused,
    };
    let authentication = Authentication { tokens, service_accounts, jwt, anonymous };
    // kube-apiserver reads the policy also if there is nowhere to write.
    let policy = settings.audit_policy.as_deref().map(audit::read_policy).transpose()?;
    let audit = policy.zip(settings.audit_log.clone()).map(|(policy, log)| AuditOptions { policy, log });
    let listener = bind(settings)?;
    let listener = if audit.is_some() { listener.with_client_addresses() } else { listener };
    let metrics = Metrics::new();
    let options = Options {
        storage: Storage::Memory,
        collector: if settings.collects_garbage { Collector::Inside } else { Collector::Elsewhere },
        authentication,
        authorization: settings.authorization.clone(),
        aggregation: if settings.aggregates_roles { Aggregation::Inside } else { Aggregation::Elsewhere },
        admission: settings.admission.clone(),
        audit,
        in_flight: settings.in_flight,
        more_metrics: Some(MoreMetrics(Arc::new(move || metrics.page()))),
        service_ranges: settings.service_ranges,
        privileged: settings.privileged,
        ..Options::default()
    };
    let api = ApiServer::open(options).await?;
    own_service::publish(&api, settings.service_ranges.cluster_ips, listener.local_addr())
        .await
        .map_err(KubeApiserverError::OwnService)?;
    let server = listener.serve(Authenticated(api.clone()));
    tracing::info!(url = server.url(), "ready");
    stop.asked().await;
    // Ends all watches, so that their connections can close.
    api.shutdown();
    server.stop(GRACE).await;
    api.flush_audit_log().await;
    Ok(())
}

fn bind(settings: &Settings) -> Result<Listener, KubeApiserverError> {
    let certificates = match &settings.certificate {
        Pair::Given { certificate, key } => Certificates::given(&read(certificate)?, &read(key)?)?,
        kept @ Pair::Kept { .. } => {
            let (certificate, key) = kept.paths();
            Certificates::in_files(certificate, key, &settings::certificate_names(&settings.bind), SystemTime::now())?
        }
    };
    let client_ca = settings.client_ca.as_deref().map(users::read_client_ca).transpose()?;
    let limits = Limits::default();
    let limits = Limits { connections: limits.connections.min(open_files::connections()), ..limits };
    let (address, port) = (settings.bind.ip(), settings.bind.port());
    Ok(Listener::bind(BindOptions { address, port, tls: Tls::On(certificates), client_ca, limits })?)
}

fn read(path: &Path) -> Result<String, KubeApiserverError> {
    fs::read_to_string(path).map_err(|source| KubeApiserverError::Read { path: path.display().to_string(), source })
}

/// The API server, behind authentication.
#[derive(Clone)]
struct Authenticated(ApiServer);

impl<B> Service<Request<B>> for Authenticated
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut api = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            match authenticate(&api, &head).await {
                Ok(user) => {
                    let mut request = Request::from_parts(head, body);
                    request.extensions_mut().insert(user);
                    upgrade::hand_over(&mut request);
                    api.call(request).await
                }
                Err(status) => Ok(refuse(&api, head, &status).await),
            }
        })
    }
}
