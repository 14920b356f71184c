//! Semantic versions.

use std::cmp::Ordering;

use crate::value::{Answer, Value};

use super::{Native, no_overload};

/// A version. What follows a plus does not count.
#[derive(Clone, Debug)]
pub(crate) struct Semver {
    numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Semver {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, patch] = parts[..] else { return Err("No Major.Minor.Patch elements found".to_owned()) };
        let (patch, build) = match patch.split_once('+') {
            Some((patch, build)) => (patch, Some(build)),
            None => (patch, None),
        };
        let (patch, pre_release) = match patch.split_once('-') {
            Some((patch, pre_release)) => (patch, Some(pre_release)),
            None => (patch, None),
        };
        let mut numbers = [0; 3];
        for ((number, text), name) in numbers.iter_mut().zip([major, minor, patch]).zip(["Major", "Minor", "Patch"]) {
            *number = self::number(text, name)?;
        }
        let mut identifiers = Vec::new();
        for part in pre_release.into_iter().flat_map(|part| part.split('.')) {
            identifiers.push(identifier(part)?);
        }
        for part in build.into_iter().flat_map(|part| part.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !part.chars().all(allowed) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self { numbers, pre_release: identifiers })
    }

    /// The same for what people write: with a `v`, with zeros in front, or shorter.
    fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let stripped = part.trim_start_matches('0');
            let zero = if stripped.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
            *part = format!("{zero}{stripped}");
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (&self.pre_release[..], &other.pre_release[..]) {
            ([], []) => Ordering::Equal,
            ([], _) => Ordering::Greater,
            (_, []) => Ordering::Less,
            (one, other) => one.cmp(other),
        })
    }
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

fn number(text: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {text:?}", name.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return Ok(Identifier::Number(text.parse().map_err(|_| format!("value out of range: {text:?}"))?));
    }
    if text.chars().all(allowed) {
        return Ok(Identifier::Text(text.to_owned()));
    }
    Err(format!("Invalid character(s) found in prerelease {text:?}"))
}

fn parsed(function: &str, args: &[Value<'_>]) -> Result<Result<Semver, String>, crate::value::EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_tolerant(text)),
        _ => Err(no_overload(function, args)),
    }
}

pub(super) fn semver<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match parsed("semver", args)? {
        Ok(version) => Ok(Value::Semver(version.into())),
        Err(why) => Err(why.into()),
    }
}

pub(super) fn is_semver<'a>(args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(parsed("isSemver", args)?.is_ok()))
}

pub(super) fn native(function: &str) -> Option<Native> {
    let native: Native = match function {
        "major" => |args| part("major", args, 0),
        "minor" => |args| part("minor", args, 1),
        "patch" => |args| part("patch", args, 2),
        _ => return None,
    };
    Some(native)
}

fn part<'a>(function: &str, args: &[Value<'a>], at: usize) -> Answer<'a> {
    match &args[0] {
        Value::Semver(version) => Ok(Value::Int(version.numbers[at] as i64)),
        _ => Err(no_overload(function, args)),
    }
}
