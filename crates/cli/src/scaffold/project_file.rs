//! The file `PROJECT`: what has been scaffolded. In: its text, or what a command adds. Out: the same as values, and the text again.
//! All scaffolded files follow from it and from the templates. It is found in a directory or above it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::konverge_source::KonvergeSource;
use super::names::{self, BadName, Version};

/// The name of the file.
pub(crate) const PROJECT: &str = "PROJECT";

/// How scaffolded projects are laid out; another layout would be another number.
const LAYOUT: &str = "konverge/v1";

const HEAD: &str = "\
# What `konverge` has scaffolded, for `konverge create` and `konverge update`. Commit it. The only line to edit is `unmanaged`: paths of files
# that these commands shall leave alone.
";

/// A project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ProjectFile {
    /// How the project is laid out.
    pub layout: String,
    /// The version of the program that wrote the files.
    pub cli_version: String,
    /// The digest of the templates that the files were made of.
    pub templates: String,
    /// The domain that groups end with.
    pub domain: String,
    /// The name of the package.
    pub project_name: String,
    /// How the project depends on Konverge.
    pub konverge: KonvergeSource,
    /// Files that belong to the user alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<String>,
    /// The kinds, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
}

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Resource {
    /// The group without the domain; empty if it is the domain.
    pub group: String,
    pub kind: String,
    pub plural: String,
    /// The Rust module.
    pub module: String,
    pub namespaced: bool,
    /// Whether objects are reconciled.
    pub controller: bool,
    /// The versions, in the order in which they were added.
    pub versions: Vec<String>,
    /// The conversions between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conversions: Vec<Conversion>,
    #[serde(default, skip_serializing_if = "Webhooks::is_none")]
    pub webhooks: Webhooks,
}

/// The conversion between two versions, in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Conversion {
    /// The version that was stored when the conversion was added.
    pub hub: String,
    pub spoke: String,
    /// The version that objects pass on the way: `spoke` was converted to it before `hub` was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

/// The admission webhooks of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Webhooks {
    pub defaulting: bool,
    pub validation: bool,
}

/// Why there is no project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    #[error(
        "there is no {PROJECT} file in {} or above it; run `konverge init --domain example.com` first, or change into the directory of a \
         project",
        .0.display()
    )]
    None(PathBuf),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is of kubebuilder or operator-sdk; this command needs a project of `konverge init`", .0.display())]
    Kubebuilder(PathBuf),
    #[error(
        "{} has the layout {layout}, which this program (konverge {}) does not know; it knows {LAYOUT}. Install a newer one",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Layout { path: PathBuf, layout: String },
    #[error("{} is not understood: {why}", path.display())]
    Syntax { path: PathBuf, why: String },
}

impl ProjectFile {
    /// A project without kinds.
    pub(crate) fn new(project_name: String, domain: String, konverge: KonvergeSource, templates: String) -> Self {
        Self {
            layout: LAYOUT.into(),
            cli_version: env!("CARGO_PKG_VERSION").into(),
            templates,
            domain,
            project_name,
            konverge,
            unmanaged: Vec::new(),
            resources: Vec::new(),
        }
    }

    /// The project that a directory belongs to, and where it is.
    pub(crate) fn find(directory: &Path) -> Result<(PathBuf, Self), ProjectError> {
        let root = directory.ancestors().find(|above| above.join(PROJECT).is_file());
        let root = root.ok_or_else(|| ProjectError::None(directory.to_owned()))?;
        let path = root.join(PROJECT);
        let text = fs::read_to_string(&path).map_err(|source| ProjectError::Read { path: path.clone(), source })?;
        Ok((root.to_owned(), Self::parse(&text, &path)?))
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ProjectError> {
        let syntax = |error: &dyn std::fmt::Display| {
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            ProjectError::Syntax { path: path.to_owned(), why }
        };
        let any: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| syntax(&error))?;
        match &any["layout"] {
            serde_json::Value::String(layout) if layout == LAYOUT => {}
            serde_json::Value::String(layout) if layout.starts_with("konverge/") => {
                return Err(ProjectError::Layout { path: path.to_owned(), layout: layout.clone() });
            }
            serde_json::Value::Null => return Err(syntax(&"it has no layout")),
            _ => return Err(ProjectError::Kubebuilder(path.to_owned())),
        }
        let project: Self = serde_json::from_value(any).map_err(|error| syntax(&error))?;
        project.check_names().map_err(|error| syntax(&error))?;
        if let Some(resource) = project.resources.iter().find(|resource| resource.versions.is_empty()) {
            return Err(syntax(&format!("{} has no version", resource.kind)));
        }
        Ok(project)
    }

    /// Files and code are made of these names, and somebody may have edited them.
    fn check_names(&self) -> Result<(), BadName> {
        names::project_name(&self.project_name)?;
        names::domain(&self.domain)?;
        self.konverge.texts().try_for_each(names::source)?;
        for resource in &self.resources {
            names::known_kind(&resource.kind)?;
            names::known_module(&resource.module)?;
            names::plural(&resource.plural)?;
            names::group(&resource.group, &self.domain)?;
            let conversions = resource.conversions.iter();
            let converted = conversions.flat_map(|one| [Some(&one.hub), Some(&one.spoke), one.through.as_ref()]);
            for version in resource.versions.iter().chain(converted.flatten()) {
                names::version(version)?;
            }
        }
        Ok(())
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let yaml = serde_saphyr::to_string(self).expect("texts, flags and lists are YAML");
        format!("{HEAD}{}\n", yaml.trim_end())
    }

    /// The group as API servers know it.
    pub(crate) fn full_group(&self, group: &str) -> String {
        if group.is_empty() { self.domain.clone() } else { format!("{group}.{}", self.domain) }
    }

    /// The kind of this group and name.
    pub(crate) fn resource(&self, group: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.group == group && resource.kind == kind)
    }
}

impl Resource {
    /// The version that is reconciled and stored: the newest one, as Kubernetes orders them.
    pub(crate) fn hub(&self) -> &str {
        let newest = self.versions.iter().max_by_key(|version| Version::parse(version));
        newest.expect("a kind has a version")
    }

    /// The version that was there first.
    pub(crate) fn first(&self) -> &str {
        self.versions.first().expect("a kind has a version")
    }

    /// The versions besides the one that is stored, in the order in which they were added.
    pub(crate) fn spokes(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(String::as_str).filter(|version| *version != self.hub())
    }

    /// Adds a version and the conversions that it needs.
    pub(crate) fn add_version(&mut self, version: &str) {
        let former = self.hub().to_owned();
        let others: Vec<String> = self.spokes().map(str::to_owned).collect();
        self.versions.push(version.to_owned());
        if self.hub() == former {
            self.conversions.push(Conversion { hub: former, spoke: version.to_owned(), through: None });
            return;
        }
        self.conversions.push(Conversion { hub: version.to_owned(), spoke: former.clone(), through: None });
        for spoke in others {
            self.conversions.push(Conversion { hub: version.to_owned(), spoke, through: Some(former.clone()) });
        }
    }
}

impl Webhooks {
    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> ProjectFile {
        let konverge = KonvergeSource::Version { version: "0.1.0".into() };
        ProjectFile::new("shop-operator".into(), "example.com".into(), konverge, "abc".into())
    }

    fn resource(versions: &[&str]) -> Resource {
        let mut resource = Resource {
            group: "shops".into(),
            kind: "Shop".into(),
            plural: "shops".into(),
            module: "shop".into(),
            namespaced: true,
            controller: true,
            versions: vec![versions[0].into()],
            conversions: Vec::new(),
            webhooks: Webhooks::default(),
        };
        versions[1..].iter().for_each(|version| resource.add_version(version));
        resource
    }

    #[test]
    fn what_is_written_is_read() {
        let mut project = project();
        project.unmanaged.push("README.md".into());
        project.resources.push(resource(&["v1alpha1", "v1beta1", "v1"]));
        project
            .resources
            .push(Resource { webhooks: Webhooks { defaulting: true, validation: false }, ..resource(&["v1"]) });
        let text = project.text();
        assert_eq!(ProjectFile::parse(&text, Path::new("PROJECT")).expect("its own text"), project, "{text}");
    }

    #[test]
    fn what_is_not_understood_is_explained() {
        let good = project().text();
        for (text, expect) in [
            ("", "PROJECT is not understood: it has no layout"),
            ("{", "PROJECT is not understood: "),
            ("layout: [go.kubebuilder.io/v4]\nversion: '3'\n", "is of kubebuilder or operator-sdk"),
            (&good.replace("konverge/v1", "konverge/v2"), "the layout konverge/v2, which this program"),
            (&format!("{good}colour: red\n"), "unknown field `colour`"),
        ] {
            let error = ProjectFile::parse(text, Path::new("PROJECT")).expect_err("not a project").to_string();
            assert!(error.contains(expect), "{error}");
        }
        // Names that would become paths.
        let mut shop = project();
        shop.resources.push(resource(&["v1alpha1", "v1"]));
        let good = shop.text();
        for (from, to) in [
            ("module: shop", "module: ../../evil"),
            ("kind: Shop", "kind: ../Evil"),
            ("plural: shops", "plural: a/b"),
            ("group: shops", "group: ../shops"),
            ("projectName: shop-operator", "projectName: ../shop"),
            ("domain: example.com", "domain: example.com/x"),
            ("- v1alpha1", "- ../v1"),
            ("hub: v1", "hub: ../v1"),
            ("  version: \"0.1.0\"", "  version: \"0.1\\\"\\nx = 1\""),
            ("  version: \"0.1.0\"", "  path: \"a\\\"b\""),
            ("  version: \"0.1.0\"", "  path: \"a\\nb\""),
            ("  version: \"0.1.0\"", "  git: \"https://x/a'b\""),
        ] {
            assert!(good.contains(from), "{from}\n{good}");
            let bad = ProjectFile::parse(&good.replacen(from, to, 1), Path::new("PROJECT"));
            assert!(bad.is_err_and(|error| error.to_string().contains(" cannot be the ")), "{to}");
        }
    }

    #[test]
    fn the_newest_version_is_the_hub() {
        for (versions, hub, conversions) in [
            (&["v1"][..], "v1", &[][..]),
            (&["v1alpha1", "v1"], "v1", &["v1alpha1 v1"]),
            (&["v1", "v2alpha1"], "v1", &["v2alpha1 v1"]),
            (&["v1alpha1", "v1beta1", "v1"], "v1", &["v1alpha1 v1beta1", "v1beta1 v1", "v1alpha1 v1 through v1beta1"]),
        ] {
            let resource = resource(versions);
            let shown: Vec<String> = resource
                .conversions
                .iter()
                .map(|one| {
                    let through =
                        one.through.as_ref().map_or_else(String::new, |version| format!(" through {version}"));
                    format!("{} {}{through}", one.spoke, one.hub)
                })
                .collect();
            assert_eq!((resource.hub(), shown), (hub, conversions.iter().map(|text| (*text).to_owned()).collect()));
        }
    }

    #[test]
    fn a_folder_of_the_project_is_the_project() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("src/kinds");
        fs::create_dir_all(&deep).expect("a folder");
        let error = ProjectFile::find(&deep).expect_err("nothing there").to_string();
        assert!(error.contains("run `konverge init --domain example.com` first"), "{error}");
        fs::write(folder.path().join(PROJECT), project().text()).expect("written");
        assert_eq!(ProjectFile::find(&deep).expect("found"), (folder.path().to_owned(), project()));
    }
}
