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
