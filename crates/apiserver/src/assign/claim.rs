//! Where the data of a claim comes from. In: the claim before and after a write. Out: the claim with both fields for that: the
//! older one, which takes only claims and snapshots, and the newer one, which takes any object.

use serde_json::{Value, json};

pub(super) fn assign(old: Option<&Value>, claim: &mut Value) {
    let has_source = |claim: &Value| {
        let spec = &claim["spec"];
        spec["dataSource"].is_object() || spec["dataSourceRef"].is_object()
    };
    let had_source = old.is_some_and(has_source);
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // The feature gate for data of another namespace is off.
    let is_foreign = spec.get("dataSourceRef").is_some_and(|source| !text(source, "namespace").is_empty());
    if is_foreign && !old.is_some_and(|old| old["spec"]["dataSourceRef"].is_object()) {
        spec.remove("dataSourceRef");
    }
    let is_ignored = spec.get("dataSource").is_some_and(|source| !is_claim_or_snapshot(source));
    if is_ignored && !had_source && !spec.contains_key("dataSourceRef") {
        spec.remove("dataSource");
    }
    complete(&mut claim["spec"]);
}

/// Copies the source of the data from one field to the other, if only one is there.
pub(crate) fn complete(spec: &mut Value) {
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    match (source.is_object(), reference.is_object()) {
        (true, false) => spec["dataSourceRef"] = local(source),
        (false, true) if text(reference, "namespace").is_empty() => spec["dataSource"] = local(reference),
        _ => {}
    }
}

/// A reference without its namespace.
fn local(source: &Value) -> Value {
    let mut local = json!({"kind": text(source, "kind"), "name": text(source, "name")});
    if let Some(group) = source.get("apiGroup").filter(|group| !group.is_null()) {
        local["apiGroup"] = group.clone();
    }
    local
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (text(source, "apiGroup"), text(source, "kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        #[track_caller]
        fn check(old: Option<Value>, spec: Value, expect: Value) {
            let old = old.map(|spec| json!({"spec": spec}));
            let mut claim = json!({"spec": spec});
            assign(old.as_ref(), &mut claim);
            assert_eq!(claim["spec"], expect);
        }
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"});
        let other = json!({"apiGroup": "example.com", "kind": "Widget", "name": "a"});
        let mut foreign = other.clone();
        foreign["namespace"] = "b".into();
        for source in [&claim, &snapshot] {
            let both = json!({"dataSource": source, "dataSourceRef": source});
            check(None, json!({"dataSource": source}), both.clone());
            check(None, json!({"dataSourceRef": source}), both.clone());
            check(None, both.clone(), both);
        }
        let both = json!({"dataSource": other, "dataSourceRef": other});
        check(None, json!({}), json!({}));
        check(None, json!({"dataSource": other}), json!({}));
        check(None, json!({"dataSourceRef": other}), both.clone());
        check(None, json!({"dataSourceRef": foreign}), json!({}));
        check(Some(both.clone()), json!({"dataSource": other}), both);
        check(
            Some(json!({"dataSourceRef": foreign})),
            json!({"dataSourceRef": foreign}),
            json!({"dataSourceRef": foreign}),
        );
    }
}
