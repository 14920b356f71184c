//! The settings as flags. In: a command line. Out: which row of the table each flag sets, and to what. Values are read
//! later, with those of the other sources, so that all errors sound alike.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::table::{Setting, TABLE};
use super::{Print, Settings};

/// The flags that were given. Flatten it into a command line of your own:
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
    /// Rows of the table with what was said.
    pub(super) values: Vec<(usize, String)>,
    pub(super) config: Option<PathBuf>,
    pub(super) report: bool,
    pub(super) print: Option<Print>,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(args()).after_help(STRENGTH)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values = Vec::new();
        for (i, row) in TABLE.iter().enumerate() {
            if let Some(said) = matches.get_many::<String>(row.flag) {
                let said: Vec<&str> = said.map(String::as_str).collect();
                // Names add up; of anything else the last word counts, as with Go's flags.
                values.push((i, if is_list(row) { said.join(",") } else { said[said.len() - 1].into() }));
            }
        }
        let config = matches.get_one::<PathBuf>(CONFIG).cloned();
        let print = [(CRDS, Print::Crds), (RBAC, Print::Rbac)].into_iter().find(|(flag, _)| matches.get_flag(flag));
        let print = print.map(|(_, print)| print);
        Ok(Flags { values, config, report: matches.get_flag(REPORT), print })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The variable that names the file.
pub(super) const CONFIG_VARIABLE: &str = "KONVERGE_CONFIG";

pub(super) const STRENGTH: &str = "\
A setting can be given in several places. The strongest is what the operator's own code sets, then the flag, then the
variable, then the file; where nothing is said, the default holds. --print-config shows what comes out, and from where.

The file is YAML; the dots of a key are its levels:
  metrics:
    bindAddress: :9090
  maxConcurrentReconciles: 4";

const CONFIG: &str = "config";
const REPORT: &str = "print-config";
const CRDS: &str = "print-crds";
const RBAC: &str = "print-rbac";
const HEADING: &str = "Operator settings";

/// A command that knows nothing but the settings.
pub(super) fn command(defaults: &Settings) -> Command {
    Command::new("operator").args(args_with(defaults)).after_help(STRENGTH)
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
    let answer =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let answers = [
        answer(REPORT, "Print every setting with where it comes from, in the form of the file, and exit"),
        answer(CRDS, "Print the CRDs of the operator's kinds as YAML, for kubectl apply --server-side -f -, and exit"),
        answer(RBAC, "Print what the operator has to be allowed (ServiceAccount, roles, bindings) as YAML, and exit"),
    ];
    let settings = TABLE.iter().map(|row| arg(row, defaults));
    let mut args: Vec<Arg> = [config].into_iter().chain(answers).chain(settings).collect();
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
        // Lets -1 arrive, to be refused in the same words as everywhere.
        .allow_negative_numbers(true)
        .help(help);
    if row.is_switch() { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

fn is_list(row: &Setting) -> bool {
    row.value == "NAMES"
}
