//! `x-kubernetes-validations`. In: the schema of a CRD. Out: its rules, compiled; what is wrong with them; and what they say
//! of an object.

mod check;
mod correlate;
mod defaults;
mod field_path;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::HashMap;

use konverge_core::FieldPath;
use serde_json::Value as Json;

use crate::check::{Checked, Variables, check};
use crate::decl::Decl;
use crate::estimate::estimate;
use crate::parser::parse;
use crate::plan::{Program, plan};
use crate::schema::{Rule, Schema};
use crate::types::Type;

pub use check::check_rules;
pub use defaults::check_defaults;
pub use validate::RuleOutcome;

/// The variables of rules, in the order of their slots.
const VARIABLES: [&str; 2] = ["self", "oldSelf"];

/// What the types of objects are named by. A cluster makes a new name each time, so that nobody relies on it.
const SELF_TYPE: &str = "selfType1";

/// The rules of one version of a CRD, compiled.
///
/// ```
/// use konverge_cel::RuleSet;
/// use konverge_schema::Budget;
/// use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"spec": {
///     "type": "object",
///     "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
///     "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min is above max"}],
/// }}});
/// let rules = RuleSet::compile(&schema).unwrap();
/// let object = json!({"spec": {"min": 3, "max": 2}});
/// let outcome = rules.validate(&object, None, Budget::unlimited()).unwrap();
/// assert_eq!(outcome.errors[0].to_string(), "spec: Invalid value: min is above max");
/// ```
#[derive(Debug)]
pub struct RuleSet {
    schema: Schema,
    rules: RuleTree,
    /// How deep the deepest rule nests.
    levels: usize,
}

/// The compiled rules at one place in a schema, and below it.
#[derive(Debug, Default)]
struct RuleTree {
    rules: Box<[CompiledRule]>,
    items: Option<Box<RuleTree>>,
    additional: Option<Box<RuleTree>>,
    /// Sorted by name; only those with rules.
    properties: Box<[(Box<str>, RuleTree)]>,
}

/// A rule, as far as it could be compiled.
#[derive(Debug, Default)]
struct CompiledRule {
    rule: Rule,
    program: Option<Program>,
    error: Option<String>,
    uses_old_self: bool,
    max_cost: u64,
    message: Option<Program>,
    message_error: Option<String>,
    message_max_cost: u64,
    /// `fieldPath`, normalized.
    field_path: Option<FieldPath>,
}

impl RuleSet {
    /// Compiles the rules of a schema; `None` if it has none. A rule that does not compile is an error of every object.
    pub fn compile(schema: &Json) -> Option<Self> {
        Self::of(Schema::root(schema))
    }

    fn of(schema: Schema) -> Option<Self> {
        if !schema.has_rules() {
            return None;
        }
        let rules = RuleTree::compile(&schema)?;
        let levels = rules.levels();
        Some(Self { schema, rules, levels })
    }
}

impl RuleTree {
    /// `None` if there is no rule here and below.
    fn compile(schema: &Schema) -> Option<Self> {
        let below = |inner: &Option<Box<Schema>>| inner.as_deref().and_then(Self::compile).map(Box::new);
        let properties = schema.properties.iter();
        let tree = Self {
            rules: compile_rules(schema, |_| true).0,
            items: below(&schema.items),
            additional: below(&schema.additional),
            properties: properties
                .filter_map(|property| Some((property.name.clone(), Self::compile(&property.schema)?)))
                .collect(),
        };
        let empty =
            tree.rules.is_empty() && tree.items.is_none() && tree.additional.is_none() && tree.properties.is_empty();
        (!empty).then_some(tree)
    }

    /// How deep the deepest rule nests, here and below.
    fn levels(&self) -> usize {
        let programs = self.rules.iter().flat_map(|rule| rule.program.iter().chain(&rule.message));
        let inner = self.items.iter().chain(&self.additional).map(|inner| &**inner);
        let inner = inner.chain(self.properties.iter().map(|(_, inner)| inner));
        programs.map(|program| program.levels).chain(inner.map(Self::levels)).max().unwrap_or_default()
    }
}

/// Compiles the rules of one schema, as long as `go_on` agrees. Also gives how often the value can be in one request.
fn compile_rules(schema: &Schema, mut go_on: impl FnMut(&Rule) -> bool) -> (Box<[CompiledRule]>, u64) {
    if schema.rules.is_empty() {
        return (Box::default(), 1);
    }
    // Rules can stand where nothing is declared that they could see.
    let Some(decl) = Decl::new(schema, SELF_TYPE) else { return (Box::default(), 1) };
    let mut objects = HashMap::new();
    decl.objects(&mut objects);
    let plain =
        Variables { types: vec![("self", decl.ty.clone()), ("oldSelf", decl.ty.clone())], objects, patches: false };
    let optional = Variables {
        types: vec![("self", decl.ty.clone()), ("oldSelf", Type::optional(decl.ty.clone()))],
        objects: plain.objects.clone(),
        patches: false,
    };
    let compiled = schema.rules.iter().map_while(|rule| {
        let variables = if rule.optional_old_self == Some(true) { &optional } else { &plain };
        go_on(rule).then(|| compile_rule(schema, &decl, rule, variables))
    });
    (compiled.collect(), decl.max_cardinality())
}

fn compile_rule(schema: &Schema, decl: &Decl, rule: &Rule, variables: &Variables<'_>) -> CompiledRule {
    let mut compiled = CompiledRule { rule: rule.clone(), ..CompiledRule::default() };
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let failed = |error: String, mut compiled: CompiledRule| {
        compiled.error = Some(error);
        compiled
    };
    let checked = match checked(&rule.rule, variables) {
        Ok(checked) => checked,
        Err(issues) => return failed(format!("compilation failed: {issues}"), compiled),
    };
    if *checked.type_of(&checked.ast.root) != Type::Bool {
        return failed("cel expression must evaluate to a bool".to_owned(), compiled);
    }
    compiled.uses_old_self = checked.uses("oldSelf");
    match plan(&checked, &VARIABLES) {
        Ok(program) => compiled.program = Some(program),
        Err(why) => return failed(format!("program instantiation failed: {why}"), compiled),
    }
    compiled.max_cost = estimate(&checked, decl).max;
    if !rule.message_expression.is_empty() {
        match compile_message(decl, rule, variables) {
            Ok((program, cost)) => {
                compiled.message = Some(program);
                compiled.message_max_cost = cost;
            }
            Err(why) => {
                compiled.message_error = Some(why);
                return compiled;
            }
        }
    }
    if !rule.field_path.is_empty() {
        compiled.field_path = field_path::resolve(&rule.field_path, schema);
    }
    compiled
}

fn compile_message(decl: &Decl, rule: &Rule, variables: &Variables<'_>) -> Result<(Program, u64), String> {
    let checked = checked(&rule.message_expression, variables)
        .map_err(|issues| format!("messageExpression compilation failed: {issues}"))?;
    if *checked.type_of(&checked.ast.root) != Type::String {
        return Err("messageExpression must evaluate to a string".to_owned());
    }
    let program = plan(&checked, &VARIABLES).map_err(|why| format!("messageExpression instantiation failed: {why}"))?;
    Ok((program, estimate(&checked, decl).max))
}

/// The checked tree of an expression, or its issues as they are shown.
fn checked(text: &str, variables: &Variables<'_>) -> Result<Checked, String> {
    let checked = parse(text).and_then(|ast| check(ast, variables));
    checked.map_err(|issues| issues.show(text))
}
