//! Two lists of errors. In: ours and those of Kubernetes. Out: whether they are the same. An error that is there twice counts
//! once, as in the message of a `Status`; structs that errors show are left out, because Kubernetes shows its internal ones.

use std::collections::BTreeSet;

pub(super) enum Outcome {
    Same,
    /// The same errors in another order: Go walks maps in any order.
    Reordered,
    /// What only we say, and what only they say.
    Different(Vec<String>, Vec<String>),
}

pub(super) fn compare(ours: &[String], theirs: &[String]) -> Outcome {
    let undecodable = |errors: &[String]| errors.first().is_some_and(|error| error.starts_with("undecodable"));
    if undecodable(ours) && undecodable(theirs) {
        return Outcome::Same;
    }
    let (ours, theirs) = (distinct(ours), distinct(theirs));
    if ours == theirs {
        return Outcome::Same;
    }
    let (a, b): (BTreeSet<_>, BTreeSet<_>) = (ours.iter().collect(), theirs.iter().collect());
    if a == b {
        return Outcome::Reordered;
    }
    let only = |these: &[String], others: &BTreeSet<&String>| {
        these.iter().filter(|error| !others.contains(error)).cloned().collect()
    };
    Outcome::Different(only(&ours, &b), only(&theirs, &a))
}

fn distinct(errors: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    errors.iter().map(|error| normal(error)).filter(|error| seen.insert(error.clone())).collect()
}

/// An error without the struct that it shows, and without the difference of structs on further lines.
fn normal(error: &str) -> String {
    let error = error.split('\n').next().unwrap_or_default();
    let Some((head, rest)) = error.split_once(" value: ") else { return error.to_owned() };
    let starts = rest.starts_with(['{', '[']) || rest.starts_with("null");
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
    if starts && matches!(values.next(), Some(Ok(_))) {
        return format!("{head} value: …{}", &rest[values.byte_offset()..]);
    }
    error.to_owned()
}

/// What an error says about which field: without the structs around the field, indexes and values.
pub(super) fn gist(error: &str) -> String {
    let (path, message) = error.split_once(": ").unwrap_or((error, ""));
    let field = path.rsplit('.').next().unwrap_or_default();
    let quoted = message.split('"').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part);
    let plain = |c: &char| !c.is_ascii_digit();
    field.chars().chain([' ']).chain(quoted.flat_map(str::chars)).filter(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_and_repetitions_do_not_count() {
        let list = |errors: &[&str]| errors.iter().map(|error| (*error).to_owned()).collect::<Vec<_>>();
        let same = |ours: &[&str], theirs: &[&str]| matches!(compare(&list(ours), &list(theirs)), Outcome::Same);
        assert!(same(&["a: Invalid value: {\"x\":1}: no"], &["a: Invalid value: {\"X\":1,\"Y\":null}: no"]));
        assert!(same(&["a: Forbidden: no"], &["a: Forbidden: no\n diff", "a: Forbidden: no"]));
        assert!(!same(&["a: Invalid value: 1: no"], &["a: Invalid value: 2: no"]));
        assert_eq!(gist("spec.a[0].b: Invalid value: \"x\": no 1"), gist("spec.b: Invalid value: \"y\": no 2"));
        assert!(matches!(compare(&list(&["a", "b"]), &list(&["b", "a"])), Outcome::Reordered));
    }
}
