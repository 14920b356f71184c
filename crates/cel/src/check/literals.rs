//! Literals that can only fail: durations, timestamps and regular expressions that are none, formats without arguments, and
//! lists of mixed types. In: a checked tree. Out: issues.

use crate::ast::{Expr, Kind, Literal};
use crate::library::{Clause, Piece, Regex, clauses};
use crate::source::Issues;
use crate::types::Type;
use crate::value::{Timestamp, parse_duration};

use super::Checked;

pub(super) fn check(checked: &Checked) -> Issues {
    let mut issues = Issues::default();
    walk(checked, &checked.ast.root, false, &mut issues);
    issues
}

/// `in_format`: inside the arguments of `format`, where lists may be mixed.
fn walk(checked: &Checked, expr: &Expr, in_format: bool, issues: &mut Issues) {
    let mut in_format = in_format;
    let mut report = |at: &Expr, message: String| issues.report(checked.ast.offset(at.id), message);
    match &expr.kind {
        Kind::Call { target, function, args } => {
            if let Some((arg, Kind::Literal(literal))) = args.first().map(|arg| (arg, &arg.kind)) {
                let invalid = match (function.as_str(), literal) {
                    ("duration", Literal::String(text)) => parse_duration(text).is_none(),
                    ("duration", Literal::Int(_)) => true,
                    ("timestamp", Literal::String(text)) => Timestamp::parse(text)
                        .is_none_or(|time| Timestamp::new(time.seconds, time.nanos, time.offset).is_err()),
                    ("timestamp", Literal::Int(seconds)) => Timestamp::new(*seconds, 0, 0).is_err(),
                    ("matches", Literal::String(pattern)) => Regex::new(pattern).is_err(),
                    _ => false,
                };
                if invalid {
                    report(arg, format!("invalid {function} argument"));
                }
            }
            if function == "format" {
                in_format = true;
                if let (Some(Kind::Literal(Literal::String(format))), Some(Kind::List { items, .. })) =
                    (target.as_ref().map(|target| &target.kind), args.first().map(|arg| &arg.kind))
                    && let Err((at, message)) = check_format(checked, expr, format, items)
                {
                    report(at, message);
                }
            }
        }
        Kind::List { items, optional } if !in_format => {
            let mut first: Option<Type> = None;
            for (item, optional) in items.iter().zip(optional) {
                let ty = checked.type_of(item);
                let ty = if *optional { ty.unwrap_optional().0 } else { ty };
                let expected = first.get_or_insert_with(|| ty.clone());
                if expected != ty {
                    report(item, format!("expected type '{expected}' but found '{ty}'"));
                    break;
                }
            }
        }
        Kind::Map(entries) if !in_format => {
            let mut first: Option<(Type, Type)> = None;
            for entry in entries {
                let key = checked.type_of(&entry.key);
                let value = checked.type_of(&entry.value);
                let value = if entry.optional { value.unwrap_optional().0 } else { value };
                let expected = first.get_or_insert_with(|| (key.clone(), value.clone()));
                if expected.0 != *key {
                    report(&entry.key, format!("expected type '{}' but found '{key}'", expected.0));
                }
                if expected.1 != *value {
                    report(&entry.value, format!("expected type '{}' but found '{value}'", expected.1));
                }
            }
        }
        _ => {}
    }
    for child in expr.children() {
        walk(checked, child, in_format, issues);
    }
}

/// Whether the arguments fit the clauses of a format.
fn check_format<'a>(
    checked: &Checked,
    call: &'a Expr,
    format: &str,
    items: &'a [Expr],
) -> Result<(), (&'a Expr, String)> {
    let mut next = 0;
    for piece in clauses(format) {
        let Piece::Clause(clause) = piece else { continue };
        if next >= items.len() && clause.is_ok() {
            return Err((call, format!("index {next} out of range")));
        }
        let clause = clause.map_err(|why| (call, why))?;
        if let Some(wrong) = misfit(checked, clause, &items[next]) {
            return Err((wrong, clause.complaint(&checked.type_of(wrong).name())));
        }
        next += 1;
    }
    if items.len() > next {
        let why = format!("too many arguments supplied to string.format (expected {next}, got {})", items.len());
        return Err((call, why));
    }
    Ok(())
}

/// The argument that a clause cannot format, or the part of it.
fn misfit<'a>(checked: &Checked, clause: Clause, arg: &'a Expr) -> Option<&'a Expr> {
    let ty = checked.type_of(arg);
    let fits = ty.is_dyn()
        || match clause.verb {
            's' => !matches!(ty, Type::Object(_) | Type::Opaque(..) | Type::Error | Type::Param(_)),
            'd' | 'o' => matches!(ty, Type::Int | Type::Uint),
            'f' | 'e' => matches!(ty, Type::Double | Type::String),
            'b' => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            _ => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
    if !fits {
        return Some(arg);
    }
    if clause.verb != 's' || !matches!(arg.kind, Kind::List { .. } | Kind::Map(_)) {
        return None;
    }
    arg.children().into_iter().find_map(|inner| misfit(checked, clause, inner))
}
