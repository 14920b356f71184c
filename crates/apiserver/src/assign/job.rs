//! The selector of a job, and the labels of its pods. In: a job with its name and uid. Out: the job with both, unless it has a
//! manual selector.

use serde_json::{Map, Value};

use crate::meta;

const UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

pub(super) fn assign(old: Option<&Value>, job: &mut Value) {
    if old.is_none() && job["spec"]["manualSelector"] != true {
        let (name, uid) = (meta::text(job, "name").to_owned(), meta::text(job, "uid").to_owned());
        let spec = &mut job["spec"];
        let labels = child(child(child(spec, "template"), "metadata"), "labels");
        for (labelled, value) in [(NAME, &name), (UID, &uid)] {
            for label in labelled {
                add(labels, label, value);
            }
        }
        add(child(child(spec, "selector"), "matchLabels"), UID[0], &uid);
    }
    // A job without labels gets those of its pods.
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let bare = meta::of(job).get("labels").is_none_or(|own| own.as_object().is_none_or(Map::is_empty));
    if bare && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        let labels = labels.clone();
        meta::of_mut(job).insert("labels".into(), labels);
    }
}

/// A field that is an object, which is added if it is absent.
fn child<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    let inner = &mut value[name];
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    inner
}

fn add(labels: &mut Value, label: &str, value: &str) {
    if let Some(labels) = labels.as_object_mut() {
        labels.entry(label).or_insert_with(|| value.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_finds_its_pods() {
        #[track_caller]
        fn check(old: Option<Value>, mut job: Value, expect: Value) {
            assign(old.as_ref(), &mut job);
            assert_eq!(job, expect);
        }
        let metadata = json!({"name": "j", "uid": "u"});
        let labelled = |labels: Value| json!({"name": "j", "uid": "u", "labels": labels});
        let given = json!({
            "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
            "controller-uid": "u", "job-name": "j",
        });
        let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
        check(
            None,
            json!({"metadata": metadata, "spec": {"template": {"spec": {}}}}),
            json!({
                "metadata": labelled(given.clone()),
                "spec": {"selector": selector, "template": {"metadata": {"labels": given}, "spec": {}}},
            }),
        );
        // What the writer says stays, also where it is wrong.
        let mut mine = given.clone();
        mine["job-name"] = "mine".into();
        check(
            None,
            json!({
                "metadata": labelled(json!({"app": "x"})),
                "spec": {"template": {"metadata": {"labels": {"job-name": "mine"}}}},
            }),
            json!({
                "metadata": labelled(json!({"app": "x"})),
                "spec": {"selector": selector, "template": {"metadata": {"labels": mine}}},
            }),
        );
        let by_hand = json!({
            "manualSelector": true, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}},
        });
        check(
            None,
            json!({"metadata": metadata, "spec": by_hand}),
            json!({"metadata": labelled(json!({"a": "b"})), "spec": by_hand}),
        );
        let bare = json!({"metadata": metadata, "spec": {"template": {}}});
        check(Some(bare.clone()), bare.clone(), bare);
    }
}
