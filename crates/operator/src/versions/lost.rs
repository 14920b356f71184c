//! What a version of a kind cannot express. In: an object before it was converted, and after it was converted and back. Out: the
//! values that got lost on the way, as text for an annotation; and the object with these values again. Pure.
//!
//! A value comes back only where the object has still what the conversion made of it: a user who changed the field through
//! the other version meant it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A value that another version cannot express.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lost {
    path: Vec<Segment>,
    /// What the conversion back made of it; none if it left it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    now: Option<Value>,
    /// What it was; none if it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<Value>,
}

/// A step into an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Segment {
    /// A field of an object.
    Field(String),
    /// The item of a list with this name. Items move when others are inserted, so their index says nothing.
    Item { name: String },
}

impl Lost {
    /// Whether it is about conditions only, which are beside the type of a status.
    fn is_conditions(&self) -> bool {
        let fields = self.was.as_ref().and_then(Value::as_object);
        self.path == status() && self.now.is_none() && fields.is_some_and(|fields| fields.keys().eq(["conditions"]))
    }

    /// As people write it: `spec.containers[name=web].image`.
    pub(crate) fn path(&self) -> String {
        let mut text = String::new();
        for segment in &self.path {
            match segment {
                Segment::Field(name) if text.is_empty() => text.push_str(name),
                Segment::Field(name) => text += &format!(".{name}"),
                Segment::Item { name } => text += &format!("[name={name}]"),
            }
        }
        text
    }
}

/// What is in `source` and not in `back`, which was converted from it and back. Both are objects without metadata.
pub(super) fn lost(back: &Value, source: &Value) -> Vec<Lost> {
    let mut found = Vec::new();
    compare(present(back), present(source), &mut Vec::new(), &mut found);
    found
}

fn compare(back: Option<&Value>, source: Option<&Value>, path: &mut Vec<Segment>, found: &mut Vec<Lost>) {
    match (back, source) {
        (Some(Value::Object(back)), Some(Value::Object(source))) => {
            let fields: BTreeSet<&String> = back.keys().chain(source.keys()).collect();
            for field in fields {
                path.push(Segment::Field(field.clone()));
                let value = |object: &'_ Map<String, Value>| object.get(field).cloned();
                let (back, source) = (value(back), value(source));
                compare(back.as_ref().and_then(present), source.as_ref().and_then(present), path, found);
                path.pop();
            }
        }
        (Some(Value::Array(back)), Some(Value::Array(source)))
            if names(back).is_some_and(|known| names(source) == Some(known)) =>
        {
            for (back, source) in back.iter().zip(source) {
                let name = source["name"].as_str().unwrap_or_default().to_owned();
                path.push(Segment::Item { name });
                compare(Some(back), Some(source), path, found);
                path.pop();
            }
        }
        (back, source) if back == source => {}
        (back, source) => found.push(Lost { path: path.clone(), now: back.cloned(), was: source.cloned() }),
    }
}

/// Puts values back into an object, each where the object still has what the conversion made of it.
pub(super) fn restore(object: &mut Value, lost: &[Lost]) {
    for one in lost {
        put_back(object, one);
    }
}

/// Keeps the conditions of an object whose status is lost, with the rest of that status.
pub(super) fn keep_conditions(lost: &mut Vec<Lost>, conditions: Value) {
    let whole = lost.iter_mut().find(|one| one.path == status()).and_then(|one| one.was.as_mut()?.as_object_mut());
    match whole {
        Some(fields) => drop(fields.insert("conditions".to_owned(), conditions)),
        None => {
            let was = Value::Object(Map::from_iter([("conditions".to_owned(), conditions)]));
            lost.push(Lost { path: status().into(), now: None, was: Some(was) });
        }
    }
}

fn status() -> [Segment; 1] {
    [Segment::Field("status".to_owned())]
}

/// What of the values that an annotation keeps can have been put there by a conversion. Annotations are written by users, and what
/// the other version can express is to be said there, where it is checked: `lost` is what gets lost of the object with all of
/// these values, and `there` is that object in the other version. Types may have changed since the annotation was written, so the
/// values themselves are not compared.
pub(super) fn genuine(kept: Vec<Lost>, lost: &[Lost], there: &Value) -> Vec<Lost> {
    let is_lost = |one: &Lost| lost.iter().any(|other| other.path == one.path && other.now == one.now);
    // Where there is a status, conditions are beside it.
    let lacks_status = !there["status"].is_object();
    kept.into_iter().filter(|one| is_lost(one) || lacks_status && one.is_conditions()).collect()
}

fn put_back(object: &mut Value, lost: &Lost) -> Option<()> {
    let (last, parents) = lost.path.split_last()?;
    let mut at = object;
    for segment in parents {
        at = match segment {
            Segment::Field(name) => at.get_mut(name)?,
            Segment::Item { name } => item(at, name)?,
        };
    }
    match last {
        Segment::Field(name) => {
            let fields = at.as_object_mut()?;
            if fields.get(name).and_then(present) != lost.now.as_ref() {
                return None;
            }
            match &lost.was {
                Some(was) => fields.insert(name.clone(), was.clone()),
                None => fields.remove(name),
            };
        }
        // The items of a list are compared field by field, unless one is no object, which has no name.
        Segment::Item { .. } => return None,
    }
    Some(())
}

fn item<'a>(list: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    list.as_array_mut()?.iter_mut().find(|item| item["name"] == name)
}

/// A field that is null is not there.
fn present(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

/// The names of the items, if each has a name of its own.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Option<Vec<&str>> = list.iter().map(|item| item.as_object()?.get("name")?.as_str()).collect();
    names.filter(|names| names.iter().collect::<BTreeSet<_>>().len() == names.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_back_where_nobody_changed_them() {
        // The object, what the other version makes of it and back, what a user then has, and what becomes of that.
        for (source, back, edited, expect) in [
            (json!({"a": 1}), json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 5}), json!({"a": 5, "b": 2})),
            (json!({"a": 1, "b": null}), json!({"a": 1}), json!({"a": 1}), json!({"a": 1})),
            // The other version rounds: what was exact comes back, unless it was changed.
            (json!({"cpu": "250m"}), json!({"cpu": "1"}), json!({"cpu": "1"}), json!({"cpu": "250m"})),
            (json!({"cpu": "250m"}), json!({"cpu": "1"}), json!({"cpu": "2"}), json!({"cpu": "2"})),
            // The other version adds something.
            (json!({}), json!({"mode": "x"}), json!({"mode": "x"}), json!({})),
            (json!({}), json!({"mode": "x"}), json!({"mode": "y"}), json!({"mode": "y"})),
            // Items are found by their names, wherever they are.
            (
                json!({"l": [{"name": "a", "x": 1}, {"name": "b", "x": 2}]}),
                json!({"l": [{"name": "a"}, {"name": "b"}]}),
                json!({"l": [{"name": "c"}, {"name": "b"}]}),
                json!({"l": [{"name": "c"}, {"name": "b", "x": 2}]}),
            ),
            // Items without names are nobody's any more as soon as the list is another one.
            (json!({"l": [{"x": 1}]}), json!({"l": [{}]}), json!({"l": [{}]}), json!({"l": [{"x": 1}]})),
            (json!({"l": [{"x": 1}]}), json!({"l": [{}]}), json!({"l": [{}, {}]}), json!({"l": [{}, {}]})),
            // What the value was in is gone.
            (json!({"a": {"b": 1}}), json!({"a": {}}), json!({}), json!({})),
        ] {
            let lost = lost(&back, &source);
            let kept = serde_json::to_string(&lost).unwrap();
            let lost: Vec<Lost> = serde_json::from_str(&kept).unwrap();
            let mut object = edited.clone();
            restore(&mut object, &lost);
            assert_eq!(object, expect, "{source} {back} {edited}: {kept}");
        }
    }

    #[test]
    fn paths() {
        let found =
            lost(&json!({"spec": {"l": [{"name": "a"}]}}), &json!({"spec": {"l": [{"name": "a", "x": {"y": 1}}]}}));
        assert_eq!(found.iter().map(Lost::path).collect::<Vec<_>>(), ["spec.l[name=a].x"]);
    }
}
