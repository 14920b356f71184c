//! Types whose JSON is not that of their fields. In: the bytes of one. Out: its JSON, as the type's own Go code writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::ProtobufError;
use super::wire::{Reader, Wire, malformed, text};

/// The moment that Go calls zero, the first of the year 1, which JSON has as null.
pub(super) const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Go writes whole numbers without a fraction.
pub(super) fn double(number: f64) -> Result<Value, ProtobufError> {
    let whole = number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative());
    if whole {
        return Ok((number as i64).into());
    }
    let refused = || malformed(format!("json: unsupported value: {}", go_infinity(number)));
    Number::from_f64(number).map(Value::Number).ok_or_else(refused)
}

fn go_infinity(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

/// `metav1.Time`: whole seconds.
pub(super) fn time(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let Some((seconds, _)) = moment(bytes)? else { return Ok(Value::Null) };
    if seconds == ZERO_TIME_SECONDS {
        return Ok(Value::Null);
    }
    let moment = Timestamp::from_second(seconds).map_err(|_| out_of_range(seconds))?;
    Ok(moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
}

/// `metav1.MicroTime`: microseconds, all six digits.
pub(super) fn micro_time(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let Some((seconds, nanoseconds)) = moment(bytes)? else { return Ok(Value::Null) };
    let microseconds = nanoseconds / 1000;
    if seconds == ZERO_TIME_SECONDS && microseconds == 0 {
        return Ok(Value::Null);
    }
    let total = i128::from(seconds) * 1_000_000 + i128::from(microseconds);
    let moment = Timestamp::from_nanosecond(total * 1000).map_err(|_| out_of_range(seconds))?;
    Ok(moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into())
}

fn out_of_range(seconds: i64) -> ProtobufError {
    malformed(format!("a time {seconds} seconds from 1970 is out of range"))
}

/// Seconds and nanoseconds; no bytes are no moment.
fn moment(bytes: &[u8]) -> Result<Option<(i64, i32)>, ProtobufError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut fields = Reader::new(bytes, "Timestamp");
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(value)) => seconds = value as i64,
            (2, Wire::Varint(value)) => nanoseconds = value as u32 as i32,
            (1, wire) => return Err(wire.unexpected("Seconds")),
            (2, wire) => return Err(wire.unexpected("Nanos")),
            _ => {}
        }
    }
    Ok(Some((seconds, nanoseconds)))
}

/// `resource.Quantity`: its text. Without a text it is zero.
pub(super) fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut quantity = "0".to_owned();
    let mut fields = Reader::new(bytes, "Quantity");
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => quantity = text(bytes),
            (1, wire) => return Err(wire.unexpected("String_")),
            _ => {}
        }
    }
    Ok(quantity.into())
}

/// `intstr.IntOrString`: the one of its two values that its type names.
pub(super) fn int_or_string<'a>(sent: impl Iterator<Item = Wire<'a>>) -> Result<Value, ProtobufError> {
    let (mut kind, mut int, mut string) = (0u64, 0i32, &[][..]);
    for wire in sent {
        let Wire::Bytes(bytes) = wire else { continue };
        let mut fields = Reader::new(bytes, "IntOrString");
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (1, Wire::Varint(value)) => kind = value,
                (2, Wire::Varint(value)) => int = value as u32 as i32,
                (3, Wire::Bytes(value)) => string = value,
                (1, wire) => return Err(wire.unexpected("Type")),
                (2, wire) => return Err(wire.unexpected("IntVal")),
                (3, wire) => return Err(wire.unexpected("StrVal")),
                _ => {}
            }
        }
    }
    match kind {
        0 => Ok(int.into()),
        1 => Ok(text(string).into()),
        _ => Err(malformed("impossible IntOrString.Type")),
    }
}

/// `runtime.RawExtension` and its like: a message that holds JSON. Without JSON it is null.
pub(super) fn json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw = &[][..];
    let mut fields = Reader::new(bytes, "RawExtension");
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => raw = bytes,
            (1, wire) => return Err(wire.unexpected("Raw")),
            _ => {}
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|why| malformed(format!("a field that holds JSON cannot be read: {why}")))
}
