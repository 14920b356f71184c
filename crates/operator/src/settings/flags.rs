//! Settings as command line flags. In: a command line. Out: for each flag its row in the table of settings and its value.
//! Values are parsed later, together with those of other sources, so that all errors have the same form.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::table::{Setting, TABLE};
use super::{Print, Settings};

/// The flags of a command line. Flatten this struct into the arguments of your own program:
///
/// ```
/// use clap::Parser;
/// use konverge::{Flags, Settings};
///
/// #[derive(Parser)]
/// struct Args {
///     /// How warm.
///     #[arg(long, default_value_t = 20)]
///     degrees: u8,
///     #[command(flatten)]
///     operator: Flags,
/// }
///
/// let args = Args::parse_from(["heating", "--degrees=21", "--namespace=cellar"]);
/// let settings = Settings::loader().flags(args.operator).load()?.settings;
/// assert_eq!((args.degrees, settings.namespaces), (21, vec!["cellar".to_string()]));
/// # Ok::<(), konverge::SettingsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The values that were given, by row of the table.
    pub(super) values: Vec<(usize, String)>,
    pub(super) config: Option<PathBuf>,
    pub(super) report: bool,
    pub(super) print: Option<Print>,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(args()).after_help(PRECEDENCE)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values = Vec::new();
        for (i, row) in TABLE.iter().enumerate() {
            if let Some(given) = matches.get_many::<String>(row.flag) {
                let given: Vec<&str> = given.map(String::as_str).collect();
                // Lists are joined; of other flags the last value counts, as with Go's flags.
                values.push((i, if is_list(row) { given.join(",") } else { given[given.len() - 1].into() }));
            }
        }
        let config = matches.get_one::<PathBuf>(CONFIG).cloned();
        let prints = [
            (CRDS, Print::Crds),
            (RBAC, Print::Rbac),
            (WEBHOOKS, Print::Webhooks),
            #[cfg(feature = "ha")]
            (STATEFUL_SET, Print::StatefulSet),
        ];
        let print = prints.into_iter().find(|(flag, _)| matches.get_flag(flag));
        let print = print.map(|(_, print)| print);
        Ok(Flags { values, config, report: matches.get_flag(REPORT), print })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The environment variable that names the settings file.
pub(super) const CONFIG_VARIABLE: &str = "KONVERGE_CONFIG";

pub(super) const PRECEDENCE: &str = "\
A setting can be given in several places. The operator's own code has precedence, then the flag, then the variable, then
the file, then the default. --print-config shows the value of each setting, and where it comes from.

The file is YAML; a dot in a key is a level of nesting:
  metrics:
    bindAddress: :9090
  maxConcurrentReconciles: 4";

const CONFIG: &str = "config";
const REPORT: &str = "print-config";
const CRDS: &str = "print-crds";
const RBAC: &str = "print-rbac";
const WEBHOOKS: &str = "print-webhooks";
#[cfg(feature = "ha")]
const STATEFUL_SET: &str = "print-statefulset";
const HEADING: &str = "Operator settings";

/// A command whose only arguments are the settings.
pub(super) fn command(defaults: &Settings) -> Command {
    Command::new("operator").args(args_with(defaults)).after_help(PRECEDENCE)
}

pub(super) fn args() -> Vec<Arg> {
    args_with(&Settings::default())
}

fn args_with(defaults: &Settings) -> Vec<Arg> {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help(format!("A YAML file with settings [env: {CONFIG_VARIABLE}]"));
    let print_flag =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let print_flags = [
        print_flag(REPORT, "Print every setting and its source, in the form of the settings file, and exit"),
        print_flag(
            CRDS,
            "Print the CRDs of the operator's kinds as YAML, for kubectl apply --server-side -f -, and exit",
        ),
        print_flag(
            RBAC,
            "Print the RBAC objects that the operator needs (ServiceAccount, roles, bindings) as YAML, and exit",
        ),
        print_flag(
            WEBHOOKS,
            "Print what the operator's webhooks need (configurations, Service, roles for certificates) as YAML, and exit",
        ),
        #[cfg(feature = "ha")]
        print_flag(
            STATEFUL_SET,
            "Print what runs the operator with a leader elected by Raft (StatefulSet, Service, PodDisruptionBudget, \
             NetworkPolicy) as YAML, and exit",
        ),
    ];
    let settings = TABLE.iter().map(|row| arg(row, defaults));
    let mut args: Vec<Arg> = [config].into_iter().chain(print_flags).chain(settings).collect();
    for arg in &mut args {
        *arg = arg.clone().help_heading(HEADING);
    }
    args
}

fn arg(row: &Setting, defaults: &Settings) -> Arg {
    let variables: Vec<String> = row.variables().collect();
    let keys: Vec<&str> = row.keys().collect();
    let mut help = format!("{}. Takes {}", row.help, row.accepts);
    help += &format!(" [env: {}] [file: {}]", variables.join(", "), keys.join(", "));
    match (row.get)(defaults) {
        none if none.is_empty() => {}
        value => help += &format!(" [default: {value}]"),
    }
    let arg = Arg::new(row.flag)
        .long(row.flag)
        .visible_aliases(row.flags.to_vec())
        .value_name(row.value)
        .action(ArgAction::Append)
        // Accepts -1 here, so that the error about it is the same as for other sources.
        .allow_negative_numbers(true)
        .help(help);
    if row.is_switch() { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

fn is_list(row: &Setting) -> bool {
    row.value == "NAMES"
}
