//! Checks that the walks of ARCHITECTURE.md name code that exists. In: the page and the tree. Out: steps in another form
//! than `` 1. `path/of/file.rs`: `function` ``, steps with a wrong number, files that do not exist or are tests, and
//! functions that are not in their file. Text around the steps is not checked.

use super::rust_code::without_tests_and_literals;
use super::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Walks";

/// The problems of the section `## Walks`: it is missing, it has no walk, or a step of a walk is not true.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.text(PAGE) else { return vec![format!("{PAGE}: is missing")] };
    let mut lines = page.lines().enumerate().skip_while(|(_, line)| line.trim_end() != SECTION);
    if lines.next().is_none() {
        return vec![format!("{PAGE}: has no section `{SECTION}`")];
    }
    let mut walks: Vec<Walk> = Vec::new();
    let mut problems = Vec::new();
    for (at, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        if let Some(title) = line.strip_prefix("### ") {
            walks.push(Walk { title, steps: 0 });
        } else if let Some((number, rest)) = numbered(line) {
            let place = format!("{PAGE}:{}", at + 1);
            let Some(walk) = walks.last_mut() else {
                problems.push(format!("{place}: a step stands before the first heading of a walk"));
                continue;
            };
            walk.steps += 1;
            if number != walk.steps {
                problems.push(format!("{place}: step {number} should be step {}", walk.steps));
            }
            problems.extend(step(tree, rest).into_iter().map(|problem| format!("{place}: {problem}")));
        }
    }
    let empty = walks.iter().filter(|walk| walk.steps == 0);
    problems.extend(empty.map(|walk| format!("{PAGE}: the walk {:?} has no steps", walk.title)));
    if walks.is_empty() {
        problems.push(format!("{PAGE}: the section `{SECTION}` has no walk"));
    }
    problems
}

/// One `###` heading below `## Walks`, and how many steps follow it.
struct Walk<'a> {
    title: &'a str,
    steps: usize,
}

/// The number and the rest of a line that begins a numbered item.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.split_once(". ")?;
    Some((number.parse().ok()?, rest))
}

/// The problems of one step.
fn step(tree: &Tree, item: &str) -> Vec<String> {
    let Some((path, names)) = parse(item) else {
        return vec!["a step begins with a file and its functions: `path/of/file.rs`: `function`".into()];
    };
    let Some(text) = tree.text(path) else { return vec![format!("names {path}, which is not there")] };
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return vec![format!("names {path}, which is a test")];
    }
    let code = without_tests_and_literals(text);
    let lacking = names.iter().filter(|name| !has_function(&code, name));
    lacking.map(|name| format!("{path} has no function {name}")).collect()
}

/// The file and the functions that a step names. The text after them is not checked.
fn parse(item: &str) -> Option<(&str, Vec<&str>)> {
    let (path, mut rest) = item.strip_prefix('`')?.split_once("`: ")?;
    let mut names = Vec::new();
    loop {
        let (name, after) = rest.strip_prefix('`')?.split_once('`')?;
        names.push(name.rsplit("::").next().filter(|name| is_identifier(name))?);
        match after.strip_prefix(", ") {
            Some(next) if next.starts_with('`') => rest = next,
            _ => return path.ends_with(".rs").then_some((path, names)),
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether code without comments and literals declares a function of this name, also one of a trait.
fn has_function(code: &str, name: &str) -> bool {
    let mut declared = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word));
    declared
        .any(|(at, _)| code[at + 3..].trim_start().strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word)))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "// fn commented()\npub(crate) async fn run<T>() {}\ntrait Sink {\n    fn send(&self);\n}\n\
                        let my_fn = 1;\nlet text = \"fn quoted()\";\n\
                        #[cfg(test)]\nmod tests {\n    fn only_in_tests() {}\n}\n";

    fn check_walks(section: &str, expect: &[&str]) {
        let page = format!("# Shape\n1. not a step\n{section}\n## Words\n1. not a step either\n");
        let tree = Tree::of(&[(PAGE, &page), ("crates/a/src/b.rs", CODE), ("crates/a/src/b/tests.rs", CODE)]);
        assert_eq!(check(&tree), expect, "{section}");
    }

    fn check_step(item: &str, expect: &[&str]) {
        let expect: Vec<_> = expect.iter().map(|problem| format!("ARCHITECTURE.md:5: {problem}")).collect();
        let expect: Vec<_> = expect.iter().map(String::as_str).collect();
        check_walks(&format!("## Walks\n### From a to b\n1. {item}"), &expect);
    }

    #[test]
    fn true_walks_pass() {
        check_step("`crates/a/src/b.rs`: `run`", &[]);
        check_step("`crates/a/src/b.rs`: `run` — starts everything, `gone` too.\n   More about it.", &[]);
        check_step("`crates/a/src/b.rs`: `run`, `Sink::send`, and then it ends", &[]);
        check_walks(
            "## Walks\ntext\n### One\n\n1. `crates/a/src/b.rs`: `run`\n2. `crates/a/src/b.rs`: `send`\n### Two\n1. `crates/a/src/b.rs`: `run`",
            &[],
        );
    }

    #[test]
    fn files_and_functions_exist() {
        check_step("`crates/a/src/c.rs`: `run`", &["names crates/a/src/c.rs, which is not there"]);
        check_step("`crates/a/src/b.rs`: `gone`", &["crates/a/src/b.rs has no function gone"]);
        check_step("`crates/a/src/b.rs`: `run`, `gone` — x", &["crates/a/src/b.rs has no function gone"]);
        check_step("`crates/a/src/b.rs`: `ru`", &["crates/a/src/b.rs has no function ru"]);
        for name in ["commented", "quoted", "only_in_tests"] {
            let problem = format!("crates/a/src/b.rs has no function {name}");
            check_step(&format!("`crates/a/src/b.rs`: `{name}`"), &[&problem]);
        }
        check_step("`crates/a/src/b/tests.rs`: `run`", &["names crates/a/src/b/tests.rs, which is a test"]);
    }

    #[test]
    fn steps_have_one_form() {
        let form = ["a step begins with a file and its functions: `path/of/file.rs`: `function`"];
        for item in [
            "it begins",
            "`crates/a/src/b.rs` `run`",
            "`crates/a/src/b.rs`: run",
            "`crates/a/src/b.rs`: `run()`",
            "`crates/a`: `run`",
        ] {
            check_step(item, &form);
        }
    }

    #[test]
    fn walks_are_there_and_counted() {
        check_walks("", &["ARCHITECTURE.md: has no section `## Walks`"]);
        check_walks("## Walks", &["ARCHITECTURE.md: the section `## Walks` has no walk"]);
        check_walks("## Walks\n### Empty", &["ARCHITECTURE.md: the walk \"Empty\" has no steps"]);
        check_walks(
            "## Walks\n### One\n2. `crates/a/src/b.rs`: `run`",
            &["ARCHITECTURE.md:5: step 2 should be step 1"],
        );
        check_walks(
            "## Walks\n1. `crates/a/src/b.rs`: `run`",
            &[
                "ARCHITECTURE.md:4: a step stands before the first heading of a walk",
                "ARCHITECTURE.md: the section `## Walks` has no walk",
            ],
        );
        assert_eq!(check(&Tree::of(&[])), ["ARCHITECTURE.md: is missing"]);
    }
}
