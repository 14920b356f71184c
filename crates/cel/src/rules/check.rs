//! The rules of a definition, judged when it is written. In: a structural schema. Out: rules that do not compile, that could
//! cost too much, or that compare with old values where there are none.

use konverge_core::{FieldError, FieldErrorKind, FieldPath};
use konverge_schema::{Budget, OverBudget};
use serde_json::Value as Json;

use crate::decl::Decl;
use crate::schema::{Kind, ListType, Rule, Schema};

use super::{SELF_TYPE, compile_rules, field_path};

/// What one rule may cost, and what all rules of a schema may cost together.
const RULE_LIMIT: u64 = 10_000_000;
const TOTAL_LIMIT: u64 = 100_000_000;

/// Compiling one character of a rule takes about as long as so many steps, and a rule as such takes this many.
const STEPS_PER_CHARACTER: u64 = 20;
const STEPS_PER_RULE: u64 = 500;

/// Judges the rules of a schema that has no other errors. `path` is where the schema stands.
///
/// ```
/// use konverge_cel::check_rules;
/// use konverge_core::FieldPath;
/// use konverge_schema::Budget;
/// use serde_json::json;
/// let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.size > 1"}]});
/// let errors = check_rules(&schema, &FieldPath::new("schema"), Budget::unlimited()).unwrap();
/// assert!(errors[0].detail.contains("undefined field 'size'"));
/// ```
pub fn check_rules(schema: &Json, path: &FieldPath, budget: &Budget) -> Result<Vec<FieldError>, OverBudget> {
    let root = Schema::root(schema);
    if !root.has_rules() {
        return Ok(Vec::new());
    }
    let mut checker = RuleChecker { budget, errors: Vec::new(), total: 0, expensive: Vec::new() };
    checker.schema(&root, path, Some(1), None);
    budget.check()?;
    let RuleChecker { mut errors, total, mut expensive, .. } = checker;
    if total > TOTAL_LIMIT {
        expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (path, _) in expensive.into_iter().take(4) {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(path, why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path.clone(), too_expensive(what, total, TOTAL_LIMIT)));
    }
    Ok(errors)
}

struct RuleChecker<'a> {
    budget: &'a Budget,
    errors: Vec<FieldError>,
    total: u64,
    /// Rules that are at least a hundredth of what all may cost.
    expensive: Vec<(FieldPath, u64)>,
}

impl RuleChecker<'_> {
    /// `cardinality`: how often the value can be in an object, if lists and maps around it are bounded. `uncorrelatable`: the
    /// list around it whose items have no old values.
    fn schema(
        &mut self,
        schema: &Schema,
        path: &FieldPath,
        cardinality: Option<u64>,
        uncorrelatable: Option<&FieldPath>,
    ) {
        if !self.budget.spend(1) {
            return;
        }
        let factor = match schema.kind {
            Kind::Object if schema.additional.is_some() => schema.max_properties,
            Kind::Array => schema.max_items,
            _ => Some(1),
        };
        let factor = factor.map(|factor| u64::try_from(factor).unwrap_or_default());
        let below = cardinality.zip(factor).map(|(outer, factor)| outer.saturating_mul(factor));
        if let Some(additional) = &schema.additional {
            self.schema(additional, &path.child("additionalProperties"), below, uncorrelatable);
        }
        for property in &schema.properties {
            let path = path.child("properties").key(&property.name);
            self.schema(&property.schema, &path, below, uncorrelatable);
        }
        if let Some(items) = &schema.items {
            let uncorrelatable = uncorrelatable.or_else(|| (schema.list_type != ListType::Map).then_some(path));
            self.schema(items, &path.child("items"), below, uncorrelatable);
        }
        self.rules(schema, path, cardinality, uncorrelatable);
    }

    fn rules(
        &mut self,
        schema: &Schema,
        path: &FieldPath,
        cardinality: Option<u64>,
        uncorrelatable: Option<&FieldPath>,
    ) {
        let path = path.child("x-kubernetes-validations");
        for (at, rule) in schema.rules.iter().enumerate() {
            if !rule.field_path.is_empty() && field_path::resolve(&rule.field_path, schema).is_none() {
                let at = path.index(at).child("fieldPath");
                let value = rule.field_path.as_str().into();
                self.errors.push(FieldError::invalid(at, value, "must be a valid path"));
                return;
            }
        }
        if !schema.rules.is_empty() && Decl::new(schema, SELF_TYPE).is_none() {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to \
                       convert structural schema to CEL declarations";
            self.errors.push(FieldError::new(FieldErrorKind::Internal, path, None, why));
            return;
        }
        let budget = self.budget;
        let (compiled, most) = compile_rules(schema, |rule: &Rule| {
            let length = (rule.rule.len() + rule.message_expression.len()) as u64;
            budget.spend(STEPS_PER_RULE + length * STEPS_PER_CHARACTER)
        });
        for (at, compiled) in compiled.iter().enumerate() {
            let path = path.index(at);
            let (rule_path, message_path) = (path.child("rule"), path.child("messageExpression"));
            self.cost("estimated rule cost", &rule_path, compiled.max_cost.saturating_mul(cardinality.unwrap_or(most)));
            let invalid = |path: FieldPath, why: &str| {
                let detail = format!("{}: {why}", shown(&compiled.rule));
                FieldError::new(FieldErrorKind::Invalid, path, None, detail)
            };
            if let Some(why) = &compiled.error {
                self.errors.push(invalid(rule_path.clone(), why));
            }
            match &compiled.message_error {
                Some(why) => self.errors.push(invalid(message_path, why)),
                None if compiled.message.is_some() => {
                    self.cost("estimated messageExpression cost", &message_path, compiled.message_max_cost);
                }
                None => {}
            }
            if compiled.uses_old_self {
                if let Some(within) = uncorrelatable {
                    let why =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                    self.errors.push(FieldError::invalid(rule_path, compiled.rule.rule.as_str().into(), why));
                }
            } else if let Some(optional) = compiled.rule.optional_old_self {
                let why = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(path.child("optionalOldSelf"), optional.into(), why));
            }
        }
    }

    fn cost(&mut self, what: &str, path: &FieldPath, cost: u64) {
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(path.clone(), too_expensive(what, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_LIMIT / 100 {
            self.expensive.push((path.clone(), cost));
        }
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as kube-apiserver shows it: the fields of its internal type, in their order there.
fn shown(rule: &Rule) -> String {
    // Go escapes what HTML would misread.
    let text = |text: &str| {
        let quoted = Json::from(text).to_string();
        quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let reason = rule.reason.as_deref().map_or_else(|| "null".to_owned(), text);
    let optional = rule.optional_old_self.map_or_else(|| "null".to_owned(), |optional| optional.to_string());
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path)
    )
}
