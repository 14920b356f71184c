//! Validation keywords of a schema, as data: `minimum`, `pattern`, `enum` and others. `validate` evaluates them.

use serde_json::Value;

use crate::format::Format;
use crate::pattern::Pattern;

/// The validation keywords of one [`Node`](crate::Node).
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// No `type` is declared: a value of any JSON type is valid, and the shape of the node applies only to values of its type.
    pub any_type: bool,
    /// `additionalProperties: true`: undeclared fields are kept, but objects nested in them are pruned to `{}`.
    pub prunes_nested: bool,
    /// `format`, where it is known for the declared type.
    pub format: Option<Format>,
    /// `enum`; empty when every value is accepted.
    pub enumeration: Box<[Value]>,
    /// `minimum`
    pub minimum: Option<Bound>,
    /// `maximum`
    pub maximum: Option<Bound>,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `pattern`
    pub pattern: Option<Pattern>,
    /// `minItems`
    pub min_items: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `uniqueItems`
    pub unique_items: bool,
    /// `minProperties`
    pub min_properties: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// Required names in the order of the schema, also those that no field declares.
    pub required: Box<[Box<str>]>,
    /// `allOf`
    pub all_of: Box<[Clause]>,
    /// `anyOf`
    pub any_of: Box<[Clause]>,
    /// `oneOf`
    pub one_of: Box<[Clause]>,
    /// `not`
    pub not: Option<Box<Clause>>,
    /// `x-kubernetes-validations`, as written.
    pub rules: Box<[Value]>,
}

/// A bound of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The bound.
    pub value: f64,
    /// Whether the bound itself is invalid.
    pub exclusive: bool,
}

/// One member of `allOf`, `anyOf` or `oneOf`, or a `not`: checks that apply to the same value, and to
/// what is inside it.
#[derive(Clone, Debug, Default)]
pub struct Clause {
    /// `type`, which a clause has only in the int-or-string pattern.
    pub types: Box<[Box<str>]>,
    /// Checks of the value itself.
    pub checks: Checks,
    /// Checks of every item.
    pub items: Option<Box<Clause>>,
    /// Checks of named fields, sorted by name.
    pub properties: Box<[(Box<str>, Clause)]>,
}

impl Checks {
    /// Whether nothing is checked.
    pub fn is_empty(&self) -> bool {
        !self.any_type
            && !self.prunes_nested
            && !self.unique_items
            && self.format.is_none()
            && self.pattern.is_none()
            && self.not.is_none()
            && self.multiple_of.is_none()
            && self.minimum.or(self.maximum).is_none()
            && self.enumeration.is_empty()
            && self.rules.is_empty()
            && self.required.is_empty()
            && [&self.all_of, &self.any_of, &self.one_of].iter().all(|clauses| clauses.is_empty())
            && [self.min_length, self.max_length, self.min_items, self.max_items].iter().all(Option::is_none)
            && [self.min_properties, self.max_properties].iter().all(Option::is_none)
    }
}
