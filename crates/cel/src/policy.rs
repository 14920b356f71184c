//! The expressions of admission policies. In: expressions, and the request that they judge. Out: compiled expressions, or what is
//! wrong with them in the words of kube-apiserver; and what they say of a request, within the cost that Kubernetes allows.
//!
//! ```text
//! Composer::define (variables) ─▶ Composer::compile ─▶ Compiled ─┐
//!                                     Inputs (object, request, …) ┴─▶ Evaluation::evaluate ─▶ Output
//! ```
//!
//! Nothing is awaited here. An expression that asks the authorizer stops with [`Stop::Ask`]; whoever evaluates asks, adds the
//! answer to the [`Permissions`], and evaluates again.

mod declare;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use konverge_schema::{Arena, Budget, TypeId};
use serde_json::Value as Json;

use crate::check::{Checked, Variables, check};
use crate::decl::Decl;
use crate::eval::{COST_LIMIT, Fault, Scope, evaluate_in};
use crate::library::{Authority, Permissions, Question, ResourceCheck, Subject, authority};
use crate::parser::parse;
use crate::plan::{Program, plan};
use crate::schema::Schema;
use crate::stack::with_stack_for;
use crate::types::Type;
use crate::value::Value;

pub(crate) use declare::{USER_INFO, fields as known_objects};

/// What all expressions of one policy may cost together for one request.
const BUDGET: u64 = 10_000_000;

/// What the match conditions of one policy or webhook may cost together for one request.
const MATCH_BUDGET: u64 = 2_500_000;

/// The names of the variables, in the order of their slots.
const NAMES: [&str; 8] = [
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "params",
    "authorizer",
    "authorizer.requestResource",
    "variables",
];

/// The type of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// Which variables an expression can name, besides `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// `params`
    pub params: bool,
    /// `authorizer`
    pub authorizer: bool,
    /// Whether the expression makes objects and JSON patches.
    pub patches: bool,
}

/// What an expression has to evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// `true` or `false`: validations and match conditions.
    Bool,
    /// A text: messages.
    Text,
    /// A text, or null: audit annotations.
    TextOrNull,
    /// Anything: variables.
    Any,
    /// `Object{…}`, which is merged into the object of the request.
    Apply,
    /// A list of `JSONPatch{…}`.
    JsonPatch,
}

impl Returns {
    fn check(self, found: &Type) -> Result<(), ExpressionError> {
        let expected = match self {
            Self::Bool => vec![Type::Bool],
            Self::Text => vec![Type::String],
            Self::TextOrNull => vec![Type::String, Type::Null],
            Self::Any => return Ok(()),
            Self::Apply => vec![Type::Object("Object".into())],
            Self::JsonPatch => vec![Type::list(Type::Object("JSONPatch".into()))],
        };
        if expected.contains(found) {
            return Ok(());
        }
        let found = found.declared_name();
        let names: Vec<String> = expected.iter().map(Type::declared_name).collect();
        Err(ExpressionError::Invalid(match names.as_slice() {
            [one] => format!("must evaluate to {one} but got {found}"),
            several => format!("must evaluate to one of [{}] but got {found}", several.join(" ")),
        }))
    }
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionError {
    /// Its author can mend it.
    Invalid(String),
    /// It cannot be computed at all.
    Internal(String),
}

impl ExpressionError {
    /// Why, in the words of kube-apiserver.
    pub fn detail(&self) -> &str {
        match self {
            Self::Invalid(detail) | Self::Internal(detail) => detail,
        }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Compiled {
    /// As its author wrote it.
    pub source: String,
    /// How it is evaluated, or why it cannot be.
    program: Result<Program, ExpressionError>,
}

/// Compiles the expressions of one policy, with the variables that it defines.
///
/// ```
/// use konverge_cel::{Composer, Declared, Evaluation, Inputs, Output, Permissions, Returns};
/// use konverge_schema::Budget;
/// use serde_json::json;
/// let mut composer = Composer::default();
/// composer.define("replicas", "object.spec.replicas", Declared::default()).unwrap();
/// let few = composer.compile("variables.replicas <= 5", Returns::Bool, Declared::default());
/// let (object, request, permissions) = (json!({"spec": {"replicas": 7}}), json!({}), Permissions::default());
/// let inputs = Inputs { object: Some(&object), ..Inputs::of(&request) };
/// let mut evaluation = Evaluation::new(&composer, &inputs, &permissions, Budget::unlimited());
/// assert_eq!(evaluation.evaluate(&few), Ok(Ok(Output::Bool(false))));
/// ```
#[derive(Debug, Default)]
pub struct Composer {
    variables: Vec<Variable>,
    /// The types of `object` and `params`, where they are known.
    object: Option<Decl>,
    params: Option<Decl>,
    typed: bool,
    /// Whether expressions cannot even name `variables`.
    hidden: bool,
}

#[derive(Debug)]
struct Variable {
    name: String,
    ty: Type,
    program: Result<Program, String>,
}

impl Composer {
    /// A composer that checks expressions against the types of the objects and parameters that they judge. Its expressions
    /// are only checked.
    pub fn typed(object: (&Arena, TypeId), params: Option<(&Arena, TypeId)>) -> Self {
        let typed = |(arena, ty), name: &str| Decl::new(&Schema::of_type(arena, ty), name);
        Self {
            object: typed(object, "Object1"),
            params: params.and_then(|params| typed(params, "Params1")),
            typed: true,
            ..Self::default()
        }
    }

    /// A composer of expressions that cannot name `variables`.
    pub fn without_variables() -> Self {
        Self { hidden: true, ..Self::default() }
    }

    /// Defines a variable for the expressions that are compiled after it. One that does not compile is an error where it
    /// is used.
    pub fn define(&mut self, name: &str, expression: &str, declared: Declared) -> Result<(), ExpressionError> {
        let checked = self.checked(expression, declared);
        let ty =
            checked.as_ref().map_or(Type::Dyn, |checked| declare::variable_type(checked.type_of(&checked.ast.root)));
        let program = checked
            .map_err(|issues| ExpressionError::Invalid(format!("compilation failed: {issues}")))
            .and_then(|checked| planned(&checked));
        let error = program.as_ref().err().cloned();
        let program = program.map_err(|error| error.detail().to_owned());
        self.variables.retain(|variable| variable.name != name);
        self.variables.push(Variable { name: name.to_owned(), ty, program });
        error.map_or(Ok(()), Err)
    }

    /// Compiles an expression. One that does not compile is an error where it is evaluated; [`Compiled::error`] has it.
    pub fn compile(&self, expression: &str, returns: Returns, declared: Declared) -> Compiled {
        let program = self
            .checked(expression, declared)
            .map_err(|issues| ExpressionError::Invalid(format!("compilation failed: {issues}")))
            .and_then(|checked| {
                returns.check(checked.type_of(&checked.ast.root))?;
                planned(&checked)
            });
        Compiled { source: expression.to_owned(), program }
    }

    /// Only checks the types of an expression; the error has the issues that cel-go would show.
    pub fn check(&self, expression: &str, declared: Declared) -> Result<(), String> {
        self.checked(expression, declared).map(|_| ())
    }

    fn checked(&self, expression: &str, declared: Declared) -> Result<Checked, String> {
        let known = declare::fields();
        let composed: BTreeMap<Box<str>, Decl> = self
            .variables
            .iter()
            .map(|variable| (variable.name.as_str().into(), declare::value(&variable.ty)))
            .collect();
        let named = |name: &str| Type::Object(name.into());
        let typed = |decl: &Option<Decl>| decl.as_ref().map_or(Type::Dyn, |decl| decl.ty.clone());
        let mut types = vec![
            ("object", typed(&self.object)),
            ("oldObject", typed(&self.object)),
            ("request", named(declare::REQUEST)),
            ("namespaceObject", named(declare::NAMESPACE)),
        ];
        if declared.params {
            types.push(("params", typed(&self.params)));
        }
        if declared.authorizer {
            types.push(("authorizer", named("kubernetes.authorization.Authorizer")));
            // Type checking does not know it, in kube-controller-manager either.
            if !self.typed {
                types.push(("authorizer.requestResource", named("kubernetes.authorization.ResourceCheck")));
            }
        }
        let mut objects = known.iter().map(|(name, fields)| ((*name).into(), fields)).collect();
        for decl in [&self.object, &self.params].into_iter().flatten() {
            decl.objects(&mut objects);
        }
        if !self.hidden {
            types.push(("variables", named(VARIABLES)));
        }
        objects.insert(VARIABLES.into(), &composed);
        let variables = Variables { types, objects, patches: declared.patches };
        let checked = parse(expression).and_then(|ast| check(ast, &variables));
        checked.map_err(|issues| issues.show(expression))
    }
}

fn planned(checked: &Checked) -> Result<Program, ExpressionError> {
    plan(checked, &NAMES).map_err(|why| ExpressionError::Internal(format!("program instantiation failed: {why}")))
}

impl Compiled {
    /// Why it does not compile.
    pub fn error(&self) -> Option<&ExpressionError> {
        self.program.as_ref().err()
    }
}

/// What expressions see of a request.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// None for a deletion.
    pub object: Option<&'a Json>,
    /// None for a creation.
    pub old_object: Option<&'a Json>,
    /// The request, with the fields of `AdmissionRequest`.
    pub request: &'a Json,
    /// The namespace that the object is in.
    pub namespace: Option<&'a Json>,
    /// The parameters of the policy.
    pub params: Option<&'a Json>,
    /// What `authorizer.requestResource` is about; none where expressions cannot ask the authorizer.
    pub authorizer: Option<&'a ResourceCheck>,
}

impl<'a> Inputs<'a> {
    /// Nothing but the request.
    pub fn of(request: &'a Json) -> Self {
        Self { object: None, old_object: None, request, namespace: None, params: None, authorizer: None }
    }

    fn slots(&self) -> Vec<Option<Value<'a>>> {
        let value = |json: Option<&'a Json>| Some(json.map_or(Value::Null, Value::dynamic));
        let asks = |of: Authority| self.authorizer.map(|_| authority(of));
        let resource = Authority::Resource(Subject::Requester, self.authorizer.cloned().unwrap_or_default());
        vec![
            value(self.object),
            value(self.old_object),
            value(Some(self.request)),
            value(self.namespace),
            value(self.params),
            asks(Authority::Authorizer(Subject::Requester)),
            asks(resource),
            Some(Value::Variables),
        ]
    }
}

/// Evaluates the expressions of one policy for one request, within one budget. Variables are evaluated once.
pub struct Evaluation<'a> {
    slots: Vec<Option<Value<'a>>>,
    scope: Scope<'a>,
    left: u64,
    budget: &'a Budget,
}

/// Why no further expression is evaluated.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The expressions cost more than they may.
    OutOfCost,
    /// The authorizer has to be asked before an expression has a value.
    Ask(Box<Question>),
    /// The request may not compute any more.
    OverBudget,
}

/// What kube-apiserver says about expressions that cost too much.
impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("validation failed due to running out of cost budget, no further validation rules will be run")
    }
}

/// What an expression gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// `true` or `false`
    Bool(bool),
    /// A text.
    Text(String),
    /// `null`
    Null,
    /// An object to merge, or why its parts do not fit each other.
    Apply(Result<Json, String>),
    /// The operations of a JSON patch, or why one has no JSON form.
    JsonPatch(Result<Vec<Json>, String>),
    /// Something else, by the name of its type.
    Other(&'static str),
}

impl<'a> Evaluation<'a> {
    /// Begins with the budget of a policy.
    pub fn new(composer: &'a Composer, inputs: &Inputs<'a>, permissions: &'a Permissions, budget: &'a Budget) -> Self {
        let programs = composer.variables.iter().map(|variable| (variable.name.as_str(), &variable.program)).collect();
        let slots = inputs.slots();
        Self { slots: slots.clone(), scope: Scope::new(programs, slots, permissions), left: BUDGET, budget }
    }

    /// The same, with the budget of match conditions.
    #[must_use]
    pub fn of_match_conditions(self) -> Self {
        Self { left: MATCH_BUDGET, ..self }
    }

    /// The same, with what another evaluation has left of its budget.
    #[must_use]
    pub fn after(self, other: &Evaluation<'_>) -> Self {
        Self { left: other.left, ..self }
    }

    /// The value of an expression, or why it has none.
    pub fn evaluate(&mut self, expression: &'a Compiled) -> Result<Result<Output, String>, Stop> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(ExpressionError::Invalid(why) | ExpressionError::Internal(why)) => {
                return Ok(Err(format!("compilation error: {why}")));
            }
        };
        let (slots, scope, budget) = (&self.slots, &mut self.scope, self.budget);
        let levels = program.levels + scope.levels();
        let (value, cost) = with_stack_for(levels, move || evaluate_in(program, slots, Some(scope), budget));
        let failed = |why: &str| Ok(Err(format!("expression '{}' resulted in error: {why}", expression.source)));
        match value {
            Err(Fault::Ask(question)) => return Err(Stop::Ask(question)),
            Err(Fault::OverBudget) => return Err(Stop::OverBudget),
            _ => {}
        }
        let cost = cost.saturating_add(self.scope.take_cost());
        self.left = self.left.checked_sub(cost).ok_or(Stop::OutOfCost)?;
        match value {
            Ok(value) => Ok(Ok(output(&value))),
            Err(Fault::Error(why)) => failed(&why),
            Err(_) => failed(COST_LIMIT),
        }
    }
}

fn output(value: &Value<'_>) -> Output {
    match value {
        Value::Bool(value) => Output::Bool(*value),
        Value::String(text) => Output::Text(text.to_string()),
        Value::Null => Output::Null,
        Value::Object(object) => {
            let misplaced = object.misplaced();
            if !misplaced.is_empty() {
                return Output::Apply(Err(format!("type mismatch: {}", misplaced.join("\n"))));
            }
            Output::Apply(value.to_json().map_err(|why| why.to_string()))
        }
        Value::List(list) => {
            let operations = list.iter().map(|item| operation(&item.map_err(|why| why.to_string())?));
            Output::JsonPatch(operations.collect())
        }
        other => Output::Other(other.type_name()),
    }
}

/// One operation of a JSON patch.
fn operation(value: &Value<'_>) -> Result<Json, String> {
    let Value::Object(patch) = value else {
        let why = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
        return Err(format!("{why}, got element of {}", value.go_type()));
    };
    let mut json = serde_json::Map::new();
    for name in ["op", "path", "from"] {
        let text = patch.fields.get(name).and_then(|value| value.to_json().ok());
        let text = text.filter(|text| name != "from" || text.as_str().is_some_and(|text| !text.is_empty()));
        if let Some(text) = text.or_else(|| (name != "from").then(|| "".into())) {
            json.insert(name.to_owned(), text);
        }
    }
    if let Some(value) = patch.fields.get("value") {
        if let Value::Object(object) = value {
            let misplaced = object.misplaced();
            if !misplaced.is_empty() {
                return Err(format!("type mismatch: {}", misplaced.join("\n")));
            }
        }
        let unfit = "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
        json.insert("value".to_owned(), value.to_json().map_err(|why| format!("{unfit}: {why}"))?);
    }
    Ok(Json::Object(json))
}
