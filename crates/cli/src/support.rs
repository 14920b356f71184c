//! `konverge support`: one archive with what helps somebody else to find a fault. In: flags. Out: a `.tar.gz` with versions, settings, logs, metrics, events, objects and
//! what the doctor says, all without secrets, and a manifest. What cannot be read is noted, and the rest is collected all the same. Nothing in the cluster is changed.
//!
//! ```text
//! plan       what is collected, and from where: pure
//! collect    reads it
//! redact     removes secrets: pure; sensitive: which names are those of secrets
//! archive    what was read → redact → files with limits → MANIFEST.txt and .tar.gz: pure
//! ```

mod archive;
mod collect;
mod known;
mod plan;
mod redact;
mod sensitive;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::counted::counted;
use crate::deploy::Inventory;
use crate::description::{DeployTarget, ProjectArgs};
use crate::doctor::{self, OwnProject, Patient, Server, kinds};
use crate::remote_cluster::{ClusterArgs, RemoteCluster};
use crate::run;

use archive::{Archive, Content};
use collect::{Collected, Collector};
use plan::Item;
use redact::Redactor;

/// How long reading the cluster may take.
const READ_WITHIN: Duration = Duration::from_secs(180);

/// How long the list of what was deployed may take.
const INVENTORY_WITHIN: Duration = Duration::from_secs(10);

/// The end of its help.
pub(crate) const EXAMPLES: &str = "\
Versions, settings, logs, metrics, events and the objects concerned, and what `konverge doctor` says. Secrets are removed; MANIFEST.txt in the archive says what is in it,
what was removed and what could not be read. Look at it before you send it.

Examples:
  konverge support --dry-run                    what would be collected
  konverge support --since 2h --output shop.tar.gz";

/// Arguments of `konverge support`.
#[derive(Debug, clap::Args)]
pub(crate) struct SupportArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The file to write; never one that is there already [default: konverge-support-DATE.tar.gz]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How far logs and events go back: 30m, 2h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<SignedDuration>,
    /// List what would be collected, and collect nothing
    #[arg(long)]
    dry_run: bool,
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    match text.parse::<SignedDuration>() {
        Ok(duration) if duration.is_positive() => Ok(duration),
        _ => Err("it takes durations such as 30m or 2h".to_owned()),
    }
}

/// `konverge support`
pub(crate) fn support(args: &SupportArgs) -> ExitCode {
    let now = Timestamp::now();
    let name = || format!("konverge-support-{}.tar.gz", now.strftime("%Y%m%d-%H%M%S"));
    let file = args.output.clone().unwrap_or_else(|| name().into());
    if !args.dry_run && file.exists() {
        eprintln!("error: {} is there already; choose another file with --output", file.display());
        return ExitCode::FAILURE;
    }
    let project = OwnProject::gather(&args.project, false);
    match doctor::block_on(run(args, project, &file, now)) {
        Ok(Ok(text)) => {
            run::print(&text);
            ExitCode::SUCCESS
        }
        Ok(Err(error)) | Err(error) => {
            eprintln!("error: cannot write {}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

async fn run(
    args: &SupportArgs,
    project: Result<OwnProject, doctor::NoProject>,
    file: &Path,
    now: Timestamp,
) -> std::io::Result<String> {
    let patient = Patient::observe(project, &args.cluster).await;
    let items = plan(&patient, args).await;
    if args.dry_run {
        let lines = items.iter().map(|item| format!("{}  {}\n", item.path, item.about));
        let own = "doctor.txt  what is wrong, and what to do\ndoctor.json  the same for programs\nversions.txt  of programs, system and server\nsettings.txt  of the operator, and variables\n";
        return Ok(format!("{own}{}", lines.collect::<String>()));
    }
    let observer = usable(&patient).map(|server| server.observer.again(READ_WITHIN));
    let groups = patient.project.as_ref().map(|project| kinds(project).into_iter().map(|kind| kind.group).collect());
    let mut collector = Collector::new(observer.as_ref(), groups.unwrap_or_default(), args.since, now);
    let mut collected: Vec<(Item, Collected)> = Vec::new();
    for item in items {
        let content = collector.collect(&item).await;
        collected.push((item, content));
    }
    let (mut secrets, missing) = match &patient.project {
        Ok(project) => collector.secrets(&project.target.namespace).await,
        Err(_) => (Vec::new(), Vec::new()),
    };
    secrets.extend(patient.credentials.secrets());
    let report = patient.examine(&|_| true, now).await;
    let mut archive = Archive::new(Redactor::new(secrets));
    archive.add("doctor.txt", "what is wrong, and what to do", Content::Text(report.text(false)), "");
    archive.add("doctor.json", "the same for programs", Content::Json(report.json()), "");
    archive.add("versions.txt", "of programs, system and server", Content::Text(versions(&patient)), "");
    archive.add("settings.txt", "of the operator, and variables", Content::Text(settings(&patient)), "");
    for (item, content) in collected {
        match content {
            Ok((content, note)) => archive.add(&item.path, &item.about, content, &note),
            Err(why) => archive.missing(&item.path, &why),
        }
    }
    if let Some(why) = unreached(&patient) {
        archive.missing("the cluster", &why);
    }
    missing.iter().for_each(|line| archive.missing("secrets", line));
    let (files, removed, missed) = archive.counts();
    let head = format!("Collected by konverge {} at {now}.", env!("CARGO_PKG_VERSION"));
    let bytes = archive.finish(&head)?;
    write_private(file, &bytes)?;
    Ok(format!(
        "{}: {}, {} KiB; {} removed, {} could not be read (MANIFEST.txt in it says which).\nLook at it before you send it: tar -xzf {}\n",
        file.display(),
        counted(files, "file"),
        bytes.len().div_ceil(1024),
        counted(removed, "secret"),
        counted(missed, "thing"),
        file.display()
    ))
}

fn usable(patient: &Patient) -> Option<&Server> {
    patient.server.as_ref().ok().filter(|server| server.is_usable())
}

fn unreached(patient: &Patient) -> Option<String> {
    match &patient.server {
        Ok(server) if server.is_usable() => None,
        Ok(server) => Some(format!("{} cannot be asked; see doctor.txt", server.url)),
        Err(why) => Some(why.clone()),
    }
}

/// Everything that is collected.
async fn plan(patient: &Patient, args: &SupportArgs) -> Vec<Item> {
    let project = patient.project.as_ref().ok();
    let mut items = project.map(plan::of_project).unwrap_or_default();
    let Some(server) = usable(patient) else { return items };
    items.extend(plan::of_cluster(server.version().is_some_and(|version| version.contains("konverge"))));
    if let Some(project) = project {
        let workload = patient.workload.as_ref().and_then(|workload| workload.as_ref().ok());
        let deployed =
            tokio::time::timeout(INVENTORY_WITHIN, deployed(server, &project.target)).await.unwrap_or_default();
        let since = args.since.map(|since| since.as_secs());
        items.extend(plan::of_operator(project, workload, &deployed, since));
    }
    items
}

/// The paths of what `konverge deploy` has deployed, but for what is collected anyway; none if it has not.
async fn deployed(server: &Server, target: &DeployTarget) -> Vec<String> {
    let cluster = RemoteCluster::over(server.observer.client().clone(), String::new());
    let inventory = Inventory::read(&cluster, target).await.unwrap_or_default();
    let mut paths = Vec::new();
    for object in inventory.objects() {
        let is_listed = ["CustomResourceDefinition", "Secret"].iter().any(|kind| object["kind"] == *kind);
        if !is_listed && let Ok(path) = cluster.path(&object).await {
            paths.push(path);
        }
    }
    paths
}

fn versions(patient: &Patient) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let release = read("/etc/os-release");
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or(std::env::consts::OS);
    let server = match &patient.server {
        Ok(server) => format!("{} at {}", server.version().unwrap_or("unknown"), server.url),
        Err(why) => why.clone(),
    };
    format!(
        "konverge: {}\nsystem: {} {} {}\nserver: {server}\n{}",
        env!("CARGO_PKG_VERSION"),
        system.trim_matches('"'),
        read("/proc/sys/kernel/osrelease").trim(),
        std::env::consts::ARCH,
        patient.machine.versions()
    )
}

/// The settings that the operator has without a cluster's, and variables that change them or this program.
fn settings(patient: &Patient) -> String {
    let operator = match &patient.project {
        Ok(project) => match &project.operator {
            Ok(operator) => format!("{:#?}", operator.settings),
            Err(why) => why.clone(),
        },
        Err(_) => "there is no project here".to_owned(),
    };
    let is_ours = |name: &str| {
        name.starts_with("KONVERGE_")
            || ["RUST_LOG", "RUST_BACKTRACE", "KUBECONFIG", "NAMESPACE", "WATCH_NAMESPACE", "PORT"].contains(&name)
    };
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| is_ours(name))
        .collect();
    variables.sort();
    let variables: String = variables.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("# the operator, as its code has it\n{operator}\n\n# variables of this shell\n{variables}")
}

/// Writes a new file that only its owner can read: whole, or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // It is gone if it is not persisted, and its mode is 0600.
    let mut file = tempfile::Builder::new().prefix(".konverge-support-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map(drop).map_err(|error| error.error)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_archive_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tar.gz");
        write_private(&path, b"1").expect("it is new");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert!(write_private(&path, b"2").is_err(), "it is there already");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"1");
        assert!(write_private(&folder.path().join("none/a.tar.gz"), b"3").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left beside it");
    }
}
