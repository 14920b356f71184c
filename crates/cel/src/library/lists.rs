//! Functions of lists, and of lists as sets.

use std::cmp::Ordering;

use crate::value::{Answer, EvalError, List, Value, compare, equal};

use super::strings::position;
use super::{no_overload, operators};

fn list<'l, 'a>(function: &str, args: &'l [Value<'a>]) -> Result<&'l List<'a>, EvalError> {
    match &args[0] {
        Value::List(list) => Ok(list),
        _ => Err(no_overload(function, args)),
    }
}

pub(super) fn index_of<'a>(args: &[Value<'a>]) -> Answer<'a> {
    find("indexOf", args, false)
}

pub(super) fn last_index_of<'a>(args: &[Value<'a>]) -> Answer<'a> {
    find("lastIndexOf", args, true)
}

/// Of an item in a list, or of a part in a string.
fn find<'a>(function: &str, args: &[Value<'a>], backwards: bool) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(part)] => position(text, part, None, backwards),
        [Value::String(text), Value::String(part), Value::Int(from)] => position(text, part, Some(*from), backwards),
        [Value::List(list), item] => {
            let is_equal = |at: &usize| matches!(list.get(*at), Some(Ok(other)) if equal(&other, item) == Ok(true));
            let at = if backwards { (0..list.len()).rev().find(is_equal) } else { (0..list.len()).find(is_equal) };
            Ok(Value::Int(at.map_or(-1, |at| at as i64)))
        }
        _ => Err(no_overload(function, args)),
    }
}

pub(super) fn is_sorted<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let items = list("isSorted", args)?.values()?;
    for pair in items.windows(2) {
        if compare(&pair[0], &pair[1], "isSorted").is_ok_and(Ordering::is_gt) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

pub(super) fn sum<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let mut total: Option<Value<'a>> = None;
    for item in list("sum", args)?.iter() {
        let item = item?;
        total = Some(match total {
            Some(total) => operators::add(&[total, item])?,
            None => item,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

pub(super) fn min<'a>(args: &[Value<'a>]) -> Answer<'a> {
    extreme("min", args, Ordering::Greater)
}

pub(super) fn max<'a>(args: &[Value<'a>]) -> Answer<'a> {
    extreme("max", args, Ordering::Less)
}

fn extreme<'a>(function: &str, args: &[Value<'a>], worse: Ordering) -> Answer<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list(function, args)?.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare(&best, &item, function) != Ok(worse) => best,
            _ => item,
        });
    }
    best.ok_or_else(|| format!("{function} called on empty list").into())
}

pub(super) fn slice<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let list = list("slice", args)?;
    let (Value::Int(from), Value::Int(to)) = (&args[1], &args[2]) else { return Err(no_overload("slice", args)) };
    let wrong = |why: String| Err(format!("cannot slice({from}, {to}), {why}").into());
    if *from < 0 || *to < 0 {
        return wrong("negative indexes not supported".to_owned());
    }
    if from > to {
        return wrong("start index must be less than or equal to end index".to_owned());
    }
    if list.len() < *to as usize {
        return wrong(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, _> = (*from as usize..*to as usize).filter_map(|at| list.get(at)).collect();
    Ok(Value::list(items?))
}

pub(super) fn flatten<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let list = list("flatten", args)?;
    let depth = match args.get(1) {
        None => 1,
        Some(Value::Int(depth)) if *depth < 0 => return Err("level must be non-negative".into()),
        Some(Value::Int(depth)) => *depth,
        Some(_) => return Err(no_overload("flatten", args)),
    };
    let mut items = Vec::new();
    flatten_into(list, depth, &mut items)?;
    Ok(Value::list(items))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, items: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, items)?,
            other => items.push(other),
        }
    }
    Ok(())
}

pub(super) fn sort<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let items = list("sort", args)?.values()?;
    sorted(items.clone(), items)
}

pub(super) fn sort_by_keys<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let (items, keys) = match args {
        [Value::List(items), Value::List(keys)] => (items.values()?, keys.values()?),
        _ => return Err(no_overload("@sortByAssociatedKeys", args)),
    };
    if items.len() != keys.len() {
        return Err(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            items.len(),
            keys.len()
        )
        .into());
    }
    sorted(items, keys)
}

fn sorted<'a>(items: Vec<Value<'a>>, keys: Vec<Value<'a>>) -> Answer<'a> {
    let Some(first) = keys.first() else { return Ok(Value::list(items)) };
    if compare(first, first, "").is_err() && !matches!(first, Value::Double(_)) {
        return Err("list elements must be comparable".into());
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err("list elements must have the same type".into());
    }
    let mut pairs: Vec<_> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(one, _), (other, _)| compare(one, other, "").unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

pub(super) fn range<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Int(count) => Ok(Value::list((0..*count).map(Value::Int).collect())),
        _ => Err(no_overload("lists.range", args)),
    }
}

pub(super) fn reverse<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let mut items = list("reverse", args)?.values()?;
    items.reverse();
    Ok(Value::list(items))
}

pub(super) fn distinct<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in list("distinct", args)?.iter() {
        let item = item?;
        if !kept.iter().any(|other| equal(&item, other) == Ok(true)) {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn contains_all<'a>(list: &List<'a>, others: &List<'a>) -> Result<bool, EvalError> {
    for item in others.iter() {
        if !list.contains(&item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn set_contains<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list), Value::List(others)] => contains_all(list, others).map(Value::Bool),
        _ => Err(no_overload("sets.contains", args)),
    }
}

pub(super) fn set_equivalent<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list), Value::List(others)] => {
            Ok(Value::Bool(contains_all(list, others)? && contains_all(others, list)?))
        }
        _ => Err(no_overload("sets.equivalent", args)),
    }
}

pub(super) fn set_intersects<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), Value::List(others)] = args else { return Err(no_overload("sets.intersects", args)) };
    for item in list.iter() {
        if others.contains(&item?) == Ok(true) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
