//! Regular expressions as Go reads them. In: the `pattern` of a schema. Out: a compiled matcher, or the
//! error of Go's parser. The text is rewritten for the `regex` crates because the two dialects differ: `\d` is
//! ASCII in Go, `[` and `&&` are plain characters inside its classes, `{` may stand alone. A pattern that is too large is
//! rejected.
//!
//! Matching takes time in proportion to the text, but for a large pattern each byte can be expensive: a lazy DFA computes
//! a new state from all states of the pattern. Matching spends the budget for each new state; known states, which are
//! nearly all in practice, cost next to nothing.

use std::fmt;
use std::sync::Arc;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use crate::budget::Budget;

mod translate;

/// The limit of the size of a compiled pattern, in bytes. Go's own limit is of this order.
const SIZE_LIMIT: usize = 4 << 20;

/// The limit of the cache of DFA states, in bytes, for each thread that matches.
const CACHE_BYTES: usize = 1 << 20;

/// How many bytes are matched in about the time of one step while all states are known.
const BYTES_PER_STEP: usize = 8;

/// How many states of the pattern are visited in about the time of one step, when a new state of the DFA is computed.
const STATES_PER_STEP: usize = 8;

/// The same expression for the `regex` crate, over bytes. The error is the text of Go's parser.
///
/// ```
/// use konverge_schema::translate_pattern;
/// assert_eq!(translate_pattern("^ab*$").unwrap(), "^ab*$");
/// assert_eq!(translate_pattern("a(").unwrap_err(), "error parsing regexp: missing closing ): `a(`");
/// ```
pub fn translate_pattern(text: &str) -> Result<String, String> {
    translate::translate(text).map_err(|why| format!("error parsing regexp: {why}"))
}

/// A regular expression with the text it was made from.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    compiled: Arc<Compiled>,
}

struct Compiled {
    dfa: DFA,
    /// States that were computed in earlier matches.
    caches: Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync>>,
}

impl Pattern {
    /// Compiles an expression of Go's dialect. The error is the text of Go's parser.
    ///
    /// ```
    /// use konverge_schema::{Budget, Pattern};
    /// assert!(Pattern::new("^a+$").unwrap().matches("aaa", Budget::unlimited()));
    /// let refused = Pattern::new("(?=a)").unwrap_err();
    /// assert_eq!(refused, "error parsing regexp: invalid or unsupported Perl syntax: `(?=`");
    /// ```
    pub fn new(text: &str) -> Result<Self, String> {
        let translated = translate_pattern(text)?;
        // Only whether the pattern matches is asked, not where, so all matches are equal. A cache that is too small for the
        // pattern grows to what it needs.
        let settings =
            DFA::config().match_kind(MatchKind::All).cache_capacity(CACHE_BYTES).skip_cache_capacity_check(true);
        let dfa = DFA::builder()
            .configure(settings)
            // `\B` can match between the bytes of a character; the search skips such matches.
            .syntax(syntax::Config::new().utf8(false))
            .thompson(thompson::Config::new().nfa_size_limit(Some(SIZE_LIMIT)))
            .build(&translated)
            .map_err(|_| format!("error parsing regexp: expression too large: `{text}`"))?;
        let fresh = dfa.clone();
        let caches = Pool::new(Box::new(move || fresh.create_cache()) as Box<_>);
        Ok(Self { text: text.into(), compiled: Arc::new(Compiled { dfa, caches }) })
    }

    /// The expression as it stands in the schema.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some part of `text` matches. If the budget is used up, the search ends without a match.
    pub fn matches(&self, text: &str, budget: &Budget) -> bool {
        self.compiled.search(text, budget).unwrap_or_default()
    }
}

impl Compiled {
    /// `None` when the budget is used up.
    fn search(&self, text: &str, budget: &Budget) -> Option<bool> {
        let dfa = &self.dfa;
        let unknown = 1 + (dfa.get_nfa().states().len() / STATES_PER_STEP) as u64;
        let pay = |steps: u64| budget.spend(steps).then_some(());
        pay((text.len() / BYTES_PER_STEP) as u64)?;
        let cache = &mut *self.caches.get();
        let never = "no byte makes the DFA quit, and its cache may be cleared as often as need be";
        let mut state = dfa.start_state_forward(cache, &Input::new(text)).expect(never);
        for (at, byte) in text.bytes().enumerate() {
            let known = !state.is_tagged() && !dfa.next_state_untagged(cache, state, byte).is_unknown();
            if !known {
                pay(unknown)?;
            }
            state = dfa.next_state(cache, state, byte).expect(never);
            // The DFA reports a match one byte late. A match that ends inside a character does not count.
            if state.is_match() && text.is_char_boundary(at) {
                return Some(true);
            }
            if state.is_dead() {
                return Some(false);
            }
        }
        Some(dfa.next_eoi_state(cache, state).expect(never).is_match())
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
        assert_eq!(compiled.matches(text, Budget::unlimited()), expect, "{pattern} on {text}");
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
    fn states_that_are_not_known_are_paid_for() {
        let mut seed = 1_u64;
        let mut letter = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if seed >> 40 & 1 == 0 { 'a' } else { 'b' }
        };
        let random: String = (0..20_000).map(|_| letter()).collect();
        let name = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
        // Each case: a pattern, a text, how often it is matched, the steps that this may take at least and at most.
        for (pattern, text, times, least, most) in [
            // In a state of the DFA about half of the 20,000 states are alive, and it is never met again.
            ("[ab]*a([ab]{1000}){20}[c-z]", &*random, 1, 1_000_000, u64::MAX),
            // Next to nothing for 250,000 bytes, once the pattern is known.
            (name, "konverge.example.com", 10_000, 20_000, 40_000),
            ("^.{1,1000}$", "a text that is shorter than it may be", 10_000, 40_000, 150_000),
            (name, &random, 1, 2_500, 4_000),
        ] {
            let compiled = Pattern::new(pattern).expect(pattern);
            let budget = Budget::new(1_000_000, 0);
            for _ in 0..times {
                compiled.matches(text, &budget);
            }
            let spent = 1_000_000 - budget.steps_left();
            assert!((least..=most).contains(&spent), "{pattern}: {spent}");
            assert_eq!(budget.spend(0), most < u64::MAX, "{pattern}");
        }
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
        check_match("\\B", "aéa", false);
        check_match("a\\B", "ab", true);
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
