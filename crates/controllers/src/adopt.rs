//! Which objects belong to whom. In: an owner, its selector and candidates. Out: those it has, those it should take and
//! those it should let go; and the writes for it.
//! Telling apart is pure; the trigger looks at a change only.

use std::sync::Arc;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Cause, Controller, Error, Object, Patch, Result, Trigger, What, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::meta::{HasMeta, Meta};

/// The index of objects that nobody manages, by namespace.
const UNMANAGED: &str = "unmanaged";

/// Candidates, told apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Claim<T> {
    /// What the owner manages and selects.
    pub mine: Vec<Arc<T>>,
    /// What nobody manages and the owner selects.
    pub adopt: Vec<Arc<T>>,
    /// What the owner manages and no longer selects.
    pub release: Vec<Arc<T>>,
}

/// Tells candidates apart. An owner that is being deleted takes nothing and lets nothing go.
pub(crate) fn claim<T: HasMeta>(owner: &Meta, selector: &LabelSelector, candidates: Vec<Arc<T>>) -> Claim<T> {
    let mut claim = Claim { mine: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for candidate in candidates {
        let meta = candidate.meta();
        let selected = !selector.is_everything() && selector.matches(&meta.labels);
        match meta.controller() {
            Some(controller) if controller.uid != owner.uid => {}
            Some(_) if selected => claim.mine.push(candidate),
            Some(_) if !owner.is_terminating() => claim.release.push(candidate),
            None if selected && !owner.is_terminating() && !meta.is_terminating() => claim.adopt.push(candidate),
            Some(_) | None => {}
        }
    }
    claim
}

/// Carries a claim out: takes what is to be adopted and lets go what is not selected any more. Answers with what the owner
/// has then. `owner_api` and `api` are the kinds of the owner and of what it owns.
pub(crate) async fn take<T: HasMeta + Send + Sync>(
    desk: &Desk,
    owner_api: &ApiResource,
    owner: &Meta,
    api: &ApiResource,
    mut claim: Claim<T>,
) -> Result<Vec<Arc<T>>> {
    // Nothing is adopted by what goes, so the server is asked.
    if !claim.adopt.is_empty() && !is_still_wanted(desk, owner_api, owner).await? {
        claim.adopt.clear();
    }
    let reference = owner.as_controller(owner_api);
    let adoptions = claim.adopt.iter().map(|object| (object.meta(), Some(adoption(object.meta(), &reference))));
    let releases = claim.release.iter().map(|object| (object.meta(), release(object.meta(), &owner.uid)));
    let patches: Vec<(&Meta, Value)> =
        adoptions.chain(releases).filter_map(|(meta, patch)| Some((meta, patch?))).collect();
    let writes = patches.into_iter().map(|(meta, patch)| async move {
        match desk.patch(api, &meta.key(), "", Patch::Json(patch)).await {
            // It is gone, or somebody else was faster: the next look shows how it is.
            Ok(_) | Err(WriteError::NotFound { .. } | WriteError::Conflict { .. }) => Ok(()),
            Err(error) => Err(Error::from(error)),
        }
    });
    for written in desk.together(writes).await {
        written?;
    }
    claim.mine.append(&mut claim.adopt);
    Ok(claim.mine)
}

/// Whether an owner is there and stays.
async fn is_still_wanted(desk: &Desk, api: &ApiResource, owner: &Meta) -> Result<bool> {
    let fresh = desk.writer.get(api, &owner.key()).await?;
    Ok(fresh.is_some_and(|fresh| {
        fresh["metadata"]["uid"] == owner.uid.as_str() && fresh["metadata"]["deletionTimestamp"].is_null()
    }))
}

/// The patch that makes an object belong to an owner.
fn adoption(object: &Meta, reference: &Value) -> Value {
    match object.owner_references.is_empty() {
        true => json!([
            object.is_still_it(),
            {"op": "add", "path": "/metadata/ownerReferences", "value": [reference]},
        ]),
        false => json!([
            object.is_still_it(),
            {"op": "add", "path": "/metadata/ownerReferences/-", "value": reference},
        ]),
    }
}

/// The patch that makes an object no longer belong to an owner; none if it does not.
fn release(object: &Meta, owner_uid: &str) -> Option<Value> {
    let at = object.owner_references.iter().position(|owner| owner.uid == owner_uid)?;
    let path = format!("/metadata/ownerReferences/{at}");
    Some(json!([
        object.is_still_it(),
        {"op": "test", "path": format!("{path}/uid"), "value": owner_uid},
        {"op": "remove", "path": path},
    ]))
}

/// Whom a changed object of `kind` wakes: the owner of that group and kind that manages it, and if nobody does, the
/// [`strays`] of its namespace, because somebody may want to adopt it.
pub(crate) fn managed(kind: &str, group: &'static str, owner: &'static str) -> Trigger {
    Trigger::mapped(kind, move |object: &Object| match object.controller() {
        Some(controller) => {
            let (of, _) = controller.api_version.split_once('/').unwrap_or_default();
            let is_ours = of == group && controller.kind == owner;
            is_ours.then(|| ObjectKey::new(object.namespace(), &controller.name)).into_iter().collect()
        }
        None if object.labels().next().is_some() && !object.is_terminating() => {
            object.namespace().map(strays).into_iter().collect()
        }
        None => Vec::new(),
    })
}

/// The key that stands for what nobody manages in a namespace. No object has it: names are not empty.
pub(crate) fn strays(namespace: &str) -> ObjectKey {
    ObjectKey::new(Some(namespace), "")
}

/// The namespace whose strays a key stands for.
pub(crate) fn strays_of(key: &ObjectKey) -> Option<&str> {
    key.namespace().filter(|_| key.name().is_empty())
}

/// Lets a cache find what nobody manages.
pub(crate) fn index(cache: &Cache) {
    cache.add_index(UNMANAGED, |object| match object.controller() {
        None => object.namespace().map(str::to_owned).into_iter().collect(),
        Some(_) => Vec::new(),
    });
}

/// What an owner may claim: what is its own, and what is nobody's in its namespace.
pub(crate) fn candidates(cache: &Cache, owner: &Meta) -> Vec<Arc<Object>> {
    let mut found = cache.by_owner(&owner.uid);
    found.extend(unmanaged(cache, &owner.namespace));
    found.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    // One that names the owner without being managed by it is in both.
    found.dedup_by(|a, b| a.name() == b.name());
    found
}

/// Wakes an owner if it wants one of the objects that nobody manages.
pub(crate) fn offer<T: HasMeta>(
    controller: &Controller,
    owner: &Meta,
    selector: &Value,
    kind: &str,
    strays: &[Arc<T>],
) {
    let Ok(selector) = LabelSelector::from_object(selector) else { return };
    if let Some(stray) = claim(owner, &selector, strays.to_vec()).adopt.first() {
        let meta = stray.meta();
        let resource_version = meta.resource_version.clone();
        let cause = Cause { kind: kind.into(), key: meta.key(), what: What::Resync, resource_version };
        controller.wake(&owner.key(), cause);
    }
}

/// What nobody manages in a namespace.
pub(crate) fn unmanaged(cache: &Cache, namespace: &str) -> Vec<Arc<Object>> {
    cache.by_index(UNMANAGED, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{OwnerReference, Texts};

    struct Thing(Meta);

    impl HasMeta for Thing {
        fn meta(&self) -> &Meta {
            &self.0
        }
    }

    fn thing(name: &str, labels: &[(&str, &str)], controller: &str) -> Meta {
        let labels: Texts = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let owner = OwnerReference { uid: controller.into(), controller: true, ..OwnerReference::default() };
        let owner_references = (!controller.is_empty()).then_some(owner).into_iter().collect();
        Meta { name: name.into(), labels, owner_references, ..Meta::default() }
    }

    /// What becomes of one candidate.
    fn check(owner: &Meta, selector: &str, candidate: Meta, expect: &str) {
        let selector = LabelSelector::parse(selector).unwrap();
        let claim = claim(owner, &selector, vec![Arc::new(Thing(candidate))]);
        let got = match (claim.mine.len(), claim.adopt.len(), claim.release.len()) {
            (1, 0, 0) => "mine",
            (0, 1, 0) => "adopt",
            (0, 0, 1) => "release",
            (0, 0, 0) => "leave",
            other => panic!("{other:?}"),
        };
        assert_eq!(got, expect, "{selector:?}");
    }

    #[test]
    fn owners_take_what_they_select_and_let_go_what_they_do_not() {
        let owner = Meta { uid: "me".into(), ..Meta::default() };
        let going =
            Meta { deletion_timestamp: Some(crate::meta::seconds(jiff::Timestamp::UNIX_EPOCH)), ..owner.clone() };
        let app = [("app", "web")];
        check(&owner, "app=web", thing("a", &app, "me"), "mine");
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
        assert_eq!(adoption(&mine, &json!({}))[1]["path"], "/metadata/ownerReferences/-");
        assert_eq!(adoption(&thing("a", &[], ""), &json!({}))[1]["path"], "/metadata/ownerReferences");
    }
}
