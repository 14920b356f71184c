//! Literals. In: a token. Out: its value, or why it has none.

use crate::ast::Literal;
use crate::lexer::{Token, TokenKind};

/// `None` if the token is no literal.
pub(super) fn read(token: &Token, negative: bool) -> Option<Result<Literal, String>> {
    let text = token.text.as_str();
    Some(match token.kind {
        TokenKind::Int => integer(text, negative).map(Literal::Int).ok_or_else(|| "invalid int literal".to_owned()),
        TokenKind::Uint => {
            unsigned(&text[..text.len() - 1]).map(Literal::Uint).ok_or_else(|| "invalid uint literal".to_owned())
        }
        TokenKind::Double => match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Literal::Double(if negative { -value } else { value })),
            _ => Err("invalid double literal".to_owned()),
        },
        TokenKind::String => unescape(text, false).map(|bytes| {
            Literal::String(String::from_utf8(bytes).expect("only bytes literals have escapes that are no characters"))
        }),
        TokenKind::Bytes => unescape(&text[1..], true).map(Literal::Bytes),
        TokenKind::Symbol => match text {
            "true" => Ok(Literal::Bool(true)),
            "false" => Ok(Literal::Bool(false)),
            "null" => Ok(Literal::Null),
            _ => return None,
        },
        TokenKind::End | TokenKind::Ident | TokenKind::Quoted => return None,
    })
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn integer(text: &str, negative: bool) -> Option<i64> {
    let value = i128::from(unsigned(text)?);
    i64::try_from(if negative { -value } else { value }).ok()
}

/// The content of a string or bytes literal; the lexer has seen that its escapes are complete.
fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let triple = text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\""));
    let quotes = if triple { 3 } else { 1 };
    let body = &text[quotes..text.len() - quotes];
    if raw {
        return Ok(body.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        match rest.next() {
            Some('a') => out.push(7),
            Some('b') => out.push(8),
            Some('f') => out.push(12),
            Some('n') => out.push(b'\n'),
            Some('r') => out.push(b'\r'),
            Some('t') => out.push(b'\t'),
            Some('v') => out.push(11),
            Some(quoted @ ('\\' | '\'' | '"' | '`' | '?')) => push(&mut out, quoted),
            Some(kind @ ('x' | 'X' | 'u' | 'U')) => {
                let digits = match kind {
                    'u' => 4,
                    'U' => 8,
                    _ => 2,
                };
                if bytes && digits > 2 {
                    return Err("unable to unescape string".to_owned());
                }
                let digits: String = rest.by_ref().take(digits).collect();
                let value = u32::from_str_radix(&digits, 16).map_err(|_| "unable to unescape string".to_owned())?;
                code_point(&mut out, value, bytes)?;
            }
            Some(first @ '0'..='3') => {
                let digits: String = std::iter::once(first).chain(rest.by_ref().take(2)).collect();
                let value = u32::from_str_radix(&digits, 8)
                    .map_err(|_| "unable to unescape octal sequence in string".to_owned())?;
                code_point(&mut out, value, bytes)?;
            }
            _ => return Err("unable to unescape string".to_owned()),
        }
    }
    Ok(out)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// In bytes an escape is one byte, in a string a character.
fn code_point(out: &mut Vec<u8>, value: u32, bytes: bool) -> Result<(), String> {
    if bytes {
        out.push(value as u8);
        return Ok(());
    }
    push(out, char::from_u32(value).ok_or_else(|| "invalid unicode code point".to_owned())?);
    Ok(())
}
