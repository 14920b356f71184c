//! Checks RFC 3339 times as Go parses them. The error has the text of Go's parser.

/// The digits of a fraction of a second that counts microseconds.
const MICROSECONDS: usize = 6;

/// How many digits follow the seconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Any,
    /// Exactly six.
    Microseconds,
}

impl Precision {
    /// The layout of Go that has these digits.
    fn layout(self) -> &'static str {
        match self {
            Self::Any => "2006-01-02T15:04:05Z07:00",
            Self::Microseconds => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Checks a time such as `2024-01-02T03:04:05Z`.
pub(super) fn check(text: &str, precision: Precision) -> Result<(), String> {
    let mut parser = Parser { text, rest: text, precision };
    let year = parser.number("2006", 4)?;
    parser.literal("-")?;
    let month = parser.number("01", 2)?;
    parser.within(month, 1..=12, "month")?;
    parser.literal("-")?;
    let day = parser.number("02", 2)?;
    parser.literal("T")?;
    // Go accepts an hour of one digit.
    let digits = if parser.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) { 2 } else { 1 };
    let hour = parser.number("15", digits)?;
    parser.within(hour, 0..=23, "hour")?;
    for (layout, name) in [("04", "minute"), ("05", "second")] {
        parser.literal(":")?;
        let value = parser.number(layout, 2)?;
        parser.within(value, 0..=59, name)?;
    }
    parser.fraction()?;
    parser.zone()?;
    if !parser.rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {:?}", parser.rest));
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    parser.within(day, 1..=last, "day")
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl Parser<'_> {
    fn number(&mut self, layout: &str, digits: usize) -> Result<u32, String> {
        let number = self.rest.get(..digits).filter(|head| head.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|head| head.parse().ok()).ok_or_else(|| self.unreadable(layout))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.unreadable(literal))?;
        Ok(())
    }

    fn fraction(&mut self) -> Result<(), String> {
        let after = self.rest.strip_prefix(['.', ',']);
        let digits = after.map_or(0, |after| after.bytes().take_while(u8::is_ascii_digit).count());
        let taken = match self.precision {
            Precision::Any => digits,
            Precision::Microseconds if digits >= MICROSECONDS => MICROSECONDS,
            Precision::Microseconds => return Err(self.unreadable(".000000")),
        };
        if let Some(after) = after.filter(|_| taken > 0) {
            self.rest = &after[taken..];
        }
        Ok(())
    }

    fn zone(&mut self) -> Result<(), String> {
        if let Some(after) = self.rest.strip_prefix('Z') {
            self.rest = after;
            return Ok(());
        }
        let digit =
            |at: usize| self.rest.as_bytes().get(at).filter(|b| b.is_ascii_digit()).map(|b| u32::from(b - b'0'));
        let signed = self.rest.starts_with(['+', '-']) && self.rest.as_bytes().get(3) == Some(&b':');
        let (Some(a), Some(b), Some(c), Some(d), true) = (digit(1), digit(2), digit(4), digit(5), signed) else {
            return Err(self.unreadable("Z07:00"));
        };
        self.within(a * 10 + b, 0..=24, "time zone offset hour")?;
        self.within(c * 10 + d, 0..=60, "time zone offset minute")?;
        self.rest = &self.rest[6..];
        Ok(())
    }

    fn within(&self, value: u32, range: std::ops::RangeInclusive<u32>, name: &str) -> Result<(), String> {
        let text = self.text;
        if range.contains(&value) { Ok(()) } else { Err(format!("parsing time {text:?}: {name} out of range")) }
    }

    fn unreadable(&self, layout: &str) -> String {
        let (text, rest, whole) = (self.text, self.rest, self.precision.layout());
        format!("parsing time {text:?} as {whole:?}: cannot parse {rest:?} as {layout:?}")
    }
}
