//! Whether a directory is an operator's project. In: a directory. Out: what cargo is to build there. Asks cargo, which
//! knows best what its manifests mean.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// An operator's project: a package that depends on `konverge` and has a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    directory: PathBuf,
    /// Where its lock file is, and the manifest it may share settings with.
    workspace: PathBuf,
    binary: String,
}

/// Why a project cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("cargo cannot be started to look at this project; is Rust installed?")]
    NoCargo(#[source] std::io::Error),
    #[error("cargo does not understand {}:\n{words}", manifest.display())]
    Manifest { manifest: PathBuf, words: String },
    #[error("{package} depends on konverge but has no binary to run; add src/main.rs, or start in another directory")]
    NoBinary { package: String },
    #[error("{package} has several binaries ({}); say which with --bin NAME", names.join(", "))]
    Several { package: String, names: Vec<String> },
    #[error("{package} has no binary {asked:?}; it has {}", names.join(", "))]
    Unknown { package: String, asked: String, names: Vec<String> },
}

impl Project {
    /// The project in a directory; none if there is no package that depends on `konverge`. `bin` chooses among several
    /// binaries.
    pub fn find(directory: &Path, bin: Option<&str>) -> Result<Option<Self>, FindError> {
        let manifest = directory.join("Cargo.toml");
        // Most directories are no packages at all, and cargo need not be asked.
        let Ok(text) = std::fs::read_to_string(&manifest) else { return Ok(None) };
        if !text.contains("konverge") {
            return Ok(None);
        }
        let mut cargo = Command::new(super::build::cargo());
        let asked = cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest);
        let output = asked.output().map_err(FindError::NoCargo)?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(FindError::Manifest { manifest, words });
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| FindError::Manifest { manifest: manifest.clone(), words: error.to_string() })?;
        let manifest = std::fs::canonicalize(&manifest).unwrap_or(manifest);
        choose(directory, &manifest, &metadata, bin)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The files that say what it is made of.
    pub fn manifests(&self) -> Vec<PathBuf> {
        let (own, shared) = (self.directory.join("Cargo.toml"), self.workspace.join("Cargo.toml"));
        let mut manifests = vec![own, shared, self.workspace.join("Cargo.lock")];
        manifests.dedup();
        manifests
    }

    /// The binary that is the operator.
    pub fn binary(&self) -> &str {
        &self.binary
    }
}

/// What cargo's metadata says of the package with this manifest.
fn choose(
    directory: &Path,
    manifest: &Path,
    metadata: &Value,
    bin: Option<&str>,
) -> Result<Option<Project>, FindError> {
    let items = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let is_it = |package: &Value| package["manifest_path"].as_str().map(Path::new) == Some(manifest);
    let Some(package) = items(metadata, "packages").into_iter().find(is_it) else { return Ok(None) };
    let uses = |dependency: &Value| dependency["name"] == "konverge" && dependency["kind"] != "dev";
    if !items(&package, "dependencies").iter().any(uses) {
        return Ok(None);
    }
    let name = package["name"].as_str().unwrap_or_default().to_owned();
    let is_binary = |target: &Value| items(target, "kind").iter().any(|kind| kind == "bin");
    let names: Vec<String> = items(&package, "targets")
        .iter()
        .filter(|target| is_binary(target))
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    let binary = match (bin.or_else(|| package["default_run"].as_str()), names.as_slice()) {
        (Some(asked), names) if names.iter().any(|name| name == asked) => asked.to_owned(),
        (_, []) => return Err(FindError::NoBinary { package: name }),
        (Some(asked), _) => return Err(FindError::Unknown { package: name, asked: asked.to_owned(), names }),
        (None, [only]) => only.clone(),
        (None, _) => return Err(FindError::Several { package: name, names }),
    };
    let workspace = metadata["workspace_root"].as_str().map_or_else(|| directory.to_owned(), PathBuf::from);
    Ok(Some(Project { directory: directory.to_owned(), workspace, binary }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(dependencies: &[&str], binaries: &[&str], default_run: Option<&str>, bin: Option<&str>, expect: &str) {
        let dependencies: Vec<Value> = dependencies.iter().map(|name| json!({"name": name})).collect();
        let library = json!({"name": "shop", "kind": ["lib"]});
        let binaries = binaries.iter().map(|name| json!({"name": name, "kind": ["bin"]}));
        let package = json!({
            "name": "shop",
            "manifest_path": "/shop/Cargo.toml",
            "default_run": default_run,
            "dependencies": dependencies,
            "targets": std::iter::once(library).chain(binaries).collect::<Vec<_>>(),
        });
        let other =
            json!({"name": "other", "manifest_path": "/shop/other/Cargo.toml", "dependencies": [], "targets": []});
        let metadata = json!({"packages": [other, package]});
        let found = match choose(Path::new("/shop"), Path::new("/shop/Cargo.toml"), &metadata, bin) {
            Ok(Some(project)) => project.binary().to_owned(),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn a_project_is_a_package_with_konverge_and_one_binary() {
        check(&["konverge", "tokio"], &["shop"], None, None, "shop");
        check(&["tokio"], &["shop"], None, None, "none");
        check(&["konverge"], &["a", "b"], Some("b"), None, "b");
        check(&["konverge"], &["a", "b"], Some("b"), Some("a"), "a");
        check(&["konverge"], &["a", "b"], None, None, "shop has several binaries (a, b); say which with --bin NAME");
        check(&["konverge"], &["a"], None, Some("x"), "shop has no binary \"x\"; it has a");
        let none = "shop depends on konverge but has no binary to run; add src/main.rs, or start in another directory";
        check(&["konverge"], &[], None, None, none);
    }
}
