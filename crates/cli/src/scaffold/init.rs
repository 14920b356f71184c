//! `konverge init`: a new project, without kinds. In: its name, its domain, a directory. Out: the files of every project. A file that is there
//! already is never replaced.

use std::path::{Path, PathBuf};

use super::ask::{self, Question};
use super::disk::Disk;
use super::files::{self, Files};
use super::konverge_source::SourceArgs;
use super::merge::Sides;
use super::plan::{OnConflict, in_the_way, plan};
use super::project_file::{PROJECT, ProjectFile};
use super::{ScaffoldError, current_directory, names, tell_next};

/// Arguments of `konverge init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The domain that API groups end with, such as example.com
    #[arg(long)]
    domain: Option<String>,
    /// The name of the project, its package and its image [default: the name of the directory]
    #[arg(long, visible_alias = "project-name")]
    name: Option<String>,
    /// The directory of the project; made if it is not there
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    konverge: SourceArgs,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Files that a repository often has before it is a project. They stay as they are, and belong to the user alone.
const WELCOME: [&str; 5] = [".dockerignore", ".gitattributes", ".gitignore", "README.md", "rustfmt.toml"];

const DOMAIN: Question =
    Question { flag: "--domain", what: "The domain that API groups end with", example: "example.com" };

/// `konverge init`
pub(crate) fn init(args: &InitArgs) -> Result<(), ScaffoldError> {
    let root = current_directory()?.join(&args.dir);
    if root.join(PROJECT).is_file() {
        let shown = args.dir.display();
        let why = format!(
            "{shown} is a project already; `konverge create api` adds a kind to it, `konverge update` renews its files"
        );
        return Err(ScaffoldError::Refused(why));
    }
    let mut asker = ask::terminal();
    let domain = asker.text(args.domain.as_deref(), DOMAIN, names::domain)?;
    let directory_name = name_of(&root);
    let name = names::project_name(args.name.as_deref().unwrap_or(&directory_name))?;
    let konverge = args.konverge.source(&root)?;
    konverge.texts().try_for_each(names::source)?;
    let mut project = ProjectFile::new(name, domain, konverge, files::templates());

    let disk = Disk::new(root, args.dry_run);
    let all = files::files(&project);
    let is_welcome = |path: &String| WELCOME.contains(&path.as_str());
    // What only stays as it is may be in any encoding.
    let is_other_text = |path: &&String| is_welcome(path) && matches!(disk.read(path), Err(ScaffoldError::NoText(_)));
    let (other_texts, read): (Vec<_>, Vec<_>) = all.keys().partition(is_other_text);
    let is = disk.read_all(read)?;
    let in_the_way: Vec<String> = in_the_way(&Files::new(), &all, &is).cloned().collect();
    let (mut kept, foreign): (Vec<_>, Vec<_>) = in_the_way.into_iter().partition(is_welcome);
    kept.extend(other_texts.into_iter().cloned());
    if !foreign.is_empty() {
        let why = format!(
            "{} is no empty directory: {} would be replaced, so nothing was written; choose another one with --dir",
            args.dir.display(),
            foreign.join(", ")
        );
        return Err(ScaffoldError::Refused(why));
    }
    project.unmanaged.clone_from(&kept);
    let scaffold = files::files(&project);
    let sides = Sides { ours: "yours", base: "scaffold", theirs: "scaffold" };
    disk.take(&plan(&Files::new(), &scaffold, &is, OnConflict::TellLines, sides), &scaffold)?;
    for path in &kept {
        let hint = if path == ".gitignore" { "; add /target and /.konverge to it" } else { "" };
        disk.tell("36", "kept", &format!("{path}: it was there already{hint}"));
    }
    disk.remember(&project, &scaffold, &Files::new())?;
    tell_end(args, &project, &disk);
    Ok(())
}

fn tell_end(args: &InitArgs, project: &ProjectFile, disk: &Disk) {
    if disk.is_dry_run() {
        return;
    }
    println!("\n{} is a project with the domain {}.", project.project_name, project.domain);
    if let Some(path) = project.konverge.path() {
        println!("It depends on Konverge by the path {path}; Cargo.toml says so in one place, for you to change.");
    }
    if let (Some(version), true) = (project.konverge.version(), args.konverge.is_empty()) {
        println!(
            "It depends on konverge {version} of cargo's registry. If cargo does not find it there, name a checkout or a repository with \
             --konverge-path DIR or --konverge-git URL."
        );
    }
    if !has_cargo() {
        println!("There is no cargo on PATH. Install Rust to build it: https://rustup.rs");
    }
    let change = format!("cd {}", args.dir.display());
    let mut next = vec![
        ("konverge create api --group GROUP --version v1alpha1 --kind KIND", "add a kind"),
        ("konverge dev", "run the operator on a cluster of its own"),
    ];
    if args.dir != Path::new(".") {
        next.insert(0, (&change, ""));
    }
    tell_next(disk, &next);
}

/// The name of a directory, also of one that is not there yet.
fn name_of(directory: &Path) -> String {
    let real = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn has_cargo() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&paths)
        .map(|folder| folder.join("cargo").with_extension(std::env::consts::EXE_EXTENSION));
    std::env::var_os("CARGO").is_some() || found.any(|path| path.is_file())
}
