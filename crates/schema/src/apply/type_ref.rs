//! A type as server-side apply sees it: its values are owned as a whole, field by field, or item by item. In: a type and a
//! value. Out: how the value is owned, and the types of its fields or items.

use serde_json::Value;

use crate::arena::{Arena, ListKind, Scalar, Shape, TypeId};
use crate::field_set::PathElement;
use crate::go_format;

/// A type in its arena. Without a type the structure is deduced from the value: objects are owned
/// field by field, lists as a whole.
#[derive(Clone, Copy)]
pub(super) struct TypeRef<'a> {
    arena: &'a Arena,
    ty: Option<TypeId>,
}

/// How a value is owned.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Parts<'a> {
    /// As a whole.
    Whole,
    /// Field by field.
    Fields,
    /// Item by item; the kind is never [`ListKind::Atomic`].
    Items(&'a ListKind),
}

impl<'a> TypeRef<'a> {
    pub(super) fn new(arena: &'a Arena, ty: TypeId) -> Self {
        Self { arena, ty: Some(ty) }
    }

    fn deduced(self) -> Self {
        Self { arena: self.arena, ty: None }
    }

    pub(super) fn shape(self) -> &'a Shape {
        self.ty.map_or(&Shape::Any, |ty| &self.arena.node(ty).shape)
    }

    /// How this value is owned. A value that does not fit its type counts as absent, as in
    /// Kubernetes.
    pub(super) fn parts(self, value: &Value) -> Parts<'a> {
        match self.shape() {
            Shape::Any => match value {
                Value::Object(_) | Value::Null => Parts::Fields,
                _ => Parts::Whole,
            },
            shape => declared_parts(shape),
        }
    }

    /// The type of a field, and whether the type declares that field.
    pub(super) fn field(self, name: &str) -> (Self, bool) {
        match self.shape() {
            Shape::Struct { fields, .. } => match fields.binary_search_by(|field| (*field.name).cmp(name)) {
                Ok(at) => (Self { arena: self.arena, ty: Some(fields[at].ty) }, true),
                Err(_) => (self.deduced(), false),
            },
            Shape::Map { value, .. } => (Self { arena: self.arena, ty: Some(*value) }, false),
            _ => (self.deduced(), false),
        }
    }

    /// The type of the items of a list.
    pub(super) fn item(self) -> Self {
        match self.shape() {
            Shape::List { item, .. } => Self { arena: self.arena, ty: Some(*item) },
            _ => self.deduced(),
        }
    }

    /// The type one step further on a path, and whether this type declares that step as a field.
    pub(super) fn step(self, element: &PathElement) -> (Self, bool) {
        match element {
            PathElement::Field(name) => self.field(name),
            _ => (self.item(), false),
        }
    }

    /// Whether a field set ends here, because the value is owned as a whole.
    pub(super) fn is_atomic(self) -> bool {
        match self.shape() {
            Shape::Any | Shape::Scalar(_) => false,
            shape => declared_parts(shape) == Parts::Whole,
        }
    }

    /// The path element that identifies an item; `self` is the type of the list.
    pub(super) fn element(self, kind: &ListKind, item: &Value) -> Result<PathElement, String> {
        match kind {
            ListKind::Atomic => Err("invalid indexing of non-associative list".into()),
            ListKind::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            ListKind::Map(keys) => self.keyed_element(keys, item),
        }
    }

    fn keyed_element(self, keys: &[Box<str>], item: &Value) -> Result<PathElement, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            match fields.get(&**key) {
                Some(value) => found.push((key.clone(), value.clone())),
                // A key field without a value and without a default is left out: items with and without it are different.
                None => found.extend(self.item().default_of(key).map(|value| (key.clone(), value))),
            }
        }
        if found.is_empty() && !keys.is_empty() {
            let keys: Vec<_> = keys.iter().map(|key| go_format::quote(key)).collect();
            let keys = keys.join(" ");
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{keys}] \
                 (and doesn't have default values for any key fields)"
            ));
        }
        Ok(PathElement::key(found))
    }

    /// What a field has when it is left out. Required fields of Go structs have their zero value, which Kubernetes publishes as
    /// their default.
    fn default_of(self, name: &str) -> Option<Value> {
        let Shape::Struct { fields, .. } = self.shape() else { return None };
        let field = &fields[fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?];
        let node = self.arena.node(field.ty);
        let zero = || match node.shape {
            Shape::Scalar(Scalar::String) => Some("".into()),
            Shape::Scalar(Scalar::Int32 | Scalar::Int64) => Some(0.into()),
            _ => None,
        };
        let declared = node.default.as_deref().cloned();
        declared.or_else(|| zero().filter(|_| self.arena.go_structs && field.required))
    }
}

fn declared_parts(shape: &Shape) -> Parts<'_> {
    match shape {
        Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } | Shape::Any => Parts::Fields,
        Shape::List { kind: kind @ (ListKind::Set | ListKind::Map(_)), .. } => Parts::Items(kind),
        Shape::Opaque | Shape::Scalar(_) | Shape::Struct { .. } | Shape::Map { .. } | Shape::List { .. } => {
            Parts::Whole
        }
    }
}

/// Reports what in an applied configuration does not fit its type: undeclared fields, values of another JSON type, list
/// items without keys, and duplicates.
pub(super) fn check(type_ref: TypeRef<'_>, config: &Value) -> Result<(), String> {
    let mut problems = Vec::new();
    check_at(type_ref, config, &mut String::new(), &mut problems);
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(many.iter().fold("errors:".into(), |all: String, one| all + "\n  " + one)),
    }
}

fn check_at(type_ref: TypeRef<'_>, value: &Value, path: &mut String, problems: &mut Vec<String>) {
    match type_ref.shape() {
        _ if value.is_null() => {}
        Shape::Any | Shape::Opaque => {}
        Shape::Scalar(scalar) => {
            if let Some(why) = scalar_problem(*scalar, value) {
                problems.push(located(path, &why));
            }
        }
        Shape::Struct { .. } | Shape::Map { .. } => check_fields(type_ref, value, path, problems),
        Shape::List { kind, .. } => check_items(type_ref, kind, value, path, problems),
    }
}

fn check_fields(type_ref: TypeRef<'_>, value: &Value, path: &mut String, problems: &mut Vec<String>) {
    let Value::Object(fields) = value else {
        return problems.push(located(path, &format!("expected map, got &{{{}}}", go_format::plain(value))));
    };
    // A struct without declared fields accepts any field.
    let closed = matches!(type_ref.shape(), Shape::Struct { fields, open: false, .. } if !fields.is_empty());
    for (name, value) in fields {
        let (type_ref, declared) = type_ref.field(name);
        let length = path.len();
        path.push('.');
        path.push_str(name);
        if closed && !declared {
            problems.push(located(path, "field not declared in schema"));
            path.truncate(length);
            return;
        }
        check_at(type_ref, value, path, problems);
        path.truncate(length);
    }
}

fn check_items(type_ref: TypeRef<'_>, kind: &ListKind, value: &Value, path: &mut String, problems: &mut Vec<String>) {
    let Value::Array(items) = value else {
        return problems.push(located(path, &format!("expected list, got &{{{}}}", go_format::plain(value))));
    };
    let mut seen = std::collections::BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let element = match kind {
            ListKind::Atomic => PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX)),
            _ => match type_ref.element(kind, item) {
                Ok(element) => element,
                Err(why) => return problems.push(located(path, &format!("element {at}: {why}"))),
            },
        };
        let length = path.len();
        path.push_str(&element.to_string());
        if !seen.insert(element) {
            let (list, key) = path.split_at(length);
            problems.push(located(list, &format!("duplicate entries for key {key}")));
        }
        check_at(type_ref.item(), item, path, problems);
        path.truncate(length);
    }
}

fn scalar_problem(scalar: Scalar, value: &Value) -> Option<String> {
    let fits = match scalar {
        Scalar::String | Scalar::Bytes => value.is_string(),
        Scalar::Int32 | Scalar::Int64 | Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Time | Scalar::MicroTime | Scalar::Quantity | Scalar::IntOrString => {
            !value.is_object() && !value.is_array()
        }
    };
    (!fits).then(|| match scalar {
        Scalar::String | Scalar::Bytes => {
            format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_format::source(value))
        }
        Scalar::Int32 | Scalar::Int64 | Scalar::Number => {
            format!("expected numeric (int or float), got {}", go_format::go_type_name(value))
        }
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", go_format::plain(value)),
        Scalar::Time | Scalar::MicroTime | Scalar::Quantity | Scalar::IntOrString => {
            format!("expected any scalar, got &{{{}}}", go_format::plain(value))
        }
    })
}

fn located(path: &str, why: &str) -> String {
    if path.is_empty() { why.into() } else { format!("{path}: {why}") }
}
