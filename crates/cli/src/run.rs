//! Running the API server: the one place that knows both the server and the listener. A plan comes in; it binds, opens,
//! serves, tells, waits, and stops in the reverse order. It decides nothing about Kubernetes.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use konverge_apiserver::{ApiServer, Collector, OpenError, Options, Storage};
use konverge_controllers::UnknownController;
use konverge_serve::{BindError, BindOptions, CertificateError, Certificates, Limits, Listener, StopSignals, Tls};
use konverge_store::Health;

use crate::args::{ApiserverArgs, StorageArgs};
use crate::control::Control;
use crate::dev::{Dev, Life, LifeError};
use crate::guard::{Guard, Guarded};
use crate::home::{Home, OwnError, Owned};
use crate::kubeconfig::{self, Kubeconfig, KubeconfigError};
use crate::open_files;
use crate::port_holder;
use crate::project::FindError;

/// How long running requests may take after a stop was asked. Watches end at once, so this is for writes.
const GRACE: Duration = Duration::from_secs(5);

/// How long the whole stop may take before the process ends by itself: the grace of requests, and some air.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The same where operators run, whose reconciles have 25 s to finish. Kubernetes kills after 30 s.
const STOP_WITHIN_OPERATORS: Duration = Duration::from_secs(29);

/// How long threads that still compute are waited for when everything else has ended.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "refusing to listen on {0}: there is no authentication yet, so whoever reaches the port may do everything; \
         use a loopback address, or add --insecure-no-auth"
    )]
    NoAuthentication(IpAddr),
    #[error("refusing to listen on {0} without encryption; add --tls")]
    NoEncryption(IpAddr),
    #[error("{error} (it is held by {holder})")]
    Taken { error: BindError, holder: String },
    #[error(transparent)]
    Bind(BindError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Own(#[from] OwnError),
    #[error(transparent)]
    Open(Box<OpenError>),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Life(#[from] LifeError),
    #[error(transparent)]
    Project(#[from] FindError),
    #[error(transparent)]
    Controllers(#[from] UnknownController),
    #[error("the store failed: {0}")]
    Store(String),
    #[error("the system refused")]
    System(#[from] io::Error),
}

/// What the two commands that run a server have in common.
pub struct Plan<'a> {
    pub bind: SocketAddr,
    pub storage: &'a StorageArgs,
    pub kubeconfig: PathBuf,
    /// For HTTPS, more names of the certificate.
    pub tls: Option<&'a [String]>,
    /// What lives on the server.
    pub dev: Option<Dev>,
}

/// `konverge apiserver`
pub fn apiserver(args: ApiserverArgs) -> Result<(), RunError> {
    allowed(&args)?;
    let home = Home::new(&args.storage.data_dir);
    let plan = Plan {
        bind: SocketAddr::new(args.bind, args.port),
        storage: &args.storage,
        kubeconfig: args.kubeconfig.clone().unwrap_or_else(|| home.kubeconfig()),
        tls: args.tls.then_some(&args.tls_name),
        dev: None,
    };
    serve(&plan, |ready| {
        format!(
            "konverge apiserver ready at {} ({}) kubeconfig {}\n",
            ready.url,
            ready.storage,
            ready.kubeconfig.display()
        )
    })
}

/// Whoever reaches the port may do everything, so only this machine may reach it unless someone insists.
fn allowed(args: &ApiserverArgs) -> Result<(), RunError> {
    match (args.bind.is_loopback(), args.insecure_no_auth, args.tls) {
        (true, _, _) | (false, true, true) => Ok(()),
        (false, false, _) => Err(RunError::NoAuthentication(args.bind)),
        (false, true, false) => Err(RunError::NoEncryption(args.bind)),
    }
}

/// What to tell when it is ready.
pub struct Ready<'a> {
    pub url: String,
    pub storage: String,
    pub kubeconfig: &'a Path,
    /// What runs beside the server, in words.
    pub living: String,
    /// A kind to look at first.
    pub first_look: Option<String>,
    pub token: Option<&'a str>,
}

/// Runs a plan to its end; `tell` says what is printed when it is ready.
pub fn serve(plan: &Plan<'_>, tell: impl FnOnce(&Ready<'_>) -> String) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(plan, tell));
    // Nothing that matters runs any more; a request that was cut may still compute for its lost client.
    runtime.shutdown_timeout(LAST_THREADS);
    outcome
}

/// Start in this order, stop in the reverse.
async fn run(plan: &Plan<'_>, tell: impl FnOnce(&Ready<'_>) -> String) -> Result<(), RunError> {
    let home = Home::new(&plan.storage.data_dir);
    kubeconfig::check(&plan.kubeconfig)?;
    let mut stop = StopSignals::listen(if plan.dev.is_some() { STOP_WITHIN_OPERATORS } else { STOP_WITHIN })?;

    let owned = own(plan, &home)?;
    let certificates = certificates(plan, &home)?;
    let listener = bind(plan, certificates.clone())?;
    let url = reachable(&listener);

    let api = open(plan, &home).await?;
    if let Some(owned) = &owned {
        owned.reachable_at(&url)?;
    }
    let _control = control(plan, &home, &api);
    let storage = match plan.storage.memory {
        true => "memory".into(),
        false => format!("disk {}", home.store().display()),
    };
    let ca_pem = certificates.as_ref().map(Certificates::ca_pem);
    let (server, mut life) = match &plan.dev {
        None => (listener.serve(Guarded::new(guard(plan, certificates.as_ref()), api.clone())), None),
        Some(dev) => {
            let life = Life::start(dev, &api, ca_pem).await?;
            (listener.serve(life.surface(dev, &api, &url, &storage)?), Some(life))
        }
    };
    let token = plan.dev.as_ref().and_then(|dev| dev.token.as_deref());
    Kubeconfig { server: &url, ca_pem, token }.write(&plan.kubeconfig)?;

    let living = plan.dev.as_ref().map(Dev::living).unwrap_or_default();
    let first_look = life.as_ref().and_then(Life::first_look);
    let ready = Ready { url, storage, kubeconfig: &plan.kubeconfig, living, first_look, token };
    print(&tell(&ready));
    tracing::info!(url = ready.url, storage = ready.storage, "ready");
    if let (Some(life), Some(dev)) = (&mut life, &plan.dev) {
        life.develop(dev, &plan.kubeconfig);
    }

    let broken = tokio::select! {
        () = stop.asked() => None,
        why = broken(&api) => Some(why),
    };
    tracing::info!("stopping; a second Ctrl-C stops at once");
    if let Some(life) = life {
        life.stop().await;
    }
    // Watches end, which lets their connections end.
    api.shutdown();
    let stopped = server.stop(GRACE).await;
    tracing::info!(finished = stopped.finished, cut = stopped.cut, "stopped");
    broken.map_or(Ok(()), |why| Err(RunError::Store(why)))
}

/// Waits until the store has failed for good, and tells why: whoever started this process has to start it again.
async fn broken(api: &ApiServer) -> String {
    let mut health = api.store().health();
    match health.wait_for(|health| matches!(health, Health::Broken(_))).await {
        Ok(health) => health.problem().map(ToString::to_string).unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}

/// Takes the data directory, if this server keeps anything in it: objects, or the kubeconfig of a server in memory.
fn own(plan: &Plan<'_>, home: &Home) -> Result<Option<Owned>, OwnError> {
    let unused = plan.storage.memory && plan.kubeconfig != home.kubeconfig();
    if unused { Ok(None) } else { home.own().map(Some) }
}

/// The server runs without it too: a path may be too long for a socket, or the system may not have them.
fn control(plan: &Plan<'_>, home: &Home, api: &ApiServer) -> Option<Control> {
    if plan.storage.memory {
        return None;
    }
    let listening = Control::listen(home.control(), api.store().clone());
    listening.inspect_err(|error| tracing::warn!(%error, "no control socket: back up a stopped server instead")).ok()
}

fn certificates(plan: &Plan<'_>, home: &Home) -> Result<Option<Certificates>, CertificateError> {
    let Some(names) = plan.tls else { return Ok(None) };
    let mut names = names.to_vec();
    if !plan.bind.ip().is_unspecified() {
        names.push(plan.bind.ip().to_string());
    }
    let now = SystemTime::now();
    match plan.storage.memory {
        true => Certificates::in_memory(&names, now),
        false => Certificates::in_directory(&home.certificates(), &names, now),
    }
    .map(Some)
}

/// Who may use the API server where nobody has to prove who he is.
fn guard(plan: &Plan<'_>, certificates: Option<&Certificates>) -> Guard {
    match certificates {
        Some(certificates) if !plan.bind.ip().is_loopback() => Guard::Names(certificates.names().to_vec()),
        _ => Guard::Loopback,
    }
}

fn bind(plan: &Plan<'_>, certificates: Option<Certificates>) -> Result<Listener, RunError> {
    let limits = Limits::default();
    let limits = Limits { connections: limits.connections.min(open_files::connections()), ..limits };
    let tls = certificates.map_or(Tls::Off, Tls::On);
    Listener::bind(BindOptions { address: plan.bind.ip(), port: plan.bind.port(), tls, limits }).map_err(|error| {
        match port_holder::holder(plan.bind) {
            Some(holder) if matches!(error, BindError::Taken { .. }) => RunError::Taken { error, holder },
            _ => RunError::Bind(error),
        }
    })
}

/// The address as a client on this machine writes it.
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

async fn open(plan: &Plan<'_>, home: &Home) -> Result<ApiServer, RunError> {
    let storage = match plan.storage.memory {
        true => Storage::Memory,
        false => Storage::Disk(home.store()),
    };
    let lenient_updates = plan.dev.is_some();
    // Where controllers run, collecting is theirs; who switches those off wants somebody else to do it.
    let collector = if plan.dev.is_some() { Collector::Elsewhere } else { Collector::Inside };
    let options = Options { storage, lenient_updates, collector, ..Options::default() };
    ApiServer::open(options).await.map_err(|source| RunError::Open(source.into()))
}

/// Whoever started this may have gone; the server stays.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::debug!(%error, "nobody reads what is printed");
    }
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
        check("--bind 0.0.0.0", Some("refusing to listen on 0.0.0.0: there is no authentication yet"));
        check("--bind 192.0.2.1 --tls", Some("add --insecure-no-auth"));
        check("--bind :: --insecure-no-auth", Some("without encryption; add --tls"));
        check("--bind 0.0.0.0 --insecure-no-auth --tls", None);
        check("--bind localhost", Some("invalid value 'localhost' for '--bind"));
        check("--port 70000", Some("invalid value '70000' for '--port"));
        check("--tls-name x", Some("--tls"));
        check("--log-format xml", Some("possible values: text, json"));
        check("--frobnicate", Some("unexpected argument"));
    }
}
