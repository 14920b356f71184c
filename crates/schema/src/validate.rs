//! Validation of custom resources by their schema. In: a pruned and defaulted object and its type. Out: every problem as a
//! field error, with the texts of kube-apiserver. Rules in CEL are data here; `konverge-cel` evaluates them. What was wrong
//! before an update and has not changed is accepted. JSON is parsed no deeper than 128 levels, so the walk recurses.

use konverge_core::{FieldError, FieldPath};
use serde_json::{Map, Value};

use crate::arena::{Arena, ListKind, Node, OBJECT_META, Scalar, Shape, TypeId};
use crate::budget::{Budget, OverBudget};
use crate::checks::{Checks, Clause};
use crate::path::Path;

mod embedded;
mod number;
mod ratchet;
mod report;
pub(crate) mod unique;

use report::Report;

/// Checks a whole custom resource: schema, then embedded resources, then lists that are sets or maps. Nested `anyOf`,
/// `oneOf` and `allOf` can multiply the checks, so they are counted by the budget.
///
/// ```
/// use konverge_schema::{Arena, Budget, compile, validate};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let size = json!({"type": "integer", "minimum": 1});
/// let root = compile(&mut arena, Some(&json!({"type": "object", "properties": {"size": size}}))).unwrap();
/// let errors = validate(&arena, root, &json!({"size": 0}), &Budget::new(1000, 1000)).unwrap();
/// assert_eq!(errors[0].to_string(), "size: Invalid value: 0: size in body should be greater than or equal to 1");
/// ```
pub fn validate(arena: &Arena, root: TypeId, object: &Value, budget: &Budget) -> Result<Vec<FieldError>, OverBudget> {
    let errors = validate_below(arena, root, object, &FieldPath::root(), budget);
    budget.check().map(|()| errors)
}

/// The same for an update. Errors of a value that has not changed are not reported, as far as the value before can be told:
/// fields by their name, items only in lists of type map.
///
/// ```
/// use konverge_schema::{Arena, Budget, compile, validate_update};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let size = json!({"type": "integer", "minimum": 1});
/// let root = compile(&mut arena, Some(&json!({"type": "object", "properties": {"size": size}}))).unwrap();
/// let update = |old, new| validate_update(&arena, root, &new, &old, &Budget::new(1000, 1000)).unwrap().len();
/// assert_eq!(update(json!({"size": 0}), json!({"size": 0})), 0);
/// assert_eq!(update(json!({"size": 0}), json!({"size": -1})), 1);
/// ```
pub fn validate_update(
    arena: &Arena,
    root: TypeId,
    object: &Value,
    old: &Value,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    // Most objects are valid, and nothing has to be compared then.
    let errors = validate(arena, root, object, budget)?;
    if errors.is_empty() {
        return Ok(errors);
    }
    let prefix = FieldPath::root();
    let mut validator = Validator::new(arena, &prefix, budget);
    validator.old = Some(old);
    let mut errors = validator.run(root, object);
    errors.append(&mut validator.embedded);
    if !validator.lists.is_empty() {
        // Lists with duplicates are accepted if there were duplicates before.
        let mut before = Validator::new(arena, &prefix, budget);
        before.run(root, old);
        if before.lists.is_empty() {
            errors.append(&mut validator.lists);
        }
    }
    budget.check().map(|()| errors)
}

/// The same for a value at `prefix`. The caller checks whether the budget was exceeded.
pub(crate) fn validate_below(
    arena: &Arena,
    id: TypeId,
    value: &Value,
    prefix: &FieldPath,
    budget: &Budget,
) -> Vec<FieldError> {
    let mut validator = Validator::new(arena, prefix, budget);
    let mut errors = validator.run(id, value);
    errors.append(&mut validator.embedded);
    errors.append(&mut validator.lists);
    errors
}

/// For how many bytes of a text its length and format are checked in about the time of one step.
const BYTES_PER_STEP: u64 = 8;

/// A type or a member of a logical clause (`allOf`, `anyOf`, …): both constrain a value in the same way.
#[derive(Clone, Copy)]
enum Constraint<'a> {
    Type(&'a Node),
    Clause(&'a Clause),
}

/// What is declared for the fields of an object.
enum Inside<'a> {
    Nothing,
    Fields,
    Each(Constraint<'a>),
}

impl<'a> Constraint<'a> {
    fn checks(self) -> Option<&'a Checks> {
        match self {
            Self::Type(node) => node.checks.as_deref(),
            Self::Clause(clause) => Some(&clause.checks),
        }
    }

    fn nullable(self) -> bool {
        match self {
            Self::Type(node) => node.nullable || matches!(node.shape, Shape::Scalar(Scalar::Time | Scalar::MicroTime)),
            Self::Clause(_) => false,
        }
    }

    /// The JSON types accepted, with commas between them; empty when all are.
    fn type_names(self) -> &'a str {
        match self {
            Self::Type(node) if node.checks.as_ref().is_some_and(|checks| checks.any_type) => "",
            Self::Type(node) => match &node.shape {
                Shape::Any | Shape::Opaque => "",
                Shape::Struct { .. } | Shape::Map { .. } => "object",
                Shape::List { .. } => "array",
                Shape::Scalar(Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime) => "string",
                Shape::Scalar(Scalar::Int32 | Scalar::Int64) => "integer",
                Shape::Scalar(Scalar::Number) => "number",
                Shape::Scalar(Scalar::Boolean) => "boolean",
                Shape::Scalar(Scalar::IntOrString | Scalar::Quantity) => "integer,string",
            },
            Self::Clause(clause) => match &*clause.types {
                [] => "",
                [one] => one,
                _ => "integer,string",
            },
        }
    }
}

/// The JSON type of a value, and the format Go's decoder gives it.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

struct Validator<'a> {
    arena: &'a Arena,
    meta: Option<TypeId>,
    prefix: &'a FieldPath,
    budget: &'a Budget,
    /// What the value that is checked was before, if that can be told.
    old: Option<&'a Value>,
    embedded: Vec<FieldError>,
    lists: Vec<FieldError>,
}

impl<'a> Validator<'a> {
    fn new(arena: &'a Arena, prefix: &'a FieldPath, budget: &'a Budget) -> Self {
        let meta = arena.named(OBJECT_META);
        Self { arena, meta, prefix, budget, old: None, embedded: Vec::new(), lists: Vec::new() }
    }

    /// The errors of the schema itself.
    fn run(&mut self, id: TypeId, value: &Value) -> Vec<FieldError> {
        let mut report = Report::new(self.prefix, self.budget);
        self.value(Constraint::Type(self.arena.node(id)), value, &Path::Root, &mut report);
        report.into_errors()
    }

    /// Reports what is wrong with a value that has changed, and what is in it. Returns how many checks were made.
    fn value(&mut self, constraint: Constraint<'a>, value: &Value, path: &Path<'_>, report: &mut Report<'_>) -> usize {
        let before = report.len();
        let count = self.check_value(constraint, value, path, report);
        if let (Some(old), Constraint::Type(node)) = (self.old, constraint)
            && report.len() > before
            && ratchet::is_unchanged(self.arena, self.meta, node, value, old, self.budget)
        {
            report.truncate(before);
        }
        count
    }

    /// The same for a part of a value, which was `old` before.
    fn part(
        &mut self,
        old: Option<&'a Value>,
        constraint: Constraint<'a>,
        value: &Value,
        path: &Path<'_>,
        report: &mut Report<'_>,
    ) -> usize {
        let whole = std::mem::replace(&mut self.old, old);
        let count = self.value(constraint, value, path, report);
        self.old = whole;
        count
    }

    /// Reports what is wrong with a value and what is in it. Returns how many checks were made, by which the closest
    /// member of a failed `anyOf` or `oneOf` is chosen.
    fn check_value(
        &mut self,
        constraint: Constraint<'a>,
        value: &Value,
        path: &Path<'_>,
        report: &mut Report<'_>,
    ) -> usize {
        if !self.budget.spend(1) {
            return 0;
        }
        let checks = constraint.checks();
        if value.is_null() {
            let typed = check_type(constraint, value, path, report);
            if let Some(checks) = checks {
                self.enumeration(checks, value, path, report);
            }
            return typed;
        }
        let format = checks.and_then(|checks| checks.format.as_ref());
        // What applies to every value: the clauses, the enumeration, and the value itself.
        let mut count = 4;
        if !constraint.type_names().is_empty() || format.is_some() {
            count += 1 + check_type(constraint, value, path, report);
        }
        if let Some(checks) = checks {
            count += self.logic(checks, value, path, report);
        }
        match value {
            Value::String(text) => {
                count += 1;
                if let Some(checks) = checks.filter(|_| self.budget.spend(text.len() as u64 / BYTES_PER_STEP)) {
                    self.text(checks, text, path, report);
                    if let Some(format) = format.filter(|format| format.is_textual()) {
                        count += 1;
                        if !format.accepts(text) {
                            report.wrong_type(path, format.as_str(), text);
                        }
                    }
                }
            }
            Value::Number(number) => {
                count += 2;
                let kind = constraint.type_names();
                if checks.is_some() || kind == "integer" {
                    number::check(checks, kind, number, path, report);
                }
            }
            Value::Array(items) => count += 1 + self.list(constraint, items, path, report),
            _ => {}
        }
        if let Some(checks) = checks {
            self.enumeration(checks, value, path, report);
        }
        if let Value::Object(map) = value {
            count += 1 + self.object(constraint, map, path, report);
        }
        count
    }

    fn list(&mut self, constraint: Constraint<'a>, items: &[Value], path: &Path<'_>, report: &mut Report<'_>) -> usize {
        let mut count = 1;
        let mut keys = &ListKind::Atomic;
        let each = match constraint {
            Constraint::Type(node) => match &node.shape {
                Shape::List { item, kind } => {
                    keys = kind;
                    if *kind != ListKind::Atomic {
                        unique::check(kind, items, path, self.prefix, self.budget, &mut self.lists);
                    }
                    Some(Constraint::Type(self.arena.node(*item)))
                }
                _ => None,
            },
            Constraint::Clause(clause) => clause.items.as_deref().map(Constraint::Clause),
        };
        if let Some(each) = each {
            let olds = self.old.and_then(|old| ratchet::old_items(keys, old, self.budget));
            for (at, item) in items.iter().enumerate() {
                let old = olds.as_ref().and_then(|olds| olds.find(item));
                count += self.part(old, each, item, &Path::Index(path, at), report);
            }
        }
        if let Some(checks) = constraint.checks() {
            let size = items.len() as u64;
            if let Some(least) = checks.min_items.filter(|least| size < *least) {
                report.invalid(path, size.into(), format_args!("should have at least {least} items"));
            }
            if let Some(most) = checks.max_items.filter(|most| size > *most) {
                report.too_many(path, size, most, "items");
            }
            if checks.unique_items && unique::has_repeated(items) {
                report.invalid(path, "".into(), format_args!("shouldn't contain duplicates"));
            }
        }
        count
    }

    fn object(
        &mut self,
        constraint: Constraint<'a>,
        map: &Map<String, Value>,
        path: &Path<'_>,
        report: &mut Report<'_>,
    ) -> usize {
        let mut count = 0;
        let checks = constraint.checks();
        if let Some(checks) = checks {
            let size = map.len() as u64;
            if let Some(least) = checks.min_properties.filter(|least| size < *least) {
                report.invalid(path, size.into(), format_args!("should have at least {least} properties"));
            }
            if let Some(most) = checks.max_properties.filter(|most| size > *most) {
                report.too_many(path, size, most, "properties");
            }
        }
        match self.inside(constraint) {
            Inside::Nothing => {}
            Inside::Each(each) => {
                for (key, value) in map {
                    let old = self.old.and_then(|old| old.get(key));
                    count += self.part(old, each, value, &Path::Key(path, key), report);
                }
            }
            Inside::Fields => {
                for (name, value) in map {
                    if let Some(field) = self.field(constraint, name) {
                        // The version of an object is what it is read as, so that nobody can see it change.
                        let is_type = matches!(path, Path::Root) && matches!(&**name, "apiVersion" | "kind");
                        let old = self.old.filter(|_| !is_type).and_then(|old| old.get(name));
                        count += self.part(old, field, value, &Path::Field(path, name), report);
                    }
                }
            }
        }
        let required = checks.map_or(&[][..], |checks| &checks.required);
        if !self.budget.spend(required.len() as u64) {
            return count;
        }
        for name in required {
            if !map.contains_key(&**name) {
                report.required(&Path::Field(path, name));
            }
        }
        if let Constraint::Type(Node { embedded: true, .. }) = constraint {
            embedded::check(map, path, self.prefix, self.budget, &mut self.embedded);
        }
        count
    }

    fn inside(&self, constraint: Constraint<'a>) -> Inside<'a> {
        match constraint {
            Constraint::Type(node) => match &node.shape {
                Shape::Map { value, .. } => Inside::Each(Constraint::Type(self.arena.node(*value))),
                Shape::Struct { .. } => Inside::Fields,
                _ => Inside::Nothing,
            },
            Constraint::Clause(clause) if clause.properties.is_empty() => Inside::Nothing,
            Constraint::Clause(_) => Inside::Fields,
        }
    }

    /// The constraint of one field. ObjectMeta has none: it is decoded, and validated as metadata.
    fn field(&self, constraint: Constraint<'a>, name: &str) -> Option<Constraint<'a>> {
        match constraint {
            Constraint::Type(node) => {
                let Shape::Struct { fields, .. } = &node.shape else { return None };
                let at = fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
                (Some(fields[at].ty) != self.meta).then(|| Constraint::Type(self.arena.node(fields[at].ty)))
            }
            Constraint::Clause(clause) => {
                let at = clause.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
                Some(Constraint::Clause(&clause.properties[at].1))
            }
        }
    }

    /// `anyOf`, `oneOf`, `allOf` and `not`, in this order.
    fn logic(&mut self, checks: &'a Checks, value: &Value, path: &Path<'_>, report: &mut Report<'_>) -> usize {
        let mut count = 0;
        if !checks.any_of.is_empty() {
            let mut best: Option<(usize, Report<'_>)> = None;
            let mut passed = None;
            for clause in &checks.any_of {
                let (made, failures) = self.attempt(clause, value, path);
                if failures.is_empty() {
                    passed = Some(made);
                    break;
                }
                if best.as_ref().is_none_or(|(most, _)| made > *most) {
                    best = Some((made, failures));
                }
            }
            match (passed, best) {
                (Some(made), _) => count += made,
                (None, Some((made, failures))) => {
                    report.composite(path, "must validate at least one schema (anyOf)");
                    report.append(failures);
                    count += made;
                }
                (None, None) => {}
            }
        }
        if !checks.one_of.is_empty() {
            let mut best: Option<(usize, Report<'_>)> = None;
            let mut passed = Vec::new();
            for clause in &checks.one_of {
                let (made, failures) = self.attempt(clause, value, path);
                if failures.is_empty() {
                    passed.push(made);
                } else if passed.is_empty() && best.as_ref().is_none_or(|(most, _)| made > *most) {
                    best = Some((made, failures));
                }
            }
            match passed.as_slice() {
                [made] => count += made,
                [] => {
                    report.composite(path, "must validate one and only one schema (oneOf). Found none valid");
                    if let Some((made, failures)) = best {
                        report.append(failures);
                        count += made;
                    }
                }
                many => {
                    let found = format!("Found {} valid alternatives", many.len());
                    report.composite(path, &format!("must validate one and only one schema (oneOf). {found}"));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for clause in &checks.all_of {
                let (made, failures) = self.attempt(clause, value, path);
                valid += usize::from(failures.is_empty());
                report.append(failures);
                count += made;
            }
            if valid < checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                report.composite(path, &format!("must validate all the schemas (allOf){none}"));
            }
        }
        if checks.not.as_ref().is_some_and(|not| self.attempt(not, value, path).1.is_empty()) {
            report.composite(path, "must not validate the schema (not)");
        }
        count
    }

    fn text(&self, checks: &Checks, text: &str, path: &Path<'_>, report: &mut Report<'_>) {
        if checks.max_length.is_none() && checks.min_length.is_none() && checks.pattern.is_none() {
            return;
        }
        let length = text.chars().count() as u64;
        if let Some(most) = checks.max_length.filter(|most| length > *most) {
            report.too_long(path, most);
        } else if let Some(least) = checks.min_length.filter(|least| length < *least) {
            report.invalid(path, text.into(), format_args!("should be at least {least} chars long"));
        } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.matches(text, self.budget)) {
            report.invalid(path, text.into(), format_args!("should match '{}'", pattern.as_str()));
        }
    }

    fn enumeration(&self, checks: &Checks, value: &Value, path: &Path<'_>, report: &mut Report<'_>) {
        if self.budget.spend(checks.enumeration.len() as u64 / 8) {
            check_enum(checks, value, path, report);
        }
    }

    fn attempt(&mut self, clause: &'a Clause, value: &Value, path: &Path<'_>) -> (usize, Report<'a>) {
        let mut failures = Report::new(self.prefix, self.budget);
        let made = self.value(Constraint::Clause(clause), value, path, &mut failures);
        (made, failures)
    }
}

/// Checks the JSON type. Returns 1 when it is right.
fn check_type(constraint: Constraint<'_>, value: &Value, path: &Path<'_>, report: &mut Report<'_>) -> usize {
    let names = constraint.type_names();
    let (found, found_format) = type_of(value);
    if found == names {
        return 1;
    }
    let accepts = |name: &str| names.split(',').any(|known| known == name);
    if value.is_null() {
        if names.is_empty() || constraint.nullable() {
            return 1;
        }
        report.wrong_type(path, names, found);
        return 0;
    }
    let integral = || value.as_f64().is_some_and(number::is_integer);
    let right = accepts(found)
        || (found == "number" && accepts("integer") && integral())
        || (found == "integer" && accepts("number"));
    if right {
        return 1;
    }
    if let Some(format) = constraint.checks().and_then(|checks| checks.format.as_ref()) {
        match value {
            // Go's validator leaves strings and lists with a format to the check of the format.
            Value::String(_) | Value::Array(_) if !accepts("number") && !accepts("integer") => return 1,
            Value::String(_) | Value::Array(_) => {}
            _ if found_format == format.as_str() => {}
            _ => {
                report.wrong_type(path, format.as_str(), found_format);
                return 0;
            }
        }
    }
    report.wrong_type(path, names, found);
    0
}

fn check_enum(checks: &Checks, value: &Value, path: &Path<'_>, report: &mut Report<'_>) {
    // Null is never among the values, even where the schema lists it.
    let same = |known: &Value| match (known.as_f64(), value.as_f64()) {
        (Some(known), Some(value)) => known == value,
        _ => known == value && !value.is_null(),
    };
    if !checks.enumeration.is_empty() && !checks.enumeration.iter().any(same) {
        report.unsupported(path, value, &checks.enumeration);
    }
}
