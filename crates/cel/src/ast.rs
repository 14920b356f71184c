//! An expression as a tree. Every node has a number of its own; the checker and the estimator keep what they find by that
//! number, and [`Ast::offset`] has its position in the source.

/// A parsed expression.
#[derive(Clone, Debug)]
pub(crate) struct Ast {
    pub root: Expr,
    /// The position of each node, by its number.
    pub offsets: Vec<u32>,
}

impl Ast {
    pub(crate) fn offset(&self, id: u32) -> u32 {
        self.offsets[id as usize]
    }

    /// How many nodes are inside each other. Walks without recursion, because it says how much stack recursion needs.
    pub(crate) fn levels(&self) -> usize {
        let mut open = vec![(&self.root, 1)];
        let mut deepest = 0;
        while let Some((expr, level)) = open.pop() {
            deepest = deepest.max(level);
            open.extend(expr.children().into_iter().map(|child| (child, level + 1)));
        }
        deepest
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub id: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// `has(operand.field)`
        test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List {
        items: Vec<Expr>,
        /// Which items are written `?item`.
        optional: Vec<bool>,
    },
    Map(Vec<Entry>),
    /// An object with named fields: `Object.spec{replicas: 1}`, where patches are made.
    Struct {
        name: String,
        fields: Vec<StructField>,
    },
    Comprehension(Box<Comprehension>),
    /// What could not be parsed; an issue says why.
    Broken,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct StructField {
    pub name: Box<str>,
    pub value: Expr,
    pub optional: bool,
    /// Where its colon stands.
    pub offset: u32,
}

/// A loop: what macros such as `all` and `map` stand for.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub range: Expr,
    /// An item of a list, or a key of a map. With two variables: the index, or the key.
    pub variable: String,
    /// With two variables: the item, or the value.
    pub second: Option<String>,
    pub accumulator: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The accumulator of macros. No expression can name it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The variable of loops that do not loop, but only give a value a name.
pub(crate) const UNUSED: &str = "#unused";

impl Expr {
    /// `a.b.c` as a name, if it can be one.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Every node directly below.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Broken => Vec::new(),
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call { target, args, .. } => target.iter().map(|target| &**target).chain(args).collect(),
            Kind::List { items, .. } => items.iter().collect(),
            Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            Kind::Struct { fields, .. } => fields.iter().map(|field| &field.value).collect(),
            Kind::Comprehension(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }
}
