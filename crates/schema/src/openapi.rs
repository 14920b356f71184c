//! From the `openAPIV3Schema` of a CRD to types in an arena. In: the schema as JSON, in an arena that knows
//! ObjectMeta. Out: the type of whole objects, with apiVersion, kind and metadata. It never validates the schema:
//! `structural` does, and a schema that is not structural is compiled as far as possible.

use serde_json::Value;

use crate::arena::{Arena, Field, ListKind, Node, OBJECT_META, Scalar, Shape, TypeId};
use crate::checks::{Bound, Checks, Clause};
use crate::format::Format;
use crate::json_schema_props::{Additional, Props};
use crate::pattern::Pattern;

/// A schema that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?} is not a regular expression: {reason}")]
pub struct CompileError {
    /// The pattern.
    pub pattern: String,
    /// What Go's parser says about it.
    pub reason: String,
}

/// Compiles the schema of one version of a CRD. Without a schema, unknown fields are kept.
///
/// `metadata` has the type named [`OBJECT_META`] in `arena`, so import it first; in an arena without it, unknown
/// fields of the metadata are kept.
///
/// ```
/// use konverge_schema::{Arena, compile};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
/// let root = compile(&mut arena, Some(&schema)).unwrap();
/// assert!(arena.field(root, "spec").is_some());
/// assert!(arena.field(root, "metadata").is_some());
/// ```
pub fn compile(arena: &mut Arena, schema: Option<&Value>) -> Result<TypeId, CompileError> {
    let mut compiler = Compiler { arena };
    let root = match schema.and_then(Props::new) {
        Some(props) => compiler.node(props, Position::Root)?,
        None => compiler.node_without_schema(),
    };
    Ok(root)
}

/// The position of a schema in the definition.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Root,
    Inside,
    /// The items of a list that preserves unknown fields, and so preserve them as well.
    Preserving,
}

struct Compiler<'a> {
    arena: &'a mut Arena,
}

impl Compiler<'_> {
    fn node_without_schema(&mut self) -> TypeId {
        let fields = self.with_meta(Vec::new());
        self.arena.add(Node { shape: Shape::Struct { fields, open: true, atomic: false }, ..Node::default() })
    }

    fn node(&mut self, props: Props<'_>, position: Position) -> Result<TypeId, CompileError> {
        let open = props.preserves() || position == Position::Preserving;
        let mut checks = self.checks(props)?;
        let whole = position == Position::Root || props.embedded();
        let shape = self.shape(props, open, whole, &mut checks)?;
        let node = Node {
            shape,
            default: props.get("default").map(|value| Box::new(value.clone())),
            nullable: props.nullable(),
            patch: None,
            embedded: props.embedded(),
            checks: checks.map(Box::new),
        };
        Ok(self.arena.add(node))
    }

    fn shape(
        &mut self,
        props: Props<'_>,
        open: bool,
        whole: bool,
        checks: &mut Option<Checks>,
    ) -> Result<Shape, CompileError> {
        if props.int_or_string() {
            return Ok(Shape::Scalar(Scalar::IntOrString));
        }
        let atomic = props.map_type() == Some("atomic");
        let kind = match props.type_name() {
            // Without `type`, other keywords imply the type.
            "" => {
                let guess = if props.get("properties").is_some() || whole {
                    "object"
                } else if props.item().is_some() {
                    "array"
                } else if props.additional().is_some() {
                    "object"
                } else {
                    return Ok(Shape::Any);
                };
                checks.get_or_insert_default().any_type = true;
                guess
            }
            known => known,
        };
        Ok(match kind {
            "object" => {
                let fields = self.fields(props, whole)?;
                match props.additional() {
                    Some(additional) if fields.is_empty() => {
                        let value = match additional {
                            Additional::Schema(value) => self.node(value, Position::Inside)?,
                            Additional::Bool(_) => {
                                let prunes_nested = Checks { prunes_nested: true, ..Checks::default() };
                                self.arena.add(Node { checks: Some(Box::new(prunes_nested)), ..Node::default() })
                            }
                        };
                        Shape::Map { value, atomic }
                    }
                    Some(Additional::Bool(true)) => {
                        checks.get_or_insert_default().prunes_nested = !open;
                        Shape::Struct { fields, open: true, atomic }
                    }
                    _ => Shape::Struct { fields, open, atomic },
                }
            }
            "array" => {
                let position = if open { Position::Preserving } else { Position::Inside };
                let item = match props.item() {
                    Some(item) => self.node(item, position)?,
                    None => self.arena.add(Node::default()),
                };
                let kind = match props.list_type() {
                    Some("set") => ListKind::Set,
                    Some("map") => ListKind::Map(props.map_keys().into_iter().map(Into::into).collect()),
                    _ => ListKind::Atomic,
                };
                Shape::List { item, kind }
            }
            "string" => Shape::Scalar(Scalar::String),
            "integer" if props.text("format") == "int32" => Shape::Scalar(Scalar::Int32),
            "integer" => Shape::Scalar(Scalar::Int64),
            "number" => Shape::Scalar(Scalar::Number),
            "boolean" => Shape::Scalar(Scalar::Boolean),
            _ => Shape::Any,
        })
    }

    fn fields(&mut self, props: Props<'_>, whole: bool) -> Result<Box<[Field]>, CompileError> {
        let required: Vec<&str> = props.texts("required").collect();
        let mut fields = Vec::new();
        for (name, property) in props.named("properties") {
            let ty = match (name, self.arena.named(OBJECT_META)) {
                ("metadata", Some(meta)) if whole => self.metadata(property, meta)?,
                _ => self.node(property, Position::Inside)?,
            };
            fields.push(Field { name: name.into(), ty, required: required.contains(&name) });
        }
        Ok(if whole { self.with_meta(fields) } else { fields.into() })
    }

    /// Adds apiVersion, kind and metadata where the schema does not declare them.
    fn with_meta(&mut self, mut fields: Vec<Field>) -> Box<[Field]> {
        for name in ["apiVersion", "kind", "metadata"] {
            if fields.iter().any(|field| &*field.name == name) {
                continue;
            }
            let ty = match (name, self.arena.named(OBJECT_META)) {
                ("metadata", Some(meta)) => meta,
                ("metadata", None) => self.arena.add(Node::default()),
                _ => self.arena.add(Node { shape: Shape::Scalar(Scalar::String), ..Node::default() }),
            };
            fields.push(Field { name: name.into(), ty, required: false });
        }
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        fields.into()
    }

    /// ObjectMeta, with the schema's own restrictions of some of its fields.
    fn metadata(&mut self, props: Props<'_>, meta: TypeId) -> Result<TypeId, CompileError> {
        let checks = self.checks(props)?;
        let declared = props.named("properties");
        let mut node = self.arena.node(meta).clone();
        if let Shape::Struct { fields, .. } = &mut node.shape {
            for (name, property) in &declared {
                if let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    fields[at].ty = self.node(*property, Position::Inside)?;
                }
            }
        }
        if checks.is_none() && declared.is_empty() {
            return Ok(meta);
        }
        node.checks = checks.map(Box::new);
        Ok(self.arena.add(node))
    }

    /// The validation keywords of a schema, if it has any.
    fn checks(&mut self, props: Props<'_>) -> Result<Option<Checks>, CompileError> {
        let types = match (props.int_or_string(), props.type_name()) {
            (true, _) => vec!["integer", "string"],
            (false, "") => vec![],
            (false, name) => vec![name],
        };
        let count = |keyword| props.count(keyword).map(|count| u64::try_from(count).unwrap_or(0));
        let bound =
            |keyword, exclusive| props.number(keyword).map(|value| Bound { value, exclusive: props.flag(exclusive) });
        let not = match props.schema("not") {
            Some(not) => Some(Box::new(self.clause(not)?)),
            None => None,
        };
        let checks = Checks {
            any_type: false,
            prunes_nested: false,
            format: Format::new(props.text("format"), &types),
            enumeration: props.values("enum").into(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: props.number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: match props.text("pattern") {
                "" => None,
                text => Some(Pattern::new(text).map_err(|reason| CompileError { pattern: text.to_owned(), reason })?),
            },
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: props.flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: props.texts("required").map(Into::into).collect(),
            all_of: self.clauses(props, "allOf")?,
            any_of: self.clauses(props, "anyOf")?,
            one_of: self.clauses(props, "oneOf")?,
            not,
            rules: props.values("x-kubernetes-validations").into(),
        };
        Ok((!checks.is_empty()).then_some(checks))
    }

    fn clauses(&mut self, props: Props<'_>, keyword: &str) -> Result<Box<[Clause]>, CompileError> {
        props.schemas(keyword).map(|member| self.clause(member)).collect()
    }

    fn clause(&mut self, props: Props<'_>) -> Result<Clause, CompileError> {
        let mut properties = Vec::new();
        for (name, property) in props.named("properties") {
            properties.push((name.into(), self.clause(property)?));
        }
        Ok(Clause {
            types: match (props.int_or_string(), props.type_name()) {
                (true, _) => ["integer".into(), "string".into()].into(),
                (false, "") => [].into(),
                (false, name) => [name.into()].into(),
            },
            checks: self.checks(props)?.unwrap_or_default(),
            items: match props.item() {
                Some(item) => Some(Box::new(self.clause(item)?)),
                None => None,
            },
            properties: properties.into(),
        })
    }
}
