//! The problems found so far. In: facts about one value. Out: field errors with the texts and kinds of kube-apiserver. The
//! same message is reported once, even if several clauses cause it.

use std::collections::HashSet;
use std::fmt;

use konverge_core::{FieldError, FieldErrorKind, FieldPath};
use serde_json::Value;

use crate::budget::{Budget, size};
use crate::path::Path;

/// How many steps of a walk take about as long as formatting a problem.
const STEPS_PER_PROBLEM: u64 = 16;

/// Problems, each with the message that identifies it.
pub(super) struct Report<'a> {
    prefix: &'a FieldPath,
    budget: &'a Budget,
    found: Vec<(String, FieldError)>,
    reported: HashSet<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(prefix: &'a FieldPath, budget: &'a Budget) -> Self {
        Self { prefix, budget, found: Vec::new(), reported: HashSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// Forgets the problems after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        for (message, _) in self.found.drain(count..) {
            self.reported.remove(&message);
        }
    }

    pub(super) fn append(&mut self, other: Report<'_>) {
        for (message, error) in other.found {
            if !self.spend() {
                return;
            }
            self.push(message, error);
        }
    }

    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.found.into_iter().map(|(_, error)| error).collect()
    }

    /// A value of another JSON type or format than `expected`.
    pub(super) fn wrong_type(&mut self, path: &Path<'_>, expected: &str, found: &str) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let message = format!("{name} in body must be of type {expected}: {found:?}");
        self.add(FieldErrorKind::TypeInvalid, &name, Some(found.into()), message);
    }

    /// An invalid value: `path in body <complaint>`.
    pub(super) fn invalid(&mut self, path: &Path<'_>, value: Value, complaint: fmt::Arguments<'_>) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let message = format!("{name} in body {complaint}");
        self.add(FieldErrorKind::Invalid, &name, Some(value), message);
    }

    /// The same, with a message that does not begin with the path.
    pub(super) fn invalid_as(&mut self, path: &Path<'_>, value: Value, message: String) {
        if !self.spend() {
            return;
        }
        self.add(FieldErrorKind::Invalid, &path.dotted(), Some(value), message);
    }

    pub(super) fn required(&mut self, path: &Path<'_>) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let error = FieldError::required(self.at(&name), "");
        self.push(format!("{name} in body is required"), error);
    }

    pub(super) fn unsupported(&mut self, path: &Path<'_>, value: &Value, known: &[Value]) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let texts: Vec<String> =
            known.iter().map(|known| known.as_str().map_or_else(|| known.to_string(), str::to_owned)).collect();
        let value = if value.is_number() { shown(value) } else { value.clone() };
        let error = FieldError::not_supported(self.at(&name), value, texts.iter().map(String::as_str));
        self.push(format!("{name} in body should be one of {texts:?}"), error);
    }

    pub(super) fn too_long(&mut self, path: &Path<'_>, most: u64) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let unit = if most == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {most} {unit}");
        let error = FieldError::new(FieldErrorKind::TooLong, self.at(&name), None, detail);
        self.push(format!("{name} in body should be at most {most} chars long"), error);
    }

    pub(super) fn too_many(&mut self, path: &Path<'_>, size: u64, most: u64, what: &str) {
        if !self.spend() {
            return;
        }
        let name = path.dotted();
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let error = FieldError::too_many(self.at(&name), count(size), count(most));
        self.push(format!("{name} in body should have at most {most} {what}"), error);
    }

    /// A failed `anyOf`, `oneOf`, `allOf` or `not`, which kube-apiserver reports without a field.
    pub(super) fn composite(&mut self, path: &Path<'_>, complaint: &str) {
        if !self.spend() {
            return;
        }
        self.push_without_field(format!("{:?} {complaint}", path.dotted()));
    }

    /// A problem that kube-apiserver reports without a field.
    pub(super) fn without_field(&mut self, message: String) {
        if !self.spend() {
            return;
        }
        self.push_without_field(message);
    }

    fn push_without_field(&mut self, message: String) {
        let error = FieldError::invalid(self.prefix.clone(), "".into(), message.clone());
        self.push(message, error);
    }

    fn add(&mut self, kind: FieldErrorKind, name: &str, value: Option<Value>, message: String) {
        let error = FieldError::new(kind, self.at(name), value.as_ref().map(shown), message.clone());
        self.push(message, error);
    }

    fn at(&self, name: &str) -> FieldPath {
        if name.is_empty() { self.prefix.clone() } else { self.prefix.child(name) }
    }

    /// Spends what it costs to format one problem. Every failing clause reports its problems, so nested clauses spend most
    /// on this.
    fn spend(&self) -> bool {
        self.budget.spend(STEPS_PER_PROBLEM)
    }

    fn push(&mut self, message: String, error: FieldError) {
        let bytes = message.len() + error.value.as_ref().map_or(0, size);
        if self.budget.produce(bytes) && !self.reported.contains(&message) {
            self.reported.insert(message.clone());
            self.found.push((message, error));
        }
    }
}

/// A number the way Go prints it: one without a fraction has no decimal point.
fn shown(value: &Value) -> Value {
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15 => Value::from(number as i64),
        _ => value.clone(),
    }
}
