//! Where an object is, as a key of the queue: its uid, its kind and its name. In: an object, or what another says of its owner.
//! Out: a key, and back. Pure.

use konverge_core::{ObjectKey, OwnerReference};
use konverge_runtime::Object;
use kube::core::ApiResource;

/// Where an object is, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub uid: String,
    pub group: String,
    pub kind: String,
    pub object: ObjectKey,
}

impl Place {
    /// Where an object is.
    pub fn of(api: &ApiResource, object: &Object) -> Self {
        Self { uid: object.uid().into(), group: api.group.clone(), kind: api.kind.clone(), object: object.key() }
    }

    /// Where an owner should be: in the namespace of what it owns, or in none.
    pub fn of_owner(owner: &OwnerReference, namespace: Option<&str>) -> Self {
        let group = group(&owner.api_version).to_owned();
        let object = ObjectKey::new(namespace, &owner.name);
        Self { uid: owner.uid.clone(), group, kind: owner.kind.clone(), object }
    }

    /// As a key. No uid, group or kind holds a slash or a bar.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(&self.uid), &format!("{}|{}|{}", self.group, self.kind, self.object))
    }

    /// From a key; none if it is one of another sort.
    pub fn read(key: &ObjectKey) -> Option<Self> {
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
    fn places_are_keys_and_back() {
        let owner = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        };
        for place in [Place::of_owner(&owner, Some("a")), Place::of_owner(&owner, None)] {
            assert_eq!(Place::read(&place.key()), Some(place));
        }
        let node = OwnerReference { api_version: "v1".into(), kind: "Node".into(), ..owner };
        assert_eq!(Place::of_owner(&node, None).group, "");
        assert_eq!(Place::read(&ObjectKey::new(None, "widgets.example.com")), None);
    }
}
