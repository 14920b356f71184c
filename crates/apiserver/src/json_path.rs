//! The JSONPath that CRDs may write: printer columns, scale paths, selectable fields. In: the text of a path,
//! once, and objects, often. Out: references into the objects. A path that does not fit an object finds
//! nothing; it never fails and never copies.

use std::fmt;

use serde_json::{Map, Value};

mod parse;

/// A compiled path, such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

/// Why a text is no path, in the words of client-go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPathError(String);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Box<str>),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<JsonPath>),
    FilterExpression(Box<FilterExpression>),
    /// A constant on one side of a filter.
    Literal(Value),
}

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: End,
    step: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    /// `[2]`: the one item at the start.
    AfterStart,
    /// `[2:4]`
    At(i64),
    /// `[2:]`
    Last,
}

#[derive(Clone, Debug, PartialEq)]
struct FilterExpression {
    left: JsonPath,
    /// Absent: the left side must find something.
    test: Option<(Operator, JsonPath)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl JsonPath {
    /// Reads a path.
    pub(crate) fn compile(text: &str) -> Result<Self, JsonPathError> {
        parse::path(text)
    }

    /// Everything the path leads to, in order. Nothing when some step does not fit the value.
    pub(crate) fn find<'a>(&'a self, value: &'a Value) -> Vec<&'a Value> {
        self.walk(vec![value]).unwrap_or_default()
    }

    /// The first thing the path leads to.
    pub(crate) fn first<'a>(&'a self, value: &'a Value) -> Option<&'a Value> {
        // Nearly all paths are fields only; they need no vector.
        let mut at = value;
        for step in &self.steps {
            match step {
                Step::Field(name) => at = at.as_object()?.get(&**name)?,
                _ => return self.find(value).first().copied(),
            }
        }
        Some(at)
    }

    /// `None` is an evaluation error, which every caller treats as an empty result.
    fn walk<'a>(&'a self, mut values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        for step in &self.steps {
            values = step.walk(values)?;
        }
        Some(values)
    }
}

impl Step {
    fn walk<'a>(&'a self, values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        match self {
            Self::Field(name) => {
                found.extend(values.into_iter().filter_map(|value| value.as_object()?.get(&**name)));
            }
            Self::Wildcard => values.into_iter().for_each(|value| children(value, &mut found)),
            Self::Recursive => values.into_iter().for_each(|value| descend(value, &mut found)),
            Self::Slice(slice) => {
                for value in values {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => slice.select(items, &mut found)?,
                        _ => return None,
                    }
                }
            }
            Self::Union(paths) => {
                for path in paths {
                    found.extend(path.walk(values.clone())?);
                }
            }
            Self::FilterExpression(filter) => {
                for value in values {
                    for item in value.as_array()? {
                        if filter.accepts(item)? {
                            found.push(item);
                        }
                    }
                }
            }
            Self::Literal(constant) => found.extend(values.iter().map(|_| constant)),
        }
        Some(found)
    }
}

impl Slice {
    fn select<'a>(&self, items: &'a [Value], found: &mut Vec<&'a Value>) -> Option<()> {
        let length = i64::try_from(items.len()).ok()?;
        let from_end = |index: i64| if index < 0 { index + length } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            End::AfterStart => start + 1,
            End::At(end) => from_end(end),
            End::Last => length,
        };
        if start == end {
            return Some(());
        }
        if !(0..length).contains(&start) || !(start..=length).contains(&end) {
            return None;
        }
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        found.extend(items[range].iter().step_by(step));
        Some(())
    }
}

impl FilterExpression {
    fn accepts(&self, item: &Value) -> Option<bool> {
        let left = self.left.walk(vec![item]);
        let Some((operator, right)) = &self.test else {
            return Some(left.is_some_and(|left| !left.is_empty()));
        };
        let right = right.walk(vec![item])?;
        match (left?.as_slice(), right.as_slice()) {
            ([], _) | (_, []) => Some(false),
            ([left], [right]) => operator.compare(left, right),
            // More than one value cannot be compared.
            _ => None,
        }
    }
}

impl Operator {
    /// Values of different types cannot be compared, which is an error rather than `false`.
    fn compare(self, left: &Value, right: &Value) -> Option<bool> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
            },
            (Value::Bool(left), Value::Bool(right)) if matches!(self, Self::Equal | Self::NotEqual) => left.cmp(right),
            _ => return None,
        };
        Some(match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
        })
    }
}

fn children<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => found.extend(fields.values()),
        Value::Array(items) => found.extend(items),
        _ => {}
    }
}

/// The value and all below it that have something below them.
fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let mut below = Vec::new();
    children(value, &mut below);
    if !below.is_empty() {
        found.push(value);
        below.into_iter().for_each(|value| descend(value, found));
    }
}

/// The value at a dotted path without lists, such as `.spec.replicas`.
pub(crate) fn get_simple<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    segments(path).try_fold(object, |at, name| at.as_object()?.get(name))
}

/// Sets the value at a dotted path without lists and makes the objects on the way. Fails with the path of
/// what is in the way and no object.
pub(crate) fn set_simple(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut at = object;
    let mut walked = String::new();
    for name in segments(path) {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else {
            return Err(format!("value cannot be set because {walked} is not a map[string]interface{{}}"));
        };
        walked.push('.');
        walked.push_str(name);
        at = fields.entry(name).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}

fn segments(path: &str) -> std::str::Split<'_, char> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// What Kubernetes asks of every path in a CRD, in its words.
pub(crate) fn check_simple(path: &str) -> Result<(), &'static str> {
    match path.as_bytes().first() {
        None => Err("must not be empty"),
        Some(b'.') => Ok(()),
        Some(_) => Err("must be a simple json path starting with ."),
    }
}

impl fmt::Display for JsonPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonPathError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"annotations": {"a.b/c": "dotted"}},
            "spec": {
                "replicas": 3,
                "list": [{"x": 1, "on": true}, {"x": 2, "on": false}, {"x": 3}],
                "nothing": null,
            },
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "weight": 1.5},
                {"type": "Say \"(hi)\"", "status": "False", "weight": 2},
            ]},
        })
    }

    #[test]
    fn finds() {
        #[track_caller]
        fn check(path: &str, expect: Value) {
            let (path, object) = (JsonPath::compile(path).unwrap(), object());
            let found = path.find(&object);
            assert_eq!(json!(found), expect);
            assert_eq!(path.first(&object), found.first().copied());
        }
        check(".spec.replicas", json!([3]));
        check("$.spec.replicas", json!([3]));
        check(".spec.nothing", json!([null]));
        check(".spec.nothing.x", json!([]));
        check(".spec.nothing[0]", json!([]));
        check(".spec.absent", json!([]));
        check(".spec.absent.x[0]", json!([]));
        check(".spec.list[0].x", json!([1]));
        check(".spec.list[-1].x", json!([3]));
        check(".spec.list[3].x", json!([]));
        check(".spec.list[*].x", json!([1, 2, 3]));
        check(".spec.list.*.x", json!([1, 2, 3]));
        check(".spec.list[1:].x", json!([2, 3]));
        check(".spec.list[:2].x", json!([1, 2]));
        check(".spec.list[0:3:2].x", json!([1, 3]));
        check(".spec.list[0:9].x", json!([]));
        check(".spec.list[1:1].x", json!([]));
        check(".spec.list[0,2].x", json!([1, 3]));
        check(".spec['replicas']", json!([3]));
        check(".spec['replicas','nothing']", json!([3, null]));
        check(r".metadata.annotations['a\.b/c']", json!(["dotted"]));
        check(r".metadata.annotations.a\.b/c", json!(["dotted"]));
        check(".spec.replicas[0]", json!([]));
        check("..x", json!([1, 2, 3]));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
        check(".status.conditions[?(@.type == 'Ready')].status", json!(["True"]));
        check(r#".status.conditions[?(@.type!="Ready")].status"#, json!(["False"]));
        check(r#".status.conditions[?(@.type=="Say \"(hi)\"")].status"#, json!(["False"]));
        check(r#".status.conditions[?(@.type=="Gone")].status"#, json!([]));
        check(".status.conditions[?(@.type==1)].status", json!([]));
        check(".status.conditions[?(@.weight>1.7)].type", json!(["Say \"(hi)\""]));
        check(".spec.list[?(@.x>=2)].x", json!([2, 3]));
        check(".spec.list[?(@.x<2)].x", json!([1]));
        check(".spec.list[?(@.x<=-1)].x", json!([]));
        check(".spec.list[?(@.on)].x", json!([1, 2]));
        check(".spec.list[?(@.on==true)].x", json!([1]));
        check(".spec.list[?(@.x==@.x)].x", json!([1, 2, 3]));
        check(".spec[?(@.x==1)].x", json!([]));
    }

    #[test]
    fn sets_and_gets_dotted_paths() {
        #[track_caller]
        fn check(mut object: Value, path: &str, expect: Result<Value, &str>) {
            let set = set_simple(&mut object, path, 7.into());
            if set.is_ok() {
                assert_eq!(get_simple(&object, path), Some(&Value::from(7)));
            }
            assert_eq!(set.map(|()| object), expect.map_err(str::to_owned));
        }
        check(json!({"spec": {"replicas": 1}}), ".spec.replicas", Ok(json!({"spec": {"replicas": 7}})));
        check(json!({"spec": {"a": 1}}), ".spec.replicas", Ok(json!({"spec": {"a": 1, "replicas": 7}})));
        check(json!({}), "spec.deep.replicas", Ok(json!({"spec": {"deep": {"replicas": 7}}})));
        check(
            json!({"spec": 1}),
            ".spec.replicas",
            Err("value cannot be set because .spec is not a map[string]interface{}"),
        );
        assert_eq!(get_simple(&json!({"spec": [1]}), ".spec.replicas"), None);
    }

    #[test]
    fn checks_the_leading_dot() {
        assert_eq!(check_simple(".spec"), Ok(()));
        assert_eq!(check_simple(""), Err("must not be empty"));
        assert_eq!(check_simple("spec"), Err("must be a simple json path starting with ."));
    }
}
