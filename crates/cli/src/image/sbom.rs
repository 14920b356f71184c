//! What is compiled into an operator, as a bill of materials in CycloneDX. In: cargo's metadata and the lock file. Out: JSON, sorted, without a time, so that
//! it is the same for the same sources.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::project::{Project, cargo};

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum SbomError {
    #[error("cargo does not tell what {package} depends on: {words}")]
    Metadata { package: String, words: String },
}

/// The bill of materials of a project, for one target or for all.
pub(super) fn of(project: &Project, triple: Option<&str>) -> Result<String, SbomError> {
    let mut command = Command::new(cargo());
    command.args(["metadata", "--format-version=1", "--manifest-path"]).arg(project.directory().join("Cargo.toml"));
    if let Some(triple) = triple {
        command.args(["--filter-platform", triple]);
    }
    let failed = |words: String| SbomError::Metadata { package: project.binary().to_owned(), words };
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let lock = std::fs::read_to_string(project.workspace().join("Cargo.lock")).unwrap_or_default();
    let root = project.package()["id"].as_str().unwrap_or_default();
    let text = serde_json::to_string_pretty(&bill(&metadata, root, &checksums(&lock))).expect("a value is JSON");
    Ok(text + "\n")
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='))?;
            Some(line.trim().trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The bill of the package with this id: itself, and everything that it is built with.
fn bill(metadata: &Value, root: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        items(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let mut needs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in items(&metadata["resolve"]["nodes"]) {
        let is_built = |dependency: &&Value| items(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
        let needed = items(&node["deps"]).iter().filter(is_built).map(|dependency| text(&dependency["pkg"])).collect();
        needs.insert(text(&node["id"]), needed);
    }
    let mut reached = BTreeSet::new();
    let mut next = vec![root.to_owned()];
    while let Some(id) = next.pop() {
        if reached.insert(id.clone()) {
            next.extend(needs.get(&id).cloned().unwrap_or_default());
        }
    }
    let url = |id: &str| {
        packages.get(id).map_or_else(String::new, |package| purl(&text(&package["name"]), &text(&package["version"])))
    };
    let component = |id: &String| {
        let package = packages.get(id)?;
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let kind = if id == root { "application" } else { "library" };
        let mut component =
            json!({"type": kind, "name": name, "version": version, "bom-ref": url(id), "purl": url(id)});
        if let Some(license) = package["license"].as_str() {
            // Before there were expressions, a slash was between two licences.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        if let Some(repository) = package["repository"].as_str() {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        Some(component)
    };
    let mut components: Vec<Value> = reached.iter().filter(|id| *id != root).filter_map(component).collect();
    components.sort_by_key(|component| text(&component["bom-ref"]));
    let dependency = |id: &String| {
        let mut on: Vec<String> = needs.get(id).into_iter().flatten().map(|id| url(id)).collect();
        on.sort();
        on.dedup();
        json!({"ref": url(id), "dependsOn": on})
    };
    let mut dependencies: Vec<Value> = reached.iter().map(dependency).collect();
    dependencies.sort_by_key(|dependency| text(&dependency["ref"]));
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "component": component(&root.to_owned()),
            "tools": {"components": [{"type": "application", "name": "konverge", "version": env!("CARGO_PKG_VERSION")}]},
        },
        "components": components,
        "dependencies": dependencies,
    })
}

/// The address of a package for every tool.
fn purl(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_listed_once() {
        let package = |name: &str| json!({"id": name, "name": name, "version": "1.0.0+x", "license": "MIT/Apache-2.0"});
        let needs = |id: &str, on: &[(&str, Value)]| {
            let on: Vec<Value> =
                on.iter().map(|(id, kind)| json!({"pkg": id, "dep_kinds": [{"kind": kind}]})).collect();
            json!({"id": id, "deps": on})
        };
        let packages = ["shop", "a", "b", "c", "unused"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": {"nodes": [
                needs("shop", &[("b", Value::Null), ("a", json!("build")), ("c", json!("dev"))]),
                needs("a", &[("b", Value::Null)]),
                needs("b", &[]),
            ]},
        });
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0+x\"\nchecksum = \"00ff\"\n";
        let bill = bill(&metadata, "shop", &checksums(lock));
        assert_eq!(bill["metadata"]["component"]["type"], "application");
        let refs: Vec<&str> =
            bill["components"].as_array().unwrap().iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        assert_eq!(refs, ["pkg:cargo/a@1.0.0%2Bx", "pkg:cargo/b@1.0.0%2Bx"]);
        assert_eq!(bill["components"][0]["hashes"], json!([{"alg": "SHA-256", "content": "00ff"}]));
        assert_eq!(bill["components"][0]["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(
            bill["dependencies"][2],
            json!({"ref": "pkg:cargo/shop@1.0.0%2Bx", "dependsOn": ["pkg:cargo/a@1.0.0%2Bx", "pkg:cargo/b@1.0.0%2Bx"]})
        );
    }
}
