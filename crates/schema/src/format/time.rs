//! Time formats: dates, times and durations. In: a string. Out: whether Kubernetes' parsers accept it.

use std::sync::LazyLock;

use regex::Regex;

pub(super) fn date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, b)| if matches!(at, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    if !shaped {
        return false;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=last).contains(&day)
}

pub(super) fn date_time(text: &str) -> bool {
    static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
            .expect("a constant expression")
    });
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(clock)) = (parts.next(), parts.next()) else { return false };
    date(day) && CLOCK.captures(clock).is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// What Go's `time.ParseDuration` accepts, or a number with a unit anywhere in the text, as in Scala's durations.
pub(super) fn duration(text: &str) -> bool {
    static GO: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$").expect("a constant expression")
    });
    static PARTS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)").expect("a constant expression"));
    if GO.is_match(text) {
        return true;
    }
    let mut found = false;
    for part in PARTS.captures_iter(text) {
        if part[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = part[2].to_lowercase();
        let short = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"].contains(&&*unit);
        let long = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
        found |= short || long.iter().any(|long| unit.starts_with(long));
    }
    found
}
