//! OpenAPI v3: the root that lists group-versions, and one document for each. In: rows of the table of kinds and
//! their types. Out: JSON with what clients look for: the operations of every path with their group-version-kind
//! and parameters, and the schemas behind them. Built-in types carry no descriptions; those of a CRD
//! come from its definition.
//!
//! ```text
//! pieces   rows  ─▶ a document, row by row
//! paths    rows  ─▶ what can be done where
//! schema   types ─▶ components.schemas
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
use pieces::Pieces;
use schema::Schemas;

mod paths;
mod pieces;
mod schema;

/// Bump when the same rows and types give another document, so that clients ask again.
const LAYOUT: u32 = 2;

/// Writes OpenAPI documents.
#[derive(Debug)]
pub struct OpenApi {
    /// The types that requests of every kind share: `DeleteOptions`, `Status`, `Scale`, …
    base: Arc<Arena>,
    base_digest: OnceLock<String>,
}

impl OpenApi {
    /// With the types of built-in kinds, which custom resources lean on as well.
    pub fn new(base: Arc<Arena>) -> Self {
        Self { base, base_digest: OnceLock::new() }
    }

    /// `/openapi/v3` for a whole table.
    pub fn root(&self, catalog: &Catalog<'_>) -> Document {
        Self::root_of(catalog.group_versions().map(|(group, version, rows)| (group, version, self.hash(rows))))
    }

    /// `/openapi/v3` from hashes that the caller has kept.
    pub fn root_of<'a>(hashes: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> Document {
        let mut paths = Map::new();
        for (group, version, hash) in hashes {
            let path = Self::path(group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        Document::of(&json!({"paths": paths}))
    }

    /// Where the document of a group-version is, below `/openapi/v3/`.
    pub fn path(group: &str, version: &str) -> String {
        if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
    }

    /// The hash of the document of these rows, without writing it.
    pub fn hash(&self, rows: &[&Resource]) -> String {
        let mut digest = Digest::new();
        let mut say = |text: std::fmt::Arguments<'_>| digest.write_fmt(text).expect("a digest takes every text");
        say(format_args!("{LAYOUT} {}", self.base_digest()));
        for row in rows {
            say(format_args!("|{} {} {} {}", row.group, row.version, row.plural, row.kind));
            say(format_args!(" {} {} {:?} {}", row.list_kind, row.namespaced, row.verbs, row.schema.name));
            for sub in &row.subresources {
                say(format_args!(" {} {} {:?}", sub.name, sub.gvk, sub.verbs));
            }
        }
        for row in rows.iter().filter(|row| !self.is_base(row)) {
            say(format_args!("|{}", self.digest(row)));
        }
        digest.to_string()
    }

    /// What the schemas of a custom resource say. Made once for each row, however often documents are asked for.
    pub(crate) fn digest(&self, row: &Resource) -> Digest {
        *row.published.get_or_init(|| {
            let mut out = BTreeMap::new();
            // What the row shares with others is part of all hashes.
            let mut schemas = Schemas::new(&row.schema.arena, true, &|_| true, &mut out);
            schemas.add_resource(row);
            schemas.finish();
            Digest::of(&bytes(&out))
        })
    }

    /// The document of one group-version, whose rows these are, a piece at a time: no more than one piece of it is ever in
    /// memory, for the document of a group with many kinds is large.
    pub(crate) fn pieces(&self, rows: Vec<Arc<Resource>>) -> Pieces {
        Pieces::new(self.base.clone(), rows)
    }

    /// What all built-in types together say. Any change to them renews every document, which happens only with a
    /// new version of this program.
    fn base_digest(&self) -> &str {
        self.base_digest.get_or_init(|| {
            let mut out = BTreeMap::new();
            let mut schemas = Schemas::new(&self.base, false, &|_| false, &mut out);
            self.base.names().for_each(|(name, _)| schemas.add(name));
            schemas.finish();
            Digest::of(&bytes(&out)).to_string()
        })
    }

    fn is_base(&self, row: &Resource) -> bool {
        Arc::ptr_eq(&self.base, &row.schema.arena)
    }
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    partial::write(&mut out, value);
    out
}

#[cfg(test)]
mod tests;
