//! `"%s has %d".format([name, count])`. Numbers with a fraction are grouped and written as in English texts, because the
//! version of the library that Kubernetes uses does so.

use konverge_schema::go_quote;

use crate::value::{Answer, EvalError, Value, to_double, to_string};

use super::no_overload;

/// How many digits follow the point if nothing is said.
const PRECISION: usize = 6;

/// One `%s` or its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    pub verb: char,
    precision: Option<usize>,
}

/// A part of a format string.
pub(crate) enum Piece {
    Text(String),
    Clause(Result<Clause, String>),
}

/// The parts of a format string.
pub(crate) fn clauses(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        let (clause, after) = clause(rest);
        let broken = clause.is_err();
        pieces.push(Piece::Clause(clause));
        if broken {
            return pieces;
        }
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

fn clause(text: &str) -> (Result<Clause, String>, &str) {
    const PARSE: &str = "could not parse formatting clause";
    let fail = |why: String| (Err(why), "");
    if text.is_empty() {
        return fail("unexpected end of string".to_owned());
    }
    let (precision, rest) = match text.strip_prefix('.') {
        None => (None, text),
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == after.len() {
                return fail(format!(
                    "{PARSE}: error while parsing precision: could not find end of precision specifier"
                ));
            }
            match after[..digits].parse() {
                Ok(precision) => (Some(precision), &after[digits..]),
                Err(_) => {
                    let number = &after[..digits];
                    return fail(format!(
                        "{PARSE}: error while parsing precision: error while converting precision to integer: \
                         strconv.Atoi: parsing {number:?}: invalid syntax"
                    ));
                }
            }
        }
    };
    let verb = rest.chars().next().unwrap_or_default();
    if !"sdfebxXo".contains(verb) {
        return fail(format!("{PARSE}: unrecognized formatting clause \"{verb}\""));
    }
    (Ok(Clause { verb, precision }), &rest[verb.len_utf8()..])
}

impl Clause {
    /// What is said about a value of a type that it cannot format.
    pub(crate) fn complaint(self, type_name: &str) -> String {
        let rule = match self.verb {
            's' => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps"
            }
            'd' => "decimal clause can only be used on integers",
            'f' => "fixed-point clause can only be used on doubles",
            'e' => "scientific clause can only be used on doubles",
            'b' => "only integers and bools can be formatted as binary",
            'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
            _ => "octal clause can only be used on integers",
        };
        format!("error during formatting: {rule}, was given {type_name}")
    }

    fn apply(self, value: &Value<'_>) -> Result<String, EvalError> {
        let formatted = match (self.verb, value) {
            ('s', value) => text(value)?,
            ('d', Value::Int(value)) => Some(value.to_string()),
            ('d', Value::Uint(value)) => Some(value.to_string()),
            ('f' | 'e', Value::Double(value)) => Some(self.number(*value)),
            ('f' | 'e', Value::String(name)) if matches!(&**name, "NaN" | "Infinity" | "-Infinity") => {
                match to_double(value)? {
                    Value::Double(value) => Some(self.number(value)),
                    _ => None,
                }
            }
            ('b', Value::Bool(value)) => Some(u8::from(*value).to_string()),
            ('b' | 'x' | 'X' | 'o', Value::Int(value)) => {
                let sign = if *value < 0 { "-" } else { "" };
                Some(format!("{sign}{}", radix(self.verb, value.unsigned_abs())))
            }
            ('b' | 'x' | 'X' | 'o', Value::Uint(value)) => Some(radix(self.verb, *value)),
            ('x' | 'X', Value::String(text)) => Some(hex(self.verb, text.as_bytes())),
            ('x' | 'X', Value::Bytes(bytes)) => Some(hex(self.verb, bytes)),
            _ => None,
        };
        formatted.ok_or_else(|| self.complaint(value.type_name()).into())
    }

    fn number(self, value: f64) -> String {
        // What is no number is as wide as the digits after the point.
        let width = if self.verb == 'e' { PRECISION } else { 0 };
        if value.is_nan() {
            return format!("{:>width$}", "NaN");
        }
        // Zero has no sign.
        let value = if value == 0.0 { 0.0 } else { value };
        if value.is_infinite() {
            return format!("{:>width$}", if value > 0.0 { "∞" } else { "-∞" });
        }
        if self.verb == 'f' {
            // The library keeps the precision in eight bits.
            return grouped(&format!("{value:.*}", self.precision.map_or(PRECISION, |precision| precision % 256)));
        }
        let written = format!("{value:.PRECISION$e}");
        let (digits, exponent) = written.split_once('e').expect("the format has an exponent");
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ("⁻", exponent),
            None => ("", exponent),
        };
        let raised: String = format!("{exponent:0>2}")
            .chars()
            .map(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10).unwrap_or_default() as usize).unwrap_or(digit))
            .collect();
        format!("{digits}×10{sign}{raised}")
    }
}

/// A comma before each three digits.
fn grouped(number: &str) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

fn radix(verb: char, value: u64) -> String {
    match verb {
        'b' => format!("{value:b}"),
        'o' => format!("{value:o}"),
        'x' => format!("{value:x}"),
        _ => format!("{value:X}"),
    }
}

fn hex(verb: char, bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if verb == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") }).collect()
}

/// `%s`; `None` if the value has no text.
fn text(value: &Value<'_>) -> Result<Option<String>, EvalError> {
    Ok(Some(match value {
        Value::List(list) => {
            let items: Result<Vec<String>, EvalError> = list.iter().map(|item| inside(&item?)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                let shown = match &key {
                    Value::String(text) => go_quote(text),
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) => key.to_string(),
                    other => {
                        return Err(format!("no formatting function for map key of type {}", other.type_name()).into());
                    }
                };
                let value = map.find(&key).transpose()?.unwrap_or(Value::Null);
                entries.push((shown, inside(&value)?));
            }
            entries.sort();
            let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null => "null".to_owned(),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::Timestamp(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Type(_) => to_string(value)?.to_string(),
        _ => return Ok(None),
    }))
}

/// A value inside a list or a map, as an expression would write it.
fn inside(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::Double(number) if !number.is_finite() => format!("{:?}", value.to_string()),
        Value::Double(number) => format!("{number:.PRECISION$}"),
        Value::String(text) => go_quote(text),
        Value::Bytes(_) => format!("b{:?}", to_string(value)?.to_string()),
        Value::Duration(_) | Value::Timestamp(_) => {
            let function = if let Value::Duration(_) = value { "duration" } else { "timestamp" };
            format!("{function}({})", go_quote(&to_string(value)?.to_string()))
        }
        other => {
            text(other)?.ok_or_else(|| EvalError::from(format!("no formatting function for {}", other.type_name())))?
        }
    })
}

pub(super) fn format<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(format), Value::List(list)] = args else { return Err(no_overload("format", args)) };
    let mut out = String::new();
    let mut next = 0;
    for piece in clauses(format) {
        match piece {
            Piece::Text(text) => out.push_str(&text),
            Piece::Clause(clause) => {
                let value = list.get(next).ok_or_else(|| EvalError::from(format!("index {next} out of range")))?;
                out.push_str(&clause.map_err(EvalError::from)?.apply(&value?)?);
                next += 1;
            }
        }
    }
    Ok(Value::text(out))
}
