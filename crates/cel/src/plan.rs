//! Programs: checked trees in the form in which they are evaluated. In: a checked tree. Out: a program whose constants are
//! computed and whose variables are numbered, or why it can have no value. What is computed here costs nothing later, as in
//! cel-go.

use std::collections::BTreeSet;

use crate::ast::{Comprehension, Expr, Kind, Literal};
use crate::check::{Checked, Reference};
use crate::cost::CallCost;
use crate::functions::function;
use crate::library::{Native, Regex, native};
use crate::stack::with_stack_for;
use crate::value::{Key, Text, Value};
use crate::weight::is_heavy;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Program {
    pub root: Node,
    /// How many variables there are: those of the expression first, then those of its loops.
    pub slots: usize,
    /// How many nodes are inside each other, for [`with_stack_for`].
    pub levels: usize,
}

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// `has(a.b)`
    Test(Box<Attribute>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Call(Box<Call>),
    List {
        items: Box<[Node]>,
        optional: Box<[bool]>,
    },
    Map(Box<[MapEntry]>),
    /// `Object.spec{replicas: 1}`
    Struct {
        ty: Box<str>,
        fields: Box<[StructEntry]>,
    },
    Fold(Box<Fold>),
    /// `x in [constants]`
    Member {
        value: Box<Node>,
        set: BTreeSet<Key<'static>>,
    },
    /// `a.or(b)`, and `a.orValue(b)` if `unwrap` is set.
    Or2 {
        optional: Box<Node>,
        other: Box<Node>,
        unwrap: bool,
    },
    /// A call whose first argument is the accumulator of the loop around it, which is changed in place.
    Grow {
        slot: usize,
        call: Box<Call>,
    },
}

/// A value and the way to something inside it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
pub(crate) enum Base {
    Variable { slot: usize, name: Box<str> },
    Value(Node),
    Conditional { condition: Node, yes: Node, no: Node },
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub by: By,
    /// `.?` and `[?]`
    pub optional: bool,
}

#[derive(Debug)]
pub(crate) enum By {
    Field(Box<str>),
    Constant(Value<'static>),
    Computed(Node),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub function: &'static str,
    pub args: Box<[Node]>,
    pub operation: Operation,
    pub cost: CallCost,
    /// The pattern, where it is a constant.
    pub regex: Option<Regex>,
    /// Whether an error in one argument keeps the next from being evaluated.
    pub eager: bool,
}

/// What a call does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Equal,
    Unequal,
    /// True unless its argument is `false`; an error is no reason to end a loop.
    NotStrictlyFalse,
    /// Compiles a pattern that is no constant, which takes long.
    Pattern(Native),
    /// Makes a list as long as its argument says.
    Range(Native),
    /// Asks the authorizer.
    Check,
    /// Takes more than its cost says.
    Heavy(Native),
    Native(Native),
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub key: Node,
    pub value: Node,
    pub optional: bool,
}

#[derive(Debug)]
pub(crate) struct StructEntry {
    pub name: Box<str>,
    pub value: Node,
    pub optional: bool,
}

#[derive(Debug)]
pub(crate) struct Fold {
    pub range: Node,
    pub variable: usize,
    pub second: Option<usize>,
    pub accumulator: usize,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

/// Compiles a checked tree with these variables, in this order.
pub(crate) fn plan(checked: &Checked, variables: &[&str]) -> Result<Program, String> {
    let scopes = variables.iter().enumerate().map(|(slot, name)| ((*name).to_owned(), slot)).collect();
    let mut planner = Planner { checked, scopes, slots: variables.len(), accumulators: Vec::new() };
    let levels = checked.ast.levels();
    let root = with_stack_for(levels, || planner.node(&checked.ast.root))?;
    Ok(Program { root, slots: planner.slots, levels })
}

struct Planner<'c> {
    checked: &'c Checked,
    /// The innermost last.
    scopes: Vec<(String, usize)>,
    slots: usize,
    /// Those of the loops around.
    accumulators: Vec<usize>,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, String> {
        Ok(match &expr.kind {
            Kind::Literal(literal) => Node::Constant(constant(literal)),
            Kind::Ident(name) => match self.checked.references.get(&expr.id) {
                Some(Reference::Type(ty)) => Node::Constant(Value::Type(Text::from(ty.name()))),
                _ => {
                    let known = self.scopes.iter().rev().find(|(known, _)| known == name);
                    let slot = known.map(|(_, slot)| *slot).ok_or_else(|| format!("no such variable: {name}"))?;
                    attribute(Base::Variable { slot, name: name.as_str().into() })
                }
            },
            Kind::Select { operand, field, test } => {
                let operand = self.node(operand)?;
                let qualifier = Qualifier { by: By::Field(field.as_str().into()), optional: false };
                match qualify(operand, qualifier) {
                    Node::Attribute(attribute) if *test => Node::Test(attribute),
                    node => node,
                }
            }
            Kind::Call { .. } => self.call(expr)?,
            Kind::List { items, optional } => {
                let items = items.iter().map(|item| self.node(item)).collect::<Result<Vec<_>, _>>()?;
                let constants = items.iter().map(as_constant).collect::<Option<Vec<_>>>();
                match constants.filter(|_| !optional.contains(&true)) {
                    Some(constants) => Node::Constant(Value::list(constants)),
                    None => Node::List { items: items.into(), optional: optional.as_slice().into() },
                }
            }
            Kind::Map(entries) => {
                let mut planned = Vec::new();
                for entry in entries {
                    let (key, value) = (self.node(&entry.key)?, self.node(&entry.value)?);
                    planned.push(MapEntry { key, value, optional: entry.optional });
                }
                constant_map(&planned).unwrap_or_else(|| Node::Map(planned.into()))
            }
            Kind::Struct { name, fields } => {
                let fields = fields.iter().map(|field| {
                    let value = self.node(&field.value)?;
                    Ok(StructEntry { name: field.name.clone(), value, optional: field.optional })
                });
                let fields = fields.collect::<Result<_, String>>()?;
                Node::Struct { ty: name.trim_start_matches('.').into(), fields }
            }
            Kind::Comprehension(fold) => self.fold(fold)?,
            Kind::Broken => return Err("unsupported expr".to_owned()),
        })
    }

    fn slot(&mut self, name: &str) -> usize {
        self.scopes.push((name.to_owned(), self.slots));
        self.slots += 1;
        self.slots - 1
    }

    fn fold(&mut self, fold: &Comprehension) -> Result<Node, String> {
        let init = self.node(&fold.init)?;
        let range = self.node(&fold.range)?;
        let outside = self.scopes.len();
        let accumulator = self.slot(&fold.accumulator);
        self.accumulators.push(accumulator);
        let variable = self.slot(&fold.variable);
        let second = fold.second.as_ref().map(|second| self.slot(second));
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        self.scopes.truncate(outside + 1);
        self.accumulators.pop();
        let result = self.node(&fold.result)?;
        self.scopes.truncate(outside);
        Ok(Node::Fold(Box::new(Fold { range, variable, second, accumulator, init, condition, step, result })))
    }

    fn call(&mut self, expr: &Expr) -> Result<Node, String> {
        let Kind::Call { target, function: name, args } = &expr.kind else { return Err("unsupported expr".to_owned()) };
        let args = target.iter().map(|target| &**target).chain(args);
        let mut args = args.map(|arg| self.node(arg)).collect::<Result<Vec<_>, _>>()?;
        match name.as_str() {
            "_&&_" => return Ok(Node::And(args.into())),
            "_||_" => return Ok(Node::Or(args.into())),
            "_?_:_" => {
                let [condition, yes, no] = take(args);
                return Ok(attribute(Base::Conditional { condition, yes, no }));
            }
            "_[_]" | "_[?_]" | "_?._" => {
                let [operand, index] = take(args);
                let by = match index {
                    Node::Constant(value) => By::Constant(value),
                    index => By::Computed(index),
                };
                return Ok(qualify(operand, Qualifier { by, optional: name != "_[_]" }));
            }
            "or" | "orValue" => {
                let [optional, other] = take(args).map(Box::new);
                return Ok(Node::Or2 { optional, other, unwrap: name == "orValue" });
            }
            _ => {}
        }
        let (function, _) = function(name).ok_or_else(|| format!("no such overload: {name}"))?;
        let overload = match self.checked.overloads(expr.id) {
            [one] => one,
            _ => "",
        };
        if overload == "in_list"
            && let Some(set) = constant_set(&args[1])
        {
            let [value, _] = take(args);
            return Ok(match set.is_empty() {
                true => Node::Constant(Value::Bool(false)),
                false => Node::Member { value: Box::new(value), set },
            });
        }
        let native = native(function);
        let converts = ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
        if converts.contains(&function)
            && let (Some(native), [Node::Constant(value)]) = (native, &args[..])
        {
            return native(std::slice::from_ref(value)).map(Node::Constant).map_err(|why| why.to_string());
        }
        let mut regex = None;
        if let ("matches" | "find" | "findAll", Some(Node::Constant(Value::String(pattern)))) = (function, args.get(1))
        {
            regex = Some(Regex::new(pattern)?);
        }
        let operator = function.contains('_') || function.starts_with('@');
        let eager = args.len() > 2 || regex.is_some() || function == "format" || (overload.is_empty() && !operator);
        // What a loop collects is changed in place; a copy for each item would take quadratic time.
        let grows = match (function, args.first()) {
            ("_+_" | "cel.@mapInsert", Some(Node::Attribute(first))) => match &**first {
                Attribute { base: Base::Variable { slot, .. }, qualifiers } => {
                    (qualifiers.is_empty() && self.accumulators.last() == Some(slot)).then_some(*slot)
                }
                _ => None,
            },
            _ => None,
        };
        if grows.is_some() {
            args.remove(0);
        }
        let operation = match (function, native) {
            ("_==_", _) => Operation::Equal,
            ("_!=_", _) => Operation::Unequal,
            ("@not_strictly_false", _) => Operation::NotStrictlyFalse,
            ("check", _) => Operation::Check,
            ("matches" | "find" | "findAll", Some(native)) => Operation::Pattern(native),
            ("lists.range", Some(native)) => Operation::Range(native),
            (_, Some(native)) if is_heavy(function) => Operation::Heavy(native),
            (_, Some(native)) => Operation::Native(native),
            (_, None) => return Err(format!("no such overload: {function}")),
        };
        let cost = CallCost::new(function, overload);
        let call = Box::new(Call { function, operation, cost, args: args.into(), regex, eager });
        Ok(match grows {
            Some(slot) => Node::Grow { slot, call },
            None => Node::Call(call),
        })
    }
}

fn take<const N: usize>(args: Vec<Node>) -> [Node; N] {
    args.try_into().expect("the signature says how many arguments there are")
}

fn attribute(base: Base) -> Node {
    Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new() }))
}

/// A step further into a value.
fn qualify(operand: Node, qualifier: Qualifier) -> Node {
    match operand {
        Node::Attribute(mut attribute) => {
            attribute.qualifiers.push(qualifier);
            Node::Attribute(attribute)
        }
        other => Node::Attribute(Box::new(Attribute { base: Base::Value(other), qualifiers: vec![qualifier] })),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::text(text.as_str()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

fn as_constant(node: &Node) -> Option<Value<'static>> {
    match node {
        Node::Constant(value) => Some(value.clone()),
        _ => None,
    }
}

fn constant_map(entries: &[MapEntry]) -> Option<Node> {
    let mut constants = std::collections::BTreeMap::new();
    for entry in entries {
        let (key, value) = (as_constant(&entry.key)?, as_constant(&entry.value)?);
        if entry.optional {
            return None;
        }
        constants.insert(Key::new(&key)?, (key, value));
    }
    Some(Node::Constant(Value::Map(crate::value::Map::Owned(constants.into()))))
}

/// The items of a constant list of numbers, strings or booleans.
fn constant_set(node: &Node) -> Option<BTreeSet<Key<'static>>> {
    let Node::Constant(Value::List(list)) = node else { return None };
    let simple = |value: &Value<'static>| !matches!(value, Value::Bytes(_));
    list.values().ok()?.iter().map(|value| Key::new(value).filter(|_| simple(value))).collect()
}
