//! Tests of `rules`, as tables.

use konverge_core::RIGHTS_TOGETHER;
use konverge_runtime::RequestInfo;

use super::*;
use crate::Operator;
use crate::builders::{ClusterRole, ConfigMap, Deployment, Secret};

#[test]
fn requests_as_the_rules_they_take() {
    #[track_caller]
    fn check(method: &str, path: &str, expect: &str) {
        let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        let request = RequestInfo::of(&request.into_parts().0);
        assert_eq!(Rules::of_request(&request).to_string(), expect, "{method} {path}");
    }
    check("GET", "/api/v1/pods", "list pods");
    check("GET", "/api/v1/pods?watch=true&timeoutSeconds=290", "watch pods");
    check("GET", "/api/v1/namespaces/a/pods?limit=500", "list pods");
    check("GET", "/api/v1/namespaces/a/pods/p", "get pods");
    check("GET", "/api/v1/namespaces/a/pods/p/log", "get pods/log");
    check("POST", "/api/v1/namespaces/a/pods", "create pods");
    check("POST", "/api/v1/namespaces/a/pods/p/eviction", "create pods/eviction");
    check("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale", "update deployments.apps/scale");
    check("PATCH", "/apis/apps/v1/namespaces/a/deployments/d", "patch deployments.apps");
    check("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete deployments.apps");
    check("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection deployments.apps");
    check("GET", "/api/v1/namespaces", "list namespaces");
    check("GET", "/api/v1/namespaces/a", "get namespaces");
    check("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize");
    check("PATCH", "/api/v1/namespaces/a/status", "patch namespaces/status");
    check("GET", "/api/v1/nodes/n/proxy/metrics", "get nodes/proxy");
    for path in ["/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", "/healthz", "/openapi/v3"] {
        check("GET", path, "");
    }
}

#[test]
fn the_same_verbs_in_one_group_are_one_rule() {
    let reads = ["get", "list", "watch"];
    let rules = Rules::new().allow::<ConfigMap>(reads).allow::<Secret>(reads).allow::<Deployment>(["patch"]);
    let rules = serde_json::to_value(rules.policy()).unwrap();
    let expect = serde_json::json!([
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]},
    ]);
    assert_eq!(rules, expect);
}

/// A rule that is not printed is missed only in the cluster.
#[test]
fn no_verb_is_left_out() {
    let rules = Rules::new().allow::<ClusterRole>(["escalate", "bind", "get"]).allow::<Secret>(["*"]);
    assert_eq!(rules.to_string(), "* secrets; get, bind, escalate clusterroles.rbac.authorization.k8s.io");
    let used = Rules::new().allow::<Secret>(["get", "patch"]).allow::<ClusterRole>(["get", "update"]);
    assert_eq!(used.without(&rules).to_string(), "update clusterroles.rbac.authorization.k8s.io");
}

#[test]
fn what_printed_roles_allow() {
    let rules = Rules::new()
        .allow::<ConfigMap>(["get"])
        .allow::<ClusterRole>(["*"])
        .allow_part::<Deployment>("scale", ["patch"]);
    let check = |verb: &str, group: &str, resource: &str, namespace: &str, namespaces: &[&str], expect: bool| {
        let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let allowed = rules.allows(verb, (group, resource), namespace, &namespaces);
        assert_eq!(allowed, expect, "{verb} {resource}.{group} in {namespace:?} of {namespaces:?}");
    };
    check("get", "", "configmaps", "a", &[], true);
    check("get", "", "configmaps", "", &[], true);
    check("get", "", "configmaps", "a", &["a", "b"], true);
    check("get", "", "configmaps", "c", &["a", "b"], false);
    check("get", "", "configmaps", "", &["a"], false);
    check("list", "", "configmaps", "a", &[], false);
    check("bind", "rbac.authorization.k8s.io", "clusterroles", "", &["a"], true);
    check("patch", "apps", "deployments/scale", "a", &[], true);
    check("patch", "apps", "deployments", "a", &[], false);
}

#[test]
fn roles_where_namespaces_are_named_and_a_cluster_role_for_the_rest() {
    #[track_caller]
    fn check(rules: &Rules, namespaces: &[&str], expect: &[&str]) {
        let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let manifests = rules.manifests("web", "home", &namespaces);
        let shown = manifests.iter().map(|manifest| {
            let text = |path: &str| manifest.pointer(path).and_then(|value| value.as_str()).unwrap_or("-").to_owned();
            format!("{} {}", text("/kind"), text("/metadata/namespace"))
        });
        assert_eq!(shown.collect::<Vec<_>>(), expect);
    }
    let inside = Rules::new().allow::<ConfigMap>(["get"]);
    let both = inside.clone().allow::<ClusterRole>(["get"]);
    let (account, cluster) = ("ServiceAccount home", ["ClusterRole -", "ClusterRoleBinding -"]);
    check(&inside, &[], &[account, cluster[0], cluster[1]]);
    check(&inside, &["a"], &[account, "Role a", "RoleBinding a"]);
    check(&inside, &["a", "b"], &[account, "Role a", "RoleBinding a", "Role b", "RoleBinding b"]);
    check(&both, &["a"], &[account, cluster[0], cluster[1], "Role a", "RoleBinding a"]);
    check(&Rules::new(), &["a"], &[account]);
    check(&inside.everywhere(), &["a"], &[account, cluster[0], cluster[1]]);
    // What belongs to objects in no namespace is looked at in all of them.
    let operator = Operator::<ClusterRole>::new().owns::<ConfigMap>();
    check(&operator.rules(), &["a"], &[account, cluster[0], cluster[1]]);
    let operator = Operator::<Secret>::new().owns::<ConfigMap>();
    check(&operator.rules(), &["a"], &[account, "Role a", "RoleBinding a"]);
}

/// What a declaration brings is in the annotation of every role; what is declared verb by verb is not.
#[test]
fn printed_roles_say_which_rights_belong_together() {
    let operator = Operator::<Secret>::new().owns::<ConfigMap>().needs::<Deployment>(["get"]);
    let together = |manifest: &serde_json::Value| manifest["metadata"]["annotations"][RIGHTS_TOGETHER].clone();
    for (namespaces, kind) in [(Vec::new(), "ClusterRole"), (vec!["a".to_owned()], "Role")] {
        let manifests = operator.rules().manifests("web", "home", &namespaces);
        let role = manifests.iter().find(|manifest| manifest["kind"] == kind).expect("a role");
        let sets: Vec<serde_json::Value> = serde_json::from_str(together(role).as_str().expect("a text")).unwrap();
        let rule = |resource: &str, verbs: &[&str]| serde_json::json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
        assert_eq!(sets[0], serde_json::json!([rule("configmaps", &["create", "patch", "delete"])]));
        assert_eq!(sets[1], serde_json::json!([rule("configmaps", &["get", "list", "watch"])]));
        let own = sets[2].to_string();
        assert!(own.contains("secrets/status") && own.contains("events.k8s.io"), "{own}");
        assert_eq!(sets.len(), 3, "{sets:?}");
        assert!(manifests.iter().filter(|other| other["kind"] != kind).all(|other| together(other).is_null()));
    }
    assert!(together(&Rules::new().allow::<Secret>(["get"]).manifests("web", "home", &[])[1]).is_null());
}
