//! Addresses and networks that Kubernetes still takes, and would not take in a new field.

use std::net::IpAddr;

use konverge_core::FieldPath;

use crate::validation::parse_sloppy;

/// Warns of an address that is not written in its canonical form.
pub(super) fn ip(at: &FieldPath, text: &str, out: &mut Vec<String>) {
    let Some(address) = parse_sloppy(text) else { return };
    if text.parse::<IpAddr>().is_err() || mapped(address) != address {
        let plain = mapped(address);
        out.push(format!("{at}: non-standard IP address {text:?} is invalid: use \"{plain}\""));
    } else if address.is_ipv6() && address.to_string() != text {
        out.push(format!("{at}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"));
    }
}

/// Warns of a network that is not written in its canonical form, or that has bits after its prefix.
pub(super) fn cidr(at: &FieldPath, text: &str, out: &mut Vec<String>) {
    let Some((address, length)) = text.split_once('/') else { return };
    let (Some(address), Ok(bits)) = (parse_sloppy(address), length.parse::<u8>()) else { return };
    let standard = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok())
        && (length == "0" || !length.starts_with('0'));
    let plain = mapped(address);
    // The prefix of an IPv4 address that is written as IPv6 counts the bits before it.
    let bits = if plain == address { bits } else { bits.saturating_sub(96) };
    let (all, network) = match plain {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or_default();
            (32, IpAddr::V4((address.to_bits() & mask).into()))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or_default();
            (128, IpAddr::V6((address.to_bits() & mask).into()))
        }
    };
    let before = out.len();
    if network != plain {
        out.push(format!(
            "{at}: CIDR value {text:?} is ambiguous in this context (should be \"{network}/{bits}\" or \"{plain}/{all}\"?)"
        ));
    }
    if !standard || plain != address {
        out.push(format!("{at}: non-standard CIDR value {text:?} is invalid: use \"{network}/{bits}\""));
    }
    if out.len() == before && plain.is_ipv6() && format!("{plain}/{bits}") != text {
        out.push(format!("{at}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{plain}/{bits}\")"));
    }
}

/// An IPv4 address that is written as IPv6, as what it is.
fn mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        four => four,
    }
}
