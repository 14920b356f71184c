//! JSON values as the Go programs around Kubernetes print them in messages.
//! In: a value. Out: its text under one of Go's formatting verbs.

use std::fmt::Write;

use serde_json::Value;

/// `%v`: bare strings, `map[a:1 b:2]`, `[1 2]`, `<nil>`.
pub fn go_plain(value: &Value) -> String {
    plain(value)
}

pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// `%#v`: as Go source, `map[string]interface {}{"a":1}`.
pub(crate) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<_> =
                fields.into_iter().map(|(name, value)| format!("{}:{}", quote(name), source(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        scalar => plain(scalar),
    }
}

/// `%q`: a quoted string with Go's escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => write!(out, "\\x{:02x}", u32::from(c)).expect("a String"),
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c)).expect("a String"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `%T`: the name of the Go type of a decoded JSON value.
pub fn go_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%v` of a float: the shortest text that reads back the same, with an exponent from 1e21 on.
pub(crate) fn float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').expect("`{:e}` writes an exponent");
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => write!(out, "{value}").expect("a String"),
        Value::Number(number) if number.is_f64() => out.push_str(&float(number.as_f64().expect("a float"))),
        Value::Number(number) => write!(out, "{number}").expect("a String"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push_str("map[");
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_plain(out, value);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prints_as_go_does() {
        let check = |value: Value, expect_plain: &str, expect_source: &str| {
            assert_eq!(plain(&value), expect_plain);
            assert_eq!(source(&value), expect_source);
        };
        check(json!(null), "<nil>", "interface {}(nil)");
        check(json!(true), "true", "true");
        check(json!(-7), "-7", "-7");
        check(json!(1.5), "1.5", "1.5");
        check(json!(1e21), "1e+21", "1e+21");
        check(json!(0.00001), "1e-05", "1e-05");
        check(json!("a\"b"), "a\"b", "\"a\\\"b\"");
        check(json!(["a", 1]), "[a 1]", "[]interface {}{\"a\", 1}");
        check(
            json!({"b": 1, "a": null}),
            "map[a:<nil> b:1]",
            "map[string]interface {}{\"a\":interface {}(nil), \"b\":1}",
        );
    }

    #[test]
    fn quotes_as_go_does() {
        let check = |text: &str, expect: &str| assert_eq!(quote(text), expect);
        check("a'b", "\"a'b\"");
        check("a\n\t\\\u{1}\u{7f}\u{85}é", "\"a\\n\\t\\\\\\x01\\x7f\\u0085é\"");
    }
}
