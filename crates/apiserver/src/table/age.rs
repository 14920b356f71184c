//! Spans of time as people read them in tables: two or three significant figures, `5s`, `3m20s`, `2d5h`.
//! In: two points in time. Out: text. Never asks the clock.

use jiff::Timestamp;

/// How long ago `then` was.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    between(then, now)
}

/// How long ago an RFC 3339 time was: `<unknown>` without one, `<invalid>` when it cannot be read.
pub(crate) fn since_text(then: Option<&str>, now: Timestamp) -> String {
    match then {
        None | Some("" | "null") => "<unknown>".into(),
        Some(text) => text.parse().map_or_else(|_| "<invalid>".into(), |then| since(then, now)),
    }
}

/// The span from one point to a later one.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> String {
    let nanoseconds = to.as_nanosecond() - from.as_nanosecond();
    human(i64::try_from(nanoseconds / 1_000_000_000).expect("jiff's range of years is far below 2^63 seconds"))
}

/// A span of whole seconds.
pub(crate) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    // Clocks of two machines may differ a little: a second ahead is still now.
    match seconds {
        ..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => pair(seconds / MINUTE, 'm', seconds % MINUTE, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => pair(seconds / HOUR, 'h', seconds % HOUR / MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => pair(seconds / DAY, 'd', seconds % DAY / HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(seconds / YEAR, 'y', seconds % YEAR / DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn pair(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_as_kubectl_does() {
        let (m, h, d) = (60, 3600, 86_400);
        let y = 365 * d;
        for (seconds, expect) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (5, "5s"),
            (119, "119s"),
            (2 * m, "2m"),
            (3 * m + 20, "3m20s"),
            (10 * m - 1, "9m59s"),
            (10 * m + 30, "10m"),
            (3 * h - 1, "179m"),
            (3 * h, "3h"),
            (3 * h + 61, "3h1m"),
            (8 * h, "8h"),
            (47 * h + 59 * m, "47h"),
            (2 * d, "2d"),
            (2 * d + 5 * h, "2d5h"),
            (8 * d - 1, "7d23h"),
            (8 * d + 5 * h, "8d"),
            (2 * y - 1, "729d"),
            (2 * y, "2y"),
            (2 * y + 3 * d, "2y3d"),
            (8 * y + 3 * d, "8y"),
        ] {
            assert_eq!(human(seconds), expect);
        }
    }

    #[test]
    fn reads_times() {
        let now = "2024-05-01T00:00:00Z".parse().unwrap();
        for (then, expect) in [
            (None, "<unknown>"),
            (Some(""), "<unknown>"),
            (Some("yesterday"), "<invalid>"),
            (Some("2024-04-30T23:59:55Z"), "5s"),
            (Some("2024-04-30T23:59:55.123456Z"), "4s"),
            (Some("2024-05-01T00:00:00.9Z"), "0s"),
            (Some("2024-05-01T01:56:40+02:00"), "3m20s"),
            (Some("2024-05-02T00:00:00Z"), "<invalid>"),
        ] {
            assert_eq!(since_text(then, now), expect, "{then:?}");
        }
    }
}
