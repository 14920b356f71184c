//! The type checker. In: a tree and the declared variables. Out: the type of every node, which overloads each call can mean,
//! or issues in the words of cel-go. Names with dots in them, such as `optional.of`, are resolved in the tree.

mod literals;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ast::{Ast, Comprehension, Expr, Kind, Literal, StructField};
use crate::decl::Decl;
use crate::escape::is_reserved_word;
use crate::functions::{Overload, function};
use crate::source::Issues;
use crate::stack::with_stack_for;
use crate::types::{Substitutions, Type, most_general};

/// The variables of an expression.
pub(crate) struct Variables<'a> {
    pub types: Vec<(&'static str, Type)>,
    /// The fields of the objects in them, by the name of the type.
    pub objects: HashMap<Arc<str>, &'a BTreeMap<Box<str>, Decl>>,
    /// Whether the expression may make objects and JSON patches.
    pub patches: bool,
}

/// A tree in which everything has a type.
pub(crate) struct Checked {
    pub ast: Ast,
    /// By the number of the node.
    pub types: Vec<Type>,
    pub references: HashMap<u32, Reference>,
}

/// What a name means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reference {
    Variable(String),
    Type(Type),
    Overloads(Vec<&'static str>),
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        &self.types[expr.id as usize]
    }

    pub(crate) fn overloads(&self, id: u32) -> &[&'static str] {
        match self.references.get(&id) {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }

    /// Whether the expression names this variable.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        self.references.values().any(|reference| matches!(reference, Reference::Variable(name) if name == variable))
    }
}

pub(crate) fn check(ast: Ast, variables: &Variables<'_>) -> Result<Checked, Issues> {
    with_stack_for(ast.levels(), || check_tree(ast, variables))
}

fn check_tree(mut ast: Ast, variables: &Variables<'_>) -> Result<Checked, Issues> {
    let mut root = std::mem::replace(&mut ast.root, Expr { id: 0, kind: Kind::Broken });
    let mut checker = Checker {
        offsets: &ast.offsets,
        variables,
        scopes: Vec::new(),
        types: vec![Type::Error; ast.offsets.len()],
        references: HashMap::new(),
        substitutions: Substitutions::default(),
        fresh: 0,
        issues: Issues::default(),
    };
    checker.expr(&mut root);
    let Checker { types, references, substitutions, issues, .. } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    let types = types.iter().map(|ty| substitutions.apply(ty, true)).collect();
    let checked = Checked { ast: Ast { root, offsets: ast.offsets }, types, references };
    let issues = literals::check(&checked);
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

struct Checker<'a> {
    offsets: &'a [u32],
    variables: &'a Variables<'a>,
    /// The variables of the loops around, the innermost last.
    scopes: Vec<(String, Type)>,
    types: Vec<Type>,
    references: HashMap<u32, Reference>,
    substitutions: Substitutions,
    /// How many types were given names so far.
    fresh: usize,
    issues: Issues,
}

impl Checker<'_> {
    fn expr(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ty = match &mut expr.kind {
            Kind::Literal(literal) => type_of_literal(literal),
            Kind::Broken => Type::Error,
            Kind::Ident(name) => {
                let name = name.clone();
                self.ident(expr, &name)
            }
            Kind::Select { .. } => self.select(expr),
            Kind::Call { .. } => self.call(expr),
            Kind::List { items, optional } => {
                let mut joined = None;
                for (item, optional) in items.iter_mut().zip(optional) {
                    self.expr(item);
                    let ty = self.item_type(item, *optional);
                    joined = Some(self.join(joined, ty));
                }
                Type::list(joined.unwrap_or_else(|| self.unknown()))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    self.expr(&mut entry.key);
                    let key = self.type_of(&entry.key);
                    keys = Some(self.join(keys, key));
                    self.expr(&mut entry.value);
                    let value = self.item_type(&entry.value, entry.optional);
                    values = Some(self.join(values, value));
                }
                let key = keys.unwrap_or_else(|| self.unknown());
                Type::map(key, values.unwrap_or_else(|| self.unknown()))
            }
            Kind::Struct { name, fields } => {
                let name = name.clone();
                self.structure(id, &name, fields)
            }
            Kind::Comprehension(fold) => self.comprehension(fold),
        };
        self.types[id as usize] = ty;
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone()
    }

    fn unknown(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(format!("_var{}", self.fresh - 1).into())
    }

    fn report(&mut self, id: u32, message: impl Into<String>) {
        self.issues.report(self.offsets[id as usize], message);
    }

    fn undeclared(&mut self, id: u32, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn mismatch(&mut self, id: u32, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    /// The type of an item or value that may be written `?item`.
    fn item_type(&mut self, expr: &Expr, optional: bool) -> Type {
        let ty = self.type_of(expr);
        if !optional {
            return ty;
        }
        let (inner, is_optional) = ty.unwrap_optional();
        let inner = inner.clone();
        if !is_optional && !inner.is_dyn() {
            self.mismatch(expr.id, &Type::optional(inner.clone()), &inner);
        }
        inner
    }

    /// The type of both; lists and maps of mixed types are judged later.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.substitutions.assignable(&before, &ty) {
            return most_general(&before, &ty);
        }
        Type::Dyn
    }

    fn lookup(&self, name: &str) -> Option<Reference> {
        let name = name.trim_start_matches('.');
        let declared = self.scopes.iter().any(|(known, _)| known == name)
            || self.variables.types.iter().any(|(known, _)| *known == name);
        if declared {
            return Some(Reference::Variable(name.to_owned()));
        }
        if self.makes(name) {
            return Some(Reference::Type(Type::Object(name.into())));
        }
        named_type(name).map(Reference::Type)
    }

    /// Whether this is a type that the expression may make values of.
    fn makes(&self, name: &str) -> bool {
        self.variables.patches && (matches!(name, "Object" | "JSONPatch") || name.starts_with("Object."))
    }

    fn structure(&mut self, id: u32, name: &str, fields: &mut [StructField]) -> Type {
        let known = name.trim_start_matches('.');
        if !self.makes(known) {
            return self.undeclared(id, name);
        }
        for field in fields {
            self.expr(&mut field.value);
            let expected = made_field(known, &field.name);
            let found = self.item_type(&field.value, field.optional);
            if expected.as_ref().is_none_or(|expected| !self.substitutions.assignable(expected, &found)) {
                // A field that is not declared has no type, and no name of one.
                let expected = expected.map(|expected| expected.to_string()).unwrap_or_default();
                let why = format!(
                    "expected type of field '{}' is '{expected}' but provided type is '{}'",
                    field.name,
                    self.substitutions.apply(&found, true)
                );
                self.issues.report(field.offset, why);
            }
        }
        Type::Object(known.into())
    }

    fn type_of_variable(&self, name: &str) -> Type {
        let scoped = self.scopes.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty);
        let known = scoped.or_else(|| self.variables.types.iter().find(|(known, _)| *known == name).map(|(_, ty)| ty));
        known.cloned().unwrap_or(Type::Error)
    }

    fn ident(&mut self, expr: &mut Expr, name: &str) -> Type {
        let Some(reference) = self.lookup(name) else { return self.undeclared(expr.id, name) };
        let ty = match &reference {
            Reference::Variable(name) => self.type_of_variable(name),
            Reference::Type(ty) => Type::Kind(Some(Arc::new(ty.clone()))),
            Reference::Overloads(_) => unreachable!("a name is a variable or a type"),
        };
        expr.kind = Kind::Ident(name.trim_start_matches('.').to_owned());
        self.references.insert(expr.id, reference);
        ty
    }

    fn select(&mut self, expr: &mut Expr) -> Type {
        if let Some(name) = expr.qualified_name()
            && self.lookup(&name).is_some()
        {
            return self.ident(expr, &name);
        }
        let id = expr.id;
        let Kind::Select { operand, field, test } = &mut expr.kind else { return Type::Error };
        let (field, test) = (field.clone(), *test);
        let ty = self.field(id, operand, &field, false);
        if test { Type::Bool } else { self.substitutions.apply(&ty, false) }
    }

    fn field(&mut self, id: u32, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.expr(operand);
        let operand = self.substitutions.apply(&self.type_of(operand), false);
        let (target, is_optional) = operand.unwrap_optional();
        let result = match target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => match self.variables.objects.get(name) {
                Some(fields) => match declared(fields, field) {
                    Some(decl) => decl.ty.clone(),
                    None => {
                        self.report(id, format!("undefined field '{field}'"));
                        Type::Error
                    }
                },
                None if self.makes(name) => made_field(name, field).unwrap_or(Type::Dyn),
                None => {
                    self.report(id, format!("unexpected failed resolution of '{name}'"));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.substitutions.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    let message = format!("type '{other}' does not support field selection");
                    self.report(id, message);
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let Kind::Call { target, function: name, args } = &mut expr.kind else { return Type::Error };
        if name == "_?._" {
            let field = match &args[1].kind {
                Kind::Literal(Literal::String(field)) => field.clone(),
                _ => unreachable!("the parser makes the field a string"),
            };
            let ty = self.field(id, &mut args[0], &field, true);
            self.references.insert(id, Reference::Overloads(vec!["select_optional_field"]));
            self.types[args[1].id as usize] = Type::String;
            return self.substitutions.apply(&ty, false);
        }
        for arg in args.iter_mut() {
            self.expr(arg);
        }
        // `optional.of(x)` is parsed as a call of `of` on `optional`.
        let qualified = target
            .as_ref()
            .and_then(|target| target.qualified_name())
            .map(|prefix| format!("{}.{name}", prefix.trim_start_matches('.')));
        let offered = |qualified: String| {
            function(&qualified).filter(|(known, _)| self.variables.patches || *known != "jsonpatch.escapeKey")
        };
        if let Some((known, overloads)) = qualified.and_then(offered) {
            *name = known.to_owned();
            *target = None;
            return self.resolve(id, known, overloads, None, args);
        }
        if let Some(target) = target {
            self.expr(target);
        }
        match function(name.trim_start_matches('.')) {
            Some((known, overloads)) => {
                *name = known.to_owned();
                self.resolve(id, known, overloads, target.as_deref(), args)
            }
            None => {
                let name = name.clone();
                self.undeclared(id, &name)
            }
        }
    }

    fn resolve(
        &mut self,
        id: u32,
        name: &str,
        overloads: &'static [Overload],
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Type {
        let types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(name, "_&&_" | "_||_") {
            let mut fits = true;
            for (arg, ty) in args.iter().zip(&types) {
                if !self.substitutions.assignable(ty, &Type::Bool) {
                    self.mismatch(arg.id, &Type::Bool, ty);
                    fits = false;
                }
            }
            self.references.insert(id, Reference::Overloads(vec![overloads[0].id]));
            return if fits { Type::Bool } else { Type::Error };
        }
        let mut found: Vec<&'static str> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.member == target.is_some()) {
            let mut fresh = Substitutions::default();
            for param in &overload.params {
                fresh.bind(param.clone(), self.unknown());
            }
            let expected: Vec<Type> = overload.args.iter().map(|arg| fresh.apply(arg, false)).collect();
            if !self.substitutions.assignable_all(&types, &expected) {
                continue;
            }
            found.push(overload.id);
            let ty = self.substitutions.apply(&fresh.apply(&overload.result, false), false);
            result = Some(match result {
                Some(before) if !before.is_dyn() && before != ty => Type::Dyn,
                Some(before) => before,
                None => ty,
            });
        }
        let Some(result) = result else {
            let shown: Vec<String> = types.iter().map(|ty| self.substitutions.apply(ty, true).to_string()).collect();
            let signature = match target {
                Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return Type::Error;
        };
        self.references.insert(id, Reference::Overloads(found));
        result
    }

    fn comprehension(&mut self, fold: &mut Comprehension) -> Type {
        self.expr(&mut fold.range);
        self.expr(&mut fold.init);
        let range = self.substitutions.apply(&self.type_of(&fold.range), false);
        let accumulated = self.type_of(&fold.init);
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        let (first, second) = match &range {
            Type::List(item) if fold.second.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Error),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitutions.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, why);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scopes.len();
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        self.expr(&mut fold.condition);
        self.must_be(&fold.condition, &Type::Bool);
        self.expr(&mut fold.step);
        self.must_be(&fold.step, &accumulated);
        self.scopes.truncate(outside);
        self.expr(&mut fold.result);
        self.scopes.pop();
        self.substitutions.apply(&self.type_of(&fold.result), false)
    }

    fn must_be(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.substitutions.assignable(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}

/// A field, whose name may be a word of the language and need no escape then.
fn declared<'a>(fields: &'a BTreeMap<Box<str>, Decl>, name: &str) -> Option<&'a Decl> {
    fields.get(name).or_else(|| fields.get(&*format!("__{name}__")).filter(|_| is_reserved_word(name)))
}

fn type_of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The type of a field of an object that an expression makes. Nothing is known of the fields of `Object.…`.
fn made_field(ty: &str, field: &str) -> Option<Type> {
    match (ty, field) {
        ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
        ("JSONPatch", "value") => Some(Type::Dyn),
        ("JSONPatch", _) => None,
        _ => Some(Type::Dyn),
    }
}

/// The types that expressions can name, as in `type(self.port) == int`.
fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Kind(None),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" | "net.CIDR" => Type::Opaque(name.into(), [].into()),
        _ => return None,
    })
}
