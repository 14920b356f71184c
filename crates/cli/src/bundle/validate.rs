//! `konverge bundle validate`: a bundle judged before a catalog does it. In: a directory. Out: what the rules that operator-framework publishes say of it,
//! and what to change; exit code 1 if something is wrong, 2 if the bundle cannot be read.
//!
//! ```text
//! load            a directory → objects and annotations; what is wrong with its form
//! csv_rules       the ClusterServiceVersion
//! content_rules   what the objects of a bundle have to do with each other, and with an API server
//! hub_rules       what catalogs ask for: operatorhubv2, capabilities, categories
//! good_practices  what is allowed and regretted
//! removed_apis    what newer clusters do not serve
//! ```

mod content_rules;
mod csv_rules;
mod good_practices;
mod hub_rules;
mod load;
mod removed_apis;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use konverge_core::ErrorChain;
use semver::Version;
use serde_json::{Value, json};

use super::files::BUNDLE;
use crate::args::OutputFormat;
use crate::counted::counted;

pub(super) use load::{LoadError, LoadedBundle};

pub(super) const EXAMPLES: &str = "\
The rules of the format, of the ClusterServiceVersion and of CRDs always hold; --select-optional adds others under the names that operator-sdk has for
them. Warnings leave the exit code 0.

Examples:
  konverge bundle validate bundle
  konverge bundle validate bundle --select-optional suite=operatorframework
  konverge bundle validate bundle --select-optional name=good-practices -o json
  konverge bundle validate bundle --select-optional name=alpha-deprecated-apis --optional-values k8s-version=1.26
  konverge bundle validate --list-optional";

/// Arguments of `konverge bundle validate`.
#[derive(Debug, clap::Args)]
pub(super) struct ValidateBundleArgs {
    /// The bundle
    #[arg(value_name = "DIR", default_value = BUNDLE)]
    directory: PathBuf,
    /// More rules: name=NAME or suite=operatorframework; may be repeated
    #[arg(long, value_name = "LABEL=VALUE")]
    select_optional: Vec<String>,
    /// Values for rules: k8s-version=1.26, the release of the clusters that the bundle is for
    #[arg(long, value_name = "KEY=VALUE")]
    optional_values: Vec<String>,
    /// List the rules that --select-optional takes
    #[arg(long)]
    list_optional: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Error,
    Warning,
}

/// Something that is wrong with a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub level: Level,
    /// Below the bundle; empty if no single file is to blame.
    pub file: String,
    /// What is wrong, and what to do.
    pub words: String,
}

impl Finding {
    fn error(file: &str, words: impl Into<String>) -> Self {
        Self { level: Level::Error, file: file.to_owned(), words: words.into() }
    }

    fn warning(file: &str, words: impl Into<String>) -> Self {
        Self { level: Level::Warning, file: file.to_owned(), words: words.into() }
    }
}

/// The suite of the rules that most catalogs ask for.
const SUITE: &str = "operatorframework";

/// Rules that hold only if somebody asks for them.
struct OptionalRules {
    name: &'static str,
    is_in_suite: bool,
    about: &'static str,
    judge: fn(&LoadedBundle, &Options) -> Vec<Finding>,
}

/// What rules may be told.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// The release of the clusters that the bundle is for.
    pub kubernetes: Option<Version>,
}

const OPTIONAL: [OptionalRules; 6] = [
    OptionalRules {
        name: "operatorhubv2",
        is_in_suite: true,
        about: "what OperatorHub.io asks of metadata",
        judge: hub_rules::operator_hub,
    },
    OptionalRules {
        name: "capabilities",
        is_in_suite: true,
        about: "the capability level is one of the five",
        judge: |bundle, _| hub_rules::capabilities(bundle),
    },
    OptionalRules {
        name: "categories",
        is_in_suite: true,
        about: "the categories are those of OperatorHub.io, or of the file in OPERATOR_BUNDLE_CATEGORIES",
        judge: |bundle, _| {
            hub_rules::categories(bundle, std::env::var_os("OPERATOR_BUNDLE_CATEGORIES").map(PathBuf::from))
        },
    },
    OptionalRules {
        name: "operatorhub",
        is_in_suite: false,
        about: "the three above in one, as older releases had them",
        judge: hub_rules::operator_hub_v1,
    },
    OptionalRules {
        name: "alpha-deprecated-apis",
        is_in_suite: true,
        about: "no API that newer clusters do not serve any more",
        judge: removed_apis::judge,
    },
    OptionalRules {
        name: "good-practices",
        is_in_suite: true,
        about: "requests, descriptions, names of channels and versions, rights about CRDs",
        judge: |bundle, _| good_practices::judge(bundle),
    },
];

/// Rules of operator-sdk that are not here, and why.
const ELSEWHERE: [(&str, &str); 2] = [
    ("community", "its makers moved it to ocp-olm-catalog-validator"),
    ("multiarch", "it pulls images; `operator-sdk bundle validate --select-optional name=multiarch` does that"),
];

/// Why nothing was judged.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValidateError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("--select-optional takes name=NAME or suite={SUITE}, not {0:?}; --list-optional lists the names")]
    Selector(String),
    #[error("there are no optional rules {0:?}: {1}")]
    Elsewhere(String, &'static str),
    #[error("--optional-values takes k8s-version=1.26, not {0:?}")]
    OptionalValue(String),
    #[error("the rules for CRDs cannot be loaded")]
    Runtime(#[source] std::io::Error),
    #[error("the rules for CRDs cannot be loaded: {0}")]
    Registry(String),
}

/// `konverge bundle validate`
pub(super) fn validate(args: &ValidateBundleArgs) -> ExitCode {
    if args.list_optional {
        list();
        return ExitCode::SUCCESS;
    }
    match judge(args) {
        Ok(findings) => report(args, &findings),
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            ExitCode::from(2)
        }
    }
}

fn list() {
    for rules in &OPTIONAL {
        let suite = if rules.is_in_suite { format!(" suite={SUITE}") } else { String::new() };
        println!("{:<50} {}", format!("name={}{suite}", rules.name), rules.about);
    }
}

/// The findings with the names of their rules.
type Findings = Vec<(&'static str, Finding)>;

fn judge(args: &ValidateBundleArgs) -> Result<Findings, ValidateError> {
    let (optional, options) = (selected(&args.select_optional)?, options(&args.optional_values)?);
    judged(&LoadedBundle::load(&args.directory)?, optional, &options)
}

/// The ClusterServiceVersion of a bundle, and the errors of the rules that always hold.
pub(super) fn errors(directory: &Path) -> Result<(Value, Vec<String>), ValidateError> {
    let bundle = LoadedBundle::load(directory)?;
    let findings = judged(&bundle, Vec::new(), &Options::default())?;
    let is_error = |(_, finding): &&(&str, Finding)| finding.level == Level::Error;
    let words = findings
        .iter()
        .filter(is_error)
        .map(|(rules, finding)| format!("[{rules}] {}: {}", finding.file, finding.words));
    Ok((bundle.csv().cloned().unwrap_or_default(), words.collect()))
}

fn judged(bundle: &LoadedBundle, optional: Vec<&OptionalRules>, options: &Options) -> Result<Findings, ValidateError> {
    let mut findings: Findings = Vec::new();
    let mut add = |name: &'static str, found: Vec<Finding>| findings.extend(found.into_iter().map(|one| (name, one)));
    add("format", bundle.findings.clone());
    if bundle.csv().is_ok() {
        add("csv", csv_rules::judge(bundle));
        add("bundle", content_rules::judge(bundle));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ValidateError::Runtime)?;
        add("objects", runtime.block_on(content_rules::judge_as_server(bundle)).map_err(ValidateError::Registry)?);
        for rules in optional {
            add(rules.name, (rules.judge)(bundle, options));
        }
    }
    findings.sort_by_key(|(_, finding)| finding.level);
    Ok(findings)
}

fn selected(selectors: &[String]) -> Result<Vec<&'static OptionalRules>, ValidateError> {
    let mut chosen = Vec::new();
    for selector in selectors {
        let unknown = || ValidateError::Selector(selector.clone());
        let (label, value) = selector.split_once('=').ok_or_else(unknown)?;
        let value = value.trim_start_matches('=').trim();
        if let Some((name, why)) = ELSEWHERE.iter().find(|(name, _)| label.trim() == "name" && *name == value) {
            return Err(ValidateError::Elsewhere((*name).to_owned(), why));
        }
        let fits = |rules: &&OptionalRules| match label.trim() {
            "name" => rules.name == value,
            "suite" => value == SUITE && rules.is_in_suite,
            _ => false,
        };
        if !OPTIONAL.iter().any(|rules| fits(&rules)) {
            return Err(unknown());
        }
        chosen.extend(OPTIONAL.iter().filter(fits).map(|rules| rules.name));
    }
    Ok(OPTIONAL.iter().filter(|rules| chosen.contains(&rules.name)).collect())
}

fn options(values: &[String]) -> Result<Options, ValidateError> {
    let mut options = Options::default();
    for value in values {
        let version = value.strip_prefix("k8s-version=").and_then(release);
        options.kubernetes = Some(version.ok_or_else(|| ValidateError::OptionalValue(value.clone()))?);
    }
    Ok(options)
}

/// A release of Kubernetes: `1.26`, `v1.26.3`.
fn release(text: &str) -> Option<Version> {
    let text = text.trim_start_matches('v');
    let full = if text.split('.').count() == 2 { format!("{text}.0") } else { text.to_owned() };
    full.parse().ok()
}

fn report(args: &ValidateBundleArgs, findings: &Findings) -> ExitCode {
    let count = |level: Level| findings.iter().filter(|(_, finding)| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    let word = |level: Level| if level == Level::Error { "error" } else { "warning" };
    if args.output == OutputFormat::Text {
        for (rules, Finding { level, file, words }) in findings {
            let place = if file.is_empty() { String::new() } else { format!("{file}: ") };
            println!("{} [{rules}] {place}{words}", word(*level));
        }
        match (errors, warnings) {
            (0, 0) => println!("{} is valid", args.directory.display()),
            (0, warnings) => println!("{} is valid, with {}", args.directory.display(), counted(warnings, "warning")),
            _ => {
                let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
                println!("{} is not valid: {errors}, {warnings}", args.directory.display());
            }
        }
    } else {
        let shown = |(rules, finding): &(&str, Finding)| json!({"level": word(finding.level), "rules": rules, "file": finding.file, "message": finding.words});
        let shown: Vec<Value> = findings.iter().map(shown).collect();
        let shown = json!({"bundle": args.directory, "valid": errors == 0, "errors": errors, "warnings": warnings, "findings": shown});
        match args.output {
            OutputFormat::Yaml => print!("{}", serde_saphyr::to_string(&shown).unwrap_or_default()),
            _ => println!("{shown:#}"),
        }
    }
    ExitCode::from(u8::from(errors > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selectors: &[&str], expect: &str) {
        let selectors: Vec<String> = selectors.iter().map(|one| (*one).to_owned()).collect();
        let found = match selected(&selectors) {
            Ok(rules) => rules.iter().map(|rules| rules.name).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert!(found.starts_with(expect), "{found}");
    }

    #[test]
    fn which_rules_hold() {
        check(&[], "");
        check(
            &["suite=operatorframework"],
            "operatorhubv2 capabilities categories alpha-deprecated-apis good-practices",
        );
        check(&["name=good-practices", "name=operatorhub"], "operatorhub good-practices");
        check(&["good-practices"], "--select-optional takes name=NAME");
        check(&["suite=x"], "--select-optional takes name=NAME");
        check(&["name=multiarch"], "there are no optional rules \"multiarch\": it pulls images");
        assert_eq!(options(&["k8s-version=v1.26".into()]).unwrap().kubernetes, Some(Version::new(1, 26, 0)));
        assert!(options(&["k8s=1".into()]).unwrap_err().to_string().contains("not \"k8s=1\""));
    }
}
