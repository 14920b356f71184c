//! Network formats: addresses, names, URIs and mail. In: a string. Out: whether Go's parsers accept it.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

/// Four decimal numbers; leading zeros are tolerated as Kubernetes does.
fn sloppy_v4(text: &str) -> bool {
    let mut count = 0;
    let valid = text.split('.').all(|part| {
        count += 1;
        let plain = part.bytes().all(|b| b.is_ascii_digit());
        plain && part.len() < 9 && part.parse::<u32>().is_ok_and(|n| n <= 255)
    });
    valid && count == 4
}

/// An IPv6 address whose IPv4 tail may have leading zeros.
fn sloppy_v6(text: &str) -> bool {
    match text.rfind(':') {
        Some(colon) if text[colon..].contains('.') => {
            sloppy_v4(&text[colon + 1..]) && format!("{}0.0.0.0", &text[..=colon]).parse::<Ipv6Addr>().is_ok()
        }
        _ => text.parse::<Ipv6Addr>().is_ok(),
    }
}

pub(super) fn ipv4(text: &str) -> bool {
    text.contains('.') && if text.contains(':') { sloppy_v6(text) } else { sloppy_v4(text) }
}

pub(super) fn ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let (valid, most) = if address.contains(':') { (sloppy_v6(address), 128) } else { (sloppy_v4(address), 32) };
    let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    valid && digits && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

pub(super) fn mac(text: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let groups = |separator: char, len: usize, counts: [usize; 3]| {
        counts.contains(&text.split(separator).count()) && text.split(separator).all(|part| hex(part, len))
    };
    match text.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(separator @ (':' | '-')) => groups(separator, 2, [6, 8, 20]),
        Some('.') => groups('.', 4, [3, 4, 10]),
        Some(_) => false,
        None => matches!(text.len(), 12 | 16 | 40),
    }
}

pub(super) fn hostname(text: &str) -> bool {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[\p{S}\p{L}]$").expect("a constant expression"));
    static LETTERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{L}$").expect("a constant expression"));
    let is = |class: &Regex, c: char| class.is_match(c.encode_utf8(&mut [0; 4]));
    let word = |c: char| c.is_ascii_alphanumeric() || is(&WORDS, c);
    let letter = |c: char| c.is_ascii_alphabetic() || (!c.is_ascii() && is(&LETTERS, c));
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let label = |label: &str| {
        let ends = label.chars().next().is_some_and(word) && label.chars().next_back().is_some_and(word);
        ends && label.chars().all(|c| word(c) || c == '-')
    };
    match text.rsplit_once('.') {
        Some((labels, top)) => top.chars().all(letter) && top.chars().count() >= 2 && labels.split('.').all(label),
        None => {
            // A name without dots may have one dash, right after its first character; it may also be the last.
            let mut chars = text.chars();
            chars.next().is_some_and(word) && {
                let rest = chars.as_str();
                rest.strip_prefix('-').unwrap_or(rest).chars().all(word)
            }
        }
    }
}

/// What Go's `url.ParseRequestURI` accepts: an absolute URI or an absolute path.
pub(super) fn request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return scheme;
    }
    let path = match rest.strip_prefix("//") {
        Some(after) if scheme => {
            let end = after.find('/').unwrap_or(after.len());
            if !authority(&after[..end]) {
                return false;
            }
            &after[end..]
        }
        _ => rest,
    };
    escapes(path, |_| true)
}

/// Whether a scheme opens the text, and what follows it; `None` when a colon comes first.
fn scheme(text: &str) -> Option<(bool, &str)> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((true, &text[at + 1..])),
            _ => return Some((false, text)),
        }
    }
    Some((false, text))
}

fn authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').map_or((None, text), |(user, host)| (Some(user), host));
    let user_char = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    user.is_none_or(|user| user.bytes().all(user_char) && escapes(user, |_| true)) && self::host(host)
}

fn host(text: &str) -> bool {
    let (name, port) = if text.starts_with('[') {
        let Some(end) = text.rfind(']') else { return false };
        let address = &text[1..end];
        let (address, zone) = address.split_once("%25").map_or((address, None), |(a, zone)| (a, Some(zone)));
        if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(str::is_empty) {
            return false;
        }
        ("", &text[end + 1..])
    } else {
        text.find(':').map_or((text, ""), |colon| text.split_at(colon))
    };
    let port_ok = port.is_empty() || (port.starts_with(':') && port[1..].bytes().all(|b| b.is_ascii_digit()));
    let host_char = |b: u8| b >= 0x80 || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b);
    // In a host only bytes past ASCII may be escaped.
    port_ok && name.bytes().all(host_char) && escapes(name, |byte| byte >= 0x80)
}

/// Whether every percent sign starts an escape whose byte is allowed.
fn escapes(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, b)| **b == b'%').all(|(at, _)| {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.is_some_and(|digits| {
            digits.bytes().all(|b| b.is_ascii_hexdigit()) && u8::from_str_radix(digits, 16).is_ok_and(&allowed)
        })
    })
}

/// What Go's `mail.ParseAddress` accepts: an address, or a name before an address in angle brackets.
pub(super) fn email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    match text.strip_suffix('>') {
        Some(named) => {
            let Some((name, address)) = named.rsplit_once('<') else { return false };
            phrase(name.trim_matches([' ', '\t'])) && address_spec(address.trim_matches([' ', '\t']))
        }
        None => address_spec(text),
    }
}

fn address_spec(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let local_ok = if quoted { quoted_body(&local[1..local.len() - 1]) } else { dot_atom(local) };
    let literal = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
    let domain_ok = match literal {
        Some(address) => {
            let v6 = address.strip_prefix("IPv6:").unwrap_or(address);
            v6.parse::<std::net::IpAddr>().is_ok()
        }
        None => dot_atom(domain),
    };
    local_ok && domain_ok
}

fn phrase(text: &str) -> bool {
    if text.len() >= 2 && text.starts_with('"') && text.ends_with('"') {
        return quoted_body(&text[1..text.len() - 1]);
    }
    text.split([' ', '\t']).filter(|word| !word.is_empty()).all(|word| word.chars().all(|c| atom_char(c) || c == '.'))
}

fn dot_atom(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.chars().all(atom_char))
}

fn atom_char(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn quoted_body(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = if c == '\\' { chars.next() } else { Some(c).filter(|c| *c != '"') };
        if !c.is_some_and(|c| !c.is_ascii() || (' '..='~').contains(&c) || c == '\t') {
            return false;
        }
    }
    true
}
