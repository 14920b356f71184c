//! Parses and shows values. In: the text of a flag, a variable or a file. Out: the value, or what is wrong with it; the table
//! adds which values are accepted. Every value that is shown parses as itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use konverge_core::{NameRule, check_name};

use super::{LogFormat, ShardCache};

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BindAddress {
    /// None: `0`, as in kubebuilder.
    Off,
    /// A port of all interfaces, over IPv4 and IPv6: `:8080`. Port 0 picks a free one.
    All(u16),
    /// One address: `127.0.0.1:8080`. Port 0 picks a free one.
    At(SocketAddr),
}

impl BindAddress {
    /// A port of the loopback interface.
    pub const fn loopback(port: u16) -> BindAddress {
        BindAddress::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// The addresses to try, in this order. `::` accepts IPv4 as well; a machine without IPv6 has `0.0.0.0`.
    pub(crate) fn candidates(&self) -> Vec<SocketAddr> {
        match *self {
            BindAddress::Off => Vec::new(),
            BindAddress::All(port) => {
                vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
            }
            BindAddress::At(address) => vec![address],
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindAddress::Off => f.write_str("0"),
            BindAddress::All(port) => write!(f, ":{port}"),
            BindAddress::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a port"));
        if text == "0" {
            return Ok(BindAddress::Off);
        }
        if let Ok(address) = text.parse() {
            return Ok(BindAddress::At(address));
        }
        match text.rsplit_once(':') {
            None | Some(("", _)) => Ok(BindAddress::All(port(text.trim_start_matches(':'))?)),
            Some(("localhost", rest)) => Ok(BindAddress::loopback(port(rest)?)),
            Some((host, _)) => Err(format!("{host:?} is not an IP address")),
        }
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("it is neither true nor false".into()),
    }
}

/// A duration that may be 0.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.parse::<f64>().is_ok() {
        return Err(format!("it has no unit: {text}s, or {text}ms?"));
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| "it is not a duration".to_string())?;
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, seconds) =
            UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| format!("{unit:?} is not a unit of time"))?;
        total += number * seconds;
        rest = tail;
    }
    // A float of nanoseconds would show 0.1 s as 100.000001 ms; nobody sets an operator by less than a microsecond.
    let micros = Duration::try_from_secs_f64(total).map_err(|_| "it is too long".to_string())?.as_secs_f64() * 1e6;
    match Duration::from_micros(micros.round() as u64) {
        long if long > LONGEST => Err("it is longer than a year".into()),
        duration => Ok(duration),
    }
}

/// Long enough for anyone, and short enough to be added to any instant.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Go's units, and days.
const UNITS: [(&str, f64); 7] =
    [("d", 86_400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6)];

pub(super) fn show_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0".into();
    }
    let mut text = String::new();
    let mut micros = duration.as_micros();
    for (unit, size) in [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1u128)] {
        if micros >= size {
            text += &format!("{}{unit}", micros / size);
            micros %= size;
        }
    }
    text
}

/// A duration of at least a millisecond: for what would spin with less.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => Err("it is shorter than 1ms".into()),
        duration => Ok(duration),
    }
}

/// A duration after which something happens, or never, for 0.
pub(super) fn limit(text: &str) -> Result<Option<Duration>, String> {
    if duration(text)?.is_zero() { Ok(None) } else { pause(text).map(Some) }
}

/// `None` for the text that stands for it, else what `read` makes of the text.
pub(super) fn unless<T>(
    none: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == none { Ok(None) } else { read(text).map(Some) }
}

pub(super) fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, least: T, most: T) -> Result<T, String> {
    let number = text.parse::<T>().map_err(|_| format!("it is not a number from {least} to {most}"))?;
    if number < least || number > most || number.partial_cmp(&least).is_none() {
        return Err(format!("it is not a number from {least} to {most}"));
    }
    Ok(number)
}

/// A path of an HTTP page.
pub(super) fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("it does not begin with /".into());
    }
    if text.len() > 1 && text.ends_with('/') {
        return Err("it ends with /".into());
    }
    if let Some(odd) = text.chars().find(|c| !c.is_ascii_graphic() || "?#%\"<>".contains(*c)) {
        return Err(format!("{odd:?} may not be in it"));
    }
    Ok(text.into())
}

/// A duration for which a plain number is seconds, as a Lease counts.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if is_number { pause(&format!("{text}s")) } else { pause(text) }
}

/// The name of an object.
pub(crate) fn object_name(text: &str) -> Result<String, String> {
    match check_name(text, NameRule::Subdomain, false).is_empty() {
        true => Ok(text.to_owned()),
        false => Err("it cannot be the name of an object: lower case letters, digits, - and .".into()),
    }
}

/// The name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    match check_name(text, NameRule::Label, false).is_empty() {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not the name of a namespace")),
    }
}

/// Names of namespaces with commas between them.
pub(super) fn namespaces(text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let name = namespace(name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// What may own fields; also the name of an operator.
pub(super) fn manager(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    // The API server's own rule for field managers.
    if text.len() > 128 || text.chars().any(char::is_control) {
        return Err("it is longer than 128 bytes, or has characters that cannot be printed".into());
    }
    Ok(text.into())
}

/// An address that API servers can be told: they speak HTTPS only.
pub(super) fn https(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|_| "it is not an address".to_string())?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) {
        return Err("it does not begin with https:// and a host".into());
    }
    if uri.query().is_some() || text.contains('#') || uri.authority().is_some_and(|host| host.as_str().contains('@')) {
        return Err("API servers take no user, query or fragment in it".into());
    }
    Ok(text.trim_end_matches('/').into())
}

/// The name of a Service, perhaps after its namespace and a slash.
pub(super) fn service(text: &str) -> Result<String, String> {
    let is_label = |name: &str| check_name(name, NameRule::Label, false).is_empty();
    if text.split('/').count() > 2 || !text.split('/').all(is_label) {
        return Err("it is not the name of a Service".into());
    }
    Ok(text.into())
}

/// A level or a filter of `tracing`; also what zap calls levels.
pub(super) fn level(text: &str) -> Result<String, String> {
    // zap: 0 is info, each number above it says more.
    let text = match text.to_ascii_lowercase().as_str() {
        "0" => "info".into(),
        "1" => "debug".into(),
        digits if digits.parse::<u8>().is_ok() => "trace".into(),
        "warning" => "warn".into(),
        "panic" | "fatal" => "error".into(),
        _ => text.to_string(),
    };
    for part in text.split(',') {
        let (target, level) = part.rsplit_once('=').map_or(("", part), |(target, level)| (target, level));
        let known = ["trace", "debug", "info", "warn", "error", "off"].iter().any(|l| l.eq_ignore_ascii_case(level));
        if !known {
            // `tracing` would take a lone unknown word for the name of a module, and log nothing else.
            return Err(format!("{level:?} is not a level"));
        }
        if part.contains('=') && target.is_empty() {
            return Err(format!("{part:?} names no module"));
        }
    }
    tracing_subscriber::EnvFilter::try_new(&text).map_err(|error| error.to_string())?;
    Ok(text)
}

pub(super) fn format(text: &str) -> Result<LogFormat, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(LogFormat::Auto),
        "json" => Ok(LogFormat::Json),
        "text" | "console" => Ok(LogFormat::Text),
        _ => Err("there is no such format".into()),
    }
}

pub(super) fn shard_cache(text: &str) -> Result<ShardCache, String> {
    match text.to_ascii_lowercase().as_str() {
        "own" => Ok(ShardCache::Own),
        "all" => Ok(ShardCache::All),
        _ => Err("it is neither own nor all".into()),
    }
}

pub(super) fn show_shard_cache(keeps: ShardCache) -> String {
    match keeps {
        ShardCache::Own => "own",
        ShardCache::All => "all",
    }
    .into()
}

pub(super) fn show_format(format: LogFormat) -> String {
    match format {
        LogFormat::Auto => "auto",
        LogFormat::Json => "json",
        LogFormat::Text => "text",
    }
    .into()
}
