//! Addresses and networks. In: texts as Go's `netip` takes them, without zones and without IPv4 inside IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::value::{Answer, EvalError, Value};

use super::{Native, no_overload};

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl Cidr {
    pub(crate) fn text(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }

    fn parse(text: &str) -> Result<Self, EvalError> {
        let wrong = |why: &str| -> EvalError {
            format!("network address parse error during conversion from string: netip.ParsePrefix({text:?}): {why}")
                .into()
        };
        let Some((address, bits)) = text.rsplit_once('/') else { return Err(wrong("no '/'")) };
        let (address, zone) = parse_address(address).map_err(|why| wrong(&why))?;
        if zone {
            return Err(wrong("IPv6 zones cannot be present in a prefix"));
        }
        let bad = || wrong(&format!("bad bits after slash: {bits:?}"));
        if bits.len() > 1 && !bits.starts_with(|c: char| ('1'..='9').contains(&c)) {
            return Err(bad());
        }
        let length: i64 = bits.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if !(0..=most).contains(&length) {
            return Err(wrong("prefix length out of range"));
        }
        if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed").into());
        }
        Ok(Self { address, bits: length as u8 })
    }

    /// An address with the bits after the prefix cleared; none if it is of the other family.
    fn mask(&self, address: IpAddr) -> Option<IpAddr> {
        match (self.address, address) {
            (IpAddr::V4(_), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or_default();
                Some(Ipv4Addr::from_bits(address.to_bits() & mask).into())
            }
            (IpAddr::V6(_), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or_default();
                Some(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
            _ => None,
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.mask(address).is_some_and(|masked| Some(masked) == self.mask(self.address))
    }
}

/// The address and whether a zone follows it.
fn parse_address(text: &str) -> Result<(IpAddr, bool), String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => (address, true),
        _ => (text, false),
    };
    if let Ok(parsed) = address.parse() {
        return Ok((parsed, zone));
    }
    Err(format!("ParseAddr({text:?}): {}", complaint(text)))
}

/// What Go's parser says about a text that is no address.
fn complaint(text: &str) -> String {
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => v4_complaint(text),
        Some(b':') => v6_complaint(text),
        Some(_) => "missing IPv6 address".to_owned(),
        None => "unable to parse IP".to_owned(),
    }
}

fn v4_complaint(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".to_owned();
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return "IPv4 field has value >255".to_owned();
                }
            }
            b'.' => {
                if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                    return format!("IPv4 field must have at least one digit (at {:?})", &text[at..]);
                }
                if fields == 3 {
                    return "IPv4 address too long".to_owned();
                }
                (value, digits) = (0, 0);
                fields += 1;
            }
            _ => return format!("unexpected character (at {:?})", &text[at..]),
        }
    }
    "IPv4 address too short".to_owned()
}

fn v6_complaint(text: &str) -> String {
    let mut rest = text;
    if let Some((address, zone)) = text.split_once('%') {
        if zone.is_empty() {
            return "zone must be a non-empty string".to_owned();
        }
        rest = address;
    }
    let mut ellipsis = false;
    let mut fields = 0;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = true;
        rest = after;
    }
    while fields < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return format!("each group must have 4 or less digits (at {rest:?})");
        }
        if digits == 0 {
            return format!("each colon-separated field must have at least one digit (at {rest:?})");
        }
        if rest[digits..].starts_with('.') {
            if !ellipsis && fields != 6 {
                return format!("embedded IPv4 address must replace the final 2 fields of the address (at {rest:?})");
            }
            return v4_complaint(rest);
        }
        fields += 1;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return format!("unexpected character, want colon (at {rest:?})");
        }
        if rest.len() == 1 {
            return format!("colon must be followed by more characters (at {rest:?})");
        }
        rest = &rest[1..];
        if rest.starts_with(':') {
            if ellipsis {
                return format!("multiple :: in address (at {rest:?})");
            }
            ellipsis = true;
            rest = &rest[1..];
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return format!("trailing garbage after address (at {rest:?})");
    }
    if ellipsis { "the :: must expand to at least one field of zeros" } else { "address string too short" }.to_owned()
}

fn address(text: &str) -> Result<IpAddr, EvalError> {
    let (address, zone) = parse_address(text).map_err(|why| -> EvalError {
        format!("IP Address {text:?} parse error during conversion from string: {why}").into()
    })?;
    if zone {
        return Err(format!("IP address {text:?} with zone value is not allowed").into());
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed").into());
    }
    Ok(address)
}

pub(super) fn ip<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => address(text).map(Value::Ip),
        Value::Cidr(cidr) => Ok(Value::Ip(cidr.address)),
        _ => Err(no_overload("ip", args)),
    }
}

pub(super) fn is_ip<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::Bool(address(text).is_ok())),
        _ => Err(no_overload("isIP", args)),
    }
}

pub(super) fn is_canonical<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::Bool(address(text)?.to_string() == **text)),
        _ => Err(no_overload("ip.isCanonical", args)),
    }
}

pub(super) fn native(function: &str) -> Option<Native> {
    let native: Native = match function {
        "family" => |args| of("family", args, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| of("isUnspecified", args, |ip| Value::Bool(ip.is_unspecified())),
        "isLoopback" => |args| of("isLoopback", args, |ip| Value::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => {
            |args| of("isLinkLocalMulticast", args, |ip| Value::Bool(is_link_local_multicast(ip)))
        }
        "isLinkLocalUnicast" => |args| of("isLinkLocalUnicast", args, |ip| Value::Bool(is_link_local(ip))),
        "isGlobalUnicast" => |args| {
            of("isGlobalUnicast", args, |ip| {
                let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
                let special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local(ip);
                Value::Bool(!broadcast && !special)
            })
        },
        _ => return None,
    };
    Some(native)
}

fn of<'a>(function: &str, args: &[Value<'a>], then: impl Fn(&IpAddr) -> Value<'a>) -> Answer<'a> {
    match &args[0] {
        Value::Ip(address) => Ok(then(address)),
        _ => Err(no_overload(function, args)),
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(super) fn cidr<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Cidr::parse(text)
            .map(Value::Cidr)
            .map_err(|why| format!("network address parse error during conversion from string: {why}").into()),
        _ => Err(no_overload("cidr", args)),
    }
}

pub(super) fn is_cidr<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::Bool(Cidr::parse(text).is_ok())),
        _ => Err(no_overload("isCIDR", args)),
    }
}

pub(super) fn contains_ip<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Cidr(cidr), Value::Ip(ip)] => Ok(Value::Bool(cidr.contains(*ip))),
        [Value::Cidr(cidr), Value::String(text)] => match address(text) {
            Ok(ip) => Ok(Value::Bool(cidr.contains(ip))),
            Err(_) => Err("no such overload".into()),
        },
        _ => Err(no_overload("containsIP", args)),
    }
}

pub(super) fn contains_cidr<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let (cidr, other) = match args {
        [Value::Cidr(cidr), Value::Cidr(other)] => (cidr, *other),
        [Value::Cidr(cidr), Value::String(text)] => {
            let other = Cidr::parse(text).map_err(|why| -> EvalError {
                format!("network address parse error during conversion from string: {why}").into()
            })?;
            (cidr, other)
        }
        _ => return Err(no_overload("containsCIDR", args)),
    };
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address)))
}

pub(super) fn prefix_length<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Cidr(cidr) => Ok(Value::Int(i64::from(cidr.bits))),
        _ => Err(no_overload("prefixLength", args)),
    }
}

pub(super) fn masked<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::Cidr(cidr) => {
            let address = cidr.mask(cidr.address).expect("an address is of its own family");
            Ok(Value::Cidr(Cidr { address, ..*cidr }))
        }
        _ => Err(no_overload("masked", args)),
    }
}
