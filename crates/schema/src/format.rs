//! String formats of custom resources. In: a `format` keyword, later a string. Out: whether the string has that
//! format, decided as Kubernetes 1.36 decides it. An unknown format accepts every string.

use std::sync::LazyLock;

use regex::Regex;

mod net;
mod time;

/// A known format, on a type that it applies to.
#[derive(Clone, Debug)]
pub struct Format {
    name: Box<str>,
    test: Option<Test>,
}

type Test = fn(&str) -> bool;

/// Every string format, by its name without dashes.
const STRINGS: [(&str, Test); 26] = [
    ("bsonobjectid", |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit())),
    ("uri", net::request_uri),
    ("email", net::email),
    ("hostname", net::hostname),
    ("ipv4", net::ipv4),
    ("ipv6", net::ipv6),
    ("cidr", net::cidr),
    ("mac", net::mac),
    ("uuid", |s| uuid(s, None, false)),
    ("uuid3", |s| uuid(s, Some(b'3'), false)),
    ("uuid4", |s| uuid(s, Some(b'4'), true)),
    ("uuid5", |s| uuid(s, Some(b'5'), true)),
    ("isbn", |s| isbn10(s) || isbn13(s)),
    ("isbn10", isbn10),
    ("isbn13", isbn13),
    ("creditcard", credit_card),
    ("ssn", ssn),
    ("hexcolor", hex_color),
    ("rgbcolor", rgb_color),
    ("byte", base64),
    ("password", |_| true),
    ("date", time::date),
    ("duration", time::duration),
    ("datetime", time::date_time),
    ("k8sshortname", |s| s.len() <= 63 && short_name(s)),
    ("k8slongname", |s| s.len() <= 253 && s.split('.').all(short_name)),
];

impl Format {
    /// The format `name` on a value of `types`; `None` if it is unknown for these types, which accepts every value.
    ///
    /// ```
    /// use konverge_schema::Format;
    /// assert!(Format::new("date", &["string"]).unwrap().accepts("2024-02-29"));
    /// assert!(Format::new("no-such-thing", &["string"]).is_none());
    /// ```
    pub fn new(name: &str, types: &[&str]) -> Option<Self> {
        let known = |test| Some(Self { name: name.into(), test });
        match types {
            ["integer"] if matches!(name, "int32" | "int64") => known(None),
            ["number"] if matches!(name, "float" | "double") => known(None),
            // Several types, as in int-or-string: the format applies to strings.
            [] | ["string"] | [_, _, ..] => {
                let plain = name.replace('-', "");
                STRINGS.iter().find(|(known, _)| *known == plain).and_then(|(_, test)| known(Some(*test)))
            }
            _ => None,
        }
    }

    /// The name as it stands in the schema.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Whether the format restricts strings.
    pub fn is_textual(&self) -> bool {
        self.test.is_some()
    }

    /// Whether a string has this format. Formats of numbers accept every string.
    pub fn accepts(&self, text: &str) -> bool {
        self.test.is_none_or(|test| test(text))
    }
}

fn uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut rest = text.as_bytes();
    for (at, len) in [8usize, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, tail)) = rest.split_at_checked(len) else { return false };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        if at == 2 && version.is_some_and(|version| group[0] != version) {
            return false;
        }
        if at == 3 && variant && !matches!(group[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B') {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

/// The digits of an ISBN without white space and dashes.
fn isbn_digits(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | 0x0c | b'\r' | b' ' | b'-')).collect()
}

fn isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let shaped = digits.len() == 10
        && digits[..9].iter().all(u8::is_ascii_digit)
        && (digits[9].is_ascii_digit() || digits[9] == b'X');
    if !shaped {
        return false;
    }
    let value = |b: &u8| if *b == b'X' { 10 } else { u32::from(b - b'0') };
    digits.iter().zip(1u32..).map(|(b, weight)| weight * value(b)).sum::<u32>() % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 =
        digits[..12].iter().zip([1, 3].into_iter().cycle()).map(|(b, weight)| weight * u32::from(b - b'0')).sum();
    u32::from(digits[12] - b'0') == (10 - sum % 10) % 10
}

fn credit_card(text: &str) -> bool {
    static ISSUERS: LazyLock<Regex> = LazyLock::new(|| {
        let issuers = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}\
                       |3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
        Regex::new(issuers).expect("a constant expression")
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = |(at, b): (usize, u8)| {
        let digit = u32::from(b - b'0') << (at % 2);
        digit / 10 + digit % 10
    };
    ISSUERS.is_match(&digits) && digits.bytes().rev().enumerate().map(luhn).sum::<u32>() % 10 == 0
}

fn ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    let separator = |b: u8| matches!(b, b'-' | b' ');
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, b)| if matches!(at, 3 | 6) { separator(*b) } else { b.is_ascii_digit() })
}

fn hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn rgb_color(text: &str) -> bool {
    let Some(parts) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let mut count = 0;
    let valid = parts.split(',').all(|part| {
        count += 1;
        let digits = part.trim_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let plain = digits == "0" || !digits.starts_with('0');
        plain && digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u8>().is_ok()
    });
    valid && count == 3
}

fn base64(text: &str) -> bool {
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    !body.is_empty()
        && text.len().is_multiple_of(4)
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn short_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => inner(*first) && inner(*last) && bytes.iter().all(|b| inner(*b) || *b == b'-'),
        _ => false,
    }
}
