//! Quantities that are compared. In: values of resource lists. Out: their order, and how Kubernetes prints them.

use std::cmp::Ordering;

use serde_json::Value;

use konverge_schema::{canonical_quantity, quantity};

/// A quantity as digits and a power of ten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    digits: i128,
    power: i32,
}

impl Quantity {
    /// What is not there, or cannot be read, is zero: decoding has refused the latter.
    pub(super) fn of(value: &Value) -> Self {
        let (digits, power) = quantity(value).unwrap_or_default();
        Self { digits, power }
    }

    pub(super) fn is_negative(self) -> bool {
        self.digits < 0
    }

    pub(super) fn is_zero(self) -> bool {
        self.digits == 0
    }

    pub(super) fn is_integer(self) -> bool {
        self.digits == 0 || self.power >= 0
    }

    /// The sum of two quantities, as far as it can be written.
    pub(super) fn plus(self, other: Self) -> Self {
        let power = self.power.min(other.power);
        let digits = self.scaled(power).saturating_add(other.scaled(power));
        Self { digits, power }
    }

    /// The value as Go's `Value` rounds it: up.
    pub(super) fn rounded_up(self) -> i64 {
        let whole = if self.power >= 0 {
            self.scaled(0)
        } else {
            let unit = 10_i128.checked_pow(self.power.unsigned_abs()).unwrap_or(i128::MAX);
            let rest = i128::from(self.digits % unit != 0) * self.digits.signum();
            self.digits / unit + rest
        };
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// The value as a float, where only a ratio is wanted.
    pub(super) fn as_f64(self) -> f64 {
        self.digits as f64 * 10_f64.powi(self.power)
    }

    /// As Kubernetes prints a computed amount without a suffix of its own.
    pub(super) fn shown(self) -> String {
        let text = format!("{}e{}", self.digits, self.power);
        let plain = if self.power == 0 { self.digits.to_string() } else { text };
        let decimal = canonical_quantity(&Value::String(plain)).unwrap_or_default();
        match decimal.split_once('e') {
            Some((digits, power)) => {
                let at = (power.parse::<i32>().unwrap_or_default() + 9) / 3;
                let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                let suffix = usize::try_from(at).ok().and_then(|at| suffixes.get(at)).copied().unwrap_or_default();
                format!("{digits}{suffix}")
            }
            None => decimal,
        }
    }

    fn scaled(self, power: i32) -> i128 {
        let by = u32::try_from(self.power - power).unwrap_or_default();
        10_i128.checked_pow(by).and_then(|factor| self.digits.checked_mul(factor)).unwrap_or(
            match self.digits.signum() {
                -1 => i128::MIN,
                0 => 0,
                _ => i128::MAX,
            },
        )
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
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
        let power = self.power.min(other.power);
        self.scaled(power).cmp(&other.scaled(power))
    }
}

/// A quantity as Kubernetes prints it.
pub(super) fn text(value: &Value) -> String {
    canonical_quantity(value).unwrap_or_else(|| "0".to_owned())
}
