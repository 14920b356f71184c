//! A hash of a document. Clients cache documents by it (`ETag`, `?hash=`), so it must not change between runs or builds. It is
//! not cryptographic.

use std::fmt;

/// FNV-1a with 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u128);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// The digest of one text.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut digest = Self::new();
        digest.update(bytes);
        digest
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032X}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_fnv_1a() {
        // Published test vectors.
        for (text, expect) in [
            ("", "6C62272E07BB014262B821756295C58D"),
            ("a", "D228CB696F1A8CAF78912B704E4A8964"),
            ("foobar", "343E1662793C64BF6F0D3597BA446F18"),
        ] {
            assert_eq!(Digest::of(text.as_bytes()).to_string(), expect);
        }
    }
}
