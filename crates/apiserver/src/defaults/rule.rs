//! One rule of the table of defaults. In: its line, and a struct of its type. Out: the struct with the value, if nothing
//! is there and the rule's tests hold. The head of the table states the format.

use serde_json::{Map, Value};

use super::image::pull_policy;
use super::pod_resources;

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub path: Path,
    /// Whether what is empty counts as absent.
    empty_too: bool,
    pub value: Source,
    pub tests: Vec<Test>,
}

/// Where a value comes from.
#[derive(Debug)]
pub(super) enum Source {
    Json(Value),
    Same(Place),
    Mirror(Place),
    Entries(Place),
    Tag(Place),
    /// The field that has the first item of a list, and where the item has it: the item itself without a name.
    Pair(&'static str, Option<&'static str>),
    /// What no row can say.
    Call(fn(&mut Value)),
    Drop,
}

/// Another field: beside the one that is filled, or from the top.
#[derive(Debug)]
pub(super) enum Place {
    Beside(Path),
    Top(Path),
}

/// When a rule counts.
#[derive(Debug)]
pub(super) enum Test {
    Is(Path, Vec<&'static str>),
    Set(Path),
    Unset(Path),
    Only(Vec<&'static str>),
}

/// Names of fields; `true` for one whose every item is meant.
pub(super) type Path = Vec<(&'static str, bool)>;

impl Rule {
    pub(super) fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split("; if ");
        let (path, value) = words.next()?.split_once(' ')?;
        let (path, empty_too) = path.strip_suffix('?').map_or((path, false), |path| (path, true));
        let value = match value.split_once(' ') {
            Some(("=", from)) => Source::Same(place(from)?),
            Some(("==", from)) => Source::Mirror(place(from)?),
            Some(("+=", from)) => Source::Entries(place(from)?),
            Some(("tag", from)) => Source::Tag(place(from)?),
            Some(("pair", from)) => {
                from.split_once(' ').map_or(Source::Pair(from, None), |(one, key)| Source::Pair(one, Some(key)))
            }
            Some(("call", "pod-level-resources")) => Source::Call(pod_resources::fill),
            _ if value == "drop" => Source::Drop,
            _ => Source::Json(serde_json::from_str(value).ok()?),
        };
        let tests = words.map(test).collect::<Option<_>>()?;
        Some(Self { path: self::path(path)?, empty_too, value, tests })
    }

    /// Applies the rule to a struct of its type.
    pub(super) fn apply(&self, object: &mut Value) {
        if !object.is_object() || !self.tests.iter().all(|test| test.holds(object)) {
            return;
        }
        let top = match &self.value {
            Source::Call(fill) => return fill(object),
            Source::Same(Place::Top(path)) => match find(object, path) {
                Some(value) => Some(value.clone()),
                None => return,
            },
            _ => None,
        };
        self.descend(object, &self.path, top.as_ref());
    }

    fn descend(&self, value: &mut Value, path: &[(&'static str, bool)], top: Option<&Value>) {
        let Some(fields) = value.as_object_mut() else { return };
        let Some(((name, each), rest)) = path.split_first() else { return };
        if rest.is_empty() {
            return self.set(fields, name, top);
        }
        if *each {
            let items = fields.get_mut(*name).and_then(Value::as_array_mut);
            return items.into_iter().flatten().for_each(|item| self.descend(item, rest, top));
        }
        // A struct on the way is always there in Go, unless the rule is about items that nobody gave, or copies what
        // nobody gave.
        let makes = !rest.iter().any(|(_, each)| *each) && (top.is_some() || matches!(self.value, Source::Json(_)));
        match fields.get_mut(*name) {
            Some(inner) if !inner.is_null() => self.descend(inner, rest, top),
            _ if makes => {
                let mut inner = Value::Object(Map::new());
                self.descend(&mut inner, rest, top);
                fields.insert((*name).to_owned(), inner);
            }
            _ => {}
        }
    }

    fn set(&self, fields: &mut Map<String, Value>, name: &str, top: Option<&Value>) {
        let beside = |place: &Place| match place {
            Place::Beside(path) => {
                let (first, rest) = path.split_first()?;
                fields.get(first.0).and_then(|value| find(value, rest)).filter(|value| !value.is_null())
            }
            Place::Top(_) => top,
        };
        let absent = fields.get(name).is_none_or(|value| value.is_null() || self.empty_too && is_empty(value));
        let value = match &self.value {
            Source::Drop => {
                fields.remove(name);
                return;
            }
            Source::Pair(one, key) => return pair(fields, name, one, *key),
            Source::Entries(from) => {
                let Some(Value::Object(entries)) = beside(from).cloned() else { return };
                if entries.is_empty() {
                    return;
                }
                let target = fields.entry(name).or_insert(Value::Null);
                if target.is_null() {
                    *target = Value::Object(Map::new());
                }
                if let Some(target) = target.as_object_mut() {
                    entries.into_iter().for_each(|(key, value)| {
                        target.entry(key).or_insert(value);
                    });
                }
                return;
            }
            Source::Mirror(from) => match beside(from) {
                Some(value) => Some(value.clone()),
                None => {
                    fields.remove(name);
                    return;
                }
            },
            _ if !absent => return,
            Source::Json(value) => Some(value.clone()),
            Source::Same(from) => beside(from).filter(|value| !is_empty(value)).cloned(),
            Source::Tag(from) => Some(pull_policy(beside(from).and_then(Value::as_str).unwrap_or_default()).into()),
            Source::Call(_) => None,
        };
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
}

/// Makes a list and the field of its first item agree. The field decides, because older clients know nothing else.
fn pair(fields: &mut Map<String, Value>, list: &str, one: &str, key: Option<&'static str>) {
    let item = fields.get(list).and_then(|items| items.get(0));
    let first = item.and_then(|item| key.map_or(Some(item), |key| item.get(key))).cloned();
    let given = fields.get(one).filter(|value| !value.is_null() && !is_empty(value)).cloned();
    match (given, first) {
        (Some(given), first) if first.as_ref() != Some(&given) => {
            let item =
                key.map_or_else(|| given.clone(), |key| Map::from_iter([(key.to_owned(), given.clone())]).into());
            fields.insert(list.to_owned(), Value::Array(vec![item]));
        }
        (None, Some(first)) => drop(fields.insert(one.to_owned(), first)),
        _ => {}
    }
}

impl Test {
    fn holds(&self, object: &Value) -> bool {
        let is_set =
            |path| find(object, path).is_some_and(|value| !value.is_null() && value != "" && !is_no_list(value));
        match self {
            Self::Is(path, words) => find(object, path).is_some_and(|value| match value {
                Value::String(text) => words.contains(&text.as_str()),
                value => words.contains(&value.to_string().as_str()),
            }),
            Self::Set(path) => is_set(path),
            Self::Unset(path) => !is_set(path),
            Self::Only(names) => {
                let mut fields = object.as_object().into_iter().flatten();
                fields.all(|(name, value)| value.is_null() || names.contains(&name.as_str()))
            }
        }
    }
}

fn is_no_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        value => is_no_list(value),
    }
}

fn find<'v>(value: &'v Value, path: &[(&'static str, bool)]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, (name, _)| value.get(*name))
}

fn path(text: &'static str) -> Option<Path> {
    let name = |name: &'static str| name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    let path: Path = text.split('.').map(name).collect();
    path.iter().all(|(name, _)| !name.is_empty()).then_some(path)
}

fn place(text: &'static str) -> Option<Place> {
    match text.strip_prefix('/') {
        Some(text) => path(text).map(Place::Top),
        None => path(text).map(Place::Beside),
    }
}

fn test(text: &'static str) -> Option<Test> {
    match text.split_once(' ') {
        Some(("only", names)) => Some(Test::Only(names.split(',').collect())),
        Some((at, words)) => Some(Test::Is(path(at)?, words.split('|').collect())),
        None => match text.strip_prefix('!') {
            Some(at) => path(at).map(Test::Unset),
            None => path(text).map(Test::Set),
        },
    }
}
