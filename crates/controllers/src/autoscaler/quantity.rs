//! Amounts as Kubernetes writes them: `500m`, `2`, `128Mi`, `1.5G`. In: text. Out: thousandths, and text again. Pure.

use serde_json::Value;

/// Thousandths of an amount: `500m` is 500, `2` is 2000. None if it is no amount.
pub(super) fn milli(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = match suffix {
        "n" => 1e-6,
        "u" => 1e-3,
        "m" => 1.0,
        "" => 1e3,
        "k" => 1e6,
        "M" => 1e9,
        "G" => 1e12,
        "T" => 1e15,
        "Ki" => 1e3 * 1024.0,
        "Mi" => 1e3 * 1024.0 * 1024.0,
        "Gi" => 1e3 * 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1e3 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => 1e3 * 10f64.powi(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let milli = (number * unit).ceil();
    // What is larger than the sum of all amounts is no quantity.
    (milli.abs() < i64::MAX as f64).then_some(milli as i64)
}

/// Thousandths of an amount in JSON, where whole amounts may be numbers.
pub(super) fn milli_of(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => milli(text),
        Value::Number(number) => milli(&number.to_string()),
        _ => None,
    }
}

/// The shortest text of an amount.
pub(super) fn text(milli: i64) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        let check = |given: &str, expect: Option<i64>| assert_eq!(milli(given), expect, "{given}");
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
    }

    #[test]
    fn amounts_are_written() {
        let check = |given: i64, expect: &str| assert_eq!(text(given), expect);
        check(500, "500m");
        check(2000, "2");
        check(2500, "2500m");
    }
}
