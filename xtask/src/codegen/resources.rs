//! In: the discovery documents and the OpenAPI schemas of a release. Out: the text of the table of resources that
//! `konverge_apiserver` serves. It has only stable versions, in the order of the documents: clients prefer the first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::source::is_stable;

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The comment at the head of the generated file, after the line that names its source.
const FORMAT: &str = "\
#
# Written by `cargo xtask codegen`; do not edit. Read by crates/apiserver/src/builtin.rs.
#
#   GROUP/VERSION                                  in the order clients prefer; the core group is `/v1`
#     PLURAL SINGULAR KIND SCOPE TYPE[; WORD]...   a resource; TYPE is the name of its objects' type
#       SUBRESOURCE GROUP/VERSION KIND VERBS       what its endpoint speaks
#
# SCOPE  namespaced | cluster
# WORD   verbs A,B (left out when all eight are there) | short A,B | in A,B (categories)
";

/// Writes the table. `core` is the legacy resource list of the core group, `groups` the aggregated document.
pub(super) fn table(
    source: &str,
    core: &Value,
    groups: &Value,
    schemas: &BTreeMap<String, Value>,
) -> Result<String, String> {
    let types = types_by_kind(schemas);
    let mut out = format!("# Resources of {source}\n{FORMAT}");
    let core = json!({"metadata": {"name": ""}, "versions": [aggregated(core)?]});
    for group in std::iter::once(&core).chain(list(&groups["items"])) {
        let name = text(&group["metadata"]["name"])?;
        for version in list(&group["versions"]) {
            let number = text(&version["version"])?;
            if is_stable(number) {
                let rows =
                    rows(name, number, version, &types).map_err(|problem| format!("{name}/{number}: {problem}"))?;
                if !rows.is_empty() {
                    let _ = write!(out, "\n{name}/{number}\n{rows}");
                }
            }
        }
    }
    Ok(out)
}

fn rows(group: &str, version: &str, document: &Value, types: &Types) -> Result<String, String> {
    let mut out = String::new();
    for resource in list(&document["resources"]) {
        let plural = text(&resource["resource"])?;
        let (_, _, kind) = response_kind(group, version, resource)?;
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        let ty = types.get(&key).ok_or_else(|| format!("{plural}: no type for {kind}"))?;
        let singular = text(&resource["singularResource"])?;
        let scope = match text(&resource["scope"])? {
            "Namespaced" => "namespaced",
            "Cluster" => "cluster",
            other => return Err(format!("{plural}: unknown scope {other}")),
        };
        let _ = write!(out, "  {plural} {singular} {kind} {scope} {ty}");
        let verbs = verbs(resource)?;
        if verbs != ALL_VERBS {
            let _ = write!(out, "; verbs {}", verbs.join(","));
        }
        for (word, names) in [("short", &resource["shortNames"]), ("in", &resource["categories"])] {
            let names = list(names).iter().map(text).collect::<Result<Vec<_>, _>>()?;
            if !names.is_empty() {
                let _ = write!(out, "; {word} {}", names.join(","));
            }
        }
        out.push('\n');
        for sub in list(&resource["subresources"]) {
            let (group, version, kind) = response_kind(group, version, sub)?;
            let name = text(&sub["subresource"])?;
            let _ = writeln!(out, "    {name} {group}/{version} {kind} {}", self::verbs(sub)?.join(","));
        }
    }
    Ok(out)
}

/// Group, version and kind to the name of a type.
type Types = BTreeMap<(String, String, String), String>;

fn types_by_kind(schemas: &BTreeMap<String, Value>) -> Types {
    let mut types = Types::new();
    for (name, schema) in schemas {
        // Options that every group has, such as DeleteOptions, list several kinds; they are not the type of a resource.
        if let [gvk] = list(&schema["x-kubernetes-group-version-kind"]) {
            let part = |key: &str| gvk[key].as_str().unwrap_or_default().to_owned();
            types.insert((part("group"), part("version"), part("kind")), name.clone());
        }
    }
    types
}

/// The legacy list in the form of the aggregated document, with subresources below their resource.
fn aggregated(legacy: &Value) -> Result<Value, String> {
    let mut resources: Vec<Value> = Vec::new();
    for entry in list(&legacy["resources"]) {
        let kind = json!({"group": entry["group"], "version": entry["version"], "kind": entry["kind"]});
        match text(&entry["name"])?.split_once('/') {
            None => resources.push(json!({
                "resource": entry["name"],
                "singularResource": entry["singularName"],
                "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
                "responseKind": kind,
                "verbs": entry["verbs"],
                "shortNames": entry["shortNames"],
                "categories": entry["categories"],
                "subresources": [],
            })),
            Some((plural, name)) => {
                let parent = resources.iter_mut().find(|resource| resource["resource"] == plural);
                let parent = parent.and_then(|parent| parent["subresources"].as_array_mut());
                let parent = parent.ok_or_else(|| format!("{plural}/{name} comes before {plural}"))?;
                parent.push(json!({"subresource": name, "responseKind": kind, "verbs": entry["verbs"]}));
            }
        }
    }
    Ok(json!({"version": legacy["groupVersion"], "resources": resources}))
}

/// The kind of an endpoint; its group and version are those of the document unless they are given.
fn response_kind<'a>(
    group: &'a str,
    version: &'a str,
    entry: &'a Value,
) -> Result<(&'a str, &'a str, &'a str), String> {
    let kind = &entry["responseKind"];
    let own = kind["version"].as_str().filter(|version| !version.is_empty());
    let name = text(&kind["kind"])?;
    Ok(match own {
        Some(version) => (kind["group"].as_str().unwrap_or_default(), version, name),
        None => (group, version, name),
    })
}

fn verbs(entry: &Value) -> Result<Vec<&str>, String> {
    let verbs = list(&entry["verbs"]).iter().map(text).collect::<Result<Vec<_>, _>>()?;
    match verbs.iter().find(|verb| !ALL_VERBS.contains(verb)) {
        Some(verb) => Err(format!("unknown verb {verb}")),
        None => Ok(verbs),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(core: Value, groups: Value, expect: Result<&str, &str>) {
        let ty = |group: &str, kind: &str| {
            let gvk = json!([{"group": group, "version": "v1", "kind": kind}]);
            (format!("io.{group}.{kind}"), json!({"x-kubernetes-group-version-kind": gvk}))
        };
        let mut schemas = BTreeMap::from([ty("", "Pod"), ty("apps", "Deployment"), ty("autoscaling", "Scale")]);
        let many =
            json!([{"group": "", "version": "v1", "kind": "X"}, {"group": "apps", "version": "v1", "kind": "X"}]);
        schemas.insert("io.X".into(), json!({"x-kubernetes-group-version-kind": many}));
        let got = table("a test", &core, &groups, &schemas);
        let rows =
            got.as_ref().map(|text| text.strip_prefix(&format!("# Resources of a test\n{FORMAT}")).unwrap().trim());
        assert_eq!(rows.map_err(String::as_str), expect);
    }

    fn group(name: &str, versions: Value) -> Value {
        json!({"items": [{"metadata": {"name": name}, "versions": versions}]})
    }

    #[test]
    fn legacy_and_aggregated_documents_give_the_same_rows() {
        let core = json!({"groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": true, "verbs": ALL_VERBS,
             "shortNames": ["po"], "categories": ["all"]},
            {"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["get", "patch"]},
            {"name": "pods/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get"]},
        ]});
        let apps = group(
            "apps",
            json!([
                {"version": "v1", "resources": [{
                    "resource": "deployments", "singularResource": "deployment", "scope": "Cluster",
                    "responseKind": {"group": "", "version": "", "kind": "Deployment"}, "verbs": ["create"],
                    "subresources": [{"subresource": "scale", "verbs": ["get"],
                                      "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}],
                }]},
                {"version": "v1beta1", "resources": [{"resource": "others"}]},
            ]),
        );
        check(
            core,
            apps,
            Ok("/v1\n  pods pod Pod namespaced io..Pod; short po; in all\n    status /v1 Pod get,patch\n    \
                scale autoscaling/v1 Scale get\n\napps/v1\n  \
                deployments deployment Deployment cluster io.apps.Deployment; verbs create\n    \
                scale autoscaling/v1 Scale get"),
        );
    }

    #[test]
    fn says_what_it_does_not_know() {
        let none = json!({"items": []});
        let cases = [
            (json!([{"name": "a/b", "kind": "A", "verbs": []}]), "a/b comes before a"),
            (json!([{"name": "as", "singularName": "a", "kind": "A", "verbs": []}]), "/v1: as: no type for A"),
            (json!([{"name": "as", "singularName": "a", "kind": "X", "verbs": []}]), "/v1: as: no type for X"),
            (
                json!([{"name": "pods", "singularName": "pod", "kind": "Pod", "verbs": ["ask"]}]),
                "/v1: unknown verb ask",
            ),
        ];
        for (resources, expect) in cases {
            check(json!({"groupVersion": "v1", "resources": resources}), none.clone(), Err(expect));
        }
    }
}
