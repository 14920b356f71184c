//! What an expression can cost at most. In: a checked tree and how large its variables can be. Out: the bound, by which rules
//! that could be too expensive are refused when their definition is written. Follows cel-go and Kubernetes number by number,
//! because the bound decides which definitions a cluster accepts.

mod calls;

use std::collections::HashMap;

use crate::ast::{Comprehension, Expr, Kind, Literal};
use crate::check::Checked;
use crate::cost;
use crate::decl::{Decl, Inside};
use crate::stack::with_stack_for;
use crate::types::Type;

/// At least and at most, of sizes as well as of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    const ZERO: Self = Self::exactly(0);
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    const fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

fn scaled(value: u64, factor: f64) -> u64 {
    // Beyond 64 bits the conversion gives the largest number.
    (value as f64 * factor).ceil() as u64
}

/// The cost of a checked tree. `root` is the declaration of `self`, and of every other variable.
pub(crate) fn estimate(checked: &Checked, root: &Decl) -> Range {
    let mut estimator = Estimator {
        checked,
        root,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    with_stack_for(checked.ast.levels(), || estimator.cost(&checked.ast.root))
}

/// The way to a value in `self`: names of fields, `@items`, `@keys` and `@values`. Empty where it is unknown.
type Path = Vec<Box<str>>;

/// The sizes of what is inside a list or a map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self { list: self.list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}

struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'c> {
    checked: &'c Checked,
    root: &'c Decl,
    paths: HashMap<u32, Path>,
    /// The innermost last.
    locals: Vec<Local>,
    sizes: HashMap<u32, Range>,
    entries: HashMap<u32, Entries>,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) | Kind::Broken => Range::ZERO,
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.as_str().into()],
                };
                self.paths.insert(expr.id, path);
                Range::exactly(1)
            }
            Kind::Select { operand, field, test } => {
                let cost = self.cost(operand);
                if *test {
                    return cost;
                }
                let mut path = self.path(operand);
                path.push(field.as_str().into());
                self.paths.insert(expr.id, path);
                match self.checked.type_of(operand) {
                    Type::Map(_) | Type::Object(_) | Type::Param(_) => cost.plus(Range::exactly(1)),
                    _ => cost,
                }
            }
            Kind::Call { .. } => self.call(expr),
            Kind::List { items, .. } => {
                let mut cost = Range::exactly(cost::LIST);
                let mut value = Range { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for item in items {
                    cost = cost.plus(self.cost(item));
                    value = value.union(self.size_or_unknown(item));
                }
                self.entries.insert(expr.id, Entries { list: true, key: Range::exactly(1), value });
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::exactly(cost::MAP);
                let start = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (start, start);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { list: false, key, value });
                cost
            }
            Kind::Struct { fields, .. } => {
                fields.iter().fold(Range::exactly(cost::STRUCT), |cost, field| cost.plus(self.cost(&field.value)))
            }
            Kind::Comprehension(fold) if is_binding(fold) => self.binding(expr, fold),
            Kind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn push(&mut self, name: &str, path: Path, size: Option<Range>, entries: Option<Entries>) {
        self.locals.push(Local { name: name.to_owned(), path, size, entries });
    }

    fn binding(&mut self, expr: &Expr, fold: &Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let (size, entries) = (self.size(&fold.init), self.entries_of(&fold.init));
        self.push(&fold.accumulator, self.path(&fold.init), size, entries);
        cost = cost.plus(self.cost(&fold.result));
        self.locals.pop();
        if let Some(size) = self.size(&fold.result) {
            self.sizes.insert(expr.id, size);
        }
        if let Some(entries) = self.entries_of(&fold.result) {
            self.entries.insert(expr.id, entries);
        }
        cost
    }

    fn fold(&mut self, expr: &Expr, fold: &Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let (size, entries) = (self.size(&fold.init), self.entries_of(&fold.init));
        self.push(&fold.accumulator, self.path(&fold.init), size, entries);
        let entries = self.entries_of(&fold.range);
        let is_list =
            entries.map_or(matches!(self.checked.type_of(&fold.range), Type::List(_)), |entries| entries.list);
        let below = |path: &Path, step: &str| path.iter().cloned().chain([step.into()]).collect::<Path>();
        let path = self.path(&fold.range);
        let (keys, values) = if is_list { ("@indices", "@items") } else { ("@keys", "@values") };
        let (key, value) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        match &fold.second {
            Some(second) => {
                self.push(&fold.variable, below(&path, keys), key, None);
                self.push(second, below(&path, values), value, None);
            }
            None if is_list => self.push(&fold.variable, below(&path, values), value, None),
            None => self.push(&fold.variable, below(&path, keys), key, None),
        }
        let turn = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.locals.truncate(self.locals.len() - 1 - usize::from(fold.second.is_some()));
        cost = cost.plus(self.cost(&fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        cost = cost.plus(count.times(step.plus(turn)));
        match &fold.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List { .. } | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        cost
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let exact = match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(cost::literal_size(text)),
            Kind::Literal(Literal::Bytes(bytes)) => Some(bytes.len() as u64),
            Kind::Literal(_) => Some(1),
            Kind::List { items, .. } => Some(items.len() as u64),
            Kind::Map(entries) => Some(entries.len() as u64),
            _ => None,
        };
        if let Some(exact) = exact {
            return Some(Range::exactly(exact));
        }
        if let Some(size) = self.declared_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr)) {
            return Some(Range::exactly(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// How large the declaration says that something can be. The first step of a path is the variable.
    fn declared_size(&self, path: &[Box<str>]) -> Option<Range> {
        let mut decl = self.root;
        for step in path.split_first()?.1 {
            decl = match (&**step, &decl.inside) {
                ("@items" | "@values", Inside::Items(inner) | Inside::Values(inner)) => inner,
                // A key is a string, and nothing bounds it.
                ("@keys", Inside::Values(_)) => return Some(Range::ZERO),
                (name, Inside::Fields(fields)) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(Range { min: 0, max: decl.max_elements })
    }
}

/// A loop over nothing, that only gives a value a name.
fn is_binding(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, Kind::List { items, .. } if items.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => match other.unwrap_optional() {
            (inner, true) => is_scalar(inner),
            _ => false,
        },
    }
}
