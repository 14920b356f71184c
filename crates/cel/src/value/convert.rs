//! Conversions: what `int(x)`, `string(x)` and their like give.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::time::{Timestamp, duration_text, parse_duration};
use super::{Answer, Value};

fn failed<'a>(from: &str, to: &str) -> Answer<'a> {
    Err(format!("type conversion error from '{from}' to '{to}'").into())
}

fn no_overload<'a>(function: &str, value: &Value<'_>) -> Answer<'a> {
    Err(format!("no such overload: {function}({})", value.type_name()).into())
}

pub(crate) fn to_bool<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => failed("string", "bool"),
        },
        other => no_overload("bool", other),
    }
}

pub(crate) fn to_bytes<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Bytes(_) => Ok(value.clone()),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        other => no_overload("bytes", other),
    }
}

pub(crate) fn to_double<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => {
            parse_double(text).map_or_else(|| failed("string", "double"), |value| Ok(Value::Double(value)))
        }
        other => no_overload("double", other),
    }
}

/// Numbers as Go's `strconv.ParseFloat` takes them, but for hexadecimal ones and underscores.
fn parse_double(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(body.to_ascii_lowercase().as_str(), "inf" | "infinity" | "nan") {
        return text.parse().ok();
    }
    let value: f64 = text.parse().ok().filter(|_| body.starts_with(|c: char| c.is_ascii_digit() || c == '.'))?;
    value.is_finite().then_some(value)
}

pub(crate) fn to_int<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| "integer overflow".into()),
        // The next double above is 2^63 itself.
        Value::Double(value) if *value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_808.0 => {
            Ok(Value::Int(*value as i64))
        }
        Value::Double(_) => Err("integer overflow".into()),
        Value::Duration(nanoseconds) => Ok(Value::Int(*nanoseconds)),
        Value::Timestamp(time) => Ok(Value::Int(time.seconds)),
        Value::String(text) => text.parse().map_or_else(|_| failed("string", "int"), |value| Ok(Value::Int(value))),
        other => no_overload("int", other),
    }
}

pub(crate) fn to_uint<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| "unsigned integer overflow".into()),
        Value::Double(value) if *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 => {
            Ok(Value::Uint(*value as u64))
        }
        Value::Double(_) => Err("unsigned integer overflow".into()),
        Value::String(text) if !text.starts_with('+') => {
            text.parse().map_or_else(|_| failed("string", "uint"), |value| Ok(Value::Uint(value)))
        }
        Value::String(_) => failed("string", "uint"),
        other => no_overload("uint", other),
    }
}

pub(crate) fn to_string<'a>(value: &Value<'a>) -> Answer<'a> {
    Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(value) => Value::text(value.to_string()),
        Value::Int(value) => Value::text(value.to_string()),
        Value::Uint(value) => Value::text(value.to_string()),
        Value::Double(value) => Value::text(double_text(*value)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => return Err("invalid UTF-8 in bytes, cannot convert to string".into()),
        },
        Value::Duration(nanoseconds) => Value::text(duration_text(*nanoseconds)),
        Value::Timestamp(time) => Value::text(time.text()),
        Value::Ip(address) => Value::text(address.to_string()),
        Value::Cidr(cidr) => Value::text(cidr.text()),
        Value::Type(name) => Value::String(name.clone()),
        other => return no_overload("string", other),
    })
}

pub(crate) fn to_duration<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::String(text) => parse_duration(text)
            .map_or_else(|| failed("string", "google.protobuf.Duration"), |value| Ok(Value::Duration(value))),
        Value::Int(_) => failed("int", "google.protobuf.Duration"),
        other => no_overload("duration", other),
    }
}

pub(crate) fn to_timestamp<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => Timestamp::new(*seconds, 0, 0).map(Value::Timestamp),
        Value::String(text) => match Timestamp::parse(text) {
            Some(time) => Timestamp::new(time.seconds, time.nanos, time.offset).map(Value::Timestamp),
            None => failed("string", "google.protobuf.Timestamp"),
        },
        other => no_overload("timestamp", other),
    }
}

/// A double as Go's `%g` prints it: with an exponent from a million on.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format has an exponent");
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Base64 as the format `byte` has it.
pub(super) fn base64<'a>(text: &str) -> Answer<'a> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let clean: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match ENGINE.decode(clean) {
        Ok(bytes) => Ok(Value::Bytes(bytes.into())),
        Err(error) => Err(format!("Invalid byte formatted string {text}: {error}").into()),
    }
}
