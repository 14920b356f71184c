//! Errors of settings. In: a source, a setting, its value. Out: a sentence that names all three and says which values are
//! accepted.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use konverge_core::ErrorChain;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The default.
    Default,
    /// A key of the settings file.
    File {
        /// The file.
        file: PathBuf,
        /// The key in it, with dots.
        key: String,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
    /// The operator's own code.
    Code,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { file, key } => write!(f, "{key} in {}", file.display()),
            Source::Environment(name) => write!(f, "variable {name}"),
            Source::Flag(name) => write!(f, "flag {name}"),
            Source::Code => f.write_str("code"),
        }
    }
}

/// Why settings could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value is invalid.
    #[error("{origin}: {value:?} cannot be used for {setting}: {why}; it takes {accepts}", origin = .from)]
    Value {
        /// The source of the value.
        from: Source,
        /// The setting, as it is called in the file.
        setting: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
        /// Which values are accepted.
        accepts: &'static str,
    },
    /// A key in the file that is no setting.
    #[error("{}: there is no setting {key:?}{}", .file.display(), did_you_mean(.meant))]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// The key, with dots.
        key: String,
        /// The setting it resembles.
        meant: Option<&'static str>,
    },
    /// The file cannot be read.
    #[error("cannot read the settings file {}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not YAML, or not of the shape that settings have.
    #[error("{}: {why}", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The command line cannot be understood.
    #[error("{}", .0.to_string().trim_start_matches("error: ").trim_end())]
    Flags(clap::Error),
    /// No error: the user asked for `--help` or `--print-config`. Print the text and exit.
    #[error("{0}")]
    Asked(String),
}

impl SettingsError {
    /// Ends the process: prints what was asked for to stdout and exits with 0, or prints the error to stderr and exits with 2.
    pub fn exit(self) -> ! {
        match self {
            SettingsError::Flags(error) => error.exit(),
            SettingsError::Asked(text) => {
                // A reader that has seen enough, as in `--help | head`, is no reason to complain.
                let _ = std::io::stdout().write_all(text.as_bytes());
                std::process::exit(0)
            }
            error => {
                // Whoever closed stderr does not want to know; the exit code says it all the same.
                let _ = writeln!(std::io::stderr(), "error: {}", ErrorChain(&error));
                std::process::exit(2)
            }
        }
    }
}

fn did_you_mean(meant: &Option<impl AsRef<str>>) -> String {
    meant.as_ref().map(|meant| format!("; did you mean {:?}?", meant.as_ref())).unwrap_or_default()
}

/// The candidate that needs the fewest keystrokes to become `word`, if they are few.
pub(super) fn nearest<S: AsRef<str>>(word: &str, candidates: impl IntoIterator<Item = S>) -> Option<S> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate.as_ref()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.as_ref().len() / 3)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, taken out or exchanged; capitals, `_` and `-` do not count.
fn distance(a: &str, b: &str) -> usize {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
    };
    let (a, b) = (plain(a), plain(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let swap = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = swap.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
