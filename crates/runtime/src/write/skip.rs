//! Whether an apply would change anything. In: the object as the cache has it and what is to be applied. Out: no, or
//! why. Pure: no call, no clock.
//!
//! Nothing has to be sent when the object carries the mark of just this configuration (so nothing that was applied
//! before has to go) and has every value of it (so nothing was changed by others). Fields the configuration does not
//! mention are others' business: defaults, other controllers, people.

use konverge_schema::{Arena, ListKind, Shape, TypeId};
use serde_json::{Map, Value};

use super::config::Config;
use super::digest::{Digest, digest};
use super::equal::{same, same_number};
use super::types::{Type, object_meta};
use crate::object::Object;

/// What to do with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is applied already.
    Skip,
    /// There is no such object.
    Create,
    /// Another configuration was applied last, or none.
    Changed,
    /// Somebody changed these fields.
    Drift(Vec<String>),
}

/// Where an object differs from a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// The first few places.
    pub paths: Vec<String>,
    /// A sum over all of them and both their values.
    pub sum: Option<Digest>,
}

/// More places than these say nothing new.
const MOST_PATHS: usize = 8;

/// What servers fill in, although no schema says so, inside of values that are owned whole; anywhere else a field that
/// was not applied does not matter. Only by name: where such a field is, the value means the same.
const FILLED_IN: [(&str, &str); 9] = [
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

/// Decides about one apply. `settled` are the differences that were left when this configuration was last applied:
/// what a server or a webhook insists on is no drift.
pub(crate) fn decide(ty: &Type, live: Option<&Object>, config: &Config, settled: Option<Digest>) -> Decision {
    let Some(live) = live else { return Decision::Create };
    if !config.is_mark_of(live) {
        return Decision::Changed;
    }
    let differences = differences(ty, &live.value(), &config.object);
    if differences.sum.is_none() || differences.sum == settled {
        return Decision::Skip;
    }
    Decision::Drift(differences.paths)
}

/// Where `live` does not have what `config` says.
pub(crate) fn differences(ty: &Type, live: &Value, config: &Value) -> Differences {
    let mut walk = Walk { typed: ty.typed, path: Vec::new(), found: Differences::default() };
    let (Value::Object(live), Value::Object(config)) = (live, config) else {
        walk.differ(Some(live), config);
        return walk.found;
    };
    let root = Place { arena: &ty.arena, ty: ty.root };
    for (name, want) in config {
        let place = match name.as_str() {
            // Known from the request; lists leave them out.
            "apiVersion" | "kind" => continue,
            // Kept in structs by every server, also of custom resources.
            "metadata" => {
                let (arena, ty) = object_meta();
                Place { arena, ty: Some(ty) }
            }
            name => root.field(name),
        };
        walk.typed = ty.typed || name == "metadata";
        walk.path.push(Step::Field(name));
        walk.visit(place, live.get(name), want, false);
        walk.path.pop();
    }
    walk.found
}

/// A type in its arena; none where the structure is deduced.
#[derive(Clone, Copy)]
struct Place<'a> {
    arena: &'a Arena,
    ty: Option<TypeId>,
}

impl<'a> Place<'a> {
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

struct Walk<'a> {
    typed: bool,
    path: Vec<Step<'a>>,
    found: Differences,
}

impl<'a> Walk<'a> {
    /// Looks for `want` in `live`. `whole` is set inside of values that are owned whole, where nothing may be added.
    fn visit(&mut self, place: Place<'a>, live: Option<&Value>, want: &'a Value, whole: bool) {
        let Some(live) = live.filter(|live| !live.is_null()) else {
            let expected = want.is_null() || self.typed && is_left_out(place, want);
            if !expected {
                self.differ(live, want);
            }
            return;
        };
        match (place.shape(), live, want) {
            (_, _, Value::Null) if !whole => {}
            (Shape::Scalar(scalar), _, _) => {
                if !same(*scalar, live, want) {
                    self.differ(Some(live), want);
                }
            }
            (Shape::Struct { atomic, .. } | Shape::Map { atomic, .. }, Value::Object(has), Value::Object(wants)) => {
                self.fields(place, has, wants, whole || *atomic);
            }
            (Shape::Any | Shape::Opaque, Value::Object(has), Value::Object(wants)) => {
                self.fields(place, has, wants, whole || matches!(place.shape(), Shape::Opaque));
            }
            (Shape::List { item, kind }, Value::Array(has), Value::Array(wants)) => match kind {
                ListKind::Set | ListKind::Map(_) if !whole => self.items(place.of(*item), kind, has, wants),
                _ => self.in_order(place.of(*item), has, wants),
            },
            (Shape::Any | Shape::Opaque, Value::Array(has), Value::Array(wants)) => {
                self.in_order(Place { arena: place.arena, ty: None }, has, wants);
            }
            _ if live == want || same_number(live, want) => {}
            _ => self.differ(Some(live), want),
        }
    }

    fn fields(&mut self, place: Place<'a>, has: &Map<String, Value>, wants: &'a Map<String, Value>, whole: bool) {
        for (name, want) in wants {
            self.path.push(Step::Field(name));
            self.visit(place.field(name), has.get(name), want, whole);
            self.path.pop();
        }
        if !whole {
            return;
        }
        let free_keys = matches!(place.shape(), Shape::Map { .. });
        for (name, extra) in has.iter().filter(|(name, _)| !wants.contains_key(*name)) {
            if free_keys || !self.is_filled_in(place.field(name), name, extra) {
                self.differ_at(name, extra);
            }
        }
    }

    /// A list that is one value.
    fn in_order(&mut self, item: Place<'a>, has: &[Value], wants: &'a [Value]) {
        for (at, want) in wants.iter().enumerate() {
            self.path.push(Step::Item(at));
            match has.get(at) {
                Some(live) => self.visit(item, Some(live), want, true),
                None => self.differ(None, want),
            }
            self.path.pop();
        }
        for extra in has.iter().skip(wants.len()) {
            self.differ_at("[]", extra);
        }
    }

    /// A list of items that are told apart: each one wanted must be there, in the same order; others may be between.
    fn items(&mut self, item: Place<'a>, kind: &ListKind, has: &[Value], wants: &'a [Value]) {
        let mut next = 0;
        for (at, want) in wants.iter().enumerate() {
            self.path.push(Step::Item(at));
            let alike = |live: &&Value| is_same_item(item, kind, live, want);
            // Mostly the items stand where they did when they were applied.
            let found = has[next..].iter().position(|live| alike(&live)).map(|at| at + next);
            match found {
                Some(found) => {
                    self.visit(item, Some(&has[found]), want, false);
                    next = found + 1;
                }
                None => self.differ(has.iter().find(alike), want),
            }
            self.path.pop();
        }
    }

    /// Whether a field inside of a value that is owned whole comes from the server.
    fn is_filled_in(&self, place: Place<'_>, name: &str, extra: &Value) -> bool {
        let known = |text: &str| FILLED_IN.contains(&(name, text));
        match extra {
            Value::Object(fields) => {
                fields.iter().all(|(name, value)| self.is_filled_in(place.field(name), name, value))
            }
            extra => {
                place.default().is_some_and(|default| default == extra)
                    || self.typed && (is_zero(extra) || extra.as_str().is_some_and(known))
            }
        }
    }

    fn differ(&mut self, live: Option<&Value>, want: &Value) {
        let path = self.path();
        let sum = self.found.sum.get_or_insert_default();
        sum.text(&path);
        digest(sum, want);
        digest(sum, live.unwrap_or(&Value::Null));
        if self.found.paths.len() < MOST_PATHS {
            self.found.paths.push(path);
        }
    }

    /// Something is there that should not be.
    fn differ_at(&mut self, name: &str, extra: &Value) {
        let mut path = self.path();
        if !name.starts_with('[') && !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        let sum = self.found.sum.get_or_insert_default();
        sum.text(&path);
        digest(sum, extra);
        if self.found.paths.len() < MOST_PATHS {
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

fn is_same_item(item: Place<'_>, kind: &ListKind, live: &Value, want: &Value) -> bool {
    match kind {
        ListKind::Map(keys) => keys.iter().all(|key| {
            let default = item.field(key).default();
            live.get(&**key).or(default) == want.get(&**key).or(default)
        }),
        ListKind::Set | ListKind::Atomic => live == want,
    }
}

/// Whether a server that keeps structs leaves this value out: what is empty, but no struct, because an empty one still
/// says something (`emptyDir: {}`). Of `false` and 0 no schema tells: `hostNetwork` is left out, but without
/// `allowPrivilegeEscalation: false` it is allowed. Those are applied once and then known to be left out.
fn is_left_out(place: Place<'_>, want: &Value) -> bool {
    match want {
        Value::Object(fields) => fields.is_empty() && matches!(place.shape(), Shape::Map { .. }),
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
