//! Reads fields of JSON text without decoding it. In: text that serde_json has accepted before. Out: slices of it. Never
//! fails: on text that is not JSON it ends early. Allocates only for names with escapes in them.

use std::borrow::Cow;

use memchr::memchr;

/// The members of an object, in order: each name as it is written between its quotes, and the text of its value.
/// Anything but an object has none.
pub fn members(text: &str) -> Members<'_> {
    let at = start(text, 0);
    let open = text.as_bytes().get(at) == Some(&b'{');
    Members { text, at: if open { at + 1 } else { text.len() } }
}

/// The items of an array. Anything but an array has none.
pub fn items(text: &str) -> Items<'_> {
    let at = start(text, 0);
    let open = text.as_bytes().get(at) == Some(&b'[');
    Items { text, at: if open { at + 1 } else { text.len() } }
}

/// The value of the member `name` of an object.
pub fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    from_member(text, name).map(|rest| value_at(rest, 0))
}

/// The value at a JSON pointer (RFC 6901). The text behind it is not read.
pub(crate) fn pointer<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    if path.is_empty() {
        return Some(text);
    }
    let found = path.strip_prefix('/')?.split('/').try_fold(text, |text, step| {
        if text.starts_with('[') {
            let item = items(text).nth(step.parse().ok()?)?;
            return Some(item);
        }
        match step.contains('~') {
            true => from_member(text, &step.replace("~1", "/").replace("~0", "~")),
            false => from_member(text, step),
        }
    });
    found.map(|rest| value_at(rest, 0))
}

/// The text that begins with the value of the member `name`, without looking for the end of that value.
fn from_member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut at = start(text, 0);
    if text.as_bytes().get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    loop {
        let key_at = start(text, at);
        if text.as_bytes().get(key_at) != Some(&b'"') {
            return None;
        }
        let key_end = end(text, key_at);
        let value = start(text, key_end);
        if is_named(text.get(key_at + 1..key_end - 1)?, name) {
            return text.get(value..);
        }
        at = end(text, value);
    }
}

/// The value that begins at `at`.
pub(crate) fn value_at(text: &str, at: usize) -> &str {
    text.get(at..end(text, at)).unwrap_or_default()
}

/// The content of a string, without its quotes; nothing if `text` is not a string.
pub fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    Some(unescaped(inner))
}

/// A name, or the content of a string, with its escapes resolved.
pub fn unescaped(inner: &str) -> Cow<'_, str> {
    if memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    match serde_json::from_str::<String>(&format!("\"{inner}\"")) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(inner),
    }
}

fn is_named(written: &str, name: &str) -> bool {
    written == name || (memchr(b'\\', written.as_bytes()).is_some() && unescaped(written) == name)
}

/// See [`members`]. Reading names and values separately allows to enter a nested object and leave it in one pass.
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Members<'a> {
    /// The next name; the caller reads its value next. `None` at the end of an object; the next name after that belongs to
    /// the object around it.
    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let at = start(self.text, self.at);
        if self.text.as_bytes().get(at) != Some(&b'"') {
            self.at = self.text.len().min(at + 1);
            return None;
        }
        let name_end = end(self.text, at);
        self.at = start(self.text, name_end);
        self.text.get(at + 1..name_end - 1)
    }

    /// The value after a name.
    pub(crate) fn value(&mut self) -> &'a str {
        let value = value_at(self.text, self.at);
        self.at += value.len();
        value
    }

    /// The text behind the last value that was read.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Enters the value after a name if it is an object, and skips it otherwise.
    pub(crate) fn enter(&mut self) -> bool {
        let is_object = self.text.as_bytes().get(self.at) == Some(&b'{');
        self.at = if is_object { self.at + 1 } else { end(self.text, self.at) };
        is_object
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.name()?;
        Some((name, self.value()))
    }
}

/// See [`items`].
pub struct Items<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let at = start(self.text, self.at);
        if matches!(self.text.as_bytes().get(at), None | Some(b']' | b'}')) {
            self.at = self.text.len();
            return None;
        }
        self.at = end(self.text, at);
        self.text.get(at..self.at)
    }
}

/// Where the next value or closing bracket begins: past white space, commas and colons.
fn start(text: &str, at: usize) -> usize {
    let skipped = text.as_bytes().get(at..).unwrap_or_default().iter();
    at + skipped.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':')).count()
}

/// Where the value that begins at `at` ends.
fn end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'"') => return string_end(text, at),
        Some(b'{' | b'[') => {}
        // A number, a word, or nothing at all.
        _ => {
            let rest = bytes.get(at..).unwrap_or_default().iter();
            let is_end = |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
            return at + rest.take_while(|byte| !is_end(byte)).count();
        }
    }
    let (mut here, mut depth) = (at, 0usize);
    while let Some(skipped) = bytes[here..].iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']')) {
        here += skipped;
        match bytes[here] {
            b'"' => {
                here = string_end(text, here);
                continue;
            }
            b'{' | b'[' => depth += 1,
            _ if depth == 1 => return here + 1,
            _ => depth -= 1,
        }
        here += 1;
    }
    bytes.len()
}

/// Where the string that begins at `at` ends, past its closing quote. Most of a text is long strings, and memchr searches
/// for the quote many bytes at a time.
fn string_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut from = at + 1;
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr(b'"', rest)) {
        let quote = from + found;
        let escapes = bytes[at + 1..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return quote + 1;
        }
        from = quote + 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers() {
        let text = r#" { "a" : {"b\"c": [1, {"x": "}"} , "y"], "": 0}, "d/e": true,"n":null, "e":"\\\"}\\" } "#;
        for (path, expect) in [
            ("", Some(text)),
            ("/a/b\"c", Some(r#"[1, {"x": "}"} , "y"]"#)),
            ("/a/b\"c/0", Some("1")),
            ("/a/b\"c/1", Some(r#"{"x": "}"}"#)),
            ("/a/b\"c/1/x", Some(r#""}""#)),
            ("/a/b\"c/2", Some(r#""y""#)),
            ("/a/b\"c/3", None),
            ("/a/", Some("0")),
            ("/d~1e", Some("true")),
            ("/n", Some("null")),
            ("/n/x", None),
            ("/absent", None),
            ("a", None),
            ("/e", Some(r#""\\\"}\\""#)),
        ] {
            assert_eq!(pointer(text, path), expect, "{path}");
        }
    }

    #[test]
    fn agrees_with_serde_json() {
        let texts = [
            r#"{}"#,
            r#"[]"#,
            r#"{"a":[],"b":{},"c":"\\","d":-1.5e3}"#,
            r#"[[1],[[]],"a,b",{"k":"]"}]"#,
            "1",
            r#""s""#,
        ];
        for text in texts {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            let members: serde_json::Map<_, _> = members(text)
                .map(|(key, value)| (unescaped(key).into_owned(), serde_json::from_str(value).unwrap()))
                .collect();
            assert_eq!(value.as_object().cloned().unwrap_or_default(), members, "{text}");
            let items: Vec<serde_json::Value> = items(text).map(|item| serde_json::from_str(item).unwrap()).collect();
            assert_eq!(value.as_array().cloned().unwrap_or_default(), items, "{text}");
        }
    }

    #[test]
    fn invalid_json_ends_early() {
        for text in ["", "{", "[", "{\"", "{\"a", "{\"a\"", "{\"a\":", "[\"\\", "}", "[}", "{]", "[1,,", "\"\\"] {
            members(text).for_each(drop);
            items(text).for_each(drop);
            pointer(text, "/a/b");
        }
    }
}
