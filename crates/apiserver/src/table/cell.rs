//! What a table cell shows of a built-in object. In: an expression, mostly a path, and an object. Out: a JSON
//! scalar. Expressions are data; what needs a decision is a function beside its kind.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age;

/// How to compute one cell. Paths are dotted field names without lists.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    /// The object's name.
    Name,
    /// The name, with ` (default)` behind it when one of these annotations is `true`.
    NameDefault(&'static [&'static str]),
    /// How long ago the object was created.
    Age,
    /// When the object was created.
    Created,
    /// A scalar as text, or this instead of nothing.
    Text(&'static str, &'static str),
    /// An integer, 0 without one.
    Int(&'static str),
    /// A boolean, or this without one.
    Bool(&'static str, bool),
    /// `True`, `False` or `<unset>`.
    Switch(&'static str),
    /// How many entries these lists and maps have together.
    Count(&'static [&'static str]),
    /// How long ago a time was, or this without one.
    Since(&'static str, &'static str),
    /// `1/2`
    Ratio(&'static str, &'static str),
    /// Scalars with a slash between them.
    Slashed(&'static [&'static str]),
    /// One field of each item of a list (the item itself without a field), or this instead of nothing.
    Each(&'static str, &'static str, &'static str),
    /// A map as `a=b,c=d`
    Labels(&'static str),
    /// A label selector as text, or this instead of an empty one.
    Selector(&'static str, &'static str),
    /// Anything else.
    Of(fn(&Value, Timestamp) -> Value),
}

impl Cell {
    pub(super) fn of(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::Name => name(object).into(),
            Self::NameDefault(annotations) => {
                let marked = annotations.iter().any(|key| annotation(object, key) == "true");
                if marked { format!("{} (default)", name(object)).into() } else { name(object).into() }
            }
            Self::Age => age::since_text(created(object), now).into(),
            Self::Created => created(object).unwrap_or("0001-01-01T00:00:00Z").into(),
            Self::Text(path, otherwise) => match scalar(object, path) {
                text if text.is_empty() => otherwise.into(),
                text => text.into(),
            },
            Self::Int(path) => int(object, path).into(),
            Self::Bool(path, otherwise) => at(object, path).and_then(Value::as_bool).unwrap_or(otherwise).into(),
            Self::Switch(path) => match at(object, path).and_then(Value::as_bool) {
                Some(true) => "True".into(),
                Some(false) => "False".into(),
                None => "<unset>".into(),
            },
            Self::Count(paths) => paths.iter().map(|path| at(object, path).map_or(0, entries)).sum::<usize>().into(),
            Self::Since(path, otherwise) => match at(object, path).and_then(Value::as_str) {
                None | Some("") => otherwise.into(),
                then => age::since_text(then, now).into(),
            },
            Self::Ratio(part, whole) => format!("{}/{}", int(object, part), int(object, whole)).into(),
            Self::Slashed(paths) => paths.iter().map(|path| scalar(object, path)).collect::<Vec<_>>().join("/").into(),
            Self::Each(path, field, otherwise) => match each(object, path, field) {
                text if text.is_empty() => otherwise.into(),
                text => text.into(),
            },
            Self::Labels(path) => match at(object, path).and_then(Value::as_object) {
                Some(labels) if !labels.is_empty() => label_text(labels).join(",").into(),
                _ => "<none>".into(),
            },
            Self::Selector(path, otherwise) => match at(object, path).map(selector) {
                None => otherwise.into(),
                Some(Some(text)) if text.is_empty() => otherwise.into(),
                Some(Some(text)) => text.into(),
                Some(None) => "<error>".into(),
            },
            Self::Of(cell) => cell(object, now),
        }
    }
}

/// The value at a dotted path; `null` is nothing.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |at, name| at.as_object()?.get(name)).filter(|found| !found.is_null())
}

/// The text at a dotted path, or nothing.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a dotted path, or 0.
pub(super) fn int(value: &Value, path: &str) -> i64 {
    at(value, path).and_then(Value::as_i64).unwrap_or_default()
}

/// The items of the list at a dotted path.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The scalar at a dotted path as text: a number prints as one.
pub(super) fn scalar(value: &Value, path: &str) -> String {
    at(value, path).map(print).unwrap_or_default()
}

/// A scalar as text.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

pub(super) fn created(object: &Value) -> Option<&str> {
    at(object, "metadata.creationTimestamp").and_then(Value::as_str)
}

pub(super) fn deleting(object: &Value) -> bool {
    at(object, "metadata.deletionTimestamp").is_some()
}

/// An annotation's value. Keys have dots, so this is no path.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    at(object, "metadata.annotations").and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// The `status` of the condition of this type.
pub(super) fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    list(object, "status.conditions").iter().find(|condition| text(condition, "type") == ty)
}

/// Whether the condition of this type is `True`.
pub(super) fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| text(condition, "status") == "True")
}

/// One field of each item of a list, with commas between.
pub(super) fn each(object: &Value, path: &str, field: &str) -> String {
    let of = |item: &Value| if field.is_empty() { print(item) } else { scalar(item, field) };
    list(object, path).iter().map(of).collect::<Vec<_>>().join(",")
}

/// The first items of a list, and how many more there are.
pub(super) fn some_of(items: &[String], most: usize, separator: &str, otherwise: &str) -> String {
    let shown = items[..items.len().min(most)].join(separator);
    match items.len() {
        more if more > most => format!("{shown} + {} more...", more - most),
        _ if shown.is_empty() => otherwise.into(),
        _ => shown,
    }
}

fn entries(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

fn label_text(labels: &Map<String, Value>) -> Vec<String> {
    let mut texts: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={}", print(value))).collect();
    texts.sort();
    texts
}

/// A `LabelSelector` object as people write it; nothing when it has an unknown operator.
fn selector(selector: &Value) -> Option<String> {
    let mut terms: Vec<(&str, String)> = Vec::new();
    if let Some(labels) = at(selector, "matchLabels").and_then(Value::as_object) {
        terms.extend(labels.iter().map(|(key, value)| (key.as_str(), format!("{key}={}", print(value)))));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<String> = list(expression, "values").iter().map(print).collect();
        values.sort();
        terms.push((
            key,
            match text(expression, "operator") {
                "In" => format!("{key} in ({})", values.join(",")),
                "NotIn" => format!("{key} notin ({})", values.join(",")),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => return None,
            },
        ));
    }
    terms.sort_by_key(|(key, _)| *key);
    Some(terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(cell: Cell, object: Value, expect: impl Into<Value>) {
        let now = "2024-05-01T00:00:00Z".parse().unwrap();
        assert_eq!(cell.of(&object, now), expect.into());
    }

    #[test]
    fn shows_metadata() {
        let object = |annotations: Value| json!({"metadata": {"name": "a", "creationTimestamp": "2024-04-30T23:00:00Z", "annotations": annotations}});
        check(Cell::Name, object(json!({})), "a");
        check(Cell::Age, object(json!({})), "60m");
        check(Cell::Age, json!({}), "<unknown>");
        check(Cell::Created, object(json!({})), "2024-04-30T23:00:00Z");
        check(Cell::Created, json!({}), "0001-01-01T00:00:00Z");
        let marks = Cell::NameDefault(&["b.io/old", "b.io/default"]);
        check(marks, object(json!({"b.io/default": "true"})), "a (default)");
        check(marks, object(json!({"b.io/default": "false"})), "a");
    }

    #[test]
    fn shows_scalars() {
        let object =
            json!({"s": "x", "e": "", "n": 3, "b": true, "z": null, "t": "2024-04-30T23:59:50Z", "o": {"n": 2}});
        check(Cell::Text("s", "-"), object.clone(), "x");
        check(Cell::Text("n", "-"), object.clone(), "3");
        check(Cell::Text("e", "-"), object.clone(), "-");
        check(Cell::Text("z", "-"), object.clone(), "-");
        check(Cell::Text("o.x", "-"), object.clone(), "-");
        check(Cell::Int("n"), object.clone(), 3);
        check(Cell::Int("o.x"), object.clone(), 0);
        check(Cell::Bool("b", false), object.clone(), true);
        check(Cell::Bool("z", false), object.clone(), false);
        check(Cell::Switch("b"), object.clone(), "True");
        check(Cell::Switch("z"), object.clone(), "<unset>");
        check(Cell::Since("t", "-"), object.clone(), "10s");
        check(Cell::Since("z", "-"), object.clone(), "-");
        check(Cell::Ratio("n", "o.n"), object.clone(), "3/2");
        check(Cell::Ratio("z", "n"), object.clone(), "0/3");
        check(Cell::Slashed(&["s", "n"]), object, "x/3");
    }

    #[test]
    fn shows_collections() {
        let object = json!({"l": [{"n": "a"}, {"n": "b"}], "s": ["x", 1], "m": {"b": "2", "a": "1"}, "e": {}});
        check(Cell::Count(&["l", "m", "e", "absent"]), object.clone(), 4);
        check(Cell::Each("l", "n", "-"), object.clone(), "a,b");
        check(Cell::Each("s", "", "-"), object.clone(), "x,1");
        check(Cell::Each("absent", "", "-"), object.clone(), "-");
        check(Cell::Labels("m"), object.clone(), "a=1,b=2");
        check(Cell::Labels("e"), object.clone(), "<none>");
        check(Cell::Labels("absent"), object, "<none>");
        for (count, expect) in [(0, "-"), (2, "0,1"), (3, "0,1 + 1 more...")] {
            let items: Vec<String> = (0..count).map(|item| item.to_string()).collect();
            assert_eq!(some_of(&items, 2, ",", "-"), expect);
        }
    }

    #[test]
    fn shows_selectors() {
        let object = |selector: Value| json!({"s": selector});
        let cell = Cell::Selector("s", "-");
        check(cell, json!({}), "-");
        check(cell, object(json!({})), "-");
        check(cell, object(json!({"matchLabels": {"b": "2", "a": "1"}})), "a=1,b=2");
        let expressions = json!([
            {"key": "d", "operator": "Exists"},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "b", "operator": "NotIn", "values": ["z"]},
            {"key": "a", "operator": "In", "values": ["y", "x"]},
        ]);
        let both = json!({"matchLabels": {"e": "1"}, "matchExpressions": expressions});
        check(cell, object(both), "a in (x,y),b notin (z),!c,d,e=1");
        check(cell, object(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})), "<error>");
    }
}
