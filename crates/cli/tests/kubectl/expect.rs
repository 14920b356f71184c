//! Comparing what was said with what was expected. Columns are compared, not their widths: lines are compared word by
//! word. A star in an expected word stands for anything but a space: an age, a uid, a resource version. An ellipsis
//! stands for the rest of its line; on a line of its own, for all lines that follow.

use serde_json::Value;

/// The command ended as expected.
#[track_caller]
pub(crate) fn code(line: &str, expect: i32, got: Option<i32>, stderr: &str) {
    if got != Some(expect) {
        panic!("kubectl {line}: ended with {got:?} instead of {expect}\n{stderr}");
    }
}

/// The command said what was expected.
#[track_caller]
pub(crate) fn text(line: &str, expect: &str, got: &str) {
    if !lines(expect).fit(&lines(got)) {
        panic!("kubectl {line}\nsaid:\n{got}\nexpected:\n{expect}\n");
    }
}

/// The object has these fields, whatever else it has; `null` stands for a field that is absent.
#[track_caller]
pub(crate) fn has(object: &Value, expect: &Value) {
    if let Err(why) = find(object, expect, String::new()) {
        panic!("{why}\nin {object:#}");
    }
}

fn find(object: &Value, expect: &Value, path: String) -> Result<(), String> {
    match expect {
        Value::Object(fields) if object.is_object() => {
            fields.iter().try_for_each(|(name, value)| find(&object[name], value, format!("{path}.{name}")))
        }
        _ if object == expect => Ok(()),
        _ => Err(format!("{path} is {object}, not {expect}")),
    }
}

struct Lines<'t>(Vec<Vec<&'t str>>);

fn lines(text: &str) -> Lines<'_> {
    Lines(
        text.lines().map(|line| line.split_whitespace().collect()).filter(|words: &Vec<_>| !words.is_empty()).collect(),
    )
}

impl Lines<'_> {
    fn fit(&self, got: &Lines<'_>) -> bool {
        let (expect, open) = open_ended(&self.0, |line| *line == ["…"]);
        long_enough(expect.len(), got.0.len(), open)
            && expect.iter().zip(&got.0).all(|(line, got)| line_fits(line, got))
    }
}

fn line_fits(line: &[&str], got: &[&str]) -> bool {
    let (expect, open) = open_ended(line, |word| *word == "…");
    long_enough(expect.len(), got.len(), open) && expect.iter().zip(got).all(|(word, got)| word_fits(word, got))
}

/// What comes before an ellipsis at the end, and whether there is one.
fn open_ended<T>(list: &[T], is_open: impl Fn(&T) -> bool) -> (&[T], bool) {
    match list.split_last() {
        Some((last, before)) if is_open(last) => (before, true),
        _ => (list, false),
    }
}

fn long_enough(expect: usize, got: usize, open: bool) -> bool {
    if open { got >= expect } else { got == expect }
}

/// Whether a word fits a pattern whose stars stand for anything.
fn word_fits(pattern: &str, word: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = word.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn patterns() {
    for (pattern, word, fits) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("*", "5s", true),
        ("web-*", "web-x7", true),
        ("web-*", "wob-x7", false),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abde", false),
        ("*s", "5m", false),
    ] {
        assert_eq!(word_fits(pattern, word), fits, "{pattern} {word}");
    }
}

#[test]
fn texts() {
    for (expect, got, fits) in [
        ("", "", true),
        ("", "word", false),
        ("NAME AGE\na *", "NAME   AGE\na      5s\n", true),
        ("NAME AGE\na *", "NAME   AGE\nb      5s\n", false),
        ("NAME AGE\na *", "NAME   AGE\n", false),
        ("gone …", "gone from here", true),
        ("gone …", "gone", true),
        ("gone …", "kept", false),
        ("one\n…", "one\ntwo\nthree", true),
        ("two\n…", "one\ntwo\nthree", false),
    ] {
        assert_eq!(lines(expect).fit(&lines(got)), fits, "{expect:?} {got:?}");
    }
}

#[test]
fn fields() {
    let object = serde_json::json!({"a": {"b": 1, "c": [1]}});
    for (expect, fits) in [
        (serde_json::json!({"a": {"b": 1}}), true),
        (serde_json::json!({"a": {"b": 2}}), false),
        (serde_json::json!({"a": {"d": null}}), true),
        (serde_json::json!({"a": {"b": null}}), false),
        (serde_json::json!({"a": {"c": [1]}}), true),
        (serde_json::json!({"a": {"c": [1, 2]}}), false),
    ] {
        assert_eq!(find(&object, &expect, String::new()).is_ok(), fits, "{expect}");
    }
}
