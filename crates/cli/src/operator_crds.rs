//! The CRDs of the running operators, for pages and hints about the developer's own kinds. In: CRDs as they are installed; a
//! project has its CRDs after its first build, and may have others after the next. Out: their kinds and paths.

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::{Value, json};

/// CRDs as JSON, in the order of the operators. Clones share the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Arc<RwLock<Vec<Value>>>);

impl Definitions {
    /// Replaces all of them.
    pub(crate) fn set(&self, definitions: Vec<Value>) {
        *self.0.write() = definitions;
    }

    /// Adds one.
    pub(crate) fn add(&self, definition: Value) {
        self.0.write().push(definition);
    }

    /// The kinds they define, the operators' first one first.
    pub(crate) fn kinds(&self) -> Vec<Defined> {
        self.0.read().iter().map(Defined::of).collect()
    }

    /// As `kubectl apply` takes them: one object, or a List of several; nothing if there are none.
    pub(crate) fn manifest(&self) -> Option<Value> {
        match self.0.read().as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            several => Some(json!({"apiVersion": "v1", "kind": "List", "items": several})),
        }
    }
}

/// The kind that a CRD defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defined {
    /// `Application`
    pub kind: String,
    /// `applications`
    pub plural: String,
    /// `applications.cloudnative.elide.dev`
    pub name: String,
    /// `/apis/cloudnative.elide.dev/v1/namespaces/{namespace}/applications`
    pub path: String,
}

impl Defined {
    fn of(definition: &Value) -> Self {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, plural, group) =
            (text(&spec["names"]["kind"]), text(&spec["names"]["plural"]), text(&spec["group"]));
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let stored = versions.iter().find(|version| version["storage"] == true).or(versions.first());
        let version = text(stored.map_or(&Value::Null, |version| &version["name"]));
        let namespaced = if spec["scope"] == "Namespaced" { "/namespaces/{namespace}" } else { "" };
        let path = format!("/apis/{group}/{version}{namespaced}/{plural}");
        Self { name: format!("{plural}.{group}"), kind, plural, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, scope: &str) -> Value {
        json!({"spec": {"group": "example.com", "scope": scope, "names": {"kind": "Thing", "plural": plural},
                        "versions": [{"name": "v1beta1", "storage": false}, {"name": "v1", "storage": true}]}})
    }

    #[test]
    fn none_one_and_several() {
        let definitions = Definitions::default();
        assert_eq!((definitions.manifest(), definitions.kinds()), (None, Vec::new()));
        definitions.add(definition("things", "Namespaced"));
        assert_eq!(definitions.manifest(), Some(definition("things", "Namespaced")));
        definitions.add(definition("worlds", "Cluster"));
        let manifest = definitions.manifest().expect("two");
        assert_eq!((&manifest["kind"], manifest["items"].as_array().map(Vec::len)), (&json!("List"), Some(2)));
        let paths: Vec<String> = definitions.kinds().into_iter().map(|kind| kind.path).collect();
        assert_eq!(paths, ["/apis/example.com/v1/namespaces/{namespace}/things", "/apis/example.com/v1/worlds"]);
        definitions.set(Vec::new());
        assert_eq!(definitions.manifest(), None);
    }
}
