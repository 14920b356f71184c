//! `konverge crd`: what a new CRD breaks, and objects that are stored in an old version. In: files, or a cluster. Out: what was
//! found or done; exit code 1 if something breaks or fails, 2 if the question makes no sense.

use std::path::Path;
use std::process::ExitCode;

use konverge::kube::Client;
use konverge::{Migrated, Settings};
use konverge_core::ErrorChain;
use konverge_schema::{CrdChange, crd_diff};
use serde_json::{Value, json};

use crate::args::{CrdArgs, CrdCommand, CrdDiffArgs, CrdMigrateArgs, OutputFormat};
use crate::counted::counted;
use crate::documents::read_all;
use crate::remote_cluster::unusable;

/// `konverge crd`
pub(crate) fn crd(args: &CrdArgs) -> ExitCode {
    match &args.command {
        CrdCommand::Diff(args) => diff(args),
        CrdCommand::Migrate(args) => migrate(args),
    }
}

/// The changes of one CRD.
struct Compared {
    name: String,
    changes: Vec<CrdChange>,
}

fn diff(args: &CrdDiffArgs) -> ExitCode {
    let compared = definitions(&args.old).and_then(|old| Ok(compare(&old, &definitions(&args.new)?)));
    let compared = match compared {
        Ok(compared) => compared,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    let breaking = compared.iter().flat_map(|one| &one.changes).filter(|change| change.breaking).count();
    match args.output {
        OutputFormat::Text => print_text(&compared, breaking),
        OutputFormat::Json | OutputFormat::Yaml => {
            let change =
                |one: &CrdChange| json!({"breaking": one.breaking, "path": one.path, "what": one.what, "why": one.why});
            let changes = |one: &Compared| one.changes.iter().map(change).collect::<Vec<_>>();
            let each = |one: &Compared| json!({"name": one.name, "changes": changes(one)});
            let shown = json!({"breaking": breaking, "definitions": compared.iter().map(each).collect::<Vec<_>>()});
            match args.output {
                OutputFormat::Yaml => print!("{}", serde_saphyr::to_string(&shown).unwrap_or_default()),
                _ => println!("{shown:#}"),
            }
        }
    }
    ExitCode::from(u8::from(breaking > 0))
}

/// The CRDs of a file or a directory.
fn definitions(path: &Path) -> Result<Vec<Value>, String> {
    let documents = read_all(&[path.to_owned()]).map_err(|error| ErrorChain(&error).to_string())?;
    let found: Vec<Value> = documents.into_iter().map(|document| document.object).filter(is_definition).collect();
    if found.is_empty() {
        return Err(format!("there is no CustomResourceDefinition in {}", path.display()));
    }
    Ok(found)
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

fn name_of(definition: &Value) -> String {
    definition["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn compare(old: &[Value], new: &[Value]) -> Vec<Compared> {
    let find = |all: &[Value], name: &str| all.iter().find(|one| name_of(one) == name).cloned();
    let mut compared: Vec<Compared> = Vec::new();
    for before in old {
        let name = name_of(before);
        // Two files with one CRD each are about that CRD, also if it was renamed.
        let only = new.first().filter(|_| old.len() == 1 && new.len() == 1).cloned();
        let changes = match find(new, &name).or(only) {
            Some(after) => crd_diff(before, &after),
            None => vec![CrdChange::removed_definition()],
        };
        compared.push(Compared { name, changes });
    }
    for added in new.iter().filter(|one| find(old, &name_of(one)).is_none() && (old.len(), new.len()) != (1, 1)) {
        compared.push(Compared { name: name_of(added), changes: vec![CrdChange::added_definition()] });
    }
    compared
}

/// What new CRDs break, as sentences.
pub(crate) fn breaking(old: &[Value], new: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for Compared { name, changes } in compare(old, new) {
        for CrdChange { path, what, why, .. } in changes.iter().filter(|change| change.breaking) {
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            found.push(format!("{name}: {path}{what}: {why}"));
        }
    }
    found
}

fn print_text(compared: &[Compared], breaking: usize) {
    for Compared { name, changes } in compared {
        println!("{name}");
        if changes.is_empty() {
            println!("  nothing that anybody notices");
        }
        for CrdChange { breaking, path, what, why, .. } in changes {
            let word = if *breaking { "BREAKS" } else { "fine  " };
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            println!("  {word}  {path}{what}\n          {why}");
        }
    }
    match breaking {
        0 => println!("nothing breaks"),
        1 => println!("1 change breaks something"),
        many => println!("{many} changes break something"),
    }
}

fn migrate(args: &CrdMigrateArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let migrated = match runtime {
        Ok(runtime) => runtime.block_on(migrate_all(args)),
        Err(error) => Err(error.to_string()),
    };
    match migrated {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn migrate_all(args: &CrdMigrateArgs) -> Result<(), String> {
    let settings = Settings {
        kubeconfig: args.kubeconfig.iter().cloned().collect(),
        context: args.context.clone(),
        ..Settings::default()
    };
    let config = settings.cluster().await.map_err(|error| unusable(&error))?;
    let client = Client::try_from(config).map_err(|error| ErrorChain(&error).to_string())?;
    for name in &args.names {
        let migrated = konverge::migrate_storage(&client, name).await.map_err(|error| format!("{name}: {error:#}"))?;
        let Migrated { version, before, objects, overtaken, .. } = &migrated;
        if migrated.is_unchanged() {
            println!("{name}: all objects are stored in {version} already");
            continue;
        }
        let others = if *overtaken > 0 { format!(" ({overtaken} by others meanwhile)") } else { String::new() };
        let written = objects + overtaken;
        println!(
            "{name}: {} written{others}; stored versions were {}, and are {version}",
            counted(written, "object"),
            before.join(", ")
        );
    }
    Ok(())
}
