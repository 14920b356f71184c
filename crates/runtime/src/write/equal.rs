//! Whether two scalars mean the same. In: what somebody wrote and what a server shows. Out: yes or no. Servers write
//! quantities, times and numbers in their own way: `0.5` comes back as `500m`.

use jiff::Timestamp;
use konverge_schema::{Scalar, quantity};
use serde_json::Value;

/// Whether both values mean the same for a field of this type. An int-or-string is never both: `80` and `"80"` differ.
pub(crate) fn same(scalar: Scalar, live: &Value, want: &Value) -> bool {
    if live == want {
        return true;
    }
    match scalar {
        Scalar::Quantity => match (quantity(live), quantity(want)) {
            (Some(live), Some(want)) => live == want,
            _ => false,
        },
        Scalar::Time | Scalar::MicroTime => match (moment(live), moment(want)) {
            (Some(live), Some(want)) => live == want,
            _ => false,
        },
        _ => same_number(live, want),
    }
}

/// Whether both are the same, but for how numbers are written.
pub(crate) fn same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(items), Value::Array(others)) => {
            items.len() == others.len() && items.iter().zip(others).all(|(one, other)| same_value(one, other))
        }
        (Value::Object(fields), Value::Object(others)) => {
            let same = |(name, one): (&String, &Value)| others.get(name).is_some_and(|other| same_value(one, other));
            fields.len() == others.len() && fields.iter().all(same)
        }
        _ => one == other || same_number(one, other),
    }
}

/// Whether both are numbers of one value: `3` and `3.0`.
pub(crate) fn same_number(live: &Value, want: &Value) -> bool {
    match (live, want) {
        (Value::Number(live), Value::Number(want)) => {
            live == want || (live.is_f64() || want.is_f64()) && live.as_f64() == want.as_f64()
        }
        _ => false,
    }
}

fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_are_compared_by_what_they_mean() {
        let cases = [
            (Scalar::Quantity, json!("500m"), json!("0.5"), true),
            (Scalar::Quantity, json!("1"), json!(1), true),
            (Scalar::Quantity, json!("1"), json!("1000m"), true),
            (Scalar::Quantity, json!("1Gi"), json!("1024Mi"), true),
            (Scalar::Quantity, json!("1536Mi"), json!("1.5Gi"), true),
            (Scalar::Quantity, json!("1G"), json!("1Gi"), false),
            (Scalar::Quantity, json!("1k"), json!("1e3"), true),
            (Scalar::Quantity, json!("1k"), json!("10E2"), true),
            (Scalar::Quantity, json!("0"), json!("0Gi"), true),
            (Scalar::Quantity, json!("-1"), json!("1"), false),
            (Scalar::Quantity, json!("1E"), json!("1000P"), true),
            (Scalar::Quantity, json!("many"), json!("few"), false),
            (Scalar::Quantity, json!("99999999999999999999999999999999999999Ei"), json!("1"), false),
            (Scalar::IntOrString, json!(80), json!(80), true),
            (Scalar::IntOrString, json!("25%"), json!("25%"), true),
            (Scalar::IntOrString, json!(80), json!("80"), false),
            (Scalar::Time, json!("2026-01-01T00:00:00Z"), json!("2026-01-01T01:00:00+01:00"), true),
            (Scalar::Time, json!("2026-01-01T00:00:00Z"), json!("2026-01-01T00:00:01Z"), false),
            (Scalar::Int32, json!(3), json!(3.0), true),
            (Scalar::Int64, json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64), false),
            (Scalar::Int32, json!(3), json!(4), false),
            (Scalar::String, json!("1"), json!("1.0"), false),
            (Scalar::Boolean, json!(true), json!(false), false),
        ];
        for (scalar, live, want, expect) in cases {
            assert_eq!(same(scalar, &live, &want), expect, "{scalar:?}: {live} and {want}");
            assert_eq!(same(scalar, &want, &live), expect, "{scalar:?}: {want} and {live}");
        }
    }
}
