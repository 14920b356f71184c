//! Adopts and releases objects by their controller reference. In: an owner, its selector and candidates. Out: the objects
//! that the owner controls, and the patches that adopt matching orphans and release objects that do not match any more.
//! Sorting the candidates is pure; the trigger reads only the changed object.

use std::collections::BTreeSet;
use std::sync::Arc;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Cause, Controller, Error, Object, Patch, Result, Trigger, What, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::meta::{HasMeta, Meta};

/// The index of objects without a controller reference, by namespace.
const ORPHANS: &str = "orphans";

/// Candidates, sorted by what has to happen with their controller reference.
#[derive(Debug, PartialEq)]
pub(crate) struct Candidates<T> {
    /// Objects that the owner controls and its selector matches.
    pub owned: Vec<Arc<T>>,
    /// Orphans that the selector matches.
    pub adopt: Vec<Arc<T>>,
    /// Objects that the owner controls and its selector does not match any more.
    pub release: Vec<Arc<T>>,
}

/// Sorts candidates. An owner that is being deleted neither adopts nor releases.
pub(crate) fn sort<T: HasMeta>(owner: &Meta, selector: &LabelSelector, candidates: Vec<Arc<T>>) -> Candidates<T> {
    let mut sorted = Candidates { owned: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for candidate in candidates {
        let meta = candidate.meta();
        let selected = !selector.is_everything() && selector.matches(&meta.labels);
        match meta.controller() {
            Some(controller) if controller.uid != owner.uid => {}
            Some(_) if selected => sorted.owned.push(candidate),
            Some(_) if !owner.is_terminating() => sorted.release.push(candidate),
            None if selected && !owner.is_terminating() && !meta.is_terminating() => sorted.adopt.push(candidate),
            Some(_) | None => {}
        }
    }
    sorted
}

/// Adopts and releases as sorted, and returns the objects that the owner controls afterwards. `owner_api` and `api` are the
/// kinds of the owner and of its children.
pub(crate) async fn claim<T: HasMeta + Send + Sync>(
    ctx: &ControllerContext,
    owner_api: &ApiResource,
    owner: &Meta,
    api: &ApiResource,
    mut sorted: Candidates<T>,
) -> Result<Vec<Arc<T>>> {
    // An owner that is being deleted must not adopt. The cache may not know of the deletion yet, so the server is asked.
    if !sorted.adopt.is_empty() && !owner_exists(ctx, owner_api, owner).await? {
        sorted.adopt.clear();
    }
    let reference = owner.as_controller(owner_api);
    let reference = &reference;
    let adoptions = sorted.adopt.iter().enumerate().map(|(at, object)| async move {
        let patch = adoption(object.meta(), reference);
        match ctx.patch(api, &object.meta().key(), "", Patch::Json(patch)).await {
            Ok(_) => Ok(Some(at)),
            Err(WriteError::NotFound { .. }) => Ok(None),
            // After a conflict the object may still be an orphan or have another controller: the retry reads which.
            Err(error) => Err(Error::from(error)),
        }
    });
    let adopted = ctx.in_parallel(adoptions).await;
    let releases =
        sorted.release.iter().filter_map(|object| Some((object.meta(), release(object.meta(), &owner.uid)?)));
    let releases = releases.map(|(meta, patch)| async move {
        match ctx.patch(api, &meta.key(), "", Patch::Json(patch)).await {
            // The object is gone, or another writer was faster: the next reconcile sees its new state.
            Ok(_) | Err(WriteError::NotFound { .. } | WriteError::Conflict { .. }) => Ok(()),
            Err(error) => Err(Error::from(error)),
        }
    });
    ctx.in_parallel(releases).await.into_iter().collect::<Result<()>>()?;
    let adopted: BTreeSet<usize> = adopted.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?;
    let adopted = sorted.adopt.into_iter().enumerate().filter(|(at, _)| adopted.contains(at));
    sorted.owned.extend(adopted.map(|(_, object)| object));
    Ok(sorted.owned)
}

/// Whether an owner exists on the server and is not being deleted.
pub(crate) async fn owner_exists(ctx: &ControllerContext, api: &ApiResource, owner: &Meta) -> Result<bool> {
    let fresh = ctx.writer.get(api, &owner.key()).await?;
    Ok(fresh.is_some_and(|fresh| {
        fresh["metadata"]["uid"] == owner.uid.as_str() && fresh["metadata"]["deletionTimestamp"].is_null()
    }))
}

/// The JSON patch that adds a controller reference to an object. It names the resource version, so that it fails if another
/// controller has adopted the object meanwhile.
fn adoption(object: &Meta, reference: &Value) -> Value {
    let (path, value) = match object.owner_references.is_empty() {
        true => ("/metadata/ownerReferences", json!([reference])),
        false => ("/metadata/ownerReferences/-", reference.clone()),
    };
    json!([
        object.uid_test(),
        {"op": "test", "path": "/metadata/resourceVersion", "value": object.resource_version},
        {"op": "add", "path": path, "value": value},
    ])
}

/// The JSON patch that removes the reference to an owner; `None` if the object has no such reference.
fn release(object: &Meta, owner_uid: &str) -> Option<Value> {
    let at = object.owner_references.iter().position(|owner| owner.uid == owner_uid)?;
    let path = format!("/metadata/ownerReferences/{at}");
    Some(json!([
        object.uid_test(),
        {"op": "test", "path": format!("{path}/uid"), "value": owner_uid},
        {"op": "remove", "path": path},
    ]))
}

/// A changed object of `kind` wakes its controller if that has the given group and kind. An orphan wakes the
/// [`orphans_key`] of its namespace, because an owner may want to adopt it.
pub(crate) fn trigger(kind: &str, group: &'static str, owner: &'static str) -> Trigger {
    Trigger::mapped(kind, move |object: &Object| match object.controller() {
        Some(controller) => {
            let (of, _) = controller.api_version.split_once('/').unwrap_or_default();
            let is_ours = of == group && controller.kind == owner;
            is_ours.then(|| ObjectKey::new(object.namespace(), &controller.name)).into_iter().collect()
        }
        None if object.labels().next().is_some() && !object.is_terminating() => {
            object.namespace().map(orphans_key).into_iter().collect()
        }
        None => Vec::new(),
    })
}

/// The key that stands for all orphans of a namespace. No object has this key, because names are not empty.
pub(crate) fn orphans_key(namespace: &str) -> ObjectKey {
    ObjectKey::new(Some(namespace), "")
}

/// The namespace of an [`orphans_key`]; `None` for the key of an object.
pub(crate) fn orphans_namespace(key: &ObjectKey) -> Option<&str> {
    key.namespace().filter(|_| key.name().is_empty())
}

/// Adds the index of orphans to a cache.
pub(crate) fn index_orphans(cache: &Cache) {
    cache.add_index(ORPHANS, |object| match object.controller() {
        None => object.namespace().map(str::to_owned).into_iter().collect(),
        Some(_) => Vec::new(),
    });
}

/// The objects that an owner may claim: those that name it as an owner, and the orphans of its namespace.
pub(crate) fn candidates(cache: &Cache, owner: &Meta) -> Vec<Arc<Object>> {
    let mut found = cache.by_owner(&owner.uid);
    found.extend(orphans(cache, &owner.namespace));
    found.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    // An object with a plain owner reference, without a controller, is in both lists.
    found.dedup_by(|a, b| a.name() == b.name());
    found
}

/// Wakes an owner if its selector matches one of these orphans.
pub(crate) fn offer<T: HasMeta>(
    controller: &Controller,
    owner: &Meta,
    selector: &Value,
    kind: &str,
    orphans: &[Arc<T>],
) {
    let Ok(selector) = LabelSelector::from_object(selector) else { return };
    if let Some(orphan) = sort(owner, &selector, orphans.to_vec()).adopt.first() {
        let meta = orphan.meta();
        let resource_version = meta.resource_version.clone();
        let cause = Cause { kind: kind.into(), key: meta.key(), what: What::Resync, resource_version };
        controller.wake(&owner.key(), cause);
    }
}

/// The orphans of a namespace.
pub(crate) fn orphans(cache: &Cache, namespace: &str) -> Vec<Arc<Object>> {
    cache.by_index(ORPHANS, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{OwnerReference, StringMap};

    struct Thing(Meta);

    impl HasMeta for Thing {
        fn meta(&self) -> &Meta {
            &self.0
        }
    }

    fn thing(name: &str, labels: &[(&str, &str)], controller: &str) -> Meta {
        let labels: StringMap = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let owner = OwnerReference { uid: controller.into(), controller: true, ..OwnerReference::default() };
        let owner_references = (!controller.is_empty()).then_some(owner).into_iter().collect();
        Meta { name: name.into(), labels, owner_references, ..Meta::default() }
    }

    /// How one candidate is sorted.
    fn check(owner: &Meta, selector: &str, candidate: Meta, expect: &str) {
        let selector = LabelSelector::parse(selector).unwrap();
        let sorted = sort(owner, &selector, vec![Arc::new(Thing(candidate))]);
        let got = match (sorted.owned.len(), sorted.adopt.len(), sorted.release.len()) {
            (1, 0, 0) => "owned",
            (0, 1, 0) => "adopt",
            (0, 0, 1) => "release",
            (0, 0, 0) => "leave",
            other => panic!("{other:?}"),
        };
        assert_eq!(got, expect, "{selector:?}");
    }

    #[test]
    fn owners_adopt_what_they_select_and_release_what_they_do_not() {
        let owner = Meta { uid: "me".into(), ..Meta::default() };
        let going =
            Meta { deletion_timestamp: Some(crate::meta::seconds(jiff::Timestamp::UNIX_EPOCH)), ..owner.clone() };
        let app = [("app", "web")];
        check(&owner, "app=web", thing("a", &app, "me"), "owned");
        check(&owner, "app=web", thing("a", &app, "other"), "leave");
        check(&owner, "app=web", thing("a", &app, ""), "adopt");
        check(&owner, "app=web", thing("a", &[("app", "db")], "me"), "release");
        check(&owner, "app=web", thing("a", &[], ""), "leave");
        check(&owner, "", thing("a", &app, ""), "leave");
        check(&going, "app=web", thing("a", &app, ""), "leave");
        check(&going, "app=web", thing("a", &[], "me"), "leave");
        let leaving = Meta { deletion_timestamp: going.deletion_timestamp.clone(), ..thing("a", &app, "") };
        check(&owner, "app=web", leaving, "leave");
    }

    #[test]
    fn patches_name_what_they_expect() {
        let mine = Meta { uid: "u".into(), ..thing("a", &[], "me") };
        assert_eq!(
            release(&mine, "me"),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "me"},
                {"op": "remove", "path": "/metadata/ownerReferences/0"},
            ]))
        );
        assert_eq!(release(&mine, "other"), None);
        let owned = Meta { uid: "u".into(), resource_version: "7".into(), ..thing("a", &[], "other") };
        let orphan = Meta { owner_references: Vec::new(), ..owned.clone() };
        for (object, path, value) in [
            (orphan, "/metadata/ownerReferences", json!([{"uid": "me"}])),
            (owned, "/metadata/ownerReferences/-", json!({"uid": "me"})),
        ] {
            assert_eq!(
                adoption(&object, &json!({"uid": "me"})),
                json!([
                    {"op": "test", "path": "/metadata/uid", "value": "u"},
                    {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                    {"op": "add", "path": path, "value": value},
                ])
            );
        }
    }
}
