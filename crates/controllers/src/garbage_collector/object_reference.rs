//! A reference to one object as a key of the queue: uid, group, kind and name. In: an object, or an owner reference. Out: a
//! key, and back. Pure.

use konverge_core::{ObjectKey, OwnerReference};
use konverge_runtime::Object;
use kube::core::ApiResource;

/// Names one object, also after it is gone: another object of the same name has another uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectReference {
    pub uid: String,
    pub group: String,
    pub kind: String,
    pub object: ObjectKey,
}

impl ObjectReference {
    /// The reference to an object.
    pub(super) fn of(api: &ApiResource, object: &Object) -> Self {
        Self { uid: object.uid().into(), group: api.group.clone(), kind: api.kind.clone(), object: object.key() }
    }

    /// The reference to an owner: in the namespace of its dependent, or in none.
    pub(super) fn of_owner(owner: &OwnerReference, namespace: Option<&str>) -> Self {
        let group = group(&owner.api_version).to_owned();
        let object = ObjectKey::new(namespace, &owner.name);
        Self { uid: owner.uid.clone(), group, kind: owner.kind.clone(), object }
    }

    /// The reference as a key. No uid, group or kind contains a slash or a bar.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(&self.uid), &format!("{}|{}|{}", self.group, self.kind, self.object))
    }

    /// The reference of a key; `None` for the name of a CustomResourceDefinition.
    pub(super) fn from_key(key: &ObjectKey) -> Option<Self> {
        let mut words = key.name().splitn(3, '|');
        let (group, kind, object) = (words.next()?, words.next()?, words.next()?);
        let object = match object.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
            None => ObjectKey::new(None, object),
        };
        Some(Self { uid: key.namespace()?.into(), group: group.into(), kind: kind.into(), object })
    }
}

/// The group of an `apiVersion`.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_keys_and_back() {
        let owner = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        };
        for reference in [ObjectReference::of_owner(&owner, Some("a")), ObjectReference::of_owner(&owner, None)] {
            assert_eq!(ObjectReference::from_key(&reference.key()), Some(reference));
        }
        let node = OwnerReference { api_version: "v1".into(), kind: "Node".into(), ..owner };
        assert_eq!(ObjectReference::of_owner(&node, None).group, "");
        assert_eq!(ObjectReference::from_key(&ObjectKey::new(None, "widgets.example.com")), None);
    }
}
