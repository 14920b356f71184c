//! `konverge doctor`: what is wrong with this machine, the project, the kubeconfig, the cluster or the running operator, and what to do about it. In: flags. Out: a
//! report, and exit code 1 if there is a problem. It only looks: it writes no file and no object. Every wait has a limit.
//!
//! ```text
//! checks       what is looked at, by name
//! finding      what a check says, and the report of all of them
//! machine      programs, limits, the clock; program: runs other programs
//! own_project  the project, and the operator as it describes itself
//! credentials  the kubeconfig, the server, who asks
//! cluster      version, namespaces, APIs; definitions: CRDs; webhooks; rights
//! operator     the Deployment, Pods, Lease; gauges: probes and metrics; objects: of its kinds, and events
//! ```

mod checks;
mod cluster;
mod credentials;
mod definitions;
mod finding;
mod gauges;
mod machine;
mod objects;
mod operator;
mod own_project;
mod program;
mod rights;
mod webhooks;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use konverge::Settings;
use konverge::kube::Client;
use konverge_core::ErrorChain;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::data_dir::DataDir;
use crate::description::ProjectArgs;
use crate::observer::{Observer, Page, Unread};
use crate::remote_cluster::{ClusterArgs, unusable};
use crate::run;

use checks::{DEPLOYED, SERVER, VERSION};
pub(crate) use credentials::Credentials;
use finding::{Area, Finding, Report};
pub(crate) use gauges::proxy;
use machine::{Machine, ServerFacts};
pub(crate) use objects::{ListedKind, kinds, list_path};
pub(crate) use operator::Workload;
pub(crate) use own_project::{NoProject, OwnProject};

/// How long all reads of the cluster may take together.
const READ_WITHIN: Duration = Duration::from_secs(90);

/// How long it may take to prepare a client, which may run a program that fetches credentials.
const CLIENT_WITHIN: Duration = Duration::from_secs(20);

/// How long a program that fetches credentials may still run when everything else is done.
const LEFT_WITHIN: Duration = Duration::from_millis(200);

/// The end of its help.
pub(crate) const EXAMPLES: &str = "\
Looks, and never changes anything. The exit code is 0 if there is no problem (there may be warnings), 1 if there is one, and 2 if the arguments make no sense.

Examples:
  konverge doctor
  konverge doctor --only kubeconfig,cluster --context staging
  konverge doctor --build                 compiles the operator first, and looks at what it says
  konverge doctor -o json
  konverge doctor --list                  what is looked at";

/// Arguments of `konverge doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Look at these areas only
    #[arg(long, value_enum, value_name = "AREA", value_delimiter = ',')]
    only: Vec<Area>,
    /// Compile the operator, instead of asking it as it was built last
    #[arg(long)]
    build: bool,
    /// List what is looked at, and look at nothing
    #[arg(long)]
    list: bool,
    /// How the report is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// `konverge doctor`
pub(crate) fn doctor(args: &DoctorArgs) -> ExitCode {
    let wanted = |area: Area| args.only.is_empty() || args.only.contains(&area);
    if args.list {
        let rows = checks::ALL.iter().filter(|check| wanted(check.area));
        let lines = rows.map(|check| format!("{:10}  {:15}  {}\n", check.area.word(), check.name, check.about));
        run::print(&lines.collect::<String>());
        return ExitCode::SUCCESS;
    }
    let project = OwnProject::gather(&args.project, args.build);
    let examined = block_on(async {
        let patient = Patient::observe(project, &args.cluster).await;
        patient.examine(&wanted, Timestamp::now()).await
    });
    let report = match examined {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match args.output {
        OutputFormat::Text => {
            let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            run::print(&report.text(coloured));
        }
        OutputFormat::Json => run::print(&format!("{:#}\n", report.json())),
        OutputFormat::Yaml => run::print(&serde_saphyr::to_string(&report.json()).unwrap_or_default()),
    }
    ExitCode::from(report.exit_code())
}

/// Runs what looks. A program that hangs is left behind.
pub(crate) fn block_on<T>(looking: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let found = runtime.block_on(looking);
    runtime.shutdown_timeout(LEFT_WITHIN);
    Ok(found)
}

/// All that is looked at.
pub(crate) struct Patient {
    pub project: Result<OwnProject, NoProject>,
    pub credentials: Credentials,
    pub machine: Machine,
    /// The server, or why it was not asked.
    pub server: Result<Server, String>,
    /// What runs the operator in the cluster; none without a project or a server.
    pub workload: Option<Result<Workload, Unread>>,
}

/// A server that was asked.
pub(crate) struct Server {
    pub url: String,
    pub observer: Observer,
    answer: Result<Page, Unread>,
    identity: Result<Value, Unread>,
    facts: ServerFacts,
}

impl Server {
    async fn reach(args: &ClusterArgs) -> Result<Self, String> {
        let settings = Settings {
            kubeconfig: args.kubeconfig.iter().cloned().collect(),
            context: args.context.clone(),
            ..Settings::default()
        };
        let mut config = settings.cluster().await.map_err(|error| unusable(&error))?;
        // A Pod that does not answer is a finding, and not to be asked again and again.
        config.default_retry = false;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        // Preparing a client may run a program that fetches credentials, and waits for it.
        let handle = tokio::runtime::Handle::current();
        let preparing = tokio::task::spawn_blocking(move || {
            let _inside = handle.enter();
            Client::try_from(config)
        });
        let client = tokio::time::timeout(CLIENT_WITHIN, preparing).await;
        let client = client.map_err(|_| format!("no credentials came within {} s", CLIENT_WITHIN.as_secs()))?;
        let client = client.map_err(|error| error.to_string())?.map_err(|error| ErrorChain(&error).to_string())?;
        let observer = Observer::new(client, READ_WITHIN);
        let answer = observer.page("/version", 1 << 20).await;
        let came = Timestamp::now();
        let mut facts = ServerFacts::default();
        if let Ok(page) = &answer {
            let version: Value = serde_json::from_str(&page.text).unwrap_or_default();
            facts.version = version["gitVersion"].as_str().map(str::to_owned);
            facts.date = page.date.clone().map(|date| (date, came));
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let identity = match &answer {
            Ok(_) => observer.review("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await,
            Err(error) => Err(error.clone()),
        };
        Ok(Self { url, observer, answer, identity, facts })
    }

    /// Whether it can be asked for more.
    pub(crate) fn is_usable(&self) -> bool {
        let is_api_server = credentials::server(&self.url, &self.answer).outcome == finding::Outcome::Ok;
        is_api_server && !matches!(self.identity, Err(Unread::Forbidden(_)))
    }

    /// `v1.36.4`
    pub(crate) fn version(&self) -> Option<&str> {
        self.facts.version.as_deref()
    }
}

impl Patient {
    /// Looks at everything once.
    pub(crate) async fn observe(project: Result<OwnProject, NoProject>, args: &ClusterArgs) -> Self {
        let directory = match &project {
            Ok(project) => project.directory.clone(),
            Err(_) => std::env::current_dir().unwrap_or_default(),
        };
        let credentials = Credentials::gather(args);
        let (machine, server) = tokio::join!(machine::observe(&directory), async {
            match credentials.is_usable() {
                true => Server::reach(args).await,
                false => Err("the kubeconfig names no cluster, or cannot be read".to_owned()),
            }
        });
        let mut patient = Self { project, credentials, machine, server, workload: None };
        if let (Ok(project), Ok(server)) = (&patient.project, &patient.server)
            && server.is_usable()
        {
            patient.workload = Some(Workload::observe(&server.observer, project, runs_here(project, server)).await);
        }
        patient
    }

    /// Judges it.
    pub(crate) async fn examine(&self, wanted: &impl Fn(Area) -> bool, now: Timestamp) -> Report {
        let mut findings: Vec<Finding> = Vec::new();
        let server = self.server.as_ref();
        if wanted(Area::Machine) {
            let needed = self.project.as_ref().ok().and_then(|project| project.rust_version.as_deref());
            let facts = server.ok().map(|server| &server.facts).filter(|facts| facts.version.is_some());
            findings.extend(self.machine.judge(needed.unwrap_or(env!("CARGO_PKG_RUST_VERSION")), facts));
        }
        if wanted(Area::Project) {
            match &self.project {
                Ok(project) => findings.extend(project.judge().await),
                Err(why) => findings.push(own_project::without_project(why)),
            }
        }
        if wanted(Area::Kubeconfig) {
            findings.extend(self.credentials.judge(now));
            match server {
                Ok(server) => {
                    findings.push(credentials::server(&server.url, &server.answer));
                    // Why a server does not answer is said once.
                    findings.extend(server.answer.is_ok().then(|| credentials::identity(&server.identity)));
                }
                // What is wrong with the files is said above.
                Err(why) if !self.credentials.is_usable() => findings.push(SERVER.not_checked(why.clone())),
                Err(why) => findings.push(credentials::no_client(why)),
            }
        }
        findings.extend(self.examine_cluster(wanted, now).await);
        if let Ok(server) = server {
            findings.extend(credentials::garbled(&server.url, server.observer.garbled()));
        }
        Report { findings }
    }

    async fn examine_cluster(&self, wanted: &impl Fn(Area) -> bool, now: Timestamp) -> Vec<Finding> {
        let why = match &self.server {
            Err(why) => Some(why.clone()),
            Ok(server) if !server.is_usable() => Some("the server cannot be asked; see kubeconfig".to_owned()),
            Ok(_) => None,
        };
        let mut findings = Vec::new();
        let (Ok(server), None) = (&self.server, &why) else {
            let why = why.unwrap_or_default();
            for (area, check) in [(Area::Cluster, &VERSION), (Area::Operator, &DEPLOYED)] {
                findings.extend(wanted(area).then(|| check.not_checked(why.clone())));
            }
            return findings;
        };
        let project = self.project.as_ref().ok();
        if wanted(Area::Cluster) {
            let workload = self.workload.as_ref().and_then(|workload| workload.as_ref().ok());
            let is_deployed = workload.is_some_and(|workload| workload.object.is_some());
            let (observer, url) = (&server.observer, &server.url);
            findings.extend(cluster::examine(observer, url, server.version(), project, is_deployed, now).await);
        }
        if wanted(Area::Operator) {
            match (project, &self.workload) {
                (Some(project), Some(workload)) => {
                    findings.extend(operator::examine(&server.observer, project, workload, now).await);
                }
                _ => findings.push(DEPLOYED.not_checked("there is no project here, so its operator is not known")),
            }
        }
        findings
    }
}

/// Whether `konverge dev` of this project is the server, and so may run the operator itself.
fn runs_here(project: &OwnProject, server: &Server) -> bool {
    let owner = DataDir::new(&project.directory.join(crate::args::DATA_DIR)).owner().unwrap_or_default();
    let address = |url: &str| url.split_once("://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    let at = owner.split_whitespace().last().and_then(address);
    at.is_some() && at == address(&server.url)
}
