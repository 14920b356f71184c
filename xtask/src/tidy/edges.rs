//! Checks which crate depends on which. In: the manifests below `crates/`. Out: dependencies that are not allowed.
//! Dev-dependencies are not restricted.

use super::tree::Tree;

/// Every crate with the crates of this repository it may depend on. ARCHITECTURE.md shows the same table, and a
/// check of its own compares the two.
pub(super) const EDGES: [(&str, &[&str]); 14] = [
    ("core", &[]),
    ("schema", &["core"]),
    ("cel", &["core", "schema"]),
    ("store", &[]),
    ("serve", &["core"]),
    ("apiserver", &["core", "schema", "cel", "store"]),
    ("leadership", &[]),
    ("raft", &["serve", "leadership"]),
    ("runtime", &["core", "schema", "leadership"]),
    ("controllers", &["core", "runtime"]),
    ("macros", &[]),
    ("operator", &["core", "serve", "raft", "runtime", "macros"]),
    ("testkit", &["apiserver", "operator"]),
    ("cli", &["core", "schema", "store", "serve", "apiserver", "controllers", "operator"]),
];

/// The name of a package is this and the name of its folder.
const PREFIX: &str = "konverge-";

/// The crate that users depend on has a name without a suffix.
const FACADE: (&str, &str) = ("operator", "konverge");

/// Edges that are not in [`EDGES`], and crates without a row there.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for name in tree.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = tree.text(&path).unwrap_or_default();
        let Some((_, allowed)) = EDGES.iter().find(|(row, _)| *row == name) else {
            problems.push(format!("{path}: {name} has no row in EDGES of xtask/src/tidy/edges.rs"));
            continue;
        };
        let package = if name == FACADE.0 { FACADE.1.to_owned() } else { format!("{PREFIX}{name}") };
        if !manifest.lines().any(|line| line.trim() == format!("name = \"{package}\"")) {
            problems.push(format!("{path}: the package of this folder is called {package}"));
        }
        for dependency in dependencies(manifest) {
            let other = if dependency == FACADE.1 { Some(FACADE.0) } else { dependency.strip_prefix(PREFIX) };
            if let Some(other) = other.filter(|other| !allowed.contains(other)) {
                problems.push(format!("{path}: {name} must not depend on {other}"));
            }
        }
    }
    problems
}

/// The packages that a manifest depends on, without dev-dependencies.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // `[dependencies.NAME]` names one in the heading.
            let (table, one) = match section.rsplit_once("dependencies.") {
                Some((before, name)) if before.is_empty() || before.ends_with(['.', '-']) => (before, Some(name)),
                _ => (section.strip_suffix("dependencies").unwrap_or("package"), None),
            };
            inside =
                (table.is_empty() || table.ends_with('.') || table.ends_with("build-")) && !table.ends_with("dev-");
            found.extend(one.filter(|_| inside).map(unquote));
        } else if inside && !line.starts_with('#') {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            // A dependency under another name says which package it is.
            let package = line.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
            found.extend(Some(unquote(package.unwrap_or(key))).filter(|name| !name.is_empty()));
        }
    }
    found
}

fn unquote(name: &str) -> &str {
    name.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_crate(name: &str, manifest: &str, expect: &[&str]) {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = format!("[package]\nname = \"konverge-{name}\"\n{manifest}");
        let got = check(&Tree::of(&[(&path, &manifest)]));
        let expect: Vec<_> = expect.iter().map(|problem| format!("{path}: {problem}")).collect();
        assert_eq!(got, expect, "{manifest}");
    }

    #[test]
    fn edges_of_the_table_are_allowed_and_no_others() {
        check_crate("core", "[dependencies]\nserde.workspace = true\n", &[]);
        check_crate("schema", "[dependencies]\nkonverge-core.workspace = true\n", &[]);
        check_crate("core", "[dependencies]\nkonverge-schema.workspace = true\n", &["core must not depend on schema"]);
        check_crate(
            "store",
            "[dependencies]\nkonverge-core = { path = \"../core\" }\n",
            &["store must not depend on core"],
        );
        check_crate("serve", "[build-dependencies]\nkonverge-store = \"1\"\n", &["serve must not depend on store"]);
        check_crate(
            "schema",
            "[target.'cfg(unix)'.dependencies]\nkonverge-apiserver.workspace = true\n",
            &["schema must not depend on apiserver"],
        );
        check_crate("schema", "[dependencies.konverge-store]\npath = \"x\"\n", &["schema must not depend on store"]);
        check_crate(
            "core",
            "[dependencies]\nother = { package = \"konverge-cli\", path = \"x\" }\n",
            &["core must not depend on cli"],
        );
        check_crate("core", "[dependencies]\n# konverge-cli = \"1\"\n", &[]);
    }

    #[test]
    fn tests_may_depend_on_anything() {
        check_crate("core", "[dev-dependencies]\nkonverge-cli.workspace = true\n", &[]);
        check_crate("core", "[dev-dependencies.konverge-cli]\npath = \"x\"\n", &[]);
        check_crate("core", "[features]\nkonverge-cli = []\n[lints]\nworkspace = true\n", &[]);
    }

    #[test]
    fn every_crate_has_a_row_and_the_name_of_its_folder() {
        let tree = Tree::of(&[
            ("crates/new/Cargo.toml", "[package]\nname = \"konverge-new\"\n"),
            ("crates/core/Cargo.toml", "[package]\nname = \"core\"\n"),
            ("xtask/Cargo.toml", "[dependencies]\nkonverge-cli.workspace = true\n"),
        ]);
        assert_eq!(
            check(&tree),
            [
                "crates/core/Cargo.toml: the package of this folder is called konverge-core",
                "crates/new/Cargo.toml: new has no row in EDGES of xtask/src/tidy/edges.rs",
            ]
        );
    }
}
