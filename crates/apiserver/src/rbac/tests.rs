//! Decisions of the index, and that it forgets what is removed. The decisions of the original are in `tests/it/rbac.rs`.

use serde_json::{Value, json};

use super::index::Index;
use crate::authorize::{Attributes, Decision, ResourceAttributes};
use crate::user::UserInfo;

fn index() -> Index {
    let mut index = Index::default();
    let role = |rules: Value| serde_json::from_value(json!({"rules": rules})).unwrap();
    let binding = |kind: &str, role: &str, subjects: Value| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
        serde_json::from_value(json!({"roleRef": role, "subjects": subjects})).unwrap()
    };
    let read = json!([{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}]);
    index.set_role("", "reader", role(read));
    index.set_role("", "scaler", role(json!([{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}])));
    index.set_role("", "watcher", role(json!([{"nonResourceURLs": ["/metrics", "/healthz/*"], "verbs": ["get"]}])));
    let named = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}]);
    index.set_role("a", "secret", role(named));
    let group = json!([{"kind": "Group", "name": "readers"}, {"kind": "User", "name": "alice"}]);
    index.set_binding("", "read", binding("ClusterRole", "reader", group));
    index.set_binding("", "scale", binding("ClusterRole", "scaler", json!([{"kind": "User", "name": "bob"}])));
    index.set_binding("", "watch", binding("ClusterRole", "watcher", json!([{"kind": "User", "name": "bob"}])));
    index.set_binding("a", "secret", binding("Role", "secret", json!([{"kind": "ServiceAccount", "name": "robot"}])));
    index.set_binding("a", "read", binding("ClusterRole", "reader", json!([{"kind": "User", "name": "carol"}])));
    index.set_binding("", "gone", binding("ClusterRole", "absent", json!([{"kind": "User", "name": "dave"}])));
    index
}

#[track_caller]
fn check(index: &Index, user: &str, asked: &str, expect: Result<&str, &str>) {
    let (name, groups) = user.split_once('@').unwrap_or((user, ""));
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect();
    let user = UserInfo { groups, ..UserInfo::named(name) };
    let words: Vec<&str> = asked.split(' ').collect();
    let (verb, path, resource) = match words.as_slice() {
        [verb, path] => (verb, *path, None),
        [verb, group, resource, namespace, name] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let dash = |text: &'static str| if text == "-" { "" } else { text };
            let (group, namespace, name) = (dash(leak(group)), dash(leak(namespace)), dash(leak(name)));
            let resource = ResourceAttributes { group, resource, subresource, namespace, name, ..Default::default() };
            (verb, "", Some(resource))
        }
        _ => panic!("{asked}"),
    };
    let found = index.decide(&Attributes { user: &user, verb, path, resource });
    let found = match &found {
        Decision::Allow { reason } => Ok(reason.as_str()),
        Decision::NoOpinion { reason } => Err(reason.as_str()),
        Decision::Deny { .. } => panic!("RBAC never denies"),
    };
    assert_eq!(found, expect, "{} {asked}", user.name);
}

fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

#[test]
fn decisions_say_which_binding_allows() {
    let index = index();
    let by_group = r#"RBAC: allowed by ClusterRoleBinding "read" of ClusterRole "reader" to Group "readers""#;
    check(&index, "eve@readers", "get - pods a p", Ok(by_group));
    let by_name = r#"RBAC: allowed by ClusterRoleBinding "read" of ClusterRole "reader" to User "alice""#;
    check(&index, "alice", "list - pods/log - -", Ok(by_name));
    check(&index, "alice", "watch - pods a -", Err(""));
    check(&index, "alice", "get apps pods a p", Err(""));
    check(&index, "alice", "get - pods/status a p", Err(""));
    check(&index, "alice", "get /metrics", Err(""));
    let scale = r#"RBAC: allowed by ClusterRoleBinding "scale" of ClusterRole "scaler" to User "bob""#;
    check(&index, "bob", "patch apps deployments/scale a d", Ok(scale));
    check(&index, "bob", "patch apps deployments a d", Err(""));
    let watch = r#"RBAC: allowed by ClusterRoleBinding "watch" of ClusterRole "watcher" to User "bob""#;
    check(&index, "bob", "get /metrics", Ok(watch));
    check(&index, "bob", "get /healthz/ping", Ok(watch));
    check(&index, "bob", "get /healthz", Err(""));
    check(&index, "bob", "post /metrics", Err(""));
    let robot = "system:serviceaccount:a:robot";
    let secret = r#"RBAC: allowed by RoleBinding "secret/a" of Role "secret" to ServiceAccount "robot/a""#;
    check(&index, robot, "get - secrets a one", Ok(secret));
    check(&index, robot, "get - secrets a two", Err(""));
    check(&index, robot, "get - secrets a -", Err(""));
    check(&index, robot, "get - secrets b one", Err(""));
    let carol = r#"RBAC: allowed by RoleBinding "read/a" of ClusterRole "reader" to User "carol""#;
    check(&index, "carol", "get - pods a p", Ok(carol));
    check(&index, "carol", "get - pods - p", Err(""));
    check(&index, "carol", "get - pods b p", Err(""));
    let absent = r#"RBAC: clusterrole.rbac.authorization.k8s.io "absent" not found"#;
    check(&index, "dave", "get - pods a p", Err(absent));
}

#[test]
fn what_is_removed_gives_nothing() {
    let mut index = index();
    index.remove_role("", "reader");
    let absent = r#"RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found"#;
    check(&index, "alice", "get - pods a p", Err(absent));
    index.remove_binding("", "read");
    check(&index, "alice", "get - pods a p", Err(""));
    // The slot of a role that nobody needs any more is used for another one.
    index.remove_binding("a", "read");
    index.set_role("", "other", serde_json::from_value(json!({"rules": []})).unwrap());
    check(&index, "carol", "get - pods a p", Err(""));
    assert!(index.role("", "reader").is_none() && index.role("", "other").is_some());
}
