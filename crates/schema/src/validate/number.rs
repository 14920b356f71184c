//! Bounds, factors and ranges of numbers. In: a number and its checks. Out: reports. Integers compare as integers, as
//! in kube-apiserver, so a bound loses its fraction.

use std::fmt;

use serde_json::{Number, Value};

use super::report::Report;
use crate::checks::{Bound, Checks};
use crate::path::Path;

/// `kind` is the declared JSON type, if there is exactly one.
pub(super) fn check(checks: Option<&Checks>, kind: &str, number: &Number, path: &Path<'_>, report: &mut Report<'_>) {
    let format = checks.and_then(|checks| checks.format.as_ref()).map_or("", |format| format.as_str());
    let range = Range { kind, format };
    let float = number.as_f64().unwrap_or_default();
    if !number.as_i64().map_or_else(|| range.holds(float), |integer| range.holds_integer(integer)) {
        report.without_field(range.complaint("Checked", path));
    }
    let Some(checks) = checks else { return };
    if let Some(factor) = checks.multiple_of {
        let exact = range.holds(factor);
        if !exact {
            report.without_field(range.complaint("MultipleOf", path));
        }
        match number.as_i64().filter(|_| exact) {
            Some(value) => multiple_of_integer(value, factor as i64, path, report),
            None => multiple_of(float, factor, path, report),
        }
    }
    let limits = [
        (checks.minimum, "Minimum boundary", "greater than", std::cmp::Ordering::Less),
        (checks.maximum, "Maximum boundary", "less than", std::cmp::Ordering::Greater),
    ];
    for (bound, name, relation, outside) in limits {
        let Some(Bound { value: limit, exclusive }) = bound else { continue };
        let exact = range.holds(limit);
        if !exact {
            report.without_field(range.complaint(name, path));
        }
        let integer = number.as_i64().filter(|_| exact);
        let order = match integer {
            Some(value) => value.cmp(&(limit as i64)),
            None => float.total_cmp(&limit),
        };
        if order == outside || (exclusive && order.is_eq()) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let shown: &dyn fmt::Display = if integer.is_some() { &(limit as i64) } else { &GoFloat(limit) };
            report.invalid(path, number.clone().into(), format_args!("should be {relation}{or_equal} {shown}"));
        }
    }
}

fn multiple_of_integer(value: i64, factor: i64, path: &Path<'_>, report: &mut Report<'_>) {
    if factor <= 0 {
        not_positive(factor.into(), &factor, path, report);
    } else if value % factor != 0 {
        report.invalid(path, value.into(), format_args!("should be a multiple of {factor}"));
    }
}

fn multiple_of(value: f64, factor: f64, path: &Path<'_>, report: &mut Report<'_>) {
    if factor <= 0.0 {
        return not_positive(factor.into(), &GoFloat(factor), path, report);
    }
    let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    if !is_integer(quotient) {
        report.invalid(path, value.into(), format_args!("should be a multiple of {}", GoFloat(factor)));
    }
}

fn not_positive(factor: Value, shown: &dyn fmt::Display, path: &Path<'_>, report: &mut Report<'_>) {
    let sentence = format!("factor MultipleOf declared for {} must be positive: {shown}", path.dotted());
    report.invalid_as(path, factor, sentence);
}

/// Whether a float is an integer to within the error its computation may have.
pub(super) fn is_integer(float: f64) -> bool {
    const LARGEST_SAFE: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > LARGEST_SAFE {
        return false;
    }
    let whole = float.trunc();
    let distance = (float - whole).abs();
    float == whole || distance < 1e-9 * float.abs().max(whole.abs()).max(f64::MIN_POSITIVE)
}

/// What the declared type and format can hold.
struct Range<'a> {
    kind: &'a str,
    format: &'a str,
}

impl Range<'_> {
    fn holds_integer(&self, value: i64) -> bool {
        self.kind != "integer" || self.format != "int32" || i32::try_from(value).is_ok()
    }

    fn holds(&self, value: f64) -> bool {
        match (self.kind, self.format) {
            ("integer", "int32") => {
                value.fract() == 0.0 && value.abs() <= f64::from(i32::MAX) + 1.0 && value < f64::from(i32::MAX) + 1.0
            }
            ("integer", _) => value.fract() == 0.0 && (i64::MIN as f64..i64::MAX as f64).contains(&value),
            ("number", "float") => (value as f32).is_finite(),
            _ => true,
        }
    }

    fn complaint(&self, what: &str, path: &Path<'_>) -> String {
        let (kind, name) = (self.kind, path.dotted());
        match self.format {
            "" => format!("{what} value must be of type {kind} (default format) in {name}"),
            format => format!("{what} value must be of type {kind} with format {format} in {name}"),
        }
    }
}

/// A float as Go's `%v` prints it.
struct GoFloat(f64);

impl fmt::Display for GoFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size != 0.0 && !(1e-4..1e6).contains(&size) {
            let text = format!("{:e}", self.0);
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            return write!(f, "{digits}e{sign}{exponent:0>2}");
        }
        write!(f, "{}", self.0)
    }
}
