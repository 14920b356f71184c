//! Optional values.

use crate::value::{Answer, Value};

use super::no_overload;

pub(super) fn of<'a>(args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::some(args[0].clone()))
}

pub(super) fn of_non_zero<'a>(args: &[Value<'a>]) -> Answer<'a> {
    Ok(if args[0].is_zero() { Value::Optional(None) } else { Value::some(args[0].clone()) })
}

pub(super) fn value<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Err("optional.none() dereference".into()),
        _ => Err(no_overload("value", args)),
    }
}

pub(super) fn has_value<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(no_overload("hasValue", args)),
    }
}

pub(super) fn unwrap<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::List(list) = &args[0] else { return Err(no_overload("optional.unwrap", args)) };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(inner)) => items.push((*inner).clone()),
            Value::Optional(None) => {}
            other => return Err(format!("value {other} is not optional").into()),
        }
    }
    Ok(Value::list(items))
}

pub(super) fn first<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::List(list) = &args[0] else { return Err(no_overload("first", args)) };
    list.get(0).map_or(Ok(Value::Optional(None)), |item| item.map(Value::some))
}

pub(super) fn last<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::List(list) = &args[0] else { return Err(no_overload("last", args)) };
    let at = list.len().checked_sub(1);
    at.and_then(|at| list.get(at)).map_or(Ok(Value::Optional(None)), |item| item.map(Value::some))
}
