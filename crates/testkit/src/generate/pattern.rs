//! Texts that match a pattern. In: a regular expression as schemas have it, the bounds of the length, and numbers that look random. Out: a
//! text, or none if the expression cannot be read. Words at the edges of lines and words (`\b`) are not looked at, so that whoever asks
//! still has to have the text judged.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use super::Random;

/// How often a repetition without an end is repeated beyond what it must be.
const MORE: u32 = 4;

/// How many texts are tried until one has a length within the bounds.
const ATTEMPTS: u32 = 100;

/// The longest text: a pattern can ask for far more than any object has.
const LONGEST: usize = 4096;

/// A text that matches the pattern, with a length of `least` to `most` characters if one is found within some attempts.
pub(super) fn matching(pattern: &str, (least, most): (usize, usize), random: &mut Random) -> Option<String> {
    let hir = regex_syntax::Parser::new().parse(pattern).ok()?;
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        // Later attempts repeat more, in case that the text is too short, but not so much that it is always too long.
        let longer = MORE.saturating_add(attempt.saturating_mul(u32::try_from(least).unwrap_or(u32::MAX)) / 8);
        let more = longer.min(u32::try_from(most).unwrap_or(u32::MAX).max(MORE));
        let mut text = String::new();
        write(&hir, more, random, &mut text)?;
        let length = text.chars().count();
        if (least..=most).contains(&length) {
            return Some(text);
        }
        last = Some(text);
    }
    last
}

/// Adds a text of this part of an expression; none if it is too long.
fn write(hir: &Hir, more: u32, random: &mut Random, text: &mut String) -> Option<()> {
    if text.len() > LONGEST {
        return None;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(class) => text.push(character(class, random)?),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let most = max.unwrap_or(u32::MAX).min(min.saturating_add(more));
            for _ in 0..u64::from(*min) + random.below(u64::from(most - min) + 1) {
                write(sub, more, random, text)?;
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, more, random, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write(part, more, random, text)?;
            }
        }
        HirKind::Alternation(parts) => write(random.pick(parts)?, more, random, text)?,
    }
    Some(())
}

/// A character of a class: one that people can read, if the class has some.
fn character(class: &Class, random: &mut Random) -> Option<char> {
    let ranges: Vec<(u32, u32)> = match class {
        Class::Unicode(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
        Class::Bytes(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
    };
    let readable = |(start, end): &(u32, u32)| {
        let (start, end) = ((*start).max(u32::from(' ')), (*end).min(u32::from('~')));
        (start <= end).then_some((start, end))
    };
    let mut chosen: Vec<(u32, u32)> = ranges.iter().filter_map(readable).collect();
    if chosen.is_empty() {
        chosen = ranges;
    }
    let (start, end) = *random.pick(&chosen)?;
    char::from_u32(start + u32::try_from(random.below(u64::from(end - start) + 1)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn texts_match_their_pattern() {
        #[track_caller]
        fn check(pattern: &str, least: usize, most: usize) {
            let regex = Regex::new(pattern).expect("a pattern");
            for seed in 0..100 {
                let text = matching(pattern, (least, most), &mut Random::new(seed)).expect("it can be read");
                assert!(regex.is_match(&text), "{pattern}: {text:?}");
                assert!((least..=most).contains(&text.chars().count()), "{pattern}: {text:?}");
            }
        }
        check("^[a-z0-9-]{1,20}(:[0-9]{1,3})?$", 0, usize::MAX);
        check("^[a-z]([-a-z0-9]*[a-z0-9])?$", 10, 20);
        check(r"^([0-9]+(\.[0-9]+)?)(Ki|Mi|Gi)?$", 0, 6);
        check(r"^(https|oci)://\w+(\.\w+)+(/[^/ ]*)*$", 0, 200);
        check("^(?:en|de)(?:_[A-Z]{2})?$", 0, usize::MAX);
        check("needle", 0, usize::MAX);
        check("^[^a-z]$", 1, 1);
        check("^.{64}$", 64, 64);
        check("^[α-ω]+$", 1, 8);
        check("^x*$", 100, 120);
    }

    #[test]
    fn what_cannot_be_read_or_is_too_long_is_none() {
        for pattern in ["(", "(?=ahead)a", "^((a{1000}){1000}){1000}$"] {
            assert_eq!(matching(pattern, (0, usize::MAX), &mut Random::new(1)), None, "{pattern}");
        }
        // Nothing has the length, and the caller finds out.
        assert_eq!(matching("^ab$", (5, 6), &mut Random::new(1)).as_deref(), Some("ab"));
    }
}
