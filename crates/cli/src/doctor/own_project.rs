//! The operator's project of this directory. In: cargo's metadata, the lock file, `PROJECT`, the compiled operator. Out: facts, and findings by pure functions.
//! Without `--build` nothing is compiled: the operator is asked as the last build left it.

use std::path::PathBuf;

use konverge_core::ErrorChain;
use serde_json::Value;

use super::checks::{BUILD, DEPENDENCY, FOUND, GENERATED, SAMPLES, SCAFFOLD};
use super::finding::Finding;
use crate::counted::counted_as;
use crate::description::{DeployTarget, Description, ProjectArgs, ProjectError, here};
use crate::documents::{Document, read_all};
use crate::generate;
use crate::generated_files::FileChange;
use crate::project::LastBuild;
use crate::samples;
use crate::scaffold::{self, ProjectKind, ScaffoldAge};
use crate::validate::{causes, judge_all};

/// Where generated CRDs are.
const GENERATED_CRDS: &str = "config/crd/bases";

/// Why there is no project to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProject {
    /// This directory has nothing to do with operators.
    Nothing(String),
    /// There is one, and cargo or this program does not understand it.
    Broken(String),
}

/// A project.
#[derive(Clone, Debug)]
pub(crate) struct OwnProject {
    pub directory: PathBuf,
    pub target: DeployTarget,
    /// The version of Rust that its manifest asks for.
    pub rust_version: Option<String>,
    /// The kinds of its `PROJECT` file.
    pub kinds: Vec<ProjectKind>,
    /// The operator as it describes itself, or why it was not asked.
    pub operator: Result<Description, String>,
    pub build: BuildState,
    /// Its CRDs: as the operator prints them, or as they were generated.
    pub definitions: Vec<Value>,
    /// The versions of konverge in its lock file; none if there is no such file.
    locked: Option<Vec<String>>,
    age: ScaffoldAge,
    /// Scaffolded files that wait for a person, and for which lines.
    waiting: Vec<(String, Vec<String>)>,
    /// Generated files that are stale; none if nobody generated any.
    stale: Result<Option<Vec<FileChange>>, String>,
}

/// Whether the operator is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BuildState {
    /// Just now.
    Now,
    /// Earlier, and nothing has changed since.
    Current,
    /// Earlier, and this file has changed since.
    Old(PathBuf),
    Never,
    Failed(String),
}

impl OwnProject {
    /// The project of the current directory.
    pub(crate) fn gather(args: &ProjectArgs, build: bool) -> Result<Self, NoProject> {
        let (project, package, target) = here(args).map_err(|error| match error {
            ProjectError::Nothing | ProjectError::Other(_) | ProjectError::Workspace(_) => {
                NoProject::Nothing(error.to_string())
            }
            error => NoProject::Broken(ErrorChain(&error).to_string()),
        })?;
        let asked = |error: &crate::description::AskError| ErrorChain(error).to_string();
        let (build, operator) = match (build, project.last_build()) {
            (true, _) => match Description::of(&project, package, target.clone()) {
                Ok(operator) => (BuildState::Now, Ok(operator)),
                Err(crate::description::AskError::Compile(error)) => (
                    BuildState::Failed(ErrorChain(&error).to_string()),
                    Err("the operator does not compile".to_owned()),
                ),
                Err(error) => (BuildState::Now, Err(asked(&error))),
            },
            (false, None) => (BuildState::Never, Err("the operator is not built; --build builds it".to_owned())),
            (false, Some(LastBuild { executable, changed })) => {
                let operator = Description::ask(&executable, project.directory(), package, target.clone());
                let state = changed.map_or(BuildState::Current, BuildState::Old);
                (state, operator.map_err(|error| asked(&error)))
            }
        };
        let directory = project.directory().to_owned();
        let definitions = match &operator {
            Ok(operator) => operator.definitions.clone(),
            Err(_) => generated_definitions(&directory),
        };
        let stale = match &operator {
            Ok(operator) => generate::stale(operator, &directory).map_err(|error| ErrorChain(&error).to_string()),
            Err(why) => Err(why.clone()),
        };
        let lock = std::fs::read_to_string(project.workspace().join("Cargo.lock")).ok();
        Ok(Self {
            rust_version: project.package()["rust_version"].as_str().map(str::to_owned),
            kinds: scaffold::kinds(&directory),
            age: scaffold::age(&directory),
            waiting: scaffold::waiting_for_a_person(&directory),
            locked: lock.map(|lock| locked_versions(&lock, "konverge")),
            directory,
            target,
            operator,
            build,
            definitions,
            stale,
        })
    }

    /// Findings.
    pub(crate) async fn judge(&self) -> Vec<Finding> {
        let (own, binary) = (env!("CARGO_PKG_VERSION"), &self.target.name);
        vec![
            FOUND.ok(format!("the operator {binary} in {}", self.directory.display())),
            dependency(self.locked.as_deref(), own),
            waiting(&self.waiting).unwrap_or_else(|| age(&self.age, own)),
            built(&self.build, self.operator.as_ref().err(), self.locked.is_some()),
            generated(&self.stale),
            self.samples().await,
        ]
    }

    async fn samples(&self) -> Finding {
        let directory = self.directory.join(samples::DIRECTORY);
        if !directory.is_dir() {
            return SAMPLES.not_checked(format!("there is no {}", samples::DIRECTORY));
        }
        if self.definitions.is_empty() {
            return SAMPLES.not_checked("the CRDs are not known before the operator is built; --build builds it");
        }
        let objects = match read_all(&[directory]) {
            Ok(objects) if objects.is_empty() => return SAMPLES.ok("there are none"),
            Ok(objects) => objects,
            Err(error) => return SAMPLES.problem(ErrorChain(&error).to_string(), &["mend the file"]),
        };
        let source = |definition: &Value| Document { source: "the operator".into(), object: definition.clone() };
        let definitions: Vec<Document> = self.definitions.iter().map(source).collect();
        let judged = match judge_all(&definitions, objects).await {
            Ok(judged) => judged,
            Err(why) => return SAMPLES.problem(why, &["konverge install --dry-run"]),
        };
        let wrong = judged.iter().filter_map(|one| {
            let status = one.verdict.as_ref().err()?;
            let causes: Vec<String> =
                causes(status).into_iter().map(|(field, why)| format!("{field}: {why}")).collect();
            let why = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
            Some(format!("{}: {}: {why}", one.document.source, one.called()))
        });
        let wrong: Vec<String> = wrong.collect();
        match wrong.len() {
            0 => SAMPLES.ok(format!("{} valid", counted_as(judged.len(), "object is", "objects are"))),
            count => {
                let mend = format!("konverge validate -f {} --crds {GENERATED_CRDS}", samples::DIRECTORY);
                SAMPLES
                    .problem(
                        format!("{count} of {} not valid", counted_as(judged.len(), "object is", "objects are")),
                        &[&mend],
                    )
                    .with(wrong)
            }
        }
    }
}

/// Findings where there is no project.
pub(crate) fn without_project(why: &NoProject) -> Finding {
    match why {
        NoProject::Nothing(why) => FOUND.not_checked(why.clone()),
        NoProject::Broken(why) => FOUND.problem(why.clone(), &["cargo metadata --no-deps"]),
    }
}

fn generated_definitions(directory: &std::path::Path) -> Vec<Value> {
    let documents = read_all(&[directory.join(GENERATED_CRDS)]).unwrap_or_default();
    let definitions = documents.into_iter().map(|document| document.object);
    definitions.filter(|object| object["kind"] == "CustomResourceDefinition").collect()
}

/// The versions of a package in a lock file.
fn locked_versions(lock: &str, package: &str) -> Vec<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines();
    let mut versions = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == name
            && let Some(version) = lines.next().and_then(|line| line.trim().strip_prefix("version = "))
        {
            versions.push(version.trim_matches('"').to_owned());
        }
    }
    versions
}

/// What to do if cargo cannot resolve the dependency on konverge.
const OTHER_SOURCES: &str = "If cargo does not find konverge in its registry, let Cargo.toml name a checkout or a repository instead: \
                             `konverge init` writes it with --konverge-path DIR or --konverge-git URL";

fn dependency(locked: Option<&[String]>, own: &str) -> Finding {
    match locked {
        None => DEPENDENCY.not_checked(format!(
            "there is no Cargo.lock yet; `cargo generate-lockfile` or a build makes one. {OTHER_SOURCES}"
        )),
        Some([]) => DEPENDENCY.problem("Cargo.lock has no konverge", &["cargo update -p konverge"]),
        Some([version]) if version == own => DEPENDENCY.ok(format!("konverge {version}, as this program")),
        Some([version]) => DEPENDENCY.warning(
            format!(
                "the project uses konverge {version}, and this program is {own}; what one writes the other may not know"
            ),
            &["`konverge update`, then `cargo update -p konverge`", "or install the program of that version"],
        ),
        Some(several) => DEPENDENCY.problem(
            format!(
                "the project uses several versions of konverge: {}; their types do not fit together",
                several.join(", ")
            ),
            &["cargo tree -i konverge"],
        ),
    }
}

/// Nothing if no file waits for a person.
fn waiting(files: &[(String, Vec<String>)]) -> Option<Finding> {
    let paths = |is_it: fn(&[String]) -> bool| -> Vec<&str> {
        files.iter().filter(|(_, lines)| is_it(lines)).map(|(path, _)| path.as_str()).collect()
    };
    let (marked, by_hand) = (paths(<[String]>::is_empty), paths(|lines| !lines.is_empty()));
    if !marked.is_empty() {
        let what = format!("conflicts are not resolved in {}", marked.join(", "));
        return Some(SCAFFOLD.problem(what, &["choose between <<<<<<< and >>>>>>>, then `cargo test`"]));
    }
    if by_hand.is_empty() {
        return None;
    }
    let what =
        format!("lines that `konverge create` asked you to put in by hand are still missing in {}", by_hand.join(", "));
    let mend = ["put them in", "or `konverge update`, which marks the places in the file"];
    // Lines around a change are known to whoever opens the file.
    let is_change = |line: &&String| line.len() > 1 && line.starts_with(['+', '-']);
    let lines = files.iter().flat_map(|(_, lines)| lines.iter().filter(is_change).cloned());
    Some(SCAFFOLD.problem(what, &mend).with(lines))
}

fn age(age: &ScaffoldAge, own: &str) -> Finding {
    match age {
        ScaffoldAge::None => {
            SCAFFOLD.not_checked("the project was not made by `konverge init`: it has no PROJECT file")
        }
        ScaffoldAge::Current => SCAFFOLD.ok(format!("as konverge {own} writes it")),
        ScaffoldAge::Other(version) if version == own => {
            SCAFFOLD.warning("other templates of the same version wrote it", &["konverge update --dry-run"])
        }
        ScaffoldAge::Other(version) => {
            SCAFFOLD.warning(format!("konverge {version} wrote it, and this is {own}"), &["konverge update --dry-run"])
        }
        ScaffoldAge::Unreadable(why) => SCAFFOLD.problem(why.clone(), &["git checkout PROJECT"]),
    }
}

fn built(state: &BuildState, silent: Option<&String>, is_resolved: bool) -> Finding {
    match (state, silent) {
        // cargo writes the lock file before it compiles.
        (BuildState::Failed(why), _) if !is_resolved => BUILD.problem(why.clone(), &["cargo build", OTHER_SOURCES]),
        (BuildState::Failed(why), _) => BUILD.problem(why.clone(), &["cargo build"]),
        (BuildState::Never, _) => BUILD.not_checked("the operator is not built; --build builds it"),
        (_, Some(why)) => {
            BUILD.problem(format!("it is built, and does not describe itself: {why}"), &["cargo run -- --print-config"])
        }
        (BuildState::Now, None) => BUILD.ok("it compiles"),
        (BuildState::Current, None) => BUILD.ok("it is built, and nothing has changed since"),
        (BuildState::Old(file), None) => BUILD.warning(
            format!("{} has changed since it was built; what is said of it below may be old", file.display()),
            &["konverge doctor --build"],
        ),
    }
}

fn generated(stale: &Result<Option<Vec<FileChange>>, String>) -> Finding {
    match stale {
        Err(why) => GENERATED.not_checked(why.clone()),
        Ok(None) => GENERATED.not_checked("nobody has generated manifests here; `konverge generate all` does"),
        Ok(Some(stale)) if stale.is_empty() => GENERATED.ok("they are up to date"),
        Ok(Some(stale)) => {
            let files = stale.iter().map(|change| format!("{} {}", change.path.display(), change.action.stale()));
            GENERATED
                .warning(
                    format!("{} not up to date", counted_as(stale.len(), "file is", "files are")),
                    &["konverge generate all"],
                )
                .with(files)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome::{self, NotChecked, Ok as Fine, Problem, Warning};

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(found.what.contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Fine | NotChecked), "what to do is said: {found:?}");
    }

    #[test]
    fn versions_of_konverge() {
        let versions = |text: &[&str]| text.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        check(dependency(None, "1.0.0"), NotChecked, "no Cargo.lock");
        check(dependency(Some(&[]), "1.0.0"), Problem, "has no konverge");
        check(dependency(Some(&versions(&["1.0.0"])), "1.0.0"), Fine, "konverge 1.0.0");
        check(dependency(Some(&versions(&["0.9.0"])), "1.0.0"), Warning, "uses konverge 0.9.0");
        check(dependency(Some(&versions(&["0.9.0", "1.0.0"])), "1.0.0"), Problem, "several versions");
        let lock = "[[package]]\nname = \"konverge-core\"\nversion = \"0.2.0\"\n\n[[package]]\nname = \"konverge\"\nversion = \"0.1.0\"\n";
        assert_eq!(locked_versions(lock, "konverge"), ["0.1.0"]);
    }

    #[test]
    fn scaffolds_builds_and_files() {
        check(age(&ScaffoldAge::None, "1.0.0"), NotChecked, "no PROJECT");
        check(age(&ScaffoldAge::Current, "1.0.0"), Fine, "1.0.0");
        check(age(&ScaffoldAge::Other("0.9.0".into()), "1.0.0"), Warning, "konverge 0.9.0 wrote it");
        check(age(&ScaffoldAge::Other("1.0.0".into()), "1.0.0"), Warning, "same version");
        check(age(&ScaffoldAge::Unreadable("no layout".into()), "1.0.0"), Problem, "no layout");
        let lines =
            |lines: &[&str]| vec![("src/kinds.rs".to_owned(), lines.iter().map(|line| (*line).into()).collect())];
        assert_eq!(waiting(&[]), None);
        check(waiting(&lines(&["+ .and(till())"])).expect("a file waits"), Problem, "missing in src/kinds.rs");
        check(waiting(&lines(&[])).expect("a file waits"), Problem, "not resolved in src/kinds.rs");
        check(built(&BuildState::Never, Some(&"not built".into()), true), NotChecked, "--build");
        check(built(&BuildState::Failed("broken".into()), Some(&"x".into()), true), Problem, "broken");
        let unresolved = built(&BuildState::Failed("broken".into()), Some(&"x".into()), false);
        assert!(format!("{unresolved:?}").contains("--konverge-path DIR or --konverge-git URL"), "{unresolved:?}");
        check(built(&BuildState::Current, None, true), Fine, "nothing has changed");
        check(built(&BuildState::Current, Some(&"silent".into()), true), Problem, "silent");
        check(built(&BuildState::Old("src/main.rs".into()), None, true), Warning, "src/main.rs has changed");
        check(generated(&Err("not built".into())), NotChecked, "not built");
        check(generated(&Ok(None)), NotChecked, "nobody");
        check(generated(&Ok(Some(Vec::new()))), Fine, "up to date");
        let stale =
            FileChange { path: "config/crd/a.yaml".into(), action: crate::generated_files::FileAction::Replace };
        let found = generated(&Ok(Some(vec![stale])));
        assert_eq!(found.details, ["config/crd/a.yaml stale"]);
        check(found, Warning, "1 file is not");
        check(without_project(&NoProject::Nothing("none".into())), NotChecked, "none");
        check(without_project(&NoProject::Broken("bad".into())), Problem, "bad");
    }
}
