//! One document, as it is written. In: the resources of a group-version, or all of them for version 2. Out: its JSON in pieces,
//! schemas first, then paths, one resource after the other. Built-in types refer to each other and come in one piece; a custom resource refers to nothing else,
//! so the number of kinds does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use konverge_schema::Arena;
use serde::Serialize;
use serde_json::Value;

use super::descriptions::Descriptions;
use super::paths;
use super::schema::{Schemas, list_name};
use super::v2;
use crate::partial;
use crate::resource::Resource;

/// A piece is sent when it is this long: enough that sending it is worth the while.
const PIECE_BYTES: usize = 64 * 1024;

/// In which version of OpenAPI a document is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dialect {
    V2,
    V3,
}

/// The pieces of a document.
pub(crate) struct DocumentPieces {
    dialect: Dialect,
    base: Arc<Arena>,
    resources: Vec<Arc<Resource>>,
    /// The names of the schemas that were written.
    written: BTreeSet<String>,
    /// While schemas are written.
    descriptions: Option<Descriptions>,
    section: Section,
    /// Whether something stands before the next entry of the present object.
    follows: bool,
}

enum Section {
    /// What all resources share, and built-in resources.
    Shared,
    /// The schemas of the custom resource at this index.
    Schemas(usize),
    /// The paths of the resource at this index.
    Paths(usize),
    Over,
}

impl DocumentPieces {
    pub(super) fn new(dialect: Dialect, base: Arc<Arena>, resources: Vec<Arc<Resource>>) -> Self {
        Self {
            dialect,
            base,
            resources,
            written: BTreeSet::new(),
            descriptions: None,
            section: Section::Shared,
            follows: false,
        }
    }

    /// Writes what comes next; false at the end.
    fn step(&mut self, out: &mut Vec<u8>) -> bool {
        match self.section {
            Section::Shared => {
                out.extend_from_slice(match self.dialect {
                    Dialect::V2 => br#"{"swagger":"2.0","info":{"title":"Kubernetes","version":"unversioned"},"definitions":{"#,
                    Dialect::V3 => br#"{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"unversioned"},"components":{"schemas":{"#,
                });
                let schemas = self.shared();
                self.schemas(schemas, out);
                self.section = Section::Schemas(0);
            }
            Section::Schemas(at) => match self.resources.get(at).cloned() {
                Some(resource) => {
                    if !Arc::ptr_eq(&self.base, &resource.schema.arena) {
                        let schemas = self.custom(&resource);
                        self.schemas(schemas, out);
                    }
                    self.section = Section::Schemas(at + 1);
                }
                None => {
                    self.descriptions = None;
                    out.extend_from_slice(match self.dialect {
                        Dialect::V2 => br#"},"paths":{"#,
                        Dialect::V3 => br#"}},"paths":{"#,
                    });
                    self.follows = false;
                    self.section = Section::Paths(0);
                }
            },
            Section::Paths(at) => match self.resources.get(at) {
                Some(resource) => {
                    for (path, mut value) in paths::paths(resource, |name| self.written.contains(name)) {
                        if self.dialect == Dialect::V2 {
                            v2::path(&mut value);
                        }
                        self.follows = entry(self.follows, &path, &value, out);
                    }
                    self.section = Section::Paths(at + 1);
                }
                None => {
                    out.extend_from_slice(b"}}");
                    self.section = Section::Over;
                }
            },
            Section::Over => return false,
        }
        true
    }

    /// What all documents have, and the types of built-in resources.
    fn shared(&mut self) -> BTreeMap<String, Value> {
        let mut out = BTreeMap::new();
        let known = |_: &str| false;
        // First, so that ObjectMeta is published alike for every kind; CRDs hold copies of it.
        let mut shared = Schemas::new(&self.base, false, &known, &mut out);
        paths::SHARED.iter().for_each(|name| shared.add(name));
        for (resource, sub) in
            self.resources.iter().flat_map(|resource| resource.subresources.iter().map(move |sub| (resource, sub)))
        {
            shared.add_kind(&paths::type_name(resource, sub), &sub.gvk);
        }
        for resource in self.resources.iter().filter(|resource| Arc::ptr_eq(&self.base, &resource.schema.arena)) {
            shared.add_resource(resource);
        }
        shared.finish();
        let descriptions = self.descriptions.insert(Descriptions::unpack());
        out.iter_mut().for_each(|(name, schema)| descriptions.describe(name, schema));
        out
    }

    fn custom(&self, resource: &Resource) -> BTreeMap<String, Value> {
        let mut out = BTreeMap::new();
        let known = |name: &str| self.written.contains(name);
        let mut schemas = Schemas::new(&resource.schema.arena, true, &known, &mut out);
        schemas.add_resource(resource);
        schemas.finish();
        if let Some(descriptions) = &self.descriptions {
            for name in [&*resource.schema.name, &list_name(resource)] {
                out.get_mut(name).into_iter().for_each(|schema| descriptions.describe_kind(schema));
            }
        }
        out
    }

    fn schemas(&mut self, schemas: BTreeMap<String, Value>, out: &mut Vec<u8>) {
        for (name, mut schema) in schemas {
            // A name stands once in an object.
            if !self.written.contains(&name) {
                if self.dialect == Dialect::V2 {
                    v2::schema(&mut schema);
                }
                self.follows = entry(self.follows, &name, &schema, out);
                self.written.insert(name);
            }
        }
    }
}

impl Iterator for DocumentPieces {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < PIECE_BYTES && self.step(&mut out) {}
        (!out.is_empty()).then_some(out)
    }
}

/// Writes one entry of an object; then something stands before the next.
fn entry(follows: bool, name: &str, value: &impl Serialize, out: &mut Vec<u8>) -> bool {
    if follows {
        out.push(b',');
    }
    partial::write(out, &name);
    out.push(b':');
    partial::write(out, value);
    true
}
