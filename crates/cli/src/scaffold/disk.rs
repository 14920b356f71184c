//! The files of a project on the disk. In: a directory, and steps of a plan. Out: files as they are; and files written, with a line of output for
//! each. Nothing is decided here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Component, Path, PathBuf};

use super::ScaffoldError;
use super::files::Files;
use super::plan::Step;
use super::project_file::{PROJECT, ProjectFile};
use crate::counted::counted;
use crate::whole_file::write_whole;

/// The directory with the scaffold as it was written last, for `konverge update`.
pub(crate) const KEPT: &str = ".scaffold";

/// The part of it with files as they were before a command that left lines of them to a person.
const BY_HAND: &str = ".by-hand";

/// The directory of a project.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    dry_run: bool,
    coloured: bool,
}

impl Disk {
    /// A directory. With `dry_run` nothing is written.
    pub(crate) fn new(root: PathBuf, dry_run: bool) -> Self {
        let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { root, dry_run, coloured }
    }

    /// A file, if it is there.
    pub(crate) fn read(&self, path: &str) -> Result<Option<String>, ScaffoldError> {
        let at = self.root.join(path);
        match fs::read(&at) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| ScaffoldError::NoText(at)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ScaffoldError::Read { path: at, source }),
        }
    }

    /// Those of these files that are there.
    pub(crate) fn read_all<'a>(&self, paths: impl IntoIterator<Item = &'a String>) -> Result<Files, ScaffoldError> {
        let mut files = Files::new();
        for path in paths {
            if let Some(text) = self.read(path)? {
                files.insert(path.clone(), text);
            }
        }
        Ok(files)
    }

    /// Takes the steps; prints a line for each. Nothing is done if one of them, or what is remembered of the scaffold afterwards, would be written
    /// through a link to somewhere else.
    pub(crate) fn take(&self, steps: &[Step], scaffold: &Files) -> Result<(), ScaffoldError> {
        for path in steps.iter().filter_map(Step::written) {
            self.check_place(path)?;
        }
        for path in scaffold.keys() {
            self.check_place(&format!("{KEPT}/{path}"))?;
        }
        if self.dry_run {
            println!("This is a dry run: nothing is written.");
        }
        for step in steps {
            match step {
                Step::Create { path, text } => {
                    self.write(path, text)?;
                    self.tell("32", "created", path);
                }
                Step::Write { path, text } => {
                    self.write(path, text)?;
                    self.tell("33", "changed", path);
                }
                Step::Conflict { path, text, conflicts } => {
                    self.write(path, text)?;
                    self.tell(
                        "31",
                        "conflict",
                        &format!("{path}: choose between <<<<<<< and >>>>>>> in {}", counted(*conflicts, "place")),
                    );
                }
                Step::Remove { path } => {
                    self.remove(path)?;
                    self.tell("33", "removed", path);
                }
                Step::ByHand { path, lines } => {
                    self.tell(
                        "31",
                        "by hand",
                        &format!("{path}: you changed the lines that this would change; please do so yourself:"),
                    );
                    lines.iter().for_each(|line| println!("           {line}"));
                    println!("           (if it is done otherwise: rm {KEPT}/{BY_HAND}/{path})");
                }
                Step::Leave { path, why } => self.tell("36", "left", &format!("{path}: {why}")),
            }
        }
        Ok(())
    }

    /// Remembers a project and its scaffold, and forgets what only the former scaffold had.
    pub(crate) fn remember(
        &self,
        project: &ProjectFile,
        scaffold: &Files,
        former: &Files,
    ) -> Result<(), ScaffoldError> {
        if self.dry_run {
            return Ok(());
        }
        for (path, text) in scaffold {
            self.write(&format!("{KEPT}/{path}"), text)?;
        }
        for path in former.keys().filter(|path| !scaffold.contains_key(*path)) {
            let kept = format!("{KEPT}/{path}");
            if self.root.join(&kept).exists() {
                self.remove(&kept)?;
            }
        }
        // Last: a command that was interrupted before can be run again.
        self.write(PROJECT, &project.text())
    }

    /// The scaffold as it was written last.
    pub(crate) fn kept(&self) -> Result<Files, ScaffoldError> {
        let mut kept = self.kept_in(KEPT)?;
        kept.retain(|path, _| !Path::new(path).starts_with(BY_HAND));
        Ok(kept)
    }

    /// Of files that wait for a person, the scaffold as it was before the command that left them to the person.
    pub(crate) fn by_hand(&self) -> Result<Files, ScaffoldError> {
        self.kept_in(&format!("{KEPT}/{BY_HAND}"))
    }

    /// Keeps these files, and no others, as they were before.
    pub(crate) fn keep_by_hand<'a>(
        &self,
        before: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Result<(), ScaffoldError> {
        if self.dry_run {
            return Ok(());
        }
        let mut former: BTreeSet<String> = self.by_hand()?.into_keys().collect();
        for (path, text) in before {
            former.remove(path);
            self.write(&format!("{KEPT}/{BY_HAND}/{path}"), text)?;
        }
        former.iter().try_for_each(|path| self.remove(&format!("{KEPT}/{BY_HAND}/{path}")))
    }

    fn kept_in(&self, folder: &str) -> Result<Files, ScaffoldError> {
        let top = self.root.join(folder);
        if top.is_symlink() {
            return Err(ScaffoldError::Link(top));
        }
        let (mut paths, mut folders) = (BTreeSet::new(), vec![top.clone()]);
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|source| ScaffoldError::Read { path: folder.clone(), source })?,
            };
            for entry in entries {
                let path = entry.map_err(|source| ScaffoldError::Read { path: folder.clone(), source })?.path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else if let Ok(inside) = path.strip_prefix(&top) {
                    paths.insert(inside.display().to_string().replace('\\', "/"));
                }
            }
        }
        let kept =
            paths.iter().map(|path| Ok(self.read(&format!("{folder}/{path}"))?.map(|text| (path.clone(), text))));
        kept.filter_map(Result::transpose).collect()
    }

    /// Writes a file whole or not at all, if it is not so already.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), ScaffoldError> {
        let at = self.root.join(path);
        if self.dry_run || fs::read(&at).is_ok_and(|is| is == text.as_bytes()) {
            return Ok(());
        }
        self.check_place(path)?;
        write_whole(&at, text.as_bytes()).map_err(|source| ScaffoldError::Write { path: at, source })
    }

    /// A link may lead from one file of the project to another, but not out of the project; and nobody else's files are in the kept scaffold.
    fn check_place(&self, path: &str) -> Result<(), ScaffoldError> {
        let at = self.root.join(path);
        let (Some(root), Some(real)) = (real(&self.root), real(&at)) else { return Err(ScaffoldError::Link(at)) };
        let is_kept = Path::new(path).starts_with(KEPT);
        if real.starts_with(&root) && (!is_kept || real == root.join(path)) {
            return Ok(());
        }
        Err(ScaffoldError::Link(at))
    }

    fn remove(&self, path: &str) -> Result<(), ScaffoldError> {
        if self.dry_run {
            return Ok(());
        }
        self.check_place(path)?;
        let at = self.root.join(path);
        fs::remove_file(&at).map_err(|source| ScaffoldError::Write { path: at, source })
    }

    /// A line about a file.
    pub(crate) fn tell(&self, colour: &str, word: &str, what: &str) {
        match self.coloured {
            true => println!("\x1b[{colour}m{word:>9}\x1b[0m  {what}"),
            false => println!("{word:>9}  {what}"),
        }
    }

    /// Where the project is.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether nothing is written.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// Where a path leads to, also if its end is not there yet; nothing if it climbs out of what is not there.
fn real(path: &Path) -> Option<PathBuf> {
    let mut missing = PathBuf::new();
    for above in path.ancestors() {
        match fs::canonicalize(above) {
            Ok(there) => return Some(if missing.as_os_str().is_empty() { there } else { there.join(missing) }),
            Err(_) => {
                let Some(Component::Normal(name)) = above.components().next_back() else { return None };
                missing = if missing.as_os_str().is_empty() { name.into() } else { Path::new(name).join(missing) };
            }
        }
    }
    None
}
