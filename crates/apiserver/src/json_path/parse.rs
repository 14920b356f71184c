//! From the text of a path to its steps. In: what a CRD wrote. Out: steps, or why there are none, in the words of
//! client-go, whose grammar this is: dots in quoted keys are steps unless escaped.

use std::borrow::Cow;

use serde_json::Value;

use super::{End, FilterExpression, JsonPath, JsonPathError, Operator, Slice, Step};

pub(super) fn path(text: &str) -> Result<JsonPath, JsonPathError> {
    Parser { text, at: 0, steps: Vec::new() }.path()
}

fn fail<T>(problem: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(problem.into()))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    steps: Vec<Step>,
}

impl<'a> Parser<'a> {
    fn path(mut self) -> Result<JsonPath, JsonPathError> {
        while let Some(next) = self.rest().chars().next() {
            match next {
                _ if self.rest().starts_with("[?(") => self.filter()?,
                _ if self.rest().starts_with("..") => self.recursive()?,
                '\r' | '\n' => return fail("unclosed action"),
                // The current object, which is where every path starts.
                ' ' | '@' | '$' => self.at += 1,
                '[' => self.brackets()?,
                '"' | '\'' => self.quoted(next)?,
                '.' => {
                    self.at += 1;
                    self.field();
                }
                '+' | '-' | '0'..='9' => self.number()?,
                next if next == '_' || next.is_alphanumeric() => self.word()?,
                next => {
                    return fail(format!("unrecognized character in action: U+{:04X} '{next}'", u32::from(next)));
                }
            }
        }
        Ok(JsonPath { steps: self.steps })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.rest()[..length];
        self.at += length;
        taken
    }

    fn field(&mut self) {
        let mut escaped = false;
        let length = self.rest().find(|next| {
            let ends = !escaped && terminates(next);
            escaped = !escaped && next == '\\';
            ends
        });
        let name = self.take(length.unwrap_or(self.rest().len()));
        self.steps.push(if name == "*" { Step::Wildcard } else { Step::Field(unescape(name).into()) });
    }

    fn recursive(&mut self) -> Result<(), JsonPathError> {
        if self.steps.last() == Some(&Step::Recursive) {
            return fail("invalid multiple recursive descent");
        }
        self.at += "..".len();
        self.steps.push(Step::Recursive);
        if self.rest().starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
            self.field();
        }
        Ok(())
    }

    fn brackets(&mut self) -> Result<(), JsonPathError> {
        let Some(length) = self.rest().find([']', '\n']).filter(|at| self.rest()[*at..].starts_with(']')) else {
            return fail("unterminated array");
        };
        let inside = &self.take(length + 1)[1..length];
        let step = match inside.split(',').collect::<Vec<_>>().as_slice() {
            [one] => match one.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                // A key reads like a field, so its dots are steps too unless escaped.
                Some(key) if !key.contains('\'') => {
                    self.steps.extend(JsonPath::compile(&format!(".{key}"))?.steps);
                    return Ok(());
                }
                _ => Step::Slice(slice(one)?),
            },
            many => {
                let paths = many.iter().map(|one| JsonPath::compile(&format!("[{}]", one.trim_matches(' '))));
                Step::Union(paths.collect::<Result<_, _>>()?)
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn filter(&mut self) -> Result<(), JsonPathError> {
        self.at += "[?(".len();
        let Some(length) = filter_end(self.rest()) else { return fail("unterminated filter") };
        let inside = self.take(length);
        self.at += ")".len();
        if !self.rest().starts_with(']') {
            return fail("unclosed array expect ]");
        }
        self.at += "]".len();
        let symbol = |next: char| matches!(next, '!' | '<' | '>' | '=' | '~');
        let filter = match inside.find(symbol).filter(|at| *at > 0) {
            None => FilterExpression { left: JsonPath::compile(inside)?, test: None },
            Some(at) => {
                let (left, rest) = inside.split_at(at);
                let (operator, right) = rest.split_at(rest.find(|next| !symbol(next)).unwrap_or(rest.len()));
                let Some(known) = operator_of(operator) else {
                    return fail(format!("unrecognized filter operator {operator}"));
                };
                FilterExpression { left: JsonPath::compile(left)?, test: Some((known, JsonPath::compile(right)?)) }
            }
        };
        self.steps.push(Step::FilterExpression(Box::new(filter)));
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), JsonPathError> {
        let mut escaped = false;
        let closing = self.rest()[1..].find(|next| {
            let ends = !escaped && next == quote;
            escaped = !escaped && next == '\\';
            ends
        });
        let Some(length) = closing else { return fail("unterminated quoted string") };
        let quoted = self.take(length + 2);
        self.steps.push(Step::Literal(unescape(&quoted[1..=length]).into()));
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonPathError> {
        let digits = self.rest()[1..].find(|next: char| next != '.' && !next.is_ascii_digit());
        let text = self.take(digits.map_or(self.rest().len(), |at| at + 1));
        let number = match text.parse::<i64>() {
            Ok(integer) => Value::from(integer),
            Err(_) => match text.parse::<f64>() {
                Ok(float) => Value::from(float),
                Err(_) => return fail(format!("cannot parse number {text}")),
            },
        };
        self.steps.push(Step::Literal(number));
        Ok(())
    }

    fn word(&mut self) -> Result<(), JsonPathError> {
        match self.take(self.rest().find(terminates).unwrap_or(self.rest().len())) {
            "true" => self.steps.push(Step::Literal(true.into())),
            "false" => self.steps.push(Step::Literal(false.into())),
            other => return fail(format!("unrecognized identifier {other}")),
        }
        Ok(())
    }
}

fn operator_of(text: &str) -> Option<Operator> {
    Some(match text {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterEqual,
        _ => return None,
    })
}

/// Where the `)` of a filter is; one quoted text may hold others.
fn filter_end(text: &str) -> Option<usize> {
    let (mut quote, mut closed, mut before) = (None, true, ' ');
    for (at, next) in text.char_indices() {
        match next {
            '\n' => return None,
            '"' | '\'' if quote.is_none() => (quote, closed) = (Some(next), false),
            '"' | '\'' if quote == Some(next) && before != '\\' => closed = true,
            ')' if closed => return Some(at),
            _ => {}
        }
        before = next;
    }
    None
}

fn slice(text: &str) -> Result<Slice, JsonPathError> {
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<&str> = text.split(':').collect();
    let digits = |part: &str| part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(|part| digits(part)) {
        return fail(format!("invalid array index {text}"));
    }
    let number = |part: Option<&&str>| match part {
        None | Some(&"") => Ok(None),
        Some(part) => match part.parse::<i64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => fail(format!("array index {part} is not a number")),
        },
    };
    let end = match (parts.get(1), number(parts.get(1))?) {
        (None, _) => End::AfterStart,
        (_, Some(end)) => End::At(end),
        (_, None) => End::Last,
    };
    Ok(Slice { start: number(parts.first())?, end, step: number(parts.get(2))? })
}

fn terminates(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn unescape(text: &str) -> Cow<'_, str> {
    if text.contains('\\') { text.replace('\\', "").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses() {
        #[track_caller]
        fn check(path: &str, expect: &str) {
            assert_eq!(JsonPath::compile(path).unwrap_err().to_string(), expect);
        }
        check(".spec.list[0", "unterminated array");
        check(".spec.list[x]", "invalid array index x");
        check(".spec.list[1:2:3:4]", "invalid array index 1:2:3:4");
        check(".spec.list[99999999999999999999]", "array index 99999999999999999999 is not a number");
        check(".spec.list[?(@.x==1]", "unterminated filter");
        check(".spec.list[?(@.x==1)", "unclosed array expect ]");
        check(".spec.list[?(@.x=1)]", "unrecognized filter operator =");
        check(".spec.list[?(@.x=='1)]", "unterminated filter");
        check(".spec....x", "invalid multiple recursive descent");
        check("spec.x", "unrecognized identifier spec");
        check("(.x)", "unrecognized character in action: U+0028 '('");
        check(".x \"open", "unterminated quoted string");
        check(".x -", "cannot parse number -");
        check(".x\n", "unclosed action");
    }
}
