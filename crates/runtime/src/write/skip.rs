//! Decides whether an apply would change anything. In: the object in the cache and the configuration to apply. Out: a
//! [`Decision`]. Pure: no request, no clock.
//!
//! An apply is skipped if the object has the digest annotation of exactly this configuration (so no field of an earlier
//! configuration has to be removed) and all of its values (so nobody changed one). Fields that the configuration does not
//! mention belong to others: to the server's defaults, to other controllers, or to people. In a steady state `memory` has decided
//! before: it knows the versions of objects that were found to be as desired.

use konverge_schema::{Arena, ListKind, Shape, TypeId};
use serde_json::{Map, Value};

use super::config::Config;
use super::digest::{Digest, digest};
use super::equal::{same, same_number};
use super::types::{Type, object_meta};
use crate::object::Object;

/// What to do with a configuration, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The object has it already: send nothing.
    Skip,
    /// Apply it, because the object does not exist.
    Create,
    /// Apply it, because another configuration was applied last, or none.
    Changed,
    /// Apply it, because somebody changed these fields.
    Drift(Vec<String>),
}

/// Where an object differs from a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// The paths of the first few differences.
    pub paths: Vec<String>,
    /// A digest of all differences: their paths and both values. `None` if there is no difference.
    pub digest: Option<Digest>,
}

/// How many paths are kept, enough for a log line.
const MAX_PATHS: usize = 8;

/// Defaults that servers set without a schema that says so, as name and value. They matter only inside of atomic values;
/// elsewhere, fields that were not applied are ignored anyway. A name is enough, because a field of this name has this
/// meaning wherever it is.
const SERVER_DEFAULTS: [(&str, &str); 9] = [
    ("apiGroup", "rbac.authorization.k8s.io"),
    ("apiVersion", "v1"),
    ("divisor", "0"),
    ("kind", "PersistentVolumeClaim"),
    ("pathType", "ImplementationSpecific"),
    ("phase", "Pending"),
    ("protocol", "TCP"),
    ("scope", "*"),
    ("volumeMode", "Filesystem"),
];

/// Decides about one apply. `remaining` is the digest of the differences that were left after this configuration was last
/// applied: a value that the server or a webhook always sets is not a drift.
pub(crate) fn decide(ty: &Type, live: Option<&Object>, config: &Config, remaining: Option<Digest>) -> Decision {
    let Some(live) = live else { return Decision::Create };
    if !config.was_applied_last(live) {
        return Decision::Changed;
    }
    let differences = differences(ty, &live.value(), &config.object);
    if differences.digest.is_none() || differences.digest == remaining {
        return Decision::Skip;
    }
    Decision::Drift(differences.paths)
}

/// Where `live` does not have the values of `config`.
pub(crate) fn differences(ty: &Type, live: &Value, config: &Value) -> Differences {
    let mut comparison = Comparison { typed: ty.typed, path: Vec::new(), found: Differences::default() };
    let (Value::Object(live), Value::Object(config)) = (live, config) else {
        comparison.add(Some(live), config);
        return comparison.found;
    };
    let root = TypeRef { arena: &ty.arena, ty: ty.root };
    for (name, want) in config {
        let field_type = match name.as_str() {
            // The request determines the type, and items of a list have none.
            "apiVersion" | "kind" => continue,
            // Servers decode the metadata of custom resources, too.
            "metadata" => {
                let (arena, ty) = object_meta();
                TypeRef { arena, ty: Some(ty) }
            }
            name => root.field(name),
        };
        comparison.typed = ty.typed || name == "metadata";
        comparison.path.push(Step::Field(name));
        comparison.compare(field_type, live.get(name), want, false);
        comparison.path.pop();
    }
    comparison.found
}

/// A type in its arena. Without a type the structure of the values is compared.
#[derive(Clone, Copy)]
struct TypeRef<'a> {
    arena: &'a Arena,
    ty: Option<TypeId>,
}

impl<'a> TypeRef<'a> {
    fn shape(self) -> &'a Shape {
        self.ty.map_or(&Shape::Any, |ty| &self.arena.node(ty).shape)
    }

    fn field(self, name: &str) -> Self {
        Self { arena: self.arena, ty: self.ty.and_then(|ty| self.arena.field(ty, name)) }
    }

    fn of(self, ty: TypeId) -> Self {
        Self { arena: self.arena, ty: Some(ty) }
    }

    fn default(self) -> Option<&'a Value> {
        self.arena.node(self.ty?).default.as_deref()
    }
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

struct Comparison<'a> {
    typed: bool,
    path: Vec<Step<'a>>,
    found: Differences,
}

impl<'a> Comparison<'a> {
    /// Looks for `want` in `live`. `atomic` is set inside of atomic values, which may not have additional fields.
    fn compare(&mut self, ty: TypeRef<'a>, live: Option<&Value>, want: &'a Value, atomic: bool) {
        let Some(live) = live.filter(|live| !live.is_null()) else {
            let may_be_absent = want.is_null() || self.typed && is_omitted(ty, want);
            if !may_be_absent {
                self.add(live, want);
            }
            return;
        };
        match (ty.shape(), live, want) {
            (_, _, Value::Null) if !atomic => {}
            (Shape::Scalar(scalar), _, _) => {
                if !same(*scalar, live, want) {
                    self.add(Some(live), want);
                }
            }
            (
                Shape::Struct { atomic: is_atomic, .. } | Shape::Map { atomic: is_atomic, .. },
                Value::Object(has),
                Value::Object(wants),
            ) => {
                self.compare_fields(ty, has, wants, atomic || *is_atomic);
            }
            (Shape::Any | Shape::Opaque, Value::Object(has), Value::Object(wants)) => {
                self.compare_fields(ty, has, wants, atomic || matches!(ty.shape(), Shape::Opaque));
            }
            (Shape::List { item, kind }, Value::Array(has), Value::Array(wants)) => match kind {
                ListKind::Set | ListKind::Map(_) if !atomic => self.compare_items(ty.of(*item), kind, has, wants),
                _ => self.compare_in_order(ty.of(*item), has, wants),
            },
            (Shape::Any | Shape::Opaque, Value::Array(has), Value::Array(wants)) => {
                self.compare_in_order(TypeRef { arena: ty.arena, ty: None }, has, wants);
            }
            _ if live == want || same_number(live, want) => {}
            _ => self.add(Some(live), want),
        }
    }

    fn compare_fields(
        &mut self,
        ty: TypeRef<'a>,
        has: &Map<String, Value>,
        wants: &'a Map<String, Value>,
        atomic: bool,
    ) {
        for (name, want) in wants {
            self.path.push(Step::Field(name));
            self.compare(ty.field(name), has.get(name), want, atomic);
            self.path.pop();
        }
        if !atomic {
            return;
        }
        let is_map = matches!(ty.shape(), Shape::Map { .. });
        for (name, extra) in has.iter().filter(|(name, _)| !wants.contains_key(*name)) {
            if is_map || !self.is_default(ty.field(name), name, extra) {
                self.add_surplus(name, extra);
            }
        }
    }

    /// Compares an atomic list item by item.
    fn compare_in_order(&mut self, item: TypeRef<'a>, has: &[Value], wants: &'a [Value]) {
        for (at, want) in wants.iter().enumerate() {
            self.path.push(Step::Item(at));
            match has.get(at) {
                Some(live) => self.compare(item, Some(live), want, true),
                None => self.add(None, want),
            }
            self.path.pop();
        }
        for extra in has.iter().skip(wants.len()) {
            self.add_surplus("[]", extra);
        }
    }

    /// Compares a set, or a list with keys: the object must have all wanted items in the same order, and may have others
    /// in between.
    fn compare_items(&mut self, item: TypeRef<'a>, kind: &ListKind, has: &[Value], wants: &'a [Value]) {
        let mut next = 0;
        for (at, want) in wants.iter().enumerate() {
            self.path.push(Step::Item(at));
            let is_same = |live: &&Value| is_same_item(item, kind, live, want);
            // Most lists have their items in the order in which they were applied.
            let found = has[next..].iter().position(|live| is_same(&live)).map(|at| at + next);
            match found {
                Some(found) => {
                    self.compare(item, Some(&has[found]), want, false);
                    next = found + 1;
                }
                None => self.add(has.iter().find(is_same), want),
            }
            self.path.pop();
        }
    }

    /// Whether a surplus field inside of an atomic value is a default of the server.
    fn is_default(&self, ty: TypeRef<'_>, name: &str, extra: &Value) -> bool {
        let known = |text: &str| SERVER_DEFAULTS.contains(&(name, text));
        match extra {
            Value::Object(fields) => fields.iter().all(|(name, value)| self.is_default(ty.field(name), name, value)),
            extra => {
                ty.default().is_some_and(|default| default == extra)
                    || self.typed && (is_zero(extra) || extra.as_str().is_some_and(known))
            }
        }
    }

    /// Adds a difference at the current path.
    fn add(&mut self, live: Option<&Value>, want: &Value) {
        let path = self.path();
        let sum = self.found.digest.get_or_insert_default();
        sum.text(&path);
        digest(sum, want);
        digest(sum, live.unwrap_or(&Value::Null));
        if self.found.paths.len() < MAX_PATHS {
            self.found.paths.push(path);
        }
    }

    /// Adds a value below the current path that the configuration does not have.
    fn add_surplus(&mut self, name: &str, extra: &Value) {
        let mut path = self.path();
        if !name.starts_with('[') && !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        let sum = self.found.digest.get_or_insert_default();
        sum.text(&path);
        digest(sum, extra);
        if self.found.paths.len() < MAX_PATHS {
            self.found.paths.push(path);
        }
    }

    fn path(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(name);
                }
                Step::Item(at) => out.push_str(&format!("[{at}]")),
            }
        }
        out
    }
}

fn is_same_item(item: TypeRef<'_>, kind: &ListKind, live: &Value, want: &Value) -> bool {
    match kind {
        ListKind::Map(keys) => keys.iter().all(|key| {
            let default = item.field(key).default();
            live.get(&**key).or(default) == want.get(&**key).or(default)
        }),
        ListKind::Set | ListKind::Atomic => live == want,
    }
}

/// Whether a server that decodes objects into Go structs omits this value (`omitempty`). It omits empty values, but not an
/// empty struct, which has a meaning (`emptyDir: {}`). No schema says whether `false` and 0 are omitted: `hostNetwork: false`
/// is, `allowPrivilegeEscalation: false` is not. Such a value is applied once and then is one of the remaining differences.
fn is_omitted(ty: TypeRef<'_>, want: &Value) -> bool {
    match want {
        Value::Object(fields) => fields.is_empty() && matches!(ty.shape(), Shape::Map { .. }),
        Value::Bool(_) | Value::Number(_) => false,
        want => is_zero(want),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests;
