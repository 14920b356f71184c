//! A bundle on disk. In: a directory. Out: its objects and annotations, and what is wrong with its form, as the registry of OLM has it.

use std::fs;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::super::csv;
use super::super::files::{
    CHANNELS_KEY, DEFAULT_CHANNEL_KEY, MANIFESTS, MANIFESTS_KEY, MEDIA_TYPE, MEDIA_TYPE_KEY, METADATA, METADATA_KEY,
    PACKAGE_KEY,
};
use super::Finding;
use crate::description::text;
use crate::documents::{Document, split};

/// The kinds that OLM takes out of a bundle.
const SUPPORTED: [&str; 20] = [
    csv::KIND,
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Service",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "PrometheusRule",
    "ServiceMonitor",
    "Secret",
    "ConfigMap",
    "PodDisruptionBudget",
    "PriorityClass",
    "VerticalPodAutoscaler",
    "ConsoleYAMLSample",
    "ConsoleQuickStart",
    "ConsoleCLIDownload",
    "ConsoleLink",
    "NetworkPolicy",
];

/// More than a whole bundle may have: OLM stores it in one ConfigMap, compressed.
const MOST_BYTES: u64 = 64 << 20;

/// A bundle.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadedBundle {
    /// The objects, by the names of their files.
    pub objects: Vec<Document>,
    /// The annotations of the bundle, not of an object.
    pub annotations: Value,
    /// What is wrong with its form.
    pub findings: Vec<Finding>,
    /// The sizes of all its files as OLM stores them: compressed, in base64.
    pub stored_bytes: usize,
}

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("{directory} is no bundle: it has no folder {1}; `konverge bundle` writes one", directory = .0.display())]
    NoFolder(PathBuf, &'static str),
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} is no file of a bundle: it has to be an ordinary file of at most {MOST_BYTES} bytes", .0.display())]
    NoOrdinaryFile(PathBuf),
    #[error("the bundle has no ClusterServiceVersion; `konverge bundle validate` says more")]
    NoCsv,
}

impl LoadedBundle {
    /// Reads a bundle.
    pub(crate) fn load(directory: &Path) -> Result<Self, LoadError> {
        let folder = |name: &'static str| {
            let path = directory.join(name.trim_end_matches('/'));
            if path.is_dir() { Ok(path) } else { Err(LoadError::NoFolder(directory.to_owned(), name)) }
        };
        let (manifests, metadata) = (folder(MANIFESTS)?, folder(METADATA)?);
        let mut bundle = Self { annotations: json!({}), ..Self::default() };
        bundle.read_manifests(&manifests)?;
        bundle.read_annotations(&metadata)?;
        let csvs = bundle.objects.iter().filter(|document| document.object["kind"] == csv::KIND).count();
        match csvs {
            1 => {}
            0 => bundle
                .findings
                .push(Finding::error(MANIFESTS, "there is no ClusterServiceVersion; `konverge bundle` writes one")),
            _ => bundle.findings.push(Finding::error(
                MANIFESTS,
                format!("there are {csvs} ClusterServiceVersions; a bundle has one: remove the others"),
            )),
        }
        Ok(bundle)
    }

    /// The ClusterServiceVersion.
    pub(crate) fn csv(&self) -> Result<&Value, LoadError> {
        let found = self.objects.iter().find(|document| document.object["kind"] == csv::KIND);
        found.map(|document| &document.object).ok_or(LoadError::NoCsv)
    }

    /// The ClusterServiceVersion of a bundle that has one, and its file.
    pub(super) fn csv_with_file(&self) -> (&Value, &str) {
        let found = self.objects.iter().find(|document| document.object["kind"] == csv::KIND);
        found.map_or((&Value::Null, ""), |document| (&document.object, document.source.as_str()))
    }

    /// Its CRDs.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Document> {
        self.objects.iter().filter(|document| document.object["kind"] == "CustomResourceDefinition")
    }

    /// The channels that it is in, that of those who choose none included.
    pub(super) fn channels(&self) -> Vec<String> {
        let channels = text(&self.annotations[CHANNELS_KEY]);
        let default = text(&self.annotations[DEFAULT_CHANNEL_KEY]);
        let mut all: Vec<String> = channels.split(',').map(|channel| channel.trim().to_owned()).collect();
        all.push(default);
        all.retain(|channel| !channel.is_empty());
        all.sort();
        all.dedup();
        all
    }

    fn read_manifests(&mut self, folder: &Path) -> Result<(), LoadError> {
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let file = format!("{MANIFESTS}{name}");
            if path.is_dir() || name.starts_with('.') {
                let what = if path.is_dir() { "a folder" } else { "a hidden file" };
                self.findings
                    .push(Finding::error(&file, format!("{what} is no part of a bundle: move it out of {MANIFESTS}")));
                continue;
            }
            let read = self.read(&path)?;
            let documents = split(&read);
            if documents.len() > 1 {
                let words = format!(
                    "has {} documents, of which OLM reads the first only: write each to a file of its own",
                    documents.len()
                );
                self.findings.push(Finding::error(&file, words));
            }
            match documents.first().map(|document| serde_saphyr::from_str::<Value>(document)) {
                Some(Ok(object)) if object["kind"].is_string() && object["apiVersion"].is_string() => {
                    let kind = text(&object["kind"]);
                    if !SUPPORTED.contains(&kind.as_str()) {
                        let words = format!(
                            "OLM takes no {kind} out of a bundle: remove the file, and let the operator make the object"
                        );
                        self.findings.push(Finding::error(&file, words));
                    }
                    self.objects.push(Document { source: file, object });
                }
                Some(Ok(_)) | None => {
                    self.findings
                        .push(Finding::error(&file, "is no object of Kubernetes: it has no apiVersion and kind"));
                }
                Some(Err(error)) => self.findings.push(Finding::error(&file, format!("is not YAML: {error}"))),
            }
        }
        Ok(())
    }

    fn read_annotations(&mut self, folder: &Path) -> Result<(), LoadError> {
        let mut found = String::new();
        for path in entries(folder)?.into_iter().filter(|path| path.is_file()) {
            let read = self.read(&path)?;
            let annotations = serde_saphyr::from_str::<Value>(&read).map(|value| value["annotations"].clone());
            if let Some(annotations) =
                annotations.ok().filter(|annotations| annotations.is_object() && found.is_empty())
            {
                found = format!("{METADATA}{}", path.file_name().unwrap_or_default().to_string_lossy());
                self.annotations = annotations;
            }
        }
        if found.is_empty() {
            let words = "there is no file with `annotations`; `konverge bundle` writes annotations.yaml";
            self.findings.push(Finding::error(METADATA, words));
            return Ok(());
        }
        let findings = judge_annotations(&self.annotations);
        self.findings.extend(findings.into_iter().map(|words| Finding::error(&found, words)));
        Ok(())
    }

    /// Reads a file, and counts what it takes.
    fn read(&mut self, path: &Path) -> Result<String, LoadError> {
        let failed = |error| LoadError::Read(path.to_owned(), error);
        let about = fs::metadata(path).map_err(failed)?;
        // A pipe would be waited for, and a device has no end.
        if !about.is_file() || about.len() > MOST_BYTES {
            return Err(LoadError::NoOrdinaryFile(path.to_owned()));
        }
        let bytes = fs::read(path).map_err(failed)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&bytes).map_err(failed)?;
        // Four letters for three bytes.
        self.stored_bytes += encoder.finish().map_err(failed)?.len().div_ceil(3) * 4;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |error| LoadError::Read(folder.to_owned(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        found.push(entry.map_err(failed)?.path());
    }
    found.sort();
    Ok(found)
}

/// What is wrong with the annotations of a bundle.
fn judge_annotations(annotations: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let fixed = [(MEDIA_TYPE_KEY, MEDIA_TYPE), (MANIFESTS_KEY, MANIFESTS), (METADATA_KEY, METADATA)];
    for (key, expect) in fixed {
        match annotations[key].as_str() {
            Some(found) if found == expect => {}
            Some(found) => findings.push(format!("{key} is {found:?}, and has to be {expect:?}")),
            None => findings.push(format!("{key} is missing: add it with the value {expect:?}")),
        }
    }
    let is_empty = |key: &str| text(&annotations[key]).trim().is_empty();
    if is_empty(PACKAGE_KEY) {
        findings
            .push(format!("{PACKAGE_KEY} is missing: it names the package that the versions of the operator are in"));
    }
    if is_empty(CHANNELS_KEY) {
        findings.push(format!("{CHANNELS_KEY} is missing: nobody can subscribe to a version without a channel; see `konverge bundle --channels`"));
    }
    let default = &annotations[DEFAULT_CHANNEL_KEY];
    let (channels, default) = (text(&annotations[CHANNELS_KEY]), default.as_str());
    match default {
        Some("") => findings.push(format!("{DEFAULT_CHANNEL_KEY} is empty: name a channel, or remove the line")),
        Some(default) if !channels.split(',').any(|channel| channel.trim() == default) => {
            findings.push(format!("{DEFAULT_CHANNEL_KEY} is {default:?}, which is none of the channels {channels:?}"));
        }
        _ => {}
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expect: &[&str]) {
        let mut annotations = json!({
            MEDIA_TYPE_KEY: MEDIA_TYPE, MANIFESTS_KEY: MANIFESTS, METADATA_KEY: METADATA, PACKAGE_KEY: "shop",
            CHANNELS_KEY: "stable, fast", DEFAULT_CHANNEL_KEY: "fast",
        });
        change(&mut annotations);
        let findings = judge_annotations(&annotations);
        assert_eq!(findings.len(), expect.len(), "{findings:?}");
        for (finding, expect) in findings.iter().zip(expect) {
            assert!(finding.contains(expect), "{finding}");
        }
    }

    #[test]
    fn annotations_of_a_bundle() {
        check(|_| {}, &[]);
        check(|all| all[MEDIA_TYPE_KEY] = "plain".into(), &["is \"plain\", and has to be \"registry+v1\""]);
        check(|all| all[PACKAGE_KEY] = "".into(), &["package.v1 is missing"]);
        check(|all| all[DEFAULT_CHANNEL_KEY] = "slow".into(), &["which is none of the channels"]);
        check(|all| all[DEFAULT_CHANNEL_KEY] = Value::Null, &[]);
        check(|all| all[CHANNELS_KEY] = Value::Null, &["nobody can subscribe", "which is none of the channels"]);
    }
}
