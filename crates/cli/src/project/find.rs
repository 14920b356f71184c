//! Whether a directory is an operator's project. In: a directory. Out: what cargo is to build there. Asks cargo, which
//! knows best what its manifests mean.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::huge_pages;

/// An operator's project: a package that depends on `konverge` and has a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    directory: PathBuf,
    /// Where its lock file is, and the manifest it may share settings with.
    workspace: PathBuf,
    binary: String,
    /// Where cargo builds it.
    target: PathBuf,
    /// Where cargo keeps what it compiles on the way.
    build: PathBuf,
    /// The package as cargo describes it.
    package: Value,
}

/// What a directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Part of an operator's project.
    Operator(Project),
    /// Part of a package that does not depend on `konverge`.
    Other { package: String },
    /// In no package.
    Nothing,
}

/// Why a project cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error(
        "cargo cannot be started to look at this project; install Rust (https://rustup.rs has it), or name cargo in the variable CARGO"
    )]
    NoCargo(#[source] std::io::Error),
    #[error("cargo does not understand {}:\n{words}", manifest.display())]
    Manifest { manifest: PathBuf, words: String },
    #[error(
        "{} is a workspace; start in the directory of the operator's package ({}), or pass --operator NAME for one that \
         comes with this program",
        manifest.display(),
        packages.join(", ")
    )]
    Workspace { manifest: PathBuf, packages: Vec<String> },
    #[error("{package} depends on konverge but has no binary to run; add src/main.rs, or start in another directory")]
    NoBinary { package: String },
    #[error("{package} has several binaries ({}); say which with --bin NAME", names.join(", "))]
    Several { package: String, names: Vec<String> },
    #[error("{package} has no binary {asked:?}; it has {}", names.join(", "))]
    Unknown { package: String, asked: String, names: Vec<String> },
}

impl Project {
    /// The project that a directory belongs to: its package, or that of the nearest directory above it, as cargo has it.
    /// `bin` chooses among several binaries.
    pub(crate) fn find(directory: &Path, bin: Option<&str>) -> Result<Found, FindError> {
        let with_manifest = directory.ancestors().find(|above| above.join("Cargo.toml").is_file());
        let Some(directory) = with_manifest else { return Ok(Found::Nothing) };
        let manifest = directory.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .map_err(|error| FindError::Manifest { manifest: manifest.clone(), words: error.to_string() })?;
        // Cargo need not be asked about packages that cannot be operators.
        if !text.contains("konverge") {
            let package = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(Found::Other { package });
        }
        let mut cargo = Command::new(super::build::cargo());
        cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest);
        cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cargo = huge_pages::allow_for_child(|| cargo.spawn()).map_err(FindError::NoCargo)?;
        let output = cargo.wait_with_output().map_err(FindError::NoCargo)?;
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
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The files that say what it is made of.
    pub(crate) fn manifests(&self) -> Vec<PathBuf> {
        let (own, shared) = (self.directory.join("Cargo.toml"), self.workspace.join("Cargo.toml"));
        let mut manifests = vec![own, shared, self.workspace.join("Cargo.lock")];
        manifests.dedup();
        manifests
    }

    /// Where its lock file is.
    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Where cargo puts what it has built.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Where cargo keeps compiled dependencies; the same unless the developer says otherwise.
    pub(crate) fn build_directory(&self) -> &Path {
        &self.build
    }

    /// The package as cargo describes it.
    pub(crate) fn package(&self) -> &Value {
        &self.package
    }

    /// The binary that is the operator.
    pub(crate) fn binary(&self) -> &str {
        &self.binary
    }
}

/// What cargo's metadata says of the package with this manifest.
fn choose(directory: &Path, manifest: &Path, metadata: &Value, bin: Option<&str>) -> Result<Found, FindError> {
    let items = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let name_of = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let is_operator = |package: &Value| {
        let uses = |dependency: &Value| dependency["name"] == "konverge" && dependency["kind"] != "dev";
        items(package, "dependencies").iter().any(uses)
    };
    let is_it = |package: &Value| package["manifest_path"].as_str().map(Path::new) == Some(manifest);
    let packages = items(metadata, "packages");
    let Some(package) = packages.iter().find(|package| is_it(package)) else {
        let operators: Vec<String> = packages.iter().filter(|package| is_operator(package)).map(name_of).collect();
        // Its own repository is where people try this program first, with the operators that come along.
        let is_own = packages.iter().any(|package| package["name"] == env!("CARGO_PKG_NAME"));
        return match operators.is_empty() || is_own {
            true => Ok(Found::Nothing),
            false => Err(FindError::Workspace { manifest: manifest.to_owned(), packages: operators }),
        };
    };
    let name = name_of(package);
    if !is_operator(package) {
        return Ok(Found::Other { package: name });
    }
    let is_binary = |target: &Value| items(target, "kind").iter().any(|kind| kind == "bin");
    let names: Vec<String> = items(package, "targets")
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
    let target = metadata["target_directory"].as_str().map_or_else(|| workspace.join("target"), PathBuf::from);
    let build = metadata["build_directory"].as_str().map_or_else(|| target.clone(), PathBuf::from);
    let package = package.clone();
    Ok(Found::Operator(Project { directory: directory.to_owned(), workspace, binary, target, build, package }))
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
            Ok(Found::Operator(project)) => project.binary().to_owned(),
            Ok(Found::Other { package }) => format!("{package} is no operator"),
            Ok(Found::Nothing) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn a_project_is_a_package_with_konverge_and_one_binary() {
        check(&["konverge", "tokio"], &["shop"], None, None, "shop");
        check(&["tokio"], &["shop"], None, None, "shop is no operator");
        check(&["konverge"], &["a", "b"], Some("b"), None, "b");
        check(&["konverge"], &["a", "b"], Some("b"), Some("a"), "a");
        check(&["konverge"], &["a", "b"], None, None, "shop has several binaries (a, b); say which with --bin NAME");
        check(&["konverge"], &["a"], None, Some("x"), "shop has no binary \"x\"; it has a");
        let none = "shop depends on konverge but has no binary to run; add src/main.rs, or start in another directory";
        check(&["konverge"], &[], None, None, none);
    }

    #[test]
    fn a_workspace_says_where_its_operators_are() {
        let of = |name: &str| {
            let dependencies = json!([{"name": "konverge"}]);
            json!({"packages": [{"name": name, "manifest_path": "/w/shop/Cargo.toml", "dependencies": dependencies}]})
        };
        let found = |name| choose(Path::new("/w"), Path::new("/w/Cargo.toml"), &of(name), None);
        let refused = found("shop").expect_err("which one is meant is not known").to_string();
        assert!(refused.contains("start in the directory of the operator's package (shop)"), "{refused}");
        assert_eq!(found("konverge-cli").expect("its own repository"), Found::Nothing);
    }
}
