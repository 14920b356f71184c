//! The schema of a CRD as rules see it. In: `openAPIV3Schema`. Out: the type of every value, the limits that bound its size,
//! and the rules. The schema was found to be structural before.

use konverge_schema::{Arena, Field, Scalar, Shape, TypeId};
use serde_json::Value as Json;

use crate::escape::{escape, is_reserved_word};

/// What is known of the value at one place in a custom resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub kind: Kind,
    pub nullable: bool,
    /// Sorted by name.
    pub properties: Box<[Property]>,
    pub additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    pub list_type: ListType,
    pub map_keys: Box<[Box<str>]>,
    pub max_length: Option<i64>,
    pub max_items: Option<i64>,
    pub max_properties: Option<i64>,
    /// The length of the longest string of an enumeration.
    pub longest_enum: Option<usize>,
    pub has_default: bool,
    pub rules: Box<[Rule]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No type is declared.
    #[default]
    Unknown,
    IntOrString,
    Object,
    Array,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    Boolean,
    Number,
    Integer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub name: Box<str>,
    /// The identifier that rules name it by, if they can.
    pub escaped: Option<Box<str>>,
    pub required: bool,
    /// Whether the schema does not declare it: every whole object has it.
    pub implied: bool,
    pub schema: Schema,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

impl Kind {
    /// `type` as the schema has it.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Unknown | Self::IntOrString => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String | Self::Bytes | Self::Duration | Self::Date | Self::DateTime => "string",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Integer => "integer",
        }
    }
}

impl Schema {
    /// The schema of whole objects.
    pub(crate) fn root(json: &Json) -> Self {
        Self::read(json, true)
    }

    /// The schema of a part of objects.
    pub(crate) fn part(json: &Json) -> Self {
        Self::read(json, false)
    }

    /// The schema of a type: what the type check of admission policies knows of a kind.
    pub(crate) fn of_type(arena: &Arena, ty: TypeId) -> Self {
        Self::typed(arena, ty, &mut Vec::new())
    }

    /// `around`: the types that this one is inside of. A type inside itself is an object of which nothing is known.
    fn typed(arena: &Arena, ty: TypeId, around: &mut Vec<TypeId>) -> Self {
        let object = Self { kind: Kind::Object, ..Self::default() };
        if around.contains(&ty) {
            return object;
        }
        around.push(ty);
        let mut inner = |ty: TypeId| Some(Box::new(Self::typed(arena, ty, around)));
        let schema = match &arena.node(ty).shape {
            Shape::Any => Self::default(),
            Shape::Opaque => object,
            Shape::Scalar(scalar) => {
                let kind = match scalar {
                    Scalar::String => Kind::String,
                    Scalar::Bytes => Kind::Bytes,
                    Scalar::Time | Scalar::MicroTime => Kind::DateTime,
                    // A text or a number, so that it has no type in OpenAPI.
                    Scalar::Quantity => Kind::Unknown,
                    Scalar::Int32 | Scalar::Int64 => Kind::Integer,
                    Scalar::Number => Kind::Number,
                    Scalar::Boolean => Kind::Boolean,
                    Scalar::IntOrString => Kind::IntOrString,
                };
                Self { kind, ..Self::default() }
            }
            Shape::Map { value, .. } => Self { additional: inner(*value), ..object },
            Shape::List { item, .. } => Self { kind: Kind::Array, items: inner(*item), ..Self::default() },
            Shape::Struct { fields, .. } => {
                let property =
                    |field: &Field| Property::new(&field.name, Self::typed(arena, field.ty, around), field.required);
                Self { properties: fields.iter().map(property).collect(), ..object }
            }
        };
        around.pop();
        schema
    }

    fn read(json: &Json, root: bool) -> Self {
        let text = |keyword: &str| json[keyword].as_str().unwrap_or_default();
        let flag = |keyword: &str| json[keyword].as_bool().unwrap_or_default();
        let inner = |keyword: &str| {
            json.get(keyword).filter(|inner| inner.is_object()).map(|inner| Box::new(Self::read(inner, false)))
        };
        let embedded = flag("x-kubernetes-embedded-resource");
        let required: Vec<&str> = json["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let declared = json["properties"].as_object().into_iter().flatten();
        let mut properties: Vec<Property> = declared
            .filter(|(_, property)| property.is_object())
            .map(|(name, property)| Property::new(name, Self::read(property, false), required.contains(&name.as_str())))
            .collect();
        if root || embedded {
            add_meta(&mut properties, &required);
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        let enumeration = json["enum"].as_array().filter(|values| !values.is_empty());
        Self {
            kind: kind(json),
            nullable: flag("nullable"),
            properties: properties.into(),
            additional: inner("additionalProperties"),
            items: inner("items"),
            list_type: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            map_keys: json["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
                .map(Into::into)
                .collect(),
            max_length: json["maxLength"].as_i64(),
            max_items: json["maxItems"].as_i64(),
            max_properties: json["maxProperties"].as_i64(),
            longest_enum: enumeration
                .map(|values| values.iter().filter_map(Json::as_str).map(str::len).max().unwrap_or_default()),
            has_default: json.get("default").is_some_and(|default| !default.is_null()),
            rules: json["x-kubernetes-validations"].as_array().into_iter().flatten().map(Rule::read).collect(),
        }
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Property> {
        let at = self.properties.binary_search_by(|property| (*property.name).cmp(name)).ok()?;
        Some(&self.properties[at])
    }

    /// The property that rules name like this.
    pub(crate) fn property_by_identifier(&self, identifier: &str) -> Option<&Property> {
        // Most names need no escape.
        let plain = self.property(identifier).filter(|property| property.escaped.as_deref() == Some(identifier));
        plain
            .or_else(|| self.properties.iter().find(|property| property.escaped.as_deref() == Some(identifier)))
            .or_else(|| self.property(identifier).filter(|_| is_reserved_word(identifier)))
    }

    /// The schema of the value under a key: of a property, or of any entry.
    pub(crate) fn entry(&self, key: &str) -> Option<&Schema> {
        if self.properties.is_empty() {
            return self.additional.as_deref();
        }
        self.property(key).map(|property| &property.schema)
    }

    /// Whether this schema or one inside it has rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.items.as_ref().is_some_and(|items| items.has_rules())
            || self.additional.as_ref().is_some_and(|additional| additional.has_rules())
            || self.properties.iter().any(|property| property.schema.has_rules())
    }
}

impl Property {
    fn new(name: &str, schema: Schema, required: bool) -> Self {
        Self { name: name.into(), escaped: escape(name).map(Into::into), required, implied: false, schema }
    }
}

impl Rule {
    pub(crate) fn read(json: &Json) -> Self {
        let text = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: json["reason"].as_str().map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old_self: json["optionalOldSelf"].as_bool(),
        }
    }
}

fn kind(json: &Json) -> Kind {
    if json["x-kubernetes-int-or-string"] == true {
        return Kind::IntOrString;
    }
    match (json["type"].as_str().unwrap_or_default(), json["format"].as_str().unwrap_or_default()) {
        ("object", _) => Kind::Object,
        ("array", _) => Kind::Array,
        ("string", "byte") => Kind::Bytes,
        ("string", "duration") => Kind::Duration,
        ("string", "date") => Kind::Date,
        ("string", "date-time") => Kind::DateTime,
        ("string", _) => Kind::String,
        ("boolean", _) => Kind::Boolean,
        ("number", _) => Kind::Number,
        ("integer", _) => Kind::Integer,
        _ => Kind::Unknown,
    }
}

/// What rules can name in every whole object: apiVersion, kind, and of metadata only the name and its prefix. A schema that
/// declares all of it keeps its declarations; otherwise only the rules of it count.
fn add_meta(properties: &mut Vec<Property>, required: &[&str]) {
    let declared = |properties: &[Property], name: &str| properties.iter().position(|one| &*one.name == name);
    let is = |properties: &[Property], name: &str, kind: Kind| {
        declared(properties, name).is_some_and(|at| properties[at].schema.kind.type_name() == kind.type_name())
    };
    let metadata = declared(properties, "metadata");
    let complete = is(properties, "kind", Kind::String)
        && is(properties, "apiVersion", Kind::String)
        && is(properties, "metadata", Kind::Object)
        && metadata.is_some_and(|at| {
            let inner = &properties[at].schema.properties;
            is(inner, "name", Kind::String) && is(inner, "generateName", Kind::String)
        });
    if complete {
        return;
    }
    let text = |rules: Box<[Rule]>| Schema { kind: Kind::String, rules, ..Schema::default() };
    let take =
        |properties: &mut Vec<Property>, name: &str| declared(properties, name).map(|at| properties.remove(at).schema);
    let property = |name: &str, found: bool, schema: Schema| Property {
        implied: !found,
        ..Property::new(name, schema, required.contains(&name))
    };
    let metadata = take(properties, "metadata");
    let found = metadata.is_some();
    let metadata = metadata.unwrap_or_default();
    let mut inner: Vec<Property> = metadata.properties.into();
    let names = ["generateName", "name"].map(|name| {
        let declared = take(&mut inner, name);
        Property { required: false, ..property(name, declared.is_some(), text(declared.unwrap_or_default().rules)) }
    });
    let object = Schema { kind: Kind::Object, properties: names.into(), rules: metadata.rules, ..Schema::default() };
    properties.push(property("metadata", found, object));
    for name in ["apiVersion", "kind"] {
        let declared = take(properties, name);
        properties.push(property(name, declared.is_some(), text(declared.unwrap_or_default().rules)));
    }
}
