//! A short sum of a JSON value. In: values. Out: 64 bits that are the same on every machine, in every process and for
//! every order of fields. Not a secret: it tells changes apart, it does not keep an attacker out.

use std::fmt;

use serde_json::Value;

/// Odd, with its bits well mixed: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A 64-bit hash that is being computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The sum of one value.
    pub(crate) fn of(value: &Value) -> Self {
        let mut sum = Self::default();
        digest(&mut sum, value);
        sum
    }

    /// This sum and a text.
    pub(crate) fn and(mut self, text: &str) -> Self {
        self.text(text);
        self
    }

    /// Adds a number.
    pub(crate) fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
        self.0 ^= self.0 >> 32;
    }

    /// Adds a text and its length.
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }
}

/// The digest of some texts.
pub(crate) fn digest_of(texts: &[&str]) -> Digest {
    let mut sum = Digest::default();
    texts.iter().for_each(|text| sum.text(text));
    sum
}

/// Sixteen hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Adds a value. The first word of each says of which JSON type it is.
pub(crate) fn digest(sum: &mut Digest, value: &Value) {
    match value {
        Value::Null => sum.word(1),
        Value::Bool(value) => sum.word(2 + u64::from(*value)),
        Value::Number(number) => {
            sum.word(4);
            sum.text(&number.to_string());
        }
        Value::String(text) => {
            sum.word(5);
            sum.text(text);
        }
        Value::Array(items) => {
            sum.word(6);
            sum.word(items.len() as u64);
            items.iter().for_each(|item| digest(sum, item));
        }
        Value::Object(fields) => {
            sum.word(7);
            sum.word(fields.len() as u64);
            let mut add = |(name, value): (&String, &Value)| {
                sum.text(name);
                digest(sum, value);
            };
            // Sorted already, unless some crate in the program made serde_json keep the order of the text.
            if fields.keys().is_sorted() {
                fields.iter().for_each(add);
            } else {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_by_key(|(name, _)| *name);
                fields.into_iter().for_each(&mut add);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> String {
        Digest::of(value).to_string()
    }

    /// The sums are written into clusters: another version of this crate must come to the same.
    #[test]
    fn sums_do_not_change() {
        assert_eq!(of(&json!({"a": [1, "b", null, true], "c": {}})), "4fc27fa6822987b0");
    }

    #[test]
    fn different_values_have_different_sums() {
        let values = [
            json!(null),
            json!(false),
            json!(true),
            json!(0),
            json!(1),
            json!(""),
            json!("0"),
            json!([]),
            json!({}),
            json!([[]]),
            json!([{}]),
            json!([[], []]),
            json!({"a": null}),
            json!({"a": "b"}),
            json!({"b": "a"}),
            json!({"a": "b", "c": "d"}),
            json!({"a": {"b": "c"}}),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!("12345678"),
            json!("123456789"),
            json!("12345678\0"),
        ];
        let sums: std::collections::HashSet<String> = values.iter().map(of).collect();
        assert_eq!(sums.len(), values.len());
    }
}
