//! `konverge update`: brings the files of a project to the templates of this program. In: the scaffold as it was written last, the files as
//! they are. Out: files with the changes of both, and marks where a person has to choose.

use std::collections::BTreeSet;

use super::disk::{Disk, KEPT};
use super::files;
use super::merge::Sides;
use super::plan::{OnConflict, Step, plan};
use super::project_file::ProjectFile;
use super::{ScaffoldError, by_hand, current_directory, tell_next};

/// Arguments of `konverge update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// Show what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// `konverge update`
pub(crate) fn update(args: &UpdateArgs) -> Result<(), ScaffoldError> {
    let (root, project) = ProjectFile::find(&current_directory()?)?;
    if is_newer(&project.cli_version, env!("CARGO_PKG_VERSION")) {
        let why = format!(
            "konverge {} has written this project, which is newer than this program ({}), so its files would become older; install that one",
            project.cli_version,
            env!("CARGO_PKG_VERSION")
        );
        return Err(ScaffoldError::Refused(why));
    }
    let disk = Disk::new(root, args.dry_run);
    let shall = ProjectFile {
        cli_version: env!("CARGO_PKG_VERSION").into(),
        templates: files::templates(),
        konverge: project.konverge.updated(),
        ..project.clone()
    };
    let scaffold = files::files(&shall);
    let kept = disk.kept()?;
    let mut was = kept.clone();
    if project.templates == shall.templates {
        // What is missing of it can be made again.
        was.extend(files::files(&project).into_iter().filter(|(path, _)| !disk.root().join(KEPT).join(path).exists()));
    } else if was.is_empty() {
        let why = format!(
            "{KEPT} is gone, which has the files as konverge {} wrote them, so they cannot be compared; get it back from version control",
            project.cli_version
        );
        return Err(ScaffoldError::Refused(why));
    }
    was.retain(|path, _| !project.unmanaged.contains(path));
    let is = disk.read_all(was.keys().chain(scaffold.keys()).collect::<BTreeSet<_>>())?;
    refuse_open_conflicts(&is)?;
    // Lines that an earlier command left to a person are merged once more, and marked where they do not fit.
    was.extend(by_hand::waiting(&disk.by_hand()?, &was, &is));
    let (before, after) =
        (format!("scaffold of konverge {}", project.cli_version), format!("konverge {}", shall.cli_version));
    let sides = Sides { ours: "yours", base: &before, theirs: &after };
    let steps = plan(&was, &scaffold, &is, OnConflict::Mark, sides);
    disk.take(&steps, &scaffold)?;
    disk.remember(&shall, &scaffold, &kept)?;
    disk.keep_by_hand(std::iter::empty())?;
    let conflicts = steps.iter().filter(|step| matches!(step, Step::Conflict { .. })).count();
    match conflicts {
        0 => {}
        files if disk.is_dry_run() => return Err(ScaffoldError::DryRun(files)),
        files => return Err(ScaffoldError::Conflicts(files)),
    }
    if steps.is_empty() {
        println!("All files are up to date with konverge {} (templates {}).", shall.cli_version, shall.templates);
    } else {
        tell_next(&disk, &[("git diff", "look at what changed"), ("cargo test", "see that all fits together")]);
    }
    Ok(())
}

/// A second merge on top of marks would make them unreadable.
fn refuse_open_conflicts(is: &files::Files) -> Result<(), ScaffoldError> {
    let open: Vec<&str> = marked(is).collect();
    if open.is_empty() {
        return Ok(());
    }
    let why =
        format!("conflicts are not resolved yet in {}; choose between <<<<<<< and >>>>>>> first", open.join(", "));
    Err(ScaffoldError::Refused(why))
}

/// The files in which a conflict is not resolved yet.
pub(super) fn marked(is: &files::Files) -> impl Iterator<Item = &str> {
    let is_marked = |text: &str| text.lines().any(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "));
    is.iter().filter(move |(_, text)| is_marked(text)).map(|(path, _)| path.as_str())
}

/// Whether one version of this program is newer than another. A version that is not understood is not.
fn is_newer(one: &str, other: &str) -> bool {
    // 1.0.0 is newer than 1.0.0-rc.1.
    let parsed = |text: &str| {
        let text = text.split('+').next().unwrap_or_default();
        let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
        let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
        Some((numbers?, pre.is_empty()))
    };
    matches!((parsed(one), parsed(other)), (Some(one), Some(other)) if one > other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_version_is_newer() {
        for (one, other, expect) in [
            ("0.2.0", "0.1.0", true),
            ("0.10.0", "0.9.9", true),
            ("1.0.0", "1.0.0-rc.1", true),
            ("1.0.0-rc.1", "1.0.0", false),
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.2.0", false),
            ("0.1.0+a", "0.1.0", false),
            ("what", "0.1.0", false),
        ] {
            assert_eq!(is_newer(one, other), expect, "{one} {other}");
        }
    }
}
