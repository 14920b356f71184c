//! Rust code without comments, literals and tests. In: the text of a file. Out: the code that a program is made of. It is
//! not a Rust parser: it knows how comments and literals begin and end, and how brackets nest.

/// The text without comments, the content of strings and characters, and the items under `#[cfg(test)]`.
pub(super) fn without_tests_and_literals(text: &str) -> String {
    without_tests(&without_literals(text))
}

fn without_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inside_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            '\'' => character(rest),
            'r' | 'b' | 'c' if !inside_word => raw_string(rest),
            _ => 0,
        };
        if skipped > 0 {
            out.push(' ');
            rest = &rest[skipped..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// The length of a block comment at the start of `text`. Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let (step, change) = match rest {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of a string at the start of `text`, which may contain escaped quotes.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of a raw string at the start of `text`: `r"…"`, `br#"…"#`. 0 if there is none.
fn raw_string(text: &str) -> usize {
    let Some(after) = text.trim_start_matches(['b', 'c']).strip_prefix('r') else { return 0 };
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    if !after[hashes..].starts_with('"') {
        return 0;
    }
    let start = text.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

/// The length of a character at the start of `text`; 0 if the quote begins a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        // The escaped character may be a quote itself.
        Some((_, '\\')) => text.char_indices().skip(3).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

fn without_tests(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(ATTRIBUTE) {
        out.push_str(&rest[..at]);
        rest = &rest[at + ATTRIBUTE.len()..];
        rest = &rest[item(rest)..];
    }
    out.push_str(rest);
    out
}

/// The length of the item at the start of `code`: it ends with its block, or with a semicolon.
fn item(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let code = without_tests_and_literals(text);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expect, "{text}");
    }

    #[test]
    fn comments_are_removed() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check("a / b", "a / b");
    }

    #[test]
    fn literals_are_removed() {
        check(r#"a "b // \" c" d"#, "a d");
        check("a r\"b\" c", "a c");
        check("a br#\"b \" c\"# d", "a d");
        check("for\"b\"", "for");
        check("r#type", "r#type");
        check(r"a '\'' b '{' c '\u{1f}' d", "a b c d");
        check("fn f<'a>(b: &'a str) {}", "fn f<'a>(b: &'a str) {}");
    }

    #[test]
    fn tests_are_removed() {
        check("a();\n#[cfg(test)]\nmod tests {\n fn b() { c(); }\n}\nd();", "a(); d();");
        check("#[cfg(test)]\nmod tests;\nfn a() {}", "fn a() {}");
        check("#[cfg(test)]\n#[derive(X)]\nfn a(b: [u8; 2]) { \"}\" }\nfn c() {}", "fn c() {}");
    }
}
