//! Generates the tables of built-in kinds. In: the published sources of a Kubernetes release. Out: the tables that the
//! schema and API server crates embed, written to their files or compared with the committed ones.

use std::path::Path;

use clap::Args;

mod enums;
mod go_types;
mod openapi;
mod protobuf;
mod resources;

use crate::source::{Release, Source};
use enums::Enums;

/// Generates the tables of built-in kinds from the published Kubernetes sources.
#[derive(Args, Debug)]
pub(crate) struct Codegen {
    #[command(flatten)]
    release: Release,
    /// Write nothing; fail when a committed table differs from what would be written
    #[arg(long)]
    check: bool,
}

/// Writes or compares every table below `root`.
pub(crate) fn run(options: &Codegen, root: &Path) -> Result<(), String> {
    let (source, version) = (options.release.source()?, &options.release.version);
    let mut stale = Vec::new();
    for (path, text) in tables(&source, version)? {
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
    Err(format!("{} differs from what the sources of {version} say; run `cargo xtask codegen`", stale.join(", ")))
}

fn tables(source: &Source, version: &str) -> Result<Vec<(&'static str, String)>, String> {
    let title = format!("Kubernetes {version}");
    let schemas = source.schemas()?;
    let enums = Enums::read(&source.openapi_go()?)?;
    let (core, groups) = (source.core()?, source.groups()?);
    Ok(vec![
        ("crates/schema/data/kubernetes.types", openapi::table(&title, &schemas, &enums)?),
        ("crates/schema/data/kubernetes.protobuf", protobuf::table(&title, &schemas, source)?),
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
        write("crates/schema/data/kubernetes.protobuf", "");
        write("crates/apiserver/data/kubernetes.resources", "");

        let kubernetes = Some(folder.path().join("k8s"));
        let release = Release { kubernetes, version: "v1".into() };
        let options = |check| Codegen { release: release.clone(), check };
        let stale =
            |tables: &str| Err(format!("{tables} differs from what the sources of v1 say; run `cargo xtask codegen`"));
        let (types, protobuf) = ("crates/schema/data/kubernetes.types", "crates/schema/data/kubernetes.protobuf");
        let resources = "crates/apiserver/data/kubernetes.resources";

        assert_eq!(run(&options(true), folder.path()), stale(&format!("{types}, {protobuf}, {resources}")));
        assert_eq!(run(&options(false), folder.path()), Ok(()));
        assert_eq!(run(&options(true), folder.path()), Ok(()));
        write(types, "# edited\n");
        assert_eq!(run(&options(true), folder.path()), stale(types));
    }
}
