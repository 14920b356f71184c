//! From Go's regular expression syntax to that of the `regex` crate. In: one expression. Out: one that matches
//! the same texts, or the error of Go's parser.

use std::fmt::Write as _;

/// Go's cap on a counted repetition.
const MAX_REPEAT: i64 = 1000;

/// Rewrites `text`; the error is Go's, without its prefix.
pub(super) fn translate(text: &str) -> Result<String, String> {
    Parser { whole: text, rest: text, out: String::with_capacity(text.len() + 8) }.run()
}

struct Parser<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<String, String> {
        // The number of open groups; for each, whether a repetition has an operand; where the last repetition began.
        let mut open = 0usize;
        let mut operand = vec![false];
        let mut last_repeat: Option<&'a str> = None;
        while let Some(first) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeated = false;
            match first {
                '(' if before.starts_with("(?") => {
                    if self.perl_group()? {
                        open += 1;
                        operand.push(false);
                    }
                }
                '(' => {
                    self.skip(1);
                    self.out.push('(');
                    open += 1;
                    operand.push(false);
                }
                '|' => {
                    self.skip(1);
                    self.out.push('|');
                    set_last(&mut operand, false);
                }
                ')' => {
                    if open == 0 {
                        return Err(format!("unexpected ): `{}`", self.whole));
                    }
                    self.skip(1);
                    self.out.push(')');
                    open -= 1;
                    operand.pop();
                    set_last(&mut operand, true);
                }
                '*' | '+' | '?' => {
                    self.skip(1);
                    self.out.push(first);
                    self.repeat(before, last_repeat, &operand)?;
                    repeated = true;
                }
                '{' => match counted(before) {
                    Some((min, max, len)) => {
                        if !(0..=MAX_REPEAT).contains(&min) || max > MAX_REPEAT || (max >= 0 && min > max) {
                            return Err(format!("invalid repeat count: `{}`", &before[..len]));
                        }
                        self.skip(len);
                        self.out.push_str(&before[..len]);
                        self.repeat(before, last_repeat, &operand)?;
                        repeated = true;
                    }
                    None => {
                        self.skip(1);
                        self.out.push_str("\\{");
                        set_last(&mut operand, true);
                    }
                },
                '[' => {
                    self.class()?;
                    set_last(&mut operand, true);
                }
                '\\' => {
                    self.escape()?;
                    set_last(&mut operand, true);
                }
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.out.push(first);
                    set_last(&mut operand, true);
                }
                literal => {
                    self.skip(literal.len_utf8());
                    push_literal(&mut self.out, literal);
                    set_last(&mut operand, true);
                }
            }
            last_repeat = repeated.then_some(before);
        }
        if open > 0 {
            return Err(format!("missing closing ): `{}`", self.whole));
        }
        Ok(self.out)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// Ends a repetition that began at `before`: reads a lazy mark and checks that there is an operand.
    fn repeat(&mut self, before: &str, last: Option<&str>, operand: &[bool]) -> Result<(), String> {
        if self.rest.starts_with('?') {
            self.skip(1);
            self.out.push('?');
        }
        if let Some(last) = last {
            return Err(format!("invalid nested repetition operator: `{}`", &last[..last.len() - self.rest.len()]));
        }
        if operand.last() != Some(&true) {
            let op = &before[..before.len() - self.rest.len()];
            return Err(format!("missing argument to repetition operator: `{op}`"));
        }
        Ok(())
    }

    /// `(?flags)`, `(?flags:` or a named group. Returns whether a group was opened.
    fn perl_group(&mut self) -> Result<bool, String> {
        let start = self.rest;
        let named = (start.len() > 4 && start.starts_with("(?P<")) || (start.len() > 3 && start.starts_with("(?<"));
        if named {
            let Some(end) = start.find('>') else {
                return Err(format!("invalid named capture: `{start}`"));
            };
            let name = &start[start.find('<').expect("both openings have it") + 1..end];
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("invalid named capture: `{}`", &start[..=end]));
            }
            self.skip(end + 1);
            // Nothing uses the name, so it is dropped; Go allows duplicate names.
            self.out.push('(');
            return Ok(true);
        }
        let (mut on, mut off) = (String::new(), String::new());
        let (mut negative, mut saw) = (false, false);
        for (at, flag) in start.char_indices().skip(2) {
            let consumed = at + flag.len_utf8();
            match flag {
                'i' | 'm' | 's' | 'U' => {
                    saw = true;
                    on.retain(|known| known != flag);
                    off.retain(|known| known != flag);
                    if negative { off.push(flag) } else { on.push(flag) }
                }
                '-' if !negative => {
                    negative = true;
                    saw = false;
                }
                ':' | ')' if !negative || saw => {
                    self.skip(consumed);
                    let flags = if off.is_empty() { on } else { format!("{on}-{off}") };
                    match flag {
                        ':' => write!(self.out, "(?{flags}:").expect("a String takes all"),
                        _ if flags.is_empty() => self.out.push_str("(?:)"),
                        _ => write!(self.out, "(?{flags})").expect("a String takes all"),
                    }
                    return Ok(flag == ':');
                }
                _ => return Err(format!("invalid or unsupported Perl syntax: `{}`", &start[..consumed])),
            }
        }
        Err(format!("invalid or unsupported Perl syntax: `{start}`"))
    }

    /// A backslash outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let start = self.rest;
        let kind = start[1..].chars().next();
        match kind {
            Some('A' | 'z') => {
                self.out.push_str(&start[..2]);
                self.skip(2);
            }
            Some('b') => {
                self.out.push_str("(?-u:\\b)");
                self.skip(2);
            }
            Some('B') => {
                self.out.push_str("(?-u:\\B)");
                self.skip(2);
            }
            Some('Q') => {
                let body = &start[2..];
                let (literal, used) = match body.find("\\E") {
                    Some(end) => (&body[..end], end + 4),
                    None => (body, start.len()),
                };
                self.out.push_str("(?:");
                literal.chars().for_each(|c| push_literal(&mut self.out, c));
                self.out.push(')');
                self.skip(used);
            }
            Some(letter) if perl_class(letter).is_some() => {
                let (negated, ranges) = perl_class(letter).expect("just asked");
                write!(self.out, "[{}{ranges}]", if negated { "^" } else { "" }).expect("a String takes all");
                self.skip(2);
            }
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.out.push_str(&class);
            }
            _ => {
                let (c, used) = single_escape(start)?;
                write!(self.out, "\\x{{{:X}}}", c as u32).expect("a String takes all");
                self.skip(used);
            }
        }
        Ok(())
    }

    /// `\pL`, `\p{Greek}`, `\P{^L}`, as the crate spells it.
    fn unicode_class(&mut self) -> Result<String, String> {
        let start = self.rest;
        let mut negated = start.starts_with("\\P");
        let invalid = |used: usize| format!("invalid character class range: `{}`", &start[..used]);
        let (mut name, used) = match start[2..].chars().next() {
            None => return Err(invalid(start.len())),
            Some('{') => match start.find('}') {
                None => return Err(invalid(start.len())),
                Some(end) => (&start[3..end], end + 1),
            },
            Some(letter) => (&start[2..2 + letter.len_utf8()], 2 + letter.len_utf8()),
        };
        if let Some(inner) = name.strip_prefix('^') {
            negated = !negated;
            name = inner;
        }
        let class = format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        let known = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && regex::Regex::new(&class).is_ok();
        if !known {
            return Err(invalid(used));
        }
        self.skip(used);
        Ok(class)
    }

    /// A bracketed class.
    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        self.skip(1);
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.skip(1);
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if let Some(name) = posix_class(self.rest) {
                let inner = name.trim_start_matches("[:").trim_end_matches(":]");
                if !POSIX.contains(&inner.trim_start_matches('^')) {
                    return Err(format!("invalid character class range: `{name}`"));
                }
                self.out.push_str(name);
                self.skip(name.len());
                continue;
            }
            if self.rest.starts_with("\\p") || self.rest.starts_with("\\P") {
                let class = self.unicode_class()?;
                self.out.push_str(&class);
                continue;
            }
            if let Some((negated, ranges)) = self.rest.strip_prefix('\\').and_then(|r| perl_class(r.chars().next()?)) {
                self.out.push('[');
                self.out.push_str(if negated { "^" } else { "" });
                self.out.push_str(ranges);
                self.out.push(']');
                self.skip(2);
                continue;
            }
            let range = self.rest;
            let low = self.class_char(whole)?;
            let mut high = low;
            if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest[1..].starts_with(']') {
                self.skip(1);
                high = self.class_char(whole)?;
                if high < low {
                    let text = &range[..range.len() - self.rest.len()];
                    return Err(format!("invalid character class range: `{text}`"));
                }
            }
            write!(self.out, "\\x{{{:X}}}", low as u32).expect("a String takes all");
            if high != low {
                write!(self.out, "-\\x{{{:X}}}", high as u32).expect("a String takes all");
            }
        }
        self.skip(1);
        self.out.push(']');
        Ok(())
    }

    /// One character of a class.
    fn class_char(&mut self, whole: &str) -> Result<char, String> {
        let Some(first) = self.rest.chars().next() else {
            return Err(format!("missing closing ]: `{whole}`"));
        };
        let (c, used) = if first == '\\' { single_escape(self.rest)? } else { (first, first.len_utf8()) };
        self.skip(used);
        Ok(c)
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// `[:name:]` at the start of `text`.
fn posix_class(text: &str) -> Option<&str> {
    let body = text.strip_prefix("[:")?;
    body.find(":]").map(|end| &text[..end + 4])
}

/// The ASCII ranges of `\d`, `\s`, `\w` and whether the letter negates them.
fn perl_class(letter: char) -> Option<(bool, &'static str)> {
    let ranges = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\x0C\\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), ranges))
}

/// An escape that stands for one character, with its length in bytes.
fn single_escape(text: &str) -> Result<(char, usize), String> {
    let mut chars = text.char_indices().skip(1).peekable();
    let Some((at, kind)) = chars.next() else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let mut used = at + kind.len_utf8();
    let invalid = |used: usize| format!("invalid escape sequence: `{}`", &text[..used]);
    let code = match kind {
        '0'..='7' => {
            let octal = |c: &(usize, char)| c.1.is_digit(8);
            if kind != '0' && !chars.peek().is_some_and(octal) {
                return Err(invalid(used));
            }
            let mut code = kind as u32 - '0' as u32;
            for _ in 0..2 {
                let Some((_, digit)) = chars.next_if(octal) else { break };
                code = code * 8 + digit as u32 - '0' as u32;
                used += 1;
            }
            code
        }
        'x' => {
            let mut code = 0u32;
            match chars.next() {
                Some((_, '{')) => {
                    used += 1;
                    let mut digits = 0;
                    loop {
                        let Some((_, c)) = chars.next() else { return Err(invalid(text.len())) };
                        used += c.len_utf8();
                        if c == '}' {
                            break;
                        }
                        let Some(digit) = c.to_digit(16) else { return Err(invalid(used)) };
                        code = code * 16 + digit;
                        digits += 1;
                        if code > char::MAX as u32 {
                            return Err(invalid(used));
                        }
                    }
                    if digits == 0 {
                        return Err(invalid(used));
                    }
                }
                Some((_, high)) => {
                    used += high.len_utf8();
                    let low = chars.next();
                    used += low.map_or(0, |(_, c)| c.len_utf8());
                    match (high.to_digit(16), low.and_then(|(_, c)| c.to_digit(16))) {
                        (Some(high), Some(low)) => code = high * 16 + low,
                        _ => return Err(invalid(used)),
                    }
                }
                None => return Err(invalid(used)),
            }
            code
        }
        'a' => 7,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c as u32,
        _ => return Err(invalid(used)),
    };
    char::from_u32(code).map(|c| (c, used)).ok_or_else(|| invalid(used))
}

/// `{min}`, `{min,}` or `{min,max}` with its length; anything else is a literal brace. `-1` means no bound, and
/// numbers that overflow are above [`MAX_REPEAT`].
fn counted(text: &str) -> Option<(i64, i64, usize)> {
    let close = text.find('}')?;
    let number = |digits: &str| -> Option<i64> {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        (plain && (digits.len() == 1 || !digits.starts_with('0'))).then(|| digits.parse().unwrap_or(i64::MAX))
    };
    let (min, max) = match text[1..close].split_once(',') {
        None => number(&text[1..close]).map(|n| (n, n))?,
        Some((min, "")) => (number(min)?, -1),
        Some((min, max)) => (number(min)?, number(max)?),
    };
    Some((min, max, close + 1))
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() && c != ' ' && c != '_' {
        write!(out, "\\x{{{:X}}}", c as u32).expect("a String takes all");
    } else {
        out.push(c);
    }
}

fn set_last(stack: &mut [bool], value: bool) {
    *stack.last_mut().expect("the outermost level is never popped") = value;
}
