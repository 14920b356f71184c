//! Sets of completion indexes as statuses write them: `0,2-5,9`. In: text, or indexes. Out: text, counts, what is missing.
//! Kept as runs, so that a hundred thousand completions are cheap. Pure.

use std::fmt;

/// A set of indexes: runs from a first to a last, in order, never touching each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads a text, as far as it is below `limit`. What cannot be read is left out.
    pub(crate) fn parse(text: &str, limit: u32) -> Self {
        let run = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first < limit && first <= last).then(|| (first, last.min(limit - 1)))
        };
        Self::of(text.split(',').filter_map(run).collect())
    }

    /// These and those.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = u32>) -> Self {
        Self::of(self.0.iter().copied().chain(more.into_iter().map(|index| (index, index))).collect())
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The first `many` indexes below `limit` that are not here.
    pub(crate) fn missing(&self, many: usize, limit: u32) -> Vec<u32> {
        let mut gaps = Vec::new();
        let mut next = 0;
        for (first, last) in &self.0 {
            gaps.push(next..*first);
            next = last + 1;
        }
        gaps.push(next..limit.max(next));
        gaps.into_iter().flatten().take_while(|index| *index < limit).take(many).collect()
    }

    /// How many are in both.
    pub(crate) fn common(&self, other: &Self) -> u32 {
        let overlap = |a: &(u32, u32), b: &(u32, u32)| (a.1.min(b.1) + 1).saturating_sub(a.0.max(b.0));
        self.0.iter().map(|a| other.0.iter().map(|b| overlap(a, b)).sum::<u32>()).sum()
    }

    fn of(mut runs: Vec<(u32, u32)>) -> Self {
        runs.sort_unstable();
        let mut out: Vec<(u32, u32)> = Vec::new();
        for (first, last) in runs {
            match out.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => out.push((first, last)),
            }
        }
        Self(out)
    }
}

/// Two in a row are written as two: `1,2`, and `1-3`.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let check = |text: &str, limit: u32, expect: &str, total: u32| {
            let read = Indexes::parse(text, limit);
            assert_eq!((read.to_string().as_str(), read.total()), (expect, total), "{text:?} below {limit}");
        };
        check("", 5, "", 0);
        check("0", 5, "0", 1);
        check("0,1", 5, "0,1", 2);
        check("0-2,4", 5, "0-2,4", 4);
        check("1,2,3", 5, "1-3", 3);
        check("1-9", 5, "1-4", 4);
        check("7", 5, "", 0);
        check("x,2,3-y", 5, "2", 1);
    }

    #[test]
    fn indexes_are_added_and_missed() {
        let check = |text: &str, more: &[u32], expect: &str, missing: &[u32]| {
            let all = Indexes::parse(text, 10).with(more.iter().copied());
            assert_eq!((all.to_string().as_str(), &*all.missing(3, 6)), (expect, missing), "{text:?} with {more:?}");
        };
        check("", &[], "", &[0, 1, 2]);
        check("0-2", &[3], "0-3", &[4, 5]);
        check("1,3", &[2, 2, 5], "1-3,5", &[0, 4]);
        check("0-5", &[], "0-5", &[]);
        check("", &[9, 0], "0,9", &[1, 2, 3]);
    }

    #[test]
    fn what_two_have_in_common() {
        let check = |one: &str, other: &str, expect: u32| {
            let (one, other) = (Indexes::parse(one, 100), Indexes::parse(other, 100));
            assert_eq!((one.common(&other), other.common(&one)), (expect, expect));
        };
        check("0-5", "3-9", 3);
        check("0,2,4", "1,3", 0);
        check("0,2,4", "0-10", 3);
    }
}
