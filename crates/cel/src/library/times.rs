//! The parts of moments and of spans.

use crate::value::{Answer, EvalError, Timestamp, Value};

use super::{Native, no_overload};

const SECOND: i64 = 1_000_000_000;

pub(super) fn native(function: &str) -> Option<Native> {
    let native: Native = match function {
        "getFullYear" => |args| moment("getFullYear", args, |time| time.local().year),
        "getMonth" => |args| moment("getMonth", args, |time| time.local().month - 1),
        "getDayOfYear" => |args| moment("getDayOfYear", args, |time| time.local().day_of_year),
        "getDayOfMonth" => |args| moment("getDayOfMonth", args, |time| time.local().day - 1),
        "getDate" => |args| moment("getDate", args, |time| time.local().day),
        "getDayOfWeek" => |args| moment("getDayOfWeek", args, |time| time.local().day_of_week),
        "getHours" => |args| part("getHours", args, 3600 * SECOND, |time| time.local().hour),
        "getMinutes" => |args| part("getMinutes", args, 60 * SECOND, |time| time.local().minute),
        "getSeconds" => |args| part("getSeconds", args, SECOND, |time| time.local().second),
        "getMilliseconds" => |args| part("getMilliseconds", args, 1_000_000, |time| i64::from(time.nanos / 1_000_000)),
        _ => return None,
    };
    Some(native)
}

/// Of a span: how often a unit fits into it.
fn part<'a>(function: &str, args: &[Value<'a>], unit: i64, of: impl Fn(&Timestamp) -> i64) -> Answer<'a> {
    match args {
        [Value::Duration(span)] => Ok(Value::Int(span / unit)),
        _ => moment(function, args, of),
    }
}

fn moment<'a>(function: &str, args: &[Value<'a>], of: impl Fn(&Timestamp) -> i64) -> Answer<'a> {
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(zone)] => (time, zone_offset(time, zone)?),
        _ => return Err(no_overload(function, args)),
    };
    // The offset may be years, so it is added to the moment.
    Ok(Value::Int(of(&Timestamp { seconds: time.seconds + offset, offset: 0, ..*time })))
}

/// The offset of a zone in seconds: `+02:00`, `UTC`, or a name of the zones of the machine.
fn zone_offset(time: &Timestamp, zone: &str) -> Result<i64, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let hours = hours.wrapping_mul(60);
        let offset = if zone.starts_with('-') { hours.wrapping_sub(minutes) } else { hours.wrapping_add(minutes) };
        // Go computes with nanoseconds in 64 bits, whatever they overflow to.
        return Ok(offset.wrapping_mul(60 * SECOND) / SECOND);
    }
    // The zone of a kube-apiserver is that of its container, which is UTC.
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let unknown = || EvalError::from(format!("unknown time zone {zone}"));
    let known = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    // A file is found by its exact name only.
    if known.iana_name() != Some(zone) {
        return Err(unknown());
    }
    let moment = jiff::Timestamp::from_second(time.seconds).map_err(|_| unknown())?;
    Ok(i64::from(known.to_offset(moment).seconds()))
}

fn number(text: &str) -> Result<i64, EvalError> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {text:?}: {why}").into()
    })
}
