//! URLs as Go's `net/url` reads them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;

use crate::value::{Answer, Key, Map, Text, Value};

use super::{Native, no_overload};

/// An absolute URL.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// The text of the URL, by which URLs are compared.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|why| format!("parse {text:?}: {why}"))
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        // A request has no fragment: it belongs to the path or the query, as long as validity is asked for.
        let whole = Self::parts(text)?;
        match text.split_once('#') {
            Some((before, _)) => Self::parts(before).or(Ok(whole)),
            None => Ok(whole),
        }
        .map(|url| Self { text: text.to_owned(), ..url })
    }

    fn parts(text: &str) -> Result<Self, String> {
        let mut url = Self {
            text: String::new(),
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
        };
        if text == "*" {
            url.path = "*".to_owned();
            return Ok(url);
        }
        let (scheme, rest) = scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_owned();
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            return Err("invalid URI for request".to_owned());
        }
        let mut path = rest;
        if let Some(authority) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
            let end = authority.find('/').unwrap_or(authority.len());
            url.host = host(&url.scheme, &authority[..end])?;
            path = &authority[end..];
        }
        check_escapes(path)?;
        url.path = escape_path(path);
        Ok(url)
    }

    fn port_at(&self) -> Option<usize> {
        let colon = self.host.rfind(':')?;
        self.host[colon + 1..].bytes().all(|b| b.is_ascii_digit()).then_some(colon)
    }

    fn hostname(&self) -> &str {
        let host = self.port_at().map_or(self.host.as_str(), |colon| &self.host[..colon]);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        self.port_at().map_or("", |colon| &self.host[colon + 1..])
    }
}

/// The parts of a URL that may also have a fragment, or name no host.
///
/// ```
/// use konverge_cel::UrlParts;
/// let url = UrlParts::parse("https://me:secret@example.com:8443/hook?a=b#top")?;
/// assert_eq!((url.scheme.as_str(), url.host.as_str()), ("https", "example.com:8443"));
/// assert_eq!((url.user.as_deref(), url.query.as_str(), url.fragment.as_str()), (Some("me:secret"), "a=b", "top"));
/// assert!(UrlParts::parse("https://[::1/").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct UrlParts {
    /// In lower case; empty for a relative URL.
    pub scheme: String,
    /// The user and the password before the host.
    pub user: Option<String>,
    /// The host with its port.
    pub host: String,
    /// What follows the question mark.
    pub query: String,
    /// What follows the number sign.
    pub fragment: String,
}

impl UrlParts {
    /// Reads a URL as `url.Parse` of Go does, with its errors.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|why| format!("parse {text:?}: {why}"))
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            user: None,
            host: String::new(),
            query: query.to_owned(),
            fragment: fragment.to_owned(),
        };
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_host = rest.starts_with("//") && (!url.scheme.is_empty() || !rest.starts_with("///"));
        let mut path = rest;
        if has_host {
            let authority = &rest[2..];
            let end = authority.find('/').unwrap_or(authority.len());
            url.host = host(&url.scheme, &authority[..end])?;
            url.user = authority[..end].rsplit_once('@').map(|(user, _)| user.to_owned());
            path = &authority[end..];
        }
        check_escapes(path)?;
        check_escapes(fragment)?;
        Ok(url)
    }
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn host(scheme: &str, authority: &str) -> Result<String, String> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(allowed) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            check_escapes(user)?;
            host
        }
        None => authority,
    };
    let is_port = |port: &str| {
        port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let bad_port = |port: &str| Err(format!("invalid port {port:?} after host"));
    match host.rfind('[') {
        Some(0) => {
            let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
            if !is_port(&host[end + 1..]) {
                return bad_port(&host[end + 1..]);
            }
            let address = host[1..end].split("%25").next().unwrap_or_default();
            match address.parse::<IpAddr>() {
                Ok(IpAddr::V6(_)) => {}
                _ => return Err("invalid IP-literal".to_owned()),
            }
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            let first = host.find(':');
            let strict = matches!(scheme, "http" | "https");
            let colon = if strict { first } else { host.rfind(':') };
            if let Some(colon) = colon.filter(|colon| !is_port(&host[*colon..])) {
                return bad_port(&host[colon..]);
            }
        }
    }
    check_host(host)?;
    Ok(percent_decode_str(host).decode_utf8_lossy().into_owned())
}

fn check_host(host: &str) -> Result<(), String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b);
    if let Some(wrong) = host.bytes().find(|b| !allowed(*b)) {
        return Err(format!("invalid character {:?} in host name", char::from(wrong).to_string()));
    }
    check_escapes(host)?;
    // Only bytes that are not ASCII may be escaped in a host.
    let escape = host.match_indices('%').map(|(at, _)| &host[at..(at + 3).min(host.len())]);
    let ascii = |escape: &&str| *escape != "%25" && escape.as_bytes().get(1).is_some_and(|b| (b'0'..b'8').contains(b));
    match escape.into_iter().find(ascii) {
        Some(escape) => Err(format!("invalid URL escape {escape:?}")),
        None => Ok(()),
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

/// The path with everything escaped that must be; what is escaped stays so.
fn escape_path(path: &str) -> String {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&b);
    if path.bytes().all(valid) {
        return path.to_owned();
    }
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
    let mut escaped = String::new();
    for byte in decoded {
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

pub(super) fn url<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => match Url::parse(text) {
            Ok(url) => Ok(Value::Url(url.into())),
            Err(why) => Err(format!("URL parse error during conversion from string: {why}").into()),
        },
        _ => Err(no_overload("url", args)),
    }
}

pub(super) fn is_url<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::Bool(Url::parse(text).is_ok())),
        _ => Err(no_overload("isURL", args)),
    }
}

pub(super) fn native(function: &str) -> Option<Native> {
    let native: Native = match function {
        "getScheme" => |args| of("getScheme", args, |url| url.scheme.clone()),
        "getHost" => |args| of("getHost", args, |url| url.host.clone()),
        "getHostname" => |args| of("getHostname", args, |url| url.hostname().to_owned()),
        "getPort" => |args| of("getPort", args, |url| url.port().to_owned()),
        "getEscapedPath" => |args| of("getEscapedPath", args, |url| url.path.clone()),
        "getQuery" => query,
        _ => return None,
    };
    Some(native)
}

fn of<'a>(function: &str, args: &[Value<'a>], part: impl Fn(&Url) -> String) -> Answer<'a> {
    match &args[0] {
        Value::Url(url) => Ok(Value::text(part(url))),
        _ => Err(no_overload(function, args)),
    }
}

fn query<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::Url(url) = &args[0] else { return Err(no_overload("getQuery", args)) };
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in url.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if check_escapes(key).is_ok() && check_escapes(value).is_ok() {
            found.entry(decode(key)).or_default().push(decode(value));
        }
    }
    let entries = found.into_iter().map(|(key, values)| {
        let key: Text<'_> = Text::from(key);
        (Key::String(key.clone()), (Value::String(key), Value::texts(values)))
    });
    Ok(Value::Map(Map::Owned(std::sync::Arc::new(entries.collect()))))
}
