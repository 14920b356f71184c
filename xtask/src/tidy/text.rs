//! Checks for text that no file may have. In: the tree. Out: unfinished code, disabled tests, paths of one machine, and
//! files that are too large. The patterns are concatenated so that this file does not match itself.

use super::tree::Tree;

/// The size limit of a file.
const MAX_BYTES: u64 = 1 << 20;

/// Unfinished code, and tests that do not run.
pub(super) fn unfinished(tree: &Tree) -> Vec<String> {
    let banned = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];
    let mut problems = Vec::new();
    for (path, text) in tree.rust() {
        for (at, line) in text.lines().enumerate() {
            let (code, comment) = line.split_once("//").unwrap_or((line, ""));
            for word in banned.iter().filter(|word| code.contains(**word)) {
                problems.push(format!("{path}:{}: {word}", at + 1));
            }
            let fence = comment.trim_start_matches(['/', '!', ' ']).strip_prefix("```");
            if fence.is_some_and(|words| words.split(',').any(|word| word.trim() == "ignore")) {
                problems.push(format!("{path}:{}: an example that is not compiled", at + 1));
            }
        }
    }
    problems
}

/// Absolute paths into somebody's home or workspace.
pub(super) fn machine_paths(tree: &Tree) -> Vec<String> {
    let homes = [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/"), concat!("/", "work/")];
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        for (at, line) in text.lines().enumerate() {
            for home in homes.iter().filter(|home| line.match_indices(**home).any(|(at, _)| starts(line, at))) {
                problems.push(format!("{path}:{}: {home}", at + 1));
            }
        }
    }
    problems
}

/// Whether an absolute path begins here: a slash after `docs` continues a path, a slash after `=` begins one.
fn starts(line: &str, at: usize) -> bool {
    let goes_on = |before: char| before.is_alphanumeric() || "./_-}~*$".contains(before);
    !line[..at].ends_with(goes_on)
}

/// Files that are too large.
pub(super) fn huge(tree: &Tree) -> Vec<String> {
    let huge = tree.sizes().filter(|(_, bytes)| *bytes > MAX_BYTES);
    huge.map(|(path, bytes)| format!("{path}: {bytes} bytes; the most is {MAX_BYTES}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_unfinished() {
        let check = |line: &str, expect: &[&str]| {
            assert_eq!(unfinished(&Tree::of(&[("a.rs", &format!("\n{line}\n")), ("a.md", line)])), expect, "{line}");
        };
        check(concat!("fn f() { to", "do!() }"), &[concat!("a.rs:2: to", "do!(")]);
        check(concat!("unimpl", "emented!(\"x\")"), &[concat!("a.rs:2: unimpl", "emented!(")]);
        check(concat!("#[ign", "ore = \"slow\"]"), &[concat!("a.rs:2: #[ign", "ore")]);
        check(concat!("// never to", "do!()"), &[]);
        check("/// ```ignore", &["a.rs:2: an example that is not compiled"]);
        check("//! ```rust,ignore", &["a.rs:2: an example that is not compiled"]);
        check("/// ```text", &[]);
        check("let ignored = todo;", &[]);
    }

    #[test]
    fn no_machine_is_named() {
        let check = |line: &str, expect: &[&str]| {
            assert_eq!(machine_paths(&Tree::of(&[("a.md", &format!("x\n{line}\n"))])), expect, "{line}");
        };
        check(concat!("see /ho", "me/me/x"), &[concat!("a.md:2: /ho", "me/")]);
        check(concat!("X=/wo", "rk/x"), &[concat!("a.md:2: /wo", "rk/")]);
        check(concat!("\"/ro", "ot/.cargo\""), &[concat!("a.md:2: /ro", "ot/")]);
        check(concat!("(/Us", "ers/me)"), &[concat!("a.md:2: /Us", "ers/")]);
        check("docs/home/x crates/work/y $HOME/x /workers/x", &[]);
    }

    #[test]
    fn no_file_is_huge() {
        let most = "x".repeat(1 << 20);
        let more = format!("{most}x");
        let tree = Tree::of(&[("a", &most), ("b", &more)]);
        assert_eq!(huge(&tree), ["b: 1048577 bytes; the most is 1048576"]);
    }
}
