//! Generates the tables of built-in kinds. In: the published sources of a Kubernetes release. Out: the tables that the
//! schema and API server crates embed, written to their files or compared with the committed ones.

use std::io::{Read as _, Write as _};
use std::path::Path;

use clap::Args;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

mod descriptions;
mod enums;
mod go_types;
mod openapi;
mod protobuf;
mod resources;
mod roles;

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
            if unpacked(&file).as_deref() != Some(&text) {
                stale.push(path);
            }
        } else {
            let bytes = packed(&file, &text);
            std::fs::write(&file, &bytes).map_err(|error| format!("{}: {error}", file.display()))?;
            println!("{path}: {} lines, {} bytes", text.lines().count(), bytes.len());
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
        ("crates/apiserver/data/kubernetes.descriptions.gz", descriptions::table(&title, &schemas)?),
        ("crates/apiserver/data/kubernetes.roles", roles::table(&title, &source.default_roles()?)?),
    ])
}

/// The bytes of a table's file: its text, compressed if the name says so.
fn packed(file: &Path, text: &str) -> Vec<u8> {
    if file.extension().is_none_or(|extension| extension != "gz") {
        return text.as_bytes().to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}

/// The text of a table's file, if it is one. Texts are compared, because compressors differ in how they write the same text.
fn unpacked(file: &Path) -> Option<String> {
    let bytes = std::fs::read(file).ok()?;
    if file.extension().is_none_or(|extension| extension != "gz") {
        return String::from_utf8(bytes).ok();
    }
    let mut text = String::new();
    GzDecoder::new(&*bytes).read_to_string(&mut text).ok()?;
    Some(text)
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
        for name in ["cluster-roles", "controller-roles", "namespace-roles"] {
            write(&format!("k8s/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/{name}.yaml"), "items: []");
            let bindings = name.replace("roles", "role-bindings");
            write(
                &format!("k8s/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/{bindings}.yaml"),
                "items: []",
            );
        }
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
        let descriptions = "crates/apiserver/data/kubernetes.descriptions.gz";

        let roles = "crates/apiserver/data/kubernetes.roles";

        let all = stale(&format!("{types}, {protobuf}, {resources}, {descriptions}, {roles}"));
        assert_eq!(run(&options(true), folder.path()), all);
        assert_eq!(run(&options(false), folder.path()), Ok(()));
        assert_eq!(run(&options(true), folder.path()), Ok(()));
        write(types, "# edited\n");
        assert_eq!(run(&options(true), folder.path()), stale(types));
        write(descriptions, "not compressed");
        assert_eq!(run(&options(true), folder.path()), stale(&format!("{types}, {descriptions}")));
    }
}
