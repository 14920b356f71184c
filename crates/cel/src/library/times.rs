//! The parts of moments and of spans.

use crate::value::{Answer, Timestamp, Value};

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
    Ok(Value::Int(of(&Timestamp { offset, ..*time })))
}

/// The offset of a zone in seconds: `+02:00`, `UTC`, or a name of the zones of the machine.
fn zone_offset(time: &Timestamp, zone: &str) -> Result<i32, crate::value::EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let wrong = || crate::value::EvalError::from(format!("could not parse the zone {zone:?}"));
        let negative = hours.starts_with('-');
        let hours: i32 = hours.parse().map_err(|_| wrong())?;
        let minutes: i32 = minutes.parse().map_err(|_| wrong())?;
        return Ok(hours * 3600 + if negative { -minutes * 60 } else { minutes * 60 });
    }
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let unknown = || crate::value::EvalError::from(format!("unknown time zone {zone}"));
    let known = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let moment = jiff::Timestamp::from_second(time.seconds).map_err(|_| unknown())?;
    Ok(known.to_offset(moment).seconds())
}
