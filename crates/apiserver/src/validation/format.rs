//! The syntax of single texts. In: the name of a format in the table, and a text. Out: what is wrong with it, in Kubernetes'
//! words. Nothing is looked up.

use konverge_core::{NameRule, check_label_key, check_label_value, check_name};

use super::address;
use super::cron;

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// What is wrong with a text.
pub(super) type Format = fn(&str) -> Vec<String>;

/// The format of this name in the table.
pub(super) fn named(name: &str) -> Option<Format> {
    Some(match name {
        "absolute-path" => |text| unless(text.starts_with('/'), "must be an absolute path"),
        "c-identifier" => c_identifier,
        "cidr" => address::check_cidr,
        "cidr-canonical" => address::check_canonical_cidr,
        "condition-reason" => condition_reason,
        "config-key" => config_key,
        "cron" => |text| cron::check(text).err().into_iter().collect(),
        "csi-driver" => |text| check_name(&text.to_lowercase(), NameRule::Subdomain, false),
        "dns-label" => |text| check_name(text, NameRule::Label, false),
        "dns-label-1035" => |text| check_name(text, NameRule::Label1035, false),
        "dns-name-prefix" => |text| check_name(text, NameRule::Subdomain, true),
        "dns-search" => dns_search,
        "dns-subdomain" => |text| check_name(text, NameRule::Subdomain, false),
        "domain-prefixed" => domain_prefixed,
        "endpoint-ip" => address::check_endpoint_ip,
        "env-name" => env_name,
        "finalizer" => finalizer,
        "header-name" => header_name,
        "ip" => address::check_ip,
        "ip-canonical" => address::check_canonical_ip,
        "iqn" => iqn,
        "label-key" => check_label_key,
        "label-value" => check_label_value,
        "local-path" => local_path,
        "no-backsteps" => no_backsteps,
        "not-empty" => |text| unless(!text.is_empty(), "must not be empty"),
        "path-segment" => |text| check_name(text, NameRule::PathSegment, false),
        "port-name" => port_name,
        "relative-path" => relative_path,
        "sysctl" => sysctl,
        "time-zone" => cron::check_time_zone,
        "trimmed" => |text| unless(text.trim() == text, "must not have leading or trailing whitespace"),
        "wildcard" => wildcard,
        _ => return None,
    })
}

fn unless(fits: bool, why: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![why.to_owned()] }
}

/// A finalizer has a domain, unless a cluster itself knows it.
fn finalizer(text: &str) -> Vec<String> {
    let mut errors = check_label_key(text);
    if !text.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&text) {
        errors.push("name is neither a standard finalizer name nor is it fully qualified".to_owned());
    }
    errors
}

fn header_name(text: &str) -> Vec<String> {
    unless(
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')",
    )
}

fn sysctl(text: &str) -> Vec<String> {
    unless(
        is_sysctl(text),
        "must have at most 253 characters and match regex \
         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
    )
}

fn c_identifier(text: &str) -> Vec<String> {
    unless(
        is_c_identifier(text),
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
         '[A-Za-z_][A-Za-z0-9_]*')",
    )
}

fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut check = |wrong: bool, why: &str| {
        if wrong {
            errors.push(why.to_owned());
        }
    };
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    check(text.len() > 15, "must be no more than 15 characters");
    check(
        text.is_empty() || !text.bytes().all(inner),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(!text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(text.contains("--"), "must not contain consecutive hyphens");
    check(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    errors
}

fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    unless(
        text.chars().all(|c| (' '..='~').contains(&c) && c != '='),
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )
}

fn condition_reason(text: &str) -> Vec<String> {
    let last = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let inner = |byte: u8| last(byte) || matches!(byte, b',' | b':');
    let fits = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(inner)
        && text.bytes().last().is_some_and(last);
    unless(
        fits,
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
         characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
         'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
         '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
    )
}

fn config_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || !text.bytes().all(inner) {
        errors.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// A search domain of a resolver, which may have underscores and a dot at its end.
fn dns_search(text: &str) -> Vec<String> {
    if text == "." {
        return Vec::new();
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let inner = |byte: u8| edge(Some(byte)) || matches!(byte, b'-' | b'_');
        edge(label.bytes().next()) && edge(label.bytes().last()) && label.bytes().all(inner)
    };
    if !text.split('.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// `*.example.com`
fn wildcard(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    let inside = text.strip_prefix("*.");
    if !inside.is_some_and(is_subdomain) {
        errors.push(format!(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is '\\*\\.{SUBDOMAIN}')"
        ));
    }
    errors
}

fn is_subdomain(name: &str) -> bool {
    name.split('.')
        .all(|label| check_name(label, NameRule::Label, false).iter().all(|why| why.contains("no more than")))
}

fn no_backsteps(text: &str) -> Vec<String> {
    unless(text.split('/').all(|part| part != ".."), "must not contain '..'")
}

fn relative_path(text: &str) -> Vec<String> {
    let mut errors = unless(!text.starts_with('/'), "must be a relative path");
    errors.extend(no_backsteps(text));
    errors
}

fn local_path(text: &str) -> Vec<String> {
    let mut errors = relative_path(text);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push("must not start with '..'".to_owned());
    }
    errors
}

/// The name of an iSCSI target or initiator.
fn iqn(text: &str) -> Vec<String> {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = if let Some(rest) = text.strip_prefix("eui.") {
        rest.len() == 16 && hex(rest)
    } else if let Some(rest) = text.strip_prefix("naa.") {
        rest.len() == 32 && hex(rest)
    } else if text.starts_with("iqn") {
        is_iqn(text)
    } else if text.starts_with("eui") || text.starts_with("naa") {
        false
    } else {
        return vec!["must be valid format starting with iqn, eui, or naa".to_owned()];
    };
    unless(fits, "must be valid format")
}

/// `iqn.2001-04.com.example:storage`
fn is_iqn(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("iqn.") else { return false };
    let Some((date, rest)) = rest.split_once('.') else { return false };
    let is_date = date.len() == 7
        && date.as_bytes()[4] == b'-'
        && date.bytes().enumerate().all(|(at, byte)| at == 4 || byte.is_ascii_digit());
    let authority = rest.split_once(':').map_or(rest, |(authority, _)| authority);
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_authority = authority.len() > 1
        && authority.bytes().all(word)
        && authority.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && authority.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric());
    is_date && is_authority
}

fn is_sysctl(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_part = |part: &str| {
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|byte| edge(Some(byte)) || matches!(byte, b'-' | b'_'))
    };
    text.len() <= 253 && text.split(['.', '/']).all(is_part)
}

fn is_c_identifier(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(word) && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

/// `acme.io/foo`; the empty text is for the caller.
fn domain_prefixed(text: &str) -> Vec<String> {
    let Some((host, path)) = text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) else {
        return vec!["must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()];
    };
    let mut errors = check_name(host, NameRule::Subdomain, false);
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(inner) {
        errors.push("Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned());
    }
    errors
}
