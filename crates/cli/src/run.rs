//! Runs the API server: the one place that knows both the server and the listener. In: a plan. It locks the data directory,
//! binds the port, opens the store, serves, prints that it is ready, waits for a signal, and stops in the reverse order. It
//! decides nothing about Kubernetes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use konverge::{ClientLayers, Metrics};
use konverge_apiserver::{
    AbsentPart, AdmissionPlugins, ApiServer, AuditOptions, Authentication, Collector, InFlightLimits, MoreMetrics,
    OpenError, Options, PluginError, ServiceRanges, Storage,
};
use konverge_controllers::UnknownController;
use konverge_core::ErrorChain;
use konverge_serve::{
    BindError, BindOptions, CertificateError, Certificates, ClientCa, Limits, Listener, StopSignals, Tls,
    UnkeptCertificates,
};
use konverge_store::Health;

use crate::access::Access;
use crate::args::{ApiserverArgs, StorageArgs};
use crate::audit::AuditError;
use crate::control_plane::{self, RunningControlPlane};
use crate::control_socket::Control;
use crate::data_dir::{DataDir, DataDirLock, LockError};
use crate::dev::{Dev, DevError, DevStack};
use crate::frontend::{Companions, FailingChecks, Frontend};
use crate::huge_pages;
use crate::kubeconfig::{self, Kubeconfig, KubeconfigError};
use crate::open_files;
use crate::operators::ActingAs;
use crate::own_service;
use crate::port_holder;
use crate::project::FindError;
use crate::stdout;
use crate::users::{AnonymousRights, UserArgs, Users, UsersError, master};

/// How long running requests may take at shutdown. Watches end at once, so this is for writes.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How long the whole shutdown may take before the process exits anyway: the grace of requests, and some margin.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The same with controllers and operators, whose reconciles have 25 s to finish. Kubernetes kills a pod after 30 s.
const SHUTDOWN_TIMEOUT_CONTROLLERS: Duration = Duration::from_secs(29);

/// How long the runtime waits for blocking threads when everything else has ended.
pub(crate) const BLOCKING_THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(
        "refusing to listen on {0} while requests without a credential may do everything; use a loopback address, or \
         --authorization-mode RBAC and --anonymous public"
    )]
    NoAuthentication(IpAddr),
    #[error("refusing to listen on {0} without encryption; add --tls")]
    NoEncryption(IpAddr),
    #[error("without controllers no pods are simulated, so --nodes and --pod-…-delay need --controllers")]
    NoControllers,
    #[error("{error} (it is held by {holder})")]
    Taken { error: BindError, holder: String },
    #[error(transparent)]
    Bind(BindError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Open(Box<OpenError>),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Dev(#[from] DevError),
    #[error(transparent)]
    Project(#[from] FindError),
    #[error(transparent)]
    Controllers(#[from] UnknownController),
    #[error(transparent)]
    Admission(#[from] PluginError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("there is no operator's project here: {0}; `konverge init` starts one")]
    NoProject(&'static str),
    #[error("there are no samples at {}; --samples DIR says where they are", .0.display())]
    NoSamples(PathBuf),
    #[error("the store failed: {0}")]
    Store(String),
    #[error("the system refused")]
    System(#[from] io::Error),
}

/// What the two commands that run a server have in common.
pub(crate) struct Plan<'a> {
    pub bind: SocketAddr,
    pub storage: &'a StorageArgs,
    pub kubeconfig: PathBuf,
    /// Whether clients have to use HTTPS. Otherwise they may use HTTP on the same port.
    pub tls_only: bool,
    /// More names of the certificate.
    pub tls_names: &'a [String],
    pub users: &'a UserArgs,
    /// What requests without a credential may do.
    pub anonymous: AnonymousRights,
    pub admission: AdmissionPlugins,
    pub in_flight: InFlightLimits,
    pub audit: Option<AuditOptions>,
    pub service_ranges: ServiceRanges,
    /// The controllers that run beside the server.
    pub control_plane: Option<konverge_controllers::Options>,
    /// What `konverge dev` runs besides.
    pub dev: Option<Dev>,
}

/// `konverge apiserver`
pub(crate) fn apiserver(args: ApiserverArgs) -> Result<(), RunError> {
    allowed(&args)?;
    let data_dir = DataDir::new(&args.storage.data_dir);
    let controllers = args.controllers.as_ref();
    let control_plane = controllers.map(|names| control_plane::options(names, &args.simulation)).transpose()?;
    let plan = Plan {
        bind: SocketAddr::new(args.bind, args.port),
        storage: &args.storage,
        kubeconfig: args.kubeconfig.clone().unwrap_or_else(|| data_dir.kubeconfig()),
        tls_only: args.tls,
        tls_names: &args.tls_name,
        users: &args.users,
        anonymous: anonymous(&args),
        admission: args
            .admission
            .plugins(control_plane.as_ref().map_or_else(AdmissionPlugins::default, control_plane::admission))?,
        in_flight: args.in_flight.limits(),
        audit: args.audit.load()?,
        control_plane,
        service_ranges: args.services.ranges(),
        dev: None,
    };
    let controllers = if plan.control_plane.is_some() { " with controllers" } else { "" };
    serve(&plan, |ready| {
        let Ready { url, storage, open, .. } = ready;
        let kubeconfig = ready.kubeconfig.display();
        let line = format!("konverge apiserver ready at {url} ({storage}){controllers} kubeconfig {kubeconfig}\n");
        if *open { format!("{line}{OPEN}\n") } else { line }
    })
}

/// What the terminal says where requests without a credential may do everything.
pub(crate) const OPEN: &str =
    "Every program on this machine may do everything here, without a credential; --anonymous public closes that.";

fn anonymous(args: &ApiserverArgs) -> AnonymousRights {
    args.users.anonymous.unwrap_or(AnonymousRights::Public)
}

/// An address that other machines reach needs encryption, and is not open to everybody.
fn allowed(args: &ApiserverArgs) -> Result<(), RunError> {
    if args.controllers.is_none() && !args.simulation.is_default() {
        return Err(RunError::NoControllers);
    }
    check_open(args.bind, &args.users, anonymous(args))?;
    if args.bind.is_loopback() || args.tls { Ok(()) } else { Err(RunError::NoEncryption(args.bind)) }
}

/// Refuses to let everybody do everything who reaches the port from another machine.
pub(crate) fn check_open(bind: IpAddr, users: &UserArgs, anonymous: AnonymousRights) -> Result<(), RunError> {
    let open = users.is_open(anonymous);
    if bind.is_loopback() || !open { Ok(()) } else { Err(RunError::NoAuthentication(bind)) }
}

/// What is printed when the server is ready.
pub(crate) struct Ready<'a> {
    pub url: String,
    pub storage: String,
    pub kubeconfig: &'a Path,
    /// A sentence about what runs beside the server.
    pub summary: String,
    /// A kind for the hints on the terminal.
    pub first_look: Option<String>,
    /// Whether requests without a credential may do everything.
    pub open: bool,
}

/// Runs a plan to its end; `tell` makes the text that is printed when the server is ready.
pub(crate) fn serve(plan: &Plan<'_>, tell: impl FnOnce(&Ready<'_>) -> String) -> Result<(), RunError> {
    huge_pages::avoid();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(plan, tell));
    // Only requests whose client is gone may still compute.
    runtime.shutdown_timeout(BLOCKING_THREADS_TIMEOUT);
    outcome
}

/// Starts everything in this order and stops it in the reverse order.
async fn run(plan: &Plan<'_>, tell: impl FnOnce(&Ready<'_>) -> String) -> Result<(), RunError> {
    let data_dir = DataDir::new(&plan.storage.data_dir);
    kubeconfig::check(&plan.kubeconfig)?;
    let mut stop = StopSignals::listen(if plan.control_plane.is_some() {
        SHUTDOWN_TIMEOUT_CONTROLLERS
    } else {
        SHUTDOWN_TIMEOUT
    })?;

    let lock = lock(plan, &data_dir)?;
    let (certificates, unkept) = certificates(plan, &data_dir)?;
    // The disk writes the certificates while the store opens.
    let keeping = tokio::task::spawn_blocking(move || unkept.map_or(Ok(()), UnkeptCertificates::keep));
    let kept = (!plan.storage.memory).then_some(&data_dir);
    // Certificates that the control plane signs are believed, too.
    let own_ca = plan.control_plane.as_ref().filter(|options| control_plane::signs(options)).and(certificates.ca_pem());
    let Users { authentication, client_ca, token, open } = plan.users.load(plan.anonymous, kept, own_ca)?;
    // Flags were checked before; a file can say who is anonymous, too.
    if open && !plan.bind.ip().is_loopback() {
        return Err(RunError::NoAuthentication(plan.bind.ip()));
    }
    let listener = bind(plan, certificates.clone(), client_ca)?;
    // Only the audit log says where requests come from.
    let listener = if plan.audit.is_some() { listener.with_client_addresses() } else { listener };
    let url = reachable(&listener);
    // Some clients refuse to send credentials, or anything at all, without encryption.
    let secure_url = format!("https://{}", url.split_once("://").map_or(url.as_str(), |(_, rest)| rest));

    let metrics = Metrics::new();
    let api = self::open(plan, &data_dir, authentication, metrics.clone()).await?;
    if let Some(Err(error)) = lock.as_ref().map(|lock| lock.publish(&url)) {
        // Only messages of other processes need it.
        tracing::warn!(%error, "cannot write into the data directory which process uses it");
    }
    let _control = control(plan, &data_dir, &api);
    let published = own_service::publish(&api, plan.service_ranges.cluster_ips, listener.local_addr()).await;
    if let Err(status) = published {
        // A service or a webhook of an earlier run can be in the way, and only a running server can be freed of it.
        tracing::warn!(error = status.message, "cannot write the service kubernetes");
    }
    let storage = match plan.storage.memory {
        true => "memory".into(),
        false => format!("disk {}", data_dir.store().display()),
    };
    let ca_pem = certificates.ca_pem();
    // Controllers and operators are clients like any others, without a socket.
    let inside = api.acting_as(master("system:kube-controller-manager"));
    let client = ClientLayers::new().meter(metrics.request_meter("konverge")).over(inside, "default");
    let control_plane = match &plan.control_plane {
        None => None,
        Some(options) => Some(RunningControlPlane::start(options, client.clone(), &metrics, &certificates)?),
    };
    let mut stack = match &plan.dev {
        None => None,
        Some(dev) => Some(DevStack::start(dev, client, &acting_as(&api, &metrics), &metrics).await?),
    };
    let companions = Companions { metrics, failing: failing(control_plane.as_ref(), stack.as_ref()) };
    let access = access(plan);
    let frontend = match (&plan.dev, &stack) {
        (Some(dev), Some(stack)) => {
            Frontend::dev(access, api.clone(), companions, stack.about(dev, &url, &storage)).map_err(DevError::from)?
        }
        _ => Frontend::api(access, api.clone(), companions),
    };
    let server = listener.serve(frontend);
    keeping.await.map_err(io::Error::other)??;
    match (Kubeconfig { server: &secure_url, ca_pem, token: &token }).write(&plan.kubeconfig) {
        // A server on a full disk can be read, and freed of what fills the disk.
        Err(error) if error.is_full_disk() => tracing::warn!(
            error = %ErrorChain(&error),
            server = secure_url,
            "the kubeconfig is as an earlier start left it: give clients the address, or start again when there is space"
        ),
        written => written?,
    }

    let summary = plan.dev.as_ref().map(Dev::summary).unwrap_or_default();
    let first_look = stack.as_ref().zip(plan.dev.as_ref()).and_then(|(stack, dev)| stack.first_look(dev));
    let ready = Ready { url, storage, kubeconfig: &plan.kubeconfig, summary, first_look, open };
    stdout::write_lossy(&tell(&ready));
    tracing::info!(url = ready.url, storage = ready.storage, "ready");
    if let (Some(stack), Some(dev)) = (&mut stack, &plan.dev) {
        stack.develop(dev, &plan.kubeconfig);
    }

    let broken = tokio::select! {
        () = stop.asked() => None,
        why = broken(&api) => Some(why),
    };
    tracing::info!("stopping; a second Ctrl-C stops at once");
    if let Some(stack) = stack {
        stack.stop().await;
    }
    if let Some(control_plane) = control_plane {
        control_plane.stop().await;
    }
    // Ends all watches, so that their connections can close.
    api.shutdown();
    let stopped = server.stop(GRACE).await;
    api.flush_audit_log().await;
    tracing::info!(finished = stopped.finished, cut = stopped.cut, "stopped");
    broken.map_or(Ok(()), |why| Err(RunError::Store(why)))
}

/// Makes clients in this process for users of the API server.
fn acting_as(api: &ApiServer, metrics: &Metrics) -> ActingAs {
    let (api, meter) = (api.clone(), metrics.request_meter("konverge"));
    Arc::new(move |user| ClientLayers::new().meter(meter.clone()).over(api.acting_as(user), "default"))
}

/// Waits until the store has failed for good, and returns the reason. Only a restart of the process can help then.
async fn broken(api: &ApiServer) -> String {
    let mut health = api.store().health();
    match health.wait_for(|health| matches!(health, Health::Broken(_))).await {
        Ok(health) => health.problem().map(ToString::to_string).unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}

/// Locks the data directory, if this server writes anything into it: objects, or the kubeconfig of a server in memory.
fn lock(plan: &Plan<'_>, data_dir: &DataDir) -> Result<Option<DataDirLock>, LockError> {
    let unused = plan.storage.memory && plan.kubeconfig != data_dir.kubeconfig();
    if unused { Ok(None) } else { data_dir.lock().map(Some) }
}

/// Opens the control socket. The server runs without it, too: the path may be too long, or the system may have no such sockets.
fn control(plan: &Plan<'_>, data_dir: &DataDir, api: &ApiServer) -> Option<Control> {
    if plan.storage.memory {
        return None;
    }
    let listening = Control::listen(data_dir.control(), api.store().clone());
    listening.inspect_err(|error| tracing::warn!(%error, "no control socket: back up a stopped server instead")).ok()
}

/// The certificates, and what of them is to be kept.
fn certificates(
    plan: &Plan<'_>,
    data_dir: &DataDir,
) -> Result<(Certificates, Option<UnkeptCertificates>), CertificateError> {
    let mut names = plan.tls_names.to_vec();
    if !plan.bind.ip().is_unspecified() {
        names.push(plan.bind.ip().to_string());
    }
    let now = SystemTime::now();
    if plan.storage.memory {
        return Ok((Certificates::in_memory(&names, now)?, None));
    }
    let (certificates, unkept) = Certificates::from_directory(&data_dir.certificates(), &names, now)?;
    Ok((certificates, Some(unkept)))
}

/// Returns the failing checks of the controllers and operators beside the server.
fn failing(control_plane: Option<&RunningControlPlane>, stack: Option<&DevStack>) -> FailingChecks {
    let controllers = control_plane.map(|control_plane| control_plane.health().clone());
    let operators = stack.map(DevStack::failing);
    Arc::new(move || {
        let controllers = controllers.iter().flat_map(|health| health.failing());
        controllers.chain(operators.iter().flat_map(|failing| failing())).collect()
    })
}

fn access(plan: &Plan<'_>) -> Access {
    if plan.bind.ip().is_loopback() { Access::Loopback } else { Access::Anywhere }
}

fn bind(plan: &Plan<'_>, certificates: Certificates, client_ca: Option<ClientCa>) -> Result<Listener, RunError> {
    let limits = Limits::default();
    let limits = Limits { connections: limits.connections.min(open_files::connections()), ..limits };
    let tls = if plan.tls_only { Tls::On(certificates) } else { Tls::Either(certificates) };
    let (address, port) = (plan.bind.ip(), plan.bind.port());
    Listener::bind(BindOptions { address, port, tls, client_ca, limits }).map_err(|error| {
        match port_holder::holder(plan.bind) {
            Some(holder) if matches!(error, BindError::Taken { .. }) => RunError::Taken { error, holder },
            _ => RunError::Bind(error),
        }
    })
}

/// The URL for clients on this machine.
fn reachable(listener: &Listener) -> String {
    let address = listener.local_addr();
    let local = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    };
    match address.ip().is_unspecified() {
        true => listener.url().replace(&address.to_string(), &SocketAddr::new(local, address.port()).to_string()),
        false => listener.url(),
    }
}

async fn open(
    plan: &Plan<'_>,
    data_dir: &DataDir,
    authentication: Authentication,
    metrics: Metrics,
) -> Result<ApiServer, RunError> {
    let storage = match plan.storage.memory {
        true => Storage::Memory,
        false => Storage::Disk(data_dir.store()),
    };
    let lenient_updates = plan.dev.is_some();
    // With a control plane, its garbage collector does the work. Who switches that off wants another program to do it.
    let collector = if plan.control_plane.is_some() { Collector::Elsewhere } else { Collector::Inside };
    let admission = plan.admission.clone();
    let controls_quotas =
        plan.control_plane.as_ref().is_some_and(|options| !options.off.contains("resourcequota-controller"));
    // The simulator schedules pods, but preempts none.
    let mut absent = Options::default().absent;
    let signs = plan.control_plane.as_ref().is_some_and(control_plane::signs);
    absent.retain(|part| match part {
        AbsentPart::ResourceQuotaController => !controls_quotas,
        AbsentPart::CertificateSigner => !signs,
        AbsentPart::Preemption => true,
    });
    let more_metrics = Some(MoreMetrics(Arc::new(move || metrics.page())));
    let authorization = plan.users.authorization();
    let options = Options {
        storage,
        lenient_updates,
        collector,
        authentication,
        authorization,
        admission,
        absent,
        webhook_identity: plan.users.webhook_identity()?,
        audit: plan.audit.clone(),
        in_flight: plan.in_flight,
        more_metrics,
        service_ranges: plan.service_ranges,
        ..Options::default()
    };
    ApiServer::open(options).await.map_err(|source| RunError::Open(source.into()))
}

/// Prints to stdout.
pub(crate) fn print(text: &str) {
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    /// What the arguments of `konverge apiserver` lead to: nothing, or the refusal.
    fn check(arguments: &str, expect: Option<&str>) {
        let line = ["konverge", "apiserver"].into_iter().chain(arguments.split_whitespace());
        let outcome = match Args::try_parse_from(line) {
            Ok(Args { command: Command::Apiserver(args), .. }) => allowed(&args).map_err(|error| error.to_string()),
            Ok(_) => unreachable!("apiserver was asked for"),
            Err(error) => Err(error.to_string()),
        };
        match (outcome, expect) {
            (Ok(()), None) => {}
            (Err(message), Some(part)) => assert!(message.contains(part), "{arguments}: {message}"),
            (outcome, expect) => panic!("{arguments}: {outcome:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn who_may_reach_it() {
        check("", None);
        check("--bind 127.0.0.1", None);
        check("--bind 127.8.8.8 --tls", None);
        check("--bind ::1", None);
        check("--bind 0.0.0.0", Some("refusing to listen on 0.0.0.0 without encryption; add --tls"));
        check("--bind 0.0.0.0 --tls", None);
        check("--bind 0.0.0.0 --tls --anonymous nothing", None);
        check("--bind 192.0.2.1 --tls --anonymous everything", Some("and --anonymous public"));
        check("--bind 192.0.2.1 --tls --authorization-mode AlwaysAllow", Some("and --anonymous public"));
        check("--anonymous everything", None);
        check("--authorization-mode RBAC,AlwaysDeny", None);
        check("--authorization-mode Node,RBAC", None);
        check("--authorization-mode ABAC", Some("possible values: RBAC, AlwaysAllow, AlwaysDeny, Node"));
        check("--oidc-issuer-url https://a", Some("--oidc-client-id"));
        check("--oidc-groups-claim groups", Some("--oidc-issuer-url"));
        check("--oidc-issuer-url https://a --oidc-client-id b --oidc-required-claim c", Some("expect string=string"));
        check("--oidc-issuer-url https://a --oidc-client-id b --authentication-config c", Some("cannot be used with"));
        check(
            "--oidc-issuer-url https://a --oidc-client-id b --oidc-username-prefix - --oidc-required-claim c=d",
            None,
        );
        check("--service-account-key-file a", Some("--service-account-signing-key-file"));
        check("--bind localhost", Some("invalid value 'localhost' for '--bind"));
        check("--port 70000", Some("invalid value '70000' for '--port"));
        check("--tls-name x", Some("--tls"));
        check("--controllers --nodes 3", None);
        check("--controllers=*,-job-controller", None);
        check("--nodes 3", Some("need --controllers"));
        check("--audit-policy-file p", Some("--audit-log-path"));
        check("--audit-log-path -", Some("--audit-policy-file"));
        check("--audit-log-path - --audit-policy-file p --audit-log-mode batch", None);
        check("--audit-log-mode x", Some("possible values: blocking, blocking-strict, batch"));
        check("--audit-log-batch-buffer-size 0", Some("must be a positive number"));
        check("--log-format xml", Some("possible values: text, json"));
        check("--frobnicate", Some("unexpected argument"));
    }
}
