//! Numbers with their nouns. In: a number and a noun. Out: `1 file`, `2 files`. Pure.

use std::fmt::Display;

/// `1 file`, `2 files`. The noun takes an s.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    counted_as(count, noun, &format!("{noun}s"))
}

/// `1 file is`, `2 files are`: both forms are given.
pub(crate) fn counted_as<N: Display + PartialEq + From<u8>>(count: N, one: &str, several: &str) -> String {
    let noun = if count == N::from(1) { one } else { several };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_several() {
        for (count, expect) in [(0_usize, "0 files"), (1, "1 file"), (2, "2 files")] {
            assert_eq!(counted(count, "file"), expect);
        }
        assert_eq!(
            [counted_as(1_u64, "file is", "files are"), counted_as(0_u64, "file is", "files are")],
            ["1 file is", "0 files are"]
        );
    }
}
