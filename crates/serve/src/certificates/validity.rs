//! When a certificate begins and ends. DER bytes come in, a time comes out. It reads only as far as the validity field and
//! checks nothing else: webpki does that.

use std::time::{Duration, SystemTime};

use super::der::{self, SEQUENCE, element, value};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The `notBefore` of an X.509 certificate; none if these bytes are not one.
pub(super) fn not_before(certificate: &[u8]) -> Option<SystemTime> {
    let fields = der::after_issuer(certificate)?;
    let (tag, text, _) = element(value(fields, SEQUENCE)?.0)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// The `notAfter` of an X.509 certificate; none if these bytes are not one.
pub(super) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let [_, not_after] = bounds(certificate)?;
    not_after
}

/// The `notBefore` and the `notAfter` of an X.509 certificate, each of them none if it cannot be read.
pub(super) fn bounds(certificate: &[u8]) -> Option<[Option<SystemTime>; 2]> {
    let fields = der::after_issuer(certificate)?;
    let (first, before, rest) = element(value(fields, SEQUENCE)?.0)?;
    let (last, after, _) = element(rest)?;
    Some([(first, before), (last, after)].map(|(tag, text)| time(tag, std::str::from_utf8(text).ok()?)))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`: the only forms certificates may use.
fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z')?;
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
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Gregorian days, with years that begin in March so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |tag, text, expect: Option<u64>| {
            let found = time(tag, text).and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
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
        check(GENERALIZED_TIME, "2050010100000Z", None);
        check(UTC_TIME, "49123123595", None);
        check(UTC_TIME, "4912312359+1Z", None);
        check(0x04, "491231235959Z", None);
    }

    #[test]
    fn certificates() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(["localhost".to_string()]).expect("a name");
        for (year, expect) in [(2030, 1_893_456_000), (2060, 2_840_140_800)] {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let der = params.self_signed(&key).expect("a certificate");
            let expect = SystemTime::UNIX_EPOCH + Duration::from_secs(expect);
            assert_eq!(not_after(der.der()), Some(expect));
            // Cut anywhere before the field it is no certificate, and never a panic.
            for end in 0..60 {
                assert_eq!(not_after(&der.der()[..end]), None);
            }
        }
    }
}
