//! A merge of lines in three ways. In: a text as it once was, as a person has it now, and as it would be written today. Out: one text
//! with the changes of both sides, and the number of places where both changed the same lines. Pure.

use std::ops::Range;

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The text; conflicts are marked as git marks them.
    pub text: String,
    /// How many conflicts there are.
    pub conflicts: usize,
}

/// The names of the three sides in the marks of a conflict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides<'a> {
    pub ours: &'a str,
    pub base: &'a str,
    pub theirs: &'a str,
}

/// Merges what `ours` and `theirs` have changed since `base`. If most of our lines end as on Windows, so do all lines of the result.
pub(crate) fn merge(base: &str, ours: &str, theirs: &str, sides: Sides<'_>) -> Merged {
    if 2 * ours.matches("\r\n").count() > ours.matches('\n').count() {
        let plain = |text: &str| text.replace("\r\n", "\n");
        let merged = merge(&plain(base), &plain(ours), &plain(theirs), sides);
        return Merged { text: merged.text.replace('\n', "\r\n"), ..merged };
    }
    let [base, ours, theirs] = [base, ours, theirs].map(lines);
    let (to_ours, to_theirs) = (matches(&base, &ours), matches(&base, &theirs));
    let mut merged = Merged { text: String::new(), conflicts: 0 };
    let (mut in_base, mut in_ours, mut in_theirs) = (0, 0, 0);
    loop {
        // Lines that nobody changed.
        while in_base < base.len() && to_ours[in_base] == Some(in_ours) && to_theirs[in_base] == Some(in_theirs) {
            merged.text += base[in_base];
            (in_base, in_ours, in_theirs) = (in_base + 1, in_ours + 1, in_theirs + 1);
        }
        // Lines that somebody changed reach to the next line that both have kept, or to the end.
        let kept = (in_base..base.len()).find_map(|at| Some((at, to_ours[at]?, to_theirs[at]?)));
        let (base_end, ours_end, theirs_end) = kept.unwrap_or((base.len(), ours.len(), theirs.len()));
        let changed = (&base[in_base..base_end], &ours[in_ours..ours_end], &theirs[in_theirs..theirs_end]);
        if changed.0.is_empty() && changed.1.is_empty() && changed.2.is_empty() {
            return merged;
        }
        merged.take(changed, sides);
        (in_base, in_ours, in_theirs) = (base_end, ours_end, theirs_end);
    }
}

impl Merged {
    /// Adds lines that one side or both have changed.
    fn take(&mut self, (base, ours, theirs): (&[&str], &[&str], &[&str]), sides: Sides<'_>) {
        if ours == theirs || theirs == base {
            self.text.extend(ours.iter().copied());
            return;
        }
        if ours == base {
            self.text.extend(theirs.iter().copied());
            return;
        }
        // What both sides begin and end with alike is no conflict.
        let head = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
        let (our_rest, their_rest) = (&ours[head..], &theirs[head..]);
        let tail = our_rest.iter().rev().zip(their_rest.iter().rev()).take_while(|(a, b)| a == b).count();
        self.conflicts += 1;
        self.text.extend(ours[..head].iter().copied());
        self.mark("<<<<<<<", sides.ours, &our_rest[..our_rest.len() - tail]);
        self.mark("|||||||", sides.base, base);
        self.mark("=======", "", &their_rest[..their_rest.len() - tail]);
        self.mark(">>>>>>>", sides.theirs, &[]);
        self.text.extend(our_rest[our_rest.len() - tail..].iter().copied());
    }

    fn mark(&mut self, mark: &str, side: &str, lines: &[&str]) {
        self.end_line();
        self.text += format!("{mark} {side}").trim_end();
        self.text.push('\n');
        self.text.extend(lines.iter().copied());
        self.end_line();
    }

    /// A text may end without a line break, and what follows in a conflict needs one.
    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

/// What changes from one text to another, as `diff -u` shows it, without the heads of hunks: two lines around each change.
pub(crate) fn difference(old: &str, new: &str) -> Vec<String> {
    const AROUND: usize = 2;
    let (old, new) = (lines(old), lines(new));
    let mut all = Vec::new();
    let (mut in_old, mut in_new) = (0, 0);
    for (at, found) in matches(&old, &new).into_iter().enumerate() {
        let Some(found) = found else { continue };
        all.extend(old[in_old..at].iter().map(|line| ('-', *line)));
        all.extend(new[in_new..found].iter().map(|line| ('+', *line)));
        all.push((' ', old[at]));
        (in_old, in_new) = (at + 1, found + 1);
    }
    all.extend(old[in_old..].iter().map(|line| ('-', *line)));
    all.extend(new[in_new..].iter().map(|line| ('+', *line)));
    let is_near = |at: usize| {
        let window = at.saturating_sub(AROUND)..(at + AROUND + 1).min(all.len());
        all[window].iter().any(|(sign, _)| *sign != ' ')
    };
    let mut shown: Vec<String> = Vec::new();
    for (at, (sign, line)) in all.iter().enumerate() {
        if is_near(at) {
            shown.push(format!("{sign} {}", line.trim_end()).trim_end().to_owned());
        } else if shown.last().is_some_and(|last| last != "…") {
            shown.push("…".into());
        }
    }
    if shown.last().is_some_and(|last| last == "…") {
        shown.pop();
    }
    shown
}

/// The lines of a text, each with its line break.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// For each line of `base` the line of `other` that it is, in a longest common subsequence.
fn matches(base: &[&str], other: &[&str]) -> Vec<Option<usize>> {
    let mut found = vec![None; base.len()];
    let head = base.iter().zip(other).take_while(|(a, b)| a == b).count();
    let most_tail = base.len().min(other.len()) - head;
    let tail = base.iter().rev().zip(other.iter().rev()).take(most_tail).take_while(|(a, b)| a == b).count();
    for (at, line) in found.iter_mut().enumerate().take(head) {
        *line = Some(at);
    }
    for at in 1..=tail {
        found[base.len() - at] = Some(other.len() - at);
    }
    let (left, right): (Range<usize>, Range<usize>) = (head..base.len() - tail, head..other.len() - tail);
    let longest = longest(&base[left.clone()], &other[right.clone()]);
    let (mut in_base, mut in_other) = (left.start, right.start);
    let at = |in_base: usize, in_other: usize| longest[in_base - left.start][in_other - right.start];
    while in_base < left.end && in_other < right.end {
        if base[in_base] == other[in_other] {
            found[in_base] = Some(in_other);
            (in_base, in_other) = (in_base + 1, in_other + 1);
        } else if at(in_base + 1, in_other) >= at(in_base, in_other + 1) {
            in_base += 1;
        } else {
            in_other += 1;
        }
    }
    found
}

/// The lengths of the longest common subsequences of all ends of two lists. A scaffolded file has some hundred lines, and what both
/// begin and end with is not here, so the table is small.
fn longest(base: &[&str], other: &[&str]) -> Vec<Vec<u32>> {
    let mut table = vec![vec![0_u32; other.len() + 1]; base.len() + 1];
    for (in_base, line) in base.iter().enumerate().rev() {
        for (in_other, theirs) in other.iter().enumerate().rev() {
            table[in_base][in_other] = match line == theirs {
                true => table[in_base + 1][in_other + 1] + 1,
                false => table[in_base + 1][in_other].max(table[in_base][in_other + 1]),
            };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: Sides<'_> = Sides { ours: "yours", base: "before", theirs: "new" };

    /// Texts with a letter a line.
    fn text(letters: &str) -> String {
        letters.chars().map(|letter| format!("{letter}\n")).collect()
    }

    #[track_caller]
    fn check(base: &str, ours: &str, theirs: &str, expect: &str) {
        let merged = merge(&text(base), &text(ours), &text(theirs), SIDES);
        assert_eq!(merged, Merged { text: text(expect), conflicts: 0 }, "{base} {ours} {theirs}");
        let mirrored = merge(&text(base), &text(theirs), &text(ours), SIDES);
        assert_eq!(mirrored, merged, "the sides are alike: {base} {ours} {theirs}");
    }

    #[test]
    fn changes_of_both_sides_are_kept() {
        check("", "", "", "");
        check("abc", "abc", "abc", "abc");
        check("abc", "axc", "abc", "axc");
        check("abc", "xabc", "abcy", "xabcy");
        check("abcde", "axcde", "abcye", "axcye");
        check("abc", "ac", "abcd", "acd");
        check("abc", "bc", "ab", "b");
        // Both did the same.
        check("abc", "axbc", "axbc", "axbc");
        check("abc", "ac", "ac", "ac");
        check("", "ab", "ab", "ab");
        // A line that is there often.
        check("}a}b}", "}a}xb}", "y}a}b}", "y}a}xb}");
        check("abc", "", "abc", "");
        // A line between two changes is enough.
        check("abc", "xbc", "aby", "xby");
    }

    #[track_caller]
    fn conflict(base: &str, ours: &str, theirs: &str, expect: &str) {
        let merged = merge(&text(base), &text(ours), &text(theirs), SIDES);
        assert_eq!(
            (merged.text.replace('\n', " ").trim_end(), merged.conflicts),
            (expect, 1),
            "{base} {ours} {theirs}"
        );
    }

    #[test]
    fn where_both_changed_a_person_chooses() {
        conflict("abc", "axc", "ayc", "a <<<<<<< yours x ||||||| before b ======= y >>>>>>> new c");
        conflict("ab", "axb", "ayb", "a <<<<<<< yours x ||||||| before ======= y >>>>>>> new b");
        conflict("abc", "ac", "axc", "a <<<<<<< yours ||||||| before b ======= x >>>>>>> new c");
        // What both added is not in the conflict.
        conflict("ad", "abxd", "abyd", "a b <<<<<<< yours x ||||||| before ======= y >>>>>>> new d");
        conflict("ad", "axbd", "aybd", "a <<<<<<< yours x ||||||| before ======= y >>>>>>> new b d");
        // Neighbours belong together: nobody knows whether both changes fit each other.
        conflict("abcd", "axcd", "abyd", "a <<<<<<< yours x c ||||||| before b c ======= b y >>>>>>> new d");
    }

    #[test]
    fn line_breaks() {
        // The last line may have none.
        let merged = merge("a\nb", "a\nx", "a\ny", SIDES);
        assert_eq!(merged.text, "a\n<<<<<<< yours\nx\n||||||| before\nb\n=======\ny\n>>>>>>> new\n");
        assert_eq!(merge("a\nb", "a\nb", "c\na\nb", SIDES).text, "c\na\nb");
        // Our line breaks win.
        let merged = merge("a\nb\nc\n", "a\r\nb\r\nx\r\n", "y\nb\nc\n", SIDES);
        assert_eq!(merged, Merged { text: "y\r\nb\r\nx\r\n".into(), conflicts: 0 });
        assert_eq!(merge("a\n", "a\r\n", "a\n", SIDES).text, "a\r\n");
        // One of them is a change like any other.
        assert_eq!(merge("a\nb\nc\n", "a\r\nb\nc\n", "a\nb\ny\n", SIDES).text, "a\r\nb\ny\n");
    }

    #[test]
    fn differences() {
        for (old, new, expect) in [
            ("abc", "abc", ""),
            ("abc", "axc", "  a|- b|+ x|  c"),
            ("abcdefghij", "abcdeXfghij", "  d|  e|+ X|  f|  g"),
            ("abcdefghijk", "Xbcdefghijk", "- a|+ X|  b|  c"),
            ("abcdefghijk", "XabcdefghijkY", "+ X|  a|  b|…|  j|  k|+ Y"),
        ] {
            assert_eq!(difference(&text(old), &text(new)).join("|"), expect, "{old} {new}");
        }
    }

    /// However texts differ: a side that nobody changed takes over the other one, and no line of a clean merge comes from nowhere.
    #[test]
    fn laws() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            // Constants of Knuth's generator; good enough to choose letters.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut word = || -> String {
            let length = random(9);
            (0..length).map(|_| char::from(b'a' + u8::try_from(random(4)).expect("below four"))).collect()
        };
        for _ in 0..5000 {
            let [base, ours, theirs] = [word(), word(), word()].map(|letters| text(&letters));
            assert_eq!(merge(&base, &base, &theirs, SIDES).text, theirs);
            assert_eq!(merge(&base, &ours, &base, SIDES).text, ours);
            assert_eq!(merge(&base, &ours, &ours, SIDES).text, ours);
            let merged = merge(&base, &ours, &theirs, SIDES);
            if merged.conflicts == 0 {
                let known = |line: &str| ours.contains(line) || theirs.contains(line);
                assert!(merged.text.lines().all(known), "{base:?} {ours:?} {theirs:?}");
            }
        }
    }
}
