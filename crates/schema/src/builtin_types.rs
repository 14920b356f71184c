//! The types of built-in kinds. In: the text table that `cargo xtask codegen` generates from the published OpenAPI
//! documents. Out: one [`Arena`], parsed once per process. It never reads a file: the table is compiled into the program.
//!
//! The head of `data/kubernetes.types` states the format. A struct is a line with its full name, a field an
//! indented line with its name, shape and words. A use of a type that adds to it (another map type, a default, a
//! patch rule) gets a node of its own; every other use shares the node of the type, and equal fields share theirs.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use serde_json::Value;

use crate::arena::{Arena, Field, ListKind, Node, Patch, Scalar, Shape, TypeId};
use crate::checks::Checks;

/// The types of every built-in kind of Kubernetes, and those of request bodies: `DeleteOptions`, `Status`,
/// `Scale`, `Eviction`, `TokenRequest`.
///
/// ```
/// let types = konverge_schema::kubernetes();
/// let deployment = types.named("io.k8s.api.apps.v1.Deployment").unwrap();
/// assert!(types.field(deployment, "spec").is_some());
/// ```
pub fn kubernetes() -> &'static Arc<Arena> {
    static TYPES: OnceLock<Arc<Arena>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let types = parse(include_str!("../data/kubernetes.types"));
        Arc::new(types.expect("the committed table is what the generator wrote, and a test reads it"))
    })
}

/// An error in the table, and its line.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
struct TableError {
    line: usize,
    problem: String,
}

fn parse(text: &str) -> Result<Arena, TableError> {
    let mut table = TableParser::default();
    for (line, text) in lines(text) {
        if !text.starts_with(' ') {
            table.declare(text).map_err(|problem| TableError { line, problem })?;
        }
    }
    // Fields refer to types further down, so they come after every type has its number.
    let mut open = None;
    for (line, text) in lines(text) {
        let outcome = match text.strip_prefix("  ") {
            Some(field) => match &mut open {
                Some(block) => table.field(block, field),
                None => Err("a field outside of a type".into()),
            },
            None => {
                table.close(open.take());
                open = table.open(text);
                Ok(())
            }
        };
        outcome.map_err(|problem| TableError { line, problem })?;
    }
    table.close(open);
    Ok(table.finish())
}

/// The lines that are neither empty nor comments, with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Every start reads ten thousand short lines, for which the search of the standard library takes six times as long.
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).chain((!text.ends_with('\n')).then_some(text.len()));
    let numbered = ends.scan(0, |begin, end| Some(&text[std::mem::replace(begin, end + 1)..end])).enumerate();
    let numbered = numbered.map(|(at, line)| (at + 1, line));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The state of the parser.
#[derive(Default)]
struct TableParser<'a> {
    arena: Arena,
    /// Alias to package.
    aliases: HashMap<&'a str, &'a str>,
    /// Package and name to type.
    types: HashMap<(&'a str, &'a str), TypeId>,
    /// The text after a field's name, to its node. The package is empty for texts that mean the same in every package.
    known: HashMap<(&'a str, &'a str), TypeId>,
    /// Uses that add to a type; their nodes are made after all types are read.
    uses: Vec<Use>,
}

/// The type whose fields are being read.
struct Block<'a> {
    id: TypeId,
    package: &'a str,
    atomic: bool,
    fields: Vec<Field>,
}

/// A use of a named type that adds to it.
struct Use {
    id: TypeId,
    target: TypeId,
    words: Words,
}

/// The words after a shape, parsed.
#[derive(Default)]
struct Words {
    kind: Option<ListKind>,
    atomic: Option<bool>,
    patch: Option<Patch>,
    default: Option<Box<Value>>,
    values: Box<[Value]>,
}

impl<'a> TableParser<'a> {
    fn declare(&mut self, text: &'a str) -> Result<(), String> {
        if let Some(alias) = text.strip_prefix('@') {
            let (alias, package) = alias.split_once(' ').ok_or("an alias without a package")?;
            self.aliases.insert(alias, package);
            return Ok(());
        }
        let (name, _) = head(text);
        let key = name.rsplit_once('.').ok_or("a type without a package")?;
        let id = self.arena.add(Node::default());
        self.arena.name(name, id);
        if self.types.insert(key, id).is_some() {
            return Err(format!("{name} is declared twice"));
        }
        Ok(())
    }

    fn open(&self, text: &'a str) -> Option<Block<'a>> {
        let (name, atomic) = head(text);
        let key = name.rsplit_once('.')?;
        let id = *self.types.get(&key)?;
        Some(Block { id, package: key.0, atomic, fields: Vec::new() })
    }

    fn field(&mut self, block: &mut Block<'a>, text: &'a str) -> Result<(), String> {
        let (name, ty) = text.split_once(' ').ok_or("a field without a shape")?;
        let (name, required) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
        // The arena finds fields by binary search.
        if block.fields.last().is_some_and(|last| *last.name >= *name) {
            return Err(format!("{name} is out of order"));
        }
        let ty = self.ty(block.package, ty)?;
        block.fields.push(Field { name: name.into(), ty, required });
        Ok(())
    }

    fn close(&mut self, block: Option<Block<'a>>) {
        if let Some(Block { id, atomic, fields, .. }) = block {
            let shape = Shape::Struct { fields: fields.into(), open: false, atomic };
            self.arena.set(id, Node { shape, ..Node::default() });
        }
    }

    /// The node of a shape with its words.
    fn ty(&mut self, package: &'a str, text: &'a str) -> Result<TypeId, String> {
        let base = text.trim_start_matches(['[', '{']);
        let relative = base.starts_with(|first: char| first.is_ascii_uppercase());
        let key = (if relative { package } else { "" }, text);
        if let Some(id) = self.known.get(&key) {
            return Ok(*id);
        }
        let id = self.make(package, text)?;
        self.known.insert(key, id);
        Ok(id)
    }

    fn make(&mut self, package: &'a str, text: &'a str) -> Result<TypeId, String> {
        let (shape, words) = text.split_once("; ").unwrap_or((text, ""));
        let mut words = read_words(words)?;
        let shape = if let Some(item) = shape.strip_prefix('[') {
            let item = self.inner(package, item, &mut words)?;
            Shape::List { item, kind: words.kind.take().unwrap_or(ListKind::Atomic) }
        } else if let Some(value) = shape.strip_prefix('{') {
            let value = self.inner(package, value, &mut words)?;
            Shape::Map { value, atomic: words.atomic.take().unwrap_or(false) }
        } else if let Some(shape) = builtin(shape) {
            shape
        } else {
            return self.reuse(package, shape, words);
        };
        if words.kind.is_some() || words.atomic.is_some() {
            return Err(format!("{text:?} has a word that its shape cannot have"));
        }
        Ok(self.arena.add(Node {
            shape,
            default: words.default,
            patch: words.patch.map(Box::new),
            checks: checks(words.values),
            ..Node::default()
        }))
    }

    /// The type of the items of a list or of the values of a map. The values of an enumeration belong to this inner type.
    fn inner(&mut self, package: &'a str, shape: &'a str, words: &mut Words) -> Result<TypeId, String> {
        let values = std::mem::take(&mut words.values);
        if values.is_empty() {
            return self.ty(package, shape);
        }
        let shape = builtin(shape).ok_or_else(|| format!("{shape} cannot be enumerated"))?;
        Ok(self.arena.add(Node { shape, checks: checks(values), ..Node::default() }))
    }

    /// A named type, or a node of its own for a use that adds to it.
    fn reuse(&mut self, package: &'a str, name: &'a str, words: Words) -> Result<TypeId, String> {
        let key = match name.split_once('.') {
            Some((alias, name)) => (*self.aliases.get(alias).ok_or_else(|| format!("no alias {alias}"))?, name),
            None => (package, name),
        };
        let target = *self.types.get(&key).ok_or_else(|| format!("no type {name}"))?;
        if words.kind.is_some() || !words.values.is_empty() {
            return Err(format!("{name} has a word that its shape cannot have"));
        }
        if words.atomic.is_none() && words.patch.is_none() && words.default.is_none() {
            return Ok(target);
        }
        let id = self.arena.add(Node::default());
        self.uses.push(Use { id, target, words });
        Ok(id)
    }

    fn finish(mut self) -> Arena {
        for Use { id, target, words } in self.uses {
            let mut node = self.arena.node(target).clone();
            if let (Shape::Struct { atomic, .. }, Some(word)) = (&mut node.shape, words.atomic) {
                *atomic = word;
            }
            node.default = words.default.or(node.default);
            node.patch = words.patch.map(Box::new).or(node.patch);
            self.arena.set(id, node);
        }
        self.arena.go_structs = true;
        self.arena
    }
}

/// A type's name, and whether it is atomic.
fn head(text: &str) -> (&str, bool) {
    text.strip_suffix(" atomic").map_or((text, false), |name| (name, true))
}

fn builtin(word: &str) -> Option<Shape> {
    Some(match word {
        "any" => Shape::Any,
        "opaque" => Shape::Opaque,
        "string" => Shape::Scalar(Scalar::String),
        "bytes" => Shape::Scalar(Scalar::Bytes),
        "time" => Shape::Scalar(Scalar::Time),
        "micro-time" => Shape::Scalar(Scalar::MicroTime),
        "quantity" => Shape::Scalar(Scalar::Quantity),
        "int32" => Shape::Scalar(Scalar::Int32),
        "int64" => Shape::Scalar(Scalar::Int64),
        "number" => Shape::Scalar(Scalar::Number),
        "bool" => Shape::Scalar(Scalar::Boolean),
        "int-or-string" => Shape::Scalar(Scalar::IntOrString),
        _ => return None,
    })
}

fn checks(values: Box<[Value]>) -> Option<Box<Checks>> {
    (!values.is_empty()).then(|| Box::new(Checks { enumeration: values, ..Checks::default() }))
}

fn read_words(text: &str) -> Result<Words, String> {
    let mut words = Words::default();
    for word in text.split("; ").filter(|word| !word.is_empty()) {
        match word.split_once(' ').unwrap_or((word, "")) {
            ("set", "") => words.kind = Some(ListKind::Set),
            ("keys", keys) => words.kind = Some(ListKind::Map(keys.split(',').map(Box::from).collect())),
            ("atomic", "") => words.atomic = Some(true),
            ("granular", "") => words.atomic = Some(false),
            ("retainKeys", "") => words.patch.get_or_insert_default().retain_keys = true,
            ("merge", key) => {
                let patch = words.patch.get_or_insert_default();
                patch.merge = true;
                patch.merge_key = (!key.is_empty()).then(|| key.into());
            }
            ("default", json) => {
                let value = serde_json::from_str(json).map_err(|error| format!("default {json}: {error}"))?;
                words.default = Some(Box::new(value));
            }
            ("enum", values) => words.values = values.split('|').map(Value::from).collect(),
            _ => return Err(format!("unknown word {word:?}")),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// One line about the value at `path` (fields by name, `[]` for an item or value) below the named type.
    fn describe(types: &Arena, name: &str, path: &str) -> String {
        let mut id = types.named(name).unwrap_or_else(|| panic!("{name} is in the table"));
        let mut required = false;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            match &types.node(id).shape {
                Shape::Struct { fields, .. } => {
                    let field = fields.iter().find(|field| &*field.name == step);
                    let field = field.unwrap_or_else(|| panic!("{step} of {path} is a field of {name}"));
                    (id, required) = (field.ty, field.required);
                }
                Shape::List { item: inner, .. } | Shape::Map { value: inner, .. } if step == "[]" => id = *inner,
                other => panic!("{step} of {path} goes into {other:?}"),
            }
        }
        let node = types.node(id);
        let mut out = match &node.shape {
            Shape::Scalar(scalar) => format!("{scalar:?}"),
            Shape::Struct { fields, atomic, .. } => {
                format!("struct of {}{}", fields.len(), if *atomic { " atomic" } else { "" })
            }
            Shape::Map { atomic, .. } => format!("map{}", if *atomic { " atomic" } else { "" }),
            Shape::List { kind, .. } => format!("list {kind:?}"),
            other => format!("{other:?}"),
        };
        if required {
            out.push_str(" required");
        }
        if let Some(patch) = &node.patch {
            let _ = write!(out, " merge={} retain={} key={:?}", patch.merge, patch.retain_keys, patch.merge_key);
        }
        if let Some(default) = &node.default {
            let _ = write!(out, " default={default}");
        }
        if let Some(checks) = &node.checks {
            let _ = write!(out, " enum={}", Value::from(checks.enumeration.to_vec()));
        }
        out
    }

    #[test]
    fn published_types() {
        let core = |name: &str| format!("io.k8s.api.core.v1.{name}");
        let crd = |name: &str| format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}");
        let meta = |name: &str| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
        let cases = [
            ("io.k8s.api.apps.v1.Deployment".into(), "", "struct of 5"),
            ("io.k8s.api.apps.v1.Deployment".into(), "spec.replicas", "Int32"),
            ("io.k8s.api.apps.v1.Deployment".into(), "spec.selector", "struct of 2 atomic required"),
            ("io.k8s.api.apps.v1.Deployment".into(), "spec.strategy", "struct of 2 merge=false retain=true key=None"),
            ("io.k8s.api.apps.v1.Deployment".into(), "spec.strategy.rollingUpdate.maxSurge", "IntOrString"),
            (
                "io.k8s.api.apps.v1.Deployment".into(),
                "spec.template.spec.containers",
                "list Map([\"name\"]) required merge=true retain=false key=Some(\"name\")",
            ),
            (core("PodSpec"), "volumes", "list Map([\"name\"]) merge=true retain=true key=Some(\"name\")"),
            (
                core("Container"),
                "ports",
                "list Map([\"containerPort\", \"protocol\"]) merge=true retain=false key=Some(\"containerPort\")",
            ),
            (
                core("ServiceSpec"),
                "ports",
                "list Map([\"port\", \"protocol\"]) merge=true retain=false key=Some(\"port\")",
            ),
            (core("ServiceSpec"), "ports.[].port", "Int32 required"),
            (core("ServiceSpec"), "ports.[].protocol", "String default=\"TCP\" enum=[\"SCTP\",\"TCP\",\"UDP\"]"),
            (core("ServiceSpec"), "ports.[].targetPort", "IntOrString"),
            (core("ServiceSpec"), "selector", "map atomic"),
            (core("ServiceSpec"), "ipFamilies.[]", "String enum=[\"\",\"IPv4\",\"IPv6\"]"),
            (core("Secret"), "data", "map"),
            (core("Secret"), "data.[]", "Bytes"),
            (core("Secret"), "stringData.[]", "String"),
            (core("ConfigMap"), "data.[]", "String"),
            (core("ConfigMap"), "binaryData.[]", "Bytes"),
            (core("ConfigMap"), "immutable", "Boolean"),
            (core("Container"), "resources.limits.[]", "Quantity"),
            (core("PersistentVolumeSpec"), "claimRef", "struct of 7"),
            (core("ObjectReference"), "", "struct of 7 atomic"),
            (core("ReplicationControllerSpec"), "replicas", "Int32 default=1"),
            ("io.k8s.api.apps.v1.ControllerRevision".into(), "data", "Opaque"),
            ("io.k8s.api.authorization.v1.SubjectAccessReviewSpec".into(), "extra.[]", "list Atomic"),
            (meta("ObjectMeta"), "creationTimestamp", "Time"),
            (meta("ObjectMeta"), "finalizers", "list Set merge=true retain=false key=None"),
            (meta("ObjectMeta"), "ownerReferences", "list Map([\"uid\"]) merge=true retain=false key=Some(\"uid\")"),
            (meta("ObjectMeta"), "managedFields.[].fieldsV1", "Opaque"),
            (meta("DeleteOptions"), "preconditions.uid", "String"),
            (meta("Status"), "details.causes.[].field", "String"),
            (meta("WatchEvent"), "object", "Opaque required"),
            ("io.k8s.api.autoscaling.v1.Scale".into(), "spec.replicas", "Int32"),
            ("io.k8s.api.policy.v1.Eviction".into(), "deleteOptions.gracePeriodSeconds", "Int64"),
            ("io.k8s.api.authentication.v1.TokenRequest".into(), "spec.audiences", "list Atomic"),
            ("io.k8s.api.coordination.v1.Lease".into(), "spec.renewTime", "MicroTime"),
            (crd("CustomResourceDefinition"), "spec.names.plural", "String required"),
            (crd("JSONSchemaProps"), "properties.[].properties.[].not.maximum", "Number"),
            (crd("JSONSchemaProps"), "default", "Any"),
            (crd("JSONSchemaProps"), "items", "Any"),
            (crd("JSONSchemaProps"), "x-kubernetes-validations.[].rule", "String required"),
            (crd("CustomResourceSubresources"), "status", "struct of 0"),
        ];
        for (name, path, expect) in cases {
            assert_eq!(describe(kubernetes(), &name, path), expect, "{name} {path}");
        }
    }

    #[test]
    fn recursive_types_are_one_node() {
        let types = kubernetes();
        let props = types.named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
        assert_eq!(types.field(props, "not"), Some(props));
    }

    #[test]
    fn every_field_can_be_found_by_name() {
        let types = kubernetes();
        let mut fields = 0;
        for (name, id) in types.names() {
            let Shape::Struct { fields: declared, .. } = &types.node(id).shape else { panic!("{name} is a struct") };
            for field in declared {
                assert_eq!(types.field(id, &field.name), Some(field.ty), "{name}.{}", field.name);
                fields += 1;
            }
        }
        assert_eq!((types.names().count(), fields), (567, 2428));
    }

    #[test]
    fn list_keys_are_fields_of_their_items() {
        let types = kubernetes();
        for (name, id) in types.names() {
            let Shape::Struct { fields, .. } = &types.node(id).shape else { continue };
            for field in fields {
                let Shape::List { item, kind: ListKind::Map(keys) } = &types.node(field.ty).shape else { continue };
                for key in keys {
                    let found = types.field(*item, key).map(|ty| &types.node(ty).shape);
                    assert!(matches!(found, Some(Shape::Scalar(_))), "{name}.{} by {key}", field.name);
                }
            }
        }
    }

    #[test]
    fn uses_that_add_to_a_type_leave_it_alone() {
        let text = "@b b.v1\na.v1.A\n  one B\n  three b.C; granular\n  two B; atomic; default {\"x\":1}\n\
                    a.v1.B\n  x int32\n\nb.v1.C atomic\n  next C\n";
        let types = parse(text).unwrap();
        assert_eq!(describe(&types, "a.v1.A", "one"), "struct of 1");
        assert_eq!(describe(&types, "a.v1.A", "two"), "struct of 1 atomic default={\"x\":1}");
        assert_eq!(describe(&types, "a.v1.A", "three"), "struct of 1");
        assert_eq!(describe(&types, "a.v1.A", "three.next.next"), "struct of 1 atomic");
    }

    #[test]
    fn broken_tables_name_the_line() {
        let cases = [
            ("  x int32\n", 1, "a field outside of a type"),
            ("@a\n", 1, "an alias without a package"),
            ("A\n", 1, "a type without a package"),
            ("a.A\n\na.A\n", 3, "a.A is declared twice"),
            ("a.A\n  x\n", 2, "a field without a shape"),
            ("a.A\n  x int32\n  b int32\n", 3, "b is out of order"),
            ("a.A\n  x int32\n  x int32\n", 3, "x is out of order"),
            ("a.A\n  x float\n", 2, "no type float"),
            ("a.A\n  x B\n", 2, "no type B"),
            ("a.A\n  x b/v1.B\n", 2, "no alias b/v1"),
            ("a.A\n  x int32; big\n", 2, "unknown word \"big\""),
            ("a.A\n  x int32; set\n", 2, "\"int32; set\" has a word that its shape cannot have"),
            ("a.A\n  x A; set\n", 2, "A has a word that its shape cannot have"),
            ("a.A\n  x [A; enum a|b\n", 2, "A cannot be enumerated"),
            ("a.A\n  x string; default TCP\n", 2, "default TCP: expected value at line 1 column 1"),
        ];
        for (text, line, problem) in cases {
            assert_eq!(parse(text).unwrap_err(), TableError { line, problem: problem.into() }, "{text:?}");
        }
    }
}
