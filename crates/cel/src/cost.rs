//! What calls cost when they are evaluated, in the units of cel-go and of Kubernetes: one for a simple step, a tenth for each
//! character that is looked at. In: the arguments and the result of a call; an argument that failed is `None`. Out: its cost.

use crate::value::{Value, characters};

/// What a new list costs, what a new map costs, and what a new object costs.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;

/// What asking the authorizer costs: one expression can ask twice.
const AUTHORIZATION: u64 = 350_000;

/// A selector of this many characters has one requirement, and a requirement costs this much.
const CHARACTERS_PER_REQUIREMENT: f64 = 2.0;
const REQUIREMENT: u64 = LIST + STRUCT;

/// What looking at one character costs, and what one character of a regular expression does.
pub(crate) const CHARACTER: f64 = 0.1;
pub(crate) const REGEX_CHARACTER: f64 = 0.25;

/// An argument; one that failed is `None`.
pub(crate) type Arg<'v, 'a> = Option<&'v Value<'a>>;

/// How the cost of a call follows from its arguments. Found once, when the call is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallCost {
    One,
    /// Everything inside the first argument is looked at.
    Traversal,
    /// The first argument is read, so many times.
    Read(f64),
    /// The same, where an optional value has the size of what is inside.
    ReadGeneral,
    /// The result is written twice.
    Join,
    /// A pattern, the second argument, is looked for in the first; of Kubernetes, and of cel-go.
    Find,
    Matches,
    Contains,
    /// An address, or a network, in a network; as a text it has to be parsed.
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
    /// The shorter one is read.
    Compare,
    /// The same, but values of Kubernetes' types are compared at once.
    Equal,
    /// Both are read.
    Sum,
    InList,
    /// Each item of the one with each of the other, so many times.
    Sets(u64),
    ListResult,
    Flatten,
    Authorization,
    /// The second argument is a selector, which is parsed.
    Selector,
    /// Each item of this argument with each other.
    SelfCompare(usize),
}

impl CallCost {
    pub(crate) fn new(function: &str, overload: &str) -> Self {
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Sets(1),
            "list_sets_equivalent_list" => return Self::Sets(2),
            "list_slice" | "lists_range" | "list_reverse" => return Self::ListResult,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::SelfCompare(0),
            sorts if sorts.ends_with("_sort") && sorts.starts_with("list_") => return Self::SelfCompare(0),
            sorts if sorts.ends_with("_sortByAssociatedKeys") => return Self::SelfCompare(1),
            _ => {}
        }
        match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Self::Traversal,
            "ip" if overload == "cidr_ip" => return Self::One,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "ip"
            | "jsonpatch.escapeKey" => return Self::Read(1.0),
            "replace" | "split" | "ip.isCanonical" => return Self::Read(2.0),
            "join" => return Self::Join,
            "find" | "findAll" => return Self::Find,
            "containsIP" => return Self::ContainsIp { text: overload == "cidr_contains_ip_string" },
            "containsCIDR" => return Self::ContainsCidr { text: overload == "cidr_contains_cidr_string" },
            "validate" => return Self::Validate,
            "_==_" => return Self::Equal,
            "check" => return Self::Authorization,
            "fieldSelector" | "labelSelector" => return Self::Selector,
            _ => {}
        }
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
            | "string_format" => Self::ReadGeneral,
            "in_list" => Self::InList,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "not_equals" => Self::Compare,
            "add_string" | "add_bytes" => Self::Sum,
            "matches_string" => Self::Matches,
            "contains_string" => Self::Contains,
            _ => Self::One,
        }
    }

    pub(crate) fn of(self, args: &[Arg<'_, '_>], result: Arg<'_, '_>) -> u64 {
        let size = |at: usize| general_size(args[at]);
        let plain = |at: usize| args[at].and_then(Value::size).unwrap_or(1);
        let allocating = |factor: f64, size: u64| (size as f64 * factor) as u64 + 1 + LIST;
        match self {
            Self::One => 1,
            Self::Traversal => traversal(args[0]),
            Self::Read(times) => scaled(plain(0), times * CHARACTER),
            Self::ReadGeneral => scaled(size(0), CHARACTER),
            Self::Join => scaled(result.and_then(Value::size).unwrap_or(1), 2.0 * CHARACTER),
            Self::Find => scaled(1 + plain(0), CHARACTER) * scaled(plain(1), REGEX_CHARACTER),
            Self::Matches => scaled(1 + size(0), CHARACTER) * scaled(size(1), REGEX_CHARACTER),
            Self::Contains => scaled(size(0), CHARACTER) * scaled(size(1), CHARACTER),
            Self::ContainsIp { text } => {
                scaled(2 * plain(0), CHARACTER) + if text { scaled(plain(1), CHARACTER) } else { 0 }
            }
            Self::ContainsCidr { text } => {
                let parse = if text { scaled(plain(1), CHARACTER) } else { 0 };
                scaled(2 * plain(0), CHARACTER) + scaled(plain(0), CHARACTER) + 1 + parse
            }
            Self::Validate => match args[0] {
                Some(Value::Format(format)) => {
                    scaled(1 + plain(1), CHARACTER) * scaled(format.regex_size, REGEX_CHARACTER)
                }
                _ => 1,
            },
            Self::Equal => match args[0] {
                Some(
                    Value::Quantity(_)
                    | Value::Ip(_)
                    | Value::Cidr(_)
                    | Value::Format(_)
                    | Value::Url(_)
                    | Value::Semver(_)
                    | Value::Authority(_),
                ) => 1,
                _ => scaled(size(0).min(size(1)), CHARACTER),
            },
            Self::Compare => scaled(size(0).min(size(1)), CHARACTER),
            Self::Sum => scaled(size(0) + size(1), CHARACTER),
            Self::InList => size(1),
            Self::Sets(times) => 1 + times * size(0) * size(1),
            Self::Authorization => AUTHORIZATION,
            Self::Selector => {
                let length = plain(1);
                LIST + scaled(length, CHARACTER) + scaled(length, 1.0 / CHARACTERS_PER_REQUIREMENT) * REQUIREMENT
            }
            Self::ListResult => allocating(1.0, general_size(result)),
            Self::Flatten => match args.get(1) {
                Some(Some(Value::Int(depth))) => allocating(*depth as f64, size(0)),
                _ => allocating(1.0, size(0)),
            },
            Self::SelfCompare(at) => {
                let text = matches!(args[at], Some(Value::List(list))
                    if matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_)))));
                let factor = if text { 2.0 + CHARACTER } else { 2.0 };
                allocating(factor, size(at).saturating_mul(size(at)))
            }
        }
    }
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
