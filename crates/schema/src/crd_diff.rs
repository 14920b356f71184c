//! What a new CRD breaks for those who use the old one. In: two definitions. Out: every change that somebody may notice, where it
//! is, and why it breaks clients or objects, or why it does not. Pure; nothing is asked of a cluster.
//!
//! A change breaks if an object or a manifest that was good is refused, loses data or means something else, or if a request that
//! was answered is not. This file compares definitions, `schema` the schemas of a version, value by value.

mod schema;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// One change of a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrdChange {
    /// Whether it breaks somebody.
    pub breaking: bool,
    /// Where it is: `versions[v1].spec.ports[*].name`.
    pub path: String,
    /// What changed: `maximum lowered from 10 to 5`.
    pub what: String,
    /// What follows from it.
    pub why: String,
}

/// The changes from one definition to another, those that break first.
///
/// ```
/// use konverge_schema::crd_diff;
/// use serde_json::json;
/// let crd = |maximum: u32| json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
///     "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer", "maximum": maximum}}}},
/// }]}});
/// let changes = crd_diff(&crd(10), &crd(5));
/// assert_eq!((changes[0].path.as_str(), changes[0].breaking), ("versions[v1].size", true));
/// assert!(!crd_diff(&crd(5), &crd(10))[0].breaking);
/// ```
pub fn crd_diff(old: &Value, new: &Value) -> Vec<CrdChange> {
    let mut changes = Changes::default();
    names(&old["spec"], &new["spec"], &mut changes);
    conversion(&old["spec"], &new["spec"], &mut changes);
    for before in versions(old) {
        match version(new, text(before, "name")) {
            Some(after) => same_version(before, after, &mut changes),
            None => removed_version(old, before, &mut changes),
        }
    }
    for added in versions(new).filter(|added| version(old, text(added, "name")).is_none()) {
        let path = format!("versions[{}]", text(added, "name"));
        changes.fine(path, "version added", "clients of the other versions do not notice");
    }
    storage(old, new, &mut changes);
    changes.0.sort_by_key(|change| !change.breaking);
    changes.0
}

impl CrdChange {
    /// The whole CRD is gone.
    pub fn removed_definition() -> Self {
        let (what, why) =
            ("CRD removed", "its kind is not served any more, and a cluster deletes all its objects with it");
        Self { breaking: true, path: String::new(), what: what.to_owned(), why: why.to_owned() }
    }

    /// A CRD that was not there.
    pub fn added_definition() -> Self {
        let (what, why) = ("CRD added", "nobody uses it yet");
        Self { breaking: false, path: String::new(), what: what.to_owned(), why: why.to_owned() }
    }
}

/// The changes that were found.
#[derive(Default)]
struct Changes(Vec<CrdChange>);

impl Changes {
    fn breaks(&mut self, path: impl Into<String>, what: impl Into<String>, why: impl Into<String>) {
        self.0.push(CrdChange { breaking: true, path: path.into(), what: what.into(), why: why.into() });
    }

    fn fine(&mut self, path: impl Into<String>, what: impl Into<String>, why: impl Into<String>) {
        self.0.push(CrdChange { breaking: false, path: path.into(), what: what.into(), why: why.into() });
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn texts<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    value[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

fn version<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    versions(definition).find(|version| text(version, "name") == name)
}

/// A value in a sentence.
fn shown(value: &Value) -> String {
    if value.is_null() { "none".to_owned() } else { value.to_string() }
}

fn names(old: &Value, new: &Value, changes: &mut Changes) {
    for (pointer, path) in [
        ("/group", "group"),
        ("/scope", "scope"),
        ("/names/plural", "names.plural"),
        ("/names/kind", "names.kind"),
        ("/names/singular", "names.singular"),
        ("/names/listKind", "names.listKind"),
    ] {
        let value = |spec: &Value| spec.pointer(pointer).cloned().unwrap_or_default();
        let (before, after) = (value(old), value(new));
        // Names that nobody gives are made from the kind.
        let is_made = matches!(path, "names.singular" | "names.listKind") && (before.is_null() || after.is_null());
        if before != after && !is_made {
            let why = match path {
                "scope" => "every object would have another path; a server refuses the change",
                "group" | "names.plural" => {
                    "it is another CRD; objects of the old one are not found under the new name"
                }
                _ => "manifests and clients name it",
            };
            changes.breaks(path, format!("changed from {} to {}", shown(&before), shown(&after)), why);
        }
    }
    for (field, breaking) in [("shortNames", true), ("categories", false)] {
        let (before, after) = (texts(&old["names"], field), texts(&new["names"], field));
        for gone in before.iter().filter(|name| !after.contains(name)) {
            let (path, what) = (format!("names.{field}"), format!("{gone} removed"));
            match breaking {
                true => changes.breaks(path, what, "commands that use it fail"),
                false => changes.fine(path, what, "kubectl lists it in fewer places"),
            }
        }
        for added in after.iter().filter(|name| !before.contains(name)) {
            changes.fine(format!("names.{field}"), format!("{added} added"), "nothing else uses it");
        }
    }
    if old["preserveUnknownFields"] == true && new["preserveUnknownFields"] != true {
        let why = "fields that the schema does not name are dropped when an object is written";
        changes.breaks("preserveUnknownFields", "turned off", why);
    }
}

fn conversion(old: &Value, new: &Value, changes: &mut Changes) {
    let strategy = |spec: &Value| if text(&spec["conversion"], "strategy") == "Webhook" { "Webhook" } else { "None" };
    let several = new["versions"].as_array().is_some_and(|versions| versions.len() > 1);
    match (strategy(old), strategy(new)) {
        ("Webhook", "None") if several => {
            let why = "objects are no longer converted: only apiVersion changes, and fields that the other version lacks are dropped";
            changes.breaks("conversion.strategy", "changed from Webhook to None", why);
        }
        ("None", "Webhook") => {
            let why = "objects are converted by a webhook from now on, which has to be there when they are read";
            changes.fine("conversion.strategy", "changed from None to Webhook", why);
        }
        _ => {}
    }
}

fn removed_version(old: &Value, version: &Value, changes: &mut Changes) {
    let name = text(version, "name");
    let path = format!("versions[{name}]");
    // A file need not have a status, and the version that it says is stored is one that was.
    if texts(&old["status"], "storedVersions").contains(&name) || version["storage"] == true {
        let why = format!(
            "objects may be stored in it (status.storedVersions), so that a server refuses this; store another version, run \
             `konverge crd migrate {}`, then remove it",
            text(&old["metadata"], "name")
        );
        changes.breaks(path, "version removed while objects are stored in it", why);
    } else if version["served"] == true {
        changes.breaks(path, "version removed", "clients and manifests of this version get 404");
    } else {
        changes.fine(path, "version removed", "it was not served");
    }
}

fn same_version(old: &Value, new: &Value, changes: &mut Changes) {
    let path = format!("versions[{}]", text(old, "name"));
    match (old["served"] == true, new["served"] == true) {
        (true, false) => changes.breaks(&path, "no longer served", "clients and manifests of this version get 404"),
        (false, true) => changes.fine(&path, "served", "nobody could use it before"),
        _ => {}
    }
    if new["deprecated"] == true && old["deprecated"] != true {
        changes.fine(&path, "deprecated", "clients are warned, and nothing else");
    }
    subresources(&path, &old["subresources"], &new["subresources"], changes);
    let fields = |version: &Value| -> Vec<String> {
        let all = version["selectableFields"].as_array().into_iter().flatten();
        all.map(|field| text(field, "jsonPath").to_owned()).collect()
    };
    let (before, after) = (fields(old), fields(new));
    for gone in before.iter().filter(|field| !after.contains(field)) {
        changes.breaks(
            format!("{path}.selectableFields"),
            format!("{gone} removed"),
            "lists and watches by it are refused",
        );
    }
    for added in after.iter().filter(|field| !before.contains(field)) {
        changes.fine(format!("{path}.selectableFields"), format!("{added} added"), "nobody could select by it before");
    }
    if old["additionalPrinterColumns"] != new["additionalPrinterColumns"] {
        changes.fine(format!("{path}.additionalPrinterColumns"), "changed", "only what kubectl prints differs");
    }
    schema::compare(&path, &old["schema"]["openAPIV3Schema"], &new["schema"]["openAPIV3Schema"], changes);
}

fn subresources(path: &str, old: &Value, new: &Value, changes: &mut Changes) {
    let at = |name: &str| format!("{path}.subresources.{name}");
    match (old["status"].is_object(), new["status"].is_object()) {
        (true, false) => {
            changes.breaks(at("status"), "removed", "writes of the status get 404, and users can write it")
        }
        (false, true) => {
            let why = "writes of the object ignore its status from now on: whoever writes it has to use /status";
            changes.breaks(at("status"), "added", why);
        }
        _ => {}
    }
    match (old["scale"].is_object(), new["scale"].is_object()) {
        (true, false) => changes.breaks(at("scale"), "removed", "kubectl scale and autoscalers get 404"),
        (false, true) => changes.fine(at("scale"), "added", "nobody could use it before"),
        (true, true) if old["scale"] != new["scale"] => {
            changes.breaks(at("scale"), "paths changed", "autoscalers read and write other fields");
        }
        _ => {}
    }
}

/// What the stored version means for objects that are there.
fn storage(old: &Value, new: &Value, changes: &mut Changes) {
    let stored = |definition| versions(definition).find(|version| version["storage"] == true);
    let (Some(before), Some(after)) = (stored(old), stored(new)) else { return };
    let (from, to) = (text(before, "name"), text(after, "name"));
    if from == to {
        return;
    }
    let name = text(&old["metadata"], "name");
    let why =
        format!("objects are written in it from now on; `konverge crd migrate {name}` rewrites those that are there");
    changes.fine(format!("versions[{to}].storage"), format!("stored instead of {from}"), why);
    if text(&new["spec"]["conversion"], "strategy") != "Webhook" {
        let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
        for lost in schema::dropped(&schema(before), &schema(after)) {
            let why = format!("without a conversion webhook, objects of {from} lose it when they are written");
            changes.breaks(format!("versions[{to}]{lost}"), format!("not there, and {from} has it"), why);
        }
    }
}
