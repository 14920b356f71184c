//! Quantities such as `500m`, `1.5Gi` or `1e3`. In: JSON. Out: a whole number, rounded up, to compare with others. Pure.

use serde_json::Value;

/// How much a quantity is; zero if it is none.
pub(crate) fn amount(quantity: &Value) -> i128 {
    match quantity {
        Value::String(text) => parsed(text.trim()).unwrap_or_default(),
        Value::Number(number) => parsed(&number.to_string()).unwrap_or_default(),
        _ => 0,
    }
}

fn parsed(text: &str) -> Option<i128> {
    let end = text.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let binary = |power: u32| (1i128 << (10 * power), 0);
    let (factor, exponent) = match suffix {
        "" => (1, 0),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        scientific => (1, scientific.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let digits = digits.checked_mul(factor)?;
    let exponent = i32::checked_sub(exponent, decimals)?;
    let power = 10i128.checked_pow(exponent.unsigned_abs())?;
    match exponent < 0 {
        true => Some(digits.div_euclid(power) + i128::from(digits.rem_euclid(power) > 0)),
        false => digits.checked_mul(power),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read() {
        let check = |quantity: Value, expect: i128| assert_eq!(amount(&quantity), expect, "{quantity}");
        check(json!("1Gi"), 1 << 30);
        check(json!("1024Mi"), 1 << 30);
        check(json!("1.5Ki"), 1536);
        check(json!("1G"), 1_000_000_000);
        check(json!("1e3"), 1000);
        check(json!("2E2"), 200);
        check(json!("1E"), 1_000_000_000_000_000_000);
        check(json!("1500m"), 2);
        check(json!("-1"), -1);
        check(json!(7), 7);
        check(json!(null), 0);
        check(json!("much"), 0);
        check(json!("1Xi"), 0);
    }
}
