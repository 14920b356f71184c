//! Label and field selectors. In: the text of a query parameter, or a `LabelSelector` object. Out: a
//! predicate over labels or fields. Unknown syntax is an error, never an empty selection.

mod check;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::field::FieldPath;
use crate::name::{check_label_key, check_label_value};

pub use check::check_label_selector;

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// Selects objects by their labels. The default selects everything.
///
/// ```
/// use konverge_core::LabelSelector;
/// let selector = LabelSelector::parse("app=web, tier in (front,back), !legacy").unwrap();
/// let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
/// assert!(selector.matches(&labels(&[("app", "web"), ("tier", "front")])));
/// assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "front"), ("legacy", "")])));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a `labelSelector` parameter. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Parser::new(text).selector()
    }

    /// Reads a `LabelSelector` object (`matchLabels`, `matchExpressions`). An empty one selects everything.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().ok_or_else(|| SelectorError(format!("matchLabels[{key}] must be a string")))?;
            requirements.push(Requirement { key: key.clone(), test: Test::In(vec![value.to_owned()]) });
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
            };
            requirements.push(Requirement { key, test });
        }
        Ok(Self { requirements })
    }

    /// Selects what has all these labels; everything, if there are none.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let requirement = |(key, value): (&String, &String)| {
            let test = Test::In(vec![value.clone()]);
            Requirement { key: key.clone(), test }
        };
        Self { requirements: labels.iter().map(requirement).collect() }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(Into::into))
    }

    /// Whether an object is selected whose labels `label` knows.
    pub fn matches_with<'v>(&self, mut label: impl FnMut(&str) -> Option<Cow<'v, str>>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key).as_deref()))
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// As clients write it; values of a set in order.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            let set = |values: &[String]| {
                let mut values = values.to_vec();
                values.sort();
                values.join(",")
            };
            match test {
                Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Test::In(values) => write!(f, "{key} in ({})", set(values))?,
                Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", set(values))?,
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
                Test::Greater(than) => write!(f, "{key}>{than}")?,
                Test::Less(than) => write!(f, "{key}<{than}")?,
            }
        }
        Ok(())
    }
}

/// A recursive-descent parser over the set-based grammar that clients send.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn selector(mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(LabelSelector::default());
        }
        loop {
            // Whatever is wrong before a requirement begins or after it ends is not its own fault.
            if !matches!(self.peek(), "!") && !is_word(self.peek()) {
                return Err(found(self.peek(), "!, identifier, or 'end of string'"));
            }
            let wrong = |error: SelectorError| SelectorError(format!("unable to parse requirement: {error}"));
            requirements.push(self.requirement().map_err(wrong)?);
            match self.next() {
                "" => return Ok(LabelSelector { requirements }),
                "," if self.peek().is_empty() => return Err(found("", "identifier after ','")),
                "," => {}
                other => return Err(found(other, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.peek() == "!";
        if absent {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            return Err(found(key, "identifier"));
        }
        if let Some(why) = check_label_key(key).into_iter().next() {
            return Err(SelectorError(format!("<nil>: Invalid value: {key:?}: {why}")));
        }
        let test = if absent { Test::Absent } else { self.test(key)? };
        Ok(Requirement { key: key.to_owned(), test })
    }

    fn test(&mut self, key: &str) -> Result<Test, SelectorError> {
        match self.peek() {
            "" | "," => Ok(Test::Exists),
            "=" | "==" => {
                self.next();
                Ok(Test::In(vec![self.value(key)?]))
            }
            "!=" => {
                self.next();
                Ok(Test::NotIn(vec![self.value(key)?]))
            }
            "in" => {
                self.next();
                Ok(Test::In(self.values(key)?))
            }
            "notin" => {
                self.next();
                Ok(Test::NotIn(self.values(key)?))
            }
            ">" => {
                self.next();
                Ok(Test::Greater(self.number()?))
            }
            "<" => {
                self.next();
                Ok(Test::Less(self.number()?))
            }
            other => Err(found(other, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// One value; nothing at all is the empty value.
    fn value(&mut self, key: &str) -> Result<String, SelectorError> {
        let value = match self.peek() {
            "" | "," => "",
            word if is_word(word) => self.next(),
            other => return Err(found(other, "identifier")),
        };
        check_value(key, value)
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, SelectorError> {
        match self.next() {
            "(" => {}
            other => return Err(found(other, "'('")),
        }
        let mut values = Vec::new();
        loop {
            let value = if matches!(self.peek(), "," | ")") { "" } else { self.next() };
            if self.rest.is_empty() && value.is_empty() || !value.is_empty() && !is_word(value) {
                return Err(found(value, "',', ')' or identifier"));
            }
            values.push(check_value(key, value)?);
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other => return Err(found(other, "',' or ')'")),
            }
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let text = self.next();
        text.parse().map_err(|_| {
            SelectorError(format!(
                "values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        })
    }

    fn peek(&self) -> &'a str {
        let rest = self.rest.trim_start();
        let symbol = |at: usize| rest.get(..at).unwrap_or_default();
        match rest.as_bytes() {
            [] => "",
            [b'=', b'=', ..] | [b'!', b'=', ..] => symbol(2),
            [b'=' | b'!' | b'<' | b'>' | b'(' | b')' | b',', ..] => symbol(1),
            _ => {
                let ends = |c: char| c.is_whitespace() || "=!<>(),".contains(c);
                &rest[..rest.find(ends).unwrap_or(rest.len())]
            }
        }
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(['=', '!', '<', '>', '(', ')', ','])
}

fn check_value(key: &str, value: &str) -> Result<String, SelectorError> {
    match check_label_value(value).into_iter().next() {
        Some(why) => Err(SelectorError(format!("values[0][{key}]: Invalid value: {value:?}: {why}"))),
        None => Ok(value.to_owned()),
    }
}

fn found(token: &str, expected: &str) -> SelectorError {
    SelectorError(format!("found '{token}', expected: {expected}"))
}

/// Selects objects by fields: terms of `path=value` or `path!=value`. The default selects everything.
///
/// Which fields a kind supports is for the caller to check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<(String, bool, String)>,
}

impl FieldSelector {
    /// Reads a `fieldSelector` parameter. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let not = || SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'"));
            let at = part.find(['=', '!']).ok_or_else(not)?;
            let (path, rest) = part.split_at(at);
            let (equal, value) = match rest {
                rest if rest.starts_with("!=") => (false, &rest[2..]),
                rest if rest.starts_with("==") => (true, &rest[2..]),
                rest if rest.starts_with('=') => (true, &rest[1..]),
                _ => return Err(not()),
            };
            terms.push((path.to_owned(), equal, unescape(value)?));
        }
        Ok(Self { terms })
    }

    /// Selects the objects of this name.
    pub fn of_name(name: &str) -> Self {
        Self { terms: vec![("metadata.name".to_owned(), true, name.to_owned())] }
    }

    /// The fields it asks about.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|(path, ..)| path.as_str())
    }

    /// Whether an object is selected; `field` tells its value at a path, absent fields being empty.
    pub fn matches<'v>(&self, mut field: impl FnMut(&str) -> Cow<'v, str>) -> bool {
        self.terms.iter().all(|(path, equal, value)| (field(path) == value.as_str()) == *equal)
    }

    /// The one value that `path` must have, if the selector says so.
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.terms.iter().find(|(field, equal, _)| field == path && *equal).map(|(_, _, value)| value.as_str())
    }

    /// Whether one of the terms is that `path` has this value.
    ///
    /// ```
    /// use konverge_core::FieldSelector;
    /// let selector = FieldSelector::parse("spec.nodeName=a,status.phase!=Failed").unwrap();
    /// assert!(selector.requires("spec.nodeName", "a"));
    /// assert!(!selector.requires("status.phase", "Failed"));
    /// ```
    pub fn requires(&self, path: &str, value: &str) -> bool {
        self.terms.iter().any(|(field, equal, wanted)| *equal && field == path && wanted == value)
    }

    /// Adds the term that `path` has this value, or has not.
    #[must_use]
    pub fn and(mut self, path: &str, equal: bool, value: &str) -> Self {
        self.terms.push((path.to_owned(), equal, value.to_owned()));
        self
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                next => {
                    let sequence: String = std::iter::once('\\').chain(next).collect();
                    return Err(SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}")));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    c as u32
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (path, equal, value)) in self.terms.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{path}{}{value}", if *equal { "=" } else { "!=" })?;
        }
        Ok(())
    }
}

/// The path a selector problem is reported under.
impl SelectorError {
    /// As a field error at `path`, for objects that carry selectors.
    pub fn at(&self, path: FieldPath) -> crate::FieldError {
        crate::FieldError::new(crate::FieldErrorKind::Invalid, path, None, self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn label_selectors() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", "front"), ("n", "5")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (text, expect) in [
            ("", Ok(true)),
            ("app", Ok(true)),
            ("!app", Ok(false)),
            ("app=web", Ok(true)),
            ("app==web,tier!=back", Ok(true)),
            ("app = web , tier in ( front , back )", Ok(true)),
            ("app notin (web)", Ok(false)),
            ("absent notin (web)", Ok(true)),
            ("absent!=x", Ok(true)),
            ("absent=", Ok(false)),
            ("n>4,n<6", Ok(true)),
            ("n>five", Err(())),
            ("app in web", Err(())),
            ("app in (web", Err(())),
            ("app=web,", Err(())),
            ("=web", Err(())),
            ("app=a b", Err(())),
            ("a b=c", Err(())),
            ("app=%%", Err(())),
        ] {
            let got = LabelSelector::parse(text).map(|selector| selector.matches(&labels)).map_err(|_| ());
            assert_eq!(got, expect, "{text}");
        }
    }

    #[test]
    fn label_selector_objects() {
        let labels: BTreeMap<String, String> = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        for (object, expect) in [
            (serde_json::json!({}), Ok(true)),
            (serde_json::json!({"matchLabels": {"app": "web"}}), Ok(true)),
            (
                serde_json::json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                Ok(false),
            ),
            (serde_json::json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), Ok(true)),
            (serde_json::json!({"matchExpressions": [{"key": "x", "operator": "Near"}]}), Err(())),
        ] {
            let got = LabelSelector::from_object(&object).map(|selector| selector.matches(&labels)).map_err(|_| ());
            assert_eq!(got, expect, "{object}");
        }
    }

    #[test]
    fn field_selectors() {
        let field = |path: &str| match path {
            "metadata.name" => Cow::Borrowed("a,b"),
            _ => Cow::Borrowed(""),
        };
        for (text, expect) in [
            ("", Ok(true)),
            ("metadata.name=a\\,b", Ok(true)),
            ("metadata.name!=a", Ok(true)),
            ("metadata.name==a,status.phase=", Ok(false)),
            ("status.phase=", Ok(true)),
            ("nonsense", Err(())),
            ("a=b=c", Err(())),
            ("a=\\x", Err(())),
        ] {
            let got = FieldSelector::parse(text).map(|selector| selector.matches(field)).map_err(|_| ());
            assert_eq!(got, expect, "{text}");
        }
        assert_eq!(FieldSelector::parse("metadata.name=x").unwrap().exact("metadata.name"), Some("x"));
    }
}
