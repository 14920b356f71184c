//! Regular expressions in Go's dialect. One that is written in the program is compiled once, with it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use konverge_schema::translate_pattern;

use crate::value::{Answer, EvalError, Value};

use super::no_overload;

/// What one compiled expression may weigh.
const SIZE_LIMIT: usize = 4 << 20;

/// How many expressions are kept that are not written in a program but computed by it, such as `self.matches(self.pattern)`. Each weighs
/// at most `SIZE_LIMIT` and usually a thousandth of it; the oldest goes when another comes.
const KEPT: usize = 16;

/// The expressions that were computed last, the newest at the end.
static RECENT: Mutex<VecDeque<(String, Regex)>> = Mutex::new(VecDeque::new());

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Regex(::regex::bytes::Regex);

impl Regex {
    /// The error is the text of Go's parser.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let translated = translate_pattern(text)?;
        let compiled = ::regex::bytes::RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).build();
        compiled.map(Self).map_err(|_| format!("error parsing regexp: expression too large: `{text}`"))
    }

    /// The same for an expression that a program computes: most are those of the call before.
    fn computed(text: &str) -> Result<Self, String> {
        let lock = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, regex)) = lock().iter().find(|(known, _)| known == text) {
            return Ok(regex.clone());
        }
        let regex = Self::new(text)?;
        let mut recent = lock();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back((text.to_owned(), regex.clone()));
        Ok(regex)
    }

    fn matches(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }

    /// Every match in a text. An empty match inside of a character is none: Go goes on by characters, this engine by bytes.
    fn found<'t>(&'t self, text: &'t str) -> impl Iterator<Item = String> + 't {
        let whole = self.0.find_iter(text.as_bytes()).filter(|found| text.is_char_boundary(found.start()));
        whole.map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned())
    }
}

pub(super) fn matches<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let (Value::String(text), Value::String(pattern)) = (&args[0], &args[1]) else {
        return Err(match &args[0] {
            Value::String(_) => "no such overload".into(),
            _ => "no such overload: matches".into(),
        });
    };
    Ok(Value::Bool(Regex::computed(pattern).map_err(EvalError::from)?.matches(text)))
}

pub(super) fn find<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(_), Value::String(pattern)] = args else { return Err(no_overload("find", args)) };
    with_pattern("find", &illegal(Regex::computed(pattern))?, args)
}

pub(super) fn find_all<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(_), Value::String(pattern), ..] = args else { return Err(no_overload("findAll", args)) };
    with_pattern("findAll", &illegal(Regex::computed(pattern))?, args)
}

fn illegal(compiled: Result<Regex, String>) -> Result<Regex, EvalError> {
    compiled.map_err(|why| format!("Illegal regex: {why}").into())
}

/// The same for an expression that is compiled already.
pub(crate) fn with_pattern<'a>(function: &str, regex: &Regex, args: &[Value<'a>]) -> Answer<'a> {
    let Value::String(text) = &args[0] else { return Err("no such overload".into()) };
    match (function, args.get(2)) {
        ("matches", _) => Ok(Value::Bool(regex.matches(text))),
        ("find", _) => Ok(Value::text(regex.found(text).next().unwrap_or_default())),
        (_, None) => Ok(Value::texts(regex.found(text))),
        (_, Some(Value::Int(count))) => {
            Ok(Value::texts(regex.found(text).take(usize::try_from(*count).unwrap_or(usize::MAX))))
        }
        _ => Err(no_overload(function, args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_whole_characters() {
        let found = |pattern: &str, text: &str| Regex::new(pattern).unwrap().found(text).collect::<Vec<_>>();
        assert_eq!(found("x*", "äöx"), ["", "", "x"]);
        assert_eq!(found("ö", "äöä"), ["ö"]);
    }

    #[test]
    fn few_computed_expressions_are_kept() {
        for number in 0..KEPT * 3 {
            assert!(Regex::computed(&format!("^{number}$")).unwrap().matches(&number.to_string()));
        }
        assert!(Regex::computed("(").is_err());
        assert!(RECENT.lock().unwrap().len() <= KEPT);
    }
}
