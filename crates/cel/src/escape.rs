//! Names of fields as identifiers. `my-field` is no identifier of CEL, so expressions write `my__dash__field`; this is how
//! Kubernetes escapes them.

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name is a word of the language, so that no variable can have it. A field of such a name can also be named without
/// its escape.
pub fn is_reserved_word(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The identifier for a field; `None` if no expression can name it.
pub(crate) fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved_word(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (text, length) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            c if c.is_ascii_alphanumeric() || c == '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[length..];
    }
    Some(escaped)
}

/// The name of a field as its identifier says it; `None` if no name is escaped like that.
pub(crate) fn unescape(identifier: &str) -> Option<String> {
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(at) = rest.find("__") {
        let after = &rest[at + 2..];
        let end = after.find('_').unwrap_or(after.len());
        if end == 0 || !after[end..].starts_with("__") {
            name.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        name.push_str(&rest[..at]);
        match &after[..end] {
            "underscores" => name.push_str("__"),
            "dot" => name.push('.'),
            "dash" => name.push('-'),
            "slash" => name.push('/'),
            word if is_reserved_word(word) && word.len() + 4 == identifier.len() => name.push_str(word),
            _ => return None,
        }
        rest = &after[end + 2..];
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn fields_become_identifiers() {
        for (name, expect) in [
            ("plain", Some("plain")),
            ("my-field", Some("my__dash__field")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("two__parts", Some("two__underscores__parts")),
            ("a___b", Some("a__underscores___b")),
            ("_private_", Some("_private_")),
            ("namespace", Some("__namespace__")),
            ("namespaces", Some("namespaces")),
            ("1st", None),
            ("", None),
            ("é", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), expect, "{name}");
            if let Some(identifier) = expect {
                assert_eq!(unescape(identifier).as_deref(), Some(name), "{identifier}");
            }
        }
        for no_name in ["a__b__c", "__namespace__s"] {
            assert_eq!(unescape(no_name), None, "{no_name}");
        }
    }
}
