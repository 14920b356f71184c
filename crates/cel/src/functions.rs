//! The functions that expressions can call. In: `data/functions.txt`, a line for each overload: the function, the name of
//! the overload, and its signature, where a target stands before a dot. Out: the overloads of a function by its name.
//! These are the functions that Kubernetes 1.36 offers to the rules of CRDs and to admission policies; `jsonpatch.escapeKey` is
//! there only where patches are made.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::Type;

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    /// Whether the first argument stands before the name.
    pub member: bool,
    pub args: Vec<Type>,
    pub result: Type,
    /// The parameters in `args` and `result`.
    pub params: Vec<Arc<str>>,
}

/// The overloads of a function, and its name as the table has it.
pub(crate) fn function(name: &str) -> Option<(&'static str, &'static [Overload])> {
    let (name, overloads) = FUNCTIONS.get_key_value(name)?;
    Some((name, overloads))
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in include_str!("../data/functions.txt").lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(id), Some(signature)) = (words.next(), words.next(), words.next()) else {
            unreachable!("a line has three parts: {line}")
        };
        functions.entry(name).or_default().push(overload(id, signature));
    }
    functions
});

fn overload(id: &'static str, signature: &str) -> Overload {
    let (call, result) = signature.split_once(" -> ").expect("a signature has a result");
    let (target, args) = call.trim_end_matches(')').split_once('(').expect("a signature has arguments");
    let target = target.strip_suffix('.');
    let mut params = Vec::new();
    let mut types: Vec<Type> = target.into_iter().map(|target| read(target, &mut params)).collect();
    types.extend(args.split(", ").filter(|arg| !arg.is_empty()).map(|arg| read(arg, &mut params)));
    let result = read(result, &mut params);
    Overload { id, member: target.is_some(), args: types, result, params }
}

fn read(text: &str, params: &mut Vec<Arc<str>>) -> Type {
    if let Some((outer, inner)) = text.split_once('<') {
        let inner = inner.strip_suffix('>').expect("brackets are balanced");
        return match outer {
            "list" => Type::list(read(inner, params)),
            "opt" => Type::optional(read(inner, params)),
            "type" => Type::Kind(Some(Arc::new(read(inner, params)))),
            _ => {
                let (key, value) = inner.split_once(',').expect("a map has a key and a value");
                Type::map(read(key, params), read(value, params))
            }
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "dyn" => Type::Dyn,
        "ip" => Type::Opaque("net.IP".into(), [].into()),
        "cidr" => Type::Opaque("net.CIDR".into(), [].into()),
        "url" => Type::Object("kubernetes.URL".into()),
        "quantity" => Type::Object("kubernetes.Quantity".into()),
        "semver" => Type::Object("kubernetes.Semver".into()),
        "format" => Type::Object("kubernetes.NamedFormat".into()),
        "authorizer" => Type::Object("kubernetes.authorization.Authorizer".into()),
        "pathcheck" => Type::Object("kubernetes.authorization.PathCheck".into()),
        "groupcheck" => Type::Object("kubernetes.authorization.GroupCheck".into()),
        "resourcecheck" => Type::Object("kubernetes.authorization.ResourceCheck".into()),
        "decision" => Type::Object("kubernetes.authorization.Decision".into()),
        param => {
            let name: Arc<str> = param.into();
            if !params.contains(&name) {
                params.push(name.clone());
            }
            Type::Param(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let (_, size) = function("size").expect("a standard function");
        assert_eq!(size.len(), 8);
        let (_, query) = function("getQuery").expect("a function of Kubernetes");
        assert_eq!(query[0].result.to_string(), "map(string, list(string))");
        assert!(query[0].member && query[0].params.is_empty());
        let (_, map) = function("_[_]").expect("an operator");
        assert_eq!(map[1].params.len(), 2);
        assert!(function("nothing").is_none());
    }
}
