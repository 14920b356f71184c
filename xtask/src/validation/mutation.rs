//! Mutations of a good object. In: the object and its type. Out: places with another value: dropped, zero, negative, huge, of
//! wrong syntax, repeated, and fields that are not there.

use std::fmt;

use serde_json::{Map, Value, json};

use konverge_schema::{Arena, Scalar, Shape, TypeId, kubernetes};

/// One place of an object with another value.
pub(super) struct Mutation {
    /// A JSON pointer. The index after the last item of a list adds one.
    pub at: String,
    /// The new value; nothing drops the field.
    pub value: Option<Value>,
}

impl Mutation {
    /// The object with this mutation.
    pub(super) fn apply(&self, good: &Value) -> Value {
        let mut object = good.clone();
        let Some((parent, name)) = self.at.rsplit_once('/') else { return object };
        let name = name.replace("~1", "/").replace("~0", "~");
        match (object.pointer_mut(parent), &self.value) {
            (Some(Value::Object(fields)), Some(value)) => {
                fields.insert(name, value.clone());
            }
            (Some(Value::Object(fields)), None) => {
                fields.remove(&name);
            }
            (Some(Value::Array(items)), value) => {
                let index = name.parse().unwrap_or(items.len());
                match value {
                    Some(value) if index < items.len() => items[index] = value.clone(),
                    Some(value) => items.push(value.clone()),
                    None => {
                        items.remove(index);
                    }
                }
            }
            _ => {}
        }
        object
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => {
                let value = value.to_string();
                let short: String = value.chars().take(80).collect();
                write!(f, "{} = {short}", self.at)
            }
            None => write!(f, "{} dropped", self.at),
        }
    }
}

/// Every mutation of an object, the object itself first.
pub(super) fn all(good: &Value) -> Vec<Mutation> {
    let types = kubernetes();
    let mut mutations = vec![Mutation { at: "/kind".into(), value: Some(good["kind"].clone()) }];
    if let Some(ty) = type_of(good, types) {
        inside(types, ty, good, "", &mut mutations);
    }
    mutations
}

fn type_of(object: &Value, types: &Arena) -> Option<TypeId> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (group, version) = version.split_once('/').unwrap_or(("core", version));
    let package = match group.split('.').next()? {
        package @ "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.{package}"),
        package => format!("io.k8s.api.{package}"),
    };
    types.named(&format!("{package}.{version}.{kind}"))
}

fn inside(types: &Arena, ty: TypeId, value: &Value, at: &str, out: &mut Vec<Mutation>) {
    match (&types.node(ty).shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for field in fields {
                let at = format!("{at}/{}", field.name);
                let skipped = ["/apiVersion", "/kind", "/status", "/metadata/namespace", "/metadata/name"];
                // The server itself writes these, or every kind treats them alike.
                let fixed = at.starts_with("/metadata/") && !map.contains_key(&*field.name);
                if skipped.contains(&at.as_str()) || fixed {
                    continue;
                }
                match map.get(&*field.name) {
                    Some(value) if at == "/metadata" => inside(types, field.ty, value, &at, out),
                    Some(value) => {
                        out.push(Mutation { at: at.clone(), value: None });
                        replaced(types, field.ty, value, &at, out);
                        inside(types, field.ty, value, &at, out);
                    }
                    None => {
                        if let Some(value) = sample(types, field.ty) {
                            out.push(Mutation { at, value: Some(value) });
                        }
                    }
                }
            }
        }
        (Shape::Map { value: inner, .. }, Value::Object(map)) => {
            let like = map.values().next().cloned().or_else(|| sample(types, *inner)).unwrap_or_else(|| json!("x"));
            for key in ["Bad Key!", "a/b/c", ""] {
                out.push(Mutation { at: format!("{at}/{}", escaped(key)), value: Some(like.clone()) });
            }
            for (key, value) in map {
                let at = format!("{at}/{}", escaped(key));
                out.push(Mutation { at: at.clone(), value: None });
                replaced(types, *inner, value, &at, out);
                inside(types, *inner, value, &at, out);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            if let Some(first) = items.first() {
                out.push(Mutation { at: format!("{at}/{}", items.len()), value: Some(first.clone()) });
            }
            for (index, value) in items.iter().enumerate() {
                let at = format!("{at}/{index}");
                out.push(Mutation { at: at.clone(), value: None });
                replaced(types, *item, value, &at, out);
                inside(types, *item, value, &at, out);
            }
        }
        _ => {}
    }
}

/// Other values for a value that is there.
fn replaced(types: &Arena, ty: TypeId, value: &Value, at: &str, out: &mut Vec<Mutation>) {
    let values: Vec<Value> = match &types.node(ty).shape {
        Shape::Scalar(Scalar::String) => {
            let long = "a".repeat(300);
            vec![json!(""), json!("Not Valid!"), json!("a/../b"), json!("/x"), json!("x-1"), json!(long)]
        }
        Shape::Scalar(Scalar::Int32) => vec![json!(0), json!(-1), json!(1), json!(100_000_000)],
        Shape::Scalar(Scalar::Int64) => vec![json!(0), json!(-1), json!(1), json!(100_000_000_000_i64)],
        Shape::Scalar(Scalar::IntOrString) => {
            vec![
                json!(0),
                json!(-1),
                json!(70_000),
                json!("x y"),
                json!("http"),
                json!("150%"),
                json!("10%"),
                json!(""),
            ]
        }
        Shape::Scalar(Scalar::Quantity) => vec![json!("-1"), json!("0"), json!("1.5"), json!("100Gi")],
        Shape::Scalar(Scalar::Boolean) => vec![json!(value != true)],
        Shape::Struct { .. } | Shape::Map { .. } => vec![json!({})],
        Shape::List { .. } => vec![json!([])],
        _ => Vec::new(),
    };
    let changed = values.into_iter().filter(|new| new != value);
    out.extend(changed.map(|value| Mutation { at: at.to_owned(), value: Some(value) }));
}

/// A value for a field that is not there.
fn sample(types: &Arena, ty: TypeId) -> Option<Value> {
    Some(match &types.node(ty).shape {
        Shape::Scalar(Scalar::String) => json!("sample"),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString) => json!(7),
        Shape::Scalar(Scalar::Boolean) => json!(true),
        Shape::Scalar(Scalar::Quantity) => json!("7"),
        Shape::Struct { .. } => json!({}),
        Shape::Map { value, .. } => {
            let mut map = Map::new();
            map.insert("sample".into(), sample(types, *value)?);
            map.into()
        }
        Shape::List { item, .. } => json!([sample(types, *item)?]),
        _ => return None,
    })
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_mutated_in_every_field() {
        let good = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}});
        let all = all(&good);
        let has = |at: &str, value: Option<Value>| all.iter().any(|it| it.at == at && it.value == value);
        assert!(has("/spec/ports/0/port", None));
        assert!(has("/spec/ports/0/port", Some(json!(-1))));
        assert!(has("/spec/ports/1", Some(json!({"port": 80}))));
        assert!(has("/spec/type", Some(json!("sample"))));
        let dropped = Mutation { at: "/spec/ports/0".into(), value: None };
        assert_eq!(dropped.apply(&good)["spec"], json!({"ports": []}));
    }
}
