//! `cargo xtask semver`: whether the crates keep the promise of their version. In: the newest tag `v…` of this repository. Out: what breaks users of that
//! version, found by cargo-semver-checks. Before the first tag there is no promise, and nothing to compare with.

use std::path::Path;
use std::process::Command;

use crate::package::{metadata, published};

/// Compares the crates with their newest release.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let Some(tag) = newest_tag(root)? else {
        println!("nothing is released yet: there is no tag v… to compare with");
        return Ok(());
    };
    let metadata = metadata(root)?;
    // A program has no API.
    let is_library = |package: &&serde_json::Value| {
        let targets = package["targets"].as_array().into_iter().flatten();
        targets.flat_map(|target| target["kind"].as_array().into_iter().flatten()).any(|kind| kind == "lib")
    };
    let libraries: Vec<&str> =
        published(&metadata).into_iter().filter(is_library).filter_map(|package| package["name"].as_str()).collect();
    let mut command = Command::new("cargo");
    command.args(["semver-checks", "--baseline-rev", &tag]);
    command.args(libraries.iter().flat_map(|name| ["--package", name])).current_dir(root);
    let status = command.status().map_err(|error| format!("cannot run cargo semver-checks: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "users of {tag} would have to change their code, or `cargo install --locked cargo-semver-checks` is missing; it says above which"
        )),
    }
}

/// The newest tag of a version that HEAD comes from.
fn newest_tag(root: &Path) -> Result<Option<String>, String> {
    let mut command = Command::new("git");
    command.args(["tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v[0-9]*"]).current_dir(root);
    let output = command.output().map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().map(ToOwned::to_owned))
}
