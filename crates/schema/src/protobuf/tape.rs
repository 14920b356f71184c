//! JSON as a flat list of tokens. In: JSON that this program wrote. Out: one token for each value and each key, in the order
//! of the text, where each knows which token follows its value. So whoever writes the fields of an object in another order
//! looks at each token a fixed number of times, however deep the object is. Strings stay where they are, escapes and all.

use std::borrow::Cow;

use memchr::memchr2;

/// A value or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// Where its text is: without the quotes of a string, and with the brackets of a list or an object.
    start: u32,
    end: u32,
    /// The token after this value and everything in it.
    pub(super) next: u32,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Null,
    True,
    False,
    Number,
    /// A string that is written as it is.
    Plain,
    /// A string with escapes.
    Escaped,
    List,
    /// Keys and values alternate.
    Object,
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// Reads a text. The tokens that were there before are dropped, and their memory is used again.
pub(super) fn read(json: &[u8], tokens: &mut Vec<Token>, open: &mut Vec<u32>) -> Result<(), NotJson> {
    tokens.clear();
    open.clear();
    if u32::try_from(json.len()).is_err() {
        return Err(NotJson);
    }
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => at += 1,
            b'"' => {
                let (end, kind) = string_end(json, at + 1).ok_or(NotJson)?;
                push(tokens, kind, at + 1, end);
                at = end + 1;
            }
            b'{' | b'[' => {
                open.push(tokens.len() as u32);
                push(tokens, if byte == b'{' { TokenKind::Object } else { TokenKind::List }, at, at);
                at += 1;
            }
            b'}' | b']' => {
                at += 1;
                let next = tokens.len() as u32;
                let opened = open.pop().and_then(|opened| tokens.get_mut(opened as usize)).ok_or(NotJson)?;
                if (opened.kind == TokenKind::Object) != (byte == b'}') {
                    return Err(NotJson);
                }
                (opened.end, opened.next) = (at as u32, next);
            }
            _ => {
                let length = json[at..].iter().position(|byte| is_delimiter(*byte)).unwrap_or(json.len() - at);
                let kind = match &json[at..at + length] {
                    b"null" => TokenKind::Null,
                    b"true" => TokenKind::True,
                    b"false" => TokenKind::False,
                    _ => TokenKind::Number,
                };
                push(tokens, kind, at, at + length);
                at += length;
            }
        }
    }
    let whole = tokens.first().is_some_and(|first| first.next as usize == tokens.len());
    if whole && open.is_empty() { Ok(()) } else { Err(NotJson) }
}

fn push(tokens: &mut Vec<Token>, kind: TokenKind, start: usize, end: usize) {
    let next = tokens.len() as u32 + 1;
    tokens.push(Token { kind, start: start as u32, end: end as u32, next });
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"')
}

/// Where a string ends, and whether it has escapes.
fn string_end(json: &[u8], start: usize) -> Option<(usize, TokenKind)> {
    let mut kind = TokenKind::Plain;
    let mut at = start;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some((at, kind));
        }
        kind = TokenKind::Escaped;
        at += 2;
    }
}

impl Token {
    /// Its text in the JSON, without the quotes of a string.
    pub(super) fn text<'j>(&self, json: &'j [u8]) -> &'j [u8] {
        &json[self.start as usize..self.end as usize]
    }

    /// Its text in the JSON, with the quotes of a string.
    pub(super) fn quoted<'j>(&self, json: &'j [u8]) -> &'j [u8] {
        match self.kind {
            TokenKind::Plain | TokenKind::Escaped => &json[self.start as usize - 1..=self.end as usize],
            _ => self.text(json),
        }
    }

    /// A string without its escapes; nothing if this is no string.
    pub(super) fn string<'j>(&self, json: &'j [u8]) -> Option<Cow<'j, [u8]>> {
        match self.kind {
            TokenKind::Plain => Some(Cow::Borrowed(self.text(json))),
            TokenKind::Escaped => {
                serde_json::from_slice::<String>(self.quoted(json)).ok().map(|text| Cow::Owned(text.into_bytes()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_know_what_follows() {
        #[track_caller]
        fn check(json: &str, expect: Result<&[(&str, u32)], NotJson>) {
            let (mut tokens, mut open) = (Vec::new(), Vec::new());
            let read = read(json.as_bytes(), &mut tokens, &mut open);
            let texts: Vec<_> = tokens
                .iter()
                .map(|token| (std::str::from_utf8(token.text(json.as_bytes())).unwrap(), token.next))
                .collect();
            assert_eq!(read.map(|()| texts.as_slice()), expect, "{json}");
        }
        check("null", Ok(&[("null", 1)]));
        check("{}", Ok(&[("{}", 1)]));
        check(
            r#"{"a":[1,-2.5e3],"b":"x"}"#,
            Ok(&[
                (r#"{"a":[1,-2.5e3],"b":"x"}"#, 7),
                ("a", 2),
                ("[1,-2.5e3]", 5),
                ("1", 4),
                ("-2.5e3", 5),
                ("b", 6),
                ("x", 7),
            ]),
        );
        check(
            " [ true , {\"\\\"\" : null} ] ",
            Ok(&[("[ true , {\"\\\"\" : null} ]", 5), ("true", 2), ("{\"\\\"\" : null}", 5), ("\\\"", 4), ("null", 5)]),
        );
        for broken in ["", "{", "[}", "]", "\"", "\"\\\"", "1 2", "{}{}"] {
            check(broken, Err(NotJson));
        }
    }

    #[test]
    fn strings_lose_their_escapes() {
        let json = br#"["plain","a\u00fc\n\"",1]"#;
        let (mut tokens, mut open) = (Vec::new(), Vec::new());
        read(json, &mut tokens, &mut open).unwrap();
        let strings: Vec<_> = tokens.iter().map(|token| token.string(json).map(Cow::into_owned)).collect();
        assert_eq!(strings, [None, Some(b"plain".to_vec()), Some("aü\n\"".into()), None]);
    }
}
