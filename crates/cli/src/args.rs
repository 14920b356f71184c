//! The command line: what may be asked, and its help. Nothing is done here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use konverge_apiserver::{ClusterIpRange, NodePortRange, ServiceRanges};

use crate::admission::AdmissionArgs;
use crate::control_plane::SimulationArgs;
use crate::in_flight::InFlightArgs;
use crate::operator_account::OperatorRights;
use crate::operators::OperatorChoice;
use crate::permissions::PermissionsArgs;
use crate::project::SuperviseArgs;
use crate::users::UserArgs;

/// A Kubernetes API server in one process, for developing and testing operators.
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
  konverge dev                        a server to develop against, on port 3000
  konverge apiserver --memory         one that forgets, on port 6443
  konverge backup monday.backup       copy the data, also of a running server
  konverge restore monday.backup --data-dir other";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    /// Print the version
    Version,
    /// Run an operator that ends when standard input does
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

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
