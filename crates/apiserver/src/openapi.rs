//! OpenAPI: for version 3 the root that lists group-versions and one document for each, for version 2 one document of
//! everything. In: resources and their types. Out: JSON with what clients look for: the operations of every path with their group-version-kind
//! and parameters, and the schemas behind them, with descriptions.
//!
//! ```text
//! pieces         resources ─▶ a document, one resource after the other
//! paths          resources ─▶ the operations of each path
//! schema         types     ─▶ components.schemas
//! descriptions   names     ─▶ what built-in types and fields are for; a CRD describes its own
//! v2             version 3 ─▶ version 2
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use konverge_schema::Arena;
use serde_json::{Map, json};

use crate::digest::Digest;
use crate::discovery::{Catalog, Document};
use crate::partial;
use crate::resource::Resource;
use pieces::Dialect;
pub(crate) use pieces::DocumentPieces;
use schema::Schemas;

mod descriptions;
mod paths;
mod pieces;
mod schema;
mod v2;

/// Bump when the same resources and types give another document, so that clients ask again.
const LAYOUT: u32 = 3;

/// Writes OpenAPI documents.
#[derive(Debug)]
pub(crate) struct OpenApi {
    /// The types that requests of every kind share: `DeleteOptions`, `Status`, `Scale`, …
    base: Arc<Arena>,
    base_digest: OnceLock<String>,
}

impl OpenApi {
    /// With the types of built-in kinds, which custom resources lean on as well.
    pub(crate) fn new(base: Arc<Arena>) -> Self {
        Self { base, base_digest: OnceLock::new() }
    }

    /// `/openapi/v3` for all resources.
    pub(crate) fn root(&self, catalog: &Catalog<'_>) -> Document {
        Self::root_of(
            catalog.group_versions().map(|(group, version, resources)| (group, version, self.hash(resources))),
        )
    }

    /// `/openapi/v3` from hashes.
    pub(crate) fn root_of<'a>(hashes: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> Document {
        let mut paths = Map::new();
        for (group, version, hash) in hashes {
            let path = Self::path(group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        Document::of(&json!({"paths": paths}))
    }

    /// Where the document of a group-version is, below `/openapi/v3/`.
    pub(crate) fn path(group: &str, version: &str) -> String {
        if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
    }

    /// The hash of the document of these resources, without writing it.
    pub(crate) fn hash(&self, resources: &[&Resource]) -> String {
        let mut digest = Digest::new();
        let mut say = |text: std::fmt::Arguments<'_>| digest.write_fmt(text).expect("a digest takes every text");
        say(format_args!("{LAYOUT} {}", self.base_digest()));
        for resource in resources {
            say(format_args!("|{} {} {} {}", resource.group, resource.version, resource.plural, resource.kind));
            say(format_args!(
                " {} {} {:?} {}",
                resource.list_kind, resource.namespaced, resource.verbs, resource.schema.name
            ));
            for sub in &resource.subresources {
                say(format_args!(" {} {} {:?}", sub.name, sub.gvk, sub.verbs));
            }
        }
        for resource in resources.iter().filter(|resource| !self.is_base(resource)) {
            say(format_args!("|{}", self.digest(resource)));
        }
        digest.to_string()
    }

    /// The digest of the schemas of a custom resource. Made once, however often documents are requested.
    pub(crate) fn digest(&self, resource: &Resource) -> Digest {
        *resource.published.get_or_init(|| {
            let mut out = BTreeMap::new();
            // What resources share is part of all hashes.
            let mut schemas = Schemas::new(&resource.schema.arena, true, &|_| true, &mut out);
            schemas.add_resource(resource);
            schemas.finish();
            Digest::of(&bytes(&out))
        })
    }

    /// The document of a group-version with these resources, piece by piece: only one piece is in memory, because the document
    /// of a group with many kinds is large.
    pub(crate) fn pieces(&self, resources: Vec<Arc<Resource>>) -> DocumentPieces {
        DocumentPieces::new(Dialect::V3, self.base.clone(), resources)
    }

    /// The document of version 2 with these resources, piece by piece.
    pub(crate) fn old_pieces(&self, resources: Vec<Arc<Resource>>) -> DocumentPieces {
        DocumentPieces::new(Dialect::V2, self.base.clone(), resources)
    }

    /// The digest of all built-in types together. They change only with a new version of this program.
    fn base_digest(&self) -> &str {
        self.base_digest.get_or_init(|| {
            let mut out = BTreeMap::new();
            let mut schemas = Schemas::new(&self.base, false, &|_| false, &mut out);
            self.base.names().for_each(|(name, _)| schemas.add(name));
            schemas.finish();
            format!("{} {}", Digest::of(&bytes(&out)), Digest::of(descriptions::TABLE))
        })
    }

    fn is_base(&self, resource: &Resource) -> bool {
        Arc::ptr_eq(&self.base, &resource.schema.arena)
    }
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    partial::write(&mut out, value);
    out
}

#[cfg(test)]
mod tests;
