//! Cron schedules and time zones. In: the text of a CronJob. Out: the complaint of the parser that Kubernetes uses, or
//! nothing. When a schedule is due is for the controller.

/// The five fields of a schedule: their bounds and names.
const FIELDS: [(u64, u64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

const DESCRIPTORS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Checks a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some(end) = schedule.find(' ') else {
            return Err(panicked(schedule));
        };
        let zone = schedule[..end].split_once('=').map_or("", |(_, zone)| zone);
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = schedule[end..].trim();
    }
    if rest.starts_with('@') {
        return check_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, (least, most, names)) in fields.into_iter().zip(FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, least, most, names)?;
        }
    }
    Ok(())
}

/// What Go says when the parser fails at a zone without a schedule.
fn panicked(schedule: &str) -> String {
    let begin = schedule.find('=').map_or(0, |at| at + 1);
    format!("invalid schedule format: runtime error: slice bounds out of range [{begin}:-1]")
}

fn check_descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    if let Some(duration) = text.strip_prefix("@every ") {
        return match is_duration(duration) {
            true => Ok(()),
            false => Err(format!("failed to parse duration {text}: time: invalid duration {duration:?}")),
        };
    }
    Err(format!("unrecognized descriptor: {text}"))
}

fn check_range(expression: &str, least: u64, most: u64, names: &[&str]) -> Result<(), String> {
    let parts: Vec<&str> = expression.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let number = |text: &str| number_or_name(text, least, names);
    let (begin, mut end) = match bounds[..] {
        ["*" | "?", ..] => (least, most),
        [one] => (number(one)?, number(one)?),
        [begin, end] => (number(begin)?, number(end)?),
        [begin, ..] => {
            number(begin)?;
            return Err(format!("too many hyphens: {expression}"));
        }
        [] => return Ok(()),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if bounds.len() == 1 {
                end = most;
            }
            parse_number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if begin < least {
        return Err(format!("beginning of range ({begin}) below minimum ({least}): {expression}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {expression}"));
    }
    if begin > end {
        return Err(format!("beginning of range ({begin}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number_or_name(text: &str, least: u64, names: &[&str]) -> Result<u64, String> {
    match names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        Some(at) => Ok(at as u64 + least),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<u64, String> {
    match text.strip_prefix('+').unwrap_or(text).parse::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"))
        }
    }
}

/// Whether Go reads a text as a duration: numbers with units.
pub(crate) fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let digits = &rest[..number];
        if digits.is_empty() || digits == "." || digits.matches('.').count() > 1 {
            return false;
        }
        let unit = rest[number..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| number + at);
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&&rest[number..unit]) {
            return false;
        }
        rest = &rest[unit..];
    }
    true
}

/// Checks a time zone by its name.
pub(super) fn check_time_zone(zone: &str) -> Vec<String> {
    if zone.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    let is_part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
        (1..=14).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part.bytes().all(inner)
    };
    if !zone.split('/').all(is_part) {
        return vec![format!("unknown time zone {zone}")];
    }
    if zone.eq_ignore_ascii_case("local") {
        let mut errors =
            vec!["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()];
        if zone != "Local" {
            errors.push(format!("unknown time zone {zone}"));
        }
        return errors;
    }
    if is_zone(zone) { Vec::new() } else { vec![format!("unknown time zone {zone}")] }
}

/// Whether the machine's database has a zone of exactly this name: Go opens a file, and names of files have their case. A machine
/// without a database knows none, and refuses none.
fn is_zone(zone: &str) -> bool {
    ["", "UTC", "Local"].contains(&zone)
        || jiff::tz::TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone))
        || jiff::tz::db().available().next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones() {
        // The machine has to have a database for this.
        assert!(jiff::tz::db().available().next().is_some());
        for (zone, expect) in [
            ("Europe/Berlin", ""),
            ("UTC", ""),
            ("Etc/GMT+1", ""),
            ("europe/berlin", "unknown time zone europe/berlin"),
            ("utc", "unknown time zone utc"),
            ("Europe/Nowhere", "unknown time zone Europe/Nowhere"),
        ] {
            assert_eq!(check_time_zone(zone).join(", "), expect, "{zone}");
        }
    }

    #[test]
    fn schedules() {
        for (schedule, expect) in [
            ("*/5 * * * *", ""),
            ("0 0 1 JAN sun", ""),
            ("@hourly", ""),
            ("@every 1h30m", ""),
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@often", "unrecognized descriptor: @often"),
            ("TZ=UTC * * * * *", ""),
        ] {
            assert_eq!(check(schedule).err().unwrap_or_default(), expect, "{schedule}");
        }
    }
}
