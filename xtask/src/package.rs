//! `cargo xtask package`: whether every crate could be published. In: cargo's metadata of this workspace. Out: the packages in `target/package`, or
//! what is missing in them. Nothing is ever uploaded.

use std::path::Path;
use std::process::Command;

use clap::Args;
use serde_json::Value;

/// What people see of a crate before they use it.
const SHOWN: [&str; 6] = ["description", "license", "readme", "documentation", "keywords", "categories"];

/// The files that come with every crate.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Packages every crate that is to be published, and checks what people see of it
#[derive(Args)]
pub(crate) struct Package {
    /// Compile each package from nothing but its own files, which takes minutes
    #[arg(long)]
    verify: bool,
    /// Package files that are not committed, too
    #[arg(long)]
    allow_dirty: bool,
}

/// Packages the crates.
pub(crate) fn run(options: &Package, root: &Path) -> Result<(), String> {
    let metadata = metadata(root)?;
    let published = published(&metadata);
    let mut missing: Vec<String> = published.iter().copied().flat_map(lacking).collect();
    let names: Vec<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    missing.extend(unpublished_dependencies(&published, &names));
    for name in &names {
        let files = listed(root, name)?;
        let absent = FILES.iter().filter(|file| !files.lines().any(|line| line == **file));
        missing.extend(
            absent.map(|file| format!("{name}: its package has no {file}; link it from the root of the repository")),
        );
    }
    if !missing.is_empty() {
        return Err(format!("crates cannot be published:\n  {}", missing.join("\n  ")));
    }
    let mut command = Command::new("cargo");
    command
        .args(["package", "--quiet", "--locked"])
        .args(names.iter().flat_map(|name| ["--package", name]))
        .current_dir(root);
    if !options.verify {
        command.arg("--no-verify");
    }
    if options.allow_dirty {
        command.arg("--allow-dirty");
    }
    let status = command.status().map_err(|error| format!("cannot run cargo package: {error}"))?;
    if !status.success() {
        return Err("cargo package failed; it says above why".into());
    }
    println!("{} crates can be published: {}", names.len(), names.join(", "));
    Ok(())
}

/// What cargo knows of the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value, String> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(root);
    let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The packages that are for others, in the order of their names.
pub(crate) fn published(metadata: &Value) -> Vec<&Value> {
    let is_private = |package: &Value| package["publish"].as_array().is_some_and(Vec::is_empty);
    let mut found: Vec<&Value> =
        metadata["packages"].as_array().into_iter().flatten().filter(|package| !is_private(package)).collect();
    found.sort_by_key(|package| package["name"].as_str());
    found
}

/// What is not said about a package.
fn lacking(package: &Value) -> Vec<String> {
    let is_empty = |field: &&&str| match &package[**field] {
        Value::String(text) => text.is_empty(),
        Value::Array(words) => words.is_empty(),
        _ => true,
    };
    let name = package["name"].as_str().unwrap_or_default();
    SHOWN.iter().filter(is_empty).map(|field| format!("{name}: its Cargo.toml has no {field}")).collect()
}

/// Dependencies within the workspace that nobody else could download.
fn unpublished_dependencies(packages: &[&Value], published: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let needed = package["dependencies"].as_array().into_iter().flatten();
        for dependency in needed.filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev") {
            let (name, on) =
                (package["name"].as_str().unwrap_or_default(), dependency["name"].as_str().unwrap_or_default());
            if !published.contains(&on) {
                found.push(format!("{name}: it depends on {on}, which is not published"));
            } else if dependency["req"] == "*" {
                found.push(format!("{name}: it depends on {on} without a version"));
            }
        }
    }
    found
}

fn listed(root: &Path, name: &str) -> Result<String, String> {
    let mut command = Command::new("cargo");
    command.args(["package", "--list", "--allow-dirty", "--package", name]).current_dir(root);
    let output = command.output().map_err(|error| format!("cannot run cargo package: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, change: impl Fn(&mut Value)) -> Value {
        let mut package = json!({
            "name": name, "publish": null, "description": "a", "license": "MIT", "readme": "README.md",
            "documentation": "https://docs.rs/a", "keywords": ["a"], "categories": ["a"], "dependencies": [],
        });
        change(&mut package);
        package
    }

    #[test]
    fn what_keeps_a_crate_from_being_published_is_named() {
        let check = |change: fn(&mut Value), expect: &[&str]| {
            let metadata = json!({"packages": [
                package("shop", change),
                package("till", |_| {}),
                package("private", |package| package["publish"] = json!([])),
            ]});
            let published = published(&metadata);
            let names: Vec<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
            let mut found: Vec<String> = published.iter().copied().flat_map(lacking).collect();
            found.extend(unpublished_dependencies(&published, &names));
            assert_eq!(found, expect);
        };
        check(|_| {}, &[]);
        check(
            |shop| (shop["keywords"], shop["readme"]) = (json!([]), Value::Null),
            &["shop: its Cargo.toml has no readme", "shop: its Cargo.toml has no keywords"],
        );
        check(
            |shop| {
                shop["dependencies"] = json!([
                    {"name": "till", "path": "till", "req": "^0.1.0", "kind": null},
                    {"name": "private", "path": "private", "req": "^0.1.0", "kind": "dev"},
                    {"name": "serde", "req": "*", "kind": null},
                ]);
            },
            &[],
        );
        check(
            |shop| {
                shop["dependencies"] = json!([
                    {"name": "till", "path": "till", "req": "*", "kind": null},
                    {"name": "private", "path": "private", "req": "^0.1.0", "kind": "build"},
                ]);
            },
            &["shop: it depends on till without a version", "shop: it depends on private, which is not published"],
        );
    }
}
