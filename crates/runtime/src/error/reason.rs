//! The one word that says why. In: what somebody wrote. Out: a word that Events and conditions take. Pure.

/// The longest reason that an Event takes.
const MOST_BYTES: usize = 128;

/// The word in CamelCase; nothing if no letter is in it. Conditions take letters, digits, `_`, `,` and `:`, and begin with
/// a letter; Events take at most 128 bytes.
pub(super) fn camel_case(text: &str) -> Option<String> {
    let mut word = String::with_capacity(text.len());
    let mut begins = true;
    for c in text.chars() {
        let fits = c.is_ascii_alphabetic() || (!word.is_empty() && (c.is_ascii_digit() || c == '_'));
        if fits && word.len() < MOST_BYTES {
            word.push(if begins { c.to_ascii_uppercase() } else { c });
        }
        begins = !fits;
    }
    if word != text {
        tracing::debug!(given = text, used = word, "the reason of an error is not in CamelCase");
    }
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_what_events_and_conditions_take() {
        let long = "A".repeat(200);
        for (given, expect) in [
            ("SecretMissing", Some("SecretMissing")),
            ("HTTP2Refused", Some("HTTP2Refused")),
            ("secret missing", Some("SecretMissing")),
            ("secret-missing!", Some("SecretMissing")),
            ("quota_exceeded", Some("Quota_exceeded")),
            ("42 is wrong", Some("IsWrong")),
            ("größe", Some("GrE")),
            ("", None),
            ("…", None),
            (&long, Some(&long[..128])),
        ] {
            assert_eq!(camel_case(given).as_deref(), expect, "{given:?}");
        }
    }
}
