//! What a project declares about itself, because nobody can tell from outside: how a backup is asked for, and what tells success. In: `scorecard.yaml`. Out:
//! procedures, each with objects to apply and something to wait for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

/// The file, in the directory of the project.
pub(super) const FILE: &str = "scorecard.yaml";

/// What may be declared, in the order in which it is done.
pub(super) const PROCEDURES: [&str; 6] =
    ["backup", "restore", BEFORE_UPGRADE, "autoscaling", "predictive-scaling", "cost-optimization"];

/// What is looked for after an upgrade.
pub(super) const BEFORE_UPGRADE: &str = "backup-before-upgrade";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeclarationError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not understood: {why}", path.display())]
    Parse { path: PathBuf, why: String },
    #[error("{} has {name:?}; it takes {}", path.display(), PROCEDURES.join(", "))]
    Unknown { path: PathBuf, name: String },
    #[error("{}, {name}: until takes condition, or field and equals", path.display())]
    Until { path: PathBuf, name: String },
}

/// Something that an operator does when it is asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Declared {
    /// The objects that ask for it; fields of samples are changed by naming the sample.
    #[serde(default)]
    pub apply: Vec<Value>,
    /// What tells success.
    pub until: Until,
}

/// Something that becomes true of an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Until {
    object: Reference,
    /// The type of a condition that becomes True.
    #[serde(default)]
    condition: Option<String>,
    /// A field, as `.status.phase`, that gets a value.
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    equals: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

/// The declared procedures of a project; none without the file.
pub(super) fn read(directory: &Path) -> Result<BTreeMap<&'static str, Declared>, DeclarationError> {
    let path = directory.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(source) => Err(DeclarationError::Read { path, source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<BTreeMap<&'static str, Declared>, DeclarationError> {
    let said: BTreeMap<String, Declared> = serde_saphyr::from_str(text)
        .map_err(|error| DeclarationError::Parse { path: path.to_owned(), why: error.to_string() })?;
    let mut declared = BTreeMap::new();
    for (name, procedure) in said {
        let known = PROCEDURES.iter().find(|known| **known == name);
        let known = known.ok_or_else(|| DeclarationError::Unknown { path: path.to_owned(), name: name.clone() })?;
        let Until { condition, field, equals, .. } = &procedure.until;
        if condition.is_some() == (field.is_some() && equals.is_some()) {
            return Err(DeclarationError::Until { path: path.to_owned(), name });
        }
        declared.insert(*known, procedure);
    }
    Ok(declared)
}

impl Until {
    /// The object that is looked at, as far as it is named.
    pub(super) fn object(&self) -> Value {
        let Reference { api_version, kind, name, namespace } = &self.object;
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        object
    }

    /// Why it is not true yet; nothing if it is.
    pub(super) fn missing(&self, object: Option<&Value>) -> Option<String> {
        let Reference { kind, name, .. } = &self.object;
        let Some(object) = object else { return Some(format!("there is no {kind} {name}")) };
        if let Some(wanted) = &self.condition {
            let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            return match conditions.find(|condition| condition["type"] == wanted.as_str()) {
                Some(condition) if condition["status"] == "True" => None,
                Some(condition) => Some(format!("{wanted} is {}: {}", condition["status"], condition["message"])),
                None => Some(format!("it has no condition {wanted}")),
            };
        }
        let field = self.field.as_deref().unwrap_or_default();
        let pointer = format!("/{}", field.trim_start_matches('.').replace('.', "/"));
        let found = object.pointer(&pointer).unwrap_or(&Value::Null);
        (Some(found) != self.equals.as_ref()).then(|| format!("{field} is {found}"))
    }
}

/// `Backup nightly: Complete`
impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { object: Reference { kind, name, .. }, condition, field, equals } = self;
        write!(f, "{kind} {name}: ")?;
        match (condition, field, equals) {
            (Some(condition), ..) => f.write_str(condition),
            (None, Some(field), Some(value)) => write!(f, "{field} is {value}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = "object: {apiVersion: example.com/v1, kind: Backup, name: nightly, namespace: shop}";

    #[track_caller]
    fn check(text: &str, expect: Result<&[&str], &str>) {
        match (parse(Path::new(FILE), text), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found.keys().copied().collect::<Vec<_>>(), expect),
            (Err(found), Err(expect)) => assert!(found.to_string().contains(expect), "{found}"),
            (found, expect) => panic!("{found:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn what_may_be_declared() {
        check(&format!("backup: {{until: {{{OBJECT}, condition: Complete}}}}"), Ok(&["backup"]));
        check(
            &format!("restore: {{apply: [{{kind: A}}], until: {{{OBJECT}, field: .status.phase, equals: Done}}}}"),
            Ok(&["restore"]),
        );
        check(&format!("bakcup: {{until: {{{OBJECT}, condition: Complete}}}}"), Err("it takes backup, restore"));
        check(&format!("backup: {{until: {{{OBJECT}}}}}"), Err("until takes condition, or field and equals"));
        check(&format!("backup: {{until: {{{OBJECT}, condition: A, field: b, equals: c}}}}"), Err("until takes"));
        check("backup: {}", Err("is not understood"));
        check("backup: [", Err("is not understood"));
    }

    #[test]
    fn when_it_is_true() {
        let until = |rest: &str| {
            let text = format!("backup: {{until: {{{OBJECT}, {rest}}}}}");
            parse(Path::new(FILE), &text).expect("it is right").remove("backup").expect("it is there").until
        };
        let condition = until("condition: Complete");
        let with = |status: &str| json!({"status": {"phase": "Done", "conditions": [{"type": "Complete", "status": status, "message": "m"}]}});
        for (until, object, expect) in [
            (&condition, None, Some("there is no Backup nightly")),
            (&condition, Some(json!({})), Some("it has no condition Complete")),
            (&condition, Some(with("False")), Some("Complete is \"False\": \"m\"")),
            (&condition, Some(with("True")), None),
            (&until("field: .status.phase, equals: Done"), Some(with("True")), None),
            (&until("field: .status.phase, equals: Over"), Some(with("True")), Some(".status.phase is \"Done\"")),
        ] {
            assert_eq!(until.missing(object.as_ref()).as_deref(), expect);
        }
        assert_eq!(condition.to_string(), "Backup nightly: Complete");
        assert_eq!(condition.object()["metadata"], json!({"name": "nightly", "namespace": "shop"}));
    }
}
