//! The interpreter. In: a program and its variables. Out: a value and what it cost, in cel-go's units. `&&` and `||` absorb
//! errors; the limit of the cost, and the budget of the request, are absorbed by nothing.

mod construct;
mod scope;

use std::collections::BTreeMap;
use std::sync::Arc;

use konverge_schema::Budget;

use crate::cost;
use crate::library::{Authority, Native, Question, Regex, authority, question, with_pattern};
use crate::plan::{Attribute, Base, By, Call, Fold, Node, Operation, Program, Qualifier};
use crate::value::{Answer, EvalError, Key, List, Value, equal};
use crate::weight::{pay, pay_for_content};

pub(crate) use scope::Scope;

/// What one evaluation may cost.
pub(crate) const CALL_LIMIT: u64 = 1_000_000;

/// So many steps of the budget does it take to compile a regular expression that is not a constant.
const REGEX_STEPS: u64 = 2_000;

/// How many compiled patterns one evaluation keeps. Each may take some megabytes.
const MAX_PATTERNS: usize = 4;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The expression failed, as in a division by zero.
    Error(EvalError),
    /// It costs more than one evaluation may.
    CostLimit,
    /// The request may not compute any more.
    OverBudget,
    /// The authorizer has to be asked first.
    Ask(Box<Question>),
}

impl From<EvalError> for Fault {
    fn from(error: EvalError) -> Self {
        Self::Error(error)
    }
}

type Evaluated<'a> = Result<Value<'a>, Fault>;

/// Evaluates a program. Variables come in the order in which it was planned; one that is absent has no value.
pub(crate) fn evaluate<'a>(
    program: &'a Program,
    variables: &[Option<Value<'a>>],
    budget: &'a Budget,
) -> (Evaluated<'a>, u64) {
    evaluate_in(program, variables, None, budget)
}

/// The same, with the variables of a policy and what its authorizer has answered.
pub(crate) fn evaluate_in<'a>(
    program: &'a Program,
    variables: &[Option<Value<'a>>],
    scope: Option<&Scope<'a>>,
    budget: &'a Budget,
) -> (Evaluated<'a>, u64) {
    let mut slots: Vec<Slot<'a>> = Vec::with_capacity(program.slots);
    slots.extend(variables.iter().map(|variable| match variable {
        Some(value) => Slot::Set(Ok(value.clone())),
        None => Slot::Empty,
    }));
    slots.resize_with(program.slots, || Slot::Empty);
    let mut evaluator = Evaluator { slots, cost: 0, patterns: BTreeMap::new(), scope, budget };
    let value = evaluator.node(&program.root);
    (value, evaluator.cost)
}

/// What cel-go says about an evaluation that costs more than one may.
pub(crate) const COST_LIMIT: &str = "operation cancelled: actual cost limit exceeded";

enum Slot<'a> {
    Empty,
    /// Evaluated when somebody asks for it.
    Lazy(&'a Node),
    Set(Answer<'a>),
}

struct Evaluator<'a, 's> {
    slots: Vec<Slot<'a>>,
    cost: u64,
    /// Patterns that the program computes, compiled: a loop uses the same one for each item.
    patterns: BTreeMap<String, Regex>,
    scope: Option<&'s Scope<'a>>,
    budget: &'a Budget,
}

impl<'a> Evaluator<'a, '_> {
    fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.charge_steps(cost, cost)
    }

    /// The same for what costs more, or less, than it takes to compute.
    fn charge_steps(&mut self, cost: u64, steps: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > CALL_LIMIT {
            return Err(Fault::CostLimit);
        }
        if !self.budget.spend(steps) {
            return Err(Fault::OverBudget);
        }
        Ok(())
    }

    /// The value of a node, or the error that operators may absorb.
    fn answer(&mut self, node: &'a Node) -> Result<Answer<'a>, Fault> {
        match self.node(node) {
            Ok(value) => Ok(Ok(value)),
            Err(Fault::Error(error)) => Ok(Err(error)),
            Err(fault) => Err(fault),
        }
    }

    fn node(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Attribute(attribute) => {
                let value = self.resolve(attribute);
                // A choice costs nothing itself.
                if !matches!(attribute.base, Base::Conditional { .. }) {
                    self.charge(1)?;
                }
                value
            }
            Node::Test(attribute) => self.test(attribute),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Call(call) => self.call(call),
            Node::List { items, optional } => {
                let list = self.list(items, optional);
                self.charge(cost::LIST)?;
                list.map(Value::list)
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.charge(cost::MAP)?;
                map
            }
            Node::Struct { ty, fields } => {
                let object = self.structure(ty, fields);
                self.charge(cost::STRUCT)?;
                object
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Member { value, set } => {
                let value = self.node(value)?;
                let set: &std::collections::BTreeSet<Key<'_>> = set;
                Ok(Value::Bool(Key::new(&value).is_some_and(|key| set.contains(&key))))
            }
            Node::Or2 { optional, other, unwrap } => match self.node(optional)? {
                Value::Optional(None) => self.node(other),
                Value::Optional(Some(inner)) if *unwrap => Ok((*inner).clone()),
                value => Ok(value),
            },
            Node::Grow { slot, call } => self.grow(*slot, call),
        }
    }

    /// A branch of a choice, or an index: an attribute there is not counted as one.
    fn branch(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.node(other),
        }
    }

    fn variable(&mut self, slot: usize, name: &str) -> Evaluated<'a> {
        match &self.slots[slot] {
            Slot::Set(value) => Ok(value.clone()?),
            Slot::Empty => Err(EvalError::from(format!("no such attribute(s): {name}")).into()),
            Slot::Lazy(node) => {
                let value = self.answer(node)?;
                self.slots[slot] = Slot::Set(value.clone());
                Ok(value?)
            }
        }
    }

    fn base(&mut self, base: &'a Base) -> Evaluated<'a> {
        match base {
            Base::Variable { slot, name } => self.variable(*slot, name),
            Base::Value(node) => self.node(node),
            Base::Conditional { condition, yes, no } => match self.node(condition)? {
                Value::Bool(true) => self.branch(yes),
                Value::Bool(false) => self.branch(no),
                _ => Err(no_such_overload()),
            },
        }
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let (value, is_optional) = self.follow(&attribute.base, &attribute.qualifiers)?;
        Ok(match value {
            None => Value::Optional(None),
            Some(value) if is_optional => Value::some(value),
            Some(value) => value,
        })
    }

    /// The value at the end of a way; none if an optional step has no value. The second says whether a step was optional.
    fn follow(&mut self, base: &'a Base, qualifiers: &'a [Qualifier]) -> Result<(Option<Value<'a>>, bool), Fault> {
        let mut value = self.base(base)?;
        if qualifiers.is_empty() {
            return Ok((Some(value), false));
        }
        let mut is_optional = false;
        if let Value::Optional(inner) = &value {
            match inner.clone() {
                Some(inner) => value = (*inner).clone(),
                None => return Ok((None, true)),
            }
            is_optional = true;
        }
        for qualifier in qualifiers {
            is_optional |= qualifier.optional;
            match self.step(&value, qualifier, is_optional)? {
                Some(next) => value = next,
                None => return Ok((None, true)),
            }
        }
        Ok((Some(value), is_optional))
    }

    /// One step into a value; none if there is nothing, and it is only asked for.
    fn step(&mut self, value: &Value<'a>, qualifier: &'a Qualifier, ask: bool) -> Result<Option<Value<'a>>, Fault> {
        let found = match &qualifier.by {
            By::Field(name) => match value {
                Value::Map(map) => map.field(name).transpose(),
                Value::Variables => match self.scope {
                    Some(scope) => scope.variable(name, self.budget)?.transpose(),
                    None => Ok(None),
                },
                other => find(other, &Value::String((&**name).into())),
            }
            .map(|found| found.ok_or_else(|| missing(value, name))),
            // `variables.?name` has its name as a constant.
            By::Constant(Value::String(name)) if matches!(value, Value::Variables) => match self.scope {
                Some(scope) => scope.variable(name, self.budget)?.transpose(),
                None => Ok(None),
            }
            .map(|found| found.ok_or_else(|| missing(value, &**name))),
            By::Constant(index) => find(value, index).map(|found| found.ok_or_else(|| missing(value, index))),
            By::Computed(node) => match self.branch(node) {
                Ok(index) => find(value, &index).map(|found| found.ok_or_else(|| missing(value, &index))),
                Err(Fault::Error(error)) => Err(error),
                Err(fault) => return Err(fault),
            },
        };
        if ask && matches!(found, Ok(Err(_))) {
            return Ok(None);
        }
        self.charge(1)?;
        Ok(Some(found??))
    }

    fn test(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let Some((last, before)) = attribute.qualifiers.split_last() else { return Ok(Value::Bool(true)) };
        let (value, is_optional) = self.follow(&attribute.base, before)?;
        let Some(mut value) = value else { return Ok(Value::Bool(false)) };
        let mut is_optional = is_optional;
        if let Value::Optional(inner) = &value {
            match inner.clone() {
                Some(inner) => value = (*inner).clone(),
                None => return Ok(Value::Bool(false)),
            }
            is_optional = true;
        }
        let found = self.step(&value, last, true)?;
        if found.is_none() && !is_optional {
            // Looking for it is counted; only an optional value that is absent is not looked at.
            self.charge(1)?;
        }
        Ok(Value::Bool(found.is_some()))
    }

    /// `&&` and `||`: `decisive` is the value that decides alone. An error counts only if nothing decides.
    fn logic(&mut self, terms: &'a [Node], decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for term in terms {
            match self.answer(term)? {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failed.get_or_insert_with(|| "no such overload".into());
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) => Err(Fault::Error(error)),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn call(&mut self, call: &'a Call) -> Evaluated<'a> {
        match &*call.args {
            [one] => {
                let one = self.answer(one)?;
                if let Operation::NotStrictlyFalse = call.operation {
                    self.charge(1)?;
                    return Ok(Value::Bool(!matches!(one, Ok(Value::Bool(false)))));
                }
                self.finish(call, [one])
            }
            [one, other] => {
                let one = self.answer(one)?;
                // A call with arguments that were not evaluated costs nothing.
                let one = if call.eager { Ok(one?) } else { one };
                let other = self.answer(other)?;
                self.finish(call, [one, other])
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for (at, arg) in args.iter().enumerate() {
                    let value = self.answer(arg)?;
                    values.push(if at + 1 < args.len() { Ok(value?) } else { value });
                }
                self.finish(call, values)
            }
        }
    }

    /// Applies a function to its arguments, unless one has failed, and counts the cost.
    fn finish<T: AsRef<[Answer<'a>]>>(&mut self, call: &'a Call, answers: T) -> Evaluated<'a> {
        let answers = answers.as_ref();
        // All but a few calls have at most four arguments.
        let mut buffer: [Value<'a>; 4] = [const { Value::Null }; 4];
        let mut more = Vec::new();
        let failed = answers.iter().find_map(|answer| answer.as_ref().err().cloned());
        let result = match failed {
            Some(error) => Err(error),
            None => {
                let values: &[Value<'a>] = if answers.len() <= buffer.len() {
                    for (place, answer) in buffer.iter_mut().zip(answers.iter().flatten()) {
                        *place = answer.clone();
                    }
                    &buffer[..answers.len()]
                } else {
                    more.extend(answers.iter().flatten().cloned());
                    &more
                };
                self.apply(call, values)?
            }
        };
        let mut args: [cost::Arg<'_, 'a>; 4] = [None; 4];
        for (place, answer) in args.iter_mut().zip(answers) {
            *place = answer.as_ref().ok();
        }
        let cost = call.cost.of(&args[..answers.len().min(4)], result.as_ref().ok());
        // Asking costs much so that expressions ask seldom; here the answer is known already.
        let steps = if let Operation::Check = call.operation { 1 } else { cost };
        self.charge_steps(cost, steps)?;
        Ok(result?)
    }

    fn apply(&mut self, call: &'a Call, values: &[Value<'a>]) -> Result<Answer<'a>, Fault> {
        if let Some(regex) = &call.regex {
            return Ok(with_pattern(call.function, regex, values));
        }
        let paid = match call.operation {
            Operation::Equal | Operation::Unequal => pay_for_content(&values[0], self.budget),
            Operation::Heavy(_) => pay(call.function, values, self.budget),
            _ => true,
        };
        if !paid {
            return Err(Fault::OverBudget);
        }
        Ok(match call.operation {
            Operation::Equal => equal(&values[0], &values[1]).map(Value::Bool),
            // Values that cannot be compared are different.
            Operation::Unequal => Ok(Value::Bool(equal(&values[0], &values[1]) != Ok(true))),
            Operation::NotStrictlyFalse => Ok(Value::Bool(!matches!(values[0], Value::Bool(false)))),
            Operation::Check => {
                let question = match question(values) {
                    Ok(question) => question,
                    Err(why) => return Ok(Err(why)),
                };
                match self.scope.and_then(|scope| scope.permissions.get(&question)) {
                    Some(permission) => Ok(authority(Authority::Decision(permission.clone()))),
                    None => return Err(Fault::Ask(Box::new(question))),
                }
            }
            Operation::Pattern(native) => return self.pattern(call, values, native),
            Operation::Range(native) => match &values[0] {
                // The list is as long as somebody says, so its cost is counted before it is made.
                Value::Int(count)
                    if self.cost.saturating_add(u64::try_from(*count).unwrap_or_default()) > CALL_LIMIT =>
                {
                    return Err(Fault::CostLimit);
                }
                _ => native(values),
            },
            Operation::Heavy(native) | Operation::Native(native) => native(values),
        })
    }

    /// A call with a pattern that is no constant.
    fn pattern(&mut self, call: &'a Call, values: &[Value<'a>], native: Native) -> Result<Answer<'a>, Fault> {
        let [Value::String(_), Value::String(pattern), ..] = values else { return Ok(native(values)) };
        if let Some(regex) = self.patterns.get(&**pattern) {
            return Ok(with_pattern(call.function, regex, values));
        }
        if !self.budget.spend(REGEX_STEPS) {
            return Err(Fault::OverBudget);
        }
        // The function itself says what is wrong with a pattern.
        let Ok(regex) = Regex::new(pattern) else { return Ok(native(values)) };
        let answer = with_pattern(call.function, &regex, values);
        if self.patterns.len() < MAX_PATTERNS {
            self.patterns.insert(pattern.to_string(), regex);
        }
        Ok(answer)
    }

    /// A call that adds to the accumulator of a loop.
    fn grow(&mut self, slot: usize, call: &'a Call) -> Evaluated<'a> {
        if let Slot::Lazy(node) = self.slots[slot] {
            let value = self.answer(node)?;
            self.slots[slot] = Slot::Set(value);
        }
        self.charge(1)?;
        let mut failed = match &self.slots[slot] {
            Slot::Set(Err(error)) => Some(error.clone()),
            _ => None,
        };
        if let Some(error) = failed.take_if(|_| call.eager) {
            return Err(Fault::Error(error));
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        for (at, arg) in call.args.iter().enumerate() {
            match self.answer(arg)? {
                Ok(value) => args.push(value),
                Err(error) => {
                    failed.get_or_insert(error);
                    if call.eager && at + 1 < call.args.len() {
                        break;
                    }
                }
            }
        }
        if let Some(error) = failed {
            self.charge(1)?;
            return Err(Fault::Error(error));
        }
        // The accumulator leaves its slot, so that this is its only owner; the loop puts the result there.
        let Slot::Set(Ok(accumulated)) = std::mem::replace(&mut self.slots[slot], Slot::Empty) else {
            return Err(no_such_overload());
        };
        match (accumulated, &args[..]) {
            (Value::List(List::Owned { mut items, schema }), [Value::List(added)]) if schema.is_none() => {
                self.charge(1)?;
                let list = Arc::make_mut(&mut items);
                for item in added.iter() {
                    list.push(item?);
                }
                Ok(Value::List(List::Owned { items, schema }))
            }
            (accumulated, _) => {
                args.insert(0, accumulated);
                let result = self.apply(call, &args)?;
                let sizes: Vec<_> = args.iter().map(Some).collect();
                self.charge(call.cost.of(&sizes, result.as_ref().ok()))?;
                Ok(result?)
            }
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = self.node(&fold.range)?;
        self.slots[fold.accumulator] = Slot::Lazy(&fold.init);
        match (&range, fold.second) {
            (Value::List(list), second) => {
                for at in 0..list.len() {
                    let item = list.get(at).expect("the index is within the list");
                    match second {
                        Some(second) => {
                            self.slots[fold.variable] = Slot::Set(Ok(Value::Int(at as i64)));
                            self.slots[second] = Slot::Set(item);
                        }
                        None => self.slots[fold.variable] = Slot::Set(item),
                    }
                    if !self.turn(fold)? {
                        break;
                    }
                }
            }
            (Value::Map(map), second) => {
                for key in map.keys() {
                    if let Some(second) = second {
                        let value = map.find(&key).unwrap_or_else(|| Err(format!("no such key: {key}").into()));
                        self.slots[second] = Slot::Set(value);
                    }
                    self.slots[fold.variable] = Slot::Set(Ok(key));
                    if !self.turn(fold)? {
                        break;
                    }
                }
            }
            (other, _) => {
                let why = format!("got '{}', expected iterable type", other.go_type());
                return Err(EvalError::from(why).into());
            }
        }
        self.node(&fold.result)
    }

    /// One turn of a loop; `false` if it was the last.
    fn turn(&mut self, fold: &'a Fold) -> Result<bool, Fault> {
        if let Ok(Value::Bool(false)) = self.answer(&fold.condition)? {
            return Ok(false);
        }
        let value = self.answer(&fold.step)?;
        self.slots[fold.accumulator] = Slot::Set(value);
        Ok(true)
    }
}

fn no_such_overload() -> Fault {
    Fault::Error("no such overload".into())
}

/// The error for something that is not there.
fn missing(value: &Value<'_>, key: impl std::fmt::Display) -> EvalError {
    let what = if matches!(value, Value::List(_)) { "index out of bounds" } else { "no such key" };
    format!("{what}: {key}").into()
}

/// What is under a key or at an index.
fn find<'a>(value: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(map) => map.find(key).transpose(),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => *index,
                // Lists of an object are strict.
                Value::Uint(_) | Value::Double(_) if matches!(list, List::Json { .. }) => {
                    return Err(format!("unsupported index: {key}").into());
                }
                Value::Uint(index) => i64::try_from(*index).unwrap_or(-1),
                Value::Double(index) if index.fract() == 0.0 && index.abs() < 1e15 => *index as i64,
                Value::Double(_) => return Err(format!("unsupported index value {key} in list").into()),
                other => return Err(format!("unsupported index type '{}' in list", other.type_name()).into()),
            };
            usize::try_from(index).ok().and_then(|index| list.get(index)).transpose()
        }
        _ => Ok(None),
    }
}
