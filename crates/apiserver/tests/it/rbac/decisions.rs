//! Decisions about random roles and bindings, held against those of the original. `cargo xtask rbac` asks the original and
//! writes the cases; those that are kept here need no Go.

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ADMIN, RBAC, ask, cluster, create};

/// Objects, what is asked about them, and what the original answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct World {
    cluster_roles: Option<Vec<Value>>,
    roles: Option<Vec<Value>>,
    cluster_role_bindings: Option<Vec<Value>>,
    role_bindings: Option<Vec<Value>>,
    questions: Vec<Question>,
    grants: Vec<Grant>,
}

#[derive(Debug, Deserialize)]
struct Question {
    user: String,
    groups: Vec<String>,
    verb: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    allowed: bool,
}

/// Rules that somebody gives to others, and the refusal; empty if there is none.
#[derive(Debug, Deserialize)]
struct Grant {
    user: String,
    groups: Vec<String>,
    namespace: String,
    rules: Value,
    refusal: String,
}

fn worlds() -> Vec<World> {
    let mut text = String::new();
    match std::env::var_os("KONVERGE_AUTHORIZER_CASES") {
        Some(path) => text = std::fs::read_to_string(path).unwrap(),
        None => {
            GzDecoder::new(&include_bytes!("cases.jsonl.gz")[..]).read_to_string(&mut text).unwrap();
        }
    }
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Objects without the fields that only Go writes.
fn objects(list: Option<Vec<Value>>) -> Vec<Value> {
    let mut list = list.unwrap_or_default();
    for object in &mut list {
        object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    }
    list
}

#[tokio::test]
async fn decisions_are_those_of_the_original() {
    let (mut decisions, mut allowed, mut grants, mut refused) = (0, 0, 0, 0);
    let cluster = cluster().await;
    for namespace in ["one", "two"] {
        create(&cluster, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    // The default bindings would allow more than the world does.
    for plural in ["clusterrolebindings", "rolebindings"] {
        let (_, listed) = ask(&cluster, ADMIN, "GET", &format!("{RBAC}/{plural}"), &Value::Null).await;
        for binding in listed["items"].as_array().unwrap() {
            remove(&cluster, plural, binding).await;
        }
    }
    for (at, world) in worlds().into_iter().enumerate() {
        let kinds = [
            ("clusterroles", objects(world.cluster_roles)),
            ("roles", objects(world.roles)),
            ("clusterrolebindings", objects(world.cluster_role_bindings)),
            ("rolebindings", objects(world.role_bindings)),
        ];
        for (plural, list) in &kinds {
            for object in list {
                create(&cluster, &collection(plural, object), object.clone()).await;
            }
        }
        for question in &world.questions {
            let Question { user, groups, verb, path, group, resource, subresource, namespace, name, .. } = question;
            let mut spec = json!({"user": user, "groups": groups});
            if path.is_empty() {
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                });
            } else {
                spec["nonResourceAttributes"] = json!({"verb": verb, "path": path});
            }
            let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let (code, answer) = ask(&cluster, ADMIN, "POST", reviews, &json!({"spec": spec})).await;
            assert_eq!(code, 201, "{answer}");
            assert_eq!(answer["status"]["allowed"], question.allowed, "world {at}: {question:?}: {answer}");
            decisions += 1;
            allowed += usize::from(question.allowed);
        }
        for grant in &world.grants {
            grants += 1;
            refused += usize::from(check_grant(&cluster, at, grant).await);
        }
        for (plural, list) in &kinds {
            for object in list {
                remove(&cluster, plural, object).await;
            }
        }
    }
    assert!(decisions >= 2_000 && grants >= 400, "{decisions} decisions, {grants} grants");
    // Neither a server that allows everything nor one that allows nothing would pass.
    assert!(allowed * 20 > decisions && allowed * 2 < decisions, "{allowed} of {decisions} allowed");
    assert!(refused * 4 > grants && refused < grants, "{refused} of {grants} refused");
}

fn collection(plural: &str, object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/{plural}"),
        None => format!("{RBAC}/{plural}"),
    }
}

async fn remove(cluster: &crate::cluster::Cluster, plural: &str, object: &Value) {
    let path = format!("{}/{}", collection(plural, object), object["metadata"]["name"].as_str().unwrap());
    let (code, answer) = ask(cluster, ADMIN, "DELETE", &path, &Value::Null).await;
    assert_eq!(code, 200, "{path}: {answer}");
}

/// Lets a user write a role with these rules; gives whether that was refused. The right to write roles at all is given to a
/// group of its own, and covers none of the rules.
async fn check_grant(cluster: &crate::cluster::Cluster, at: usize, grant: &Grant) -> bool {
    let (group, name) = ("rbac.authorization.k8s.io", "role-writers");
    let rules = json!([{"apiGroups": [group], "resources": ["roles"], "verbs": ["create"]}]);
    create(cluster, &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
    let subjects = json!([{"apiGroup": group, "kind": "User", "name": grant.user}]);
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
    create(cluster, &format!("{RBAC}/clusterrolebindings"), binding.clone()).await;
    let who = format!("{}@{}", grant.user, grant.groups.join(","));
    let object = json!({"metadata": {"name": "given", "namespace": grant.namespace}, "rules": grant.rules});
    let path = format!("{}?dryRun=All", collection("roles", &object));
    let (code, answer) = ask(cluster, &who, "POST", &path, &object).await;
    match grant.refusal.as_str() {
        "" => assert_eq!(code, 201, "world {at}: {grant:?}: {answer}"),
        refusal => {
            let message = answer["message"].as_str().unwrap_or_default();
            let (why, _) = message.split_once("; resolution errors").unwrap_or((message, ""));
            assert_eq!(why, format!("roles.{group} \"given\" is forbidden: {refusal}"), "world {at}: {grant:?}");
        }
    }
    remove(cluster, "clusterrolebindings", &binding).await;
    remove(cluster, "clusterroles", &json!({"metadata": {"name": name}})).await;
    !grant.refusal.is_empty()
}
