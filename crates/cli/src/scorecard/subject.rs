//! An operator that is measured. In: its executable. Out: what has to be installed before it is started, and its samples.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use konverge::Settings;
use serde_json::Value;

use crate::description::text;
use crate::project::{Invocation, printed};

/// An operator and what belongs to it.
pub(super) struct Subject {
    pub executable: PathBuf,
    /// Where it is started.
    pub directory: PathBuf,
    pub settings: Settings,
    /// Its CRDs, as it prints them for a server on this machine.
    pub definitions: Vec<Value>,
    /// Its account, roles and bindings.
    pub rights: Vec<Value>,
    /// Where they are from, and the samples.
    pub samples: Vec<(String, Value)>,
}

impl Subject {
    /// Asks an operator what it needs on this machine.
    pub(super) async fn ask(
        executable: &Path,
        directory: &Path,
        settings: &Settings,
        samples: Vec<(String, Value)>,
    ) -> Result<Self, String> {
        let definitions = manifests(executable, directory, "--print-crds").await?;
        let mut rights = manifests(executable, directory, "--print-rbac").await?;
        rights.extend(manifests(executable, directory, "--print-webhooks").await?);
        Ok(Self {
            executable: executable.to_owned(),
            directory: directory.to_owned(),
            settings: settings.clone(),
            definitions,
            rights,
            samples,
        })
    }

    /// Its CRDs, which call for conversions where the operator serves webhooks.
    pub(super) fn definitions_at(&self, webhooks: SocketAddr) -> Vec<Value> {
        self.definitions.iter().map(|definition| converted_at(definition, webhooks)).collect()
    }

    /// One sample for each object. Of several samples of one object, which differ in their versions, the one in the stored version.
    pub(super) fn distinct_samples(&self) -> Vec<Value> {
        distinct(self.samples.iter().map(|(_, sample)| sample), &self.definitions)
    }
}

async fn manifests(executable: &Path, directory: &Path, flag: &str) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    for document in printed(executable, directory, flag, &Invocation::default()).await? {
        found.push(serde_saphyr::from_str(&document).map_err(|error| format!("{flag} is not understood: {error}"))?);
    }
    Ok(found)
}

/// A CRD with the address of the running operator in place of the one that the operator printed. It is asked before it has a port, so it prints port 0;
/// any other address is the developer's own.
fn converted_at(definition: &Value, webhooks: SocketAddr) -> Value {
    let mut definition = definition.clone();
    if let Some(url) = definition.pointer_mut("/spec/conversion/webhook/clientConfig/url")
        && let Some(path) = url.as_str().and_then(|url| url.strip_prefix(&format!("https://{}:0", webhooks.ip())))
    {
        *url = format!("https://{webhooks}{path}").into();
    }
    definition
}

fn distinct<'a>(samples: impl Iterator<Item = &'a Value>, definitions: &[Value]) -> Vec<Value> {
    let mut found: BTreeMap<[String; 4], Value> = BTreeMap::new();
    for sample in samples {
        let version = text(&sample["apiVersion"]);
        let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let metadata = &sample["metadata"];
        let key = [group, text(&sample["kind"]), text(&metadata["namespace"]), text(&metadata["name"])];
        if !found.contains_key(&key) || is_stored(sample, definitions) {
            found.insert(key, sample.clone());
        }
    }
    found.into_values().collect()
}

fn is_stored(sample: &Value, definitions: &[Value]) -> bool {
    let api_version = text(&sample["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    definition_of(sample, definitions).is_some_and(|definition| {
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        definition["spec"]["group"] == group
            && versions.clone().any(|one| one["name"] == version && one["storage"] == true)
    })
}

/// The CRD of an object.
pub(super) fn definition_of<'a>(object: &Value, definitions: &'a [Value]) -> Option<&'a Value> {
    let group = object["apiVersion"].as_str()?.split_once('/')?.0;
    definitions.iter().find(|one| one["spec"]["group"] == group && one["spec"]["names"]["kind"] == object["kind"])
}

/// Where the number of replicas of an object is, and which number it may have instead; nothing if it has none.
pub(super) fn other_replicas(object: &Value, definitions: &[Value]) -> Option<(String, i64)> {
    let version = object["apiVersion"].as_str()?.rsplit('/').next()?;
    let definition = definition_of(object, definitions)?;
    let version = definition["spec"]["versions"].as_array()?.iter().find(|one| one["name"] == version)?;
    // Kinds without a status are data that others read.
    version["subresources"]["status"].as_object()?;
    let scale = version["subresources"]["scale"]["specReplicasPath"].as_str().map(|path| path.replace('.', "/"));
    let candidates = scale.into_iter().chain(["/spec/replicas".to_owned(), "/spec/size".to_owned()]);
    for pointer in candidates {
        let Some(now) = object.pointer(&pointer).and_then(Value::as_i64) else { continue };
        let schema = pointer
            .split('/')
            .skip(1)
            .fold(&version["schema"]["openAPIV3Schema"], |schema, field| &schema["properties"][field]);
        let fits = |number: i64| {
            let number = number as f64;
            schema["maximum"].as_f64().is_none_or(|most| number <= most)
                && schema["minimum"].as_f64().is_none_or(|least| number >= least)
        };
        return [now + 1, now - 1]
            .into_iter()
            .find(|number| *number >= 0 && fits(*number))
            .map(|number| (pointer, number));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(maximum: i64, scale: Value) -> Value {
        let size = json!({"type": "integer", "maximum": maximum});
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": {"replicas": size, "size": size, "count": size}}}}});
        let version = |name: &str, storage: bool| json!({"name": name, "storage": storage, "schema": schema, "subresources": {"status": {}, "scale": scale}});
        json!({"spec": {"group": "example.com", "names": {"kind": "Shop"}, "versions": [version("v1", true), version("v1beta1", false)]}})
    }

    fn shop(version: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Shop", "metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn conversions_are_served_where_the_operator_listens() {
        let with = |url: &str| json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": url, "caBundle": "Q0E="}}}}});
        for (printed, expect) in [
            ("https://127.0.0.1:0/convert", "https://127.0.0.1:4711/convert"),
            ("https://127.0.0.1:9443/convert", "https://127.0.0.1:9443/convert"),
            ("https://laptop:0/convert", "https://laptop:0/convert"),
        ] {
            let webhooks = "127.0.0.1:4711".parse().expect("an address");
            assert_eq!(converted_at(&with(printed), webhooks), with(expect));
            let plain = definition(9, Value::Null);
            assert_eq!(converted_at(&plain, webhooks), plain);
        }
    }

    #[test]
    fn one_sample_an_object() {
        let all = [
            shop("v1beta1", "a", json!({})),
            shop("v1", "a", json!({})),
            shop("v1beta1", "b", json!({})),
            shop("v1beta1", "a", json!({})),
        ];
        let found = distinct(all.iter(), &[definition(9, Value::Null)]);
        let brief: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", text(&one["apiVersion"]), text(&one["metadata"]["name"])))
            .collect();
        assert_eq!(brief, ["example.com/v1 a", "example.com/v1beta1 b"]);
    }

    #[test]
    fn replicas_of_any_kind() {
        let check = |spec: Value, maximum: i64, scale: Value, expect: Option<(&str, i64)>| {
            let found = other_replicas(&shop("v1", "a", spec), &[definition(maximum, scale)]);
            assert_eq!(found, expect.map(|(pointer, number)| (pointer.to_owned(), number)));
        };
        check(json!({"replicas": 3}), 9, Value::Null, Some(("/spec/replicas", 4)));
        check(json!({"replicas": 9}), 9, Value::Null, Some(("/spec/replicas", 8)));
        check(json!({"size": 0}), 9, Value::Null, Some(("/spec/size", 1)));
        check(
            json!({"count": 2, "replicas": 5}),
            9,
            json!({"specReplicasPath": ".spec.count"}),
            Some(("/spec/count", 3)),
        );
        check(json!({"replicas": 0}), 0, Value::Null, None);
        check(json!({"image": "a"}), 9, Value::Null, None);
        assert_eq!(other_replicas(&shop("v2", "a", json!({"replicas": 1})), &[definition(9, Value::Null)]), None);
    }
}
