//! The project whose operator is generated for, built or deployed. In: the current directory and flags. Out: what cargo builds there, and
//! where the operator goes: `[package.metadata.konverge]` in its `Cargo.toml` says so, or there are defaults.

use konverge_core::{NameRule, check_name};
use serde_json::Value;

use super::{Package, object_name, text};
use crate::image_reference::ImageReference;
use crate::project::{FindError, Found, Project};

/// Arguments of every command about a project.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProjectArgs {
    /// The binary of the project that is the operator, if it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// The namespace that the operator runs in [default: `namespace` in [package.metadata.konverge], or NAME-system]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// Where an operator goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeployTarget {
    /// What the deployment is called: after the binary.
    pub name: String,
    pub namespace: String,
    pub image: String,
}

/// Why there is no project to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    #[error("the current directory is not known")]
    Directory(#[source] std::io::Error),
    #[error("there is no operator here: no Cargo.toml in this directory or above it; `konverge init` starts a project")]
    Nothing,
    #[error(
        "{0} is no operator: it does not depend on konverge; `cargo add konverge` makes it do so, `konverge init` starts another project"
    )]
    Other(String),
    #[error("this is a workspace; start in the directory of the operator's package ({})", .0.join(", "))]
    Workspace(Vec<String>),
    #[error(transparent)]
    Find(FindError),
    #[error(
        "[package.metadata.konverge] in Cargo.toml has {0:?}; it takes image, a name without a tag, namespace, and the table bundle"
    )]
    Key(String),
    #[error("{0:?} cannot be the name of a namespace: {1}")]
    Namespace(String, String),
    #[error(
        "{0:?} in [package.metadata.konverge] cannot be an image: it takes a name such as ghcr.io/acme/shop, and the tag is the version of the package"
    )]
    Image(String),
}

/// The project of the current directory.
pub(crate) fn here(args: &ProjectArgs) -> Result<(Project, Package, DeployTarget), ProjectError> {
    let directory = std::env::current_dir().map_err(ProjectError::Directory)?;
    let project = match Project::find(&directory, args.bin.as_deref()) {
        Ok(Found::Operator(project)) => project,
        Ok(Found::Other { package }) => return Err(ProjectError::Other(package)),
        Ok(Found::Nothing) => return Err(ProjectError::Nothing),
        Err(FindError::Workspace { packages, .. }) => return Err(ProjectError::Workspace(packages)),
        Err(error) => return Err(ProjectError::Find(error)),
    };
    let package = Package { version: version(project.package()), summary: text(&project.package()["description"]) };
    let target = target(project.binary(), project.package(), args.namespace.as_deref())?;
    Ok((project, package, target))
}

fn version(package: &Value) -> String {
    package["version"].as_str().unwrap_or("0.0.0").to_owned()
}

/// Where the operator of a package goes, as flags and its manifest say.
fn target(binary: &str, package: &Value, namespace: Option<&str>) -> Result<DeployTarget, ProjectError> {
    let said = &package["metadata"]["konverge"];
    let unknown = |key: &&String| !["image", "namespace", "bundle"].contains(&key.as_str());
    if let Some(key) = said.as_object().into_iter().flat_map(|said| said.keys()).find(unknown) {
        return Err(ProjectError::Key(key.clone()));
    }
    let name = object_name(binary);
    let namespace =
        namespace.or(said["namespace"].as_str()).map_or_else(|| format!("{name}-system"), ToOwned::to_owned);
    if let Some(why) = check_name(&namespace, NameRule::Label, false).into_iter().next() {
        return Err(ProjectError::Namespace(namespace, why));
    }
    let image = said["image"].as_str().unwrap_or(&name);
    if !ImageReference::parse(image).is_ok_and(|image| image.is_plain()) {
        return Err(ProjectError::Image(image.to_owned()));
    }
    // A build's metadata, as in 1.0.0+linux, cannot be in a tag.
    let image = format!("{image}:{}", version(package).replace('+', "-"));
    Ok(DeployTarget { name, namespace, image })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(metadata: Value, flag: Option<&str>, expect: &str) {
        let package = json!({"version": "1.0.0+a", "metadata": {"konverge": metadata}});
        let found = match target("my_shop", &package, flag) {
            Ok(target) => format!("{} {} {}", target.name, target.namespace, target.image),
            Err(error) => error.to_string(),
        };
        assert!(found.starts_with(expect), "{found}");
    }

    #[test]
    fn where_an_operator_goes() {
        check(Value::Null, None, "my-shop my-shop-system my-shop:1.0.0-a");
        check(
            json!({"image": "ghcr.io:443/acme/shop", "namespace": "a"}),
            None,
            "my-shop a ghcr.io:443/acme/shop:1.0.0-a",
        );
        check(json!({"namespace": "a"}), Some("b"), "my-shop b my-shop:1.0.0-a");
        check(json!({"image": "shop:1"}), None, "\"shop:1\" in [package.metadata.konverge] cannot be an image");
        check(
            json!({"image": "ghcr.io/ACME/shop"}),
            None,
            "\"ghcr.io/ACME/shop\" in [package.metadata.konverge] cannot",
        );
        check(json!({"replicas": 1}), None, "[package.metadata.konverge] in Cargo.toml has \"replicas\"");
        check(Value::Null, Some("A b"), "\"A b\" cannot be the name of a namespace: ");
    }
}
