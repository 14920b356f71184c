//! The expressions of an authentication configuration. In: expressions, and the claims of a token or the user that is made of
//! them. Out: compiled expressions, or what is wrong with them in the words of kube-apiserver; and what they give.

use std::collections::{BTreeSet, HashMap};

use konverge_schema::Budget;
use serde_json::{Number, Value as Json};

use crate::ast::{Expr, Kind, Literal};
use crate::check::{Variables, check};
use crate::escape::unescape;
use crate::eval::{COST_LIMIT, Fault, evaluate};
use crate::parser::parse;
use crate::plan::{Program, plan};
use crate::policy::{ExpressionError, USER_INFO, known_objects};
use crate::stack::with_stack_for;
use crate::types::Type;
use crate::value::Value;

/// What an expression can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// `claims`: what a token says.
    Claims,
    /// `user`: who the token is of.
    User,
}

impl Sees {
    fn name(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::User => "user",
        }
    }
}

/// What an expression gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// `true` or `false`
    Bool(bool),
    /// A text.
    Text(String),
    /// A list that has nothing but texts.
    Texts(Vec<String>),
    /// `null`
    Null,
    /// Something else.
    Other,
}

/// A compiled expression about the claims of a token, or about its user.
///
/// ```
/// use konverge_cel::{AuthenticationExpression, Given, Sees};
/// use serde_json::json;
/// let name = AuthenticationExpression::compile("'ci:' + claims.sub", Sees::Claims, false).unwrap();
/// assert_eq!(name.evaluate(&json!({"sub": "builder"})), Ok(Given::Text("ci:builder".to_owned())));
/// assert!(name.evaluate(&json!({})).unwrap_err().ends_with("no such key: sub"));
/// assert!(name.uses("sub") && !name.uses("email"));
/// ```
#[derive(Debug)]
pub struct AuthenticationExpression {
    source: String,
    program: Program,
    /// The fields of the variable that the expression names.
    fields: BTreeSet<String>,
}

impl AuthenticationExpression {
    /// Compiles an expression that gives anything, or only `true` or `false`.
    pub fn compile(expression: &str, sees: Sees, is_condition: bool) -> Result<Self, ExpressionError> {
        let user = Type::Object(USER_INFO.into());
        let ty = if sees == Sees::User { user } else { Type::map(Type::String, Type::Dyn) };
        let objects: HashMap<_, _> = known_objects().iter().map(|(name, fields)| ((*name).into(), fields)).collect();
        let variables = Variables { types: vec![(sees.name(), ty)], objects, patches: false };
        let mut fields = BTreeSet::new();
        let checked = parse(expression).and_then(|mut ast| {
            with_stack_for(ast.levels(), || prepare(&mut ast.root, sees.name(), &mut fields));
            check(ast, &variables)
        });
        let issues = |text| ExpressionError::Invalid(format!("compilation failed: {text}"));
        let checked = checked.map_err(|found| issues(found.show(expression)))?;
        if is_condition && *checked.type_of(&checked.ast.root) != Type::Bool {
            return Err(ExpressionError::Invalid("must evaluate to bool".to_owned()));
        }
        let unplanned = |why| ExpressionError::Internal(format!("program instantiation failed: {why}"));
        let program = plan(&checked, &[sees.name()]).map_err(unplanned)?;
        Ok(Self { source: expression.to_owned(), program, fields })
    }

    /// As its author wrote it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression names a field of its variable.
    pub fn uses(&self, field: &str) -> bool {
        self.fields.contains(field)
    }

    /// What the expression gives for these claims or this user.
    pub fn evaluate(&self, seen: &Json) -> Result<Given, String> {
        let seen = with_doubles(seen);
        let compute = || {
            let (value, _) = evaluate(&self.program, &[Some(Value::dynamic(&seen))], Budget::unlimited());
            value.map(|value| given(&value))
        };
        let failed = |why: &str| format!("expression '{}' resulted in error: {why}", self.source);
        with_stack_for(self.program.levels, compute).map_err(|fault| match fault {
            Fault::Error(why) => failed(&why),
            _ => failed(COST_LIMIT),
        })
    }
}

fn given(value: &Value<'_>) -> Given {
    match value {
        Value::Bool(value) => Given::Bool(*value),
        Value::String(text) => Given::Text(text.to_string()),
        Value::Null => Given::Null,
        Value::List(list) => {
            let text = |item| match item {
                Ok(Value::String(text)) => Some(text.to_string()),
                _ => None,
            };
            list.iter().map(text).collect::<Option<Vec<String>>>().map_or(Given::Other, Given::Texts)
        }
        _ => Given::Other,
    }
}

/// Go reads every number of claims as a double.
fn with_doubles(json: &Json) -> Json {
    match json {
        Json::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Json::Null, Json::Number),
        Json::Array(items) => items.iter().map(with_doubles).collect(),
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), with_doubles(value))).collect(),
        other => other.clone(),
    }
}

/// Gives escaped names of fields back as they are in the claims, and notes which fields of the variable are named.
fn prepare(expr: &mut Expr, variable: &str, fields: &mut BTreeSet<String>) {
    let is_variable = |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if name == variable);
    match &mut expr.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Broken => {}
        Kind::Select { operand, field, .. } => {
            if is_variable(operand) {
                fields.insert(field.clone());
            }
            if let Some(name) = unescape(field) {
                *field = name;
            }
            prepare(operand, variable, fields);
        }
        Kind::Call { target, function, args } => {
            if let ("_?._" | "_[_]" | "_[?_]", [operand, Expr { kind: Kind::Literal(Literal::String(field)), .. }]) =
                (function.as_str(), args.as_mut_slice())
            {
                if function == "_?._" && is_variable(operand) {
                    fields.insert(field.clone());
                }
                if let Some(name) = unescape(field) {
                    *field = name;
                }
            }
            target.iter_mut().for_each(|target| prepare(target, variable, fields));
            args.iter_mut().for_each(|argument| prepare(argument, variable, fields));
        }
        Kind::List { items, .. } => items.iter_mut().for_each(|item| prepare(item, variable, fields)),
        Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
            prepare(&mut entry.key, variable, fields);
            prepare(&mut entry.value, variable, fields);
        }),
        Kind::Struct { fields: set, .. } => {
            set.iter_mut().for_each(|field| prepare(&mut field.value, variable, fields));
        }
        Kind::Comprehension(fold) => {
            for part in [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result] {
                prepare(part, variable, fields);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_about_claims_and_users() {
        let claims = json!({
            "sub": "a", "groups": ["x", ""], "n": 5, "yes": true, "nothing": null, "nested": {"a.b": ["deep"]},
            "example.com/role": "admin",
        });
        let user = json!({"username": "a", "uid": "", "groups": ["x"], "extra": {"example.com/k": ["v"]}});
        #[track_caller]
        fn check(expression: &str, sees: Sees, seen: &Json, expect: Result<Given, &str>) {
            let compiled = AuthenticationExpression::compile(expression, sees, false);
            let found = compiled.map_err(|error| error.detail().to_owned()).and_then(|it| it.evaluate(seen));
            match (&found, &expect) {
                (Err(found), Err(expect)) => assert!(found.contains(expect), "{expression}: {found}"),
                _ => assert_eq!(found, expect.map_err(str::to_owned), "{expression}"),
            }
        }
        let text = |text: &str| Ok(Given::Text(text.to_owned()));
        let texts = |texts: &[&str]| Ok(Given::Texts(texts.iter().map(|text| (*text).to_owned()).collect()));
        for (expression, expect) in [
            ("'x:' + claims.sub", text("x:a")),
            ("claims.groups", texts(&["x", ""])),
            ("claims.groups.map(g, 'oidc:' + g)", texts(&["oidc:x", "oidc:"])),
            ("claims.?missing.orValue('none')", text("none")),
            ("has(claims.email) ? claims.email : 'nobody'", text("nobody")),
            ("claims.example__dot__com__slash__role", text("admin")),
            ("claims['example.com/role']", text("admin")),
            ("claims.nested.a__dot__b[0]", text("deep")),
            ("claims.nothing", Ok(Given::Null)),
            ("claims.yes", Ok(Given::Bool(true))),
            ("claims.n", Ok(Given::Other)),
            ("string(claims.n)", text("5")),
            ("claims.n + 1", Err("no such overload")),
            ("claims.email", Err("expression 'claims.email' resulted in error: no such key: email")),
            ("user.username", Err("compilation failed: ERROR: <input>:1:1: undeclared reference to 'user'")),
        ] {
            check(expression, Sees::Claims, &claims, expect);
        }
        for (expression, expect) in [
            ("!user.username.startsWith('system:')", Ok(Given::Bool(true))),
            ("user.groups.all(g, g != 'system:masters')", Ok(Given::Bool(true))),
            ("user.extra['example.com/k'][0]", text("v")),
            ("user.name", Err("undefined field 'name'")),
        ] {
            check(expression, Sees::User, &user, expect);
        }
        let condition = AuthenticationExpression::compile("claims.sub", Sees::Claims, true).unwrap_err();
        assert_eq!(condition.detail(), "must evaluate to bool");
    }

    #[test]
    fn which_fields_are_used() {
        for (expression, uses) in [
            ("claims.email", true),
            ("claims.?email.orValue('')", true),
            ("has(claims.email) || true", true),
            ("[1].map(x, claims.email)", true),
            ("claims.nested.email", false),
            ("claims['email']", false),
        ] {
            let compiled = AuthenticationExpression::compile(expression, Sees::Claims, false).unwrap();
            assert_eq!(compiled.uses("email"), uses, "{expression}");
        }
    }
}
