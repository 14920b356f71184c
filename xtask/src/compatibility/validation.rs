//! In: the table of rules for built-in kinds and the table of resources. Out: the section that says which kinds are validated
//! how far.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const RULES: &str = "crates/apiserver/data/kubernetes.validation";
const RESOURCES: &str = "crates/apiserver/data/kubernetes.resources";

/// Writes the section.
pub(super) fn section(root: &Path) -> Result<String, String> {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"));
    let rules = Rules::parse(&read(RULES)?);
    let resources = read(RESOURCES)?;
    let (mut with, mut with_status, mut without) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (kind, ty) in stored_kinds(&resources) {
        match rules.0.get(ty) {
            None => without.insert(kind),
            Some(variants) => {
                if variants.contains("status") {
                    with_status.insert(kind);
                }
                with.insert(kind)
            }
        };
    }
    let list = |kinds: &BTreeSet<&str>| kinds.iter().copied().collect::<Vec<_>>().join(", ");
    Ok(format!(
        "\n## Validation of built-in kinds\n\nTypes, required fields, enumerations, metadata and names are checked for every kind. \
         Beyond that, these {} kinds are validated by the rules of Kubernetes, field by field, on create and update; `cargo xtask \
         validation` compares them with the original:\n{}.\n\n\
         The status of these has rules of its own: {}.\n\n\
         These have no further rules here: {}.\n",
        with.len(),
        list(&with),
        list(&with_status),
        list(&without),
    ))
}

/// The names of types that have rules, each with the variants of a write that have rules of their own.
struct Rules(BTreeMap<String, BTreeSet<String>>);

impl Rules {
    fn parse(text: &str) -> Self {
        let mut aliases = BTreeMap::new();
        let mut rules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with([' ', '#'])) {
            if let Some((alias, package)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                aliases.insert(alias, package);
            } else if let Some((alias, rest)) = line.split_once('.') {
                let (name, variant) = rest.split_once(' ').unwrap_or((rest, ""));
                if let Some(package) = aliases.get(alias) {
                    rules.entry(format!("{package}.{name}")).or_default().insert(variant.to_owned());
                }
            }
        }
        Self(rules)
    }
}

/// Kind and type of every resource that can be created and read again, so that there is something to validate.
fn stored_kinds(resources: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = resources.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    rows.filter_map(|line| {
        let (row, words) = line.split_once("; ").unwrap_or((line, ""));
        let mut columns = row.split_whitespace().skip(2);
        let (kind, ty) = (columns.next()?, columns.nth(1)?);
        let verbs = words.split("; ").find_map(|word| word.strip_prefix("verbs "));
        let stored = verbs.is_none_or(|verbs| verbs.split(',').any(|verb| verb == "update"));
        stored.then_some((kind, ty))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_rules_and_kinds_that_are_stored() {
        let rules = Rules::parse("# x\n@core io.core.v1\n\ncore.Pod\n  spec\ncore.Pod status\n  phase\n");
        assert_eq!(rules.0["io.core.v1.Pod"], BTreeSet::from(["".to_owned(), "status".to_owned()]));
        let table = "/v1\n  bindings binding Binding namespaced io.B; verbs create\n  pods pod Pod namespaced io.P; short po\n    log x\n";
        assert_eq!(stored_kinds(table).collect::<Vec<_>>(), [("Pod", "io.P")]);
    }
}
