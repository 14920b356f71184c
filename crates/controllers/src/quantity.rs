//! Quantities such as `500m`, `1.5Gi` or `1e3`. In: JSON or text. Out: whole units or thousandths, rounded up, to compare and
//! to add; and text again. Pure.

use serde_json::Value;

/// The whole units of a quantity, rounded up; zero if it is not a quantity.
pub(crate) fn amount(quantity: &Value) -> i128 {
    parse_json(quantity, 0).unwrap_or_default()
}

/// The thousandths of a quantity, rounded up: `500m` is 500, `2` is 2000. `None` if it is not a quantity.
pub(crate) fn milli(text: &str) -> Option<i64> {
    parse(text, 3).and_then(|milli| i64::try_from(milli).ok())
}

/// The thousandths of a quantity in JSON, where whole quantities may be numbers.
pub(crate) fn milli_of(quantity: &Value) -> Option<i64> {
    parse_json(quantity, 3).and_then(|milli| i64::try_from(milli).ok())
}

/// The shortest text of a quantity in thousandths.
pub(crate) fn milli_text(milli: i64) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    }
}

fn parse_json(quantity: &Value, decimals: i32) -> Option<i128> {
    match quantity {
        Value::String(text) => parse(text, decimals),
        Value::Number(number) => parse(&number.to_string(), decimals),
        _ => None,
    }
}

/// The quantity times ten to the power of `decimals`, rounded up.
fn parse(text: &str, decimals: i32) -> Option<i128> {
    let text = text.trim();
    let end = text.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
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
    let exponent = i32::checked_add(exponent, decimals)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
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

    #[test]
    fn thousandths_are_read() {
        let check = |given: &str, expect: Option<i64>| {
            assert_eq!(milli(given), expect, "{given}");
            assert_eq!(milli_of(&json!(given)), expect, "{given}");
        };
        check("500m", Some(500));
        check("2", Some(2000));
        check("1.5", Some(1500));
        check("128Mi", Some(128 * 1024 * 1024 * 1000));
        check("1k", Some(1_000_000));
        check("1e3", Some(1_000_000));
        check("100u", Some(1));
        check("-1", Some(-1000));
        check("", None);
        check("many", None);
        check("5 m", None);
        // More than fits into 64 bits.
        check("10E", None);
        assert_eq!(milli_of(&json!(2)), Some(2000));
        assert_eq!(milli_of(&json!(null)), None);
    }

    #[test]
    fn thousandths_are_written() {
        let check = |given: i64, expect: &str| assert_eq!(milli_text(given), expect);
        check(500, "500m");
        check(2000, "2");
        check(2500, "2500m");
    }
}
