//! One line of the table of validation rules. In: its text. Out: the path it looks at, its checks in order, and the tests
//! that decide whether the line counts. The head of the table states the format.

use serde_json::Value;

use super::format::{self, Format};
use super::function::{self, Function};

/// One line.
#[derive(Debug)]
pub(super) struct Rule {
    pub path: Vec<Step>,
    pub checks: Vec<Check>,
    /// One group of tests must hold; no group at all holds always.
    pub when: Vec<Vec<Test>>,
    /// Whether an error here ends the rules of this struct.
    pub stops: bool,
    /// The number of the line, which tells rules apart.
    pub line: usize,
}

/// One step of a path.
#[derive(Debug)]
pub(super) struct Step {
    /// The name in JSON; empty for the value itself.
    pub name: &'static str,
    /// The name in errors; empty where errors name the struct instead.
    pub shown: &'static str,
    pub skip: Skip,
    pub into: Into,
}

/// When a rule ends at a step without looking further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    Never,
    /// `?`: nothing is there.
    Nil,
    /// `~`: nothing is there, or only a zero value.
    Zero,
}

/// What a step goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Into {
    /// The field itself.
    Field,
    /// `[]`: every item, with its index in the path.
    Items,
    /// `[-]`: every item, under the path of the list.
    Unnumbered,
    /// `{}`: every value of a map, with its key in the path.
    Values,
    /// `{key}`: every key of a map, with the key in the path.
    Keys,
    /// `{-}`: every key of a map, under the path of the map.
    Unkeyed,
    /// `[name]`: one entry of a map.
    Entry(&'static str),
}

/// A check, and whether it is made when an earlier one of its line found an error.
#[derive(Debug)]
pub(super) struct Check {
    pub always: bool,
    pub kind: CheckKind,
}

/// What is checked.
#[derive(Debug)]
pub(super) enum CheckKind {
    Required(&'static str),
    Present(&'static str),
    Forbidden(&'static str),
    NotNil(&'static str),
    Fail(Failure, &'static str, Option<Shown>),
    Enum(Vec<&'static str>),
    Range {
        least: i64,
        most: i64,
        text: Option<&'static str>,
    },
    MaxBytes(usize),
    MaxItems(usize),
    Format(Format, Option<&'static str>),
    Unique {
        scope: Option<&'static str>,
        by: Vec<&'static str>,
    },
    /// Among the values of a scope, which this check does not change.
    Unused(&'static str),
    /// Adds a value to a scope, unless its struct has errors.
    Known(&'static str),
    Same(Failure, &'static str),
    SamePointer,
    Selector,
    Labels,
    Annotations,
    Rules {
        variant: &'static str,
        set: Option<usize>,
    },
    Union {
        more: &'static str,
        none: &'static str,
        members: Vec<Member>,
    },
    Call(Function),
}

/// A member of a union.
#[derive(Debug)]
pub(super) struct Member {
    pub step: Step,
    /// The name in the error about too many members.
    pub refused: &'static str,
    pub set: Option<usize>,
}

/// The kind of a plain error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Invalid,
    /// Invalid, and the value is not shown.
    Omitted,
    Forbidden,
    Required,
    NotFound,
    Duplicate,
}

/// The value that an error shows, when it is not the one at the path.
#[derive(Debug)]
pub(super) enum Shown {
    Json(Value),
    Of(TestPath),
}

/// A path of a test: dotted names from one of the structs that are open.
#[derive(Debug)]
pub(super) struct TestPath {
    pub from: From,
    pub names: Vec<&'static str>,
}

/// Where the path of a test starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The struct of the rule.
    Here,
    /// The struct so many levels above.
    Above(usize),
    /// The object.
    Root,
    /// The struct of the rule, before the update.
    Old,
}

/// One test.
#[derive(Debug)]
pub(super) enum Test {
    Set(TestPath),
    Unset(TestPath),
    Nil(TestPath),
    NotNil(TestPath),
    In(TestPath, Vec<&'static str>),
    NotIn(TestPath, Vec<&'static str>),
    Less(TestPath, i64),
    More(TestPath, i64),
    Longer(TestPath, usize),
    Equal(TestPath, TestPath),
    Differ(TestPath, TestPath),
    Exceeds(TestPath, TestPath),
    Prefix(TestPath, &'static str),
    NoPrefix(TestPath, &'static str),
    Changed(TestPath),
    Unchanged(TestPath),
    Create,
    Update,
    Unprivileged,
}

impl Rule {
    /// Reads a line without its indentation.
    pub(super) fn read(text: &'static str, line: usize) -> Option<Self> {
        let (text, stops) = text.strip_prefix('!').map_or((text, false), |text| (text, true));
        let words = words(text)?;
        let split = words.iter().position(|word| *word == "if");
        let (checks, tests) = words.split_at(split.unwrap_or(words.len()));
        let (path, checks) = checks.split_first()?;
        let when = match tests.split_first() {
            Some((_, tests)) => tests.split(|word| *word == "or").map(group).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        Some(Self { path: steps(path)?, checks: self::checks(checks)?, when, stops, line })
    }
}

/// The words of a line; a text in quotes is one word, with its quotes.
fn words(text: &'static str) -> Option<Vec<&'static str>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            Some(inside) => {
                let mut escaped = false;
                let closes = |byte: u8| match (std::mem::take(&mut escaped), byte) {
                    (false, b'\\') => {
                        escaped = true;
                        false
                    }
                    (was_escaped, byte) => byte == b'"' && !was_escaped,
                };
                inside.bytes().position(closes)? + 2
            }
            None => rest.find(' ').unwrap_or(rest.len()),
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Some(words)
}

/// A text in quotes. The few texts with quotes inside are kept for as long as the program runs, as the table itself.
fn quoted(word: &'static str) -> Option<&'static str> {
    let text = word.strip_prefix('"')?.strip_suffix('"')?;
    if text.contains('\\') {
        return serde_json::from_str::<String>(word).ok().map(|text| &*text.leak());
    }
    Some(text)
}

fn steps(text: &'static str) -> Option<Vec<Step>> {
    if text == "." {
        return Some(Vec::new());
    }
    split_path(text).into_iter().map(step).collect()
}

/// Splits at dots, but not inside of brackets.
fn split_path(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'.' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn step(text: &'static str) -> Option<Step> {
    let (text, skip) = if let Some(text) = text.strip_suffix('?') {
        (text, Skip::Nil)
    } else if let Some(text) = text.strip_suffix('~') {
        (text, Skip::Zero)
    } else {
        (text, Skip::Never)
    };
    let (text, into) = match text.find(['[', '{']) {
        None => (text, Into::Field),
        Some(at) => {
            let into = match &text[at..] {
                "[]" => Into::Items,
                "[-]" => Into::Unnumbered,
                "{}" => Into::Values,
                "{key}" => Into::Keys,
                "{-}" => Into::Unkeyed,
                entry => Into::Entry(entry.strip_prefix('[')?.strip_suffix(']')?),
            };
            (&text[..at], into)
        }
    };
    let (name, shown) = text.split_once(':').unwrap_or((text, text));
    (!name.is_empty()).then_some(Step { name, shown, skip, into })
}

fn checks(words: &[&'static str]) -> Option<Vec<Check>> {
    if words.is_empty() {
        return Some(vec![Check { always: true, kind: CheckKind::Rules { variant: "", set: None } }]);
    }
    let mut checks = Vec::new();
    let mut begin = 0;
    let mut always = true;
    for at in 0..=words.len() {
        let next = match words.get(at) {
            Some(&"then") => false,
            Some(&"and") => true,
            None => true,
            Some(_) => continue,
        };
        checks.push(Check { always, kind: check(&words[begin..at])? });
        (begin, always) = (at + 1, next);
    }
    Some(checks)
}

fn check(words: &[&'static str]) -> Option<CheckKind> {
    let (name, rest) = words.split_first()?;
    let text = |at: usize| match rest.get(at) {
        Some(word) => quoted(word),
        None => Some(""),
    };
    let optional = |at: usize| match rest.get(at) {
        Some(word) => quoted(word).map(Some),
        None => Some(None),
    };
    let number = |at: usize| rest.get(at)?.parse::<i64>().ok();
    let fail = |kind| {
        let shown = match rest.get(1..) {
            None | Some([]) => None,
            Some(["of", path]) => Some(Shown::Of(test_path(path)?)),
            Some(["value", json]) => Some(Shown::Json(serde_json::from_str(json).ok()?)),
            _ => return None,
        };
        Some(CheckKind::Fail(kind, text(0)?, shown))
    };
    Some(match *name {
        "required" => CheckKind::Required(text(0)?),
        "present" => CheckKind::Present(text(0)?),
        "forbidden" => CheckKind::Forbidden(text(0)?),
        "absent" => CheckKind::NotNil(text(0)?),
        "fail" => fail(Failure::Invalid)?,
        "fail-omitted" => fail(Failure::Omitted)?,
        "fail-forbidden" => fail(Failure::Forbidden)?,
        "fail-required" => fail(Failure::Required)?,
        "fail-notfound" => fail(Failure::NotFound)?,
        "fail-duplicate" => fail(Failure::Duplicate)?,
        "enum" => CheckKind::Enum(rest.first().map(|word| quoted(word).unwrap_or(word))?.split('|').collect()),
        "min" => CheckKind::Range { least: number(0)?, most: i64::MAX, text: optional(1)? },
        "max" => CheckKind::Range { least: i64::MIN, most: number(0)?, text: optional(1)? },
        "range" => CheckKind::Range { least: number(0)?, most: number(1)?, text: optional(2)? },
        "port" => CheckKind::Range { least: 1, most: 65535, text: None },
        "mode" => CheckKind::Range {
            least: 0,
            most: 0o777,
            text: Some("must be a number between 0 and 0777 (octal), both inclusive"),
        },
        "max-bytes" => CheckKind::MaxBytes(rest.first()?.parse().ok()?),
        "max-items" => CheckKind::MaxItems(rest.first()?.parse().ok()?),
        "unique" => match rest {
            [] => CheckKind::Unique { scope: None, by: Vec::new() },
            ["by", names] => CheckKind::Unique { scope: None, by: names.split(',').collect() },
            [scope] => CheckKind::Unique { scope: Some(scope), by: Vec::new() },
            _ => return None,
        },
        "unused" => CheckKind::Unused(rest.first()?),
        "known" => CheckKind::Known(rest.first()?),
        "same" => CheckKind::Same(Failure::Invalid, text(0).filter(|text| !text.is_empty()).unwrap_or(IMMUTABLE)),
        "same-forbidden" => CheckKind::Same(Failure::Forbidden, text(0)?),
        "same-pointer" => CheckKind::SamePointer,
        "selector" => CheckKind::Selector,
        "labels" => CheckKind::Labels,
        "annotations" => CheckKind::Annotations,
        "rules" => CheckKind::Rules { variant: rest.first().copied().unwrap_or_default(), set: None },
        "union" => {
            let (more, rest) = rest.split_first()?;
            let (none, members) = rest.split_first()?;
            let members = members.iter().map(|word| member(word)).collect::<Option<_>>()?;
            CheckKind::Union { more: quoted(more)?, none: quoted(none)?, members }
        }
        "call" => CheckKind::Call(function::named(rest.first()?)?),
        name => CheckKind::Format(format::named(name)?, optional(0)?),
    })
}

/// What a cluster says of a field that must not change.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// `name[:shown[:refused]]`
fn member(word: &'static str) -> Option<Member> {
    let mut names = word.split(':');
    let name = names.next()?;
    let shown = names.next().unwrap_or(name);
    let refused = names.next().unwrap_or(shown);
    Some(Member { step: Step { name, shown, skip: Skip::Nil, into: Into::Field }, refused, set: None })
}

fn group(words: &[&'static str]) -> Option<Vec<Test>> {
    words.split(|word| *word == "and").map(test).collect()
}

fn test(words: &[&'static str]) -> Option<Test> {
    let list = |word: &'static str| word.split('|').collect::<Vec<_>>();
    Some(match *words {
        ["create"] => Test::Create,
        ["unprivileged"] => Test::Unprivileged,
        ["update"] => Test::Update,
        [path] => match path.strip_prefix('!') {
            Some(path) => match path.strip_suffix('?') {
                Some(path) => Test::Nil(test_path(path)?),
                None => Test::Unset(test_path(path)?),
            },
            None => match path.strip_suffix('?') {
                Some(path) => Test::NotNil(test_path(path)?),
                None => Test::Set(test_path(path)?),
            },
        },
        [path, "changed"] => Test::Changed(test_path(path)?),
        [path, "unchanged"] => Test::Unchanged(test_path(path)?),
        [path, "in", words] => Test::In(test_path(path)?, list(words)),
        [path, "notin", words] => Test::NotIn(test_path(path)?, list(words)),
        [path, "<", number] => Test::Less(test_path(path)?, number.parse().ok()?),
        [path, ">", number] => Test::More(test_path(path)?, number.parse().ok()?),
        [path, "longer", number] => Test::Longer(test_path(path)?, number.parse().ok()?),
        [path, "=", other] => Test::Equal(test_path(path)?, test_path(other)?),
        [path, "!=", other] => Test::Differ(test_path(path)?, test_path(other)?),
        [path, "exceeds", other] => Test::Exceeds(test_path(path)?, test_path(other)?),
        [path, "prefix", text] => Test::Prefix(test_path(path)?, text),
        [path, "noprefix", text] => Test::NoPrefix(test_path(path)?, text),
        _ => return None,
    })
}

fn test_path(text: &'static str) -> Option<TestPath> {
    let (from, text) = if let Some(text) = text.strip_prefix("old:") {
        (From::Old, text)
    } else if let Some(text) = text.strip_prefix('/') {
        (From::Root, text)
    } else {
        let above = text.len() - text.trim_start_matches('^').len();
        (if above == 0 { From::Here } else { From::Above(above) }, &text[above..])
    };
    let mut names = Vec::new();
    for part in split_path(text) {
        match part.split_once('[') {
            Some((name, entry)) => names.extend([name, entry.strip_suffix(']')?]),
            None => names.push(part),
        }
    }
    names.retain(|name| !name.is_empty());
    Some(TestPath { from, names })
}
