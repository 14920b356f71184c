//! Regular expressions as Go reads them. In: the `pattern` of a schema. Out: a compiled matcher, or the
//! complaint of Go's parser. The text is rewritten for the `regex` crate because the two dialects differ: `\d` is
//! ASCII in Go, `[` and `&&` are plain characters inside its classes, `{` may stand alone. Both match in
//! linear time, so no pattern can stall the server; a pattern too big to compile is refused.

use std::fmt;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

mod translate;

/// What one compiled pattern may weigh: Go's own limit is of this order.
const SIZE_LIMIT: usize = 4 << 20;

/// A regular expression with the text it was made from.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    regex: Regex,
}

impl Pattern {
    /// Compiles an expression of Go's dialect. The error is the text of Go's parser.
    ///
    /// ```
    /// use konverge_schema::Pattern;
    /// assert!(Pattern::new("^a+$").unwrap().matches("aaa"));
    /// let refused = Pattern::new("(?=a)").unwrap_err();
    /// assert_eq!(refused, "error parsing regexp: invalid or unsupported Perl syntax: `(?=`");
    /// ```
    pub fn new(text: &str) -> Result<Self, String> {
        let translated = translate::translate(text).map_err(|why| format!("error parsing regexp: {why}"))?;
        let regex = RegexBuilder::new(&translated)
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .build()
            .map_err(|_| format!("error parsing regexp: expression too large: `{text}`"))?;
        Ok(Self { text: text.into(), regex })
    }

    /// The expression as the schema has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some part of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(pattern: &str, expect: &str) {
        let refused = Pattern::new(pattern).expect_err(pattern);
        assert_eq!(refused, format!("error parsing regexp: {expect}"), "{pattern}");
    }

    fn check_match(pattern: &str, text: &str, expect: bool) {
        let compiled = Pattern::new(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
        assert_eq!(compiled.matches(text), expect, "{pattern} on {text}");
    }

    #[test]
    fn what_go_refuses() {
        check_refused("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
        check_refused("(?!a)b", "invalid or unsupported Perl syntax: `(?!`");
        check_refused("(?<=a)b", "invalid named capture: `(?<=a)b`");
        check_refused("(?x)a", "invalid or unsupported Perl syntax: `(?x`");
        check_refused("(?", "invalid or unsupported Perl syntax: `(?`");
        check_refused("(?i", "invalid or unsupported Perl syntax: `(?i`");
        check_refused("(?P<n", "invalid named capture: `(?P<n`");
        check_refused("[a-z", "missing closing ]: `[a-z`");
        check_refused("(a", "missing closing ): `(a`");
        check_refused("a)", "unexpected ): `a)`");
        check_refused("*a", "missing argument to repetition operator: `*`");
        check_refused("a|*", "missing argument to repetition operator: `*`");
        check_refused("a**", "invalid nested repetition operator: `**`");
        check_refused("a++", "invalid nested repetition operator: `++`");
        check_refused("a{1001}", "invalid repeat count: `{1001}`");
        check_refused("a{2,1}", "invalid repeat count: `{2,1}`");
        check_refused("[z-a]", "invalid character class range: `z-a`");
        check_refused("[[:foo:]]", "invalid character class range: `[:foo:]`");
        check_refused("[a-\\d]", "invalid escape sequence: `\\d`");
        check_refused("\\p{Foo}", "invalid character class range: `\\p{Foo}`");
        check_refused("\\8", "invalid escape sequence: `\\8`");
        check_refused("\\1", "invalid escape sequence: `\\1`");
        check_refused("\\Z", "invalid escape sequence: `\\Z`");
        check_refused("\\u0041", "invalid escape sequence: `\\u`");
        check_refused("\\x{110000}", "invalid escape sequence: `\\x{110000`");
        check_refused("\\é", "invalid escape sequence: `\\é`");
        check_refused("a\\", "trailing backslash at end of expression: ``");
        check_refused("((((.{1000}){1000}){1000}){1000})", "expression too large: `((((.{1000}){1000}){1000}){1000})`");
    }

    #[test]
    fn what_the_dialects_read_differently() {
        check_match("^\\d$", "5", true);
        check_match("^\\d$", "٥", false);
        check_match("^\\w$", "é", false);
        check_match("^\\W$", "é", true);
        check_match("^\\s$", "\u{a0}", false);
        check_match("^[^\\d\\s]$", "a", true);
        check_match("^[\\W]$", "-", true);
        check_match("^[\\d-z]+$", "1-z", true);
        check_match("^[[a]$", "[", true);
        check_match("^[a&&b]$", "&", true);
        check_match("^[a-c--~~]+$", "-~", true);
        check_match("^[]a]$", "]", true);
        check_match("^[^]a]$", "b", true);
        check_match("^a{,5}$", "a{,5}", true);
        check_match("a{x", "a{x", true);
        check_match("^a{2,3}$", "aaa", true);
        check_match("^a{2,}?$", "aaaa", true);
        check_match("^\\Qa.b\\E$", "a.b", true);
        check_match("^\\Qa.b\\E$", "axb", false);
        check_match("^\\<a\\>$", "<a>", true);
        check_match("\\bfoo\\b", "a foo b", true);
        check_match("^\\012\\0\\x41\\x{1F600}$", "\n\0A😀", true);
        check_match("^[[:alpha:]_]+$", "ab_", true);
        check_match("^[[:^alpha:]]+$", "12", true);
        check_match("^\\pN\\p{L}\\PN\\p{^L}$", "1aa1", true);
        check_match("^\\p{Greek}$", "α", true);
        check_match("(?i:A)b", "ab", true);
        check_match("(?i)A(?-i)b", "aB", false);
        check_match("(?s).", "\n", true);
        check_match(".", "\n", false);
        check_match("(?P<n>a)(?P<n>b)", "ab", true);
        check_match("^*a", "a", true);
        check_match("(|a)*b", "b", true);
        check_match("a$", "a\n", false);
        check_match("^(([a-z0-9]|[a-z0-9][a-z0-9\\-]*[a-z0-9])\\.)*$", "a-b.", true);
        check_match("^.{1,1000}$", "é", true);
        check_match("}]", "}]", true);
    }
}
