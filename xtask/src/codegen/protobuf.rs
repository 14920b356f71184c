//! In: the OpenAPI components that name the kinds, and the Go types of the same release. Out: the text table of protobuf
//! fields that the schema crate embeds.
//!
//! The Go types are the source rather than the published `.proto` files, because their tags have the number and the JSON
//! name side by side, and because only Go tells a pointer from a plain value: protobuf sends `replicas: 0` for both,
//! and JSON keeps the first and drops the second. The wire type and the label in the tags are wrong in places, so they
//! come from the Go type as well.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::go_types::{self, Declaration, Declarations, GoField, GoType};
use crate::source::Source;

/// Types with their own JSON form, and the scalar that the table has for them.
const SPECIAL: [(&str, &str); 7] = [
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "json"),
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "quantity"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "json"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "micro-time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "time"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "json"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "int-or-string"),
];

/// Structs whose JSON is that of the one field that is set. The same holds for named lists, which are messages, too.
const TRANSPARENT: [&str; 3] = [
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray",
];

/// The package of what every group has, and its types that are answers rather than kinds of objects. OpenAPI does not name
/// their versions: metadata and lists of it are of both versions of `meta.k8s.io`.
const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";
const ANSWERS: [(&str, &str); 5] = [
    ("APIGroup", "v1"),
    ("APIGroupList", "v1"),
    ("APIVersions", "v1"),
    ("PartialObjectMetadata", "*"),
    ("PartialObjectMetadataList", "*"),
];

/// The comment at the head of the generated file, after the line that names its source.
const FORMAT: &str = "\
#
# Written by `cargo xtask codegen`; do not edit. Read by crates/schema/src/protobuf/table.rs.
#
#   @ALIAS PACKAGE                  a short word for a package, for types named from outside of it
#   PACKAGE.TYPE [WORD]             a message
#     NUMBER NAME[?|~] SHAPE        a field, in the order of numbers; NAME is its name in JSON, `.` for a message whose
#                                   fields are written as fields of this one
#
# WORD   GROUP/VERSION              the message is a kind of this version; `*` for a kind of every version
#        transparent                the JSON is that of the last field which is set
# ?      omitempty: an empty string, list or map, 0 and false are left out
# ~      omitzero: a time that is not set is left out
# SHAPE  a scalar (string bytes bool int32 int64 double time micro-time quantity int-or-string), `json` (a message that
#        holds JSON), `TYPE` of the same package, `ALIAS.TYPE` of another one, `[SHAPE` a list, `{SHAPE` a map with
#        strings for keys, `*SHAPE` a pointer, which tells whether the value was sent
";

/// Writes the table of every kind in `schemas`, which are OpenAPI components by name, and of all types they reach.
pub(crate) fn table(title: &str, schemas: &BTreeMap<String, Value>, source: &Source) -> Result<String, String> {
    let mut table =
        MessageTable { source, packages: BTreeMap::new(), aliases: BTreeMap::new(), pending: BTreeSet::new() };
    let mut blocks = BTreeMap::new();
    let kinds = kinds(schemas)?;
    for (path, name) in kinds.keys() {
        table.pending.insert((path.clone(), name.clone()));
    }
    while let Some(key) = table.pending.pop_first() {
        if let Entry::Vacant(place) = blocks.entry(key) {
            let (path, name) = place.key();
            let kind = kinds.get(place.key()).map(String::as_str);
            let block = table.block(path, name, kind).map_err(|problem| format!("{path}.{name}: {problem}"))?;
            place.insert(block);
        }
    }
    let mut out = format!("# Protobuf messages of {title}\n{FORMAT}\n");
    for (alias, path) in &table.aliases {
        let _ = writeln!(out, "@{alias} {}", dotted(path));
    }
    out.extend(blocks.into_values());
    Ok(out)
}

/// A type: its import path and its name.
type Key = (String, String);

/// The types that are kinds, and of which group and version.
fn kinds(schemas: &BTreeMap<String, Value>) -> Result<BTreeMap<Key, String>, String> {
    let mut kinds = BTreeMap::new();
    for (component, schema) in schemas {
        let Some(versions) = schema["x-kubernetes-group-version-kind"].as_array() else { continue };
        let invalid = || format!("{component}: not the name of a kind: {versions:?}");
        let (package, name) =
            component.strip_prefix("io.k8s.").and_then(|rest| rest.rsplit_once('.')).ok_or_else(invalid)?;
        let word = match versions.as_slice() {
            [only] => {
                let text = |key: &str| only[key].as_str().unwrap_or_default();
                match (text("group"), text("version")) {
                    ("", version) => version.to_owned(),
                    (group, version) => format!("{group}/{version}"),
                }
            }
            _ => "*".to_owned(),
        };
        if versions.iter().any(|version| version["kind"] != name) {
            return Err(invalid());
        }
        kinds.insert((format!("k8s.io/{}", package.replace('.', "/")), name.to_owned()), word);
    }
    // Wherever a failure can be answered.
    if kinds.contains_key(&(META.to_owned(), "Status".to_owned())) {
        kinds.extend(ANSWERS.map(|(name, word)| ((META.to_owned(), name.to_owned()), word.to_owned())));
    }
    Ok(kinds)
}

struct MessageTable<'a> {
    source: &'a Source,
    /// The declarations of packages that were read, by import path.
    packages: BTreeMap<String, Declarations>,
    /// Alias to import path, of every package referred to from another one.
    aliases: BTreeMap<String, String>,
    /// Types that are referred to and not written yet.
    pending: BTreeSet<Key>,
}

impl MessageTable<'_> {
    fn block(&mut self, path: &str, name: &str, kind: Option<&str>) -> Result<String, String> {
        let full = format!("{path}.{name}");
        let transparent = TRANSPARENT.contains(&full.as_str());
        let mut lines = BTreeMap::new();
        let word = match self.declaration(path, name)? {
            Declaration::Alias(ty @ GoType::List(_)) => {
                // Protobuf has no list in a map and no pointer to a list, so a named list is a message with one field.
                lines.insert(1, format!("items {}", self.shape(path, path, &ty)?));
                Some("transparent")
            }
            Declaration::Alias(ty) => return Err(format!("{ty:?} is not a message")),
            Declaration::Struct(fields) => {
                for field in &fields {
                    let line = self.field(path, field, transparent);
                    if let Some((number, line)) = line.map_err(|problem| format!("{}: {problem}", field.name))?
                        && lines.insert(number, line).is_some()
                    {
                        return Err(format!("{}: a second field with the number {number}", field.name));
                    }
                }
                if transparent { Some("transparent") } else { kind }
            }
        };
        let mut out = format!("\n{}.{name}", dotted(path));
        if let Some(word) = word {
            let _ = write!(out, " {word}");
        }
        out.push('\n');
        for (number, line) in lines {
            let _ = writeln!(out, "  {number} {line}");
        }
        Ok(out)
    }

    /// The number and the rest of a field's line; `None` for a field that protobuf leaves out.
    fn field(&mut self, path: &str, field: &GoField, transparent: bool) -> Result<Option<(u32, String)>, String> {
        let Some(protobuf) = &field.protobuf else {
            // apiVersion and kind are in the envelope.
            return if field.name == "TypeMeta" { Ok(None) } else { Err("no protobuf tag".into()) };
        };
        let words: Vec<&str> = protobuf.split(',').collect();
        let [_, number, label, ..] = words.as_slice() else {
            return Err(format!("a tag that cannot be read: {protobuf:?}"));
        };
        let number: u32 = number.parse().map_err(|_| format!("a field number that cannot be read: {protobuf:?}"))?;
        let mut json = field.json.as_deref().unwrap_or_default().split(',');
        let given = json.next().unwrap_or_default();
        let options: Vec<&str> = json.collect();
        let repeated = *label == "rep";
        let listed = self.named_list(path, &field.ty)?;
        let shape = match &listed {
            // A named list is a message only where it is not repeated.
            Some((of, list)) if repeated => self.shape(path, of, list)?,
            _ => self.shape(path, path, &field.ty)?,
        };
        let mark = match (options.contains(&"omitempty"), options.contains(&"omitzero")) {
            (_, true) if shape == "time" => "~",
            (_, true) => return Err(format!("omitzero with {shape}")),
            (true, false) if listed.is_some() && !repeated => return Err("omitempty with a named list".into()),
            (true, false) => "?",
            (false, false) => "",
        };
        let inline = field.embedded && given.is_empty() && !transparent;
        let name = match (inline, given) {
            (true, _) if shape.starts_with('*') => return Err("an embedded pointer".into()),
            (true, _) => ".",
            (false, "") => &field.name,
            (false, "-") => return Err("a field that JSON leaves out".into()),
            (false, given) => given,
        };
        Ok(Some((number, format!("{name}{mark} {shape}"))))
    }

    /// How a type of `path` is written in a message of `home`.
    fn shape(&mut self, home: &str, path: &str, ty: &GoType) -> Result<String, String> {
        let (of, name) = match ty {
            GoType::Pointer(inner) => return Ok(format!("*{}", self.shape(home, path, inner)?)),
            GoType::List(inner) if **inner == GoType::Local("byte".into()) => return Ok("bytes".into()),
            GoType::List(inner) => return Ok(format!("[{}", self.shape(home, path, inner)?)),
            GoType::Map(key, value) => {
                return match self.shape(home, path, key)?.as_str() {
                    "string" => Ok(format!("{{{}", self.shape(home, path, value)?)),
                    key => Err(format!("a map by {key}")),
                };
            }
            GoType::Local(name) => match name.as_str() {
                "string" | "bool" | "int32" | "int64" => return Ok(name.clone()),
                "float64" => return Ok("double".into()),
                _ => (path, name),
            },
            GoType::Imported(path, name) => (path.as_str(), name),
            GoType::Other(text) => return Err(format!("{text} cannot be sent")),
        };
        let full = format!("{of}.{name}");
        if let Some((_, scalar)) = SPECIAL.iter().find(|(special, _)| *special == full) {
            return Ok((*scalar).to_owned());
        }
        match self.declaration(of, name)? {
            Declaration::Alias(target) if !matches!(target, GoType::List(_)) => self.shape(home, of, &target),
            _ => {
                self.pending.insert((of.to_owned(), name.clone()));
                if of == home { Ok(name.clone()) } else { Ok(format!("{}.{name}", self.alias(of)?)) }
            }
        }
    }

    /// `k8s.io/api/core/v1` is known as `core/v1`.
    fn alias(&mut self, path: &str) -> Result<String, String> {
        let mut segments = path.rsplitn(3, '/');
        let (version, group) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        let alias = format!("{group}/{version}");
        let known = self.aliases.entry(alias.clone()).or_insert_with(|| path.to_owned());
        if known != path {
            return Err(format!("{known} and {path} share the alias {alias}"));
        }
        Ok(alias)
    }

    /// The list that a named type stands for, and the package whose names it uses.
    fn named_list(&mut self, path: &str, ty: &GoType) -> Result<Option<(String, GoType)>, String> {
        let (of, name) = match ty {
            GoType::Local(name) => (path, name),
            GoType::Imported(path, name) => (path.as_str(), name),
            _ => return Ok(None),
        };
        match self.package(of)?.get(name) {
            Some(Declaration::Alias(list @ GoType::List(_))) => Ok(Some((of.to_owned(), list.clone()))),
            _ => Ok(None),
        }
    }

    fn declaration(&mut self, path: &str, name: &str) -> Result<Declaration, String> {
        self.package(path)?.get(name).cloned().ok_or_else(|| format!("{path} declares no {name}"))
    }

    fn package(&mut self, path: &str) -> Result<&Declarations, String> {
        if !self.packages.contains_key(path) {
            let mut found = Declarations::new();
            for go in self.source.go_package(path)? {
                found.extend(go_types::declarations(&go).map_err(|problem| format!("{path}: {problem}"))?);
            }
            self.packages.insert(path.to_owned(), found);
        }
        Ok(&self.packages[path])
    }
}

/// `k8s.io/api/core/v1` is `io.k8s.api.core.v1` in OpenAPI documents and in our tables.
fn dotted(path: &str) -> String {
    format!("io.k8s.{}", path.trim_start_matches("k8s.io/").replace('/', "."))
}

#[cfg(test)]
mod tests;
