//! Merges the sources of settings. In: defaults, a file, the environment, flags, code. Out: settings, with the source of each
//! value and what it overrides. The precedence is decided here and nowhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use clap::error::ErrorKind;

use super::error::{SettingsError, Source, nearest};
use super::flags::{self, CONFIG_VARIABLE, Flags};
use super::table::{Setting, TABLE, together};
use super::{Settings, file, value};

/// Loads settings from several sources. The strongest is `code`, then `flags` or `args`, then `environment` and the file
/// that either of them names, then `defaults`.
#[derive(Default)]
pub struct Loader {
    defaults: Settings,
    args: Option<Vec<OsString>>,
    flags: Flags,
    variables: BTreeMap<String, String>,
    code: Vec<Change>,
}

type Change = Box<dyn FnOnce(&mut Settings)>;

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Loader { defaults, args, flags, code, .. } = self;
        // The environment has other people's secrets in it.
        f.debug_struct("Loader")
            .field("defaults", defaults)
            .field("args", args)
            .field("flags", flags)
            .field("code", &code.len())
            .finish_non_exhaustive()
    }
}

impl Loader {
    /// The operator's own defaults, weaker than every other source.
    pub fn defaults(mut self, defaults: Settings) -> Self {
        self.defaults = defaults;
        self
    }

    /// Takes a whole command line. Its first word is the program, whose name becomes the operator's.
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.args = Some(args.into_iter().map(Into::into).collect());
        self
    }

    /// Takes flags that a command line of the operator's own has read.
    pub fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// Takes variables: `std::env::vars_os()`, or some made up for a test.
    pub fn environment<I, K, V>(mut self, variables: I) -> Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<OsString>,
        V: Into<OsString>,
    {
        let text = |os: OsString| os.to_string_lossy().into_owned();
        self.variables = variables.into_iter().map(|(name, value)| (text(name.into()), text(value.into()))).collect();
        self
    }

    /// A change by the operator's code, stronger than every other source. It may be called several times.
    ///
    /// ```
    /// # use konverge::{Settings, Source};
    /// let loaded = Settings::loader()
    ///     .environment([("NAMESPACE", "shop"), ("KONVERGE_LOG_LEVEL", "debug")])
    ///     .code(|settings| settings.namespaces.clear())
    ///     .load()?;
    /// assert!(loaded.settings.namespaces.is_empty());
    /// assert_eq!(loaded.source("namespaces"), Some(&Source::Code));
    /// # Ok::<(), konverge::SettingsError>(())
    /// ```
    pub fn code(mut self, change: impl FnOnce(&mut Settings) + 'static) -> Self {
        self.code.push(Box::new(change));
        self
    }

    /// Reads all sources. `--help` and `--print-config` come back as [`SettingsError::Asked`].
    pub fn load(mut self) -> Result<Loaded, SettingsError> {
        if let Some(args) = self.args.take() {
            self.name_after(args.first());
            self.flags = self.parse(args)?;
        }
        let report = self.flags.report;
        let loaded = self.merge()?;
        if report { Err(SettingsError::Asked(loaded.report())) } else { Ok(loaded) }
    }

    /// As [`Loader::load`], but answers `--help` and `--print-config` on stdout and ends the process.
    pub fn load_or_answer(self) -> Result<Loaded, SettingsError> {
        match self.load() {
            Err(asked @ SettingsError::Asked(_)) => asked.exit(),
            other => other,
        }
    }

    fn name_after(&mut self, program: Option<&OsString>) {
        let stem = program.and_then(|program| Path::new(program).file_stem()).map(|stem| stem.to_string_lossy());
        if let Some(name) = stem.and_then(|stem| value::manager(&stem).ok())
            && self.defaults.name == Settings::default().name
        {
            self.defaults.name = name;
        }
    }

    fn parse(&self, args: Vec<OsString>) -> Result<Flags, SettingsError> {
        let matches = flags::command(&self.defaults).try_get_matches_from(args);
        matches.and_then(|matches| Flags::from_arg_matches(&matches)).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp => SettingsError::Asked(error.to_string()),
            _ => SettingsError::Flags(error),
        })
    }

    /// The file, if there is one: the flag is stronger.
    fn file(&self) -> Option<PathBuf> {
        let variable = || self.variables.get(CONFIG_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
        self.flags.config.clone().or_else(variable)
    }

    fn merge(self) -> Result<Loaded, SettingsError> {
        let (path, entries) = match self.file() {
            Some(path) => (path.clone(), file::open(&path)?),
            None => (PathBuf::new(), Vec::new()),
        };
        let mut settings = Settings { print: self.flags.print, ..self.defaults };
        let mut origins = Vec::with_capacity(TABLE.len());
        for (i, row) in TABLE.iter().enumerate() {
            let in_file = entries.iter().find(|entry| entry.row == i);
            let in_file = in_file.map(|e| (Source::File { file: path.clone(), key: e.key.clone() }, e.value.as_str()));
            let variable = row.variables().find_map(|name| {
                let value = self.variables.get(&name)?;
                (row.empty || !value.is_empty()).then_some((Source::Environment(name), value.as_str()))
            });
            let flag = self.flags.values.iter().find(|(row, _)| *row == i);
            let flag = flag.map(|(_, value)| (Source::Flag(format!("--{}", row.flag)), value.as_str()));
            let mut origin = Origin { source: Source::Default, overruled: Vec::new() };
            // Weakest first. A value that is overruled must be good too: what it hides behind may go away.
            for (source, value) in [in_file, variable, flag].into_iter().flatten() {
                (row.set)(&mut settings, value).map_err(|why| refuse(row, source.clone(), value, why))?;
                origin.overrule(source);
            }
            origins.push(origin);
        }
        let before: Vec<String> = TABLE.iter().map(|row| (row.get)(&settings)).collect();
        self.code.into_iter().for_each(|change| change(&mut settings));
        for ((row, origin), before) in TABLE.iter().zip(&mut origins).zip(before) {
            if (row.get)(&settings) != before {
                origin.overrule(Source::Code);
            }
        }
        check(&settings, |row| origins[row].source.clone())?;
        let warnings = strays(&self.variables);
        Ok(Loaded { settings, origins, warnings, rust_log: self.variables.get("RUST_LOG").cloned() })
    }
}

/// Settings with their sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Warnings to be logged: variables with names that are almost settings.
    pub warnings: Vec<String>,
    origins: Vec<Origin>,
    rust_log: Option<String>,
}

#[derive(Clone, Debug)]
struct Origin {
    source: Source,
    overruled: Vec<Source>,
}

impl Origin {
    fn overrule(&mut self, source: Source) {
        match std::mem::replace(&mut self.source, source) {
            Source::Default => {}
            weaker => self.overruled.insert(0, weaker),
        }
    }
}

impl Loaded {
    /// The source of a setting, by its key in the file; `None` if there is no such setting.
    pub fn source(&self, key: &str) -> Option<&Source> {
        let row = TABLE.iter().position(|row| row.keys().any(|known| known == key))?;
        Some(&self.origins[row].source)
    }

    /// Every setting with its source, in the form of the file: what `--print-config` prints.
    pub fn report(&self) -> String {
        let mut text = String::from("# strongest first: code, flags, environment, file, defaults\n");
        let mut section = "";
        for (row, origin) in TABLE.iter().zip(&self.origins) {
            let (parent, name) = row.key.split_once('.').unwrap_or(("", row.key));
            if parent != section && !parent.is_empty() {
                let _ = writeln!(text, "{parent}:");
            }
            section = parent;
            let indent = if parent.is_empty() { "" } else { "  " };
            let line = format!("{indent}{name}: {}", yaml(&(row.get)(&self.settings)));
            let _ = write!(text, "{line:40} # {}", origin.source);
            for (i, weaker) in origin.overruled.iter().enumerate() {
                let _ = write!(text, "{} {weaker}", if i == 0 { ", over" } else { " and" });
            }
            match &self.rust_log {
                Some(filter) if row.key == "logging.level" && !filter.is_empty() => {
                    let _ = writeln!(text, "; RUST_LOG decides instead: {filter}");
                }
                _ => text.push('\n'),
            }
        }
        text
    }
}

/// Whether every value can be used: each is shown and read again, then those that belong together are compared.
pub(super) fn check(settings: &Settings, source: impl Fn(usize) -> Source) -> Result<(), SettingsError> {
    let mut scratch = settings.clone();
    for (i, row) in TABLE.iter().enumerate() {
        let value = (row.get)(settings);
        (row.set)(&mut scratch, &value).map_err(|why| refuse(row, source(i), &value, why))?;
    }
    together(settings).map_err(|(key, why)| {
        let i = TABLE.iter().position(|row| row.key == key).expect("together names rows of the table");
        refuse(&TABLE[i], source(i), &(TABLE[i].get)(settings), why)
    })
}

fn refuse(row: &Setting, from: Source, value: &str, why: String) -> SettingsError {
    SettingsError::Value { from, setting: row.key, value: value.into(), why, accepts: row.accepts }
}

/// Says where members of Raft are; their configuration reads it, and not the settings.
const RAFT_PEERS_VARIABLE: &str = "KONVERGE_RAFT_PEERS";

/// Variables that begin as ours do and are no settings.
fn strays(variables: &BTreeMap<String, String>) -> Vec<String> {
    let ours: Vec<String> = TABLE.iter().map(Setting::variable).chain([CONFIG_VARIABLE.into()]).collect();
    variables
        .iter()
        .filter(|(name, _)| !(cfg!(feature = "ha") && *name == RAFT_PEERS_VARIABLE))
        .filter_map(|(name, value)| Some((name, name.strip_prefix("KONVERGE_")?, value)))
        .filter(|(name, _, _)| !ours.contains(name))
        .filter_map(|(name, rest, value)| match nearest(rest, ours.iter().map(|ours| &ours["KONVERGE_".len()..])) {
            Some(meant) => Some(format!("variable {name} is not a setting; did you mean KONVERGE_{meant}?")),
            None if is_of_a_service(rest, value) => None,
            None => Some(format!("variable {name} is not a setting; --help lists those that are")),
        })
        .collect()
}

/// Whether the kubelet sets such a variable in every Pod beside a Service whose name begins with `konverge`:
/// `KONVERGE_PORT`, `KONVERGE_SERVICE_HOST`, `KONVERGE_WEB_PORT_80_TCP_ADDR`.
fn is_of_a_service(rest: &str, value: &str) -> bool {
    let words: Vec<&str> = rest.split('_').collect();
    words.ends_with(&["PORT"]) && value.contains("://")
        || words.windows(2).any(|two| matches!(two, ["SERVICE", "HOST" | "PORT"]))
        || words.windows(2).any(|two| two[0] == "PORT" && two[1].parse::<u16>().is_ok())
}

/// Plain where YAML would read it back as it is, else in quotes.
fn yaml(value: &str) -> String {
    let word = value.starts_with(|c: char| c.is_ascii_lowercase())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !["null", "yes", "no", "on", "off", "y", "n"].contains(&value);
    let number = value.parse::<f64>().is_ok_and(|number| number.to_string() == value);
    if word || number { value.into() } else { serde_json::Value::from(value).to_string() }
}
