//! `konverge dev`: the API server together with controllers and operators. In: arguments. Out: the plan for `run`, and the
//! operators that run in the same process. They talk to the server like any client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use konverge::kube::Client;
use konverge::{MetricError, Metrics};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{DATA_DIR, DevArgs};
use crate::control_plane;
use crate::data_dir::DataDir;
use crate::frontend::{About, FailingChecks};
use crate::left_webhooks;
use crate::operator_account::OperatorRights;
use crate::operator_crds::Definitions;
use crate::operators::{ActingAs, OperatorChoice, OperatorError, Operators};
use crate::project::{Cluster, Found, Invocation, Project};
use crate::remote_cluster::RemoteCluster;
use crate::run::{self, Plan, Ready, RunError};
use crate::samples::{self, Samples};
use crate::scaffold::{self, ProjectKind};
use crate::stdout;
use crate::users::AnonymousRights;

/// What `konverge dev` runs beside the API server.
pub(crate) struct Dev {
    /// The bundled operators to run.
    pub operators: OperatorChoice,
    /// The project whose operator is built and run.
    pub project: Option<Project>,
    /// What the operators may do.
    pub rights: OperatorRights,
    /// The package of the current directory, if it does not depend on konverge.
    pub passed_over: Option<String>,
    /// What is passed to the operator of the project.
    pub invocation: Invocation,
    /// The directory of the samples to apply.
    pub samples: Option<PathBuf>,
    /// Where the output of a project is kept.
    pub logs: [PathBuf; 2],
    /// The kinds that the project says it has, before its operator is built.
    pub kinds: Vec<ProjectKind>,
}

impl Dev {
    /// A sentence for the terminal: which operators run.
    pub(crate) fn summary(&self) -> String {
        match &self.project {
            Some(project) => {
                let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.kind.as_str()).collect();
                let kinds = if kinds.is_empty() { String::new() } else { format!(" of {}", kinds.join(", ")) };
                format!("Your operator {}{kinds} is built and run, and again when you save.", project.binary())
            }
            None => {
                let passed_over = self.passed_over.as_ref().map_or(String::new(), |package| {
                    format!(
                        "{package} is not run, because it does not depend on konverge: add the dependency to have it \
                         built and run, or say --operator application to mean the bundled one.\n"
                    )
                });
                format!("{passed_over}Operators at work: {}.", self.operators)
            }
        }
    }
}

/// `konverge dev`
pub(crate) fn dev(mut args: DevArgs) -> Result<(), RunError> {
    let elsewhere = !args.bind.is_loopback();
    let found = match &args.operator {
        Some(_) => Found::Nothing,
        None => Project::find(&std::env::current_dir()?, args.bin.as_deref())?,
    };
    let (project, passed_over) = match found {
        Found::Operator(project) => (Some(project), None),
        Found::Other { package } => (None, Some(package)),
        Found::Nothing => (None, None),
    };
    if let Some(project) = &project
        && args.storage.data_dir == Path::new(DATA_DIR)
    {
        // A project has one cluster, whichever of its directories is the current one.
        args.storage.data_dir = project.directory().join(DATA_DIR);
    }
    let invocation = Invocation::new(args.flags);
    if project.is_none() && !invocation.is_empty() {
        return Err(RunError::NoProject("flags behind -- are for its operator"));
    }
    let samples = match (args.samples, &project) {
        (None, _) => None,
        (Some(Some(directory)), _) => Some(directory),
        (Some(None), Some(project)) => Some(project.directory().join(samples::DIRECTORY)),
        (Some(None), None) => return Err(RunError::NoProject("--samples DIR says where samples are")),
    };
    if let Some(directory) = samples.as_ref().filter(|directory| !directory.exists()) {
        return Err(RunError::NoSamples(directory.clone()));
    }
    let kinds = project.as_ref().map(|project| scaffold::kinds(project.directory())).unwrap_or_default();
    let operators = match (args.operator, &project) {
        (Some(chosen), _) => chosen,
        (None, Some(_)) => OperatorChoice::none(),
        (None, None) => OperatorChoice::default(),
    };
    let control_plane = control_plane::options(&args.controllers, &args.simulation)?;
    // The lines of the README work with a bare `curl`: what runs on the developer's machine could read the kubeconfig, too.
    let unless_said = if elsewhere { AnonymousRights::Nothing } else { AnonymousRights::Everything };
    let anonymous = args.users.anonymous.unwrap_or(unless_said);
    run::check_open(args.bind, &args.users, anonymous)?;
    let plan = Plan {
        bind: SocketAddr::new(args.bind, args.port),
        storage: &args.storage,
        kubeconfig: DataDir::new(&args.storage.data_dir).kubeconfig(),
        tls_only: elsewhere,
        tls_names: &args.tls_name,
        users: &args.users,
        anonymous,
        admission: args.admission.plugins(control_plane::admission(&control_plane))?,
        in_flight: args.in_flight.limits(),
        audit: args.audit.load()?,
        service_ranges: args.services.ranges(),
        control_plane: Some(control_plane),
        dev: Some(Dev {
            operators,
            project,
            rights: args.operator_rights,
            passed_over,
            invocation,
            samples,
            logs: DataDir::new(&args.storage.data_dir).dev_logs(),
            kinds,
        }),
    };
    run::serve(&plan, hint)
}

fn hint(ready: &Ready<'_>) -> String {
    // The path is absolute, because another terminal has another current directory.
    let kubeconfig = std::path::absolute(ready.kubeconfig).unwrap_or_else(|_| ready.kubeconfig.into());
    let (url, kubeconfig) = (&ready.url, kubeconfig.display());
    let first_look = ready.first_look.as_deref().unwrap_or("deployments");
    let open = if ready.open { format!("\n{}\n", run::OPEN) } else { String::new() };
    let (credentials, with) = credentials(url, ready.open);
    format!(
        "konverge dev ready at {url} ({}) kubeconfig {kubeconfig}

{} Pods are simulated. From another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl get {first_look} -A
{credentials}
  curl {with}{url}/            what there is; also for browsers
  curl {with}{url}/events      what happened
  curl {with}-N '{url}/watch?kind={first_look}'
{open}
Ctrl-C stops it.
",
        ready.storage, ready.summary
    )
}

/// The lines that take from the kubeconfig what `curl` needs, and its arguments. A server that everybody on the machine may use
/// needs neither.
fn credentials(url: &str, open: bool) -> (String, String) {
    let config = |what: &str| format!("kubectl config view --raw -o 'jsonpath={{{what}}}'");
    let (mut lines, mut arguments) = (String::new(), String::new());
    if !open {
        lines += &format!("  TOKEN=$({})\n", config(".users[0].user.token"));
        arguments += "-H \"Authorization: Bearer $TOKEN\" ";
    }
    if url.starts_with("https:") {
        let ca = config(".clusters[0].cluster.certificate-authority-data");
        lines += &format!("  {ca} | base64 -d > ca.crt\n");
        arguments += "--cacert ca.crt ";
    }
    (lines, arguments)
}

/// Why operators do not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevError {
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the metrics cannot be shown")]
    Metrics(#[from] MetricError),
}

/// The operators beside the server and its control plane. Dropping it ends them at once; [`DevStack::stop`] waits for running
/// reconciles to finish.
pub(crate) struct DevStack {
    client: Client,
    operators: Operators,
    /// The CRDs of the operators.
    definitions: Definitions,
    /// The task that develops a project, or only applies samples.
    task: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl DevStack {
    /// Starts the operators.
    pub(crate) async fn start(
        dev: &Dev,
        client: Client,
        acting_as: &ActingAs,
        metrics: &Metrics,
    ) -> Result<Self, DevError> {
        let definitions = Definitions::default();
        left_webhooks::remove(&client, dev.operators.others()).await;
        let acting_as = (dev.rights == OperatorRights::Declared).then_some(acting_as);
        let operators = Operators::start(&dev.operators, &client, acting_as, metrics, &definitions).await?;
        Ok(Self { client, operators, definitions, task: None })
    }

    /// Builds and runs the operator of the project, if there is one, and applies samples.
    pub(crate) fn develop(&mut self, dev: &Dev, kubeconfig: &Path) {
        let samples = dev.samples.clone().map(Samples::new);
        let Some(project) = dev.project.clone() else {
            self.apply(samples);
            return;
        };
        // The operator runs in the project's directory, which need not be this one.
        let kubeconfig = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.into());
        let (stop, stopped) = watch::channel(false);
        let cluster = Cluster {
            client: self.client.clone(),
            kubeconfig,
            definitions: self.definitions.clone(),
            rights: dev.rights,
            logs: dev.logs.clone(),
            invocation: dev.invocation.clone(),
        };
        self.task = Some((stop, tokio::spawn(project.develop(cluster, samples, stopped))));
    }

    /// Applies samples for operators in this process, which run already.
    fn apply(&mut self, samples: Option<Samples>) {
        let Some(mut samples) = samples else { return };
        let (stop, mut stopped) = watch::channel(false);
        let cluster = RemoteCluster::over(self.client.clone(), String::new());
        let applying = async move {
            tokio::select! {
                () = samples.apply(&cluster, |line| stdout::write_lossy(&format!("{line}\n"))) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        };
        self.task = Some((stop, tokio::spawn(applying)));
    }

    /// The plural name of a kind for the hints on the terminal. Before a project is built, its `PROJECT` file says which kinds it has.
    pub(crate) fn first_look(&self, dev: &Dev) -> Option<String> {
        let installed = self.definitions.kinds().into_iter().map(|kind| kind.plural);
        installed.chain(dev.kinds.iter().map(|kind| kind.plural.clone())).next()
    }

    /// What the pages of `konverge dev` show.
    pub(crate) fn about(&self, dev: &Dev, url: &str, storage: &str) -> About {
        About {
            url: url.to_owned(),
            storage: storage.to_owned(),
            operators: self.operators.names().to_vec(),
            webhooks: self.operators.webhooks().to_vec(),
            project: dev.project.as_ref().map(|project| project.binary().to_owned()),
            definitions: self.definitions.clone(),
            since: Timestamp::now(),
        }
    }

    /// Returns the checks of operators that fail.
    pub(crate) fn failing(&self) -> FailingChecks {
        self.operators.failing()
    }

    /// Stops everything in the reverse order of the start.
    pub(crate) async fn stop(self) {
        if let Some((stop, task)) = self.task {
            stop.send_replace(true);
            // A panic of the task has been printed.
            let _ = task.await;
        }
        self.operators.stop().await;
    }
}
