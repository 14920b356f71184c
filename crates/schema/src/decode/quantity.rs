//! Quantities such as `100m` or `1.5Gi`. In: text. Out: the error of Kubernetes' parser, or the value in a form that can be
//! compared.

use serde_json::Value;

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Checks the number and the suffix. Kubernetes reads an absent number as zero.
pub(super) fn check(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(FORMAT.to_owned());
    }
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after = body.trim_start_matches(|c: char| c.is_ascii_digit());
    let after = after.strip_prefix('.').map_or(after, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    suffix(after)
}

/// A quantity as digits and a power of ten, without trailing zeros. Quantities of the same value give equal results.
///
/// ```
/// use konverge_schema::quantity;
/// use serde_json::json;
/// assert_eq!(quantity(&json!("0.5")), quantity(&json!("500m")));
/// ```
pub fn quantity(value: &Value) -> Option<(i128, i32)> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (sign, body) = match text.strip_prefix('-') {
        Some(body) => (-1, body),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let mut power = -i32::try_from(fraction.len()).ok()?;
    match suffix {
        "" => {}
        "n" => power -= 9,
        "u" => power -= 6,
        "m" => power -= 3,
        "k" => power += 3,
        "M" => power += 6,
        "G" => power += 9,
        "T" => power += 12,
        "P" => power += 15,
        "E" => power += 18,
        binary if binary.ends_with('i') => {
            let thousands = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == binary)?;
            digits = digits.checked_mul(1 << (10 * (thousands + 1)))?;
        }
        exponent => power += exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?,
    }
    while digits != 0 && digits % 10 == 0 {
        digits /= 10;
        power += 1;
    }
    Some((sign * digits, if digits == 0 { 0 } else { power }))
}

fn suffix(text: &str) -> Result<(), String> {
    const KNOWN: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if KNOWN.contains(&text) {
        return Ok(());
    }
    let letters = text.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let exponent = &text[letters..];
    let signed = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !signed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(FORMAT.to_owned());
    }
    let scientific = matches!(&text[..letters], "e" | "E") && exponent.parse::<i64>().is_ok();
    if scientific { Ok(()) } else { Err(SUFFIX.to_owned()) }
}

/// The text that Kubernetes stores for a quantity: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`, and a number becomes a
/// string. `None` if the value is no quantity.
///
/// ```
/// use konverge_schema::canonical_quantity;
/// use serde_json::json;
/// assert_eq!(canonical_quantity(&json!("0.5")).as_deref(), Some("500m"));
/// assert_eq!(canonical_quantity(&json!(1000)).as_deref(), Some("1k"));
/// ```
pub fn canonical_quantity(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    check(&text).ok()?;
    let body = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    if is_canonical(whole, fraction, suffix) {
        return Some(text);
    }
    let (digits, power) = quantity(&Value::String(text.clone()))?;
    if digits == 0 {
        return Some("0".to_owned());
    }
    // Nothing is smaller than a billionth: what is left over counts as one.
    let (digits, power) = if power < -9 {
        let unit = 10_i128.checked_pow(u32::try_from(-9 - power).ok()?)?;
        let rounded = digits.abs().div_euclid(unit) + i128::from(digits.abs() % unit != 0);
        (rounded * digits.signum(), -9)
    } else {
        (digits, power)
    };
    let binary = suffix.ends_with('i');
    if binary && power >= 0 {
        let mut amount = digits.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?)?;
        amount = amount.min(i128::from(i64::MAX));
        if amount.abs() >= 1024 {
            let mut thousands = 0;
            while amount % 1024 == 0 {
                amount /= 1024;
                thousands += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(thousands)?;
            return Some(format!("{amount}{suffix}"));
        }
    }
    let (mut digits, mut power) = (digits, power);
    while digits % 10 == 0 {
        digits /= 10;
        power += 1;
    }
    while power % 3 != 0 {
        digits = digits.checked_mul(10)?;
        power -= 1;
    }
    if suffix.starts_with(['e', 'E']) && suffix.len() > 1 {
        return Some(if power == 0 { digits.to_string() } else { format!("{digits}e{power}") });
    }
    let at = usize::try_from(power + 9).ok()? / 3;
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(at).copied().unwrap_or_default();
    Some(format!("{digits}{suffix}"))
}

/// Whether Kubernetes keeps the text as it was written. Its parser takes a short way for most numbers, and looks only at
/// the last digits there.
fn is_canonical(whole: &str, fraction: &str, suffix: &str) -> bool {
    let length = i32::try_from(whole.len() + fraction.len()).unwrap_or(i32::MAX);
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix);
    if let Some(at) = binary {
        let exponent = 10 * (i32::try_from(at).unwrap_or_default() + 1);
        let short = fraction.is_empty() && 15 - length - exponent * 3 / 10 > 0;
        return short && whole.parse::<i64>().is_ok_and(|value| value & 7 != 0);
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        scientific => match scientific.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok()) {
            Some(exponent) => exponent,
            None => return false,
        },
    };
    let scale = exponent - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let shifted = format!("{whole}{fraction}");
    length <= 18 && scale >= -9 && scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
}
