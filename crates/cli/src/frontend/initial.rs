//! The objects that exist when a stream begins, ordered by their last change. In: the path of a kind. Out: one object at a
//! time, read when the client is ready for it. Only names and versions are kept in memory: otherwise a client that does not
//! read would hold a copy of every object.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use konverge_core::Status;

use super::api_client::{self, Reader};
use super::watch::{Metadata, WatchedObject};

/// The page size of lists, as in `kubectl`.
const PAGE: usize = 500;

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The objects that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Initial {
    /// Their versions and paths, the oldest change first.
    left: VecDeque<(u64, String)>,
    /// Objects that have changed since the list. The watch delivers them.
    changed: HashSet<String>,
}

impl Initial {
    /// Lists the names, and returns the resource version of the list.
    pub(super) async fn list(api: &Reader, path: &str) -> Result<(Self, u64), Status> {
        let (mut left, mut token) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={PAGE}&continue={}", utf8_percent_encode(&token, NON_ALPHANUMERIC));
            let page = api.json_as(&page, METADATA).await?;
            for item in page["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default();
                left.push((version(metadata), object_path(path, metadata["namespace"].as_str(), name)));
            }
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                left.sort_unstable();
                return Ok((Self { left: left.into(), changed: HashSet::new() }, version(&page["metadata"])));
            }
        }
    }

    /// Whether all objects have been sent.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// The next object that has not changed since the list, with its version.
    pub(super) async fn next(&mut self, api: &Reader) -> Option<(u64, Bytes)> {
        while let Some((listed, path)) = self.left.pop_front() {
            if let Ok(response) = api.get(&path, "application/json").await
                && response.status().is_success()
            {
                let object = api_client::whole(response.into_body()).await;
                let current: WatchedObject = serde_json::from_slice(&object).unwrap_or_default();
                if current.metadata.resource_version == listed.to_string() {
                    return Some((listed, object));
                }
            }
            self.changed.insert(path);
        }
        None
    }

    /// The type of a watch event for the client: MODIFIED is ADDED for an object that has not been sent, and its DELETED is
    /// dropped.
    pub(super) fn kind_of<'k>(&mut self, kind: &'k str, path: &str, of: &Metadata) -> Option<&'k str> {
        if self.changed.is_empty() || !self.changed.remove(&object_path(path, of.namespace.as_deref(), &of.name)) {
            return Some(kind);
        }
        if kind == "DELETED" { None } else { Some("ADDED") }
    }
}

fn version(metadata: &Value) -> u64 {
    metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Where an object is, if `path` is that of its kind, in its namespace or in all.
fn object_path(path: &str, namespace: Option<&str>, name: &str) -> String {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    match (namespace, path.rsplit_once('/')) {
        (Some(namespace), Some((root, plural))) if !root.contains("/namespaces/") => {
            format!("{root}/namespaces/{namespace}/{plural}/{name}")
        }
        _ => format!("{path}/{name}"),
    }
}
