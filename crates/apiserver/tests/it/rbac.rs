//! Role-based access control as clients see it: the roles of a new cluster, aggregation, and that nobody gives more rights than
//! they have. The texts are those of kube-apiserver.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use konverge_apiserver::{AuthorizationMode, Options, Storage, UserInfo};

use crate::cluster::{Cluster, ask_as as ask, names, user};

mod decisions;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

async fn cluster() -> Cluster {
    Cluster::with(|options| Options { authorization: vec![AuthorizationMode::Rbac], ..options }).await
}

const ADMIN: &str = "root@system:masters";

async fn create(cluster: &Cluster, path: &str, object: Value) {
    let (code, answer) = ask(cluster, ADMIN, "POST", path, &object).await;
    assert_eq!(code, 201, "{answer}");
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, role: (&str, &str), subjects: Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
}

fn rule(resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

#[tokio::test]
async fn a_new_cluster_has_its_roles() {
    let cluster = cluster().await;
    let list = |plural| format!("{RBAC}/{plural}");
    for (plural, count) in [("clusterroles", 69), ("clusterrolebindings", 50), ("roles", 7), ("rolebindings", 7)] {
        let (code, listed) = ask(&cluster, ADMIN, "GET", &list(plural), &Value::Null).await;
        assert_eq!((code, names(&listed).len()), (200, count), "{plural}");
    }
    for (who, method, path, code) in [
        ("alice@system:authenticated", "GET", "/api/v1/namespaces/default/pods", 403),
        ("alice@system:authenticated", "GET", "/apis", 200),
        ("alice@system:authenticated", "GET", "/version", 200),
        ("system:anonymous@system:unauthenticated", "GET", "/version", 200),
        ("system:anonymous@system:unauthenticated", "GET", "/apis", 403),
        ("system:kube-scheduler", "GET", "/api/v1/nodes", 200),
        ("system:kube-scheduler", "DELETE", "/api/v1/nodes/a", 403),
        ("system:kube-scheduler", "DELETE", "/api/v1/namespaces/default/pods/a", 404),
        ("system:serviceaccount:kube-system:job-controller", "GET", "/apis/batch/v1/jobs", 200),
        ("system:serviceaccount:default:job-controller", "GET", "/apis/batch/v1/jobs", 403),
        (ADMIN, "GET", "/api/v1/nodes", 200),
    ] {
        assert_eq!(ask(&cluster, who, method, path, &Value::Null).await.0, code, "{who} {method} {path}");
    }
}

#[tokio::test]
async fn a_binding_counts_from_its_answer_on() {
    let cluster = cluster().await;
    let pods = "/api/v1/namespaces/default/pods";
    create(&cluster, ROLES, role("reader", json!([rule(&["pods"], &["list"])]))).await;
    let check = async |expect: u16| assert_eq!(ask(&cluster, "alice", "GET", pods, &Value::Null).await.0, expect);
    for _ in 0..3 {
        check(403).await;
        create(&cluster, BINDINGS, binding("b", ("Role", "reader"), json!([{"kind": "User", "name": "alice"}]))).await;
        check(200).await;
        ask(&cluster, ADMIN, "PATCH", &format!("{ROLES}/reader"), &json!({"rules": []})).await;
        check(403).await;
        let rules = json!({"rules": [rule(&["*"], &["*"])]});
        ask(&cluster, ADMIN, "PATCH", &format!("{ROLES}/reader"), &rules).await;
        check(200).await;
        ask(&cluster, ADMIN, "DELETE", &format!("{BINDINGS}/b"), &Value::Null).await;
    }
    check(403).await;
}

#[tokio::test]
async fn aggregated_roles_follow_those_they_select() {
    let cluster = cluster().await;
    let view = format!("{RBAC}/clusterroles/view");
    let verbs = |role: &Value| {
        let rules = role["rules"].as_array().unwrap().iter();
        rules
            .filter(|rule| rule["resources"] == json!(["widgets"]))
            .map(|rule| rule["verbs"].clone())
            .collect::<Vec<_>>()
    };
    let (_, before) = ask(&cluster, ADMIN, "GET", &view, &Value::Null).await;
    assert!(before["rules"].as_array().unwrap().len() > 10 && verbs(&before).is_empty());
    let from = cluster.revision();
    let widgets = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}]);
    let mut object = role("widget-viewer", widgets);
    object["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    create(&cluster, &format!("{RBAC}/clusterroles"), object).await;
    // `edit` collects what `view` has, and `admin` what `edit` has.
    for name in ["view", "edit", "admin"] {
        let path =
            format!("{RBAC}/clusterroles?watch=true&resourceVersion={from}&fieldSelector=metadata.name%3D{name}");
        let request = Request::get(path).extension(user(ADMIN)).body(Full::new(Bytes::new())).unwrap();
        let mut body = cluster.send(request).await.into_body();
        let frame = tokio::time::timeout(crate::cluster::AT_MOST, body.frame()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
        assert_eq!(verbs(&event["object"]), [json!(["get"])], "{name}");
    }
}

#[tokio::test]
async fn nobody_gives_more_than_they_have() {
    let cluster = cluster().await;
    let rights = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "update", "patch", "get"]},
        rule(&["pods"], &["get", "list"]),
    ]);
    create(&cluster, &format!("{RBAC}/clusterroles"), role("limited", rights)).await;
    let alice = json!([{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]);
    let to_alice = binding("alice", ("ClusterRole", "limited"), alice.clone());
    create(&cluster, &format!("{RBAC}/clusterrolebindings"), to_alice).await;
    create(&cluster, ROLES, role("secrets", json!([rule(&["secrets"], &["get", "list"])]))).await;
    let attempts =
        "user \"alice\" (groups=[\"dev\" \"test\"]) is attempting to grant RBAC permissions not currently held:\n";
    let secrets = format!("{attempts}{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}}");
    let aggregation = "must have cluster-admin privileges to use the aggregationRule";
    let mut collecting = role("c", json!([]));
    collecting["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let rbac = "rbac.authorization.k8s.io";
    for (method, path, object, expect) in [
        ("POST", ROLES.to_owned(), role("a", json!([rule(&["pods"], &["get"])])), Ok(201)),
        (
            "POST",
            ROLES.to_owned(),
            role("b", json!([rule(&["secrets"], &["get", "list"])])),
            Err((403, format!("roles.{rbac} \"b\" is forbidden: {secrets}"))),
        ),
        ("PUT", format!("{ROLES}/a"), role("a", json!([rule(&["pods"], &["list"])])), Ok(200)),
        (
            "PATCH",
            format!("{ROLES}/a"),
            json!({"rules": [rule(&["pods", "pods/log"], &["get"]), rule(&["pods"], &["*"])]}),
            Err((
                403,
                format!(
                    "roles.{rbac} \"a\" is forbidden: {attempts}{{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}}\n{{APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"get\"]}}"
                ),
            )),
        ),
        (
            "POST",
            format!("{RBAC}/clusterroles"),
            collecting,
            Err((403, format!("clusterroles.{rbac} \"c\" is forbidden: {aggregation}"))),
        ),
        ("POST", BINDINGS.to_owned(), binding("a", ("Role", "a"), alice.clone()), Ok(201)),
        (
            "POST",
            BINDINGS.to_owned(),
            binding("b", ("Role", "secrets"), alice.clone()),
            Err((403, format!("rolebindings.{rbac} \"b\" is forbidden: {secrets}"))),
        ),
        (
            "POST",
            BINDINGS.to_owned(),
            binding("c", ("Role", "absent"), alice.clone()),
            Err((404, format!("rolebindings.{rbac} \"absent\" not found"))),
        ),
        (
            "POST",
            BINDINGS.to_owned(),
            binding("c", ("ClusterRole", "absent"), alice.clone()),
            Err((404, format!("rolebindings.{rbac} \"absent\" not found"))),
        ),
        // What garbage collection needs may be changed by who may write the object.
        ("PATCH", format!("{ROLES}/secrets"), json!({"metadata": {"finalizers": ["example.com/a"]}}), Ok(200)),
        (
            "PATCH",
            format!("{ROLES}/secrets"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            Err((403, format!("roles.{rbac} \"secrets\" is forbidden: {secrets}"))),
        ),
    ] {
        let (code, answer) = ask(&cluster, "alice@dev,test", method, &path, &object).await;
        let found = if code < 300 { Ok(code) } else { Err((code, answer["message"].as_str().unwrap().to_owned())) };
        assert_eq!(found, expect, "{method} {path}");
    }
    // Explicit rights to escalate and to bind are enough.
    let rights = json!([
        {"apiGroups": [rbac], "resources": ["roles"], "verbs": ["escalate"]},
        {"apiGroups": [rbac], "resources": ["roles"], "verbs": ["bind"], "resourceNames": ["secrets"]},
    ]);
    create(&cluster, &format!("{RBAC}/clusterroles"), role("escalator", rights)).await;
    let to_alice = binding("alice-escalates", ("ClusterRole", "escalator"), alice.clone());
    create(&cluster, &format!("{RBAC}/clusterrolebindings"), to_alice).await;
    let everything = role("everything", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
    assert_eq!(ask(&cluster, "alice", "POST", ROLES, &everything).await.0, 201);
    assert_eq!(
        ask(&cluster, "alice", "POST", BINDINGS, &binding("d", ("Role", "secrets"), alice.clone())).await.0,
        201
    );
    assert_eq!(ask(&cluster, "alice", "POST", BINDINGS, &binding("e", ("Role", "everything"), alice)).await.0, 403);
}

#[tokio::test]
async fn a_restart_completes_the_roles_of_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let world = Cluster::new().await.world;
    let open = || {
        let (storage, world) = (Storage::Disk(home.path().join("data")), world.clone());
        Cluster::with(move |options| Options {
            authorization: vec![AuthorizationMode::Rbac],
            storage,
            env: world as Arc<dyn konverge_apiserver::Environment>,
            ..options
        })
    };
    let path = |name: &str| format!("{RBAC}/clusterroles/{name}");
    let first = open().await;
    let revision = first.revision();
    ask(&first, ADMIN, "PATCH", &path("system:node-proxier"), &json!({"rules": []})).await;
    let protected =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    ask(&first, ADMIN, "PATCH", &path("system:node-bootstrapper"), &protected).await;
    ask(&first, ADMIN, "DELETE", &path("system:heapster"), &Value::Null).await;
    assert_eq!(first.revision(), revision + 3);
    first.stop().await;
    let second = open().await;
    let rules = async |name: &str| {
        let (_, role) = ask(&second, ADMIN, "GET", &path(name), &Value::Null).await;
        role["rules"].as_array().map_or(0, Vec::len)
    };
    assert!(rules("system:node-proxier").await > 3);
    assert_eq!(rules("system:node-bootstrapper").await, 0);
    assert!(rules("system:heapster").await > 1);
    let revision = second.revision();
    drop(second);
    assert_eq!(open().await.revision(), revision, "nothing is written if nothing is missing");
}

/// An object that an update or an apply would add needs the right to create, too.
#[tokio::test]
async fn nobody_creates_by_an_update_without_the_right_to_create() {
    let cluster = cluster().await;
    create(&cluster, ROLES, role("patcher", json!([rule(&["configmaps", "nodes"], &["get", "patch", "update"])])))
        .await;
    let subjects = json!([{"kind": "User", "name": "patcher", "apiGroup": "rbac.authorization.k8s.io"}]);
    create(&cluster, BINDINGS, binding("patcher", ("Role", "patcher"), subjects)).await;
    let path = "/api/v1/namespaces/default/configmaps/made";
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"a": "1"}});
    let apply = async |name: &str| {
        let uri = format!("{path}?fieldManager=me{name}");
        let request =
            Request::builder().method("PATCH").uri(uri).header("content-type", "application/apply-patch+yaml");
        let body = Full::new(Bytes::from(config.to_string()));
        let response = cluster.send(request.extension(user("patcher")).body(body).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let denied = "configmaps \"made\" is forbidden: User \"patcher\" cannot create resource \"configmaps\" in API group \
                  \"\" in the namespace \"default\"";
    assert_eq!(apply("").await, (403, denied.to_owned()));
    assert_eq!(apply("&dryRun=All").await, (403, denied.to_owned()));
    assert_eq!(ask(&cluster, ADMIN, "GET", path, &Value::Null).await.0, 404);
    // The same right is enough for an object that is there.
    create(&cluster, "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "made"}})).await;
    assert_eq!(apply("").await, (200, String::new()));

    let report = cluster.server.permissions(&UserInfo::named("patcher"));
    let lines = |rules: &[konverge_apiserver::ScopedRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let in_default = "in the namespace default";
    assert_eq!(lines(&report.used), [format!("patch configmaps {in_default}")]);
    assert_eq!(
        lines(&report.unused),
        [format!("get, update configmaps {in_default}"), format!("get, update, patch nodes {in_default}")]
    );
    assert_eq!(lines(&report.lacking), [format!("create configmaps {in_default}")]);
    assert!(!report.is_least());
}

#[tokio::test]
async fn a_role_of_a_million_rights_is_refused_in_a_few_words() {
    let cluster = cluster().await;
    let words = |prefix: &str| (0..100).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
    create(
        &cluster,
        ROLES,
        role(
            "writer",
            json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]),
        ),
    )
    .await;
    create(&cluster, BINDINGS, binding("b", ("Role", "writer"), json!([{"kind": "User", "name": "alice"}]))).await;
    let rules = json!([{"apiGroups": words("g"), "resources": words("r"), "verbs": words("v")}]);
    let (code, answer) = ask(&cluster, "alice", "POST", ROLES, &role("large", rules)).await;
    assert_eq!(code, 403);
    let message = answer["message"].as_str().unwrap();
    let beginning = "roles.rbac.authorization.k8s.io \"large\" is forbidden: user \"alice\" (groups=[]) is attempting to grant RBAC \
                     permissions not currently held:\n{APIGroups:[\"g0\"], Resources:[\"r0\"], Verbs:[\"v0\" \"v1\" ";
    assert!(message.starts_with(beginning), "{message}");
    assert!(message.ends_with("\nand up to 999000 more"), "{message}");
    assert!(message.len() < 100_000, "{}", message.len());
}
