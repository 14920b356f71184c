//! Objects against the rules of their definition. In: an object that its schema accepts, and the one before it. Out: an error
//! for each rule that says no or fails; for what was wrong before and has not changed, a warning.

use konverge_core::{FieldError, FieldErrorKind, FieldPath};
use konverge_schema::{Budget, OverBudget};
use serde_json::{Map, Value as Json};

use crate::eval::{Fault, evaluate};
use crate::schema::{Kind, Rule, Schema};
use crate::stack::with_stack_for;
use crate::value::Value;

use super::correlate::{Correlation, old_items};
use super::{CompiledRule, RuleSet, RuleTree};

/// What all rules together may cost for one object.
const OBJECT_BUDGET: u64 = 10_000_000;

/// The longest message that a messageExpression may give, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// What rules say of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleOutcome {
    /// Why the object is refused; empty if it is not.
    pub errors: Vec<FieldError>,
    /// What is wrong with parts of it that have not changed.
    pub warnings: Vec<String>,
    /// What the rules cost, in the units of Kubernetes; none if they were too expensive.
    pub cost: Option<u64>,
}

impl RuleSet {
    /// Evaluates every rule. `old` is the object before an update; rules that compare with it are left out without it.
    pub fn validate(&self, object: &Json, old: Option<&Json>, budget: &Budget) -> Result<RuleOutcome, OverBudget> {
        self.validate_at(&Place::Root, object, old, old, budget)
    }

    /// What the rules say of a default, as a value that stays and as one that is new. `path` is where it stands.
    pub(super) fn validate_default(
        &self,
        path: &FieldPath,
        value: &Json,
        budget: &Budget,
    ) -> Result<Vec<FieldError>, OverBudget> {
        for old in [Some(value), None] {
            let outcome = self.validate_at(&Place::At(path), value, old, None, budget)?;
            if !outcome.errors.is_empty() {
                return Ok(outcome.errors);
            }
        }
        Ok(Vec::new())
    }

    /// `excused`: what is wrong is only warned of as far as this value has it, too.
    fn validate_at(
        &self,
        place: &Place<'_>,
        object: &Json,
        old: Option<&Json>,
        excused: Option<&Json>,
        budget: &Budget,
    ) -> Result<RuleOutcome, OverBudget> {
        let mut validator = Validator { budget, left: OBJECT_BUDGET, outcome: RuleOutcome::default() };
        // A rule that ends the validation has been reported.
        let ended = with_stack_for(self.levels, || {
            let root = |old| Correlation::root(object, old, &self.schema);
            let correlation = excused.map_or_else(Correlation::default, root);
            validator.value(&self.schema, &self.rules, place, object, old, &correlation).is_err()
        });
        validator.outcome.cost = (!ended).then_some(OBJECT_BUDGET - validator.left);
        budget.check().map(|()| validator.outcome)
    }
}

/// No further rule is evaluated.
struct Stop;

/// Where a walk is, without allocating.
enum Place<'p> {
    Root,
    At(&'p FieldPath),
    Field(&'p Place<'p>, &'p str),
    Key(&'p Place<'p>, &'p str),
    Index(&'p Place<'p>, usize),
}

impl Place<'_> {
    fn path(&self) -> FieldPath {
        match self {
            Self::Root => FieldPath::root(),
            Self::At(path) => (*path).clone(),
            Self::Field(outer, name) => outer.path().child(name),
            Self::Key(outer, key) => outer.path().key(key),
            Self::Index(outer, at) => outer.path().index(*at),
        }
    }
}

struct Validator<'j> {
    budget: &'j Budget,
    left: u64,
    outcome: RuleOutcome,
}

impl<'j> Validator<'j> {
    fn value(
        &mut self,
        schema: &'j Schema,
        tree: &'j RuleTree,
        place: &Place<'_>,
        value: &'j Json,
        old: Option<&'j Json>,
        correlation: &Correlation<'_, 'j>,
    ) -> Result<(), Stop> {
        if value.is_null() {
            return Ok(());
        }
        if !self.budget.spend(1) {
            return Err(Stop);
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(schema, tree, place, value, old, correlation)?;
        match value {
            Json::Array(items) => {
                let (Some(tree), Some(of)) = (&tree.items, &schema.items) else { return Ok(()) };
                let olds = old_items(schema, old, self.budget);
                for (at, item) in items.iter().enumerate() {
                    let old = olds.as_ref().and_then(|olds| olds.find(item));
                    self.value(of, tree, &Place::Index(place, at), item, old, &correlation.index(item, old))?;
                }
                Ok(())
            }
            Json::Object(fields) => self.fields(schema, tree, place, fields, old, correlation),
            _ => Ok(()),
        }
    }

    fn fields(
        &mut self,
        schema: &'j Schema,
        tree: &'j RuleTree,
        place: &Place<'_>,
        fields: &'j Map<String, Json>,
        old: Option<&'j Json>,
        correlation: &Correlation<'_, 'j>,
    ) -> Result<(), Stop> {
        let old = |name: &str| old.and_then(|old| old.get(name));
        if let (Some(tree), Some(of)) = (&tree.additional, &schema.additional) {
            for (name, value) in fields {
                self.value(of, tree, &Place::Key(place, name), value, old(name), &correlation.key(name))?;
            }
        }
        for (name, tree) in &tree.properties {
            if let (Some(value), Some(property)) = (fields.get(&**name), schema.property(name)) {
                let place = Place::Field(place, name);
                self.value(&property.schema, tree, &place, value, old(name), &correlation.key(name))?;
            }
        }
        Ok(())
    }

    fn rules(
        &mut self,
        schema: &'j Schema,
        tree: &'j RuleTree,
        place: &Place<'_>,
        value: &'j Json,
        old: Option<&'j Json>,
        correlation: &Correlation<'_, 'j>,
    ) -> Result<(), Stop> {
        if tree.rules.is_empty() {
            return Ok(());
        }
        let kind = schema.kind.type_name();
        let invalid = |place: &Place<'_>, why: String| FieldError::invalid(place.path(), kind.into(), why);
        if self.left == 0 {
            self.outcome.errors.push(invalid(place, OUT_OF_BUDGET.to_owned()));
            return Err(Stop);
        }
        let own = Value::from_json(value, schema).ok();
        let before = old.and_then(|old| Value::from_json(old, schema).ok());
        for compiled in &tree.rules {
            let rule = &compiled.rule;
            if let Some(why) = &compiled.error {
                self.outcome.errors.push(invalid(place, format!("rule compile error: {why}")));
                continue;
            }
            let Some(program) = &compiled.program else { continue };
            let optional = rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !optional {
                continue;
            }
            let old_self = match (optional, before.clone()) {
                (false, before) => before,
                (true, Some(before)) => Some(Value::some(before)),
                (true, None) => Some(Value::Optional(None)),
            };
            let variables = [own.clone(), old_self];
            let (result, cost) = evaluate(program, &variables, self.budget);
            if let Err(Fault::OverBudget) = result {
                return Err(Stop);
            }
            let Some(left) = self.left.checked_sub(cost) else {
                self.outcome.errors.push(invalid(place, OUT_OF_BUDGET.to_owned()));
                return Err(Stop);
            };
            self.left = left;
            match result {
                Ok(Value::Bool(true)) => {}
                // The message sees what was there before as it is, also where the rule sees an optional value.
                Ok(_) => self.refuse(schema, compiled, &[own.clone(), before.clone()], place, value, correlation)?,
                Err(Fault::Error(why)) => {
                    let shown = shown(rule);
                    let why = match why.starts_with("no such overload") {
                        true => format!(
                            "'{why}': call arguments did not match a supported operator, function or macro \
                             signature for rule: {shown}"
                        ),
                        false => format!("{why} evaluating rule: {shown}"),
                    };
                    self.outcome.errors.push(invalid(place, why));
                }
                Err(Fault::CostLimit | Fault::OverBudget | Fault::Ask(_)) => {
                    let why = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
                         to call cost exceeds limit for rule: {}",
                        shown(rule)
                    );
                    self.outcome.errors.push(invalid(place, why));
                    return Err(Stop);
                }
            }
        }
        Ok(())
    }

    /// Reports a rule that says no.
    fn refuse(
        &mut self,
        schema: &'j Schema,
        compiled: &'j CompiledRule,
        variables: &[Option<Value<'j>>],
        place: &Place<'_>,
        value: &'j Json,
        correlation: &Correlation<'_, 'j>,
    ) -> Result<(), Stop> {
        let mut path = place.path();
        if let Some(below) = &compiled.field_path {
            path = path.child(below.as_str());
        }
        let ratchets = !compiled.uses_old_self && correlation.is_unchanged(self.budget);
        let (detail, end) = match self.message(compiled, variables) {
            Ok(message) => (message.unwrap_or_else(|| default_message(&compiled.rule)), false),
            Err(why) => (why, true),
        };
        let error = if end {
            FieldError::invalid(path, schema.kind.type_name().into(), detail)
        } else {
            let shown = (!matches!(schema.kind, Kind::Object | Kind::Array)).then(|| value.clone());
            match compiled.rule.reason.as_deref() {
                Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
                Some("FieldValueRequired") => FieldError::required(path, detail),
                Some("FieldValueDuplicate") => FieldError::new(FieldErrorKind::Duplicate, path, shown, ""),
                _ => FieldError::new(FieldErrorKind::Invalid, path, shown, detail),
            }
        };
        if ratchets {
            self.outcome.warnings.push(error.to_string());
        } else {
            self.outcome.errors.push(error);
        }
        if end { Err(Stop) } else { Ok(()) }
    }

    /// What the messageExpression gives, if it gives something that can be shown. The error ends the validation.
    fn message(
        &mut self,
        compiled: &'j CompiledRule,
        variables: &[Option<Value<'j>>],
    ) -> Result<Option<String>, String> {
        let Some(program) = &compiled.message else { return Ok(None) };
        let (result, cost) = evaluate(program, variables, self.budget);
        let Some(left) = self.left.checked_sub(cost) else {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation \
                        rules will be run"
                    .to_owned(),
            );
        };
        match result {
            Err(Fault::CostLimit | Fault::OverBudget | Fault::Ask(_)) => {
                let source = &compiled.rule.message_expression;
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source:?}"
                ))
            }
            result => {
                self.left = left;
                let Ok(Value::String(text)) = result else { return Ok(None) };
                let text = text.trim();
                let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
                Ok(fits.then(|| text.to_owned()))
            }
        }
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

fn default_message(rule: &Rule) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", shown(rule)) } else { rule.message.trim().to_owned() }
}

/// How a rule is named in errors: by its message, or by itself.
fn shown(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}
