//! In: the roles and bindings that Kubernetes tests its own policy against. Out: the text of the table from which the API
//! server makes them at its first start.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// The comment at the head of the generated file, after the line that names its source.
const FORMAT: &str = "\
#
# Written by `cargo xtask codegen`; do not edit. Read by crates/apiserver/src/rbac/bootstrap.rs.
#
#   clusterrole NAME[; WORD]...              WORD  label KEY=VALUE | aggregates KEY=VALUE
#   role NAMESPACE NAME
#     GROUPS RESOURCES VERBS [NAMES]         a rule: lists with commas; `core` is the core group
#     paths PATHS VERBS
#   clusterrolebinding NAME CLUSTERROLE
#   rolebinding NAMESPACE NAME ROLE
#     User NAME | Group NAME | ServiceAccount NAMESPACE NAME
#
# Each has the label kubernetes.io/bootstrapping=rbac-defaults and the annotation that lets it be updated at a start.
";

/// Writes the table from lists of objects.
pub(super) fn table(source: &str, lists: &[Value]) -> Result<String, String> {
    let mut out = format!("# Roles and bindings of {source}\n{FORMAT}");
    for list in lists {
        out.push('\n');
        for item in items(&list["items"]) {
            row(&mut out, item).map_err(|problem| format!("{}: {problem}", item["metadata"]["name"]))?;
        }
    }
    Ok(out)
}

fn row(out: &mut String, object: &Value) -> Result<(), String> {
    let metadata = &object["metadata"];
    if metadata["annotations"] != json!({"rbac.authorization.kubernetes.io/autoupdate": "true"}) {
        return Err(format!("unknown annotations {}", metadata["annotations"]));
    }
    let kind = text(&object["kind"])?;
    out.push_str(&kind.to_lowercase());
    if let Some(namespace) = metadata["namespace"].as_str() {
        let _ = write!(out, " {namespace}");
    }
    let _ = write!(out, " {}", word(&metadata["name"])?);
    if let Some(role) = object.get("roleRef") {
        if text(&role["kind"])? != kind.trim_end_matches("Binding") {
            return Err(format!("a {kind} of a {}", role["kind"]));
        }
        let _ = write!(out, " {}", word(&role["name"])?);
    }
    let labels = metadata["labels"].as_object().ok_or("no labels")?;
    if labels.get("kubernetes.io/bootstrapping") != Some(&"rbac-defaults".into()) {
        return Err("not a default".to_owned());
    }
    for (key, value) in labels.iter().filter(|(key, _)| *key != "kubernetes.io/bootstrapping") {
        let _ = write!(out, "; label {key}={}", word(value)?);
    }
    for selector in items(&object["aggregationRule"]["clusterRoleSelectors"]) {
        for (key, value) in selector["matchLabels"].as_object().ok_or("a selector without labels")? {
            let _ = write!(out, "; aggregates {key}={}", word(value)?);
        }
    }
    out.push('\n');
    for rule in items(&object["rules"]) {
        match rule.get("nonResourceURLs") {
            Some(paths) => {
                let _ = writeln!(out, "  paths {} {}", joined(paths)?, joined(&rule["verbs"])?);
            }
            None => {
                let groups = joined(&rule["apiGroups"])?;
                let _ = write!(out, "  {groups} {} {}", joined(&rule["resources"])?, joined(&rule["verbs"])?);
                if let Some(names) = rule.get("resourceNames") {
                    let _ = write!(out, " {}", joined(names)?);
                }
                out.push('\n');
            }
        }
    }
    for subject in items(&object["subjects"]) {
        let (kind, name) = (text(&subject["kind"])?, word(&subject["name"])?);
        let _ = match kind {
            "ServiceAccount" => writeln!(out, "  {kind} {} {name}", word(&subject["namespace"])?),
            "User" | "Group" => writeln!(out, "  {kind} {name}"),
            _ => return Err(format!("unknown subject {kind}")),
        };
    }
    Ok(())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not a text"))
}

/// A text that the table can hold.
fn word(value: &Value) -> Result<&str, String> {
    let word = text(value)?;
    if word.is_empty() || word.contains([' ', ',', ';']) {
        Err(format!("{word:?} cannot be written"))
    } else {
        Ok(word)
    }
}

fn joined(list: &Value) -> Result<String, String> {
    let name = |item: &Value| if item == "" { Ok("core".to_owned()) } else { word(item).map(str::to_owned) };
    Ok(items(list).iter().map(name).collect::<Result<Vec<_>, _>>()?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(object: Value, expect: Result<&str, &str>) {
        let mut object = object;
        object["metadata"]["annotations"] = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        object["metadata"]["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
        let mut out = String::new();
        let written = row(&mut out, &object).map(|()| out.as_str());
        assert_eq!(written, expect.map_err(str::to_owned));
    }

    #[test]
    fn rows() {
        check(
            json!({
                "kind": "ClusterRole", "metadata": {"name": "a", "labels": {"k": "v"}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]},
                "rules": [
                    {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["n"]},
                    {"nonResourceURLs": ["/healthz"], "verbs": ["get", "post"]},
                ],
            }),
            Ok("clusterrole a; label k=v; aggregates x=y\n  core,apps pods get n\n  paths /healthz get,post\n"),
        );
        check(
            json!({
                "kind": "RoleBinding", "metadata": {"name": "a", "namespace": "n"},
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
            }),
            Ok("rolebinding n a r\n  User u\n  ServiceAccount n s\n"),
        );
        check(json!({"kind": "Role", "metadata": {"name": "a b"}}), Err("\"a b\" cannot be written"));
        check(
            json!({"kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef": {"kind": "ClusterRole", "name": "r"}}),
            Err("a RoleBinding of a \"ClusterRole\""),
        );
    }
}
