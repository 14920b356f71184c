//! The sources of a Kubernetes release. In: a folder with the sources, or a version to download from the Go proxy. Out: the
//! published documents from which the tables are generated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use konverge_core::KUBERNETES_VERSION;

/// Which release of Kubernetes, and where its sources are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Release {
    /// Folder with the sources of Kubernetes; without it they come from the Go module cache or proxy
    #[arg(long, value_name = "DIR")]
    pub(crate) kubernetes: Option<PathBuf>,
    /// Which release to ask the Go proxy for
    #[arg(long, value_name = "VERSION", default_value_t = format!("v{KUBERNETES_VERSION}"))]
    pub(crate) version: String,
}

impl Release {
    /// The sources of this release.
    pub(crate) fn source(&self) -> Result<Source, String> {
        match &self.kubernetes {
            Some(folder) => Ok(Source::at(folder.clone())),
            None => Source::download(&self.version),
        }
    }
}

/// The modules with the Go types of the API.
const MODULES: [&str; 4] =
    ["k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/kube-aggregator"];

/// The sources of one Kubernetes release.
#[derive(Debug)]
pub(crate) struct Source {
    root: PathBuf,
    /// Where the modules with Go types are, by the path that imports them.
    modules: BTreeMap<&'static str, PathBuf>,
}

impl Source {
    /// The sources in a folder, which has the Go types where the repository of Kubernetes has them.
    pub(crate) fn at(root: PathBuf) -> Self {
        let modules = MODULES.map(|module| (module, root.join("staging/src").join(module))).into();
        Self { root, modules }
    }

    /// The sources that the Go proxy publishes, from the module cache if they are there.
    pub(crate) fn download(version: &str) -> Result<Self, String> {
        let root = download("k8s.io/kubernetes", version)?;
        // The version of the libraries is v0.x for release v1.x.
        let library = version.strip_prefix("v1.").map(|release| format!("v0.{release}"));
        let library = library.ok_or_else(|| format!("{version} is not a release of Kubernetes"))?;
        let modules = MODULES.map(|module| download(module, &library).map(|folder| (module, folder)));
        Ok(Self { root, modules: modules.into_iter().collect::<Result<_, _>>()? })
    }

    /// The folders with objects that Kubernetes tests its own serialization with: one for this release, and one for each
    /// earlier one whose objects it still reads.
    pub(crate) fn serialized_objects(&self) -> Result<Vec<PathBuf>, String> {
        let mut folders = Vec::new();
        for (module, below) in [("k8s.io/api", "testdata"), ("k8s.io/apiextensions-apiserver", "pkg/apis/testdata")] {
            let folder = self.modules[module].join(below);
            let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            for entry in entries {
                folders.push(entry.map_err(|error| format!("{}: {error}", folder.display()))?.path());
            }
        }
        folders.retain(|folder| folder.is_dir());
        folders.sort();
        Ok(folders)
    }

    /// The Go files of a package of the API, without tests.
    pub(crate) fn go_package(&self, path: &str) -> Result<Vec<String>, String> {
        let module = self
            .modules
            .iter()
            .find_map(|(module, folder)| Some((path.strip_prefix(module)?.strip_prefix('/')?, folder)));
        let (below, folder) = module.ok_or_else(|| format!("{path} is in none of the modules that have API types"))?;
        let folder = folder.join(below);
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".go") && !name.ends_with("_test.go") {
                files.push(path);
            }
        }
        files.sort();
        files.iter().map(|file| read(file)).collect()
    }

    /// The components of every OpenAPI v3 document of a stable group and version.
    pub(crate) fn schemas(&self) -> Result<BTreeMap<String, Value>, String> {
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

    /// A `go.mod` that imports Kubernetes itself, with the published libraries in place of those in its own tree.
    pub(crate) fn module_with_published_libraries(&self, name: &str, version: &str) -> Result<String, String> {
        let library = version.strip_prefix("v1.").ok_or_else(|| format!("{version} is no release of Kubernetes"))?;
        let replaced: String = read(&self.root.join("go.mod"))?
            .lines()
            .filter_map(|line| line.trim().split_once(" => ./staging/src/"))
            .map(|(module, _)| format!("\t{module} => {module} v0.{library}\n"))
            .collect();
        Ok(format!("module {name}\n\ngo 1.26\n\nrequire k8s.io/kubernetes {version}\n\nreplace (\n{replaced})\n"))
    }

    /// The roles and bindings that every cluster has, as lists of objects.
    pub(crate) fn default_roles(&self) -> Result<Vec<Value>, String> {
        let folder = self.root.join("plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata");
        let names = ["cluster-roles", "controller-roles", "cluster-role-bindings", "controller-role-bindings"];
        let names = names.into_iter().chain(["namespace-roles", "namespace-role-bindings"]);
        let read = |name| {
            let path = folder.join(format!("{name}.yaml"));
            serde_saphyr::from_str(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))
        };
        names.map(read).collect()
    }

    /// The Go file that lists the values of enumerated fields.
    pub(crate) fn openapi_go(&self) -> Result<String, String> {
        read(&self.root.join("pkg/generated/openapi/zz_generated.openapi.go"))
    }

    /// The discovery document of every group.
    pub(crate) fn groups(&self) -> Result<Value, String> {
        json(&self.root.join("api/discovery/aggregated_v2.json"))
    }

    /// The discovery document of the core group, which `groups` does not include.
    pub(crate) fn core(&self) -> Result<Value, String> {
        json(&self.root.join("api/discovery/api__v1.json"))
    }
}

/// Whether a version is stable, so that it is enabled by default: `v1`, `v2`, but not `v1beta1`.
pub(crate) fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The folder of a module in the module cache.
fn download(module: &str, version: &str) -> Result<PathBuf, String> {
    let module = format!("{module}@{version}");
    let output = Command::new("go")
        .args(["mod", "download", "-json", &module])
        .current_dir(std::env::temp_dir())
        .output()
        .map_err(|error| format!("cannot run go: {error}; give the sources with --kubernetes DIR"))?;
    // The answer is on stdout even if the download failed.
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("go mod download {module}: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    match (answer["Dir"].as_str(), answer["Error"].as_str()) {
        (Some(dir), None) => Ok(dir.into()),
        (_, problem) => Err(format!("go mod download {module}: {}", problem.unwrap_or("no folder in the answer"))),
    }
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
