//! Rust as rustfmt lays it out, so that it has nothing to do in a new project, whatever the names are. In: parts of code. Out: lines.

use std::collections::BTreeSet;

/// The width of a line in a scaffolded project; `templates/rustfmt.toml.tmpl` says the same.
pub(super) const WIDTH: usize = 100;

/// The head of a function with at most one argument, up to its brace.
pub(super) fn signature(head: &str, argument: &str, result: &str) -> String {
    let line = format!("{head}({argument}) -> {result} {{");
    match (line.len() <= WIDTH, argument.is_empty()) {
        (true, _) => line,
        (false, true) => format!("{head}()\n-> {result} {{"),
        (false, false) => format!("{head}(\n    {argument},\n) -> {result} {{"),
    }
}

/// A chain of calls in the body of a function: on one line if it fits, otherwise each on a line of its own.
pub(super) fn chain(head: &str, links: Vec<String>) -> String {
    let line = format!("    {head}{}\n", links.concat());
    if line.len() <= WIDTH + 1 {
        return line;
    }
    let links: String = links.iter().map(|link| format!("        {link}\n")).collect();
    format!("    {head}\n{links}")
}

/// Names as rustfmt orders them in a `use`: runs of digits count as numbers.
pub(super) fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let key = |name: &str| {
        let mut parts: Vec<(String, u64)> = Vec::new();
        let mut rest = name;
        while !rest.is_empty() {
            let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(letters);
            let digits = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
            let (number, after) = after.split_at(digits);
            parts.push((word.to_owned(), number.parse().unwrap_or_default()));
            rest = after;
        }
        parts
    };
    let names: BTreeSet<&str> = names.into_iter().collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| key(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_broken() {
        assert_eq!(signature("fn f", "a: A", "B"), "fn f(a: A) -> B {");
        let long = "L".repeat(90);
        assert_eq!(signature("fn f", "", &long), format!("fn f()\n-> {long} {{"));
        assert_eq!(signature("fn f", "a: A", &long), format!("fn f(\n    a: A,\n) -> {long} {{"));
        assert_eq!(chain("f()", vec![".g()".into(), ".h()".into()]), "    f().g().h()\n");
        assert_eq!(
            chain("f()", vec![format!(".{long}()"), ".h()".into()]),
            format!("    f()\n        .{long}()\n        .h()\n")
        );
    }

    #[test]
    fn numbers_are_numbers() {
        assert_eq!(
            sorted(["v10", "v1beta1", "v2", "v1", "v1alpha1", "v2"]),
            ["v1", "v1alpha1", "v1beta1", "v2", "v10"]
        );
    }
}
