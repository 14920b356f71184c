//! The secrets that are known. In: values. Out: a search for them in each form in which they may be written, and what of it is left out. Pure.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::redact::REMOVED;

/// Shorter values are words that stand everywhere, and are found by the other rules where they are secret.
const SHORTEST: usize = 6;

/// Long values are searched for in parts of this many bytes, one behind the other. It is a multiple of three, so that the parts in base64 make the whole, too.
const PART: usize = 3 << 10;

/// How many bytes all forms may have; the search takes about fifty times as much memory.
const MOST_BYTES: usize = 4 << 20;

/// What most programs leave as it is in URLs.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A search for known secrets.
#[derive(Debug)]
pub(crate) struct Known {
    search: Option<AhoCorasick>,
    /// What is not searched for.
    left_out: Option<String>,
}

impl Known {
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        Self::within(values, MOST_BYTES)
    }

    pub(super) fn within(values: impl IntoIterator<Item = String>, most_bytes: usize) -> Self {
        let mut forms = BTreeSet::new();
        values.into_iter().for_each(|value| add_forms(&value, &mut forms));
        let (mut taken, mut seen, mut bytes, mut left_out) = (Vec::new(), BTreeSet::new(), 0, 0);
        for Form { text, .. } in forms {
            // A mark, or the words around keys, are no secrets.
            let is_common = text.len() < SHORTEST || REMOVED.contains(&text) || text.starts_with("-----");
            if is_common || !seen.insert(text.clone()) {
                continue;
            }
            if bytes + text.len() > most_bytes {
                left_out += 1;
                continue;
            }
            bytes += text.len();
            taken.push(text);
        }
        let mut left_out = (left_out > 0).then(|| {
            format!("not everything could be searched for: {left_out} forms of values of Secrets, the longest ones, are too much together")
        });
        // The other kinds are faster, and take more memory than there may be.
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&taken);
        let search = built.map_err(|error| {
            left_out = Some(format!(
                "values of Secrets could not be searched for at all: {error}; look for them before you send this"
            ));
        });
        Self { search: search.ok().filter(|_| !taken.is_empty()), left_out }
    }

    /// What is not searched for; nothing if all is.
    pub(crate) fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// A text with a mark instead of each known secret, and how many there were.
    pub(crate) fn replace(&self, text: &str, mark: &str) -> (String, usize) {
        let Some(search) = &self.search else { return (text.to_owned(), 0) };
        let (mut kept, mut count, mut end) = (String::with_capacity(text.len()), 0, 0);
        for found in search.find_iter(text) {
            kept.push_str(&text[end..found.start()]);
            kept.push_str(mark);
            (count, end) = (count + 1, found.end());
        }
        kept.push_str(&text[end..]);
        (kept, count)
    }
}

/// How a value may be written. The order is that in which forms are taken: values as they are come first, and short ones before long ones.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    rank: u8,
    length: usize,
    text: String,
}

fn add_forms(value: &str, forms: &mut BTreeSet<Form>) {
    let trimmed = value.trim();
    let is_number = trimmed.chars().all(|one| one.is_ascii_digit() || one == '.');
    if trimmed.len() < SHORTEST || is_number && trimmed.len() < 12 {
        return;
    }
    let mut add = |rank: u8, text: String| {
        forms.insert(Form { rank, length: text.len(), text });
    };
    for part in parts(trimmed) {
        add(0, part.to_owned());
        let quoted = quoted(part);
        add(2, self::quoted(&quoted));
        // Go writes these signs so in JSON.
        add(2, quoted.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"));
        add(2, quoted);
        add(2, part.replace('\'', "''"));
        add(2, utf8_percent_encode(part, NON_ALPHANUMERIC).to_string());
        let unreserved = utf8_percent_encode(part, UNRESERVED).to_string();
        add(2, unreserved.replace("%20", "+"));
        add(2, unreserved);
    }
    // People who encode by hand often encode the end of the line, too.
    for text in [value, trimmed, &format!("{trimmed}\n")] {
        for part in text.as_bytes().chunks(PART) {
            add(1, STANDARD.encode(part));
            add(1, URL_SAFE_NO_PAD.encode(part));
        }
    }
    // Logs have one line of it at a time.
    for line in trimmed.lines().map(str::trim).filter(|line| line.len() >= 2 * SHORTEST) {
        parts(line).for_each(|part| add(1, part.to_owned()));
    }
}

/// A text in JSON, without the quotes around it.
fn quoted(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// A text in parts that are short enough.
fn parts(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = rest.floor_char_boundary(PART);
        let (part, next) = rest.split_at(end);
        rest = next;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a text when these values are known.
    #[track_caller]
    fn check(known: &Known, given: &str, expect: &str) {
        assert_eq!(known.replace(given, "#").0, expect);
    }

    #[test]
    fn many_and_long_values_are_found() {
        let long: String = (0..40_000).map(|at| format!("ü{at}")).collect();
        let values = (0..6_000).map(|at| format!("hunter{at:04}")).chain([long.clone(), "hunter0001-longer".into()]);
        let known = Known::new(values);
        assert_eq!(known.left_out(), None);
        check(&known, "a hunter0007 b hunter5999, hunter0001-longer", "a # b #, #");
        for form in [long.clone(), STANDARD.encode(&long), quoted(&long)] {
            let (kept, count) = known.replace(&format!("a {form} b"), "");
            assert!(kept == "a  b" && count > 1, "{count}: {} bytes are left", kept.len());
        }
        check(&Known::new([]), "nothing is known", "nothing is known");
    }

    #[test]
    fn what_is_left_out_is_told() {
        let known = Known::within(["hunter22".to_owned(), "x".repeat(2_000)], 100);
        assert!(known.left_out().is_some_and(|said| said.contains("not everything")), "{known:?}");
        check(&known, "hunter22", "#");
    }
}
