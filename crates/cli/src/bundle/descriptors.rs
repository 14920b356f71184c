//! How consoles show the fields of a kind. In: the schema of one version of a CRD. Out: descriptors of the fields in `spec` and `status`, with the
//! widget where the schema leaves no doubt. Nothing is guessed from a description.

use serde_json::{Value, json};

use crate::description::text;

/// How deep fields are described. Deeper ones are settings of settings, which no form shows.
const DEPTH: usize = 3;

/// The largest number of choices that a form offers.
const MOST_CHOICES: usize = 20;

const UI: &str = "urn:alm:descriptor:com.tectonic.ui";
const KUBERNETES: &str = "urn:alm:descriptor:io.kubernetes";

/// Fields that name an object of some kind, by the end of their names.
const NAMED: [(&str, &str); 5] = [
    ("SecretName", "Secret"),
    ("ConfigMapName", "ConfigMap"),
    ("ServiceAccountName", "ServiceAccount"),
    ("StorageClassName", "StorageClass"),
    ("ServiceName", "Service"),
];

/// The descriptors of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Descriptors {
    pub spec: Vec<Value>,
    pub status: Vec<Value>,
}

/// The descriptors of one version of a CRD.
pub(super) fn descriptors(version: &Value) -> Descriptors {
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let scale = text(&version["subresources"]["scale"]["specReplicasPath"]);
    let replicas = scale.strip_prefix(".spec.").unwrap_or_default().to_owned();
    let of_spec = |path: &str, field: &Value| spec_widgets(path, field, path == replicas);
    let mut found = Descriptors::default();
    collect(&schema["spec"], "", 1, &of_spec, &mut found.spec);
    collect(&schema["status"], "", 1, &status_widgets, &mut found.status);
    found
}

fn collect(
    schema: &Value,
    prefix: &str,
    depth: usize,
    widgets: &dyn Fn(&str, &Value) -> Vec<String>,
    found: &mut Vec<Value>,
) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let shown = match text(&field["title"]) {
            none if none.is_empty() => spaced(name),
            title => title,
        };
        let mut descriptor = json!({"path": path, "displayName": shown});
        let description = text(&field["description"]);
        if !description.is_empty() {
            descriptor["description"] = description.into();
        }
        let widgets_of = widgets(&path, field);
        // A widget shows all that is below it.
        let is_whole = widgets_of.iter().any(|widget| widget.ends_with("resourceRequirements"));
        if !widgets_of.is_empty() {
            descriptor["x-descriptors"] = widgets_of.into();
        }
        found.push(descriptor);
        // The items of a list of conditions are a widget of their own.
        if depth < DEPTH && !is_whole && name != "conditions" {
            collect(field, &format!("{path}."), depth + 1, widgets, found);
            collect(&field["items"], &format!("{path}[0]."), depth + 1, widgets, found);
        }
    }
}

fn spec_widgets(path: &str, field: &Value, is_replicas: bool) -> Vec<String> {
    let name = path.rsplit('.').next().unwrap_or_default();
    let properties = field["properties"].as_object();
    let has = |key: &str| properties.is_some_and(|fields| fields.contains_key(key));
    let ui = |widget: &str| vec![format!("{UI}:{widget}")];
    let choices: Vec<String> = field["enum"].as_array().into_iter().flatten().filter_map(choice).collect();
    match field["type"].as_str() {
        Some("integer") if is_replicas || path == "replicas" => ui("podCount"),
        Some("object") if has("limits") && has("requests") => ui("resourceRequirements"),
        Some("boolean") => ui("booleanSwitch"),
        Some("integer" | "number") => ui("number"),
        Some("string") if name == "imagePullPolicy" => ui("imagePullPolicy"),
        Some("string") if !choices.is_empty() && choices.len() <= MOST_CHOICES => {
            choices.iter().map(|value| format!("{UI}:select:{value}")).collect()
        }
        Some("string") if field["format"] == "password" => ui("password"),
        Some("string") => match named(name) {
            Some(kind) => vec![format!("{KUBERNETES}:{kind}")],
            None => ui("text"),
        },
        _ => Vec::new(),
    }
}

fn status_widgets(path: &str, field: &Value) -> Vec<String> {
    let is_text = field["type"] == "string";
    match path {
        "conditions" => vec![format!("{KUBERNETES}.conditions")],
        "phase" if is_text => vec![format!("{KUBERNETES}.phase")],
        "reason" if is_text => vec![format!("{KUBERNETES}.phase:reason")],
        _ if is_text && field["format"] == "uri" => vec!["urn:alm:descriptor:org.w3:link".to_owned()],
        _ if is_text => vec![format!("{UI}:text")],
        _ => Vec::new(),
    }
}

/// A value of an enum that a form can offer.
fn choice(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty() && !text.contains(char::is_whitespace)).map(ToOwned::to_owned)
}

/// The kind that a field names.
fn named(field: &str) -> Option<&'static str> {
    let fits = |end: &str| field.ends_with(end) || field.eq_ignore_ascii_case(end);
    NAMED.iter().find(|(end, _)| fits(end)).map(|(_, kind)| *kind)
}

/// `containerPort` as people write it: `Container Port`. Capitals stay together: `podIPs` is `Pod IPs`.
pub(super) fn spaced(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut spaced = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let next = letters.get(at + 1);
        // The last capital of several begins a word if two small letters follow, and else is one of them: `HTTPServer`, but `podIPs`.
        let begins_word =
            next.is_some_and(|next| next.is_lowercase()) && letters.get(at + 2).is_some_and(|c| c.is_lowercase());
        let is_new = letter.is_uppercase()
            && before.is_some_and(|before| before.is_lowercase() || before.is_ascii_digit() || begins_word);
        match letter {
            '-' | '_' | '.' => spaced.push(' '),
            letter if before.is_none_or(|before| "-_.".contains(before)) => spaced.extend(letter.to_uppercase()),
            letter => {
                if is_new {
                    spaced.push(' ');
                }
                spaced.push(*letter);
            }
        }
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_write_them() {
        for (name, expect) in [
            ("size", "Size"),
            ("containerPort", "Container Port"),
            ("podIPs", "Pod IPs"),
            ("HTTPServer", "HTTP Server"),
            ("WebApp", "Web App"),
            ("max_size", "Max Size"),
            ("tls", "Tls"),
            ("x", "X"),
        ] {
            assert_eq!(spaced(name), expect);
        }
    }

    #[test]
    fn widgets_where_there_is_no_doubt() {
        let property = |name: &str, schema: Value| (name.to_owned(), schema);
        let spec: serde_json::Map<String, Value> = [
            property("size", json!({"type": "integer"})),
            property("port", json!({"type": "integer", "description": "The port"})),
            property("paused", json!({"type": "boolean"})),
            property("mode", json!({"type": "string", "enum": ["Fast", "Safe"]})),
            property("loginSecretName", json!({"type": "string"})),
            property("image", json!({"type": "string", "title": "The Image"})),
            property("resources", json!({"type": "object", "properties": {"limits": {}, "requests": {}}})),
            property("tls", json!({"type": "object", "properties": {"enabled": {"type": "boolean"}}})),
            property(
                "rules",
                json!({"type": "array", "items": {"type": "object", "properties": {"host": {"type": "string"}}}}),
            ),
        ]
        .into_iter()
        .collect();
        let status = json!({
            "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
            "phase": {"type": "string"}, "url": {"type": "string", "format": "uri"}, "ready": {"type": "integer"},
        });
        let version = json!({
            "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": spec}, "status": {"properties": status}}}},
            "subresources": {"scale": {"specReplicasPath": ".spec.size"}},
        });
        let found = descriptors(&version);
        let brief = |all: &[Value]| -> Vec<String> {
            let widgets = |one: &Value| -> Vec<String> {
                let all = one["x-descriptors"].as_array().into_iter().flatten().map(text);
                all.map(|widget| widget.trim_start_matches("urn:alm:descriptor:").to_owned()).collect()
            };
            all.iter().map(|one| format!("{} {}", text(&one["path"]), widgets(one).join(" "))).collect()
        };
        assert_eq!(
            brief(&found.spec),
            [
                "image com.tectonic.ui:text",
                "loginSecretName io.kubernetes:Secret",
                "mode com.tectonic.ui:select:Fast com.tectonic.ui:select:Safe",
                "paused com.tectonic.ui:booleanSwitch",
                "port com.tectonic.ui:number",
                "resources com.tectonic.ui:resourceRequirements",
                "rules ",
                "rules[0].host com.tectonic.ui:text",
                "size com.tectonic.ui:podCount",
                "tls ",
                "tls.enabled com.tectonic.ui:booleanSwitch",
            ]
        );
        assert_eq!(
            brief(&found.status),
            ["conditions io.kubernetes.conditions", "phase io.kubernetes.phase", "ready ", "url org.w3:link"]
        );
        assert_eq!(found.spec[0]["displayName"], "The Image");
        assert_eq!(found.spec[4]["description"], "The port");
    }
}
