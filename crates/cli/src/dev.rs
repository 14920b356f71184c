//! `konverge dev`: the API server with something living on it. In: arguments. Out: the plan for `run`, and what runs
//! beside the server in the same process. Everything here talks to the server as any client does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use konverge::kube::Client;
use konverge::{ClientLayers, MetricError, Metrics};
use konverge_apiserver::{ApiServer, Environment, System};
use konverge_controllers::UnknownController;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::{DATA_DIR, DevArgs};
use crate::definitions::Definitions;
use crate::guard::Guard;
use crate::home::Home;
use crate::operators::{Choice, OperatorError, Operators};
use crate::plane::Plane;
use crate::project::{Found, Project};
use crate::run::{self, Plan, Ready, RunError};
use crate::surface::{About, Surface};

/// What a developer's server has besides the API.
pub struct Dev {
    /// The bundled operators to run.
    pub operators: Choice,
    /// The project whose operator is built and run.
    pub project: Option<Project>,
    /// The package that this was started in, if it is no operator.
    pub passed_over: Option<String>,
    /// The controllers, and how pods are simulated.
    pub plane: konverge_controllers::Options,
    /// What clients have to bring; nothing where only this machine can reach the server.
    pub token: Option<String>,
}

impl Dev {
    /// What runs beside the server, for people.
    pub fn living(&self) -> String {
        match &self.project {
            Some(project) => format!("Your operator {} is built and run, and again when you save.", project.binary()),
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
pub fn dev(mut args: DevArgs) -> Result<(), RunError> {
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
        // A project has one cluster, wherever in it one stands.
        args.storage.data_dir = project.directory().join(DATA_DIR);
    }
    let operators = match (args.operator, &project) {
        (Some(chosen), _) => chosen,
        (None, Some(_)) => Choice::none(),
        (None, None) => Choice::default(),
    };
    let plan = Plan {
        bind: SocketAddr::new(args.bind, args.port),
        storage: &args.storage,
        kubeconfig: Home::new(&args.storage.data_dir).kubeconfig(),
        tls: elsewhere.then_some(&args.tls_name),
        dev: Some(Dev { operators, project, passed_over, plane: args.plane.options()?, token: elsewhere.then(token) }),
    };
    run::serve(&plan, hint)
}

/// 256 bits that nobody guesses, made anew at each start: the kubeconfig has them.
fn token() -> String {
    format!("{:032x}{:032x}", System.random(), System.random())
}

fn hint(ready: &Ready<'_>) -> String {
    // Another terminal is in another directory.
    let kubeconfig = std::path::absolute(ready.kubeconfig).unwrap_or_else(|_| ready.kubeconfig.into());
    let (url, kubeconfig) = (&ready.url, kubeconfig.display());
    let first_look = ready.first_look.as_deref().unwrap_or("deployments");
    let how = match ready.token {
        Some(_) => "\nWith the CA and the token of the kubeconfig:\n",
        None => "",
    };
    format!(
        "konverge dev ready at {url} ({}) kubeconfig {kubeconfig}

{} Pods are simulated. From another terminal:
{how}
  curl {url}/            what there is; also for browsers
  curl {url}/events      what happened
  curl -N '{url}/watch?kind={first_look}'

  export KUBECONFIG={kubeconfig}
  kubectl get {first_look} -A

Ctrl-C stops it.
",
        ready.storage, ready.living
    )
}

/// Why nothing lives on the server.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Controllers(#[from] UnknownController),
    #[error("the metrics cannot be shown")]
    Metrics(#[from] MetricError),
}

/// What lives on the server. Dropping it ends it at once; [`Life::stop`] lets reconciles finish.
pub struct Life {
    metrics: Metrics,
    client: Client,
    plane: Plane,
    operators: Operators,
    /// What the operators are for.
    definitions: Definitions,
    project: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl Life {
    /// Starts the controllers of the control plane, then the operators that rely on them.
    /// Pods are told of the CA by which the server is known, if it has one.
    pub async fn start(dev: &Dev, api: &ApiServer, ca_pem: Option<&str>) -> Result<Self, LifeError> {
        let metrics = Metrics::new();
        let client = ClientLayers::new().meter(metrics.request_meter("konverge-dev")).over(api.clone(), "default");
        let counted = metrics.clone();
        let options = konverge_controllers::Options {
            root_ca: ca_pem.map(str::to_owned),
            meter: Arc::new(move |name| counted.meter(name)),
            ..dev.plane.clone()
        };
        let plane = Plane::start(options, client.clone())?;
        let definitions = Definitions::default();
        let operators = Operators::start(&dev.operators, &client, &metrics, &definitions).await?;
        Ok(Self { metrics, client, plane, operators, definitions, project: None })
    }

    /// Builds and runs the operator of a project from now on, if there is one.
    pub fn develop(&mut self, dev: &Dev, kubeconfig: &Path) {
        let Some(project) = dev.project.clone() else { return };
        // The operator runs in the project's directory, which need not be this one.
        let kubeconfig = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.into());
        let (stop, told) = watch::channel(false);
        let developing = project.develop(self.client.clone(), kubeconfig, self.definitions.clone(), told);
        self.project = Some((stop, tokio::spawn(developing)));
    }

    /// A kind to look at first, as people call several of them; none before a project is built.
    pub fn first_look(&self) -> Option<String> {
        self.definitions.kinds().into_iter().next().map(|kind| kind.plural)
    }

    /// What is served in front of the API server.
    pub fn surface(&self, dev: &Dev, api: &ApiServer, url: &str, storage: &str) -> Result<Surface, LifeError> {
        let guard = match &dev.token {
            Some(token) => Guard::Token(token.clone()),
            None => Guard::Loopback,
        };
        let about = About {
            url: url.to_owned(),
            storage: storage.to_owned(),
            operators: self.operators.names().to_vec(),
            project: dev.project.as_ref().map(|project| project.binary().to_owned()),
            definitions: self.definitions.clone(),
            since: Timestamp::now(),
        };
        let (controllers, operators) = (self.plane.health().clone(), self.operators.ailing());
        let ailing = Arc::new(move || [controllers.ailing(), operators()].concat());
        Ok(Surface::new(api.clone(), guard, about, self.metrics.clone(), ailing)?)
    }

    /// Ends everything, in the reverse order.
    pub async fn stop(self) {
        if let Some((stop, task)) = self.project {
            stop.send_replace(true);
            // It has said what there is to say.
            let _ = task.await;
        }
        self.operators.stop().await;
        self.plane.stop().await;
    }
}
