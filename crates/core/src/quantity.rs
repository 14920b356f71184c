//! Quantities of resources, such as `500m`, `1.5Gi` or `1e3`. In: JSON. Out: numbers that can be added and compared, and their
//! canonical text. Exact down to a billionth; what is smaller is rounded up, as in Kubernetes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// How many of the smallest units are one.
const NANO: i128 = 1_000_000_000;

/// Amounts above this cannot be multiplied by 1000 in 64 bits: then whole numbers are compared.
const MAX_MILLI_VALUE: i128 = i64::MAX as i128 / 1000;

/// The largest whole amount, as in Kubernetes.
const MAX_VALUE: i128 = i64::MAX as i128;

/// An amount of a resource.
///
/// ```
/// use konverge_core::Quantity;
/// let mut cpu: Quantity = "0.5".parse().unwrap();
/// cpu.add(&"1".parse().unwrap());
/// assert_eq!(cpu.to_string(), "1500m");
/// assert!(cpu > "1400m".parse().unwrap());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// In billionths.
    nano: i128,
    format: Format,
}

/// The suffixes that a quantity is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// `m`, `k`, `M`, …
    #[default]
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`, `e6`, …
    Exponent,
}

/// The text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no quantity")]
pub struct QuantityError(String);

impl Quantity {
    /// A whole number.
    pub fn new(value: i64) -> Self {
        Self { nano: i128::from(value) * NANO, format: Format::Decimal }
    }

    /// The quantity in a JSON value.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.to_string().parse().ok(),
            _ => None,
        }
    }

    /// Whether this is nothing.
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Whether this is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// Adds another quantity. The text keeps its suffixes, unless this was zero.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nano = self.nano.saturating_add(other.nano);
    }

    /// The sum of two quantities.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.add(&other);
        self
    }

    /// Subtracts another quantity.
    pub fn subtract(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nano = self.nano.saturating_sub(other.nano);
    }

    /// Whether this is a whole number.
    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0
    }

    /// The whole number, rounded away from zero.
    pub fn value(&self) -> i128 {
        div_away(self.nano, NANO)
    }

    /// In thousandths, rounded away from zero.
    pub fn milli_value(&self) -> i128 {
        div_away(self.nano, NANO / 1000)
    }

    /// The amount as a float, where only a ratio is wanted.
    pub fn as_f64(&self) -> f64 {
        self.nano as f64 / NANO as f64
    }

    /// Whether thousandths of this amount fit into 64 bits.
    pub fn fits_milli(&self) -> bool {
        self.value() <= MAX_MILLI_VALUE
    }

    /// The quantity as a whole number, rounded away from zero.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        Self { nano: self.value() * NANO, ..self }
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut amount, mut exponent) = (self.nano, -9);
        while amount % 10 == 0 {
            amount /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            amount *= 10;
            exponent -= 1;
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let suffix = usize::try_from(exponent / 3 + 3).ok().and_then(|at| SUFFIXES.get(at));
        match (format, suffix) {
            (Format::Decimal, Some(suffix)) => write!(f, "{amount}{suffix}"),
            _ if exponent == 0 => write!(f, "{amount}"),
            _ => write!(f, "{amount}e{exponent}"),
        }
    }

    fn write_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let (mut amount, mut at) = (self.nano / NANO, 0);
        while amount % 1024 == 0 && at + 1 < SUFFIXES.len() {
            amount /= 1024;
            at += 1;
        }
        write!(f, "{amount}{}", SUFFIXES[at])
    }
}

fn div_away(number: i128, by: i128) -> i128 {
    number / by + (number % by).signum()
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text.trim()).ok_or_else(|| QuantityError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = body.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || number == "." || fraction.contains('.') {
        return None;
    }
    // More digits than this do not change the amount, but for the rounding, which one more digit stands for.
    const DIGITS: usize = 25;
    let (kept, rest) = fraction.split_at(fraction.len().min(DIGITS));
    let whole = whole.trim_start_matches('0');
    // The largest amount has 28 digits in nano.
    const WHOLE_DIGITS: usize = 29;
    if whole.len() > WHOLE_DIGITS {
        return Some(Quantity {
            nano: if negative { -MAX_VALUE * NANO } else { MAX_VALUE * NANO },
            format: Format::Decimal,
        });
    }
    let sticky = rest.bytes().any(|digit| digit != b'0');
    let digits: i128 = format!("0{whole}").parse().ok()?;
    let (factor, exponent, format) = match suffix {
        "" => (1, 0, Format::Decimal),
        "n" => (1, -9, Format::Decimal),
        "u" => (1, -6, Format::Decimal),
        "m" => (1, -3, Format::Decimal),
        "k" => (1, 3, Format::Decimal),
        "M" => (1, 6, Format::Decimal),
        "G" => (1, 9, Format::Decimal),
        "T" => (1, 12, Format::Decimal),
        "P" => (1, 15, Format::Decimal),
        "E" => (1, 18, Format::Decimal),
        "Ki" => (1i128 << 10, 0, Format::Binary),
        "Mi" => (1i128 << 20, 0, Format::Binary),
        "Gi" => (1i128 << 30, 0, Format::Binary),
        "Ti" => (1i128 << 40, 0, Format::Binary),
        "Pi" => (1i128 << 50, 0, Format::Binary),
        "Ei" => (1i128 << 60, 0, Format::Binary),
        scientific => (1, scientific.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?, Format::Exponent),
    };
    let whole_part = scaled(digits.saturating_mul(factor), exponent.saturating_add(9));
    let places = i32::try_from(kept.len()).ok()?;
    let fraction: i128 = format!("0{kept}").parse().ok()?;
    let fraction_part = scaled(fraction.saturating_mul(factor), exponent.saturating_add(9).saturating_sub(places));
    let nano = whole_part.0.saturating_add(fraction_part.0);
    let inexact = whole_part.1 || fraction_part.1 || sticky;
    let nano = nano.saturating_add(i128::from(inexact)).min(MAX_VALUE * NANO);
    // Amounts are rounded away from zero.
    Some(Quantity { nano: if negative { -nano } else { nano }, format })
}

/// The number times a power of ten, without its fraction, and whether there was one.
fn scaled(number: i128, exponent: i32) -> (i128, bool) {
    let Some(power) = 10i128.checked_pow(exponent.unsigned_abs()) else {
        return if exponent < 0 { (0, number != 0) } else { (if number == 0 { 0 } else { i128::MAX }, false) };
    };
    match exponent < 0 {
        true => (number / power, number % power != 0),
        false => (number.saturating_mul(power), false),
    }
}

/// The canonical text.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nano.abs() < 1024 * NANO;
        match self.format {
            _ if self.is_zero() => f.write_str("0"),
            // Kubernetes writes small and broken amounts with decimal suffixes.
            Format::Binary if !small && self.nano % NANO == 0 => self.write_binary(f),
            Format::Binary => self.write_decimal(f, Format::Decimal),
            format => self.write_decimal(f, format),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::of(&value).ok_or_else(|| serde::de::Error::custom(format!("{value} is no quantity")))
    }
}

/// Amounts by the names of their resources.
pub type ResourceList = BTreeMap<String, Quantity>;

/// The resource list in a JSON value; what is no quantity is left out.
pub fn resource_list(value: &Value) -> ResourceList {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), Quantity::of(amount)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_canonical() {
        // The expectations are those of apimachinery's Quantity.
        for (given, expect) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("1", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("1000", "1k"),
            ("1200", "1200"),
            ("12000", "12k"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("5e0", "5"),
            ("-1", "-1"),
            ("+2", "2"),
            (".5", "500m"),
            ("1.", "1"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("100000u", "100m"),
            ("1.0000000001", "1000000001n"),
        ] {
            assert_eq!(given.parse::<Quantity>().map(|quantity| quantity.to_string()), Ok(expect.into()), "{given}");
        }
        for given in ["", "x", "1x", "1.2.3", ".", "1ki", "1e", "--1", "1 0", "Ki"] {
            assert!(given.parse::<Quantity>().is_err(), "{given}");
        }
    }

    #[test]
    fn sums_keep_their_suffixes() {
        for (left, right, sum, difference) in [
            ("1Gi", "512Mi", "1536Mi", "512Mi"),
            ("0", "1Ki", "1Ki", "-1Ki"),
            ("500m", "1", "1500m", "-500m"),
            ("1Ki", "1", "1025", "1023"),
            ("1k", "24", "1024", "976"),
        ] {
            let (left, right): (Quantity, Quantity) = (left.parse().unwrap(), right.parse().unwrap());
            let (mut added, mut subtracted) = (left, left);
            added.add(&right);
            subtracted.subtract(&right);
            assert_eq!((added.to_string(), subtracted.to_string()), (sum.into(), difference.into()), "{left} {right}");
        }
    }

    #[test]
    fn amounts_are_compared_and_rounded_up() {
        let of = |text: &str| text.parse::<Quantity>().unwrap();
        assert!(of("1Gi") > of("1G") && of("1000m") == of("1") && of("-1") < of("0"));
        assert_eq!((of("1500m").value(), of("-1500m").value(), of("1n").milli_value()), (2, -2, 1));
        assert_eq!(of("1500m").rounded_up().to_string(), "2");
        assert_eq!(of("9999999999999999999999999999").value(), i128::from(i64::MAX));
    }
}
