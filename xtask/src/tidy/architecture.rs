//! Checks that ARCHITECTURE.md is true. In: the page and the tree. Out: crates that it does not name, dependencies that
//! differ from the checked ones, and paths that do not exist. If the page is missing, every check fails.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::EDGES;
use super::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";

/// Crates that the page does not name.
pub(super) fn crates(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.text(PAGE) else { return missing() };
    let spans = code_spans(page);
    let named = |name: &str| {
        let folder = format!("crates/{name}");
        spans.iter().any(|span| *span == name || *span == folder || span.starts_with(&format!("{folder}/")))
    };
    tree.crates()
        .iter()
        .filter(|name| !named(name))
        .map(|name| format!("{PAGE}: does not name crates/{name}"))
        .collect()
}

/// Rows of the page's table of crates (the one with the headings `crate` and `depends on`) that differ from the
/// edges that are checked, or that name a crate which is not there.
pub(super) fn edges(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.text(PAGE) else { return missing() };
    let Some(rows) = table(page) else {
        return vec![format!("{PAGE}: has no table with the headings `crate` and `depends on`")];
    };
    let crates = tree.crates();
    let mut problems = Vec::new();
    for name in rows.keys().filter(|name| !crates.contains(*name) && !tree.has(name)) {
        problems.push(format!("{PAGE}: {name} is in the table of crates but not in the tree"));
    }
    for (name, allowed) in EDGES.iter().filter(|(name, _)| crates.contains(name)) {
        let Some(shown) = rows.get(name) else {
            problems.push(format!("{PAGE}: {name} is not in the table of crates"));
            continue;
        };
        let all = *shown == "all" && allowed.len() + 1 == EDGES.len();
        if !all && names(shown) != allowed.iter().copied().collect() {
            let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            problems.push(format!("{PAGE}: says that {name} depends on {shown:?}; what is checked is {list}"));
        }
    }
    problems
}

/// Paths of this repository that the page names and that are not there.
pub(super) fn paths(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.text(PAGE) else { return missing() };
    let ours = ["crates/", "xtask/", "bench/", "docs/", "examples/", ".ci/", ".cargo/"];
    let pattern = |span: &str| span.contains(['*', '<', '{', ' ', '…']);
    let is_path = |span: &str| ours.iter().any(|folder| span.starts_with(folder)) && !pattern(span);
    let missing = code_spans(page).into_iter().filter(|span| is_path(span) && !tree.has(span));
    missing.map(|span| format!("{PAGE}: names {span}, which is not there")).collect()
}

fn missing() -> Vec<String> {
    vec![format!("{PAGE}: is missing")]
}

/// What is between single backticks, outside of fenced blocks.
fn code_spans(page: &str) -> BTreeSet<&str> {
    let mut spans = BTreeSet::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
}

/// Crate to its cell `depends on`.
fn table(page: &str) -> Option<BTreeMap<&str, &str>> {
    let mut lines = page.lines().map(row);
    let (name, depends) = lines.by_ref().find_map(|cells| {
        let at = |heading: &str| cells.iter().position(|cell| cell.eq_ignore_ascii_case(heading));
        Some((at("crate")?, at("depends on")?))
    })?;
    let rows = lines.take_while(|cells| !cells.is_empty()).filter_map(|cells| {
        // `cli` (binary `konverge`) is cli.
        let name = cells.get(name)?.split('`').nth(1)?;
        (!name.contains('*')).then_some((name, *cells.get(depends)?))
    });
    Some(rows.collect())
}

/// The cells of a line of a table; empty for other lines.
fn row(line: &str) -> Vec<&str> {
    match line.trim().strip_prefix('|') {
        Some(rest) => rest.trim_end_matches('|').split('|').map(str::trim).collect(),
        None => Vec::new(),
    }
}

/// The names in a cell; a dash is none.
fn names(cell: &str) -> BTreeSet<&str> {
    let names = cell.split(',').map(|name| name.trim().trim_matches('`'));
    names.filter(|name| !name.is_empty() && !["-", "–", "—", "nothing"].contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(page: Option<&str>) -> Tree {
        let mut files = vec![
            ("crates/core/Cargo.toml", ""),
            ("crates/schema/Cargo.toml", ""),
            ("crates/apiserver/Cargo.toml", ""),
            ("xtask/src/main.rs", ""),
        ];
        files.extend(page.map(|page| (PAGE, page)));
        Tree::of(&files)
    }

    const GOOD: &str = "# Shape\n`crates/core/Cargo.toml`, `crates/*`, `xtask`\n\n\
                        | crate | what | depends on |\n|---|---|---|\n| `core` | words | – |\n| `schema` | types | `core` |\n\
                        | `apiserver` (path `B`) | it | `core`, `schema`, `cel`, `store` |\n| `xtask` | gates | |\n| `examples/*` | | |\n\nmore\n";

    fn check(page: &str, expect: [&[&str]; 3]) {
        let tree = tree(Some(page));
        for (got, expect) in [crates(&tree), edges(&tree), paths(&tree)].iter().zip(expect) {
            let expect: Vec<_> = expect.iter().map(|problem| format!("{PAGE}: {problem}")).collect();
            assert_eq!(*got, expect, "{page}");
        }
    }

    #[test]
    fn a_true_page_passes() {
        check(GOOD, [&[], &[], &[]]);
    }

    #[test]
    fn a_missing_page_fails_every_check() {
        for check in [crates, edges, paths] {
            assert_eq!(check(&tree(None)), ["ARCHITECTURE.md: is missing"]);
        }
    }

    #[test]
    fn every_crate_is_named() {
        let page = GOOD.replace("| `schema` | types | `core` |\n", "").replace("`schema`", "schema");
        check(&page, [&["does not name crates/schema"], &["schema is not in the table of crates"], &[]]);
        let page = format!("{page}`crates/schema/src/lib.rs`");
        check(
            &page,
            [&[], &["schema is not in the table of crates"], &["names crates/schema/src/lib.rs, which is not there"]],
        );
    }

    #[test]
    fn edges_are_those_that_are_checked() {
        let page = GOOD.replace("| types | `core` |", "| types | `core`, store |");
        check(&page, [&[], &["says that schema depends on \"`core`, store\"; what is checked is core"], &[]]);
        let page = GOOD.replace("| words | – |", "| words | all |");
        check(&page, [&[], &["says that core depends on \"all\"; what is checked is nothing"], &[]]);
        check("`core` `schema` `apiserver`", [&[], &["has no table with the headings `crate` and `depends on`"], &[]]);
    }

    #[test]
    fn what_is_named_is_there() {
        let page = GOOD.replace("| `xtask` |", "| `runtime` |");
        check(&page, [&[], &["runtime is in the table of crates but not in the tree"], &[]]);
        let page = format!("{GOOD}`crates/gone/src/a.rs` `docs/x.md` `cargo xtask`\n```\n`crates/fenced`\n```\n");
        let gone = ["names crates/gone/src/a.rs, which is not there", "names docs/x.md, which is not there"];
        check(&page, [&[], &[], &gone]);
    }
}
