//! The roles and bindings that every cluster has. In: a generated table. Out: one commit at the start of the server, which
//! creates those that are absent and adds to the others what they lack, unless an annotation forbids it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use konverge_store::{Commit, CommitError, Condition, Write as StoreWrite};

use crate::meta;
use crate::record;
use crate::server::{Aggregation, Server};

use super::GROUP;
use super::aggregate;
use super::index::Index;
use super::rule::{self, Rule};
use super::stored::StoredRole;

const TABLE: &str = include_str!("../../data/kubernetes.roles");

/// The annotation that keeps a role or binding as it is, if it is `false`.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Creates or completes the roles and bindings that every cluster has.
pub(crate) async fn create_initial(server: &Server, aggregation: Aggregation) -> Result<(), CommitError> {
    let mut expected = parse(TABLE).expect("the committed table is what the generator wrote, and a test reads it");
    if aggregation == Aggregation::Inside {
        aggregate_in(&mut expected);
    }
    let (mut removed, mut commit) = (Commit::default(), Commit::default());
    for Expected { plural, mut object } in expected {
        let resource = server.registry.find(GROUP, "v1", plural).expect("roles and bindings are built in");
        let namespace = object["metadata"]["namespace"].as_str();
        let key: Arc<str> = resource.key(namespace, meta::text(&object, "name")).into();
        let current = server.store.get(&key, None).expect("the newest revision is never compacted");
        match current.as_ref().map(|entry| (entry, reconcile(&record::decode(entry), &object))) {
            None => commit.conditions.push(Condition::Absent(key.clone())),
            Some((_, Reconciled::Unchanged)) => continue,
            Some((entry, Reconciled::Changed(changed))) => {
                commit.conditions.push(Condition::Unchanged(key.clone(), entry.revision));
                commit.writes.push(StoreWrite::Put(key, record::encode(&changed)));
                continue;
            }
            // No update may change the role of a binding, so clients have to see that this is another object.
            Some((entry, Reconciled::Replaced)) => {
                removed.conditions.push(Condition::Unchanged(key.clone(), entry.revision));
                removed.writes.push(StoreWrite::Delete(key.clone()));
                commit.conditions.push(Condition::Absent(key.clone()));
            }
        }
        meta::initialize(&mut object, &resource, &*server.env);
        commit.writes.push(StoreWrite::Put(key, record::encode(&object)));
    }
    for commit in [removed, commit] {
        if !commit.writes.is_empty() {
            server.store.commit(commit).await?;
        }
    }
    Ok(())
}

/// The rules that a cluster role of every cluster has at first.
pub(crate) fn initial_rules(name: &str) -> Vec<Rule> {
    let expected = parse(TABLE).expect("the committed table is what the generator wrote, and a test reads it");
    let of_name =
        |expected: &&Expected| expected.plural == "clusterroles" && meta::text(&expected.object, "name") == name;
    let rules = expected.iter().find(of_name).map(|expected| &expected.object["rules"]);
    rules.and_then(|rules| Deserialize::deserialize(rules).ok()).unwrap_or_default()
}

/// A role or binding that should exist.
struct Expected {
    plural: &'static str,
    object: Value,
}

/// What becomes of a role or binding that exists.
#[derive(Debug, PartialEq)]
enum Reconciled {
    Unchanged,
    Changed(Value),
    /// It binds another role.
    Replaced,
}

/// Gives the aggregated cluster roles their rules, so that they have them from the first moment.
fn aggregate_in(expected: &mut [Expected]) {
    let mut index = Index::default();
    for Expected { object, .. } in expected.iter().filter(|expected| expected.plural == "clusterroles") {
        let role = StoredRole::deserialize(object).expect("a test reads the committed table");
        index.set_role("", meta::text(object, "name"), role);
    }
    let rules = aggregate::settled(index);
    for Expected { plural, object } in expected {
        if *plural == "clusterroles"
            && let Some(rules) = rules.get(meta::text(object, "name"))
        {
            object["rules"] = json!(rules);
        }
    }
}

/// Adds what an object lacks of what is expected. Nothing is ever taken away.
fn reconcile(current: &Value, expected: &Value) -> Reconciled {
    if current["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Reconciled::Unchanged;
    }
    if current["roleRef"] != expected["roleRef"] {
        return Reconciled::Replaced;
    }
    let mut changed = current.clone();
    for field in ["annotations", "labels"] {
        for (key, value) in expected["metadata"][field].as_object().into_iter().flatten() {
            if current["metadata"][field].get(key).is_none() {
                changed["metadata"][field][key] = value.clone();
            }
        }
    }
    let rules = |object: &Value| -> Vec<Rule> { Deserialize::deserialize(&object["rules"]).unwrap_or_default() };
    // What an aggregated role lacks, the roles lack that it collects.
    let missing = rule::missing(&rules(current), &rules(expected));
    if !missing.is_empty() && expected.get("aggregationRule").is_none() {
        push_all(&mut changed["rules"], missing.iter().map(|rule| json!(rule)));
    }
    for (parent, list) in [(None, "subjects"), (Some("aggregationRule"), "clusterRoleSelectors")] {
        let of = |object: &Value| -> Vec<Value> {
            let parent = parent.map_or(object, |parent| &object[parent]);
            parent[list].as_array().cloned().unwrap_or_default()
        };
        let here = of(current);
        let missing: Vec<Value> = of(expected).into_iter().filter(|item| !here.contains(item)).collect();
        if !missing.is_empty() {
            let parent = match parent {
                None => &mut changed,
                Some(parent) => &mut changed[parent],
            };
            push_all(&mut parent[list], missing);
        }
    }
    if expected.get("aggregationRule").is_none() {
        changed.as_object_mut().and_then(|fields| fields.remove("aggregationRule"));
    }
    if changed == *current { Reconciled::Unchanged } else { Reconciled::Changed(changed) }
}

fn push_all(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(items);
    }
}

/// Reads the table; its head says what its lines mean.
fn parse(text: &str) -> Result<Vec<Expected>, String> {
    let mut expected: Vec<Expected> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let understood = match line.strip_prefix("  ") {
            None => object(line).map(|object| expected.push(object)),
            Some(line) => expected.last_mut().and_then(|expected| detail(&mut expected.object, line)),
        };
        understood.ok_or_else(|| format!("line {}: {line:?}", at + 1))?;
    }
    Ok(expected)
}

fn object(line: &str) -> Option<Expected> {
    let (line, words) = line.split_once("; ").unwrap_or((line, ""));
    let fields: Vec<&str> = line.split(' ').collect();
    let (plural, kind, namespace, name, role) = match fields.as_slice() {
        ["clusterrole", name] => ("clusterroles", "ClusterRole", None, name, None),
        ["role", namespace, name] => ("roles", "Role", Some(namespace), name, None),
        ["clusterrolebinding", name, role] => {
            ("clusterrolebindings", "ClusterRoleBinding", None, name, Some(("ClusterRole", role)))
        }
        ["rolebinding", namespace, name, role] => {
            ("rolebindings", "RoleBinding", Some(namespace), name, Some(("Role", role)))
        }
        _ => return None,
    };
    let mut labels = BTreeMap::from([("kubernetes.io/bootstrapping", "rbac-defaults")]);
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}},
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = (*namespace).into();
    }
    if let Some((kind, name)) = role {
        object["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": name});
    }
    for word in words.split("; ").filter(|word| !word.is_empty()) {
        match word.split_once(' ')? {
            ("label", pair) => labels.extend([pair.split_once('=')?]),
            ("aggregates", pair) => {
                let (key, value) = pair.split_once('=')?;
                object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {key: value}}]});
            }
            _ => return None,
        }
    }
    object["metadata"]["labels"] = json!(labels);
    Some(Expected { plural, object })
}

/// A rule of a role, or a subject of a binding.
fn detail(object: &mut Value, line: &str) -> Option<()> {
    let list = |text: &str| -> Value { text.split(',').map(|item| if item == "core" { "" } else { item }).collect() };
    let fields: Vec<&str> = line.split(' ').collect();
    let binds = object.get("roleRef").is_some();
    let (field, item) = match fields.as_slice() {
        [kind @ ("User" | "Group"), name] if binds => {
            ("subjects", json!({"apiGroup": GROUP, "kind": kind, "name": name}))
        }
        [kind @ "ServiceAccount", namespace, name] if binds => {
            ("subjects", json!({"kind": kind, "name": name, "namespace": namespace}))
        }
        ["paths", paths, verbs] if !binds => ("rules", json!({"nonResourceURLs": list(paths), "verbs": list(verbs)})),
        [groups, resources, verbs, names @ ..] if !binds => {
            let mut rule = Map::new();
            rule.insert("apiGroups".into(), list(groups));
            rule.insert("resources".into(), list(resources));
            if let [names] = names {
                rule.insert("resourceNames".into(), list(names));
            }
            rule.insert("verbs".into(), list(verbs));
            ("rules", rule.into())
        }
        _ => return None,
    };
    push_all(&mut object[field], [item]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let expected = parse(TABLE).unwrap();
        let count = |plural| expected.iter().filter(|expected| expected.plural == plural).count();
        let kinds = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
        assert_eq!(kinds.map(count), [69, 50, 7, 7]);
        for (line, why) in [("clusterrole", "a name"), ("clusterrole a; tall", "no word"), ("  User a", "of nothing")] {
            assert!(parse(line).is_err(), "{line}: {why}");
        }
    }

    #[test]
    fn what_exists_gets_what_it_lacks() {
        let role = |annotation: &str, rules: Value| json!({"metadata": {"name": "a", "annotations": {AUTO_UPDATE: annotation}}, "rules": rules});
        let rule = |verbs: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]});
        let binding =
            |role: &str, subjects: Value| json!({"metadata": {"name": "a"}, "roleRef": role, "subjects": subjects});
        let expected = role("true", json!([rule(&["get", "list"])]));
        for (current, expected, expect) in [
            (expected.clone(), &expected, Reconciled::Unchanged),
            (role("false", json!([])), &expected, Reconciled::Unchanged),
            (
                role("true", json!([rule(&["get", "watch"])])),
                &expected,
                Reconciled::Changed(role("true", json!([rule(&["get", "watch"]), rule(&["list"])]))),
            ),
            (role("true", json!([rule(&["*"])])), &expected, Reconciled::Unchanged),
            (binding("x", json!(["a"])), &binding("y", json!(["a"])), Reconciled::Replaced),
            (
                binding("x", json!(["b"])),
                &binding("x", json!(["a"])),
                Reconciled::Changed(binding("x", json!(["b", "a"]))),
            ),
        ] {
            assert_eq!(reconcile(&current, expected), expect, "{current}");
        }
    }
}
