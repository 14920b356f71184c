//! Operators. Integers that overflow are errors.

use std::sync::Arc;

use crate::value::{Answer, EvalError, Key, Map, Text, Timestamp, Value, compare};

fn overflow(what: &str) -> EvalError {
    format!("{what} overflow").into()
}

/// The second operand does not fit the first.
fn mismatch<'a>() -> Answer<'a> {
    Err("no such overload".into())
}

/// The first operand has no such operator. Values that have methods look for one of this name, and say less.
pub(super) fn unknown<'a>(operator: &str, first: &Value<'_>) -> Answer<'a> {
    match first {
        Value::String(_) | Value::Timestamp(_) | Value::Duration(_) => mismatch(),
        _ => Err(format!("no such overload: {operator}").into()),
    }
}

fn int<'a>(value: Option<i64>) -> Answer<'a> {
    value.map(Value::Int).ok_or_else(|| overflow("integer"))
}

fn uint<'a>(value: Option<u64>) -> Answer<'a> {
    value.map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
}

fn duration<'a>(value: Option<i64>) -> Answer<'a> {
    value.map(Value::Duration).ok_or_else(|| overflow("duration"))
}

fn moment<'a>(time: &Timestamp, nanoseconds: i128) -> Answer<'a> {
    Timestamp::from_nanoseconds(time.nanoseconds() + nanoseconds, time.offset).map(Value::Timestamp)
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(other)) => int(one.checked_add(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_add(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one + other)),
        (Value::String(one), Value::String(other)) => Ok(Value::text([&**one, &**other].concat())),
        (Value::Bytes(one), Value::Bytes(other)) => Ok(Value::Bytes([&**one, &**other].concat().into())),
        (Value::Duration(one), Value::Duration(other)) => duration(one.checked_add(*other)),
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            moment(time, i128::from(*span))
        }
        (Value::List(one), Value::List(other)) => one.add(other),
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::List(_),
            _,
        ) => mismatch(),
        _ => unknown("_+_", &args[0]),
    }
}

pub(super) fn subtract<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(other)) => int(one.checked_sub(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_sub(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one - other)),
        (Value::Duration(one), Value::Duration(other)) => duration(one.checked_sub(*other)),
        (Value::Timestamp(time), Value::Duration(span)) => moment(time, -i128::from(*span)),
        (Value::Timestamp(one), Value::Timestamp(other)) => {
            duration(i64::try_from(one.nanoseconds() - other.nanoseconds()).ok())
        }
        (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) | Value::Timestamp(_), _) => mismatch(),
        _ => unknown("_-_", &args[0]),
    }
}

pub(super) fn multiply<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(other)) => int(one.checked_mul(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_mul(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one * other)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => mismatch(),
        _ => unknown("_*_", &args[0]),
    }
}

pub(super) fn divide<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err("division by zero".into()),
        (Value::Int(one), Value::Int(other)) => int(one.checked_div(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_div(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one / other)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => mismatch(),
        _ => unknown("_/_", &args[0]),
    }
}

pub(super) fn modulo<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err("modulus by zero".into()),
        (Value::Int(one), Value::Int(other)) => int(one.checked_rem(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_rem(*other)),
        (Value::Int(_) | Value::Uint(_), _) => mismatch(),
        _ => unknown("_%_", &args[0]),
    }
}

pub(super) fn negate<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Int(value) => int(value.checked_neg()),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(value) => duration(value.checked_neg()),
        Value::Bool(_) => mismatch(),
        _ => unknown("-_", &args[0]),
    }
}

pub(super) fn not<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Bool(value) => Ok(Value::Bool(!value)),
        _ => mismatch(),
    }
}

pub(super) fn less<'a>(args: &[Value<'a>]) -> Answer<'a> {
    compare(&args[0], &args[1], "_<_").map(|order| Value::Bool(order.is_lt()))
}

pub(super) fn less_equals<'a>(args: &[Value<'a>]) -> Answer<'a> {
    compare(&args[0], &args[1], "_<=_").map(|order| Value::Bool(order.is_le()))
}

pub(super) fn greater<'a>(args: &[Value<'a>]) -> Answer<'a> {
    compare(&args[0], &args[1], "_>_").map(|order| Value::Bool(order.is_gt()))
}

pub(super) fn greater_equals<'a>(args: &[Value<'a>]) -> Answer<'a> {
    compare(&args[0], &args[1], "_>=_").map(|order| Value::Bool(order.is_ge()))
}

pub(super) fn is_in<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[1] {
        Value::List(list) => list.contains(&args[0]).map(Value::Bool),
        Value::Map(map) => match map.find(&args[0]) {
            Some(Err(why)) => Err(why),
            found => Ok(Value::Bool(found.is_some())),
        },
        _ => mismatch(),
    }
}

pub(super) fn size<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => {
            Ok(Value::Int(args[0].size().unwrap_or_default() as i64))
        }
        _ => unknown("size", &args[0]),
    }
}

pub(super) fn type_of<'a>(args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Type(Text::Borrowed(args[0].type_name())))
}

/// Adds an entry, or the entries of a map, to a map that has none of the keys.
pub(super) fn insert<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::Map(target) = &args[0] else { return Err(super::no_overload("cel.@mapInsert", args)) };
    let mut entries = match target {
        Map::Owned(entries) => entries.clone(),
        Map::Json { .. } | Map::Dynamic(_) => Arc::default(),
    };
    let added = Arc::make_mut(&mut entries);
    let mut put = |key: &Value<'a>, value: Value<'a>| -> Result<(), EvalError> {
        let of = Key::new(key).ok_or_else(|| EvalError::from(format!("unsupported key type: {}", key.type_name())))?;
        match added.insert(of, (key.clone(), value)) {
            Some(_) => Err(format!("insert failed: key {key} already exists").into()),
            None => Ok(()),
        }
    };
    match (&args[1], args.get(2)) {
        (key, Some(value)) => put(key, value.clone())?,
        (Value::Map(more), None) => {
            for key in more.keys() {
                if let Some(value) = more.find(&key) {
                    put(&key, value?)?;
                }
            }
        }
        _ => return Err(super::no_overload("cel.@mapInsert", args)),
    }
    Ok(Value::Map(Map::Owned(entries)))
}
