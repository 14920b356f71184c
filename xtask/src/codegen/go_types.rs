//! In: Go files of one package. Out: the types that they declare, with the tags of their fields. It reads type
//! declarations at the start of a line and relies on gofmt for the rest; it is not a Go parser.

use std::collections::BTreeMap;

/// The types of a package, by name.
pub(crate) type Declarations = BTreeMap<String, Declaration>;

/// What a type name is declared as.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Declaration {
    /// `type Pod struct { … }`
    Struct(Vec<GoField>),
    /// `type UID string`, `type ResourceList map[ResourceName]resource.Quantity`
    Alias(GoType),
}

/// A type expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GoType {
    /// `string`, or a type of the same package.
    Local(String),
    /// A type of another package: its import path and its name.
    Imported(String, String),
    /// `*T`
    Pointer(Box<GoType>),
    /// `[]T`
    List(Box<GoType>),
    /// `map[K]V`
    Map(Box<GoType>, Box<GoType>),
    /// Anything else, such as an interface, as it is written.
    Other(String),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GoField {
    /// The field's name; that of the type for an embedded type.
    pub(crate) name: String,
    /// Whether the field is an embedded type.
    pub(crate) embedded: bool,
    /// The field's type.
    pub(crate) ty: GoType,
    /// The value of the tag `json`.
    pub(crate) json: Option<String>,
    /// The value of the tag `protobuf`.
    pub(crate) protobuf: Option<String>,
}

/// Reads the declarations of one file.
pub(crate) fn declarations(go: &str) -> Result<Declarations, String> {
    let imports = imports(go);
    let mut found = Declarations::new();
    let mut lines = go.lines();
    while let Some(line) = lines.next() {
        let Some(declaration) = line.strip_prefix("type ") else { continue };
        let Some((name, ty)) = declaration.split_once(' ') else { continue };
        if ty == "struct {" {
            let body = lines.by_ref().take_while(|line| *line != "}");
            let fields = body.map(|line| field(line, &imports)).collect::<Result<Vec<_>, _>>();
            let fields = fields.map_err(|problem| format!("{name}: {problem}"))?;
            found.insert(name.to_owned(), Declaration::Struct(fields.into_iter().flatten().collect()));
        } else if ty == "struct{}" {
            found.insert(name.to_owned(), Declaration::Struct(Vec::new()));
        } else {
            let ty = GoType::read(ty.trim_start_matches("= "), &imports);
            found.insert(name.to_owned(), Declaration::Alias(ty));
        }
    }
    Ok(found)
}

/// The packages that a file imports, by their names in the file.
fn imports(go: &str) -> BTreeMap<&str, &str> {
    let block =
        go.split_once("\nimport (\n").and_then(|(_, rest)| rest.split_once("\n)")).map_or("", |(block, _)| block);
    let single = go.lines().filter_map(|line| line.strip_prefix("import "));
    block.lines().chain(single).filter_map(import).collect()
}

fn import(line: &str) -> Option<(&str, &str)> {
    let (alias, path) = line.trim().strip_suffix('"')?.split_once('"')?;
    let alias = alias.trim();
    Some((if alias.is_empty() { path.rsplit('/').next()? } else { alias }, path))
}

/// A line of a struct, if it declares a field with tags. Fields without tags are not serialised.
fn field(line: &str, imports: &BTreeMap<&str, &str>) -> Result<Option<GoField>, String> {
    let line = line.trim();
    if line.starts_with("//") {
        return Ok(None);
    }
    let Some((declared, tags)) = line.split_once('`') else { return Ok(None) };
    let tags = tags.split_once('`').ok_or_else(|| format!("tags without an end: {line}"))?.0;
    let words: Vec<&str> = declared.split_whitespace().collect();
    let (embedded, name, ty) = match words.as_slice() {
        [ty] => (true, ty.trim_start_matches('*').rsplit('.').next().unwrap_or_default(), *ty),
        [name, ty] => (false, *name, *ty),
        _ => return Err(format!("a field that cannot be read: {line}")),
    };
    let ty = GoType::read(ty, imports);
    Ok(Some(GoField { name: name.to_owned(), embedded, ty, json: tag(tags, "json"), protobuf: tag(tags, "protobuf") }))
}

fn tag(tags: &str, key: &str) -> Option<String> {
    // `protobuf:"…"` must not be found inside of another key.
    let key = format!("{key}:\"");
    let start = if tags.starts_with(&key) { 0 } else { tags.find(&format!(" {key}"))? + 1 };
    tags[start + key.len()..].split_once('"').map(|(value, _)| value.to_owned())
}

impl GoType {
    fn read(text: &str, imports: &BTreeMap<&str, &str>) -> Self {
        let inner = |text| Box::new(Self::read(text, imports));
        if let Some(rest) = text.strip_prefix('*') {
            return Self::Pointer(inner(rest));
        }
        if let Some(rest) = text.strip_prefix("[]") {
            return Self::List(inner(rest));
        }
        if let Some((key, value)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Self::Map(inner(key), inner(value));
        }
        let is_name = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let imported = text.split_once('.').and_then(|(package, name)| Some((imports.get(package)?, name)));
        match imported {
            Some((path, name)) if is_name(name) => Self::Imported((*path).to_owned(), name.to_owned()),
            None if is_name(text) => Self::Local(text.to_owned()),
            _ => Self::Other(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ty: &str, expect: GoType) {
        let imports = BTreeMap::from([("metav1", "k8s.io/apimachinery/pkg/apis/meta/v1")]);
        assert_eq!(GoType::read(ty, &imports), expect, "{ty}");
    }

    #[test]
    fn reads_types() {
        let local = |name: &str| GoType::Local(name.into());
        let other = |text: &str| GoType::Other(text.into());
        let time = GoType::Imported("k8s.io/apimachinery/pkg/apis/meta/v1".into(), "Time".into());
        check("string", local("string"));
        check("*metav1.Time", GoType::Pointer(Box::new(time.clone())));
        check("[]*metav1.Time", GoType::List(Box::new(GoType::Pointer(Box::new(time)))));
        let bytes = GoType::List(Box::new(local("byte")));
        check("map[string][]byte", GoType::Map(Box::new(local("string")), Box::new(bytes)));
        check("[]interface{}", GoType::List(Box::new(other("interface{}"))));
        check("other.Time", other("other.Time"));
        check("func(a, b int)", other("func(a, b int)"));
    }

    #[test]
    fn reads_fields_with_their_tags() {
        let go = "package v1\n\nimport (\n\t\"k8s.io/x/resource\"\n\tmetav1 \"k8s.io/x/meta/v1\"\n)\n\n\
                  // type Comment struct {\ntype Name string\n\ntype Old = Name\n\ntype Interface interface {\n}\n\ntype Nothing struct{}\n\n\
                  type Thing struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// a comment with a `json:\"x\"` tag\n\
                  \tCount *int32 `json:\"count,omitempty\" protobuf:\"varint,2,opt,name=count\"` // more\n\
                  \tLimit resource.Quantity `protobuf:\"bytes,3,opt,name=limit\" json:\"limit\"`\n\thidden int\n}\n";
        let found = declarations(go).unwrap();
        let shown: Vec<String> = match &found["Thing"] {
            Declaration::Struct(fields) => fields.iter().map(|field| format!("{field:?}")).collect(),
            alias => panic!("{alias:?}"),
        };
        assert_eq!(found.keys().collect::<Vec<_>>(), ["Interface", "Name", "Nothing", "Old", "Thing"]);
        assert_eq!(found["Old"], Declaration::Alias(GoType::Local("Name".into())));
        let named = |name: &str, embedded, ty, json: &str, protobuf: Option<&str>| {
            let (name, json, protobuf) = (name.to_owned(), Some(json.to_owned()), protobuf.map(str::to_owned));
            format!("{:?}", GoField { name, embedded, ty, json, protobuf })
        };
        let imported = |path: &str, name: &str| GoType::Imported(path.into(), name.into());
        let count = GoType::Pointer(Box::new(GoType::Local("int32".into())));
        let quantity = imported("k8s.io/x/resource", "Quantity");
        assert_eq!(
            shown,
            [
                named("TypeMeta", true, imported("k8s.io/x/meta/v1", "TypeMeta"), ",inline", None),
                named("Count", false, count, "count,omitempty", Some("varint,2,opt,name=count")),
                named("Limit", false, quantity, "limit", Some("bytes,3,opt,name=limit")),
            ]
        );
    }

    #[test]
    fn refuses_fields_that_it_cannot_read() {
        for (line, expect) in [
            ("A, B string `json:\"a\"`", "T: a field that cannot be read: A, B string `json:\"a\"`"),
            ("A chan string `json:\"a\"`", "T: a field that cannot be read: A chan string `json:\"a\"`"),
            ("A string `json:\"a\"", "T: tags without an end: A string `json:\"a\""),
        ] {
            assert_eq!(declarations(&format!("type T struct {{\n\t{line}\n}}\n")), Err(expect.to_owned()));
        }
    }
}
