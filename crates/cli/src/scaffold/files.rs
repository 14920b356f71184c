//! The files of a scaffold. In: a project and the templates in this program. Out: every file that belongs to the scaffold, with its text.
//! Pure: the same project always makes the same files, so that what a command adds is the difference between two projects.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA256, digest};

use super::layout::{WIDTH, signature, sorted};
use super::names;
use super::project_file::{Conversion, ProjectFile, Resource};
use super::template::{Values, fill};
use super::wiring;

/// Paths, relative to the project, and texts.
pub(crate) type Files = BTreeMap<String, String>;

/// A template of this program.
macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("../../templates/", $name, ".tmpl")))
    };
}

/// Files of every project: where they go, and what of.
const COMMON: [(&str, (&str, &str)); 11] = [
    (".dockerignore", template!("dockerignore")),
    (".gitattributes", template!("gitattributes")),
    (".github/workflows/ci.yml", template!("ci.yml")),
    (".gitignore", template!("gitignore")),
    ("AGENTS.md", template!("AGENTS.md")),
    ("Cargo.toml", template!("Cargo.toml")),
    ("Dockerfile", template!("Dockerfile")),
    ("README.md", template!("README.md")),
    ("rustfmt.toml", template!("rustfmt.toml")),
    ("src/lib.rs", template!("lib.rs")),
    ("src/main.rs", template!("main.rs")),
];

const TYPES: (&str, &str) = template!("types.rs");
const CONTROLLER: (&str, &str) = template!("controller.rs");
const WEBHOOK: (&str, &str) = template!("webhook.rs");
const CONVERSION: (&str, &str) = template!("conversion.rs");
const SAMPLE: (&str, &str) = template!("sample.yaml");
const TESTS: (&str, &str) = template!("tests.rs");
const WEBHOOK_TESTS: (&str, &str) = template!("webhook_tests.rs");
const VERSION_TESTS: (&str, &str) = template!("version_tests.rs");

/// The digest of all templates, and of the code that makes a file without one.
pub(crate) fn templates() -> String {
    let of_kinds = [TYPES, CONTROLLER, WEBHOOK, CONVERSION, SAMPLE, TESTS, WEBHOOK_TESTS, VERSION_TESTS];
    let mut all: Vec<u8> = Vec::new();
    for (name, text) in COMMON.iter().map(|(_, template)| *template).chain(of_kinds) {
        all.extend_from_slice(format!("{name} {}\n{text}", text.len()).as_bytes());
    }
    all.extend_from_slice(include_str!("wiring.rs").as_bytes());
    digest(&SHA256, &all).as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All files that belong to the scaffold of a project, except for those that belong to the user alone.
pub(crate) fn files(project: &ProjectFile) -> Files {
    let mut files = Files::new();
    let common = common_values(project);
    for (path, template) in COMMON {
        files.insert(path.to_owned(), filled(template, &common));
    }
    files.insert(wiring::PATH.to_owned(), wiring::text(project));
    for resource in &project.resources {
        add_resource(&mut files, project, resource, &common);
    }
    for path in &project.unmanaged {
        files.remove(path);
    }
    files
}

fn add_resource(files: &mut Files, project: &ProjectFile, resource: &Resource, common: &Values) {
    let values = resource_values(project, resource, common);
    let mut add = |path: String, template: (&str, &str), values: &Values| {
        files.insert(path, filled(template, values));
    };
    // Later versions begin as copies of what the user made of an earlier one, so they are the user's from the start.
    add(source(resource, resource.first()), TYPES, &values);
    add(sample_path(resource, resource.first()), SAMPLE, &values);
    add(format!("tests/{}.rs", resource.module), TESTS, &values);
    if resource.controller {
        add(source(resource, "controller"), CONTROLLER, &values);
    }
    if !resource.webhooks.is_none() {
        add(source(resource, "webhook"), WEBHOOK, &values);
        add(format!("tests/{}_webhook.rs", resource.module), WEBHOOK_TESTS, &values);
    }
    if !resource.conversions.is_empty() {
        add(format!("tests/{}_versions.rs", resource.module), VERSION_TESTS, &values);
    }
    for conversion in &resource.conversions {
        let values = conversion_values(conversion, values.clone());
        add(source(resource, &conversion_module(conversion)), CONVERSION, &values);
    }
}

/// Why two kinds cannot be in one project: the scaffold would write one file for both. Nothing if all can.
pub(crate) fn shared(project: &ProjectFile) -> Option<String> {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for resource in &project.resources {
        let mut paths = Files::new();
        add_resource(&mut paths, project, resource, &common_values(project));
        let versions =
            resource.versions.iter().flat_map(|version| [source(resource, version), sample_path(resource, version)]);
        for path in paths.into_keys().chain(versions).collect::<BTreeSet<_>>() {
            if let Some(other) = owners.insert(path.clone(), &resource.kind) {
                return Some(format!(
                    "{path} would be a file of {other} and of {}; choose another name",
                    resource.kind
                ));
            }
        }
    }
    None
}

/// The names of tests that a kind with this module has, or may have when it gets webhooks and versions.
pub(crate) fn test_names(module: &str) -> [String; 3] {
    ["", "_webhook", "_versions"].map(|end| format!("{module}{end}"))
}

/// The path of a Rust file that belongs to a kind.
pub(crate) fn source(resource: &Resource, name: &str) -> String {
    format!("src/kinds/{}/{name}.rs", resource.module)
}

/// The path of the sample of a version, as kubebuilder has it.
pub(crate) fn sample_path(resource: &Resource, version: &str) -> String {
    let group = if resource.group.is_empty() { String::new() } else { format!("{}_", resource.group) };
    format!("config/samples/{group}{version}_{}.yaml", resource.kind.to_ascii_lowercase())
}

/// The module with the conversions between two versions.
pub(super) fn conversion_module(conversion: &Conversion) -> String {
    format!("{}_{}", conversion.spoke, conversion.hub)
}

fn filled((name, template): (&str, &str), values: &Values) -> String {
    fill(template, values).unwrap_or_else(|error| unreachable!("a test fills every template: {name}: {error}"))
}

fn common_values(project: &ProjectFile) -> Values {
    let rows = project.resources.iter().map(|resource| {
        let (group, versions) = (project.full_group(&resource.group), resource.versions.join(", "));
        format!("| {} | {group} | {versions} | `{}` |", resource.kind, sample_path(resource, resource.hub()))
    });
    let first = project.resources.first();
    Values::default()
        .text("name", &project.project_name)
        .text("crate", project.project_name.replace('-', "_"))
        .text("rust_version", env!("CARGO_PKG_RUST_VERSION"))
        .text("konverge_dependencies", project.konverge.dependencies())
        .text("konverge_path", project.konverge.path().unwrap_or_default())
        .text("kinds_table", rows.collect::<Vec<_>>().join("\n"))
        .text("first_module", first.map_or("", |resource| &resource.module))
        .text("first_kind", first.map_or("", |resource| &resource.kind))
        .flag("by_path", project.konverge.path().is_some())
        .flag("has_kinds", first.is_some())
}

fn resource_values(project: &ProjectFile, resource: &Resource, common: &Values) -> Values {
    common
        .clone()
        .text("kind", &resource.kind)
        .text("kind_lower", resource.kind.to_ascii_lowercase())
        .text("snake", names::module(&resource.kind))
        .text("module", &resource.module)
        .text("full_group", project.full_group(&resource.group))
        .text("version", resource.first())
        .text("sample_path", sample_path(resource, resource.hub()))
        .text("kube_attributes", kube_attributes(project, resource))
        .text("defaults_signature", defaults_signature(&resource.kind))
        .flag("namespaced", resource.namespaced)
        .flag("cluster_scoped", !resource.namespaced)
        .flag("controller", resource.controller)
        .flag("defaulting", resource.webhooks.defaulting)
        .flag("validation", resource.webhooks.validation)
}

fn defaults_signature(kind: &str) -> String {
    signature("pub async fn defaults", &format!("request: Admission<{kind}>"), &format!("Result<{kind}>"))
}

fn conversion_values(conversion: &Conversion, values: Values) -> Values {
    let Conversion { hub, spoke, through } = conversion;
    let mut names = sorted([hub.as_str(), spoke.as_str()].into_iter().chain(through.as_deref())).into_iter();
    let mut next = || names.next().unwrap_or_default();
    values
        .text("hub", hub)
        .text("spoke", spoke)
        .text("through", through.as_deref().unwrap_or_default())
        .text("first", next())
        .text("second", next())
        .text("third", next())
        .flag("direct", through.is_none())
}

/// The attributes that say what a kind is, in as few lines as rustfmt leaves alone.
fn kube_attributes(project: &ProjectFile, resource: &Resource) -> String {
    let setting = |name: &str, value: &str| format!("{name} = \"{value}\"");
    let mut settings = vec![
        setting("group", &project.full_group(&resource.group)),
        setting("version", resource.first()),
        setting("kind", &resource.kind),
    ];
    // Without a controller nobody would write one.
    if resource.controller {
        settings.push(setting("status", &format!("{}Status", resource.kind)));
    }
    if resource.plural != names::plural_of(&resource.kind) {
        settings.push(setting("plural", &resource.plural));
    }
    if resource.namespaced {
        settings.push("namespaced".into());
    }
    let mut lines: Vec<String> = Vec::new();
    for setting in settings {
        match lines.last_mut() {
            Some(line) if line.len() + setting.len() + "#[kube(, )]".len() <= WIDTH => *line += &format!(", {setting}"),
            _ => lines.push(setting),
        }
    }
    lines.iter().map(|line| format!("#[kube({line})]")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::konverge_source::KonvergeSource;
    use super::super::project_file::Webhooks;
    use super::*;

    pub(in super::super) fn project() -> ProjectFile {
        let konverge = KonvergeSource::Version { version: "0.1.0".into() };
        ProjectFile::new("shop-operator".into(), "example.com".into(), konverge, templates())
    }

    pub(in super::super) fn resource(kind: &str) -> Resource {
        Resource {
            group: "shops".into(),
            kind: kind.into(),
            plural: names::plural_of(kind),
            module: names::module(kind),
            namespaced: true,
            controller: true,
            versions: vec!["v1alpha1".into()],
            conversions: Vec::new(),
            webhooks: Webhooks::default(),
        }
    }

    /// Every template with every flag; a name that has no value panics.
    #[test]
    fn every_template_can_be_filled() {
        let mut paths = 0;
        let sources = [
            KonvergeSource::Path { path: "../konverge".into() },
            KonvergeSource::Git { git: "https://example.com/k".into(), rev: None },
        ];
        for konverge in sources {
            for bits in 0..32_u8 {
                let bit = |at: u8| bits & (1 << at) != 0;
                let mut one = resource("Shop");
                (one.namespaced, one.controller) = (bit(0), bit(1));
                one.webhooks = Webhooks { defaulting: bit(2), validation: bit(3) };
                if bit(4) {
                    ["v1beta1", "v1"].iter().for_each(|version| one.add_version(version));
                }
                let project = ProjectFile { konverge: konverge.clone(), resources: vec![one], ..project() };
                for (path, text) in files(&project) {
                    assert!(!text.contains("{{ ") && !text.contains("{% "), "{path}:\n{text}");
                    assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{path}");
                    paths += 1;
                }
            }
        }
        assert!(paths > 1000, "{paths}");
        assert!(files(&project()).contains_key("src/main.rs"), "also without a kind");
    }

    #[test]
    fn where_files_are() {
        let mut shop = resource("WebShop");
        shop.add_version("v1");
        shop.webhooks.validation = true;
        let before = files(&project());
        let project = ProjectFile { resources: vec![shop], unmanaged: vec!["README.md".into()], ..project() };
        let all = files(&project);
        let added: Vec<&str> = all.keys().filter(|path| !before.contains_key(*path)).map(String::as_str).collect();
        assert_eq!(
            added,
            [
                "config/samples/shops_v1alpha1_webshop.yaml",
                "src/kinds/web_shop/controller.rs",
                "src/kinds/web_shop/v1alpha1.rs",
                "src/kinds/web_shop/v1alpha1_v1.rs",
                "src/kinds/web_shop/webhook.rs",
                "tests/web_shop.rs",
                "tests/web_shop_versions.rs",
                "tests/web_shop_webhook.rs",
            ]
        );
        assert!(!all.contains_key("README.md"), "it belongs to the user");
        assert_eq!(
            sample_path(&Resource { group: String::new(), ..resource("Shop") }, "v1"),
            "config/samples/v1_shop.yaml"
        );
    }

    #[test]
    fn attributes_fit_into_lines() {
        let of = |group: &str, plural: &str| {
            kube_attributes(&project(), &Resource { group: group.into(), plural: plural.into(), ..resource("Shop") })
        };
        assert_eq!(
            of("shops", "shops"),
            "#[kube(group = \"shops.example.com\", version = \"v1alpha1\", kind = \"Shop\", status = \"ShopStatus\")]\n\
             #[kube(namespaced)]"
        );
        assert!(of("shops", "shoppes").contains("#[kube(plural = \"shoppes\", namespaced)]"));
        assert!(of(&"s".repeat(90), "shops").lines().count() == 2);
    }
}
