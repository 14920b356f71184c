//! What a new schema breaks. In: the schemas of one version. Out: changes, each with the path of its value.

use serde_json::{Map, Value};

use super::{Changes, shown, text, texts};

/// How deep schemas are compared; a structural schema that a server took is far less deep.
const DEEPEST: usize = 100;

/// Keywords whose number may only grow looser, and whether a larger one is.
const BOUNDS: [(&str, bool); 8] = [
    ("minimum", false),
    ("maximum", true),
    ("minLength", false),
    ("maxLength", true),
    ("minItems", false),
    ("maxItems", true),
    ("minProperties", false),
    ("maxProperties", true),
];

/// Switches, and whether switching one on accepts less.
const SWITCHES: [(&str, bool, &str); 6] = [
    ("exclusiveMinimum", true, "the bound itself is refused"),
    ("exclusiveMaximum", true, "the bound itself is refused"),
    ("uniqueItems", true, "lists with an item twice are refused"),
    ("nullable", false, "null is dropped or refused"),
    ("x-kubernetes-int-or-string", false, "either numbers or texts are refused"),
    ("x-kubernetes-embedded-resource", true, "values that are no whole object are refused"),
];

/// Compares two schemas.
pub(super) fn compare(path: &str, old: &Value, new: &Value, changes: &mut Changes) {
    let mut walk = Walk { changes, in_list: false };
    walk.schema(path, old, new, 0);
}

/// The fields of a schema that another one does not have, as `.spec.size`.
pub(super) fn dropped(old: &Value, new: &Value) -> Vec<String> {
    let mut changes = Changes::default();
    Walk { changes: &mut changes, in_list: false }.schema("", old, new, 0);
    let removed = changes.0.into_iter().filter(|change| change.what.starts_with(REMOVED));
    removed.map(|change| change.path).collect()
}

const REMOVED: &str = "field removed";

struct Walk<'a> {
    changes: &'a mut Changes,
    /// Whether the value is in a list whose items nobody can tell apart, so that a server cannot see that one is unchanged.
    in_list: bool,
}

impl Walk<'_> {
    fn schema(&mut self, path: &str, old: &Value, new: &Value, depth: usize) {
        if depth > DEEPEST || old == new {
            return;
        }
        if !self.kind(path, old, new) {
            return;
        }
        self.values(path, old, new);
        self.bounds(path, old, new);
        self.switches(path, old, new);
        self.merging(path, old, new);
        self.rules(path, old, new);
        self.default(path, old, new);
        self.fields(path, old, new, depth);
        if old["items"].is_object() && new["items"].is_object() {
            let was_in_list = self.in_list;
            self.in_list |= text(new, "x-kubernetes-list-type") != "map";
            self.schema(&format!("{path}[*]"), &old["items"], &new["items"], depth + 1);
            self.in_list = was_in_list;
        }
    }

    /// Whether both are of one type; otherwise there is nothing else to compare.
    fn kind(&mut self, path: &str, old: &Value, new: &Value) -> bool {
        let (before, after) = (text(old, "type"), text(new, "type"));
        if before == after {
            return true;
        }
        let why = match (before, after) {
            ("integer", "number") => "clients that read whole numbers may get others",
            ("", _) => "values of other types are refused",
            (_, "") => "clients that know the type may get values of others",
            _ => "values of the old type are refused, and clients do not expect the new one",
        };
        let shown = |name: &str| if name.is_empty() { "any".to_owned() } else { name.to_owned() };
        self.changes.breaks(path, format!("type changed from {} to {}", shown(before), shown(after)), why);
        false
    }

    fn values(&mut self, path: &str, old: &Value, new: &Value) {
        match (old["enum"].as_array(), new["enum"].as_array()) {
            (Some(before), Some(after)) => {
                for gone in before.iter().filter(|value| !after.contains(value)) {
                    self.changes.breaks(
                        path,
                        format!("{gone} removed from enum"),
                        "objects with this value are refused",
                    );
                }
                for added in after.iter().filter(|value| !before.contains(value)) {
                    self.changes.fine(path, format!("{added} added to enum"), "values that were taken are still taken");
                }
            }
            (None, Some(_)) => self.changes.breaks(path, "enum added", "all other values are refused"),
            (Some(_), None) => self.changes.fine(path, "enum removed", "values that were taken are still taken"),
            (None, None) => {}
        }
        for field in ["pattern", "format", "multipleOf", "not", "allOf", "anyOf", "oneOf"] {
            let (before, after) = (&old[field], &new[field]);
            match (before.is_null(), after.is_null()) {
                _ if before == after => {}
                (true, _) => {
                    let shown = if matches!(field, "pattern" | "format" | "multipleOf") {
                        format!(" {after}")
                    } else {
                        String::new()
                    };
                    self.changes.breaks(path, format!("{field}{shown} added"), "values that do not match are refused");
                }
                (_, true) => {
                    self.changes.fine(path, format!("{field} removed"), "values that were taken are still taken")
                }
                _ if matches!(field, "pattern" | "format" | "multipleOf") => {
                    let what = format!("{field} changed from {before} to {after}");
                    self.changes.breaks(path, what, "values that matched the old one may be refused");
                }
                _ => self.changes.breaks(
                    path,
                    format!("{field} changed"),
                    "values that matched the old one may be refused",
                ),
            }
        }
    }

    fn bounds(&mut self, path: &str, old: &Value, new: &Value) {
        for (field, larger_is_looser) in BOUNDS {
            let (before, after) = (old[field].as_f64(), new[field].as_f64());
            let why = "values that were taken are refused";
            match (before, after) {
                (None, Some(_)) => self.changes.breaks(path, format!("{field} {} added", shown(&new[field])), why),
                (Some(_), None) => {
                    self.changes.fine(path, format!("{field} removed"), "values that were taken are still taken");
                }
                (Some(before), Some(after)) if before != after => {
                    let (grows, looser) = (after > before, (after > before) == larger_is_looser);
                    let how = if grows { "raised" } else { "lowered" };
                    let what = format!("{field} {how} from {} to {}", shown(&old[field]), shown(&new[field]));
                    match looser {
                        true => self.changes.fine(path, what, "values that were taken are still taken"),
                        false => self.changes.breaks(path, what, why),
                    }
                }
                _ => {}
            }
        }
    }

    fn switches(&mut self, path: &str, old: &Value, new: &Value) {
        for (field, on_is_stricter, why) in SWITCHES {
            let (before, after) = (old[field] == true, new[field] == true);
            if before == after {
                continue;
            }
            let what = format!("{field} turned {}", if after { "on" } else { "off" });
            match after == on_is_stricter {
                true => self.changes.breaks(path, what, why),
                false => self.changes.fine(path, what, "values that were taken are still taken"),
            }
        }
        let preserves = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
        match (preserves(old), preserves(new)) {
            (true, false) => {
                let why = "fields that the schema does not name are dropped when an object is written";
                self.changes.breaks(path, "x-kubernetes-preserve-unknown-fields turned off", why);
            }
            (false, true) => {
                self.changes.fine(path, "x-kubernetes-preserve-unknown-fields turned on", "more fields are kept");
            }
            _ => {}
        }
    }

    /// How server-side apply merges.
    fn merging(&mut self, path: &str, old: &Value, new: &Value) {
        let types = [("x-kubernetes-list-type", "atomic"), ("x-kubernetes-map-type", "granular")];
        for (field, usual) in types {
            let of = |schema: &Value| schema[field].as_str().unwrap_or(usual).to_owned();
            let (before, after) = (of(old), of(new));
            if before != after {
                let why = match after.as_str() {
                    "set" => "lists with an item twice are refused, and server-side apply merges where it replaced",
                    "map" => {
                        "lists with two items of one key are refused, and server-side apply merges where it replaced"
                    }
                    _ => "server-side apply replaces where it merged, and one manager takes the fields of others",
                };
                self.changes.breaks(path, format!("{field} changed from {before} to {after}"), why);
            }
        }
        let keys = |schema: &Value| texts(schema, "x-kubernetes-list-map-keys").join(", ");
        let (before, after) = (keys(old), keys(new));
        if before != after && !before.is_empty() && !after.is_empty() {
            let what = format!("x-kubernetes-list-map-keys changed from {before} to {after}");
            self.changes.breaks(
                path,
                what,
                "other items are the same item, so that lists are merged or refused in another way",
            );
        }
    }

    fn rules(&mut self, path: &str, old: &Value, new: &Value) {
        let rules = |schema: &Value| -> Vec<String> {
            let all = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            all.map(|rule| text(rule, "rule").to_owned()).collect()
        };
        let (before, after) = (rules(old), rules(new));
        for added in after.iter().filter(|rule| !before.contains(rule)) {
            let why = match self.in_list {
                true => {
                    "values that break it are refused, also in objects that are there: no item of this list can be told to be \
                     unchanged, so that such an object cannot be changed at all"
                }
                false => {
                    "values that break it are refused; objects that are there keep theirs as long as it does not change"
                }
            };
            self.changes.breaks(path, format!("rule added: {added}"), why);
        }
        for gone in before.iter().filter(|rule| !after.contains(rule)) {
            self.changes.fine(path, format!("rule removed: {gone}"), "values that were taken are still taken");
        }
    }

    fn default(&mut self, path: &str, old: &Value, new: &Value) {
        let (before, after) = (old.get("default"), new.get("default"));
        match (before, after) {
            _ if before == after => {}
            (None, None) => {}
            (None, Some(value)) => {
                self.changes.fine(
                    path,
                    format!("default {value} added"),
                    "objects without the field get it when they are read",
                );
            }
            (Some(value), None) => {
                let why =
                    "objects without the field have none from now on, also in the eyes of clients that rely on it";
                self.changes.breaks(path, format!("default {value} removed"), why);
            }
            (Some(before), Some(after)) => {
                let why = "manifests that leave the field out mean something else from now on";
                self.changes.breaks(path, format!("default changed from {before} to {after}"), why);
            }
        }
    }

    fn fields(&mut self, path: &str, old: &Value, new: &Value, depth: usize) {
        let none = Map::new();
        let properties = |schema: &'_ Value| schema["properties"].as_object().cloned().unwrap_or_else(|| none.clone());
        let (before, after) = (properties(old), properties(new));
        let (was_required, is_required) = (texts(old, "required"), texts(new, "required"));
        let keeps = new["x-kubernetes-preserve-unknown-fields"] == true;
        for (name, field) in &before {
            let at = format!("{path}.{name}");
            if let Some(same) = after.get(name) {
                self.schema(&at, field, same, depth + 1);
                continue;
            }
            let renamed = after.iter().find(|(other, schema)| !before.contains_key(*other) && *schema == field);
            let hint = renamed.map_or(String::new(), |(other, _)| format!(" (renamed to {other}?)"));
            match keeps || new["additionalProperties"].is_object() {
                true => self.changes.fine(&at, "field no longer described", "it is still kept"),
                false => {
                    let why =
                        "it is dropped when an object is written, and manifests with it are refused by strict clients";
                    self.changes.breaks(&at, format!("{REMOVED}{hint}"), why);
                }
            }
        }
        for (name, field) in &after {
            let at = format!("{path}.{name}");
            let has_default = field.get("default").is_some();
            let newly_required = is_required.contains(&name.as_str()) && !was_required.contains(&name.as_str());
            match before.contains_key(name) {
                false if newly_required && !has_default => {
                    self.changes.breaks(&at, "required field added", "objects without it are refused");
                }
                false => self.changes.fine(&at, "field added", "objects without it are still taken"),
                true if newly_required && !has_default => {
                    self.changes.breaks(&at, "newly required", "objects without it are refused");
                }
                true if newly_required => self.changes.fine(&at, "newly required", "its default fills it in"),
                true => {}
            }
        }
        for name in was_required.iter().filter(|name| !is_required.contains(name) && after.contains_key(**name)) {
            let why = "objects that were taken are still taken; clients must not rely on it any more";
            self.changes.fine(format!("{path}.{name}"), "no longer required", why);
        }
        let (before, after) = (&old["additionalProperties"], &new["additionalProperties"]);
        match (accepts(before), accepts(after)) {
            (true, true) => self.schema(&format!("{path}.*"), before, after, depth + 1),
            (true, false) if !keeps => {
                self.changes.breaks(
                    path,
                    "additionalProperties removed",
                    "entries are dropped when an object is written",
                );
            }
            (false, true) => self.changes.fine(path, "additionalProperties added", "more is kept"),
            _ => {}
        }
    }
}

/// Whether a map takes entries.
fn accepts(additional: &Value) -> bool {
    additional.is_object() || *additional == true
}
