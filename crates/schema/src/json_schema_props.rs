//! Access to the keywords of a CRD's schema (`JSONSchemaProps`) as it was written. In: JSON. Out: keywords with the types
//! they must have. A keyword of another type reads as absent, because decoding the CRD has rejected it already.

use serde_json::{Map, Value};

/// One schema object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Props<'a>(&'a Map<String, Value>);

/// `items`: one schema, or a list of schemas, which Kubernetes rejects.
pub(crate) enum Items<'a> {
    One(Props<'a>),
    Many(Vec<Props<'a>>),
}

/// `additionalProperties`
pub(crate) enum Additional<'a> {
    Bool(bool),
    Schema(Props<'a>),
}

impl<'a> Props<'a> {
    pub(crate) fn new(schema: &'a Value) -> Option<Self> {
        schema.as_object().map(Self)
    }

    pub(crate) fn json(self) -> Value {
        Value::Object(self.0.clone())
    }

    pub(crate) fn keys(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// A keyword that is present and not null.
    pub(crate) fn get(self, keyword: &str) -> Option<&'a Value> {
        self.0.get(keyword).filter(|value| !value.is_null())
    }

    pub(crate) fn text(self, keyword: &str) -> &'a str {
        self.get(keyword).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(self, keyword: &str) -> bool {
        self.get(keyword).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn number(self, keyword: &str) -> Option<f64> {
        self.get(keyword).and_then(Value::as_f64)
    }

    pub(crate) fn count(self, keyword: &str) -> Option<i64> {
        self.get(keyword).and_then(Value::as_i64)
    }

    pub(crate) fn texts(self, keyword: &str) -> impl Iterator<Item = &'a str> {
        self.values(keyword).iter().filter_map(Value::as_str)
    }

    pub(crate) fn values(self, keyword: &str) -> &'a [Value] {
        self.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn schema(self, keyword: &str) -> Option<Props<'a>> {
        self.get(keyword).and_then(Self::new)
    }

    /// The members of `allOf`, `anyOf` or `oneOf`.
    pub(crate) fn schemas(self, keyword: &str) -> impl ExactSizeIterator<Item = Props<'a>> {
        let members: Vec<_> = self.values(keyword).iter().filter_map(Self::new).collect();
        members.into_iter()
    }

    /// The entries of `properties` or `definitions`, sorted by name.
    pub(crate) fn named(self, keyword: &str) -> Vec<(&'a str, Props<'a>)> {
        let entries = self.get(keyword).and_then(Value::as_object);
        let mut named: Vec<_> = entries
            .into_iter()
            .flatten()
            .filter_map(|(name, schema)| Some((name.as_str(), Self::new(schema)?)))
            .collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        named
    }

    pub(crate) fn property(self, name: &str) -> Option<Props<'a>> {
        self.get("properties").and_then(|properties| properties.get(name)).and_then(Self::new)
    }

    pub(crate) fn items(self) -> Option<Items<'a>> {
        match self.get("items")? {
            Value::Array(many) => Some(Items::Many(many.iter().filter_map(Self::new).collect())),
            one => Self::new(one).map(Items::One),
        }
    }

    /// `items` where it is one schema.
    pub(crate) fn item(self) -> Option<Props<'a>> {
        match self.items()? {
            Items::One(item) => Some(item),
            Items::Many(_) => None,
        }
    }

    pub(crate) fn additional(self) -> Option<Additional<'a>> {
        match self.get("additionalProperties")? {
            Value::Bool(allowed) => Some(Additional::Bool(*allowed)),
            schema => Self::new(schema).map(Additional::Schema),
        }
    }

    pub(crate) fn type_name(self) -> &'a str {
        self.text("type")
    }

    pub(crate) fn preserves(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    pub(crate) fn embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }

    pub(crate) fn int_or_string(self) -> bool {
        self.flag("x-kubernetes-int-or-string")
    }

    pub(crate) fn nullable(self) -> bool {
        self.flag("nullable")
    }

    /// `x-kubernetes-list-type`
    pub(crate) fn list_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-list-type").and_then(Value::as_str)
    }

    /// `x-kubernetes-map-type`
    pub(crate) fn map_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-map-type").and_then(Value::as_str)
    }

    /// `x-kubernetes-list-map-keys`
    pub(crate) fn map_keys(self) -> Vec<&'a str> {
        self.texts("x-kubernetes-list-map-keys").collect()
    }
}
