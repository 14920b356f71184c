//! What the functions do. In: the values of arguments. Out: a value, or why there is none. A function is found by its name;
//! which of its overloads is meant, the values say.

mod authority;
mod format;
mod lists;
mod named_format;
mod net;
mod operators;
mod optional;
mod quantity;
mod regex;
mod semver;
mod strings;
mod times;
mod url;

pub(crate) use self::regex::{Regex, with_pattern};
pub use authority::{About, Permission, Permissions, Question, ResourceCheck, Subject};
pub(crate) use authority::{Authority, authority, question};
pub(crate) use format::{Clause, Piece, clauses};
pub(crate) use named_format::NamedFormat;
pub(crate) use net::Cidr;
pub(crate) use quantity::Quantity;
pub(crate) use semver::Semver;
pub(crate) use url::Url;
pub use url::UrlParts;

use crate::value::{
    Answer, EvalError, Value, to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint,
};

/// The implementation of a function. Its arguments begin with the target, if the call has one.
pub(crate) type Native = for<'a> fn(&[Value<'a>]) -> Answer<'a>;

/// The implementation of a function; the operators that evaluate their arguments themselves have none.
pub(crate) fn native(function: &str) -> Option<Native> {
    if let Some(name) = function.strip_prefix("format.").filter(|name| *name != "named") {
        return named_format::constant(name);
    }
    let native: Native = match function {
        "_+_" => operators::add,
        "_-_" => operators::subtract,
        "_*_" => operators::multiply,
        "_/_" => operators::divide,
        "_%_" => operators::modulo,
        "-_" => operators::negate,
        "!_" => operators::not,
        "_<_" => operators::less,
        "_<=_" => operators::less_equals,
        "_>_" => operators::greater,
        "_>=_" => operators::greater_equals,
        "@in" => operators::is_in,
        "size" => operators::size,
        "type" => operators::type_of,
        "dyn" => |args| Ok(args[0].clone()),
        "cel.@mapInsert" => operators::insert,
        "bool" => |args| to_bool(&args[0]),
        "bytes" => |args| to_bytes(&args[0]),
        "double" => |args| to_double(&args[0]),
        "int" => |args| to_int(&args[0]),
        "uint" => |args| to_uint(&args[0]),
        "string" => |args| to_string(&args[0]),
        "duration" => |args| to_duration(&args[0]),
        "timestamp" => |args| to_timestamp(&args[0]),
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate" | "getDayOfWeek" | "getHours"
        | "getMinutes" | "getSeconds" | "getMilliseconds" => return times::native(function),
        "contains" => strings::contains,
        "startsWith" => strings::starts_with,
        "endsWith" => strings::ends_with,
        "charAt" => strings::char_at,
        "indexOf" => lists::index_of,
        "lastIndexOf" => lists::last_index_of,
        "lowerAscii" => strings::lower_ascii,
        "upperAscii" => strings::upper_ascii,
        "replace" => strings::replace,
        "split" => strings::split,
        "substring" => strings::substring,
        "trim" => strings::trim,
        "join" => strings::join,
        "strings.quote" => strings::quote,
        "format" => format::format,
        "matches" => regex::matches,
        "find" => regex::find,
        "findAll" => regex::find_all,
        "isSorted" => lists::is_sorted,
        "sum" => lists::sum,
        "min" => lists::min,
        "max" => lists::max,
        "slice" => lists::slice,
        "flatten" => lists::flatten,
        "sort" => lists::sort,
        "@sortByAssociatedKeys" => lists::sort_by_keys,
        "lists.range" => lists::range,
        "reverse" => lists::reverse,
        "distinct" => lists::distinct,
        "sets.contains" => lists::set_contains,
        "sets.equivalent" => lists::set_equivalent,
        "sets.intersects" => lists::set_intersects,
        "optional.of" => optional::of,
        "optional.ofNonZeroValue" => optional::of_non_zero,
        "optional.none" => |_| Ok(Value::Optional(None)),
        "optional.unwrap" | "unwrapOpt" => optional::unwrap,
        "value" => optional::value,
        "hasValue" => optional::has_value,
        "first" => optional::first,
        "last" => optional::last,
        "url" => url::url,
        "isURL" => url::is_url,
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "getQuery" => {
            return url::native(function);
        }
        "ip" => net::ip,
        "isIP" => net::is_ip,
        "ip.isCanonical" => net::is_canonical,
        "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => return net::native(function),
        "cidr" => net::cidr,
        "isCIDR" => net::is_cidr,
        "containsIP" => net::contains_ip,
        "containsCIDR" => net::contains_cidr,
        "prefixLength" => net::prefix_length,
        "masked" => net::masked,
        "quantity" => quantity::quantity,
        "isQuantity" => quantity::is_quantity,
        "sign" => quantity::sign,
        "isInteger" => quantity::is_integer,
        "asInteger" => quantity::as_integer,
        "asApproximateFloat" => quantity::as_float,
        "add" => quantity::add,
        "sub" => quantity::subtract,
        "isGreaterThan" => |args| quantity::order("isGreaterThan", args, |order| Value::Bool(order.is_gt())),
        "isLessThan" => |args| quantity::order("isLessThan", args, |order| Value::Bool(order.is_lt())),
        "compareTo" => |args| quantity::order("compareTo", args, |order| Value::Int(order as i64)),
        "semver" => semver::semver,
        "isSemver" => semver::is_semver,
        "major" | "minor" | "patch" => return semver::native(function),
        "validate" => named_format::validate,
        "format.named" => named_format::named,
        "jsonpatch.escapeKey" => strings::escape_key,
        other => return authority::native(other),
    };
    Some(native)
}

/// The message for arguments that no overload takes.
fn no_overload(function: &str, args: &[Value<'_>]) -> EvalError {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    format!("no such overload: {function}({})", types.join(", ")).into()
}
