//! What catalogs show of an operator, and where its versions are in channels. In: `Cargo.toml`, as cargo describes it, and flags. Out:
//! metadata that is known to be good, or which line to change.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use semver::Version;
use serde_json::{Map, Value, json};

use super::WriteBundleArgs;
use crate::description::text;

/// The table in `Cargo.toml`.
pub(super) const TABLE: &str = "[package.metadata.konverge.bundle]";

/// The keys of the table.
const KEYS: [&str; 17] = [
    "architectures",
    "capabilities",
    "categories",
    "channels",
    "default-channel",
    "description",
    "display-name",
    "icon",
    "links",
    "maturity",
    "min-kube-version",
    "provider",
    "replaces",
    "skip-range",
    "skips",
    "support",
    "annotations",
];

/// The oldest release whose API has all fields of the manifests: `unhealthyPodEvictionPolicy` of a PodDisruptionBudget is from 1.26.
const OLDEST_KUBERNETES: &str = "1.26.0";

/// The types of icons by the endings of their files.
const ICONS: [(&str, &str); 5] = [
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
];

/// The largest icon. It is a part of the ClusterServiceVersion, and a bundle has to fit into one ConfigMap.
const MOST_ICON_BYTES: usize = 256 << 10;

/// What catalogs show, and how versions follow each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BundleMetadata {
    pub package: String,
    pub version: Version,
    pub channels: Vec<String>,
    pub default_channel: Option<String>,
    /// The name of the ClusterServiceVersion before this one.
    pub replaces: Option<String>,
    pub skips: Vec<String>,
    pub skip_range: Option<String>,
    pub display_name: String,
    /// Markdown.
    pub description: String,
    pub keywords: Vec<String>,
    /// `{name, email}`
    pub maintainers: Vec<Value>,
    /// `{name, url}`
    pub provider: Option<Value>,
    /// `{name, url}`
    pub links: Vec<Value>,
    /// `{base64data, mediatype}`
    pub icon: Option<Value>,
    pub maturity: String,
    pub min_kube_version: String,
    pub architectures: Vec<String>,
    pub annotations: Map<String, Value>,
}

/// Why a bundle cannot say this.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetadataError {
    #[error("{TABLE} in Cargo.toml has {0:?}; it takes {keys}", keys = KEYS.join(", "))]
    Key(String),
    #[error("{0} in {TABLE} has to be {1}")]
    Type(&'static str, &'static str),
    #[error("{0:?} is no version as OLM compares them, such as 1.2.3 or 1.2.3-beta.1")]
    Version(String, #[source] semver::Error),
    #[error("the channel {0:?} cannot be: names of channels have letters, digits, dots, hyphens and underscores")]
    Channel(String),
    #[error("the default channel {0} is none of the channels {1}; add it to --channels")]
    DefaultChannel(String, String),
    #[error("{name} replaces itself: --replaces takes the version before {version}")]
    ReplacesItself { name: String, version: String },
    #[error("the icon {} cannot be read", .0.display())]
    Icon(PathBuf, #[source] std::io::Error),
    #[error("the icon {} is none that catalogs show: svg, png, jpg or gif with at most {MOST_ICON_BYTES} bytes", .0.display())]
    IconKind(PathBuf),
}

impl BundleMetadata {
    /// What a package says. Paths in it are below its directory.
    pub(super) fn of(package: &Value, name: &str, version: &str, directory: &Path) -> Result<Self, MetadataError> {
        let said = &package["metadata"]["konverge"]["bundle"];
        let unknown = |key: &&String| !KEYS.contains(&key.as_str());
        if let Some(key) = said.as_object().into_iter().flat_map(|said| said.keys()).find(unknown) {
            return Err(MetadataError::Key(key.clone()));
        }
        let version = parsed(version)?;
        let is_early = version.major == 0 || !version.pre.is_empty();
        let channels = match texts(said, "channels")? {
            none if none.is_empty() => vec![if is_early { "candidate" } else { "stable" }.to_owned()],
            channels => channels,
        };
        let authors: Vec<String> = strings(&package["authors"]);
        let first = authors.first().map(|author| person(author).0).filter(|name| !name.is_empty());
        let provider = match &said["provider"] {
            Value::Null => first.map(|name| json!({"name": name})),
            Value::String(name) => Some(json!({"name": name})),
            Value::Object(fields) if fields.values().all(Value::is_string) => Some(said["provider"].clone()),
            _ => return Err(MetadataError::Type("provider", "a name, or {name = \"…\", url = \"…\"}")),
        };
        let summary = || match text(&package["description"]) {
            none if none.is_empty() => format!("The operator {name}."),
            summary => summary,
        };
        Ok(Self {
            package: name.to_owned(),
            default_channel: optional(said, "default-channel")?,
            replaces: optional(said, "replaces")?.map(|replaced| csv_name_of(name, &replaced)),
            skips: texts(said, "skips")?.iter().map(|skipped| csv_name_of(name, skipped)).collect(),
            skip_range: optional(said, "skip-range")?,
            display_name: optional(said, "display-name")?.unwrap_or_else(|| words(name)),
            description: optional(said, "description")?.unwrap_or_else(summary),
            keywords: strings(&package["keywords"]),
            maintainers: authors.iter().filter_map(|author| maintainer(author)).collect(),
            provider,
            links: links(package, &said["links"])?,
            icon: optional(said, "icon")?.map(|path| icon(&directory.join(path))).transpose()?,
            maturity: optional(said, "maturity")?
                .unwrap_or_else(|| if is_early { "alpha" } else { "stable" }.to_owned()),
            min_kube_version: optional(said, "min-kube-version")?.unwrap_or_else(|| OLDEST_KUBERNETES.to_owned()),
            architectures: texts(said, "architectures")?,
            annotations: annotations(package, said)?,
            version,
            channels,
        })
    }

    /// What flags say instead, and whether all of it fits together.
    pub(super) fn with_flags(&mut self, args: &WriteBundleArgs) -> Result<(), MetadataError> {
        if !args.channels.is_empty() {
            self.channels.clone_from(&args.channels);
            // The default of the package may be none of these.
            self.default_channel = None;
        }
        if let Some(channel) = &args.default_channel {
            self.default_channel = Some(channel.clone());
        }
        if let Some(replaced) = &args.replaces {
            self.replaces = Some(csv_name_of(&self.package, replaced));
        }
        if args.skip_range.is_some() {
            self.skip_range.clone_from(&args.skip_range);
        }
        self.check()
    }

    fn check(&self) -> Result<(), MetadataError> {
        let is_plain = |channel: &str| {
            let fits = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
            !channel.is_empty() && channel.chars().all(fits)
        };
        if let Some(channel) = self.channels.iter().find(|channel| !is_plain(channel)) {
            return Err(MetadataError::Channel(channel.clone()));
        }
        if let Some(default) = self.default_channel.as_ref().filter(|default| !self.channels.contains(default)) {
            return Err(MetadataError::DefaultChannel(default.clone(), self.channels.join(", ")));
        }
        let name = self.csv_name();
        if self.replaces.as_ref() == Some(&name) {
            return Err(MetadataError::ReplacesItself { name, version: self.version.to_string() });
        }
        Ok(())
    }

    /// The name of the ClusterServiceVersion.
    pub(super) fn csv_name(&self) -> String {
        csv_name_of(&self.package, &self.version.to_string())
    }

    /// The channel of those who choose none.
    pub(super) fn default_channel(&self) -> &str {
        self.default_channel.as_deref().or(self.channels.first().map(String::as_str)).unwrap_or_default()
    }
}

/// The name of a ClusterServiceVersion by its version, or by its name. Names have no build metadata, as in 1.0.0+linux.
fn csv_name_of(package: &str, version: &str) -> String {
    match version.trim_start_matches('v').parse::<Version>() {
        Ok(_) => format!("{package}.v{}", version.trim_start_matches('v').replace('+', "-")),
        Err(_) => version.to_owned(),
    }
}

fn parsed(version: &str) -> Result<Version, MetadataError> {
    version.parse().map_err(|error| MetadataError::Version(version.to_owned(), error))
}

fn optional(said: &Value, key: &'static str) -> Result<Option<String>, MetadataError> {
    match &said[key] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(MetadataError::Type(key, "a text")),
    }
}

fn texts(said: &Value, key: &'static str) -> Result<Vec<String>, MetadataError> {
    match &said[key] {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) if items.iter().all(Value::is_string) => Ok(strings(&said[key])),
        _ => Err(MetadataError::Type(key, "a list of texts")),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// `memcached-operator` as people write it: `Memcached Operator`.
pub(super) fn words(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
    };
    name.split(['-', '_', '.']).filter(|word| !word.is_empty()).map(capital).collect::<Vec<_>>().join(" ")
}

/// `Jane Doe <jane@example.com>`: the name, and the address if there is one.
fn person(author: &str) -> (String, Option<String>) {
    match author.split_once('<') {
        Some((name, email)) => (name.trim().to_owned(), Some(email.trim_end_matches(['>', ' ']).to_owned())),
        None => (author.trim().to_owned(), None),
    }
}

/// Catalogs take maintainers with an address only.
fn maintainer(author: &str) -> Option<Value> {
    let (name, email) = person(author);
    Some(json!({"name": name, "email": email?}))
}

fn links(package: &Value, more: &Value) -> Result<Vec<Value>, MetadataError> {
    let known = [("Homepage", "homepage"), ("Documentation", "documentation"), ("Source", "repository")];
    let found = known.iter().filter_map(|(name, key)| Some(json!({"name": name, "url": package[key].as_str()?})));
    let mut links: Vec<Value> = found.collect();
    match more {
        Value::Null => {}
        Value::Object(fields) if fields.values().all(Value::is_string) => {
            links.extend(fields.iter().map(|(name, url)| json!({"name": name, "url": url})));
        }
        _ => return Err(MetadataError::Type("links", "a table such as {Chat = \"https://…\"}")),
    }
    Ok(links)
}

fn icon(path: &Path) -> Result<Value, MetadataError> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    let bytes = std::fs::read(path).map_err(|error| MetadataError::Icon(path.to_owned(), error))?;
    match ICONS.iter().find(|(known, _)| *known == ending) {
        Some((_, media_type)) if !bytes.is_empty() && bytes.len() <= MOST_ICON_BYTES => {
            Ok(json!({"base64data": BASE64_STANDARD.encode(bytes), "mediatype": media_type}))
        }
        _ => Err(MetadataError::IconKind(path.to_owned())),
    }
}

/// The annotations that catalogs read, and those that the table has beside.
fn annotations(package: &Value, said: &Value) -> Result<Map<String, Value>, MetadataError> {
    let mut annotations = match &said["annotations"] {
        Value::Null => Map::new(),
        Value::Object(fields) if fields.values().all(Value::is_string) => fields.clone(),
        _ => return Err(MetadataError::Type("annotations", "a table of texts")),
    };
    let level = optional(said, "capabilities")?.unwrap_or_else(|| "Basic Install".to_owned());
    annotations.insert("capabilities".to_owned(), level.into());
    let categories = texts(said, "categories")?;
    let rows = [
        ("categories", Some(categories.join(", ")).filter(|categories| !categories.is_empty())),
        ("repository", package["repository"].as_str().map(ToOwned::to_owned)),
        ("support", optional(said, "support")?),
    ];
    for (key, value) in rows.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        annotations.insert(key.to_owned(), value.into());
    }
    Ok(annotations)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn of(package: &Value) -> Result<BundleMetadata, MetadataError> {
        let version = package["version"].as_str().unwrap_or("1.2.3");
        BundleMetadata::of(package, "shop-operator", version, Path::new("/nonexistent"))
    }

    /// Metadata with everything.
    pub(crate) fn example() -> BundleMetadata {
        let package = json!({
            "description": "Shops", "authors": ["Jane <jane@example.com>", "Team"], "keywords": ["shop"],
            "repository": "https://example.com/shop",
            "metadata": {"konverge": {"bundle": {"replaces": "1.1.0", "skip-range": "<1.2.3", "architectures": ["amd64"],
                "provider": {"name": "Acme", "url": "https://example.com"}, "categories": ["Database"]}}},
        });
        let mut metadata = BundleMetadata::of(&package, "shop", "1.2.3", Path::new("/nonexistent")).unwrap();
        metadata.icon = Some(json!({"base64data": "AA==", "mediatype": "image/png"}));
        metadata
    }

    #[test]
    fn a_package_says_most_of_it() {
        let shop = example();
        assert_eq!((shop.csv_name().as_str(), shop.replaces.as_deref()), ("shop.v1.2.3", Some("shop.v1.1.0")));
        assert_eq!(shop.maintainers, [json!({"name": "Jane", "email": "jane@example.com"})]);
        assert_eq!(shop.links, [json!({"name": "Source", "url": "https://example.com/shop"})]);
        assert_eq!((shop.channels.as_slice(), shop.default_channel()), (&["stable".to_owned()][..], "stable"));
        let bare = of(&json!({"version": "0.1.0"})).unwrap();
        assert_eq!((bare.display_name.as_str(), bare.maturity.as_str()), ("Shop Operator", "alpha"));
        assert_eq!((bare.channels[0].as_str(), bare.provider), ("candidate", None));
        let authored = of(&json!({"authors": ["Jane <jane@example.com>"]})).unwrap();
        assert_eq!(authored.provider, Some(json!({"name": "Jane"})));
    }

    #[track_caller]
    fn refused(bundle: Value, expect: &str) {
        let package = json!({"metadata": {"konverge": {"bundle": bundle}}});
        let error = of(&package).and_then(|metadata| metadata.check()).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn what_a_bundle_cannot_say() {
        refused(json!({"chanels": ["a"]}), "has \"chanels\"; it takes architectures, ");
        refused(json!({"channels": "a"}), "channels in [package.metadata.konverge.bundle] has to be a list of texts");
        refused(json!({"channels": ["a b"]}), "the channel \"a b\" cannot be");
        refused(json!({"channels": ["a"], "default-channel": "b"}), "the default channel b is none of the channels a");
        refused(json!({"replaces": "1.2.3"}), "shop-operator.v1.2.3 replaces itself");
        refused(json!({"icon": "none.png"}), "the icon /nonexistent/none.png cannot be read");
        let error = of(&json!({"version": "1.2"})).unwrap_err().to_string();
        assert!(error.starts_with("\"1.2\" is no version as OLM compares them"), "{error}");
    }
}
