//! YAML that is written to files. In: JSON values, and for charts places where Helm fills something in. Out: text with sorted keys, the
//! same for the same value. It never writes what a YAML parser would read as something else.
//!
//! A place of Helm is an object with one of these keys, which no Kubernetes object has:
//!
//! ```text
//! {"$expr": E}               {{ E }} as a scalar
//! {"$block": E}              {{- toYaml E | nindent N }} as the value of a key
//! {"$with": E}               the same with its key, unless E is empty; as an item of a list, all items of E
//! {"$if": E, "$then": V}     the key or the item with the value V, if E is true
//! "$include": E              a key: the lines of E beside the other keys
//! "$with": E                 a key beside others: the keys of E, if it has some
//! ```

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Who reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// kubectl, kustomize.
    Kubernetes,
    /// Helm, before anybody: what looks like a template is escaped.
    Helm,
}

/// A value as a document, without the line that begins it.
pub(crate) fn document(value: &Value, reader: Reader) -> String {
    let mut writer = Writer { text: String::new(), reader };
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.mapping(fields, 0, ""),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0),
        scalar => {
            let scalar = writer.scalar(scalar, 0);
            writer.line(0, &scalar);
        }
    }
    writer.text
}

/// `{{ expression }}` as a scalar.
pub(crate) fn expr(expression: &str) -> Value {
    json!({"$expr": expression})
}

/// Whatever the expression has, as the value of a key.
pub(crate) fn block(expression: &str) -> Value {
    json!({"$block": expression})
}

/// Whatever the expression has, if it is not empty.
pub(crate) fn with(expression: &str) -> Value {
    json!({"$with": expression})
}

/// A value that is there only under a condition.
pub(crate) fn when(condition: &str, value: Value) -> Value {
    json!({"$if": condition, "$then": value})
}

/// The key whose value is an expression with lines beside the other keys.
pub(crate) const INCLUDE: &str = "$include";

/// The key whose value is an expression with keys beside the other keys, or with nothing.
pub(crate) const INCLUDE_KEYS: &str = "$with";

struct Writer {
    text: String,
    reader: Reader,
}

/// What a value is for Helm.
enum Place<'a> {
    Expr(&'a str),
    Block(&'a str),
    With(&'a str),
    If(&'a str, &'a Value),
    Plain,
}

fn place(value: &Value) -> Place<'_> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match value.as_object().map(Map::len) {
        Some(1) => match (text("$expr"), text("$block"), text("$with")) {
            (Some(expression), ..) => Place::Expr(expression),
            (_, Some(expression), _) => Place::Block(expression),
            (.., Some(expression)) => Place::With(expression),
            _ => Place::Plain,
        },
        Some(2) => match (text("$if"), value.get("$then")) {
            (Some(condition), Some(value)) => Place::If(condition, value),
            _ => Place::Plain,
        },
        _ => Place::Plain,
    }
}

impl Writer {
    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.text, "{:indent$}{text}", "");
    }

    /// `first` stands before the first key instead of spaces: the dash of a list's item.
    fn mapping(&mut self, fields: &Map<String, Value>, indent: usize, first: &str) {
        let mut dash = first;
        // The dash of an item stands before a key that is always there.
        let is_later = |key: &str, value: &Value| {
            !first.is_empty() && (key.starts_with('$') || matches!(place(value), Place::If(..) | Place::With(_)))
        };
        let (later, now): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, value)| is_later(key, value));
        for (key, value) in now.into_iter().chain(later) {
            let expression = value.as_str().unwrap_or_default();
            if key == INCLUDE {
                self.line(indent, &format!("{{{{- {expression} | nindent {indent} }}}}"));
                continue;
            }
            if key == INCLUDE_KEYS {
                self.line(indent, &format!("{{{{- with {expression} }}}}"));
                self.line(indent, &format!("{{{{- toYaml . | nindent {indent} }}}}"));
                self.line(indent, "{{- end }}");
                continue;
            }
            let condition = match place(value) {
                Place::If(condition, value) => Some((format!("if {condition}"), value)),
                Place::With(expression) => Some((format!("with {expression}"), value)),
                _ => None,
            };
            match condition {
                Some((condition, value)) => {
                    self.line(indent, &format!("{{{{- {condition} }}}}"));
                    self.entry(key, value, indent, dash);
                    self.line(indent, "{{- end }}");
                }
                None => self.entry(key, value, indent, dash),
            }
            dash = "";
        }
    }

    fn entry(&mut self, key: &str, value: &Value, indent: usize, dash: &str) {
        let key = self.escape(&quoted_if_needed(key));
        let lead = format!("{:width$}{dash}", "", width = indent - dash.len());
        let inner = indent + 2;
        match place(value) {
            Place::Expr(expression) => self.line(0, &format!("{lead}{key}: {{{{ {expression} }}}}")),
            Place::Block(expression) => {
                self.line(0, &format!("{lead}{key}:"));
                self.line(inner, &format!("{{{{- toYaml {expression} | nindent {inner} }}}}"));
            }
            // The `with` is around this line.
            Place::With(_) => {
                self.line(0, &format!("{lead}{key}:"));
                self.line(inner, &format!("{{{{- toYaml . | nindent {inner} }}}}"));
            }
            Place::If(_, value) => self.entry(key.as_str(), value, indent, dash),
            Place::Plain => match value {
                Value::Object(fields) if !fields.is_empty() => {
                    self.line(0, &format!("{lead}{key}:"));
                    self.mapping(fields, inner, "");
                }
                Value::Array(items) if !items.is_empty() => {
                    self.line(0, &format!("{lead}{key}:"));
                    self.sequence(items, indent);
                }
                scalar => {
                    let scalar = self.scalar(scalar, inner);
                    self.line(0, &format!("{lead}{key}: {scalar}"));
                }
            },
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize) {
        for item in items {
            match place(item) {
                Place::If(condition, value) => {
                    self.line(indent, &format!("{{{{- if {condition} }}}}"));
                    self.item(value, indent);
                    self.line(indent, "{{- end }}");
                }
                Place::With(expression) => {
                    self.line(indent, &format!("{{{{- with {expression} }}}}"));
                    self.line(indent, &format!("{{{{- toYaml . | nindent {indent} }}}}"));
                    self.line(indent, "{{- end }}");
                }
                Place::Expr(expression) => self.line(indent, &format!("- {{{{ {expression} }}}}")),
                Place::Block(_) | Place::Plain => self.item(item, indent),
            }
        }
    }

    fn item(&mut self, item: &Value, indent: usize) {
        match (place(item), item) {
            (Place::Expr(expression), _) => self.line(indent, &format!("- {{{{ {expression} }}}}")),
            (_, Value::Object(fields)) if !fields.is_empty() => self.mapping(fields, indent + 2, "- "),
            (_, Value::Array(items)) if !items.is_empty() => {
                // A list in a list begins on a line of its own.
                self.line(indent, "-");
                self.sequence(items, indent + 2);
            }
            (_, scalar) => {
                let scalar = self.scalar(scalar, indent + 2);
                self.line(indent, &format!("- {scalar}"));
            }
        }
    }

    /// A scalar; the lines of a text with several are `indent` deep.
    fn scalar(&self, value: &Value, indent: usize) -> String {
        match value {
            Value::Object(_) => "{}".to_owned(),
            Value::Array(_) => "[]".to_owned(),
            Value::String(text) if is_literal(text) => {
                let keep = if text.ends_with('\n') { "|" } else { "|-" };
                let line = |line: &str| match line {
                    "" => "\n".to_owned(),
                    line => format!("\n{:indent$}{line}", ""),
                };
                let lines: String = text.trim_end_matches('\n').split('\n').map(line).collect();
                self.escape(&format!("{keep}{lines}"))
            }
            Value::String(text) => self.escape(&quoted_if_needed(text)),
            Value::Number(number) => match number.as_f64() {
                // A Rust type has floats where a schema has whole numbers.
                Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                    format!("{}", float as i64)
                }
                _ => number.to_string(),
            },
            other => other.to_string(),
        }
    }

    fn escape(&self, text: &str) -> String {
        match self.reader {
            Reader::Kubernetes => text.to_owned(),
            Reader::Helm => text.replace("{{", "{{ \"{{\" }}"),
        }
    }
}

/// Whether a text has several lines, and can be written line by line.
fn is_literal(text: &str) -> bool {
    let content = text.strip_suffix('\n').unwrap_or(text);
    content.contains('\n')
        && !content.ends_with('\n')
        && !content.starts_with([' ', '\n'])
        && text.chars().all(|character| character == '\n' || is_printable(character))
}

fn is_printable(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A text as it stands, where every YAML parser reads it as this text; in double quotes otherwise.
fn quoted_if_needed(text: &str) -> String {
    /// What some version of YAML reads as something else than a text.
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(is_printable)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    quoted.chars().fold(String::new(), |mut safe, character| {
        match is_printable(character) {
            true => safe.push(character),
            false => {
                let _ = write!(safe, "\\u{:04x}", u32::from(character));
            }
        }
        safe
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_back() {
        let texts = [
            "",
            "a",
            "1",
            "1.5",
            "0x10",
            "1e3",
            "true",
            "Yes",
            "no",
            "null",
            "~",
            "-",
            "- a",
            "a: b",
            "a:",
            "a #b",
            "#a",
            " a",
            "a ",
            "a\nb",
            "a\nb\n",
            "a\n\nb",
            "\na",
            "a\n\n",
            " a\nb",
            "tab\there",
            "a\n\tb",
            "quote \"and\" 'other'",
            "{a}",
            "[a]",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "|",
            ">",
            "12:30",
            "2020-01-01",
            ".5",
            ".inf",
            "ünï",
            "a\u{85}b",
            "a\u{2028}b",
            "\u{feff}",
            "back\\slash",
            "a{{b}}c",
            "x, y",
            "---",
            "...",
            "?",
            "/path/to",
            "https://example.com/a:b",
            "a\r\nb",
            "\u{7}",
        ];
        let value = json!({
            "texts": texts.to_vec(),
            "keys": texts.iter().map(|text| (text.to_string(), json!(1))).collect::<Map<_, _>>(),
            "numbers": [0, -1, 1.5, 65535.0, 1e300, u64::MAX],
            "others": [true, false, null, {}, [], [[1, 2], [3]], {"a": [{"b": []}, {"c": {"d": "e\nf"}}]}],
        });
        let text = document(&value, Reader::Kubernetes);
        let read: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let whole = |value: &Value| value.to_string().replace("65535.0", "65535");
        assert_eq!(whole(&read), whole(&value), "{text}");
    }

    #[track_caller]
    fn check(value: Value, expect: &str) {
        assert_eq!(document(&value, Reader::Helm), expect);
    }

    #[test]
    fn places_of_helm() {
        check(json!({"a": {"b": expr(".Values.b"), "c": 1}}), "a:\n  b: {{ .Values.b }}\n  c: 1\n");
        check(json!({"a": {"b": block(".Values.b")}}), "a:\n  b:\n    {{- toYaml .Values.b | nindent 4 }}\n");
        check(
            json!({"a": with(".Values.b")}),
            "{{- with .Values.b }}\na:\n  {{- toYaml . | nindent 2 }}\n{{- end }}\n",
        );
        check(json!({"a": when(".Values.b", json!([1]))}), "{{- if .Values.b }}\na:\n- 1\n{{- end }}\n");
        check(
            json!({"a": ["x", when(".Values.b", json!({"c": 1, "d": 2})), with(".Values.e"), expr(".Values.f")]}),
            "a:\n- x\n{{- if .Values.b }}\n- c: 1\n  d: 2\n{{- end }}\n{{- with .Values.e }}\n{{- toYaml . | nindent 0 }}\n{{- end }}\n- {{ .Values.f }}\n",
        );
        check(
            json!({"labels": {INCLUDE: "include \"x\" $", "z": "y1"}}),
            "labels:\n  {{- include \"x\" $ | nindent 2 }}\n  z: y1\n",
        );
        check(
            json!({"labels": {INCLUDE_KEYS: ".Values.l", "z": "y1"}}),
            "labels:\n  {{- with .Values.l }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n  z: y1\n",
        );
        // An item needs its dash, whatever the condition.
        check(
            json!([{"a": with(".Values.a"), "b": 1}]),
            "- b: 1\n  {{- with .Values.a }}\n  a:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n",
        );
        // What is no place of ours is none of Helm's.
        check(json!({"a": "text with {{ braces }}"}), "a: text with {{ \"{{\" }} braces }}\n");
    }
}
