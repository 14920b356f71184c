//! Quantities such as `1.5Gi`: a number and a power of ten, as Kubernetes keeps them. A quantity that fits 64 bits is kept
//! as such, because only those are integers.

use std::cmp::Ordering;

use crate::value::{Answer, Value};

use super::no_overload;

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";
const NUMERIC: &str = "unable to parse numeric part of quantity";

/// `value * 10^scale`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    value: i128,
    scale: i32,
    /// Whether Kubernetes keeps it as a number of 64 bits.
    small: bool,
}

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let negative = text.starts_with('-');
        let body = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = body.split_at(digits(body));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let no_digits = whole.is_empty() && fraction.is_empty();
        let whole = whole.trim_start_matches('0');
        let (factor, exponent, binary) = self::suffix(suffix)?;
        let shifted = format!("0{whole}{fraction}");
        let places = i32::try_from(fraction.len()).map_err(|_| NUMERIC)?;
        let length = whole.len().max(1) + fraction.len();
        let sign = if negative { -1 } else { 1 };
        let precision = if binary == 0 {
            18 - length as i32
        } else if fraction.is_empty() {
            15 - length as i32 - (binary as f32 * 3.0 / 10.0) as i32 - 1
        } else {
            -1
        };
        // As Go computes with 32 bits.
        let scale = exponent.wrapping_sub(places);
        if precision >= 0 && scale >= -9 {
            let value: i128 = shifted.parse().map_err(|_| NUMERIC)?;
            if let Ok(value) = i64::try_from(value * factor) {
                return Ok(Self { value: i128::from(value) * sign, scale, small: true });
            }
        }
        if no_digits {
            return Err(NUMERIC);
        }
        // More than nine places are rounded away from zero. Numbers beyond 128 bits are cut off.
        let mut value = shifted.parse::<i128>().unwrap_or(i128::MAX).saturating_mul(factor);
        let mut scale = scale;
        while scale < -9 {
            if value <= 1 {
                // However small: it stays what it is.
                scale = -9;
                break;
            }
            value = value / 10 + i128::from(value % 10 != 0);
            scale += 1;
        }
        let limit = i128::from(i64::MAX);
        if binary > 0 && scale <= 0 {
            let most = 10_i128.checked_pow(scale.unsigned_abs()).and_then(|unit| limit.checked_mul(unit));
            value = value.min(most.unwrap_or(i128::MAX));
        }
        Ok(Self { value: value * sign, scale, small: false })
    }

    fn from_int(value: i64) -> Self {
        Self { value: i128::from(value), scale: 0, small: true }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let scale = self.scale.min(other.scale);
        if let (Some(one), Some(other)) = (self.at(scale), other.at(scale)) {
            return one.cmp(&other);
        }
        // Too large to be written with the smaller scale: the sign decides, or where the first digit stands. Both have the
        // same number of digits before the point only if both can be written.
        let size = |quantity: &Self| {
            let digits = quantity.value.unsigned_abs().checked_ilog10().map_or(0, i64::from);
            (digits + i64::from(quantity.scale)) * quantity.value.signum() as i64
        };
        self.value.signum().cmp(&other.value.signum()).then_with(|| size(self).cmp(&size(other)))
    }

    /// The number when the scale is smaller.
    fn at(&self, scale: i32) -> Option<i128> {
        if self.value == 0 {
            return Some(0);
        }
        let places = u32::try_from(i64::from(self.scale) - i64::from(scale)).ok()?;
        self.value.checked_mul(10_i128.checked_pow(places)?)
    }

    fn add(&self, other: &Self) -> Self {
        if other.value == 0 && other.small {
            return *self;
        }
        if self.value == 0 && self.small && other.small {
            return *other;
        }
        let scale = self.scale.min(other.scale);
        let sum = self.at(scale).zip(other.at(scale)).and_then(|(one, other)| one.checked_add(other));
        // Beyond 128 bits only the sign is right.
        let most = if self.as_float() + other.as_float() < 0.0 { -i128::MAX } else { i128::MAX };
        let value = sum.unwrap_or(most);
        Self { value, scale, small: self.small && other.small && i64::try_from(value).is_ok() }
    }

    fn negated(&self) -> Self {
        Self { value: self.value.saturating_neg(), ..*self }
    }

    fn as_int(&self) -> Option<i64> {
        if !self.small || self.scale < 0 {
            return None;
        }
        i64::try_from(self.at(0)?).ok()
    }

    fn as_float(&self) -> f64 {
        if self.scale == 0 { self.value as f64 } else { self.value as f64 * 10_f64.powi(self.scale) }
    }
}

/// The factor, the power of ten and the power of two of a suffix.
fn suffix(text: &str) -> Result<(i128, i32, u32), &'static str> {
    if let Some(at) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == text) {
        let power = 10 * (at as u32 + 1);
        return Ok((1 << power, 0, power));
    }
    let decimal =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    if let Some((_, power)) = decimal.iter().find(|(known, _)| *known == text) {
        return Ok((1, *power, 0));
    }
    let letters = text.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let exponent = &text[letters..];
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return Err(FORMAT);
    }
    match (&text[..letters], exponent.parse::<i64>()) {
        ("e" | "E", Ok(exponent)) => Ok((1, exponent as i32, 0)),
        _ => Err(SUFFIX),
    }
}

pub(super) fn quantity<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => match Quantity::parse(text) {
            Ok(quantity) => Ok(Value::Quantity(quantity.into())),
            Err(why) => Err(why.into()),
        },
        _ => Err(no_overload("quantity", args)),
    }
}

pub(super) fn is_quantity<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        _ => Err(no_overload("isQuantity", args)),
    }
}

pub(super) fn sign<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Quantity(quantity) => Ok(Value::Int(quantity.value.signum() as i64)),
        _ => Err(no_overload("sign", args)),
    }
}

pub(super) fn is_integer<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Quantity(quantity) => Ok(Value::Bool(quantity.as_int().is_some())),
        _ => Err(no_overload("isInteger", args)),
    }
}

pub(super) fn as_integer<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Quantity(quantity) => {
            quantity.as_int().map(Value::Int).ok_or_else(|| "cannot convert value to integer".into())
        }
        _ => Err(no_overload("asInteger", args)),
    }
}

pub(super) fn as_float<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Quantity(quantity) => Ok(Value::Double(quantity.as_float())),
        _ => Err(no_overload("asApproximateFloat", args)),
    }
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(Value::Quantity(one.add(other).into())),
        [Value::Quantity(one), Value::Int(other)] => Ok(Value::Quantity(one.add(&Quantity::from_int(*other)).into())),
        _ => Err(no_overload("add", args)),
    }
}

pub(super) fn subtract<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(Value::Quantity(one.add(&other.negated()).into())),
        [Value::Quantity(one), Value::Int(other)] => {
            Ok(Value::Quantity(one.add(&Quantity::from_int(*other).negated()).into()))
        }
        _ => Err(no_overload("sub", args)),
    }
}

/// What follows from the order of two quantities or of two versions.
pub(super) fn order<'a>(function: &str, args: &[Value<'a>], then: impl Fn(Ordering) -> Value<'a>) -> Answer<'a> {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(then(one.compare(other))),
        [Value::Semver(one), Value::Semver(other)] => Ok(then(one.compare(other))),
        _ => Err(no_overload(function, args)),
    }
}
