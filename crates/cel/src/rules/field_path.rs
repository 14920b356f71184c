//! `fieldPath` of a rule: `.spec.size` or `.labels['app']`. In: the path and the schema that it starts at. Out: the path as
//! errors have it, or nothing if there is no such field.

use konverge_core::FieldPath;

use crate::schema::{Kind, Schema};

pub(super) fn resolve(text: &str, schema: &Schema) -> Option<FieldPath> {
    let mut path = FieldPath::root();
    let mut schema = schema;
    let mut rest = text;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            name = after[..end].to_owned();
            rest = &after[end..];
        } else {
            let after = rest.strip_prefix("['")?;
            let end = quote_end(after)?;
            name = unescape(&after[..end])?;
            rest = after[end + 1..].strip_prefix(']')?;
        }
        if name.is_empty() {
            return None;
        }
        if schema.properties.iter().any(|property| !property.implied) {
            path = path.child(&name);
            schema = &schema.property(&name).filter(|property| !property.implied)?.schema;
        } else {
            path = path.key(&name);
            schema = schema.additional.as_deref().filter(|_| schema.kind == Kind::Object)?;
        }
    }
    Some(path)
}

/// Where the quote is that ends a string.
fn quote_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).find(|at| bytes[*at] == b'\'' && (*at == 0 || bytes[at - 1] != b'\\'))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '\\' => match rest.next()? {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}
