//! Hashes of pod templates, and random suffixes of names. In: JSON or random bits. Out: letters and digits that never form a
//! word. Pure.

use serde_json::Value;

/// No vowels and nothing that looks like one, as Kubernetes has it.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// How many letters a generated name ends with.
const SUFFIX: usize = 5;

/// The hash of a pod template. `collisions` makes another one of the same template.
pub(crate) fn template_hash(template: &Value, collisions: Option<i32>) -> String {
    let mut sum = Fnv::default();
    add(&mut sum, template);
    if let Some(collisions) = collisions {
        sum.bytes(&collisions.to_le_bytes());
    }
    sum.0.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// The end of a generated name.
pub(crate) fn suffix(mut random: u64) -> String {
    let letters = LETTERS.len() as u64;
    let letter = |_| {
        let at = random % letters;
        random /= letters;
        char::from(LETTERS[at as usize])
    };
    (0..SUFFIX).map(letter).collect()
}

/// FNV-1a of 32 bits, the sum behind `pod-template-hash`.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

/// Adds a value, whatever the order of its fields.
fn add(sum: &mut Fnv, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.iter().filter(|(_, value)| !crate::template::is_empty(value)).collect();
            names.sort_unstable_by_key(|(name, _)| *name);
            sum.bytes(b"{");
            for (name, value) in names {
                sum.bytes(name.as_bytes());
                sum.bytes(b":");
                add(sum, value);
            }
            sum.bytes(b"}");
        }
        Value::Array(items) => {
            sum.bytes(b"[");
            items.iter().for_each(|item| {
                add(sum, item);
                sum.bytes(b",");
            });
            sum.bytes(b"]");
        }
        other => sum.bytes(other.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_templates_have_equal_hashes() {
        let one = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let same = json!({"spec": {"containers": [{"image": "i", "name": "c"}], "volumes": []}, "metadata": {"labels": {"a": "1"}}});
        let other = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "j"}]}});
        assert_eq!(template_hash(&one, None), template_hash(&same, None));
        assert_ne!(template_hash(&one, None), template_hash(&other, None));
        assert_ne!(template_hash(&one, None), template_hash(&one, Some(1)));
        assert_ne!(template_hash(&one, Some(1)), template_hash(&one, Some(2)));
        assert!(template_hash(&one, None).bytes().all(|letter| LETTERS.contains(&letter)));
    }

    #[test]
    fn suffixes_follow_the_dice() {
        assert_eq!(suffix(0), "bbbbb");
        assert_eq!(suffix(1), "cbbbb");
        assert_eq!(suffix(27), "bcbbb");
        assert_eq!(suffix(u64::MAX).len(), SUFFIX);
    }
}
