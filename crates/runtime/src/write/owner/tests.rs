//! Tests of `owner`, as tables.

use super::*;
use crate::object::Mode;

fn owner(namespace: Option<&str>) -> Owner {
    let key = ObjectKey::new(namespace, "web");
    Owner { api_version: "example.com/v1".into(), kind: "WebApp".into(), key, uid: "u1".into() }
}

fn child(namespace: Option<&str>, references: Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": namespace, "ownerReferences": references}})
}

fn cached(object: &Value) -> Object {
    let api = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap"));
    Object::parse(&api, &object.to_string(), Mode::Full).unwrap()
}

/// The references of a child after the owner's was put in, by uid, or why it was not.
fn check(owner: &Owner, mut config: Value, live: Option<&Value>, expect: Result<&[&str], &str>) {
    let taken = live.map_or(Ok(()), |live| owner.may_take(&key_of(live).unwrap(), &cached(live)));
    let key = key_of(&config).unwrap();
    let outcome = taken.and_then(|()| owner.put_into(&key, &mut config)).map_err(|error| error.to_string());
    let uids = references(&config).map(|reference| text(reference, "uid")).collect::<Vec<_>>();
    match expect {
        Ok(expect) => {
            assert_eq!((outcome, uids.as_slice()), (Ok(()), expect));
        }
        Err(expect) => assert_eq!(outcome, Err(format!("metadata.ownerReferences: {expect}"))),
    }
}

#[test]
fn an_owner_in_a_namespace_owns_only_what_is_in_it() {
    let (namespaced, cluster) = (owner(Some("a")), owner(None));
    check(&namespaced, child(Some("a"), Value::Null), None, Ok(&["u1"]));
    check(&cluster, child(Some("a"), Value::Null), None, Ok(&["u1"]));
    check(&cluster, child(None, Value::Null), None, Ok(&["u1"]));
    // Where there can be no reference, an annotation says it.
    for namespace in [Some("b"), None] {
        let mut config = child(namespace, Value::Null);
        namespaced.put_into(&key_of(&config).unwrap(), &mut config).unwrap();
        assert_eq!(config["metadata"]["annotations"][OWNER_ANNOTATION], "WebApp.example.com/a/web");
        assert_eq!(references(&config).count(), 0);
        let other = json!({"metadata": {"name": "c", "annotations": {OWNER_ANNOTATION: "WebApp.example.com/c/web"}}});
        let error = namespaced.may_take(&key_of(&config).unwrap(), &cached(&other)).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "belongs to WebApp.example.com/c/web already, so WebApp.example.com/a/web cannot take it over"
            )
        );
    }
}

#[test]
fn other_owners_stay_but_there_is_one_controller() {
    let owner = owner(Some("a"));
    let reference = |uid: &str, kind: &str, controller: bool| json!({"uid": uid, "kind": kind, "name": "web", "controller": controller});
    let with = |references: &[Value]| child(Some("a"), json!(references));
    check(&owner, with(&[]), None, Ok(&["u1"]));
    check(&owner, with(&[reference("u2", "Other", false)]), None, Ok(&["u2", "u1"]));
    check(&owner, with(&[owner.reference()]), None, Ok(&["u1"]));
    check(&owner, with(&[reference("u2", "Other", true)]), None, Err("a/c names Other web as its controller"));
    // The object as it is counts, too, but not an owner that was deleted and made again.
    let taken = "a/c belongs to Other web already, so WebApp web cannot take it over";
    check(&owner, with(&[]), Some(&with(&[reference("u2", "Other", true)])), Err(taken));
    check(&owner, with(&[]), Some(&with(&[reference("u0", "WebApp", true)])), Ok(&["u1"]));
    check(&owner, with(&[]), Some(&with(&[reference("u2", "Other", false)])), Ok(&["u1"]));
}

#[test]
fn an_owner_has_a_uid() {
    let api = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("example.com", "v1", "WebApp"));
    let object = |uid: Value| json!({"metadata": {"name": "web", "namespace": "a", "uid": uid}});
    assert_eq!(Owner::of(&api, &object(json!("u1"))).unwrap(), owner(Some("a")));
    let error = Owner::of(&api, &object(Value::Null)).unwrap_err();
    assert_eq!(error.to_string(), "metadata.uid: an owner must exist on the server");
}
