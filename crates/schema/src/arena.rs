//! The types of objects, compiled once: a flat vector of nodes that refer to each other by number.
//! In: nodes, from the table of built-in types or from the schema of a CRD. Out: types to walk beside an object.

use hashbrown::HashMap;
use serde_json::Value;

use crate::checks::Checks;

/// The name under which the type of every object's `metadata` is found.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The number of a [`Node`] in its [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// Every type that one set of objects is made of.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    nodes: Vec<Node>,
    named: HashMap<Box<str>, TypeId>,
    /// Whether the types are Go structs, whose required fields have their zero value when they are left out.
    pub(crate) go_structs: bool,
}

/// The type of the value at one place in an object.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The JSON type of the value, and how server-side apply merges it.
    pub shape: Shape,
    /// The default: filled in when the value is absent.
    pub default: Option<Box<Value>>,
    /// Whether `null` is a valid value.
    pub nullable: bool,
    /// Strategic merge patch directives of the published type.
    pub patch: Option<Box<Patch>>,
    /// `x-kubernetes-embedded-resource`: a whole object with apiVersion, kind and metadata.
    pub embedded: bool,
    /// Validation beyond the JSON type.
    pub checks: Option<Box<Checks>>,
}

/// The JSON type of a value, and how server-side apply owns it: a scalar or an atomic value as a whole, anything else
/// field by field or item by item.
#[derive(Clone, Debug, Default)]
pub enum Shape {
    /// Nothing is declared: any value is kept as it is. Server-side apply deduces the structure from the value: it owns
    /// objects field by field and lists as a whole.
    #[default]
    Any,
    /// Nothing is declared, and server-side apply owns the value as a whole: RawExtension, FieldsV1, JSON.
    Opaque,
    /// One JSON scalar.
    Scalar(Scalar),
    /// Named fields, sorted by name.
    Struct {
        /// The declared fields, sorted by name.
        fields: Box<[Field]>,
        /// `x-kubernetes-preserve-unknown-fields`: undeclared fields are kept.
        open: bool,
        /// `x-kubernetes-map-type: atomic`
        atomic: bool,
    },
    /// Any keys, one type of value.
    Map {
        /// The type of every value.
        value: TypeId,
        /// `x-kubernetes-map-type: atomic`
        atomic: bool,
    },
    /// A list.
    List {
        /// The type of every item.
        item: TypeId,
        /// What identifies an item.
        kind: ListKind,
    },
}

/// A JSON scalar, by what Kubernetes accepts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// A string of base64.
    Bytes,
    /// A string holding an RFC 3339 time, or null.
    Time,
    /// A string holding an RFC 3339 time with exactly six digits of microseconds, or null.
    MicroTime,
    /// A string or number holding a quantity.
    Quantity,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// Any number.
    Number,
    /// A boolean.
    Boolean,
    /// A string or an integer.
    IntOrString,
}

/// One named field of a [`Shape::Struct`].
#[derive(Clone, Debug)]
pub struct Field {
    /// Its JSON name.
    pub name: Box<str>,
    /// Its type.
    pub ty: TypeId,
    /// Whether an object without it is invalid.
    pub required: bool,
}

/// What identifies the items of a list: `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Nothing: the list is one value.
    Atomic,
    /// Their value.
    Set,
    /// The values of these fields.
    Map(Box<[Box<str>]>),
}

/// `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists: merge items instead of replacing the list.
    pub merge: bool,
    /// Structs: `$retainKeys` is honoured.
    pub retain_keys: bool,
    /// The field that identifies the items of a merged list; absent for lists of scalars.
    pub merge_key: Option<Box<str>>,
}

impl Arena {
    /// Adds a node.
    pub fn add(&mut self, node: Node) -> TypeId {
        let id = TypeId(u32::try_from(self.nodes.len()).expect("an arena holds fewer than 2^32 types"));
        self.nodes.push(node);
        id
    }

    /// Replaces a node. Recursive types refer to a node before its content is known.
    pub fn set(&mut self, id: TypeId, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// Names a node.
    pub fn name(&mut self, name: &str, id: TypeId) {
        self.named.insert(name.into(), id);
    }

    /// The node of this name, as in `io.k8s.api.apps.v1.Deployment`.
    pub fn named(&self, name: &str) -> Option<TypeId> {
        self.named.get(name).copied()
    }

    /// Every name with its node, in no order.
    pub fn names(&self) -> impl Iterator<Item = (&str, TypeId)> {
        self.named.iter().map(|(name, id)| (&**name, *id))
    }

    /// The node of this type.
    pub fn node(&self, id: TypeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The type of field `name` of a struct, or of any value of a map.
    pub fn field(&self, id: TypeId, name: &str) -> Option<TypeId> {
        match &self.node(id).shape {
            Shape::Struct { fields, .. } => {
                fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| fields[at].ty)
            }
            Shape::Map { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// Copies a type and all it refers to from another arena; names of copied types come along unless
    /// they are taken here. Recursive types stay recursive.
    pub fn import(&mut self, from: &Arena, id: TypeId) -> TypeId {
        let mut copied: HashMap<TypeId, TypeId> = HashMap::new();
        let mut pending = vec![id];
        while let Some(old) = pending.pop() {
            if copied.contains_key(&old) {
                continue;
            }
            copied.insert(old, self.add(Node::default()));
            from.node(old).shape.each_type(|inner| pending.push(inner));
        }
        for (old, new) in &copied {
            let mut node = from.node(*old).clone();
            node.shape.renumber(|inner| copied[&inner]);
            self.set(*new, node);
        }
        for (name, old) in from.names() {
            if let Some(new) = copied.get(&old) {
                self.named.entry(name.into()).or_insert(*new);
            }
        }
        copied[&id]
    }

    /// Whether some type has CEL rules (`x-kubernetes-validations`).
    pub fn has_rules(&self) -> bool {
        self.nodes.iter().any(|node| node.checks.as_ref().is_some_and(|checks| !checks.rules.is_empty()))
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Shape {
    /// Calls `visit` with every type that this shape refers to.
    pub fn each_type(&self, mut visit: impl FnMut(TypeId)) {
        match self {
            Self::Struct { fields, .. } => fields.iter().for_each(|field| visit(field.ty)),
            Self::Map { value, .. } => visit(*value),
            Self::List { item, .. } => visit(*item),
            Self::Any | Self::Opaque | Self::Scalar(_) => {}
        }
    }

    fn renumber(&mut self, number: impl Fn(TypeId) -> TypeId) {
        match self {
            Self::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.ty = number(field.ty)),
            Self::Map { value, .. } => *value = number(*value),
            Self::List { item, .. } => *item = number(*item),
            Self::Any | Self::Opaque | Self::Scalar(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct whose field `next` is itself and whose field `name` is a string.
    fn chain(arena: &mut Arena) -> TypeId {
        let name = arena.add(Node { shape: Shape::Scalar(Scalar::String), ..Node::default() });
        let chain = arena.add(Node::default());
        let field = |name: &str, ty| Field { name: name.into(), ty, required: false };
        let fields = Box::new([field("name", name), field("next", chain)]);
        arena.set(chain, Node { shape: Shape::Struct { fields, open: false, atomic: false }, ..Node::default() });
        chain
    }

    #[test]
    fn import_keeps_recursion_and_names() {
        let mut from = Arena::default();
        from.add(Node::default());
        let id = chain(&mut from);
        from.name("Chain", id);
        let mut to = Arena::default();
        to.add(Node::default());
        let new = to.import(&from, id);
        assert_eq!(to.named("Chain"), Some(new));
        assert_eq!(to.field(new, "next"), Some(new));
        let name = to.field(new, "name").expect("declared");
        assert!(matches!(to.node(name).shape, Shape::Scalar(Scalar::String)));
        assert_eq!(to.len(), 3);
    }

    #[test]
    fn import_leaves_a_taken_name_alone() {
        let mut from = Arena::default();
        let id = chain(&mut from);
        from.name("Chain", id);
        let mut to = Arena::default();
        let own = to.add(Node::default());
        to.name("Chain", own);
        to.import(&from, id);
        assert_eq!(to.named("Chain"), Some(own));
    }
}
