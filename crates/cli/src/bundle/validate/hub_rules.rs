//! What catalogs ask of a bundle, OperatorHub.io above all. In: a bundle. Out: findings, each with the key in `Cargo.toml` that mends it.

use std::path::PathBuf;

use semver::Version;
use serde_json::Value;

use super::super::metadata::TABLE;
use super::{Finding, LoadedBundle, Options, removed_apis};
use crate::description::text;

/// The levels of a capability model.
const CAPABILITIES: [&str; 5] = ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];

const CATEGORIES: [&str; 16] = [
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
];

const MEDIA_TYPES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/svg+xml"];

/// `operatorhubv2`
pub(super) fn operator_hub(bundle: &LoadedBundle, options: &Options) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let spec = &csv["spec"];
    let mut findings = Vec::new();
    let mut error = |words: String| findings.push(Finding::error(file, words));
    if text(&spec["provider"]["name"]).trim().is_empty() {
        error(format!("spec.provider.name is missing: set `provider` in {TABLE}"));
    }
    for maintainer in spec["maintainers"].as_array().into_iter().flatten() {
        let (name, email) = (text(&maintainer["name"]), text(&maintainer["email"]));
        if name.is_empty() || email.is_empty() {
            error("spec.maintainers need a name and an email each: write `authors` in Cargo.toml as \"Name <mail@example.com>\"".to_owned());
        } else if !is_email(&email) {
            error(format!("spec.maintainers: {email:?} is no email address"));
        }
    }
    for link in spec["links"].as_array().into_iter().flatten() {
        let (name, url) = (text(&link["name"]), text(&link["url"]));
        if name.is_empty() || url.is_empty() {
            error(format!("spec.links need a name and a url each: see `links` in {TABLE}"));
        } else if !is_url(&url) {
            error(format!("spec.links: {url:?} is no URL such as https://example.com"));
        }
    }
    let is_unset = |version: Version| version == Version::new(0, 0, 0);
    if text(&spec["version"]).parse().map_or(true, is_unset) {
        error("spec.version is missing: see `konverge bundle --version`".to_owned());
    }
    match spec["icon"].as_array().map(Vec::as_slice) {
        None | Some([]) => findings.push(Finding::warning(
            file,
            format!("spec.icon is missing: set `icon` in {TABLE} to a picture, best an SVG"),
        )),
        Some(icons) => findings.extend(icon(icons).into_iter().map(|words| Finding::error(file, words))),
    }
    findings.extend(removed_apis::judge(bundle, options));
    findings
}

fn icon(icons: &[Value]) -> Vec<String> {
    let mut findings = Vec::new();
    if icons.len() > 1 {
        findings.push("spec.icon has several pictures: catalogs show one".to_owned());
    }
    let (data, media_type) = (text(&icons[0]["base64data"]), text(&icons[0]["mediatype"]));
    if data.is_empty() || media_type.is_empty() {
        findings.push(format!("spec.icon needs base64data and mediatype: set `icon` in {TABLE} to a picture"));
    } else if !MEDIA_TYPES.contains(&media_type.as_str()) {
        findings.push(format!("spec.icon is {media_type}, and catalogs show {}", MEDIA_TYPES.join(", ")));
    }
    findings
}

/// `capabilities`
pub(super) fn capabilities(bundle: &LoadedBundle) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let level = csv["metadata"]["annotations"]["capabilities"].as_str();
    let unknown = level.filter(|level| !CAPABILITIES.contains(level));
    let words = |level: &str| {
        format!("the capability level {level:?} is none of {}: set `capabilities` in {TABLE}", CAPABILITIES.join(", "))
    };
    unknown.map(|level| Finding::error(file, words(level))).into_iter().collect()
}

/// `categories`; a file may list others.
pub(super) fn categories(bundle: &LoadedBundle, custom: Option<PathBuf>) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let Some(said) = csv["metadata"]["annotations"]["categories"].as_str() else { return Vec::new() };
    let known: Vec<String> = match custom {
        None => CATEGORIES.map(str::to_owned).into(),
        Some(path) => match listed(&path) {
            Ok(listed) => listed,
            Err(why) => {
                return vec![Finding::error("", format!("the categories in {} cannot be read: {why}", path.display()))];
            }
        },
    };
    let unknown = said.split(',').map(str::trim).filter(|category| !known.iter().any(|known| known == category));
    let words = |category: &str| {
        format!("the category {category:?} is none of {}: set `categories` in {TABLE}", known.join(", "))
    };
    unknown.map(|category| Finding::error(file, words(category))).collect()
}

fn listed(path: &PathBuf) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    Ok(value["categories"].as_array().into_iter().flatten().map(text).collect())
}

/// `operatorhub`
pub(super) fn operator_hub_v1(bundle: &LoadedBundle, options: &Options) -> Vec<Finding> {
    let mut findings = operator_hub(bundle, options);
    findings.extend(capabilities(bundle));
    findings.extend(categories(bundle, std::env::var_os("OPERATOR_BUNDLE_CATEGORIES").map(PathBuf::from)));
    findings.push(Finding::warning(
        "",
        "the rules operatorhub are out of use: ask for operatorhubv2, capabilities and categories",
    ));
    findings
}

/// Something before one `@`, and something behind it.
fn is_email(text: &str) -> bool {
    let fits = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "<>,;@".contains(c));
    text.split_once('@').is_some_and(|(name, host)| fits(name) && fits(host))
}

/// A scheme and more, or a path, as Go's parser of request URIs has it.
fn is_url(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let fits = text.starts_with('/')
        || text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && rest.starts_with('/'));
    fits && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses() {
        for (text, expect) in [("jane@example.com", true), ("jane", false), ("a@b@c", false), ("@example.com", false)] {
            assert_eq!(is_email(text), expect, "{text}");
        }
        for (text, expect) in
            [("https://example.com", true), ("/docs", true), ("example.com", false), ("https://a b", false)]
        {
            assert_eq!(is_url(text), expect, "{text}");
        }
    }

    #[test]
    fn icons() {
        let one = |media_type: &str| json!({"base64data": "AA==", "mediatype": media_type});
        for (icons, expect) in [
            (vec![one("image/png")], 0),
            (vec![one("image/bmp")], 1),
            (vec![one("image/png"), one("image/png")], 1),
            (vec![json!({})], 1),
        ] {
            assert_eq!(icon(&icons).len(), expect, "{icons:?}");
        }
    }
}
