//! `konverge run`: the project's operator on this machine, against the cluster of the kubeconfig. In: flags. Out: the operator itself, which takes the
//! place of this process, so that signals and exit codes are its own.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitCode};

use konverge_core::ErrorChain;

use crate::description::{ProjectArgs, ProjectError, here};
use crate::project::CompileError;
use crate::remote_cluster::{ClusterArgs, RemoteCluster, RemoteError};

/// Arguments of `konverge run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Where the cluster's API servers reach webhooks of this operator: https://HOST:9443. Without it webhooks are served only to a server of this program
    /// on this machine, and are off otherwise
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Build with optimisations
    #[arg(long)]
    release: bool,
    /// Flags of the operator; --help among them lists these
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Cluster(#[from] RemoteError),
    #[error("the operator cannot be started")]
    Start(#[from] io::Error),
}

/// How API servers reach the webhooks of an operator that runs here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WebhookAddress {
    /// At an address that the user knows.
    Url(String),
    /// At a loopback address.
    Local,
    /// Not at all.
    Off,
}

impl WebhookAddress {
    fn choose(url: Option<&str>, server: &str, is_konverge: bool) -> Self {
        let host =
            server.parse::<http::Uri>().ok().and_then(|server| server.host().map(str::to_owned)).unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        match url {
            Some(url) => Self::Url(url.to_owned()),
            None if is_here && is_konverge => Self::Local,
            None => Self::Off,
        }
    }

    fn flags(&self) -> Vec<String> {
        match self {
            Self::Url(url) => vec![format!("--webhook-url={url}")],
            Self::Local => vec!["--webhook-bind-address=127.0.0.1:0".to_owned()],
            Self::Off => vec!["--webhook-enabled=false".to_owned()],
        }
    }
}

/// `konverge run`
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match start(args) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &RunArgs) -> Result<Infallible, RunError> {
    let (project, ..) = here(&args.project)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (url, is_konverge) = runtime.block_on(async {
        let cluster = RemoteCluster::connect(&args.cluster).await?;
        Ok::<_, RunError>((cluster.url().to_owned(), cluster.is_konverge().await))
    })?;
    drop(runtime);
    // The cluster was asked first, because this takes a while.
    let executable = project.compile(if args.release { &["--release"][..] } else { &[] })?;
    let webhooks = WebhookAddress::choose(args.webhook_url.as_deref(), &url, is_konverge);
    eprintln!("running {} against {url}", project.binary());
    if webhooks == WebhookAddress::Off {
        eprintln!(
            "webhooks, if it has some, are off: the cluster does not reach this machine by itself; --webhook-url https://HOST:9443 says how it does"
        );
    }
    let mut command = Command::new(&executable);
    command.args(webhooks.flags());
    if let Some(kubeconfig) = &args.cluster.kubeconfig {
        command.arg("--kubeconfig").arg(std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.clone()));
    }
    if let Some(context) = &args.cluster.context {
        command.arg("--context").arg(context);
    }
    command.args(&args.flags).current_dir(project.directory());
    become_operator(command, &executable)
}

#[cfg(unix)]
fn become_operator(mut command: Command, _: &Path) -> Result<Infallible, RunError> {
    use std::os::unix::process::CommandExt;
    // This process avoids huge pages for itself only.
    let error = crate::huge_pages::allow_for_child(|| command.exec());
    Err(RunError::Start(error))
}

#[cfg(not(unix))]
fn become_operator(mut command: Command, _: &Path) -> Result<Infallible, RunError> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_webhooks_here() {
        let check = |url: Option<&str>, server: &str, is_konverge: bool, expect: &str| {
            assert_eq!(WebhookAddress::choose(url, server, is_konverge).flags(), [expect], "{server}");
        };
        check(Some("https://laptop:9443"), "https://example.com", false, "--webhook-url=https://laptop:9443");
        check(None, "https://127.0.0.1:3000", true, "--webhook-bind-address=127.0.0.1:0");
        check(None, "https://[::1]:3000/", true, "--webhook-bind-address=127.0.0.1:0");
        check(None, "http://localhost:3000", true, "--webhook-bind-address=127.0.0.1:0");
        // kind and minikube are at loopback addresses, too, and do not reach this machine's.
        check(None, "https://127.0.0.1:6443", false, "--webhook-enabled=false");
        check(None, "https://konverge.example.com", true, "--webhook-enabled=false");
    }
}
