//! A certificate, as far as anybody here reads one. In: DER. Out: when it is valid, and the subject. Nothing is verified: webpki does that.

use std::time::{Duration, SystemTime};

use super::der::{INTEGER, Reader};

const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The parts of a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    /// The first second in which it is valid; none if the text is no such time.
    pub not_before: Option<SystemTime>,
    /// The last second in which it is valid; none if the text is no such time.
    pub not_after: Option<SystemTime>,
    /// Whom it is about: DER of a name, with its tag and its length.
    pub subject: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// Reads a certificate as far as its subject; none if these bytes are not one.
    ///
    /// ```
    /// # use konverge_core::x509::Certificate;
    /// assert!(Certificate::read(b"no certificate").is_none());
    /// ```
    pub fn read(der: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::new(der).sequence()?.sequence()?;
        let mut first = fields;
        // Certificates of the first version do not name it.
        if first.next()?.0 == EXPLICIT_VERSION {
            fields = first;
        }
        fields.expect(INTEGER)?;
        let (_algorithm, _issuer) = (fields.sequence()?, fields.sequence()?);
        let mut validity = fields.sequence()?;
        let [not_before, not_after] = [validity.next()?, validity.next()?].map(|(tag, text)| time(tag, text));
        Some(Self { not_before, not_after, subject: fields.whole()? })
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`: the only forms that certificates may have.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year_digits, expected_len) = match tag {
        UTC_TIME => (2, 12),
        GENERALIZED_TIME => (4, 14),
        _ => return None,
    };
    if digits.len() != expected_len || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, len: usize| digits[from..from + len].parse::<u64>().ok();
    let year = match (tag, number(0, year_digits)?) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let at = |index: usize| number(year_digits + 2 * index, 2);
    let (month, day, hour, minute, second) = (at(0)?, at(1)?, at(2)?, at(3)?, at(4)?);
    let is_day = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if year < 1970 || !is_day || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Gregorian days, with years that begin in March so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::der::{SEQUENCE, SET, value};
    use super::*;

    #[test]
    fn times() {
        let check = |tag, text: &str, expect: Option<u64>| {
            let found = time(tag, text.as_bytes()).and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
            assert_eq!(found.map(|since| since.as_secs()), expect, "{text}");
        };
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(UTC_TIME, "500101000000Z", None);
        check(GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000));
        check(GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000));
        check(GENERALIZED_TIME, "20000301000000Z", Some(951_868_800));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        check(GENERALIZED_TIME, "20501301000000Z", None);
        check(GENERALIZED_TIME, "20230229120000Z", None);
        check(GENERALIZED_TIME, "20230101240000Z", None);
        check(GENERALIZED_TIME, "2050010100000Z", None);
        check(UTC_TIME, "49123123595", None);
        check(UTC_TIME, "4912312359+1Z", None);
        check(0x04, "491231235959Z", None);
    }

    /// A certificate without a key and a signature, of the first version or a later one.
    fn certificate(version: &[u8], times: [(u8, &str); 2]) -> Vec<u8> {
        let validity = times.map(|(tag, text)| value(tag, text.as_bytes())).concat();
        let name = value(SEQUENCE, &value(SET, &[]));
        let fields = [version, &value(INTEGER, &[7]), &value(SEQUENCE, &[]), &name, &value(SEQUENCE, &validity), &name];
        value(SEQUENCE, &value(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn certificates_are_read_as_far_as_the_subject() {
        let times = [(UTC_TIME, "700101000001Z"), (GENERALIZED_TIME, "20500101000000Z")];
        for version in [&[][..], &value(EXPLICIT_VERSION, &value(INTEGER, &[2]))] {
            let der = certificate(version, times);
            let read = Certificate::read(&der).expect("a certificate");
            let seconds = [read.not_before, read.not_after].map(|time| {
                time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|since| since.as_secs())
            });
            assert_eq!(seconds, [Some(1), Some(2_524_608_000)]);
            assert_eq!(read.subject, value(SEQUENCE, &value(SET, &[])));
            for end in 0..der.len() {
                assert!(Certificate::read(&der[..end]).is_none(), "cut after {end} bytes");
            }
        }
        let endless = certificate(&[], [times[0], (UTC_TIME, "never")]);
        let read = Certificate::read(&endless).expect("a certificate");
        assert!(read.not_before.is_some() && read.not_after.is_none());
    }
}
