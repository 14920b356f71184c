//! Lines that a person has to put into a file, because both they and a command changed the same place. In: the scaffold before and after that command, and the
//! file. Out: whether the lines are in it. Pure; `disk` keeps the scaffold from before until they are.

use std::collections::{BTreeMap, BTreeSet};

use super::files::Files;

/// Those of the kept scaffolds from before whose new lines are still missing: of `.scaffold/.by-hand`, of `.scaffold`, and of the project. A file that is gone
/// waits for nothing.
pub(super) fn waiting(before: &Files, after: &Files, is: &Files) -> Files {
    let is_waiting = |path: &String, before: &str| match (after.get(path), is.get(path)) {
        (Some(after), Some(is)) => !is_done(before, after, is),
        _ => false,
    };
    before
        .iter()
        .filter(|(path, text)| is_waiting(path, text))
        .map(|(path, text)| (path.clone(), text.clone()))
        .collect()
}

/// Whether a file has what came from one scaffold to the next: its new lines, or at least its new words as often, however a person arranged them.
fn is_done(before: &str, after: &str, is: &str) -> bool {
    let [old, new, has] = [before, after, is].map(|text| text.lines().map(str::trim).collect::<BTreeSet<_>>());
    if new.difference(&old).all(|line| has.contains(line)) {
        return true;
    }
    let (old, new, has) = (words(before), words(after), words(is));
    let mut added = new.iter().filter(|(word, _)| !old.contains_key(*word)).peekable();
    added.peek().is_some() && added.all(|(word, times)| has.get(word).is_some_and(|found| found >= times))
}

/// How often each word is in the code. Comments are left out: a person words them anew.
fn words(text: &str) -> BTreeMap<&str, usize> {
    let mut words = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        for word in line.split(|letter| !is_letter(letter)).filter(|word| !word.is_empty()) {
            *words.entry(word).or_default() += 1;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_the_lines_are_in() {
        let before = "mod shop;\nfn operator() {\n    Operator::from(shop())\n}\n";
        let after = "mod shop;\nmod till;\nfn operator() {\n    Operator::from(shop()).and(till())\n}\n";
        for (is, expect) in [
            (before, false),
            (after, true),
            ("mod shop;\nmod mine;\nfn operator() {\n    Operator::from(shop()).metrics(mine::all)\n}\n", false),
            // Only half of it.
            ("mod shop;\nmod till;\nfn operator() {\n    Operator::from(shop()).metrics(mine::all)\n}\n", false),
            ("mod shop;\nfn operator() {\n    // .and(till()) and mod till\n    Operator::from(shop())\n}\n", false),
            // Otherwise than the scaffold would have it.
            ("mod till;\nmod shop;\nfn operator() {\n    Operator::from(shop()).metrics(a).and(till())\n}\n", true),
        ] {
            assert_eq!(is_done(before, after, is), expect, "{is}");
        }
        // Nothing but known words: the lines themselves have to be there.
        assert!(!is_done("a\nb\n", "b\na\na b\n", "b\na\n"));
        assert!(is_done("a\nb\n", "b\na\na b\n", "c\n  a b\n"));
    }

    #[test]
    fn which_files_wait() {
        let files = |text: &str| Files::from([("a".to_owned(), text.to_owned())]);
        let (before, after) = (files("x\n"), files("x\ny\n"));
        for (is, expect) in [(files("z\n"), 1), (files("z\ny\n"), 0), (Files::new(), 0)] {
            assert_eq!(waiting(&before, &after, &is).len(), expect, "{is:?}");
        }
        assert_eq!(waiting(&before, &Files::new(), &files("z\n")).len(), 0);
    }
}
