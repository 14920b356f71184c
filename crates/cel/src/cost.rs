//! What calls cost when they are evaluated, in the units of cel-go and of Kubernetes: one for a simple step, a tenth for each
//! character that is looked at. In: the arguments and the result of a call; an argument that failed is `None`. Out: its cost.

use crate::value::{Value, characters};

/// What a new list costs, and what a new map costs.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;

/// What looking at one character costs, and what one character of a regular expression does.
pub(crate) const CHARACTER: f64 = 0.1;
pub(crate) const REGEX_CHARACTER: f64 = 0.25;

type Arg<'v, 'a> = Option<&'v Value<'a>>;

pub(crate) fn call(function: &str, overload: &str, args: &[Arg<'_, '_>], result: Arg<'_, '_>) -> u64 {
    if let Some(cost) = list_call(overload, args, result) {
        return cost;
    }
    if let Some(cost) = kubernetes(function, overload, args, result) {
        return cost;
    }
    let size = |at: usize| general_size(args[at]);
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => scaled(size(0), CHARACTER),
        "in_list" => size(1),
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => scaled(size(0).min(size(1)), CHARACTER),
        "add_string" | "add_bytes" => scaled(size(0) + size(1), CHARACTER),
        "matches_string" => scaled(1 + size(0), CHARACTER) * scaled(size(1), REGEX_CHARACTER),
        "contains_string" => scaled(size(0), CHARACTER) * scaled(size(1), CHARACTER),
        _ => 1,
    }
}

/// Functions of lists and sets that have costs of their own.
fn list_call(overload: &str, args: &[Arg<'_, '_>], result: Arg<'_, '_>) -> Option<u64> {
    let allocating = |factor: f64, size: u64| Some((size as f64 * factor) as u64 + 1 + LIST);
    let compared = |list: Arg<'_, '_>| {
        let size = general_size(list);
        let text = matches!(list, Some(Value::List(list))
            if matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_)))));
        allocating(if text { 2.0 + CHARACTER } else { 2.0 }, size.saturating_mul(size))
    };
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            Some(1 + general_size(args[0]) * general_size(args[1]))
        }
        "list_sets_equivalent_list" => Some(1 + 2 * general_size(args[0]) * general_size(args[1])),
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, general_size(result)),
        "list_flatten" => allocating(1.0, general_size(args[0])),
        "list_flatten_int" => match args[1] {
            Some(Value::Int(depth)) => allocating(*depth as f64, general_size(args[0])),
            _ => allocating(1.0, general_size(args[0])),
        },
        "list_distinct" => compared(args[0]),
        sorts if sorts.ends_with("_sort") && sorts.starts_with("list_") => compared(args[0]),
        sorts if sorts.ends_with("_sortByAssociatedKeys") => compared(args[1]),
        _ => None,
    }
}

/// Functions of Kubernetes' libraries, and those whose costs it has changed.
fn kubernetes(function: &str, overload: &str, args: &[Arg<'_, '_>], result: Arg<'_, '_>) -> Option<u64> {
    let size = |at: usize| args.get(at).map(|arg| arg.and_then(Value::size).unwrap_or(1));
    Some(match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, |arg| traversal(*arg)),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => scaled(size(0)?, CHARACTER),
        "ip" if overload == "cidr_ip" => 1,
        "ip" => scaled(size(0)?, CHARACTER),
        "replace" | "split" | "ip.isCanonical" => scaled(size(0)?, 2.0 * CHARACTER),
        "join" => scaled(result.and_then(Value::size).unwrap_or(1), 2.0 * CHARACTER),
        "find" | "findAll" => scaled(1 + size(0)?, CHARACTER) * scaled(size(1)?, REGEX_CHARACTER),
        "containsIP" => {
            let parse = if overload == "cidr_contains_ip_string" { scaled(size(1)?, CHARACTER) } else { 0 };
            scaled(2 * size(0)?, CHARACTER) + parse
        }
        "containsCIDR" => {
            let parse = if overload == "cidr_contains_cidr_string" { scaled(size(1)?, CHARACTER) } else { 0 };
            scaled(2 * size(0)?, CHARACTER) + scaled(size(0)?, CHARACTER) + 1 + parse
        }
        "validate" => match args[0] {
            Some(Value::Format(format)) => scaled(1 + size(1)?, CHARACTER) * scaled(format.regex_size, REGEX_CHARACTER),
            _ => return None,
        },
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => 1,
        "_==_" => match args[0] {
            Some(
                Value::Quantity(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Format(_)
                | Value::Url(_)
                | Value::Semver(_),
            ) => 1,
            _ => return None,
        },
        _ => return None,
    })
}

/// The size of a value; of an optional one that of what is inside.
fn general_size(value: Arg<'_, '_>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => general_size(Some(inner)),
        Some(value) => value.size().unwrap_or(1),
        None => 1,
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// What looking at everything inside a value costs.
fn traversal(value: Arg<'_, '_>) -> u64 {
    match value {
        Some(Value::String(text)) => (text.len() as f64 * CHARACTER) as u64,
        Some(Value::Bytes(bytes)) => (bytes.len() as f64 * CHARACTER) as u64,
        Some(Value::List(list)) => list.iter().map(|item| traversal(item.ok().as_ref())).sum(),
        Some(Value::Map(map)) => map
            .keys()
            .iter()
            .map(|key| traversal(Some(key)) + traversal(map.find(key).and_then(Result::ok).as_ref()))
            .sum(),
        _ => 1,
    }
}

/// What a literal string is estimated at.
pub(crate) fn literal_size(text: &str) -> u64 {
    characters(text)
}
