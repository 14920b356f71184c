//! Templates of scaffolded files. In: the text of a template and the values for it. Out: the text of a file. Pure, and strict: a name
//! that has no value is an error, which the tests of all templates find.
//!
//! ```text
//! {{ name }}          a value
//! {% if name %}       lines that are there if the flag is set, on a line of its own; may be nested
//! {% else %}
//! {% end %}
//! ```

use std::collections::BTreeMap;

/// What a template may ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    texts: BTreeMap<&'static str, String>,
    flags: BTreeMap<&'static str, bool>,
}

/// A fault of a template.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("line {line}: {name:?} has no value")]
    NoValue { line: usize, name: String },
    #[error("line {line}: {what:?} is not understood")]
    Syntax { line: usize, what: String },
    #[error("an `if` has no end")]
    Open,
}

impl Values {
    /// A value.
    pub(super) fn text(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.texts.insert(name, value.into());
        self
    }

    /// A flag for `if`.
    pub(super) fn flag(mut self, name: &'static str, value: bool) -> Self {
        self.flags.insert(name, value);
        self
    }
}

/// Fills in a template.
pub(super) fn fill(template: &str, values: &Values) -> Result<String, TemplateError> {
    let mut out = String::new();
    // For each open `if` whether its lines are taken.
    let mut open: Vec<bool> = Vec::new();
    for (at, line) in template.split_inclusive('\n').enumerate() {
        let syntax = || TemplateError::Syntax { line: at + 1, what: line.trim().to_owned() };
        let directive = line.trim().strip_prefix("{% ").map(|rest| rest.strip_suffix(" %}").ok_or_else(syntax));
        match directive.transpose()?.map(|directive| directive.split(' ').collect::<Vec<_>>()).as_deref() {
            Some(["if", name]) => {
                let missing = || TemplateError::NoValue { line: at + 1, name: (*name).to_owned() };
                open.push(*values.flags.get(name).ok_or_else(missing)?);
            }
            Some(["else"]) => {
                let last = open.last_mut().ok_or_else(syntax)?;
                *last = !*last;
            }
            Some(["end"]) => drop(open.pop().ok_or_else(syntax)?),
            Some(_) => return Err(syntax()),
            None if open.contains(&false) => {}
            None => out += &fill_line(line, values, at + 1)?,
        }
    }
    if open.is_empty() { Ok(out) } else { Err(TemplateError::Open) }
}

/// Fills in the values of a line. A brace before `{{ ` is one of the text.
fn fill_line(line: &str, values: &Values, number: usize) -> Result<String, TemplateError> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{ ") {
        let syntax = || TemplateError::Syntax { line: number, what: line.trim().to_owned() };
        let (name, after) = after.split_once(" }}").ok_or_else(syntax)?;
        let missing = || TemplateError::NoValue { line: number, name: name.to_owned() };
        out += before;
        out += values.texts.get(name).ok_or_else(missing)?;
        rest = after;
    }
    out += rest;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expect: &str) {
        let values = Values::default().text("kind", "Shop").text("name", "x").flag("yes", true).flag("no", false);
        let found = fill(template, &values).unwrap_or_else(|error| error.to_string());
        assert_eq!(found, expect, "{template}");
    }

    #[test]
    fn values() {
        check("plain {} {x}\n", "plain {} {x}\n");
        check("a {{ kind }}Spec {{ name }}\n", "a ShopSpec x\n");
        check("use super::{{{ kind }}, {{ kind }}Status};", "use super::{Shop, ShopStatus};");
        check("\n{{ knid }}", "line 2: \"knid\" has no value");
        check("{{ kind", "line 1: \"{{ kind\" is not understood");
    }

    #[test]
    fn lines_under_a_condition() {
        check("a\n{% if yes %}\nb\n{% else %}\nc\n{% end %}\nd\n", "a\nb\nd\n");
        check("a\n{% if no %}\nb\n{% else %}\nc\n{% end %}\nd\n", "a\nc\nd\n");
        check("{% if no %}\n{% if yes %}\na\n{% end %}\nb {{ unknown }}\n{% end %}\nc", "c");
        check("{% if yes %}\n{% if no %}\na\n{% else %}\nb\n{% end %}\n{% end %}\n", "b\n");
        check("{% if maybe %}\n{% end %}\n", "line 1: \"maybe\" has no value");
        check("{% if yes %}\n", "an `if` has no end");
        check("{% end %}\n", "line 1: \"{% end %}\" is not understood");
        check("{% else %}\n", "line 1: \"{% else %}\" is not understood");
        check("{% for x %}\n", "line 1: \"{% for x %}\" is not understood");
        check("{% if yes\n", "line 1: \"{% if yes\" is not understood");
    }
}
