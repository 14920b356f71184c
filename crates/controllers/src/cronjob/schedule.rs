//! Cron schedules. In: `*/5 9-17 * * mon-fri`, `@hourly`, `@every 90s`. Out: the next time after a time, in a time zone. The
//! dialect is that of Kubernetes. Pure.
//!
//! A time that a clock skips is skipped; one that it shows twice comes twice.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, ToSpan, Unit, Zoned};

/// What is not found within so many years never comes: the 30th of February.
const YEARS: i64 = 5;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// At these minutes.
    At(Box<Fields>),
    /// Again and again after so long.
    Every(Duration),
}

/// Minutes, hours, days and months, each a set of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day has to be right as a day of the month and as a day of the week; else one of both is enough.
    both_days: bool,
}

/// One field: what it is called in messages, and what it takes.
struct Field {
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

impl Schedule {
    /// Reads a schedule, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(word) = text.strip_prefix('@') {
            return named(word, text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let field = |text: &str, first: u32, last: u32, names: &'static [&'static str]| {
            Field { first, last, names }.parse(text)
        };
        let (days, any_day) = field(days, 1, 31, &[])?;
        let (weekdays, any_weekday) = field(weekdays, 0, 6, &DAYS)?;
        Ok(Self::At(Box::new(Fields {
            minutes: field(minutes, 0, 59, &[])?.0,
            hours: field(hours, 0, 23, &[])?.0,
            days,
            months: field(months, 1, 12, &MONTHS)?.0,
            weekdays,
            both_days: any_day || any_weekday,
        })))
    }

    /// The next time after a time; none if there never is one.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(pause) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(*pause).ok()
            }
            Self::At(fields) => fields.next(after, zone),
        }
    }
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?.to_zoned(zone.clone());
        let end = at.checked_add(Span::new().years(YEARS)).ok()?;
        while at < end {
            at = if !has(self.months, at.month()) {
                at.date().first_of_month().checked_add(1.month()).ok()?.to_zoned(zone.clone()).ok()?
            } else if !self.is_day(&at) {
                at.tomorrow().ok()?.start_of_day().ok()?
            } else if !has(self.hours, at.hour()) {
                later(&at, 60 - i64::from(at.minute()))?
            } else {
                let from = u32::try_from(at.minute()).ok()?;
                match (from..60).find(|minute| self.minutes >> minute & 1 == 1) {
                    Some(minute) if minute == from => return Some(at.timestamp()),
                    Some(minute) => later(&at, i64::from(minute - from))?,
                    None => later(&at, i64::from(60 - from))?,
                }
            };
        }
        None
    }

    fn is_day(&self, at: &Zoned) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        if self.both_days { day && weekday } else { day || weekday }
    }
}

fn has(set: u64, at: i8) -> bool {
    u32::try_from(at).is_ok_and(|at| set >> at & 1 == 1)
}

/// So many minutes later, at the beginning of a minute.
fn later(at: &Zoned, minutes: i64) -> Option<Zoned> {
    at.checked_add(SignedDuration::from_mins(minutes)).ok()?.round(Unit::Second).ok()
}

impl Field {
    /// The set of what a field names, and whether it is any.
    fn parse(&self, text: &str) -> Result<(u64, bool), String> {
        let mut set = 0;
        let mut any = false;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(number(step)?)),
                None => (part, None),
            };
            if step == Some(0) {
                return Err(format!("step of range should be a positive number: {part}"));
            }
            let is_any = matches!(range, "*" | "?");
            let (first, last) = match range.split_once('-') {
                _ if is_any => (self.first, self.last),
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                // `5/15` goes on to the end.
                None if step.is_some() => (self.value(range)?, self.last),
                None => (self.value(range)?, self.value(range)?),
            };
            match () {
                () if first < self.first => {
                    return Err(format!("beginning of range ({first}) below minimum ({}): {part}", self.first));
                }
                () if last > self.last => {
                    return Err(format!("end of range ({last}) above maximum ({}): {part}", self.last));
                }
                () if first > last => {
                    return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
                }
                () => {}
            }
            let step = step.unwrap_or(1);
            any |= is_any && step == 1;
            set |= (first..=last).step_by(step as usize).fold(0, |set, value| set | 1 << value);
        }
        Ok((set, any))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(at) => Ok(self.first + u32::try_from(at).unwrap_or_default()),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

/// `@hourly` and its like.
fn named(word: &str, text: &str) -> Result<Schedule, String> {
    if let Some(pause) = word.strip_prefix("every ") {
        let pause = duration(pause).ok_or_else(|| format!("failed to parse duration {text}"))?;
        return Ok(Schedule::Every(Duration::from_secs(pause.as_secs().max(1))));
    }
    let fields = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => return Err(format!("unrecognized descriptor: {text}")),
    };
    Schedule::parse(fields)
}

/// `1h30m`, `90s`, `1.5h`.
fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        seconds += amount.parse::<f64>().ok()? * unit;
        rest = tail;
    }
    (!text.trim().is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_in(zone: &str, schedule: &str, after: &str, expect: &[&str]) {
        let zone = TimeZone::get(zone).unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        for expect in expect {
            at = schedule.next(at, &zone).unwrap();
            assert_eq!(at, expect.parse().unwrap(), "{schedule:?}");
        }
    }

    #[test]
    fn the_next_times() {
        let check = |schedule: &str, after: &str, expect: &[&str]| {
            let stamp = |text: &str| format!("{text}:00Z").replace("60:00Z", "59:59Z");
            let expect: Vec<String> = expect.iter().map(|text| stamp(text)).collect();
            let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
            check_in("UTC", schedule, &stamp(after), &expect);
        };
        check("* * * * *", "2026-01-01T00:00", &["2026-01-01T00:01", "2026-01-01T00:02"]);
        check("*/15 * * * *", "2026-01-01T00:01", &["2026-01-01T00:15", "2026-01-01T00:30"]);
        check("5/20 * * * *", "2026-01-01T00:06", &["2026-01-01T00:25", "2026-01-01T00:45", "2026-01-01T01:05"]);
        check("0 9-17/4 * * *", "2026-01-01T10:00", &["2026-01-01T13:00", "2026-01-01T17:00", "2026-01-02T09:00"]);
        check("30 4 1,15 * *", "2026-01-01T05:00", &["2026-01-15T04:30", "2026-02-01T04:30"]);
        check("0 0 * * mon-FRI", "2026-01-02T12:00", &["2026-01-05T00:00", "2026-01-06T00:00"]);
        // A day of the month or a day of the week, if both are said.
        check("0 0 13 * 5", "2026-01-08T00:00", &["2026-01-09T00:00", "2026-01-13T00:00", "2026-01-16T00:00"]);
        check("0 0 */2 * 5", "2026-01-01T00:00", &["2026-01-02T00:00", "2026-01-03T00:00"]);
        check("0 0 29 feb ?", "2026-01-01T00:00", &["2028-02-29T00:00"]);
        check("0 0 31 * *", "2026-01-31T00:00", &["2026-03-31T00:00"]);
        check("59 23 31 12 *", "2026-12-31T23:58", &["2026-12-31T23:59", "2027-12-31T23:59"]);
        check("@hourly", "2026-01-01T00:30", &["2026-01-01T01:00"]);
        check("@daily", "2026-01-01T00:30", &["2026-01-02T00:00"]);
        check("@weekly", "2026-01-01T00:30", &["2026-01-04T00:00"]);
        check("@monthly", "2026-01-01T00:30", &["2026-02-01T00:00"]);
        check("@yearly", "2026-01-01T00:30", &["2027-01-01T00:00"]);
        check("@every 1h30m", "2026-01-01T00:30", &["2026-01-01T02:00", "2026-01-01T03:30"]);
    }

    #[test]
    fn time_zones_and_their_clock_changes() {
        let berlin = "Europe/Berlin";
        check_in(berlin, "0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-01T08:00:00Z"]);
        check_in(berlin, "0 9 * * *", "2026-07-01T00:00:00Z", &["2026-07-01T07:00:00Z"]);
        // Half past two is not there on the 29th of March, and twice on the 25th of October.
        check_in(berlin, "30 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-30T00:30:00Z"]);
        check_in(berlin, "30 2 * * *", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
        check_in("Asia/Kolkata", "0 0 * * *", "2026-01-01T00:00:00Z", &["2026-01-01T18:30:00Z"]);
    }

    #[test]
    fn what_never_comes() {
        let schedule = Schedule::parse("0 0 30 2 *").unwrap();
        assert_eq!(schedule.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |text: &str, expect: &str| assert_eq!(Schedule::parse(text).unwrap_err(), expect, "{text}");
        check("", "expected exactly 5 fields, found 0: []");
        check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        check("0 * * * * *", "expected exactly 5 fields, found 6: [0 * * * * *]");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("* * * * 7", "end of range (7) above maximum (6): 7");
        check("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("x * * * *", "failed to parse int from x");
        check("@often", "unrecognized descriptor: @often");
        check("@every soon", "failed to parse duration @every soon");
    }
}
