//! What rules know of a value before they see one. In: its schema. Out: its type, and how large a value can be in one
//! request, from which the estimator computes what a rule can cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::schema::{Kind, Schema};
use crate::types::Type;

/// The largest request, in bytes.
pub(crate) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// A declared value.
#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub ty: Type,
    pub inside: Inside,
    /// The most items, entries or characters it can have.
    pub max_elements: u64,
    /// The fewest bytes it takes as JSON.
    pub min_size: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Inside {
    Nothing,
    Items(Box<Decl>),
    /// The values of a map; its keys are strings.
    Values(Box<Decl>),
    /// By the identifier that rules use.
    Fields(BTreeMap<Box<str>, Decl>),
}

impl Decl {
    /// The declaration of a value; `None` if rules cannot see it. Types of objects are named by their path below `name`.
    pub(crate) fn new(schema: &Schema, name: &str) -> Option<Self> {
        let scalar = |ty: Type, min_size: u64, max_elements: u64| {
            Some(Self { ty, inside: Inside::Nothing, max_elements, min_size })
        };
        let limit = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or_default());
        // A character takes up to four bytes; without a limit a string fills the request, but for its quotes.
        let text = limit(schema.max_length).map_or(MAX_REQUEST - 2, |most| most.saturating_mul(4));
        match schema.kind {
            Kind::Unknown => None,
            Kind::IntOrString => scalar(Type::Dyn, 1, text),
            Kind::Boolean => scalar(Type::Bool, 4, 0),
            Kind::Number => scalar(Type::Double, 1, 0),
            Kind::Integer => scalar(Type::Int, 1, 0),
            Kind::Bytes => scalar(Type::Bytes, 2, limit(schema.max_length).unwrap_or(MAX_REQUEST - 2)),
            Kind::Duration => scalar(Type::Duration, 3, 32),
            Kind::Date => scalar(Type::Timestamp, 12, 12),
            Kind::DateTime => scalar(Type::Timestamp, 21, 32),
            Kind::String => {
                let longest = schema.longest_enum.filter(|_| schema.max_length.is_none());
                scalar(Type::String, 2, longest.map_or(text, |longest| longest as u64))
            }
            Kind::Array => {
                let item = Self::new(schema.items.as_deref()?, &format!("{name}.@idx"))?;
                let most = limit(schema.max_items).unwrap_or((MAX_REQUEST - 2) / (item.min_size + 1));
                let ty = Type::list(item.ty.clone());
                Some(Self { ty, inside: Inside::Items(Box::new(item)), max_elements: most, min_size: 2 })
            }
            Kind::Object => match &schema.additional {
                Some(additional) => {
                    let value = Self::new(additional, &format!("{name}.@elem"))?;
                    let most = limit(schema.max_properties).unwrap_or((MAX_REQUEST - 2) / (value.min_size + 6));
                    let ty = Type::map(Type::String, value.ty.clone());
                    Some(Self { ty, inside: Inside::Values(Box::new(value)), max_elements: most, min_size: 2 })
                }
                None => Some(Self::object(schema, name)),
            },
        }
    }

    fn object(schema: &Schema, name: &str) -> Self {
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for property in &schema.properties {
            let inner = format!("{name}.{}", property.escaped.as_deref().unwrap_or_default());
            let Some(decl) = Self::new(&property.schema, &inner) else { continue };
            if property.required && !property.schema.has_default {
                min_size += property.name.len() as u64 + decl.min_size + 4;
            }
            if let Some(identifier) = &property.escaped {
                fields.insert(identifier.clone(), decl);
            }
        }
        Self { ty: Type::Object(name.into()), inside: Inside::Fields(fields), max_elements: 0, min_size }
    }

    /// Every object in it, by the name of its type.
    pub(crate) fn objects<'a>(&'a self, found: &mut HashMap<Arc<str>, &'a BTreeMap<Box<str>, Decl>>) {
        match &self.inside {
            Inside::Nothing => {}
            Inside::Items(inner) | Inside::Values(inner) => inner.objects(found),
            Inside::Fields(fields) => {
                if let Type::Object(name) = &self.ty {
                    found.insert(name.clone(), fields);
                }
                fields.values().for_each(|field| field.objects(found));
            }
        }
    }

    /// How often a value that takes this much can be in one request.
    pub(crate) fn max_cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }
}
