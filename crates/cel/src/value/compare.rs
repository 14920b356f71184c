//! Equality and order. Numbers of different types compare by their value; values of different types are not equal, and have
//! no order.

use std::cmp::Ordering;

use super::{EvalError, List, Map, Value};

pub(crate) fn equal<'a>(one: &Value<'a>, other: &Value<'a>) -> Result<bool, EvalError> {
    Ok(match (one, other) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null) && matches!(one, Value::Null),
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::String(one), Value::String(other)) | (Value::Type(one), Value::Type(other)) => one == other,
        (Value::Bytes(one), Value::Bytes(other)) => one == other,
        (Value::Duration(one), Value::Duration(other)) => one == other,
        (Value::Timestamp(one), Value::Timestamp(other)) => one.nanoseconds() == other.nanoseconds(),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            order_numbers(one, other) == Some(Ordering::Equal)
        }
        (Value::List(one), Value::List(other)) => return one.equals(other),
        (Value::Map(one), Value::Map(other)) => return one.equals(other),
        // Values of an object are strict about what they are compared with.
        (Value::List(List::Json { .. }) | Value::Map(Map::Json { .. }), _) => return Err("no such overload".into()),
        (Value::Optional(one), Value::Optional(other)) => match (one, other) {
            (Some(one), Some(other)) => return equal(one, other),
            (one, other) => one.is_none() && other.is_none(),
        },
        (Value::Quantity(one), Value::Quantity(other)) => one.compare(other) == Ordering::Equal,
        (Value::Url(one), Value::Url(other)) => one.text() == other.text(),
        (Value::Ip(one), Value::Ip(other)) => one == other,
        (Value::Cidr(one), Value::Cidr(other)) => one == other,
        (Value::Semver(one), Value::Semver(other)) => one.compare(other) == Ordering::Equal,
        (Value::Format(one), Value::Format(other)) => one.name == other.name,
        (Value::Preserved(one), Value::Preserved(other)) => one == other,
        (Value::Variables, Value::Variables) => true,
        (Value::Object(one), Value::Object(other)) => return one.equals(other),
        (
            Value::Quantity(_)
            | Value::Url(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Semver(_)
            | Value::Format(_)
            | Value::Authority(_)
            | Value::Variables,
            _,
        ) => return Err("no such overload".into()),
        _ => false,
    })
}

/// The order of two values. `operator` is named in the message if the first has no order at all.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>, operator: &str) -> Result<Ordering, EvalError> {
    let order = match (one, other) {
        (Value::Double(value), _) | (Value::Int(_) | Value::Uint(_), Value::Double(value)) if value.is_nan() => {
            return Err("NaN values cannot be ordered".into());
        }
        (Value::Double(_), Value::Double(value)) if value.is_nan() => {
            return Err("NaN values cannot be ordered".into());
        }
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            order_numbers(one, other)
        }
        (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        (Value::Bytes(one), Value::Bytes(other)) => Some(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(other)),
        (Value::Timestamp(one), Value::Timestamp(other)) => Some(one.nanoseconds().cmp(&other.nanoseconds())),
        (
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => None,
        _ => return Err(format!("no such overload: {operator}").into()),
    };
    order.ok_or_else(|| "no such overload".into())
}

/// The order of two numbers; none if one is no number.
fn order_numbers(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    Some(match (one, other) {
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        (Value::Uint(one), Value::Uint(other)) => one.cmp(other),
        (Value::Double(one), Value::Double(other)) => return one.partial_cmp(other),
        (Value::Double(one), other) => return whole(other).and_then(|other| order_double(*one, other)),
        (one, Value::Double(other)) => {
            return whole(one).and_then(|one| order_double(*other, one)).map(Ordering::reverse);
        }
        (one, other) => whole(one)?.cmp(&whole(other)?),
    })
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// As cel-go compares them: as doubles, even where a whole number loses digits.
fn order_double(double: f64, whole: i128) -> Option<Ordering> {
    double.partial_cmp(&(whole as f64))
}
