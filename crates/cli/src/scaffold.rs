//! Projects: `konverge init`, `create api`, `create webhook` and `update`. In: flags, answers at a terminal, the file `PROJECT`. Out: files,
//! and a line about each of them.
//!
//! ```text
//! flags, ask, names   what shall be added
//! project_file        PROJECT as it is → PROJECT as it shall be
//! files               a project → all its files, from templates (template) and from wiring (src/kinds.rs), as rustfmt
//!                     leaves them (layout): pure
//! plan                files as the scaffold had them, as it has them now, as they are → steps, by a three-way merge (merge)
//! by_hand             lines that a person has to put in: whether they are
//! disk                takes the steps
//! ```
//!
//! Every command is the same: the files before and after, and what a person made of them meanwhile. So nothing is searched for in the code of
//! a person, and no mark in it can get lost. It never runs cargo or git.

mod ask;
mod by_hand;
mod create_api;
mod create_webhook;
mod disk;
mod files;
mod init;
mod konverge_source;
mod layout;
mod merge;
mod names;
mod plan;
mod project_file;
mod template;
mod update;
mod wiring;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use create_api::{CreateApiArgs, create_api};
pub(crate) use create_webhook::{CreateWebhookArgs, create_webhook};
pub(crate) use init::{InitArgs, init};
pub(crate) use update::{UpdateArgs, update};

use crate::counted::counted_as;
use disk::Disk;
use files::Files;
use konverge_source::NoCheckout;
use merge::{Sides, difference};
use names::BadName;
use plan::{OnConflict, Step, in_the_way, plan};
use project_file::{ProjectError, ProjectFile};

/// Why a scaffold was not written, or not wholly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaffoldError {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Source(#[from] NoCheckout),
    #[error("{flag} is missing: {}, such as {flag} {example}", uncapitalized(what))]
    Missing { flag: &'static str, what: &'static str, example: &'static str },
    #[error("{0}")]
    Refused(String),
    #[error("these files are there already, so nothing was written: {}; move them away, or choose another name", .0.join(", "))]
    InTheWay(Vec<String>),
    #[error(
        "this project was scaffolded with other templates (konverge {project}); run `konverge update` first, so that new files fit the \
         others"
    )]
    OtherTemplates { project: String },
    #[error("{} is no text in UTF-8; convert it, for example with iconv, or move it away", .0.display())]
    NoText(PathBuf),
    #[error("{} would be written through a link, or out of the project; nothing was done, put a file or folder of the project there first", .0.display())]
    Link(PathBuf),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "the rest is done, but {} to be changed by hand, as shown above; `konverge doctor` reminds you until it is done",
        counted_as(*.0, "file has", "files have")
    )]
    ByHand(usize),
    #[error("{} to be resolved, as shown above; then run the tests", counted_as(*.0, "file has conflicts", "files have conflicts"))]
    Conflicts(usize),
    #[error("nothing was written; {}, as shown above", counted_as(*.0, "file would need your hand", "files would need your hand"))]
    DryRun(usize),
}

fn uncapitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// A project that a command adds to.
struct Existing {
    disk: Disk,
    project: ProjectFile,
}

impl Existing {
    /// The project of the current directory. Its files must be of the templates that this program has.
    fn find(dry_run: bool) -> Result<Self, ScaffoldError> {
        let (root, project) = ProjectFile::find(&current_directory()?)?;
        if project.templates != files::templates() {
            return Err(ScaffoldError::OtherTemplates { project: project.cli_version });
        }
        Ok(Self { disk: Disk::new(root, dry_run), project })
    }

    /// Asks once more for lines that an earlier command left to the user, and forgets those that are in.
    fn ask_again(&self) -> Result<(), ScaffoldError> {
        self.change(&self.project, &Files::new())
    }

    /// Makes the project what it shall be. `copies` are new files that are not made of templates.
    fn change(&self, shall: &ProjectFile, copies: &Files) -> Result<(), ScaffoldError> {
        if let Some(shared) = files::shared(shall) {
            return Err(ScaffoldError::Refused(shared));
        }
        let (mut was, scaffold) = (files::files(&self.project), files::files(shall));
        let wanted: Files = scaffold.iter().chain(copies).map(|(path, text)| (path.clone(), text.clone())).collect();
        let is = self.disk.read_all(was.keys().chain(wanted.keys()).collect::<BTreeSet<_>>())?;
        let in_the_way: Vec<String> = in_the_way(&was, &wanted, &is).cloned().collect();
        if !in_the_way.is_empty() {
            return Err(ScaffoldError::InTheWay(in_the_way));
        }
        was.extend(by_hand::waiting(&self.disk.by_hand()?, &was, &is));
        let sides = Sides { ours: "yours", base: "scaffold", theirs: "new scaffold" };
        let steps = plan(&was, &wanted, &is, OnConflict::TellLines, sides);
        self.disk.take(&steps, &scaffold)?;
        self.disk.remember(shall, &scaffold, &was)?;
        let left: Vec<&String> = steps.iter().filter_map(Step::by_hand).collect();
        self.disk.keep_by_hand(left.iter().filter_map(|path| was.get_key_value(*path)))?;
        match left.len() {
            0 => Ok(()),
            files if self.disk.is_dry_run() => Err(ScaffoldError::DryRun(files)),
            files => Err(ScaffoldError::ByHand(files)),
        }
    }
}

/// The checkout of Konverge by whose path the project in a directory depends on it, if it does.
pub(crate) fn konverge_checkout(directory: &Path) -> Option<PathBuf> {
    let (root, project) = ProjectFile::find(directory).ok()?;
    Some(root.join(project.konverge.path()?))
}

/// Files of the project in a directory, or above it, that wait for a person: for lines that a command left to them, and what these are; or for a choice between
/// the sides of a conflict.
pub(crate) fn waiting_for_a_person(directory: &Path) -> Vec<(String, Vec<String>)> {
    let waiting = || {
        let (root, project) = ProjectFile::find(directory)?;
        let disk = Disk::new(root, true);
        let (before, mut after) = (disk.by_hand()?, disk.kept()?);
        after.retain(|path, _| !project.unmanaged.contains(path));
        let is = disk.read_all(after.keys())?;
        let by_hand = by_hand::waiting(&before, &after, &is).into_iter().map(|(path, before)| {
            let lines = difference(&before, after.get(&path).map_or("", String::as_str));
            (path, lines)
        });
        let marked = update::marked(&is).map(|path| (path.to_owned(), Vec::new()));
        Ok::<_, ScaffoldError>(by_hand.chain(marked).collect())
    };
    // What cannot be read is told elsewhere.
    waiting().unwrap_or_default()
}

/// How the scaffold of a project compares with this program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScaffoldAge {
    /// The project has no `PROJECT` file.
    None,
    Current,
    /// This version wrote it, with other templates.
    Other(String),
    Unreadable(String),
}

/// Compares the scaffold of the project in a directory, or above it, with this program's.
pub(crate) fn age(directory: &Path) -> ScaffoldAge {
    match ProjectFile::find(directory) {
        Ok((_, project)) if project.templates == files::templates() => ScaffoldAge::Current,
        Ok((_, project)) => ScaffoldAge::Other(project.cli_version),
        Err(ProjectError::None(_)) => ScaffoldAge::None,
        Err(error) => ScaffoldAge::Unreadable(konverge_core::ErrorChain(&error).to_string()),
    }
}

/// A kind of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectKind {
    pub kind: String,
    pub plural: String,
    /// As API servers know it.
    pub group: String,
}

/// The kinds that the `PROJECT` file in a directory, or above it, lists; none if there is no such file.
pub(crate) fn kinds(directory: &Path) -> Vec<ProjectKind> {
    let Ok((_, project)) = ProjectFile::find(directory) else { return Vec::new() };
    let of = |resource: &project_file::Resource| ProjectKind {
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
        group: project.full_group(&resource.group),
    };
    project.resources.iter().map(of).collect()
}

/// What to do next, as commands and what they do.
fn tell_next(disk: &Disk, commands: &[(&str, &str)]) {
    if disk.is_dry_run() {
        return;
    }
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    println!("\nNext:");
    for (command, what) in commands {
        println!("{}", format!("  {command:width$}  {what}").trim_end());
    }
}

fn current_directory() -> Result<PathBuf, ScaffoldError> {
    std::env::current_dir().map_err(|source| ScaffoldError::Read { path: Path::new(".").to_owned(), source })
}
