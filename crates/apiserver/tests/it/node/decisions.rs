//! Decisions about random pods, volumes, attachments and slices, held against those of the original. `cargo xtask node` asks the
//! original and writes the cases; those that are kept here need no Go.

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

use konverge_apiserver::{AuthorizationMode, Options};

use super::{ADMIN, ask, create};
use crate::cluster::Cluster;

/// What is written, what is asked then, and what the original answers.
#[derive(Deserialize)]
struct World {
    steps: Vec<Step>,
    questions: Vec<Question>,
}

/// Writes an object, or deletes the one of this name.
#[derive(Deserialize)]
struct Step {
    plural: String,
    object: Value,
    delete: bool,
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
    #[serde(default)]
    fields: String,
    allowed: bool,
    reason: String,
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

fn collection(step: &Step) -> String {
    let group = match &*step.plural {
        "volumeattachments" => "/apis/storage.k8s.io/v1",
        "resourceslices" => "/apis/resource.k8s.io/v1",
        _ => "/api/v1",
    };
    match step.object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{}", step.plural),
        None => format!("{group}/{}", step.plural),
    }
}

async fn remove(cluster: &Cluster, step: &Step) {
    let name = step.object["metadata"]["name"].as_str().unwrap();
    let path = format!("{}/{name}?gracePeriodSeconds=0", collection(step));
    let (code, answer) = ask(cluster, ADMIN, "DELETE", &path, &Value::Null).await;
    assert_eq!(code, 200, "{path}: {answer}");
}

#[tokio::test]
async fn decisions_are_those_of_the_original() {
    let cluster = Cluster::with(|options| Options { authorization: vec![AuthorizationMode::Node], ..options }).await;
    for namespace in ["red", "blue"] {
        create(&cluster, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    let (mut decisions, mut allowed, mut related) = (0, 0, 0);
    for (at, world) in worlds().into_iter().enumerate() {
        let mut there: Vec<&Step> = Vec::new();
        for step in &world.steps {
            if step.delete {
                remove(&cluster, step).await;
                there
                    .retain(|known| known.plural != step.plural || known.object["metadata"] != step.object["metadata"]);
                continue;
            }
            let mut object = step.object.clone();
            object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
            create(&cluster, &collection(step), object).await;
            there.push(step);
        }
        for question in &world.questions {
            let Question { user, groups, verb, path, group, resource, subresource, namespace, name, fields, .. } =
                question;
            let mut spec = json!({"user": user, "groups": groups});
            if path.is_empty() {
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                });
                if !fields.is_empty() {
                    spec["resourceAttributes"]["fieldSelector"] = json!({"rawSelector": fields});
                }
            } else {
                spec["nonResourceAttributes"] = json!({"verb": verb, "path": path});
            }
            let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let (code, answer) = ask(&cluster, ADMIN, "POST", reviews, &json!({"spec": spec})).await;
            assert_eq!(code, 201, "{answer}");
            let status = &answer["status"];
            let reason = status["reason"].as_str().unwrap_or_default();
            let found = (status["allowed"].as_bool().unwrap_or_default(), reason);
            assert_eq!(found, (question.allowed, &*question.reason), "world {at}: {question:?}");
            decisions += 1;
            allowed += usize::from(question.allowed);
            let by_graph =
                ["secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "volumeattachments"];
            related += usize::from(question.allowed && by_graph.contains(&&**resource));
        }
        for step in there {
            remove(&cluster, step).await;
        }
    }
    assert!(decisions >= 3_000, "{decisions} decisions");
    // Neither a server that allows everything nor one that allows nothing would pass, and objects of pods are among what is allowed.
    assert!(allowed * 8 > decisions && allowed * 2 < decisions, "{allowed} of {decisions} allowed");
    assert!(related * 50 > decisions, "{related} of {decisions} are about objects of pods");
}
