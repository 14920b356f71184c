//! The command line: what may be asked, and its help. Nothing is done here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use konverge_apiserver::{ClusterIpRange, NodePortRange, ServiceRanges};

use crate::admission::AdmissionArgs;
use crate::audit::AuditArgs;
use crate::bundle::BundleArgs;
use crate::command_docs::{CompletionArgs, ManArgs};
use crate::control_plane::SimulationArgs;
use crate::deploy::{DeployArgs, UndeployArgs};
use crate::doctor::DoctorArgs;
use crate::generate::GenerateArgs;
use crate::image::BuildArgs;
use crate::in_flight::InFlightArgs;
use crate::install::{InstallArgs, UninstallArgs};
use crate::operator_account::OperatorRights;
use crate::operator_logs::LogsArgs;
use crate::operators::OperatorChoice;
use crate::permissions::PermissionsArgs;
use crate::project::SuperviseArgs;
use crate::run_operator::RunArgs;
use crate::scaffold::{CreateApiArgs, CreateWebhookArgs, InitArgs, UpdateArgs};
use crate::scorecard::{self, ScorecardArgs};
use crate::support::SupportArgs;
use crate::users::UserArgs;

/// Kubernetes operators from the first file to a cluster: projects, and a control plane in one process to develop and test against.
#[derive(Debug, Parser)]
#[command(name = "konverge", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How log lines on stderr look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Logs more: -v for debug, -vv for everything. RUST_LOG, if set, decides instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  konverge init --domain example.com  a new operator, in the current directory
  konverge create api --group cache --version v1alpha1 --kind Memcached
  konverge dev                        a server to develop against, on port 3000
  konverge apiserver --memory         one that forgets, on port 6443
  konverge backup monday.backup       copy the data, also of a running server
  konverge restore monday.backup --data-dir other";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a project: an operator that builds, runs and passes its tests
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Add a kind, a version or a webhook to a project
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// Bring the files of a project to the templates of this program, by a three-way merge
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(UpdateArgs),
    /// Run the API server
    #[command(after_help = APISERVER_EXAMPLES)]
    Apiserver(ApiserverArgs),
    /// Run what a developer needs: the API server, operators on it, and pages to look at it, on port 3000
    #[command(after_help = DEV_EXAMPLES)]
    Dev(DevArgs),
    /// Write a directory for KUBEBUILDER_ASSETS, so that tests with envtest run against this server
    #[command(after_help = ENVTEST_EXAMPLES, args_conflicts_with_subcommands = true)]
    Envtest(EnvtestArgs),
    /// Copy the data to a file, also while the server runs
    Backup(BackupArgs),
    /// Make a data directory from a backup
    Restore(RestoreArgs),
    /// Judge objects as the API server would, without a cluster
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate(ValidateArgs),
    /// Compare CRDs, and rewrite objects that are stored in an old version
    Crd(CrdArgs),
    /// Say which rights an operator has, which of them it used, and which it lacks
    #[command(after_help = PERMISSIONS_EXAMPLES)]
    Permissions(PermissionsArgs),
    /// Print what a shell completes
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(CompletionArgs),
    /// Print the manual page, or write those of all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Write manifests and a Helm chart of the project's operator
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
    /// Write a bundle for the Operator Lifecycle Manager (OLM), judge one, or print what installs it
    #[command(after_help = BUNDLE_EXAMPLES, args_conflicts_with_subcommands = true, disable_version_flag = true)]
    Bundle(BundleArgs),
    /// Install the CRDs of the project's operator into the cluster of the kubeconfig
    #[command(after_help = INSTALL_EXAMPLES)]
    Install(InstallArgs),
    /// Delete the CRDs of the project's operator from the cluster
    #[command(after_help = UNINSTALL_EXAMPLES)]
    Uninstall(UninstallArgs),
    /// Run the project's operator on this machine, against the cluster of the kubeconfig
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Build an image of the project's operator, with docker, podman or buildah, or without any of them
    #[command(after_help = BUILD_EXAMPLES)]
    Build(BuildArgs),
    /// Deploy the project's operator into the cluster of the kubeconfig, and wait until it runs
    #[command(after_help = DEPLOY_EXAMPLES)]
    Deploy(DeployArgs),
    /// Take a deployed operator out of the cluster
    #[command(after_help = UNDEPLOY_EXAMPLES)]
    Undeploy(UndeployArgs),
    /// Print the log of the deployed operator
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(LogsArgs),
    /// Say what is wrong with this machine, the project, the kubeconfig, the cluster or the running operator, and what to do about it
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Collect what helps somebody else to find a fault into one archive, without secrets
    #[command(after_help = crate::support::EXAMPLES)]
    Support(SupportArgs),
    /// Measure how mature the project's operator is, from level 1 to 5, by running it in an embedded control plane
    #[command(after_help = scorecard::EXAMPLES)]
    Scorecard(ScorecardArgs),
    /// Print the version
    Version,
    /// Run an operator that ends when standard input does
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

const INIT_EXAMPLES: &str = "\
Asks for what is missing if it runs at a terminal.

Examples:
  konverge init --domain example.com
  konverge init --domain example.com --dir memcached-operator
  konverge init --domain example.com --konverge-git https://example.com/konverge.git --konverge-rev 1a2b3c";

const CREATE_EXAMPLES: &str = "\
What you wrote is not touched. Where you changed the very lines that a command would change, it says what to change by hand, and exits with 1.

Examples:
  konverge create api --group cache --version v1alpha1 --kind Memcached
  konverge create api --group cache --version v1 --kind Memcached            another version, with its conversion
  konverge create api --group fleet --version v1 --kind Fleet --namespaced=false
  konverge create webhook --kind Memcached --defaulting --programmatic-validation";

const UPDATE_EXAMPLES: &str = "\
Compares three texts of each file: as the scaffold had it (in .scaffold), as you have it, and as this program would write it. Where you and the
new template changed the same lines, both are left in the file between <<<<<<< and >>>>>>>, and the exit code is 1.

Examples:
  konverge update --dry-run
  konverge update";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  source <(konverge completion bash)
  konverge completion zsh > \"${fpath[1]}/_konverge\"
  konverge completion fish > ~/.config/fish/completions/konverge.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  konverge man | man -l -
  konverge man ~/.local/share/man/man1";

const APISERVER_EXAMPLES: &str = "\
When it accepts requests it prints one line with its address and writes the kubeconfig:
  konverge apiserver ready at http://127.0.0.1:6443 (disk .konverge/data) kubeconfig .konverge/kubeconfig

Examples:
  konverge apiserver
  konverge apiserver --memory --port 0 --kubeconfig /tmp/kubeconfig
  konverge apiserver --data-dir /var/lib/konverge --tls
  konverge apiserver --controllers --nodes 3      a whole control plane
  konverge apiserver --controllers=*,-job-controller
  KUBECONFIG=.konverge/kubeconfig kubectl get namespaces";

const DEV_EXAMPLES: &str = "\
Examples:
  konverge dev
  konverge dev --memory --port 0
  konverge dev --operator all
  konverge dev --operator none
  konverge dev --samples                        the project's operator, and objects for it to work on
  konverge dev -- RUST_LOG=debug --namespace shop   variables and flags of the project's operator
  PORT=8080 konverge dev

What it does differently from `konverge apiserver`: a custom resource may be replaced without its resourceVersion, and one
that is posted into a namespace which does not exist makes the namespace.";

const VALIDATE_EXAMPLES: &str = "\
The exit code is 1 if an object is not valid, and 2 if something cannot be read.

Examples:
  konverge validate -f shop.yaml --crds crds/
  kustomize build . | konverge validate -f - --crds crds/
  konverge validate -f shop.yaml --crds crds/ -o yaml     the objects with their defaults";

const DIFF_EXAMPLES: &str = "\
The exit code is 1 if something breaks, and 2 if something cannot be read.

Examples:
  konverge crd diff old.yaml new.yaml
  git show main:crds/shop.yaml > old.yaml && konverge crd diff old.yaml crds/shop.yaml
  konverge crd diff released/crds crds -o json";

const ENVTEST_EXAMPLES: &str = "\
Examples:
  konverge envtest bin/konverge
  export KUBEBUILDER_ASSETS=$PWD/bin/konverge
  go test ./...

  eval \"$(konverge envtest env)\"        the same in the current shell";

const PERMISSIONS_EXAMPLES: &str = "\
The server notes what each service account asks for since it started. Let the operator do all that it can do (run its tests,
create and delete its objects), and ask then.

Examples:
  konverge permissions                          of the operator that `konverge dev` runs
  konverge permissions shop/my-operator
  konverge permissions -o roles > role.yaml     the least roles that would have been enough
  konverge permissions --check                  exit code 1 if rights were never used or are lacking";

/// Arguments of `konverge create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// What to add.
    #[command(subcommand)]
    pub command: CreateCommand,
}

/// The subcommands of `konverge create`.
#[derive(Debug, Subcommand)]
pub(crate) enum CreateCommand {
    /// Add a kind, or another version of one
    #[command(disable_version_flag = true, after_help = CREATE_API_EXAMPLES)]
    Api(CreateApiArgs),
    /// Add functions that default, refuse or convert the objects of a kind
    #[command(disable_version_flag = true, after_help = CREATE_WEBHOOK_EXAMPLES)]
    Webhook(CreateWebhookArgs),
}

const CREATE_API_EXAMPLES: &str = "\
Examples:
  konverge create api --group cache --version v1alpha1 --kind Memcached
  konverge create api --group cache --version v1 --kind Memcached      copies the types of v1alpha1, and converts between both
  konverge create api --group fleet --version v1 --kind Fleet --namespaced=false --controller=false";

const CREATE_WEBHOOK_EXAMPLES: &str = "\
Examples:
  konverge create webhook --kind Memcached --defaulting --programmatic-validation
  konverge create webhook --group cache --version v1 --kind Memcached --conversion --spoke v1alpha1";

const GENERATE_EXAMPLES: &str = "\
The operator is built, and asked which CRDs, rights and webhooks it has. Files that carry the line `Generated by konverge` are replaced, or removed
if they are not needed any more; all others are yours and stay.

Examples:
  konverge generate all
  konverge generate all --check                 in CI: exit code 1 if files are stale
  konverge generate manifests && kubectl apply --server-side -k config/default
  konverge generate chart && helm install shop charts/shop --namespace shop-system --create-namespace";

const BUNDLE_EXAMPLES: &str = "\
The operator is built and asked as for `konverge generate`. [package.metadata.konverge.bundle] in Cargo.toml has what catalogs show: icon, provider,
categories, links. Objects in config/samples are its examples.

Examples:
  konverge bundle
  konverge bundle --version 1.2.0 --channels stable,fast --default-channel stable --replaces 1.1.0
  konverge bundle --check                       in CI: exit code 1 if files are stale
  konverge bundle validate bundle --select-optional suite=operatorframework
  konverge bundle subscription | kubectl apply -f -";

const INSTALL_EXAMPLES: &str = "\
Examples:
  konverge install
  konverge install --context staging --dry-run";

const UNINSTALL_EXAMPLES: &str = "\
CRDs that have objects are deleted after a question, because their objects are deleted with them.

Examples:
  konverge uninstall --dry-run
  konverge uninstall
  konverge uninstall --yes";

const RUN_EXAMPLES: &str = "\
The CRDs must be there: `konverge install`. What follows -- are flags of the operator.

Examples:
  konverge install && konverge run
  konverge run -- --namespace shop --log-level debug
  konverge run --webhook-url https://laptop.example.com:9443";

const BUILD_EXAMPLES: &str = "\
With a Dockerfile and an engine that works, the engine builds the image. Otherwise it is made here, as an archive in the OCI layout: the operator as a
static binary, and the list of what is compiled into it, which is also beside the archive.

Examples:
  konverge build
  konverge build --tag ghcr.io/acme/shop:1.2.0 --push
  konverge build --engine none --archive shop.oci.tar && podman load -i shop.oci.tar
  konverge build -- --build-context konverge=../konverge      more arguments for docker";

const DEPLOY_EXAMPLES: &str = "\
Applies what `konverge generate manifests` would write, by server-side apply, and deletes what an earlier deploy made and this one does not have.
The exit code is 1 if the new Pods do not become available in time; what they complain about is printed.

Examples:
  konverge deploy
  konverge deploy --image ghcr.io/acme/shop:1.2.0 --context staging
  konverge deploy --dry-run
  konverge deploy --kustomize config/overlays/production
  helm template charts/shop | konverge deploy -f -";

const UNDEPLOY_EXAMPLES: &str = "\
CRDs are deleted first, while the operator runs and can clean up after its objects. A namespace that `konverge deploy` did not make stays.

Examples:
  konverge undeploy --dry-run         says what would be deleted
  konverge undeploy --keep-crds       the objects stay
  konverge undeploy                   asks before it deletes CRDs that have objects
  konverge undeploy --yes";

const LOGS_EXAMPLES: &str = "\
Examples:
  konverge logs --follow
  konverge logs --previous --tail 50";

/// Arguments of `konverge envtest`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvtestArgs {
    #[command(flatten)]
    pub directory: EnvtestDirectory,
    /// What to do instead.
    #[command(subcommand)]
    pub command: Option<EnvtestCommand>,
}

/// The subcommands of `konverge envtest`.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvtestCommand {
    /// Write the directory if need be, and print the line that sets KUBEBUILDER_ASSETS
    Env(EnvtestDirectory),
}

/// Where `konverge envtest` writes.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvtestDirectory {
    /// The directory to write
    #[arg(value_name = "DIR", default_value = ENVTEST_DIR)]
    pub directory: PathBuf,
}

/// Where `konverge envtest` writes unless it is told otherwise.
const ENVTEST_DIR: &str = ".konverge/envtest";

/// Arguments of `konverge apiserver`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApiserverArgs {
    /// The address to listen on. Others than loopback need --tls
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub bind: IpAddr,
    /// The port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    #[command(flatten)]
    pub storage: StorageArgs,
    /// Where to write the kubeconfig when ready [default: kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve HTTPS only. Without this, the port speaks HTTP as well
    #[arg(long)]
    pub tls: bool,
    /// Another name or address the certificate is for; may be repeated
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub tls_name: Vec<String>,
    #[command(flatten)]
    pub users: UserArgs,
    /// Run controllers and simulate pods, so that this is a whole control plane. NAMES as kube-controller-manager takes
    /// them: `*` (which is the default) for all, NAME for one, -NAME for all but one
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Option<Vec<String>>,
    #[command(flatten)]
    pub simulation: SimulationArgs,
    #[command(flatten)]
    pub admission: AdmissionArgs,
    #[command(flatten)]
    pub in_flight: InFlightArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub services: ServiceArgs,
}

/// Where the addresses and ports of services come from.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    /// The IPv4 network of cluster IPs
    #[arg(long, value_name = "CIDR", default_value_t = ClusterIpRange::default())]
    pub service_cluster_ip_range: ClusterIpRange,
    /// The ports of services of type NodePort
    #[arg(long, value_name = "FIRST-LAST", default_value_t = NodePortRange::default())]
    pub service_node_port_range: NodePortRange,
}

impl ServiceArgs {
    /// The ranges.
    pub(crate) fn ranges(self) -> ServiceRanges {
        ServiceRanges { cluster_ips: self.service_cluster_ip_range, node_ports: self.service_node_port_range }
    }
}

/// Arguments of `konverge dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    /// The address to listen on. On others than loopback it serves HTTPS only, and every request needs a credential
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub bind: IpAddr,
    /// Another name or address the certificate is for; may be repeated
    #[arg(long, value_name = "NAME")]
    pub tls_name: Vec<String>,
    /// The operators to run, of those that come with the program: application, webapp, myapp; or all, or none. Without
    /// this, the operator whose project the current directory is; elsewhere application
    #[arg(long, value_name = "NAME[,NAME]")]
    pub operator: Option<OperatorChoice>,
    /// What operators may do: what they declare, as on a cluster, or everything
    #[arg(long, value_enum, default_value_t = OperatorRights::Declared)]
    pub operator_rights: OperatorRights,
    /// The binary of the project that is the operator, if it has several
    #[arg(long, value_name = "NAME", conflicts_with = "operator")]
    pub bin: Option<String>,
    /// Apply samples once the operator runs: those of DIR [default: config/samples of the project]
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub samples: Option<Option<PathBuf>>,
    /// Variables and flags of the project's operator: NAME=VALUE … --flag …
    #[arg(last = true, value_name = "FLAGS", conflicts_with = "operator")]
    pub flags: Vec<String>,
    /// The port to listen on; 0 picks a free one
    #[arg(long, env = "PORT", default_value_t = 3000)]
    pub port: u16,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub users: UserArgs,
    /// The controllers to run, as kube-controller-manager takes it: `*` for all, NAME for one, -NAME for all but one.
    /// Another program may do the part of those that do not run
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    #[command(flatten)]
    pub simulation: SimulationArgs,
    #[command(flatten)]
    pub admission: AdmissionArgs,
    #[command(flatten)]
    pub in_flight: InFlightArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub services: ServiceArgs,
}

/// Where a server has its data unless it is told otherwise: in the current directory, or in that of the project.
pub(crate) const DATA_DIR: &str = ".konverge";

/// Where objects are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct StorageArgs {
    /// The directory for objects, certificates and the kubeconfig; made if it is not there. What was acknowledged is
    /// there after a crash
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Keep objects in memory only; they are gone with the process
    #[arg(long)]
    pub memory: bool,
}

/// Arguments of `konverge validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// The objects: a file, a directory, or - for standard input; may be repeated
    #[arg(short, long, value_name = "PATH", required = true)]
    pub filename: Vec<PathBuf>,
    /// The CRDs: a file or a directory; may be repeated. Kinds of Kubernetes itself need none
    #[arg(long, value_name = "PATH")]
    pub crds: Vec<PathBuf>,
    /// What is printed: verdicts as text or json, or as yaml the objects with their defaults
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

/// Arguments of `konverge crd`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrdArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CrdCommand,
}

/// The subcommands of `konverge crd`.
#[derive(Debug, Subcommand)]
pub(crate) enum CrdCommand {
    /// Say what a new CRD breaks for those who use the old one
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(CrdDiffArgs),
    /// Write all objects of a CRD in the version that is stored now, and say so in its storedVersions
    Migrate(CrdMigrateArgs),
}

/// Arguments of `konverge crd diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrdDiffArgs {
    /// The old CRDs: a file or a directory
    pub old: PathBuf,
    /// The new CRDs: a file or a directory
    pub new: PathBuf,
    /// What is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

/// Arguments of `konverge crd migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrdMigrateArgs {
    /// The names of CRDs: shops.example.com
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The kubeconfig of the cluster [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// How a command prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For kubectl.
    Yaml,
}

/// Arguments of `konverge backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// The file to write; never one that is there already
    pub file: PathBuf,
    /// The data directory the server was started with
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
}

/// Arguments of `konverge restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The backup to read
    pub file: PathBuf,
    /// The data directory to make; it must hold no objects yet
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
