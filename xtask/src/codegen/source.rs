//! In: a folder with the sources of Kubernetes, or a version to ask the Go proxy for. Out: the published documents in
//! it that tables are derived from. Never writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The sources of one Kubernetes release.
#[derive(Debug)]
pub(super) struct Source {
    root: PathBuf,
}

impl Source {
    /// Those in a folder.
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Those that the Go proxy publishes, from the module cache when they are there already.
    pub(super) fn download(version: &str) -> Result<Self, String> {
        let module = format!("k8s.io/kubernetes@{version}");
        let output = Command::new("go")
            .args(["mod", "download", "-json", &module])
            .current_dir(std::env::temp_dir())
            .output()
            .map_err(|error| format!("cannot run go: {error}; give the sources with --kubernetes DIR"))?;
        // The answer is on stdout even when it tells of a failure.
        let answer: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("go mod download {module}: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        match (answer["Dir"].as_str(), answer["Error"].as_str()) {
            (Some(dir), None) => Ok(Self::at(dir.into())),
            (_, problem) => Err(format!("go mod download {module}: {}", problem.unwrap_or("no folder in the answer"))),
        }
    }

    /// The components of every OpenAPI v3 document of a stable group and version.
    pub(super) fn schemas(&self) -> Result<BTreeMap<String, Value>, String> {
        let folder = self.root.join("api/openapi-spec/v3");
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut schemas = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((_, version)) = name.strip_suffix("_openapi.json").and_then(|stem| stem.rsplit_once("__")) else {
                continue;
            };
            if is_stable(version) {
                let Value::Object(components) = json(&path)?["components"]["schemas"].take() else {
                    return Err(format!("{}: no components", path.display()));
                };
                schemas.extend(components);
            }
        }
        Ok(schemas)
    }

    /// The Go file that lists the values of enumerated fields.
    pub(super) fn openapi_go(&self) -> Result<String, String> {
        read(&self.root.join("pkg/generated/openapi/zz_generated.openapi.go"))
    }

    /// The discovery document of every group.
    pub(super) fn groups(&self) -> Result<Value, String> {
        json(&self.root.join("api/discovery/aggregated_v2.json"))
    }

    /// The discovery document of the core group, which the other one leaves out.
    pub(super) fn core(&self) -> Result<Value, String> {
        json(&self.root.join("api/discovery/api__v1.json"))
    }
}

/// Whether a version is on by default: `v1`, `v2`, but not `v1beta1`.
pub(super) fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn json(path: &Path) -> Result<Value, String> {
    serde_json::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_have_no_stage() {
        for (version, expect) in
            [("v1", true), ("v2", true), ("v1beta1", false), ("v2alpha1", false), ("v", false), ("1", false)]
        {
            assert_eq!(is_stable(version), expect, "{version}");
        }
    }

    #[test]
    fn schemas_come_from_stable_documents_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("api/openapi-spec/v3");
        std::fs::create_dir_all(&folder).unwrap();
        for (file, ty) in [("apis__a__v1", "A"), ("apis__a__v1beta1", "B"), ("apis__a", "C"), ("api__v1", "D")] {
            let document = format!("{{\"components\":{{\"schemas\":{{\"{ty}\":{{}}}}}}}}");
            std::fs::write(folder.join(format!("{file}_openapi.json")), document).unwrap();
        }
        let schemas = Source::at(root.path().into()).schemas().unwrap();
        assert_eq!(schemas.keys().collect::<Vec<_>>(), ["A", "D"]);
    }
}
