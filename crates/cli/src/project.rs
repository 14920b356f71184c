//! The developer's own operator under `konverge dev`: built, run against the server, and rebuilt when a file is saved. In: a
//! project, a kubeconfig and a client. Out: a running operator and one stream of lines. If a build fails, the previous
//! operator keeps running; an operator that ends by itself is restarted.
//!
//! ```text
//! find       is this directory an operator's project, and what is its binary called?
//! build      runs cargo → an executable and the files it was made of; compile: the same for commands that build once
//! files      has one of them changed?
//! invocation what the developer passes to the operator: variables and flags
//! child      the operator as a process: its output, its end
//! supervise  the process in between, so that the operator never outlives this one
//! lines      the output on the terminal; log_file: the same in a file
//! ```

mod build;
mod child;
mod compile;
mod files;
mod find;
mod invocation;
mod lines;
mod log_file;
mod supervise;

use std::path::{Path, PathBuf};
use std::time::Duration;

use konverge::kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use crate::operator_account::{OperatorAccount, OperatorRights};
use crate::operator_crds::Definitions;
use crate::operators;
use crate::remote_cluster::RemoteCluster;
use crate::samples::Samples;

use build::Built;
pub(crate) use build::cargo;
use child::Child;
pub(crate) use child::{describe_exit, printed};
pub(crate) use compile::{CompileError, CompileOptions, LastBuild};
use files::Files;
pub(crate) use find::{FindError, Found, Project};
pub(crate) use invocation::Invocation;
use lines::{LineSource, Lines};
use log_file::LogFile;
pub(crate) use supervise::{SuperviseArgs, command as supervised_command, supervise};

/// The first restart delay of an operator that ended by itself; it doubles each time.
const REST: Duration = Duration::from_secs(1);
/// The longest restart delay.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// What a build is installed into, and how it is run there.
pub(crate) struct Cluster {
    pub client: Client,
    pub kubeconfig: PathBuf,
    /// The CRDs of the newest build.
    pub definitions: Definitions,
    pub rights: OperatorRights,
    /// Where the lines on the terminal are kept, the newest first.
    pub logs: [PathBuf; 2],
    /// What the developer passes to the operator.
    pub invocation: Invocation,
}

impl Project {
    /// Builds the operator, runs it, and watches its files until `stop` is true.
    pub(crate) async fn develop(self, cluster: Cluster, samples: Option<Samples>, mut stop: watch::Receiver<bool>) {
        let lines = Lines::new(LogFile::new(cluster.logs.clone()));
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        let mut running = None;
        tokio::select! {
            () = self.cycle(&mut running, &lines, &cluster, samples) => {}
            () = stopped => {}
        }
        if let Some(child) = &mut running
            && let Some(ended) = child.end().await
        {
            lines.print(LineSource::Dev, &format!("the operator ended ({ended})"));
        }
    }

    /// Never ends by itself.
    async fn cycle(&self, running: &mut Option<Child>, lines: &Lines, cluster: &Cluster, mut samples: Option<Samples>) {
        let remote = RemoteCluster::over(cluster.client.clone(), String::new());
        let mut files = Files::below(self.directory());
        loop {
            files.mark();
            lines.print(LineSource::Build, &format!("cargo build --bin {}", self.binary()));
            match build::build(self, lines).await {
                Ok(built) => {
                    files.follow(&built.files);
                    self.replace(running, built, lines, cluster, samples.as_mut()).await;
                }
                Err(why) => {
                    let still = if running.is_some() { "; the previous operator still runs" } else { "" };
                    lines.print(LineSource::Build, &format!("{why}{still}; waiting for a change"));
                }
            }
            match running {
                Some(child) => tokio::select! {
                    () = run_and_restart(child, lines) => {}
                    () = apply(&mut samples, &remote, lines) => {}
                    () = files.changed() => {}
                },
                None => files.changed().await,
            }
        }
    }

    /// Replaces the previous operator by the new one. The previous one stays in `running` until it has ended, so that a stop
    /// in between ends it as well.
    async fn replace(
        &self,
        running: &mut Option<Child>,
        built: Built,
        lines: &Lines,
        cluster: &Cluster,
        samples: Option<&mut Samples>,
    ) {
        if running.as_ref().is_some_and(|old| old.is_of(&built.executable)) {
            lines.print(LineSource::Dev, "nothing has changed; the operator keeps running");
            return;
        }
        self.install(&built, cluster, lines).await;
        let kubeconfig = self.kubeconfig(&built, cluster, lines).await;
        let invocation = &cluster.invocation;
        if let Some(old) = running
            && let Some(ended) = old.end().await
        {
            lines.print(LineSource::Dev, &format!("the previous operator ended ({ended})"));
        }
        if let Some(samples) = samples {
            samples.after(self.registered(&built, cluster).await);
        }
        *running = Some(Child::new(built.executable, self.directory(), &kubeconfig, invocation));
        lines.print(LineSource::Dev, &format!("starting {}", self.binary()));
    }

    /// Installs the CRDs that the operator prints with `--print-crds`.
    async fn install(&self, built: &Built, cluster: &Cluster, lines: &Lines) {
        match install(built, self.directory(), cluster).await {
            Ok(definitions) => {
                cluster.definitions.set(definitions);
                let kinds = cluster.definitions.kinds();
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
                let Some(first) = kinds.first() else {
                    lines.print(LineSource::Dev, "the operator has no CRDs of its own");
                    return;
                };
                lines.print(
                    LineSource::Dev,
                    &format!("installed {}: kubectl get {} -A", names.join(", "), first.plural),
                );
            }
            Err(why) => lines.print(LineSource::Dev, &format!("the operator's CRDs were not installed: {why}")),
        }
    }
}

impl Project {
    /// What the operator registers when it starts: webhook configurations, and the conversions of its CRDs. One that does not say has none.
    async fn registered(&self, built: &Built, cluster: &Cluster) -> Vec<Value> {
        let mut manifests = Vec::new();
        for flag in ["--print-webhooks", "--print-crds"] {
            let printed = child::printed(&built.executable, self.directory(), flag, &cluster.invocation).await;
            manifests.extend(printed.unwrap_or_default().iter().filter_map(|text| serde_saphyr::from_str(text).ok()));
        }
        manifests
    }

    /// The kubeconfig that the operator gets: that of a service account with the rights that it declares.
    async fn kubeconfig(&self, built: &Built, cluster: &Cluster, lines: &Lines) -> PathBuf {
        let Cluster { client, kubeconfig, rights, invocation, .. } = cluster;
        if *rights == OperatorRights::All {
            return kubeconfig.clone();
        }
        let opened = async {
            let mut manifests = Vec::new();
            for flag in ["--print-rbac", "--print-webhooks"] {
                for document in child::printed(&built.executable, self.directory(), flag, invocation).await? {
                    manifests.push(serde_saphyr::from_str(&document).map_err(|error| error.to_string())?);
                }
            }
            let account = OperatorAccount::open(client, &manifests).await?;
            let path = account.kubeconfig(client, kubeconfig).await?;
            Ok::<_, String>((account, path))
        };
        match opened.await {
            Ok((account, path)) => {
                let told = format!(
                    "it runs as the service account {account}, with the rights that it declares (.owns, .watches, .needs); \
                     `konverge permissions` tells which of them it uses, --operator-rights all lets it do everything"
                );
                lines.print(LineSource::Dev, &told);
                path
            }
            Err(why) => {
                let told = format!("the operator may do everything, because its service account was not made: {why}");
                lines.print(LineSource::Dev, &told);
                kubeconfig.clone()
            }
        }
    }
}

/// Runs the operator, and restarts it when it ends. Never returns.
async fn run_and_restart(child: &mut Child, lines: &Lines) {
    let mut rest = REST;
    loop {
        let began = tokio::time::Instant::now();
        let ended = child.run(lines).await;
        if began.elapsed() > LONGEST_REST {
            rest = REST;
        }
        lines.print(LineSource::Dev, &format!("the operator ended ({ended}); restarting it in {} s", rest.as_secs()));
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Applies the samples, once; never returns, so that what runs beside it goes on.
async fn apply(samples: &mut Option<Samples>, remote: &RemoteCluster, lines: &Lines) {
    if let Some(samples) = samples {
        samples.apply(remote, |line| lines.print(LineSource::Dev, line)).await;
    }
    *samples = None;
    std::future::pending().await
}

async fn install(built: &Built, directory: &Path, cluster: &Cluster) -> Result<Vec<Value>, String> {
    let Cluster { client, invocation, .. } = cluster;
    let mut installed = Vec::new();
    for document in child::printed(&built.executable, directory, "--print-crds", invocation).await? {
        let definition = serde_saphyr::from_str(&document).map_err(|error| error.to_string())?;
        operators::install(client, &definition).await.map_err(|error| format!("{error:#}"))?;
        installed.push(serde_json::to_value(definition).map_err(|error| error.to_string())?);
    }
    Ok(installed)
}
