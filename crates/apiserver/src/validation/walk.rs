//! The machine that reads the table. In: an object, the one before it, and the rules of its type. Out: the errors, in the
//! order of the rules. Each struct is visited once for each line that leads to it, so the work grows with the object; every
//! rule that is tried spends one step of the request's budget.

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, check_annotations, check_label_selector, check_labels};
use konverge_schema::Budget;

use super::place::Place;
use super::rule::{CheckKind, Failure, From, IMMUTABLE, Into, Rule, Shown, Skip, Step, Test, TestPath};
use super::{PrivilegedContainers, ValidationTable};

/// What a field that is not there is.
pub(super) static NULL: Value = Value::Null;

/// One walk over an object.
pub(super) struct Walk<'a> {
    pub table: &'a ValidationTable,
    pub budget: &'a Budget,
    pub privileged: PrivilegedContainers,
    /// The whole object.
    pub object: &'a Value,
    /// The whole object before the update.
    pub before: Option<&'a Value>,
    pub errors: Vec<FieldError>,
}

/// A struct whose rules are being read, linked to the struct around it.
pub(super) struct Frame<'a> {
    pub value: &'a Value,
    pub old: Option<&'a Value>,
    pub place: &'a Place<'a>,
    pub above: Option<&'a Frame<'a>>,
    /// How many errors there were before this struct.
    began: usize,
    /// What `unique` has seen below this struct, by scope or line.
    seen: RefCell<Vec<(Scope, HashSet<String>)>>,
}

/// Among what values must be unique.
#[derive(PartialEq, Eq)]
enum Scope {
    Named(&'static str),
    Line(usize),
}

/// One value that a rule looks at.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub value: &'a Value,
    pub old: Option<&'a Value>,
    pub place: &'a Place<'a>,
}

impl<'a> Frame<'a> {
    fn new(target: Target<'a>, above: Option<&'a Frame<'a>>, began: usize) -> Self {
        Self { value: target.value, old: target.old, place: target.place, above, began, seen: RefCell::default() }
    }

    /// The struct around this one; this one at the top.
    fn holder(&self) -> &Frame<'a> {
        self.above.unwrap_or(self)
    }

    /// Whether a key is the first of its kind in the struct around this one.
    pub(super) fn is_first(&self, scope: &'static str, key: String) -> bool {
        self.holder().is_new(Scope::Named(scope), key)
    }

    /// Whether a key is in a scope of this struct or of one around it.
    pub(super) fn knows(&self, scope: &'static str, key: &str) -> bool {
        let here = self.seen.borrow().iter().any(|(known, keys)| *known == Scope::Named(scope) && keys.contains(key));
        here || self.above.is_some_and(|above| above.knows(scope, key))
    }

    /// The struct so many levels above.
    pub(super) fn up(&self, levels: usize) -> Option<&Frame<'a>> {
        (0..levels).try_fold(self, |frame, _| frame.above)
    }

    /// Whether a key is new in its scope.
    fn is_new(&self, scope: Scope, key: String) -> bool {
        let mut seen = self.seen.borrow_mut();
        let at = seen.iter().position(|(known, _)| *known == scope).unwrap_or_else(|| {
            seen.push((scope, HashSet::new()));
            seen.len() - 1
        });
        seen[at].1.insert(key)
    }
}

impl<'a> Walk<'a> {
    /// Reads the rules of one set about a struct.
    pub(super) fn rules(&mut self, set: usize, target: Target<'_>, above: Option<&Frame<'_>>) {
        let table = self.table;
        let frame = Frame::new(target, above, self.errors.len());
        for rule in table.rules(set) {
            if !self.budget.spend(1) {
                return;
            }
            if !rule.when.is_empty() && !rule.when.iter().any(|group| group.iter().all(|test| self.holds(test, &frame)))
            {
                continue;
            }
            let before = self.errors.len();
            self.follow(rule, &rule.path, target, &frame);
            if rule.stops && self.errors.len() > before {
                return;
            }
        }
    }

    /// Goes along the path of a rule to every value that it leads to.
    fn follow(&mut self, rule: &Rule, path: &[Step], at: Target<'_>, frame: &Frame<'_>) {
        let Some((step, rest)) = path.split_first() else { return self.check(rule, at, frame) };
        let value = at.value.get(step.name).unwrap_or(&NULL);
        let old = at.old.map(|old| old.get(step.name).unwrap_or(&NULL));
        let skipped = match step.skip {
            Skip::Never => false,
            Skip::Nil => value.is_null(),
            Skip::Zero => is_zero(value),
        };
        // Rules about the entries of a list or a map have nothing to say about a list or a map that is not there.
        if skipped && !matches!(step.into, Into::Entry(_)) {
            return;
        }
        let named = Place::Field(at.place, step.shown);
        let place = if step.shown.is_empty() { *at.place } else { named };
        match step.into {
            Into::Field => self.follow(rule, rest, Target { value, old, place: &place }, frame),
            Into::Items | Into::Unnumbered => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    if !self.budget.spend(1) {
                        return;
                    }
                    let numbered = Place::Index(&place, index);
                    let place = if step.into == Into::Items { &numbered } else { &place };
                    self.follow(rule, rest, Target { value, old: None, place }, frame);
                }
            }
            Into::Values => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if !self.budget.spend(1) {
                        return;
                    }
                    let old = old.and_then(|old| old.get(key));
                    self.follow(rule, rest, Target { value, old, place: &Place::Key(&place, key) }, frame);
                }
            }
            Into::Keys | Into::Unkeyed => {
                for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
                    if !self.budget.spend(1) {
                        return;
                    }
                    let keyed = Place::Key(&place, key);
                    let place = if step.into == Into::Keys { &keyed } else { &place };
                    self.follow(rule, rest, Target { value: &key.as_str().into(), old: None, place }, frame);
                }
            }
            Into::Entry(key) => {
                let value = value.get(key).unwrap_or(&NULL);
                let old = old.map(|old| old.get(key).unwrap_or(&NULL));
                let skipped = match step.skip {
                    Skip::Never => false,
                    Skip::Nil => value.is_null(),
                    Skip::Zero => is_zero(value),
                };
                if !skipped {
                    self.follow(rule, rest, Target { value, old, place: &Place::Key(&place, key) }, frame);
                }
            }
        }
    }

    /// Makes the checks of a rule about one value.
    fn check(&mut self, rule: &Rule, target: Target<'_>, frame: &Frame<'_>) {
        let before = self.errors.len();
        for check in &rule.checks {
            if check.always || self.errors.len() == before {
                self.check_one(rule, &check.kind, target, frame);
            }
        }
    }

    fn check_one(&mut self, rule: &Rule, check: &CheckKind, target: Target<'_>, frame: &Frame<'_>) {
        let Target { value, old, place } = target;
        match check {
            CheckKind::Required(text) if is_zero(value) => self.push(FieldError::required(place.path(), *text)),
            CheckKind::Present(text) if value.is_null() => self.push(FieldError::required(place.path(), *text)),
            CheckKind::Forbidden(text) if !is_zero(value) => self.push(FieldError::forbidden(place.path(), *text)),
            CheckKind::NotNil(text) if !value.is_null() => self.push(FieldError::forbidden(place.path(), *text)),
            CheckKind::Required(_) | CheckKind::Present(_) | CheckKind::Forbidden(_) | CheckKind::NotNil(_) => {}
            CheckKind::Fail(kind, text, shown) => {
                let shown = match shown {
                    None => go_zero(value),
                    Some(Shown::Json(json)) => json.clone(),
                    Some(Shown::Of(path)) => self.find(path, frame).clone(),
                };
                self.fail(*kind, target.place, shown, text);
            }
            CheckKind::Enum(known) => {
                let text = value.as_str().unwrap_or_default();
                if !known.contains(&text) {
                    self.push(FieldError::not_supported(place.path(), text.into(), known.iter().copied()));
                }
            }
            CheckKind::Range { least, most, text } => {
                let number = value.as_i64().unwrap_or_default();
                if !(*least..=*most).contains(&number) {
                    let why = text.map_or_else(|| range_text(*least, *most), str::to_owned);
                    self.push(FieldError::invalid(place.path(), number.into(), why));
                }
            }
            CheckKind::MaxBytes(most) => {
                if value.as_str().is_some_and(|text| text.len() > *most) {
                    self.push(FieldError::too_long(place.path(), *most));
                }
            }
            CheckKind::MaxItems(most) => {
                let count = value.as_array().map_or(0, Vec::len);
                if count > *most {
                    self.push(FieldError::too_many(place.path(), count, *most));
                }
            }
            CheckKind::Format(format, text) => {
                for problem in format(value.as_str().unwrap_or_default()) {
                    let why = text.map_or(problem, str::to_owned);
                    self.push(FieldError::invalid(place.path(), value.as_str().unwrap_or_default().into(), why));
                }
            }
            CheckKind::Unique { scope, by } => {
                let key = if by.is_empty() {
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                } else {
                    by.iter().map(|name| format!("{}\n", value.get(*name).unwrap_or(&NULL))).collect()
                };
                // Items whose rules are read on their own are compared below the struct that has the list.
                let here = rule.path.iter().any(|step| step.into != Into::Field);
                let holder = if here { frame } else { frame.holder() };
                let scope = scope.map_or(Scope::Line(rule.line), Scope::Named);
                if !holder.is_new(scope, key) {
                    self.push(FieldError::duplicate(place.path(), value.clone()));
                }
            }
            CheckKind::Unused(scope) => {
                if frame.knows(scope, value.as_str().unwrap_or_default()) {
                    self.push(FieldError::duplicate(place.path(), value.clone()));
                }
            }
            CheckKind::Known(scope) => {
                let here = rule.path.iter().any(|step| step.into != Into::Field);
                if here || self.errors.len() == frame.began {
                    let holder = if here { frame } else { frame.holder() };
                    holder.is_new(Scope::Named(scope), value.as_str().unwrap_or_default().to_owned());
                }
            }
            CheckKind::Same(kind, text) => {
                if old.is_some_and(|old| !same(old, value)) {
                    // A text that is not there is an empty one in Go.
                    let was_text = old.is_some_and(Value::is_string);
                    let shown = if value.is_null() && was_text { "".into() } else { value.clone() };
                    self.fail(*kind, place, shown, text);
                }
            }
            CheckKind::SamePointer => {
                if old.is_some_and(|old| old != value) {
                    self.fail(Failure::Invalid, place, value.clone(), IMMUTABLE);
                }
            }
            CheckKind::Selector => self.errors.extend(check_label_selector(value, &place.path())),
            CheckKind::Labels => {
                if value.is_object() {
                    self.errors.extend(check_labels(strings(value), &place.path()));
                }
            }
            CheckKind::Annotations => {
                if value.is_object() {
                    self.errors.extend(check_annotations(strings(value), &place.path()));
                }
            }
            CheckKind::Rules { set, .. } => {
                if let Some(set) = set {
                    self.rules(*set, target, Some(frame));
                }
            }
            CheckKind::Union { more, none, members } => {
                let mut found = 0;
                for member in members {
                    let value = value.get(member.step.name).unwrap_or(&NULL);
                    if value.is_null() {
                        continue;
                    }
                    found += 1;
                    if found > 1 {
                        self.push(FieldError::forbidden(place.child(member.refused), *more));
                    } else if let Some(set) = member.set {
                        let place = Place::Field(place, member.step.shown);
                        self.rules(set, Target { value, old: None, place: &place }, Some(frame));
                    }
                }
                if found == 0 && !none.is_empty() {
                    self.push(FieldError::required(place.path(), *none));
                }
            }
            CheckKind::Call(function) => function(self, target, frame),
        }
    }

    /// Reports an error.
    pub(super) fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Reports that a value is invalid.
    pub(super) fn invalid(
        &mut self,
        place: &Place<'_>,
        value: impl std::convert::Into<Value>,
        why: impl std::convert::Into<String>,
    ) {
        self.push(FieldError::invalid(place.path(), value.into(), why));
    }

    fn fail(&mut self, kind: Failure, place: &Place<'_>, value: Value, text: &str) {
        let path = place.path();
        self.push(match kind {
            Failure::Invalid => FieldError::invalid(path, value, text),
            Failure::Omitted => FieldError::new(FieldErrorKind::Invalid, path, None, text),
            Failure::Forbidden => FieldError::forbidden(path, text),
            Failure::Required => FieldError::required(path, text),
            Failure::NotFound => FieldError::new(FieldErrorKind::NotFound, path, Some(value), text),
            Failure::Duplicate => FieldError::new(FieldErrorKind::Duplicate, path, Some(value), text),
        });
    }

    fn find<'v>(&self, path: &TestPath, frame: &'v Frame<'v>) -> &'v Value
    where
        'a: 'v,
    {
        let start = match path.from {
            From::Here => Some(frame.value),
            From::Root => Some(self.object),
            From::Old => frame.old,
            From::Above(levels) => frame.up(levels).map(|frame| frame.value),
        };
        let found = start.and_then(|start| path.names.iter().try_fold(start, |value, name| value.get(*name)));
        found.unwrap_or(&NULL)
    }

    fn holds(&self, test: &Test, frame: &Frame<'_>) -> bool {
        let find = |path: &TestPath| self.find(path, frame);
        let number = |path: &TestPath| find(path).as_i64().unwrap_or_default();
        let text = |path: &TestPath| find(path).as_str().unwrap_or_default();
        let is_one = |path: &TestPath, words: &[&str]| match find(path) {
            Value::String(text) => words.contains(&text.as_str()),
            Value::Null => words.contains(&""),
            value => words.contains(&value.to_string().as_str()),
        };
        let unchanged = |path: &TestPath| {
            frame.old.is_some_and(|old| {
                let old = path.names.iter().try_fold(old, |value, name| value.get(*name)).unwrap_or(&NULL);
                same(old, find(path))
            })
        };
        match test {
            Test::Create => self.before.is_none(),
            Test::Update => self.before.is_some(),
            Test::Unprivileged => self.privileged == PrivilegedContainers::Refused,
            Test::Set(path) => !is_zero(find(path)),
            Test::Unset(path) => is_zero(find(path)),
            Test::Nil(path) => find(path).is_null(),
            Test::NotNil(path) => !find(path).is_null(),
            Test::In(path, words) => is_one(path, words),
            Test::NotIn(path, words) => !is_one(path, words),
            Test::Less(path, than) => number(path) < *than,
            Test::More(path, than) => number(path) > *than,
            Test::Longer(path, than) => match find(path) {
                Value::Array(items) => items.len() > *than,
                Value::Object(fields) => fields.len() > *than,
                value => value.as_str().is_some_and(|text| text.len() > *than),
            },
            Test::Equal(path, other) => same(find(path), find(other)),
            Test::Differ(path, other) => !same(find(path), find(other)),
            Test::Exceeds(path, other) => number(path) > number(other),
            Test::Prefix(path, start) => text(path).starts_with(start),
            Test::NoPrefix(path, start) => !text(path).starts_with(start),
            Test::Changed(path) => !unchanged(path),
            Test::Unchanged(path) => unchanged(path),
        }
    }
}

/// Whether Go has a zero value here: it cannot tell `""` from a string that is not there. An empty struct is not zero where
/// Go has a pointer, and empty maps are rare, so that an object counts when it is there.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// Whether two values of one field are the same to a cluster. Defaulting gives both objects the form that Go's types have, so
/// a zero that is there is one that a pointer leads to, and is not the same as nothing. Empty lists are nothing.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let held = |a: &serde_json::Map<String, Value>, b: &serde_json::Map<String, Value>| {
                a.iter().all(|(name, value)| same(value, b.get(name).unwrap_or(&NULL)))
            };
            held(a, b) && held(b, a)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => one == other || is_nothing(one) && is_nothing(other),
    }
}

/// The entries of a map of strings.
pub(super) fn strings(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// A value that is not there is shown as the empty string that Go has for it.
fn go_zero(value: &Value) -> Value {
    if value.is_null() { "".into() } else { value.clone() }
}

fn range_text(least: i64, most: i64) -> String {
    match (least, most) {
        (1, i64::MAX) => "must be greater than zero".to_owned(),
        (least, i64::MAX) => format!("must be greater than or equal to {least}"),
        (i64::MIN, most) => format!("must be less than or equal to {most}"),
        (least, most) => format!("must be between {least} and {most}, inclusive"),
    }
}
