//! Functions of strings. Positions count characters.

use crate::value::{Answer, EvalError, Text, Value};

use super::no_overload;

fn out_of_range(at: i64) -> EvalError {
    format!("index out of range: {at}").into()
}

pub(super) fn contains<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(text.contains(&**part))),
        _ => Err("no such overload".into()),
    }
}

pub(super) fn starts_with<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(text.starts_with(&**part))),
        _ => Err("no such overload".into()),
    }
}

pub(super) fn ends_with<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(text.ends_with(&**part))),
        _ => Err("no such overload".into()),
    }
}

pub(super) fn char_at<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let (Value::String(text), Value::Int(at)) = (&args[0], &args[1]) else { return Err(no_overload("charAt", args)) };
    let length = text.chars().count() as i64;
    if *at < 0 || *at > length {
        return Err(out_of_range(*at));
    }
    Ok(Value::text(text.chars().nth(*at as usize).map(String::from).unwrap_or_default()))
}

/// Where `part` is first, or last if `backwards`, seen from `from`.
pub(super) fn position<'a>(text: &str, part: &str, from: Option<i64>, backwards: bool) -> Answer<'a> {
    let text: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let from = match from {
        Some(from) => from,
        None if backwards && part.is_empty() => return Ok(Value::Int(text.len() as i64)),
        None if backwards && text.len() < part.len() => return Ok(Value::Int(-1)),
        None if backwards => text.len() as i64 - 1,
        None => 0,
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    if from >= text.len() as i64 || part.len() > text.len() {
        return Ok(Value::Int(-1));
    }
    let last = text.len() - part.len();
    let found = |at: &usize| text[*at..*at + part.len()] == part[..];
    let at =
        if backwards { (0..=last.min(from as usize)).rev().find(found) } else { (from as usize..=last).find(found) };
    Ok(Value::Int(at.map_or(-1, |at| at as i64)))
}

pub(super) fn lower_ascii<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::text(text.to_ascii_lowercase())),
        _ => Err(no_overload("lowerAscii", args)),
    }
}

pub(super) fn upper_ascii<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(text) => Ok(Value::text(text.to_ascii_uppercase())),
        _ => Err(no_overload("upperAscii", args)),
    }
}

pub(super) fn replace<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(old), Value::String(new)] => Ok(Value::text(text.replace(&**old, new))),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(count)] => {
            Ok(Value::text(match usize::try_from(*count) {
                Ok(count) => text.replacen(&**old, new, count),
                Err(_) => text.replace(&**old, new),
            }))
        }
        _ => Err(no_overload("replace", args)),
    }
}

pub(super) fn split<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let (text, separator, count) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(count)] => (text, separator, *count),
        _ => return Err(no_overload("split", args)),
    };
    let count = match usize::try_from(count) {
        Ok(0) => return Ok(Value::list(Vec::new())),
        Ok(count) => count,
        Err(_) => usize::MAX,
    };
    if !separator.is_empty() {
        return Ok(Value::texts(text.splitn(count, &**separator).map(str::to_owned)));
    }
    // Each character is a part; the last has what is left.
    let mut parts = Vec::new();
    let mut rest = &**text;
    while let Some(c) = rest.chars().next() {
        let end = if parts.len() + 1 == count { rest.len() } else { c.len_utf8() };
        parts.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    Ok(Value::texts(parts))
}

pub(super) fn substring<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::String(text) = &args[0] else { return Err(no_overload("substring", args)) };
    let length = text.chars().count() as i64;
    let (from, to) = match &args[1..] {
        [Value::Int(from)] => (*from, length),
        [Value::Int(from), Value::Int(to)] if from > to => {
            return Err(format!("invalid substring range. start: {from}, end: {to}").into());
        }
        [Value::Int(from), Value::Int(to)] => (*from, *to),
        _ => return Err(no_overload("substring", args)),
    };
    for at in [from, to] {
        if at < 0 || at > length {
            return Err(out_of_range(at));
        }
    }
    Ok(Value::text(text.chars().skip(from as usize).take((to - from) as usize).collect::<String>()))
}

pub(super) fn trim<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(Text::Borrowed(text)) => Ok(Value::String(Text::Borrowed(text.trim()))),
        Value::String(text) => Ok(Value::text(text.trim())),
        _ => Err(no_overload("trim", args)),
    }
}

pub(super) fn join<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::List(list) = &args[0] else { return Err(no_overload("join", args)) };
    let separator = match args.get(1) {
        None => "",
        Some(Value::String(separator)) => separator,
        Some(_) => return Err(no_overload("join", args)),
    };
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            joined.push_str(separator);
        }
        match item? {
            Value::String(text) => joined.push_str(&text),
            other => return Err(format!("join: invalid input: {other}").into()),
        }
    }
    Ok(Value::text(joined))
}

pub(super) fn quote<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let Value::String(text) = &args[0] else { return Err(no_overload("strings.quote", args)) };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}

/// A key as the path of a JSON patch has it.
pub(super) fn escape_key<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(key)] => Ok(Value::text(key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(no_overload("jsonpatch.escapeKey", args)),
    }
}
