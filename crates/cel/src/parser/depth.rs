//! How deep expressions may nest. In: which rules of the grammar are open, and the nodes that they make. Out: an issue where
//! cel-go gives up. It counts twice: rules inside rules while it reads, and operators and members inside each other afterwards.

use crate::ast::{Expr, Kind};
use crate::source::NOWHERE;

use super::{Parsed, Parser, Stop};

/// How many levels there may be, of each kind.
pub(super) const LIMIT: usize = 250;

/// The rules of the grammar that can be inside themselves.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    Expr,
    Relation,
    Calc,
}

#[derive(Default)]
pub(super) struct Depth {
    /// How many of each rule are open.
    open: [usize; 3],
    /// How many operators and members are inside each node, itself included. By the number of the node.
    heights: Vec<usize>,
}

impl Depth {
    fn of(&self, expr: &Expr) -> usize {
        self.heights.get(expr.id as usize).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, expr: &Expr, height: usize) {
        let at = expr.id as usize;
        if self.heights.len() <= at {
            self.heights.resize(at + 1, 0);
        }
        self.heights[at] = height;
    }

    pub(super) fn of_call(&self, target: Option<&Expr>, args: &[Expr]) -> usize {
        let below = target.into_iter().chain(args).map(|part| self.of(part)).max();
        below.unwrap_or_default() + usize::from(target.is_some())
    }

    pub(super) fn measure(&mut self, expr: &Expr) {
        let own = match &expr.kind {
            Kind::Select { .. } => true,
            // Of the operators, only those with operands on both sides count, and not the logical ones.
            Kind::Call { target, function, .. } => {
                let operator = function.starts_with('_') || function == "@in";
                target.is_some() || (operator && !matches!(function.as_str(), "_&&_" | "_||_"))
            }
            _ => false,
        };
        let below = expr.children().into_iter().map(|part| self.of(part)).max();
        self.set(expr, below.unwrap_or_default() + usize::from(own));
    }
}

impl Parser {
    /// Reads what is inside a rule.
    pub(super) fn within(&mut self, rule: Rule, parse: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.depth.open[rule as usize] += 1;
        if self.depth.open[rule as usize] > LIMIT {
            self.issues.report(NOWHERE, format!("expression recursion limit exceeded: {LIMIT}"));
            return Err(Stop);
        }
        let parsed = parse(self);
        self.depth.open[rule as usize] -= 1;
        parsed
    }

    /// Ends at a node that is too high. Nothing below it can be, so each node that can be higher is asked when it is made: a
    /// long chain of operators never becomes a tree that is too deep to be dropped.
    pub(super) fn not_too_deep(&mut self, expr: &Expr) -> Parsed<()> {
        if self.depth.of(expr) > LIMIT {
            self.issues.report(NOWHERE, "max recursion depth exceeded");
            return Err(Stop);
        }
        Ok(())
    }
}
