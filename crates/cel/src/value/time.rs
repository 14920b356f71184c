//! Moments and spans of time. In: texts as Go's parsers take them. Out: nanoseconds. The zone of a moment is kept, because a
//! moment is shown in it.

use std::sync::Arc;

use super::EvalError;

/// From year 1 to year 9999, in seconds since 1970.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

const NANOS: i128 = 1_000_000_000;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// Since 1970, in UTC.
    pub seconds: i64,
    pub nanos: u32,
    /// Of its zone, in seconds.
    pub offset: i32,
}

impl Timestamp {
    /// A moment, if it is within the years that CEL knows.
    pub(crate) fn new(seconds: i64, nanos: u32, offset: i32) -> Result<Self, EvalError> {
        if (FIRST..=LAST).contains(&seconds) {
            return Ok(Self { seconds, nanos, offset });
        }
        Err("timestamp overflow".into())
    }

    pub(crate) fn from_nanoseconds(nanoseconds: i128, offset: i32) -> Result<Self, EvalError> {
        let overflow = || -> EvalError { Arc::from("timestamp overflow") };
        let seconds = i64::try_from(nanoseconds.div_euclid(NANOS)).map_err(|_| overflow())?;
        Self::new(seconds, nanoseconds.rem_euclid(NANOS) as u32, offset)
    }

    pub(crate) fn nanoseconds(&self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == FIRST && self.nanos == 0
    }

    /// RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = text.get(from..to)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if bytes.len() < 20 || separators.iter().any(|(at, separator)| bytes[*at] != *separator) {
            return None;
        }
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
        let mut rest = &text[19..];
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if length == 0 {
                return None;
            }
            let digits = &fraction[..length.min(9)];
            nanos = format!("{digits:0<9}").parse().ok()?;
            rest = &fraction[length..];
        }
        let offset = match rest.as_bytes() {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
                let digit = |b: &u8| i32::from(*b - b'0');
                let (hours, minutes) = (digit(h1) * 10 + digit(h2), digit(m1) * 10 + digit(m2));
                if hours > 24 || minutes > 60 {
                    return None;
                }
                (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - i64::from(offset);
        Some(Self { seconds, nanos, offset })
    }

    /// The format `date-time`. Validation takes small letters, too, but Go's parser does not.
    pub(super) fn parse_open_api(text: &str) -> Result<Self, EvalError> {
        Self::parse(text).ok_or_else(|| {
            let why = match text.find('t') {
                Some(at) => {
                    format!("parsing time {text:?} as \"2006-01-02T15:04:05\": cannot parse {:?} as \"T\"", &text[at..])
                }
                None => format!("parsing time {text:?}: extra text: {:?}", text.get(19..).unwrap_or_default()),
            };
            format!("Invalid date-time formatted string {text}: {why}").into()
        })
    }

    /// The format `date`.
    pub(super) fn parse_date(text: &str) -> Result<Self, EvalError> {
        Self::parse(&format!("{text}T00:00:00Z")).ok_or_else(|| format!("Invalid date formatted string {text}").into())
    }

    /// RFC 3339 in its own zone.
    pub(crate) fn text(&self) -> String {
        let local = self.local();
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            local.year, local.month, local.day, local.hour, local.minute, local.second
        );
        if self.nanos > 0 {
            text.push('.');
            text.push_str(format!("{:09}", self.nanos).trim_end_matches('0'));
        }
        match self.offset {
            0 => text.push('Z'),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                text.push_str(&format!("{sign}{:02}:{:02}", offset.abs() / 3600, offset.abs() / 60 % 60));
            }
        }
        text
    }

    /// The calendar and the clock in its zone.
    pub(crate) fn local(&self) -> Local {
        let seconds = self.seconds + i64::from(self.offset);
        let (day_number, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date(day_number);
        Local {
            year,
            month,
            day,
            day_of_year: day_number - days(year, 1, 1).unwrap_or_default(),
            // 1970 began with a Thursday.
            day_of_week: (day_number + 4).rem_euclid(7),
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }
}

/// A moment in some zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// From 0.
    pub day_of_year: i64,
    /// From 0, a Sunday.
    pub day_of_week: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

/// The days from 1970 to a date; none if there is no such date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// The date so many days after 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

/// Go's `time.ParseDuration`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        if digits.is_empty() && fraction.is_empty() || digits.len() > 25 {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => NANOS,
            "m" => 60 * NANOS,
            "h" => 3600 * NANOS,
            _ => return None,
        };
        total += digits.parse::<i128>().unwrap_or_default() * unit;
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            total += fraction.parse::<i128>().ok()? * unit / 10_i128.pow(fraction.len() as u32);
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The format `duration`: what Go takes, or numbers with units as Scala writes them.
pub(super) fn open_api_duration(text: &str) -> Result<i64, EvalError> {
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], 1_000_000_000),
        (&["m", "min"], 60_000_000_000),
        (&["h", "hr", "hour"], 3_600_000_000_000),
        (&["d", "day"], 86_400_000_000_000),
        (&["w", "wk", "week"], 604_800_000_000_000),
    ];
    if let Some(parsed) = parse_duration(text) {
        return Ok(parsed);
    }
    let mut total: i64 = 0;
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let end = after.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(after.len());
        let unit = after[..end].to_lowercase();
        let number: i64 = number.parse().map_err(|_| EvalError::from(format!("Invalid duration {text}")))?;
        for (names, factor) in UNITS {
            let (last, short) = names.split_last().expect("every unit has names");
            for _ in short.iter().filter(|name| **name == unit).chain(unit.starts_with(last).then_some(last)) {
                found = true;
                total = total.wrapping_add(number.wrapping_mul(factor));
            }
        }
        rest = &after[end..];
    }
    if found { Ok(total) } else { Err(format!("Invalid duration {text}: unable to parse {text} as duration").into()) }
}

/// A span in seconds, as `string` gives it.
pub(super) fn duration_text(nanoseconds: i64) -> String {
    format!("{}s", nanoseconds as f64 / 1e9)
}
