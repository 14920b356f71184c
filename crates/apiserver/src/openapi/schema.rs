//! Types as OpenAPI schemas. In: nodes of an arena. Out: named components that refer to each other; what has no
//! name is written where it is used. Everything a client may act on is there: shapes, defaults, value checks, merge
//! rules, group-version-kinds.

use std::collections::{BTreeMap, HashMap};

use konverge_core::GroupVersionKind;
use konverge_schema::{Arena, Checks, Clause, Field, ListKind, Node, Patch, Scalar, Shape, TypeId};
use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::verb::Verb;

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// Where Kubernetes explains what lists have in common.
const LISTS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Scalars that upstream publishes under a name, which `kubectl explain` shows.
const SCALARS: [(Scalar, &str); 4] = [
    (Scalar::Time, "io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
    (Scalar::MicroTime, "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
    (Scalar::Quantity, "io.k8s.apimachinery.pkg.api.resource.Quantity"),
    (Scalar::IntOrString, "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
];

/// The schemas of one arena in the making.
pub(super) struct Schemas<'a> {
    arena: &'a Arena,
    /// Whether a CRD wrote these types: its vocabulary differs a little.
    custom: bool,
    names: HashMap<TypeId, &'a str>,
    /// The fields of named structs to their name, to recognise a use that adds a default or a merge rule.
    uses: HashMap<Vec<(&'a str, TypeId)>, &'a str>,
    pending: Vec<&'a str>,
    /// Whether a schema was written before, elsewhere.
    known: &'a dyn Fn(&str) -> bool,
    out: &'a mut BTreeMap<String, Value>,
    /// Anonymous types that are being written, so that a type without a name cannot contain itself.
    open: Vec<TypeId>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(
        arena: &'a Arena,
        custom: bool,
        known: &'a dyn Fn(&str) -> bool,
        out: &'a mut BTreeMap<String, Value>,
    ) -> Self {
        // Sorted, so that the same arena always gives the same document.
        let named: BTreeMap<&str, TypeId> = arena.names().collect();
        let mut uses = HashMap::new();
        for (name, id) in &named {
            if let Some(key) = signature(arena.node(*id)) {
                uses.entry(key).or_insert(*name);
            }
        }
        let names = named.into_iter().map(|(name, id)| (id, name)).collect();
        Self { arena, custom, names, uses, pending: Vec::new(), known, out, open: Vec::new() }
    }

    fn is_written(&self, name: &str) -> bool {
        self.out.contains_key(name) || (self.known)(name)
    }

    /// A named type and all it refers to.
    pub(super) fn add(&mut self, name: &str) {
        if let Some(name) = self.arena.named(name).and_then(|id| self.names.get(&id)) {
            self.pending.push(name);
        }
    }

    /// A named type that is a kind.
    pub(super) fn add_kind(&mut self, name: &str, gvk: &GroupVersionKind) {
        if let Some(id) = self.arena.named(name).filter(|_| !self.is_written(name)) {
            let schema = self.kind(id, gvk);
            self.out.insert(name.to_owned(), schema);
        }
    }

    /// The types of a resource's objects and lists.
    pub(super) fn add_resource(&mut self, resource: &Resource) {
        let mut schema = self.kind(resource.schema.root, &resource.gvk());
        if let Some(descriptions) = &resource.descriptions {
            describe(&mut schema, descriptions);
        }
        self.out.insert(resource.schema.name.to_string(), schema);
        if !resource.verbs.contains(Verb::List) {
            return;
        }
        let list = list_name(resource);
        let gvk = GroupVersionKind { kind: resource.list_kind.to_string(), ..resource.gvk() };
        let schema = match self.arena.named(&list) {
            Some(id) => self.kind(id, &gvk),
            None => with_gvk(list_schema(resource), &gvk),
        };
        self.out.insert(list, schema);
    }

    /// Writes what is referred to and not yet written.
    pub(super) fn finish(mut self) {
        while let Some(name) = self.pending.pop() {
            if self.is_written(name) {
                continue;
            }
            // Recursive types refer to themselves while they are written.
            self.out.insert(name.to_owned(), Value::Null);
            if let Some(id) = self.arena.named(name) {
                let schema = Value::Object(self.content(self.arena.node(id)));
                self.out.insert(name.to_owned(), schema);
            }
        }
    }

    fn kind(&mut self, id: TypeId, gvk: &GroupVersionKind) -> Value {
        let schema = self.content(self.arena.node(id));
        with_gvk(Value::Object(schema), gvk)
    }

    /// A type where it is used: by name if it has one.
    fn usage(&mut self, id: TypeId) -> Value {
        if let Some(name) = self.names.get(&id).copied() {
            return self.reference(name);
        }
        let node = self.arena.node(id);
        if let Some(name) = self.used_name(node) {
            let mut schema = Map::new();
            schema.insert("allOf".into(), json!([self.reference(name)]));
            self.add_use(node, &mut schema);
            let named = self.arena.named(name).map(|id| is_atomic(self.arena.node(id)));
            if named == Some(true) && !is_atomic(node) {
                schema.insert("x-kubernetes-map-type".into(), "granular".into());
            }
            return Value::Object(schema);
        }
        if self.open.contains(&id) {
            return json!({"x-kubernetes-preserve-unknown-fields": true});
        }
        self.open.push(id);
        let schema = self.content(node);
        self.open.pop();
        Value::Object(schema)
    }

    fn used_name(&mut self, node: &'a Node) -> Option<&'a str> {
        let Shape::Scalar(scalar) = node.shape else {
            // A clone keeps the fields of the type it was made from.
            return signature(node).and_then(|key| self.uses.get(&key).copied()).filter(|_| node.checks.is_none());
        };
        let (_, name) = SCALARS.iter().find(|(special, _)| *special == scalar).filter(|_| !self.custom)?;
        if !self.is_written(name) {
            let mut schema = Map::new();
            self.scalar(scalar, &mut schema);
            self.out.insert((*name).to_owned(), Value::Object(schema));
        }
        Some(name)
    }

    fn reference(&mut self, name: &'a str) -> Value {
        if !self.is_written(name) {
            self.pending.push(name);
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// The whole of a node, without regard to its name.
    fn content(&mut self, node: &'a Node) -> Map<String, Value> {
        let mut schema = Map::new();
        match &node.shape {
            Shape::Any if self.custom => {
                if !node.checks.as_ref().is_some_and(|checks| checks.prunes_nested) {
                    schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
                }
            }
            Shape::Any => {}
            Shape::Opaque => {
                schema.insert("type".into(), "object".into());
            }
            Shape::Scalar(scalar) => self.scalar(*scalar, &mut schema),
            Shape::Struct { fields, open, .. } => {
                schema.insert("type".into(), "object".into());
                self.fields(fields, &mut schema);
                if *open {
                    schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
                }
            }
            Shape::Map { value, .. } => {
                schema.insert("type".into(), "object".into());
                schema.insert("additionalProperties".into(), self.usage(*value));
            }
            Shape::List { item, .. } => {
                schema.insert("type".into(), "array".into());
                schema.insert("items".into(), self.usage(*item));
            }
        }
        self.add_use(node, &mut schema);
        schema
    }

    fn fields(&mut self, fields: &'a [Field], schema: &mut Map<String, Value>) {
        if !fields.is_empty() {
            let one = |field: &'a Field| (field.name.to_string(), self.usage(field.ty));
            schema.insert("properties".into(), Value::Object(fields.iter().map(one).collect()));
        }
        let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| &*field.name).collect();
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
    }

    fn scalar(&self, scalar: Scalar, schema: &mut Map<String, Value>) {
        let words: Value = match scalar {
            Scalar::String => json!({"type": "string"}),
            Scalar::Bytes => json!({"type": "string", "format": "byte"}),
            Scalar::Time | Scalar::MicroTime => json!({"type": "string", "format": "date-time"}),
            Scalar::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
            Scalar::Int64 if self.custom => json!({"type": "integer"}),
            Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
            Scalar::Number if self.custom => json!({"type": "number"}),
            Scalar::Number => json!({"type": "number", "format": "double"}),
            Scalar::Boolean => json!({"type": "boolean"}),
            Scalar::IntOrString if self.custom => json!({"x-kubernetes-int-or-string": true}),
            Scalar::IntOrString => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
        };
        if let Value::Object(words) = words {
            schema.extend(words);
        }
    }

    /// What one use of a type may say about it.
    fn add_use(&self, node: &Node, schema: &mut Map<String, Value>) {
        if is_atomic(node) {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if let Shape::List { kind, .. } = &node.shape {
            add_list_kind(kind, schema);
        }
        if node.nullable {
            schema.insert("nullable".into(), true.into());
        }
        if node.embedded {
            schema.insert("x-kubernetes-embedded-resource".into(), true.into());
        }
        if let Some(default) = &node.default {
            schema.insert("default".into(), (**default).clone());
        }
        if let Some(patch) = &node.patch {
            add_patch(patch, schema);
        }
        if let Some(checks) = &node.checks {
            if checks.any_type {
                schema.remove("type");
            }
            add_checks(checks, schema);
        }
    }
}

/// The name of the type of a resource's lists.
pub(super) fn list_name(resource: &Resource) -> String {
    let name = &*resource.schema.name;
    match name.rsplit_once('.') {
        Some((package, _)) => format!("{package}.{}", resource.list_kind),
        None => resource.list_kind.to_string(),
    }
}

fn signature(node: &Node) -> Option<Vec<(&str, TypeId)>> {
    match &node.shape {
        // A struct without fields could be any.
        Shape::Struct { fields, .. } if !fields.is_empty() => {
            Some(fields.iter().map(|field| (&*field.name, field.ty)).collect())
        }
        _ => None,
    }
}

fn is_atomic(node: &Node) -> bool {
    matches!(node.shape, Shape::Struct { atomic: true, .. } | Shape::Map { atomic: true, .. })
}

/// Puts descriptions where a schema has the fields they are about.
fn describe(schema: &mut Value, descriptions: &Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    // What is said about a shared type is said where the type is.
    if fields.contains_key("$ref") {
        return;
    }
    if let Some(text) = descriptions.get("description") {
        fields.insert("description".into(), text.clone());
    }
    for below in ["items", "additionalProperties"] {
        if let (Some(schema), Some(descriptions)) = (fields.get_mut(below), descriptions.get(below)) {
            describe(schema, descriptions);
        }
    }
    if let (Some(Value::Object(schemas)), Some(Value::Object(below))) =
        (fields.get_mut("properties"), descriptions.get("properties"))
    {
        for (name, descriptions) in below {
            if let Some(schema) = schemas.get_mut(name) {
                describe(schema, descriptions);
            }
        }
    }
}

fn with_gvk(mut schema: Value, gvk: &GroupVersionKind) -> Value {
    let gvk = json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    schema["x-kubernetes-group-version-kind"] = json!([gvk]);
    schema
}

/// The list of a custom resource; only kinds that are built in have a type for it.
fn list_schema(resource: &Resource) -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(LIST_META),
            "items": {
                "description": format!("List of {}. More info: {LISTS}", resource.plural),
                "type": "array",
                "items": reference(&resource.schema.name),
            },
        },
    })
}

fn add_list_kind(kind: &ListKind, schema: &mut Map<String, Value>) {
    let name = match kind {
        ListKind::Atomic => "atomic",
        ListKind::Set => "set",
        ListKind::Map(keys) => {
            schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
            "map"
        }
    };
    schema.insert("x-kubernetes-list-type".into(), name.into());
}

fn add_patch(patch: &Patch, schema: &mut Map<String, Value>) {
    let words = [("merge", patch.merge), ("retainKeys", patch.retain_keys)];
    let strategy: Vec<&str> = words.iter().filter(|(_, on)| *on).map(|(word, _)| *word).collect();
    if !strategy.is_empty() {
        schema.insert("x-kubernetes-patch-strategy".into(), strategy.join(",").into());
    }
    if let Some(key) = &patch.merge_key {
        schema.insert("x-kubernetes-patch-merge-key".into(), (**key).into());
    }
}

fn add_checks(checks: &Checks, schema: &mut Map<String, Value>) {
    let mut add = |keyword: &str, value: Value| {
        schema.insert(keyword.to_owned(), value);
    };
    if let Some(format) = &checks.format {
        add("format", format.as_str().into());
    }
    if !checks.enumeration.is_empty() {
        add("enum", checks.enumeration.to_vec().into());
    }
    for (keyword, exclusive, bound) in
        [("minimum", "exclusiveMinimum", &checks.minimum), ("maximum", "exclusiveMaximum", &checks.maximum)]
    {
        if let Some(bound) = bound {
            add(keyword, number(bound.value));
            if bound.exclusive {
                add(exclusive, true.into());
            }
        }
    }
    if let Some(multiple) = checks.multiple_of {
        add("multipleOf", number(multiple));
    }
    for (keyword, count) in [
        ("minLength", checks.min_length),
        ("maxLength", checks.max_length),
        ("minItems", checks.min_items),
        ("maxItems", checks.max_items),
        ("minProperties", checks.min_properties),
        ("maxProperties", checks.max_properties),
    ] {
        if let Some(count) = count {
            add(keyword, count.into());
        }
    }
    if let Some(pattern) = &checks.pattern {
        add("pattern", pattern.as_str().into());
    }
    if checks.unique_items {
        add("uniqueItems", true.into());
    }
    if !checks.required.is_empty() {
        add("required", json!(checks.required));
    }
    for (keyword, clauses) in [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)] {
        if !clauses.is_empty() {
            add(keyword, clauses.iter().map(clause).collect());
        }
    }
    if let Some(not) = &checks.not {
        add("not", clause(not));
    }
    if !checks.rules.is_empty() {
        add("x-kubernetes-validations", checks.rules.to_vec().into());
    }
}

fn clause(given: &Clause) -> Value {
    let mut schema = Map::new();
    match &*given.types {
        [] => {}
        [one] => {
            schema.insert("type".into(), (**one).into());
        }
        _ => {
            schema.insert("x-kubernetes-int-or-string".into(), true.into());
        }
    }
    add_checks(&given.checks, &mut schema);
    if let Some(items) = &given.items {
        schema.insert("items".into(), clause(items));
    }
    if !given.properties.is_empty() {
        let one = |(name, property): &(Box<str>, Clause)| (name.to_string(), clause(property));
        schema.insert("properties".into(), Value::Object(given.properties.iter().map(one).collect()));
    }
    Value::Object(schema)
}

/// Whole numbers without a fraction, as people wrote them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { (value as i64).into() } else { value.into() }
}
