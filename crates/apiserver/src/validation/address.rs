//! IP addresses and networks in texts. In: a text. Out: what is wrong with it, in Kubernetes' words. Old fields take what Go's
//! older parser took, which allowed leading zeros; a cluster refuses those today, and says so in its own words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address as Go's older parser reads it: numbers of IPv4 may have leading zeros.
pub(crate) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    let sloppy = |text: &str| -> Option<Ipv4Addr> {
        let parts: Vec<u8> = text.split('.').map(decimal).collect::<Option<_>>()?;
        <[u8; 4]>::try_from(parts).ok().map(Ipv4Addr::from)
    };
    if !text.contains(':') {
        return sloppy(text).map(IpAddr::V4);
    }
    let (head, tail) = text.rsplit_once(':')?;
    if !tail.contains('.') {
        return None;
    }
    format!("{head}:{}", sloppy(tail)?).parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn decimal(text: &str) -> Option<u8> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.trim_start_matches('0')).map(|digits| if digits.is_empty() { "0" } else { digits })?.parse().ok()
}

/// An address of a field that has always been there.
pub(super) fn check_ip(text: &str) -> Vec<String> {
    let Some(_) = parse_sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    match text.parse::<IpAddr>() {
        Err(_) => vec!["must not have leading 0s".to_owned()],
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

/// An address of a newer field: only its canonical form.
pub(super) fn check_canonical_ip(text: &str) -> Vec<String> {
    let errors = check_ip(text);
    if !errors.is_empty() {
        return errors;
    }
    match text.parse::<IpAddr>() {
        Ok(address) if address.to_string() != text => vec![format!("must be in canonical form (\"{address}\")")],
        _ => Vec::new(),
    }
}

/// An address that clients outside of a node can reach.
pub(super) fn check_endpoint_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_sloppy(text) else { return vec!["must be a valid IP address".to_owned()] };
    let address = match address {
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        address => address,
    };
    let mut errors = Vec::new();
    let mut check = |wrong: bool, why: &str| {
        if wrong {
            errors.push(why.to_owned());
        }
    };
    check(address.is_unspecified(), &format!("may not be unspecified ({text})"));
    check(address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    let (link_local, multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.segments()[0] & 0xffc0 == 0xfe80, address.segments()[0] & 0xff0f == 0xff02),
    };
    check(link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    check(multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    errors
}

/// The address and the length of a network.
pub(super) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_sloppy(address)?;
    let plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u8 = plain.then_some(length)?.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// A network of a field that has always been there.
pub(super) fn check_cidr(text: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (given, bits) = text.split_once('/').unwrap_or((text, ""));
    if given.parse::<IpAddr>().is_err() || bits.len() > 1 && bits.starts_with('0') {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return vec!["must not have an IPv4-mapped IPv6 address".to_owned()];
    }
    if masked(address, length) != address {
        return vec!["must not have bits set beyond the prefix length".to_owned()];
    }
    Vec::new()
}

/// A network of a newer field: only its canonical form.
pub(super) fn check_canonical_cidr(text: &str) -> Vec<String> {
    let errors = check_cidr(text);
    match parse_cidr(text) {
        Some((address, length)) if errors.is_empty() => {
            let canonical = format!("{address}/{length}");
            if canonical == text { errors } else { vec![format!("must be in canonical form ({canonical:?})")] }
        }
        _ => errors,
    }
}

/// The first address of a network.
pub(super) fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

/// Whether addresses are of both families; `None` when one cannot be read.
pub(super) fn is_dual_stack(texts: &[&str]) -> Option<bool> {
    let addresses: Vec<IpAddr> = texts.iter().map(|text| parse_sloppy(text)).collect::<Option<_>>()?;
    let mapped = |address: &IpAddr| match address {
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
        IpAddr::V4(_) => true,
    };
    Some(addresses.iter().any(mapped) && !addresses.iter().all(mapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expect) in [
            ("10.9.8.7", ""),
            ("2001:db8::ffff", ""),
            ("10.9.8.07", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("10.9.8", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("1.2.3.256", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ] {
            assert_eq!(check_ip(text).join("; "), expect, "{text}");
        }
    }

    #[test]
    fn networks() {
        for (text, expect) in [
            ("10.9.8.0/24", ""),
            ("0.0.0.0/0", ""),
            ("2001:db8::/64", ""),
            ("10.9.8.7/24", "must not have bits set beyond the prefix length"),
            ("10.9.8.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
            ("10.9.8.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
            ("10.9.8.0/024", "must not have leading 0s in IP or prefix length"),
        ] {
            assert_eq!(check_cidr(text).join("; "), expect, "{text}");
        }
    }
}
