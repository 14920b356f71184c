//! Macros: calls that stand for other expressions. In: the name, target and arguments of a call. Out: what it stands for,
//! or the call's parts again if no macro has its name and number of arguments.

use crate::ast::{ACCUMULATOR, Comprehension, Expr, Kind, Literal, UNUSED};

use super::Parser;

type Parts = (Option<Expr>, Vec<Expr>);

/// What went wrong in a macro: a position, and why.
type Problem = (u32, String);

/// `optMap` copies what it is applied to, so that a chain of them doubles with each link: thirty would fill the memory. No
/// expression of 100,000 characters has as many nodes without copies.
const MOST_NODES: usize = 500_000;

const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

impl Parser {
    pub(super) fn expand(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<Expr>,
        mut args: Vec<Expr>,
    ) -> Result<Expr, Parts> {
        let Some(target) = target else {
            if function != "has" || args.len() != 1 {
                return Err((None, args));
            }
            let arg = args.remove(0);
            let at = self.offsets[arg.id as usize];
            return Ok(match arg.kind {
                Kind::Select { operand, field, test: false } => {
                    self.node(offset, Kind::Select { operand, field, test: true })
                }
                _ => self.broken(at, "invalid argument to has() macro"),
            });
        };
        let expanded = match (function, args.len()) {
            ("all" | "exists" | "exists_one", 2 | 3) | ("existsOne", 3) => {
                self.quantifier(offset, function, target, args)
            }
            ("map", 2 | 3) | ("filter", 2) => self.collect(offset, function == "filter", target, args),
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
                self.transform(offset, function, target, args)
            }
            ("optMap" | "optFlatMap", 2) => self.optional_map(offset, function, target, args),
            ("sortBy", 2) => self.sort_by(offset, target, args),
            _ => return Err((Some(target), args)),
        };
        Ok(expanded.unwrap_or_else(|(at, why)| self.broken(at, why)))
    }

    fn accumulator(&mut self, offset: u32) -> Expr {
        self.node(offset, Kind::Ident(ACCUMULATOR.to_owned()))
    }

    fn constant(&mut self, offset: u32, literal: Literal) -> Expr {
        self.node(offset, Kind::Literal(literal))
    }

    fn list_of(&mut self, offset: u32, items: Vec<Expr>) -> Expr {
        let optional = vec![false; items.len()];
        self.node(offset, Kind::List { items, optional })
    }

    /// The same expression with numbers of its own.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.id(self.offsets[expr.id as usize]);
        match &mut expr.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Broken => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| self.renumber(target));
                args.iter_mut().for_each(|arg| self.renumber(arg));
            }
            Kind::List { items, .. } => items.iter_mut().for_each(|item| self.renumber(item)),
            Kind::Map(entries) => {
                for entry in entries {
                    self.renumber(&mut entry.key);
                    self.renumber(&mut entry.value);
                }
            }
            Kind::Struct { fields, .. } => fields.iter_mut().for_each(|field| self.renumber(&mut field.value)),
            Kind::Comprehension(fold) => {
                let Comprehension { range, init, condition, step, result, .. } = &mut **fold;
                for part in [range, init, condition, step, result] {
                    self.renumber(part);
                }
            }
        }
    }

    fn variable(&self, arg: &Expr, complaint: &str) -> Result<String, Problem> {
        let at = self.offsets[arg.id as usize];
        match &arg.kind {
            Kind::Ident(name) if name == ACCUMULATOR || name == "__result__" => Err((at, OVERWRITES.to_owned())),
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err((at, complaint.to_owned())),
        }
    }

    /// The variables of a macro; `rest` gets what follows them.
    fn variables(&self, args: &[Expr], two: bool, complaint: &str) -> Result<(String, Option<String>), Problem> {
        let first = self.variable(&args[0], complaint)?;
        if !two {
            return Ok((first, None));
        }
        let second = self.variable(&args[1], complaint)?;
        if first == second {
            return Err((self.offsets[args[1].id as usize], format!("duplicate variable name: {first}")));
        }
        Ok((first, Some(second)))
    }

    fn fold(&mut self, offset: u32, fold: Comprehension) -> Expr {
        self.node(offset, Kind::Comprehension(Box::new(fold)))
    }

    fn quantifier(&mut self, at: u32, function: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let (variable, second) = self.variables(&args, args.len() == 3, "argument must be a simple name")?;
        let predicate = args.pop().expect("a macro has two or three arguments");
        let accumulated = self.accumulator(at);
        let (init, condition, step, result);
        match function {
            "all" => {
                init = self.constant(at, Literal::Bool(true));
                condition = self.call(at, "@not_strictly_false", vec![accumulated]);
                let accumulated = self.accumulator(at);
                step = self.call(at, "_&&_", vec![accumulated, predicate]);
                result = self.accumulator(at);
            }
            "exists" => {
                init = self.constant(at, Literal::Bool(false));
                let not = self.call(at, "!_", vec![accumulated]);
                condition = self.call(at, "@not_strictly_false", vec![not]);
                let accumulated = self.accumulator(at);
                step = self.call(at, "_||_", vec![accumulated, predicate]);
                result = self.accumulator(at);
            }
            _ => {
                init = self.constant(at, Literal::Int(0));
                condition = self.constant(at, Literal::Bool(true));
                let one = self.constant(at, Literal::Int(1));
                let more = self.call(at, "_+_", vec![accumulated, one]);
                let same = self.accumulator(at);
                step = self.call(at, "_?_:_", vec![predicate, more, same]);
                let (count, one) = (self.accumulator(at), self.constant(at, Literal::Int(1)));
                result = self.call(at, "_==_", vec![count, one]);
            }
        }
        let accumulator = ACCUMULATOR.to_owned();
        Ok(self.fold(at, Comprehension { range, variable, second, accumulator, init, condition, step, result }))
    }

    /// `map` and `filter`.
    fn collect(&mut self, at: u32, filter: bool, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let (variable, _) = self.variables(&args, false, "argument is not an identifier")?;
        let last = args.pop().expect("a macro has two or three arguments");
        let (item, predicate) =
            if filter { (args.remove(0), Some(last)) } else { (last, (args.len() == 2).then(|| args.pop()).flatten()) };
        let added = self.list_of(at, vec![item]);
        let accumulated = self.accumulator(at);
        let step = self.call(at, "_+_", vec![accumulated, added]);
        let init = self.list_of(at, Vec::new());
        Ok(self.accumulate(at, range, (variable, None), init, predicate, step))
    }

    /// A loop that adds to a list or a map, for all items or for those with a property.
    fn accumulate(
        &mut self,
        at: u32,
        range: Expr,
        (variable, second): (String, Option<String>),
        init: Expr,
        predicate: Option<Expr>,
        mut step: Expr,
    ) -> Expr {
        if let Some(predicate) = predicate {
            let same = self.accumulator(at);
            step = self.call(at, "_?_:_", vec![predicate, step, same]);
        }
        let condition = self.constant(at, Literal::Bool(true));
        let result = self.accumulator(at);
        let accumulator = ACCUMULATOR.to_owned();
        self.fold(at, Comprehension { range, variable, second, accumulator, init, condition, step, result })
    }

    fn transform(&mut self, at: u32, function: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let variables = self.variables(&args, true, "argument must be a simple name")?;
        let transform = args.pop().expect("a macro has three or four arguments");
        let predicate = (args.len() == 3).then(|| args.pop()).flatten();
        let accumulated = self.accumulator(at);
        let (init, step);
        if function == "transformList" {
            init = self.list_of(at, Vec::new());
            let added = self.list_of(at, vec![transform]);
            step = self.call(at, "_+_", vec![accumulated, added]);
        } else {
            init = self.node(at, Kind::Map(Vec::new()));
            let mut inserted = vec![accumulated];
            if function == "transformMap" {
                inserted.push(self.node(at, Kind::Ident(variables.0.clone())));
            }
            inserted.push(transform);
            step = self.call(at, "cel.@mapInsert", inserted);
        }
        Ok(self.accumulate(at, range, variables, init, predicate, step))
    }

    /// A loop over nothing that gives `value` a name in `result`.
    fn bind(&mut self, at: u32, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.list_of(at, Vec::new());
        let condition = self.constant(at, Literal::Bool(false));
        let step = self.node(at, Kind::Ident(name.to_owned()));
        let (variable, accumulator) = (UNUSED.to_owned(), name.to_owned());
        self.fold(
            at,
            Comprehension { range, variable, second: None, accumulator, init: value, condition, step, result },
        )
    }

    fn member_call(&mut self, at: u32, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.node(at, Kind::Call { target: Some(Box::new(target)), function: function.to_owned(), args })
    }

    fn optional_map(&mut self, at: u32, function: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let Kind::Ident(name) = &args[0].kind else {
            let why = format!("{function}() variable name must be a simple identifier");
            return Err((self.offsets[args[0].id as usize], why));
        };
        if self.offsets.len() > MOST_NODES {
            return Err((at, format!("{function}() makes the expression too large; use fewer of them in a chain")));
        }
        let name = name.clone();
        let mapped = args.pop().expect("a macro has two arguments");
        let copy = self.copy(&target);
        let value = self.member_call(at, "value", copy, Vec::new());
        let mut bound = self.bind(at, &name, value, mapped);
        if function == "optMap" {
            bound = self.call(at, "optional.of", vec![bound]);
        }
        let none = self.call(at, "optional.none", Vec::new());
        let has = self.member_call(at, "hasValue", target, Vec::new());
        Ok(self.call(at, "_?_:_", vec![has, bound, none]))
    }

    fn sort_by(&mut self, at: u32, target: Expr, args: Vec<Expr>) -> Result<Expr, Problem> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct { .. }) {
            let why = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((self.offsets[target.id as usize], why.to_owned()));
        }
        let input = self.node(at, Kind::Ident(INPUT.to_owned()));
        let keys = self.collect(at, false, input, args)?;
        let input = self.node(at, Kind::Ident(INPUT.to_owned()));
        let sorted = self.member_call(at, "@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(at, INPUT, target, sorted))
    }
}
