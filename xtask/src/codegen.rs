//! In: the published sources of a Kubernetes release. Out: the tables that the schema and API server crates embed,
//! written, or compared with the committed ones. `run` is the spine: find, read, derive, write or compare.

use std::path::{Path, PathBuf};

use clap::Args;

use konverge_core::KUBERNETES_VERSION;

mod enums;
mod openapi;
mod resources;
mod source;

use enums::Enums;
use source::Source;

/// Derives the tables of built-in kinds from the published Kubernetes sources.
#[derive(Args, Debug)]
pub(crate) struct Codegen {
    /// Folder with the sources of Kubernetes; without it they come from the Go module cache or proxy
    #[arg(long, value_name = "DIR")]
    kubernetes: Option<PathBuf>,
    /// Which release to ask the Go proxy for
    #[arg(long, value_name = "VERSION", default_value_t = format!("v{KUBERNETES_VERSION}"))]
    version: String,
    /// Write nothing; fail when a committed table differs from what would be written
    #[arg(long)]
    check: bool,
}

/// Writes or compares every table below `root`.
pub(crate) fn run(options: &Codegen, root: &Path) -> Result<(), String> {
    let source = match &options.kubernetes {
        Some(folder) => Source::at(folder.clone()),
        None => Source::download(&options.version)?,
    };
    let mut stale = Vec::new();
    for (path, text) in tables(&source, &options.version)? {
        let file = root.join(path);
        if options.check {
            if std::fs::read_to_string(&file).ok().as_deref() != Some(&text) {
                stale.push(path);
            }
        } else {
            std::fs::write(&file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
            println!("{path}: {} lines, {} bytes", text.lines().count(), text.len());
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} differs from what the sources of {} say; run `cargo xtask codegen`",
        stale.join(", "),
        options.version
    ))
}

fn tables(source: &Source, version: &str) -> Result<Vec<(&'static str, String)>, String> {
    let title = format!("Kubernetes {version}");
    let schemas = source.schemas()?;
    let enums = Enums::read(&source.openapi_go()?)?;
    let (core, groups) = (source.core()?, source.groups()?);
    Ok(vec![
        ("crates/schema/data/kubernetes.types", openapi::table(&title, &schemas, &enums)?),
        ("crates/apiserver/data/kubernetes.resources", resources::table(&title, &core, &groups, &schemas)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_finds_tables_that_were_edited() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("k8s/api/openapi-spec/v3/api__v1_openapi.json", r#"{"components": {"schemas": {}}}"#);
        write("k8s/api/discovery/aggregated_v2.json", r#"{"items": []}"#);
        write("k8s/api/discovery/api__v1.json", r#"{"groupVersion": "v1", "resources": []}"#);
        write("k8s/pkg/generated/openapi/zz_generated.openapi.go", "package openapi\n");
        write("crates/schema/data/kubernetes.types", "");
        write("crates/apiserver/data/kubernetes.resources", "");

        let kubernetes = Some(folder.path().join("k8s"));
        let options = |check| Codegen { kubernetes: kubernetes.clone(), version: "v1".into(), check };
        let stale =
            |tables: &str| Err(format!("{tables} differs from what the sources of v1 say; run `cargo xtask codegen`"));
        let (types, resources) = ("crates/schema/data/kubernetes.types", "crates/apiserver/data/kubernetes.resources");

        assert_eq!(run(&options(true), folder.path()), stale(&format!("{types}, {resources}")));
        assert_eq!(run(&options(false), folder.path()), Ok(()));
        assert_eq!(run(&options(true), folder.path()), Ok(()));
        write(types, "# edited\n");
        assert_eq!(run(&options(true), folder.path()), stale(types));
    }
}
