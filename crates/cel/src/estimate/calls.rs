//! What calls can cost at most, and how large their results can be.

use crate::ast::{Expr, Kind, Literal};
use crate::cost::{CHARACTER, LIST, REGEX_CHARACTER};
use crate::types::Type;

use super::{Estimator, Path, Range, scaled};

/// The longest format, and the length of a regular expression that a format of names stands for.
const LONGEST_FORMAT: u64 = 64;
const NAME_REGEX: f64 = 128.0;

/// The cost of a call without its arguments, and the size of what it gives.
type Estimate = (Range, Option<Range>);

/// An argument of a call.
struct Arg<'e> {
    expr: &'e Expr,
    path: Path,
    ty: Type,
    size: Option<Range>,
}

impl Estimator<'_> {
    pub(super) fn call(&mut self, expr: &Expr) -> Range {
        let Kind::Call { target, function, args } = &expr.kind else { return Range::ZERO };
        if function == "dyn" {
            let cost = self.cost(&args[0]).plus(Range::exactly(1));
            if let Some(size) = self.size(&args[0]) {
                self.sizes.insert(expr.id, size);
            }
            if let Some(entries) = self.entries_of(&args[0]) {
                self.entries.insert(expr.id, entries);
            }
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut described = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            described.push(self.arg(arg));
        }
        let overloads = self.checked.overloads(expr.id).to_vec();
        if overloads.is_empty() {
            return Range::ZERO;
        }
        let mut total = Range::ZERO;
        let target = target.as_ref().map(|target| {
            total = self.cost(target);
            self.arg(target)
        });
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let (one, result) = self.overload(expr, function, overload, target.as_ref(), &described, &costs);
            cost = cost.union(one);
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
            if let "index_list" | "index_map" = overload {
                size = self.entries_of(&args[0]).map(|entries| entries.value);
                let mut path = self.path(&args[0]);
                path.push(if overload == "index_list" { "@items" } else { "@values" }.into());
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        total.plus(cost)
    }

    fn arg<'e>(&mut self, expr: &'e Expr) -> Arg<'e> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| matches!(&**first, "@result" | "__result__")) {
            path.clear();
        }
        Arg { expr, path, ty: self.checked.type_of(expr).clone(), size: self.size(expr) }
    }

    /// The size of an argument, also if only its declaration bounds it.
    fn arg_size(&self, arg: &Arg<'_>) -> Range {
        arg.size.or_else(|| self.declared_size(&arg.path)).unwrap_or(Range::UNKNOWN)
    }

    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Arg<'_>>,
        args: &[Arg<'_>],
        costs: &[Range],
    ) -> Estimate {
        let sum = costs.iter().fold(Range::ZERO, |sum, cost| sum.plus(*cost));
        let with_args = |(cost, size): Estimate| (cost.plus(sum), size);
        if let Some(estimate) = self.list_call(overload, target, args) {
            return with_args(estimate);
        }
        if let Some(estimate) = self.kubernetes(function, overload, target, args) {
            return with_args(estimate);
        }
        let size = |arg: &Arg<'_>| arg.size.unwrap_or(Range::UNKNOWN);
        let read = |arg: &Arg<'_>| size(arg).scaled(CHARACTER);
        let estimate = match (overload, target, args) {
            ("string_format", Some(target), _) => (read(target), None),
            ("string_to_bytes", _, [arg]) => {
                let size = size(arg);
                (read(arg), Some(Range { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            ("bytes_to_string", _, [arg]) => {
                let size = size(arg);
                (read(arg), Some(Range { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", _, [arg]) => {
                let size = size(arg);
                let most = size.max.wrapping_mul(2).wrapping_add(2);
                (read(arg), Some(Range { min: size.min.wrapping_add(2), max: most }))
            }
            ("starts_with_string" | "ends_with_string", _, [arg]) => (read(arg), None),
            ("in_list", _, [_, list]) => (size(list), None),
            ("matches_string", Some(target), [pattern]) => {
                let text = size(target).plus(Range::exactly(1)).scaled(CHARACTER);
                (text.times(size(pattern).scaled(REGEX_CHARACTER)), None)
            }
            ("contains_string", Some(target), [part]) => (read(target).times(read(part)), None),
            ("logical_or" | "logical_and", ..) => {
                return (Range { min: costs[0].min, max: costs[0].plus(costs[1]).max }, None);
            }
            ("conditional", _, [_, yes, no]) => {
                let result = size(yes).union(size(no));
                if let (Some(yes), Some(no)) = (self.entries_of(yes.expr), self.entries_of(no.expr)) {
                    self.entries.insert(expr.id, yes.union(no));
                }
                return (costs[0].plus(costs[1].union(costs[2])), Some(result));
            }
            ("add_string" | "add_bytes" | "add_list", _, [one, other]) => {
                let result = size(one).plus(size(other));
                if let (Some(one), Some(other)) = (self.entries_of(one.expr), self.entries_of(other.expr)) {
                    self.entries.insert(expr.id, one.union(other));
                }
                let cost = if overload == "add_list" { Range::exactly(1) } else { result.scaled(CHARACTER) };
                (cost, Some(result))
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [one, other],
            ) => {
                let most = size(one).max.min(size(other).max);
                (Range { min: u64::from(most > 0), max: most }.scaled(CHARACTER), None)
            }
            _ => (Range::exactly(1), None),
        };
        with_args(estimate)
    }

    /// Functions of lists and sets that have estimates of their own.
    fn list_call(&self, overload: &str, target: Option<&Arg<'_>>, args: &[Arg<'_>]) -> Option<Estimate> {
        let allocating =
            |factor: f64, size: Range| Some((size.scaled(factor).plus(Range::exactly(1 + LIST)), Some(size)));
        let squared = |arg: &Arg<'_>| {
            let size = self.arg_size(arg);
            size.times(size)
        };
        let number = |arg: &Arg<'_>, otherwise: u64| match &arg.expr.kind {
            Kind::Literal(Literal::Int(value)) => u64::try_from(*value).unwrap_or_default(),
            _ => otherwise,
        };
        let compared = |text: bool| if text { 2.0 + CHARACTER } else { 2.0 };
        match (overload, target, args) {
            ("list_sets_contains_list" | "list_sets_intersects_list", _, [one, other]) => {
                let product = self.arg_size(one).times(self.arg_size(other));
                Some((product.plus(Range::exactly(1)), None))
            }
            ("list_sets_equivalent_list", _, [one, other]) => {
                let product = self.arg_size(one).times(self.arg_size(other));
                Some((product.scaled(2.0).plus(Range::exactly(1)), None))
            }
            ("list_slice", Some(target), [from, to]) => {
                let size = number(to, self.arg_size(target).max).wrapping_sub(number(from, 0));
                allocating(1.0, Range::exactly(size))
            }
            ("lists_range", None, [count]) => allocating(1.0, Range::exactly(number(count, u64::MAX))),
            ("list_reverse", Some(target), []) => allocating(1.0, self.arg_size(target)),
            ("list_flatten", Some(target), []) => allocating(1.0, self.arg_size(target)),
            ("list_flatten_int", Some(target), [depth]) => {
                allocating(number(depth, u64::MAX) as f64, self.arg_size(target))
            }
            ("list_distinct", Some(target), []) => allocating(2.0, squared(target)),
            (sort, Some(target), []) if sort.starts_with("list_") && sort.ends_with("_sort") => {
                allocating(compared(is_textual(sort)), squared(target))
            }
            (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => {
                allocating(compared(is_textual(sort)), squared(keys))
            }
            _ => None,
        }
    }

    /// Functions of Kubernetes' libraries, and those whose estimates it has changed.
    fn kubernetes(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Arg<'_>>,
        args: &[Arg<'_>],
    ) -> Option<Estimate> {
        let one = Some((Range::exactly(1), None));
        let read = |size: Range| size.scaled(CHARACTER);
        match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = target?;
                let size = self.arg_size(target);
                let Some(item) = self.item(target) else { return Some((read(size), None)) };
                let mut each = Range::exactly(1);
                if matches!(item.ty, Type::String | Type::Bytes) {
                    each = each.plus(read(self.arg_size(&item)));
                }
                Some((size.times(each), None))
            }
            "url" => {
                let size = self.arg_size(args.first()?);
                Some((read(size), Some(size)))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.arg_size(target?);
                Some((read(size), Some(size)))
            }
            "replace" if args.len() >= 2 => {
                let size = self.arg_size(target?);
                let result = replaced(size, self.arg_size(&args[0]), self.arg_size(&args[1]));
                Some((size.scaled(2.0 * CHARACTER), Some(result)))
            }
            "split" => {
                let size = self.arg_size(target?);
                let most = match args.get(1).map(|arg| &arg.expr.kind) {
                    Some(Kind::Literal(Literal::Int(count))) => *count as u64,
                    _ => size.max,
                };
                Some((size.scaled(2.0 * CHARACTER), Some(Range { min: 0, max: most })))
            }
            "join" => {
                let target = target?;
                let count = self.arg_size(target);
                let mut size = self.item(target).map_or(Range::ZERO, |item| count.times(self.arg_size(&item)));
                if let Some(separator) = args.first() {
                    let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.plus(self.arg_size(separator).times(gaps));
                }
                Some((read(size), Some(size)))
            }
            "find" | "findAll" => {
                let size = self.arg_size(target?);
                let pattern = self.arg_size(args.first()?).scaled(REGEX_CHARACTER);
                let cost = read(size.plus(Range::exactly(1))).times(pattern);
                Some((cost, Some(Range { min: 0, max: size.max })))
            }
            "ip" if overload == "cidr_ip" => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Some((read(self.arg_size(args.first()?)), None))
            }
            "ip.isCanonical" => Some((self.arg_size(args.first()?).scaled(2.0 * CHARACTER), None)),
            "containsIP" | "containsCIDR" => {
                let address = Range { min: 4, max: 16 };
                let mut cost = read(address.plus(address));
                if function == "containsCIDR" {
                    cost = cost.plus(read(address)).plus(Range::exactly(1));
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(read(self.arg_size(args.first()?)));
                }
                Some((cost, None))
            }
            "validate" => {
                let size = self.arg_size(args.first()?);
                Some((read(size).scaled(NAME_REGEX * REGEX_CHARACTER), None))
            }
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
            | "getQuery" => one,
            "_==_" if args[0].ty == args[1].ty => match &args[0].ty {
                Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => one,
                Type::Object(name) => match &**name {
                    "kubernetes.Quantity" | "kubernetes.Semver" => one,
                    "kubernetes.NamedFormat" => Some((Range { min: 1, max: LONGEST_FORMAT }.scaled(CHARACTER), None)),
                    "kubernetes.URL" => {
                        let most = args[1].size.map_or(1, |size| size.max);
                        Some((Range { min: 1, max: most }.scaled(CHARACTER), None))
                    }
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// The items of a list, as an argument; for a string there are none.
    fn item<'e>(&self, list: &Arg<'e>) -> Option<Arg<'e>> {
        let ty = match &list.ty {
            Type::List(item) => (**item).clone(),
            Type::Map(entry) => entry.0.clone(),
            Type::Opaque(_, params) => params.first()?.clone(),
            _ => return None,
        };
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        Some(Arg { expr: list.expr, path, ty, size: None })
    }
}

/// Whether a function that sorts compares texts.
fn is_textual(overload: &str) -> bool {
    overload.starts_with("list_string_") || overload.starts_with("list_bytes_")
}

/// The size of a string in which something was replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = scaled(size.max, 1.0 / old.min as f64);
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = scaled(size.min, 1.0 / old.max as f64);
    }
    count.times(new).plus(kept)
}
