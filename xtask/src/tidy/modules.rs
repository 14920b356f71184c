//! Checks that every Rust file is part of a crate and begins with a header. In: the tree. Out: files that no `mod` names, and
//! files without a `//!` header.

use std::collections::BTreeSet;

use super::tree::Tree;

/// Rust files that no crate root reaches through `mod`: the compiler never sees them.
pub(super) fn orphans(tree: &Tree) -> Vec<String> {
    let files: BTreeSet<&str> = tree.rust().map(|(path, _)| path).collect();
    let mut pending: Vec<&str> = files.iter().copied().filter(|path| is_root(tree, path)).collect();
    let mut reached: BTreeSet<&str> = pending.iter().copied().collect();
    while let Some(path) = pending.pop() {
        for candidate in children(path, is_root(tree, path), tree.text(path).unwrap_or_default()) {
            if let Some(child) = files.get(candidate.as_str()).copied().filter(|child| reached.insert(child)) {
                pending.push(child);
            }
        }
    }
    files.difference(&reached).map(|path| format!("{path}: no `mod` names this file")).collect()
}

/// Rust files that do not begin with a header.
pub(super) fn headers(tree: &Tree) -> Vec<String> {
    let bare = tree.rust().filter(|(_, text)| !text.starts_with("//!"));
    bare.map(|(path, _)| format!("{path}: does not open with a //! header that says what it is")).collect()
}

/// Whether this file is the root of a crate, by its path or by the manifest.
fn is_root(tree: &Tree, path: &str) -> bool {
    // The innermost package around the file.
    let mut folders = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
    let Some(package) = folders.find(|folder| tree.has(&format!("{folder}/Cargo.toml"))) else { return false };
    let inside = &path[package.len() + 1..];
    let segments: Vec<&str> = inside.split('/').collect();
    let by_path = matches!(
        segments[..],
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests" | "examples" | "benches", _]
            | ["tests" | "examples" | "benches", _, "main.rs"]
    );
    let manifest = tree.text(&format!("{package}/Cargo.toml")).unwrap_or_default();
    by_path || manifest.lines().any(|line| line.trim() == format!("path = \"{inside}\""))
}

/// The paths at which the modules that a file declares may be. A module in braces is a folder for those inside of it.
fn children(path: &str, root: bool, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let mut own = if root || file == "mod.rs" {
        folder.to_owned()
    } else {
        format!("{folder}/{}", file.strip_suffix(".rs").unwrap_or(file))
    };
    let mut found = Vec::new();
    let mut elsewhere = None;
    // The lines that close the modules in braces which are open. rustfmt indents them as it does the lines that open them.
    let mut open: Vec<String> = Vec::new();
    for whole in text.lines() {
        let line = whole.trim();
        if let Some(given) = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()) {
            elsewhere = Some(format!("{folder}/{given}"));
        } else if let Some(name) = declared(line, ";") {
            match elsewhere.take() {
                Some(path) => found.push(path),
                None => found.extend([format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")]),
            }
        } else if let Some(name) = declared(line, "{") {
            let indent = &whole[..whole.len() - whole.trim_start().len()];
            open.push(format!("{indent}}}"));
            own += &format!("/{name}");
        } else if open.last().is_some_and(|end| end == whole) {
            open.pop();
            own.truncate(own.rfind('/').unwrap_or_default());
        }
    }
    found
}

/// The name in `mod name;` or `mod name {`, with any visibility.
fn declared<'a>(line: &'a str, end: &str) -> Option<&'a str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    line.trim_start().strip_prefix("mod ")?.strip_suffix(end).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let mut files = files.to_vec();
        files.push(("crates/a/Cargo.toml", "[package]\n[[bin]]\npath = \"odd/start.rs\"\n"));
        let expect: Vec<_> = expect.iter().map(|path| format!("{path}: no `mod` names this file")).collect();
        assert_eq!(orphans(&Tree::of(&files)), expect);
    }

    #[test]
    fn modules_are_reached_from_roots() {
        check(
            &[
                ("crates/a/src/lib.rs", "mod b;\npub(crate) mod c;\n"),
                ("crates/a/src/b.rs", "pub mod d;"),
                ("crates/a/src/b/d.rs", ""),
                ("crates/a/src/c/mod.rs", "mod e;"),
                ("crates/a/src/c/e.rs", ""),
            ],
            &[],
        );
        check(
            &[("crates/a/src/lib.rs", ""), ("crates/a/src/b.rs", "mod d;"), ("crates/a/src/b/d.rs", "")],
            &["crates/a/src/b.rs", "crates/a/src/b/d.rs"],
        );
        check(&[("crates/a/src/lib.rs", "// mod b;\nmod b {}\n"), ("crates/a/src/b.rs", "")], &["crates/a/src/b.rs"]);
        check(&[("crates/a/src/lib.rs", "mod b;"), ("crates/a/src/c/b.rs", "")], &["crates/a/src/c/b.rs"]);
        check(
            &[
                (
                    "crates/a/src/lib.rs",
                    "pub mod b {\n    mod c {\n        mod d;\n    }\n    fn f() {\n    }\n    mod e;\n}\nmod f;\n",
                ),
                ("crates/a/src/b/c/d.rs", ""),
                ("crates/a/src/b/e.rs", ""),
                ("crates/a/src/f.rs", "mod g {\n    mod h;\n}\n"),
                ("crates/a/src/f/g/h.rs", ""),
                ("crates/a/src/e.rs", ""),
            ],
            &["crates/a/src/e.rs"],
        );
    }

    #[test]
    fn cargo_compiles_some_files_by_itself() {
        check(
            &[
                ("crates/a/build.rs", ""),
                ("crates/a/src/main.rs", ""),
                ("crates/a/src/bin/x.rs", ""),
                ("crates/a/src/bin/y/main.rs", ""),
                ("crates/a/tests/all.rs", "mod helper;"),
                ("crates/a/tests/helper.rs", ""),
                ("crates/a/tests/big/main.rs", "mod part;"),
                ("crates/a/tests/big/part.rs", ""),
                ("crates/a/examples/e.rs", ""),
                ("crates/a/benches/e.rs", "#[path = \"../shared/load.rs\"]\nmod load;"),
                ("crates/a/odd/start.rs", "mod next;"),
                ("crates/a/odd/next.rs", ""),
            ],
            &[],
        );
        let lost = ["crates/a/NOTES.rs", "crates/a/tests/deep/x.rs", "loose.rs"];
        check(&lost.map(|path| (path, "")), &lost);
    }

    #[test]
    fn files_open_with_a_header() {
        let tree = Tree::of(&[("a.rs", "//! What it is.\n"), ("b.rs", "use x;\n"), ("c.md", "text")]);
        assert_eq!(headers(&tree), ["b.rs: does not open with a //! header that says what it is"]);
    }
}
