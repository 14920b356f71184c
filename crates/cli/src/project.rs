//! One's own operator under `konverge dev`: built, run against the control plane, and built again when a file is saved.
//! In: a project, a kubeconfig and a client. Out: a running operator and one stream of lines. A build that fails leaves
//! the operator running that was there before; an operator that ends is said to have ended, and started again.
//!
//! ```text
//! find       is this directory an operator's project, and what is its binary called?
//! build      cargo, with its own words → an executable and the files it was made of
//! files      has one of them changed?
//! child      the operator as a process: its lines, its end
//! supervise  a process of its own, so that the operator never outlives this one
//! lines      who says what
//! ```

mod build;
mod child;
mod files;
mod find;
mod lines;
mod supervise;

use std::path::{Path, PathBuf};
use std::time::Duration;

use konverge::kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use crate::definitions::Definitions;
use crate::operators;

use build::Built;
use child::Child;
use files::Files;
pub(crate) use find::{FindError, Found, Project};
use lines::{LineSource, Lines};
pub(crate) use supervise::{SuperviseArgs, supervise};

/// How long an operator that ended by itself stays away at first; doubled each time it does so again.
const REST: Duration = Duration::from_secs(1);
/// And at most.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// What the operator works with.
struct Cluster {
    client: Client,
    kubeconfig: PathBuf,
    /// What the newest build has.
    definitions: Definitions,
}

impl Project {
    /// Builds, runs and watches until `stop` is true.
    pub(crate) async fn develop(
        self,
        client: Client,
        kubeconfig: PathBuf,
        definitions: Definitions,
        mut stop: watch::Receiver<bool>,
    ) {
        let lines = Lines::new();
        let cluster = Cluster { client, kubeconfig, definitions };
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        let mut running = None;
        tokio::select! {
            () = self.cycle(&mut running, &lines, &cluster) => {}
            () = stopped => {}
        }
        if let Some(child) = &mut running
            && let Some(ended) = child.end().await
        {
            lines.say(LineSource::Dev, &format!("the operator ended ({ended})"));
        }
    }

    /// Never ends by itself.
    async fn cycle(&self, running: &mut Option<Child>, lines: &Lines, cluster: &Cluster) {
        let mut files = Files::below(self.directory());
        loop {
            files.mark();
            lines.say(LineSource::Build, &format!("cargo build --bin {}", self.binary()));
            match build::build(self, lines).await {
                Ok(built) => {
                    files.follow(&built.files);
                    self.replace(running, built, lines, cluster).await;
                }
                Err(why) => {
                    let still = if running.is_some() { "; the operator of before still runs" } else { "" };
                    lines.say(LineSource::Build, &format!("{why}{still}; waiting for a change"));
                }
            }
            match running {
                Some(child) => tokio::select! {
                    () = keep(child, lines) => {}
                    () = files.changed() => {}
                },
                None => files.changed().await,
            }
        }
    }

    /// The new operator in place of the one of before, which stays where it is until it has ended: a stop in between
    /// finds it there.
    async fn replace(&self, running: &mut Option<Child>, built: Built, lines: &Lines, cluster: &Cluster) {
        if running.as_ref().is_some_and(|old| old.is_of(&built.executable)) {
            lines.say(LineSource::Dev, "nothing is new; the operator goes on");
            return;
        }
        self.install(&built, cluster, lines).await;
        if let Some(old) = running
            && let Some(ended) = old.end().await
        {
            lines.say(LineSource::Dev, &format!("the operator of before ended ({ended})"));
        }
        *running = Some(Child::new(built.executable, self.directory(), &cluster.kubeconfig));
        lines.say(LineSource::Dev, &format!("starting {}", self.binary()));
    }

    /// Puts the operator's CRDs into the control plane: what it prints when it is asked for them.
    async fn install(&self, built: &Built, cluster: &Cluster, lines: &Lines) {
        match install(built, self.directory(), &cluster.client).await {
            Ok(definitions) => {
                cluster.definitions.set(definitions);
                let kinds = cluster.definitions.kinds();
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
                let Some(first) = kinds.first() else {
                    lines.say(LineSource::Dev, "the operator has no CRDs of its own");
                    return;
                };
                lines.say(LineSource::Dev, &format!("installed {}: kubectl get {} -A", names.join(", "), first.plural));
            }
            Err(why) => lines.say(LineSource::Dev, &format!("the operator's CRDs were not installed: {why}")),
        }
    }
}

/// Starts the operator, and starts it again when it ends. Never ends.
async fn keep(child: &mut Child, lines: &Lines) {
    let mut rest = REST;
    loop {
        let began = tokio::time::Instant::now();
        let ended = child.run(lines).await;
        if began.elapsed() > LONGEST_REST {
            rest = REST;
        }
        lines.say(
            LineSource::Dev,
            &format!("the operator ended ({ended}); it is started again in {} s", rest.as_secs()),
        );
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

async fn install(built: &Built, directory: &Path, client: &Client) -> Result<Vec<Value>, String> {
    let mut installed = Vec::new();
    for document in child::crds(&built.executable, directory).await? {
        let definition = serde_saphyr::from_str(&document).map_err(|error| error.to_string())?;
        operators::install(client, &definition).await.map_err(|error| error.to_string())?;
        installed.push(serde_json::to_value(definition).map_err(|error| error.to_string())?);
    }
    Ok(installed)
}
