//! Which strings may name things. In: a string and a rule. Out: what is wrong with it, in Kubernetes'
//! words, or nothing. Never looks anything up.

use crate::field::{FieldError, FieldPath};

/// What the name of an object must look like; each kind has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// `example.com`, at most 253 bytes: most kinds.
    #[default]
    Subdomain,
    /// `my-name`, at most 63 bytes.
    Label,
    /// `my-name` that starts with a letter, at most 63 bytes.
    Label1035,
    /// Anything that fits into one segment of a path: RBAC.
    PathSegment,
}

/// The total size of all annotations of one object.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

const LABEL_1123: Grammar = Grammar {
    rule: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    examples: "'my-name',  or '123-abc'",
};

const SUBDOMAIN_1123: Grammar = Grammar {
    rule: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    pattern: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: "'example.com'",
};

const LABEL_1035: Grammar = Grammar {
    rule: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
    examples: "'my-name',  or 'abc-123'",
};

const LABEL_KEY: Grammar = Grammar {
    rule: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    pattern: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    examples: "'MyName',  or 'my.name',  or '123-abc'",
};

const LABEL_VALUE: Grammar = Grammar {
    rule: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    pattern: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    examples: "'MyValue',  or 'my_value',  or '12345'",
};

/// A rule and how it is explained when broken.
struct Grammar {
    rule: &'static str,
    pattern: &'static str,
    examples: &'static str,
}

impl Grammar {
    fn explain(&self) -> String {
        format!("{} (e.g. {}, regex used for validation is '{}')", self.rule, self.examples, self.pattern)
    }
}

/// What is wrong with `name` under `rule`; a generateName (`prefix`) may end in a dash.
///
/// ```
/// use konverge_core::{NameRule, check_name};
/// assert!(check_name("my-app", NameRule::Subdomain, false).is_empty());
/// assert!(!check_name("My App", NameRule::Subdomain, false).is_empty());
/// assert!(!check_name("..", NameRule::PathSegment, false).is_empty());
/// ```
pub fn check_name(name: &str, rule: NameRule, prefix: bool) -> Vec<String> {
    let name = if prefix && rule != NameRule::PathSegment { name.strip_suffix('-').unwrap_or(name) } else { name };
    match rule {
        NameRule::Subdomain => check_dns(name, 253, is_subdomain(name), &SUBDOMAIN_1123, CHARACTERS),
        NameRule::Label if name.contains('.') && is_subdomain(name) => {
            let mut errors = check_dns(name, 63, true, &LABEL_1123, CHARACTERS);
            errors.push("must not contain dots".to_owned());
            errors
        }
        NameRule::Label => check_dns(name, 63, is_label(name), &LABEL_1123, CHARACTERS),
        NameRule::Label1035 => {
            let fits = is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
            check_dns(name, 63, fits, &LABEL_1035, CHARACTERS)
        }
        NameRule::PathSegment => check_path_segment(name, prefix),
    }
}

/// Checks `metadata.labels`.
pub fn check_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>, path: &FieldPath) -> Vec<FieldError> {
    let invalid = |value: &str, why: String| FieldError::invalid(path.clone(), value.into(), why);
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(check_label_key(key).into_iter().map(|why| invalid(key, why)));
        errors.extend(check_label_value(value).into_iter().map(|why| invalid(value, why)));
    }
    errors
}

/// Checks `metadata.annotations`.
pub fn check_annotations<'a>(
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        let problems = check_label_key(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(path.clone(), key.into(), why)));
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path.clone(), ANNOTATIONS_MAX_BYTES));
    }
    errors
}

/// Checks one entry of `metadata.finalizers`.
pub fn check_finalizer(finalizer: &str, path: &FieldPath) -> Vec<FieldError> {
    let problems = check_label_key(finalizer);
    problems.into_iter().map(|why| FieldError::invalid(path.clone(), finalizer.into(), why)).collect()
}

/// What is wrong with a label's key (also a finalizer or an annotation's key).
pub fn check_label_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let problems = check_dns(prefix, 253, is_subdomain(prefix), &SUBDOMAIN_1123, BYTES);
                errors.extend(problems.into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            let why = LABEL_KEY.explain();
            return vec![format!(
                "a valid label key {why} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63, BYTES)));
    }
    if !is_label_word(name) {
        errors.push(format!("name part {}", LABEL_KEY.explain()));
    }
    errors
}

/// What is wrong with a label's value.
pub fn check_label_value(value: &str) -> Vec<String> {
    check_dns(value, 63, value.is_empty() || is_label_word(value), &LABEL_VALUE, BYTES)
}

/// What names are counted in, and labels. Both are bytes; the texts differ.
const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn check_dns(name: &str, max: usize, fits: bool, grammar: &Grammar, unit: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > max {
        errors.push(too_long(max, unit));
    }
    if !fits {
        errors.push(grammar.explain());
    }
    errors
}

fn check_path_segment(name: &str, prefix: bool) -> Vec<String> {
    let mut errors = Vec::new();
    if !prefix && (name == "." || name == "..") {
        errors.push(format!("may not be '{name}'"));
    }
    for forbidden in ['/', '%'] {
        if name.contains(forbidden) {
            errors.push(format!("may not contain '{forbidden}'"));
        }
    }
    errors
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_label_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "a".repeat(254);
        let cases: &[(&str, NameRule, bool)] = &[
            ("a", NameRule::Subdomain, true),
            ("a.b-c.d", NameRule::Subdomain, true),
            ("a..b", NameRule::Subdomain, false),
            (".a", NameRule::Subdomain, false),
            ("A", NameRule::Subdomain, false),
            ("", NameRule::Subdomain, false),
            ("a/b", NameRule::Subdomain, false),
            ("a\0b", NameRule::Subdomain, false),
            ("а", NameRule::Subdomain, false),
            (&long, NameRule::Subdomain, false),
            ("a.b", NameRule::Label, false),
            ("1a", NameRule::Label, true),
            ("1a", NameRule::Label1035, false),
            ("a1", NameRule::Label1035, true),
            ("system:admin", NameRule::PathSegment, true),
            (".", NameRule::PathSegment, false),
            ("..", NameRule::PathSegment, false),
            ("a%2fb", NameRule::PathSegment, false),
            ("a/b", NameRule::PathSegment, false),
        ];
        for (name, rule, fits) in cases {
            assert_eq!(check_name(name, *rule, false).is_empty(), *fits, "{name:?} under {rule:?}");
        }
        assert!(check_name("web-", NameRule::Subdomain, true).is_empty());
    }

    #[test]
    fn labels_and_annotations() {
        let check =
            |key: &str, value: &str| check_labels([(key, value)], &FieldPath::new("metadata").child("labels")).len();
        for (key, value, problems) in [
            ("app", "web", 0),
            ("app", "", 0),
            ("example.com/app", "a_b.c", 0),
            ("/app", "x", 1),
            ("example.com/", "x", 2),
            ("a/b/c", "x", 1),
            ("app", "-x", 1),
            ("a b", "x y", 2),
        ] {
            assert_eq!(check(key, value), problems, "{key}={value}");
        }
        let big = "x".repeat(ANNOTATIONS_MAX_BYTES);
        let errors = check_annotations([("k", big.as_str())], &FieldPath::new("metadata").child("annotations"));
        assert_eq!(errors[0].to_string(), "metadata.annotations: Too long: may not be more than 262144 bytes");
    }
}
