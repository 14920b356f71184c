//! Tests of `set`, as tables.

use super::*;

fn member(kind: &str, name: &str, labels: Value, owner: &str, deleting: bool) -> Member {
    let api = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", kind));
    let time = deleting.then_some("2026-01-01T00:00:00Z");
    let live = json!({"metadata": {
        "name": name, "namespace": "a", "uid": name, "labels": labels, "deletionTimestamp": time,
        "ownerReferences": [{"uid": owner}],
    }});
    Member { api, live }
}

#[test]
fn only_members_of_this_set_of_this_owner_that_are_not_wanted_go() {
    let key = ObjectKey::new(Some("a"), "web");
    let owner = Owner { api_version: "example.com/v1".into(), kind: "WebApp".into(), key, uid: "u1".into() };
    let ours = || json!({SET_LABEL: "config"});
    let labelled = |uid: &str| json!({SET_LABEL: "config", OWNER_LABEL: uid});
    let members = [
        member("ConfigMap", "wanted", ours(), "u1", false),
        member("ConfigMap", "old", ours(), "u1", false),
        member("Secret", "wanted", ours(), "u1", false),
        member("ConfigMap", "old-elsewhere", labelled("u1"), "", false),
        member("ConfigMap", "going", ours(), "u1", true),
        member("ConfigMap", "of-another-set", json!({SET_LABEL: "other"}), "u1", false),
        member("ConfigMap", "of-another-owner", labelled("u2"), "u2", false),
        member("ConfigMap", "applied-alone", json!({}), "u1", false),
        member("ConfigMap", "without-labels", Value::Null, "u1", false),
    ];
    let wanted = BTreeSet::from([identity(&members[0].api, &ObjectKey::new(Some("a"), "wanted"))]);
    let gone = unwanted("config", &owner, &wanted, &members);
    let gone: Vec<_> =
        gone.iter().map(|one| (one.api.kind.as_str(), one.live["metadata"]["name"].as_str().unwrap())).collect();
    assert_eq!(gone, [("ConfigMap", "old"), ("Secret", "wanted"), ("ConfigMap", "old-elsewhere")]);
}
