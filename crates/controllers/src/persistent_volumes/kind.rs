//! The fields of PersistentVolumes and StorageClasses that the controller reads. Pure.

use konverge_core::ObjectKey;
use serde::Deserialize;

use crate::meta::{HasMeta, Meta};
use crate::persistent_volume_claims::{Capacity, Claim};

/// The annotation of a claim that has been bound completely.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of what was bound by the controller and not by its owner.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a volume with the name of who made it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The annotation of a claim with the node of its first pod.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotation of the class for claims that name none.
pub(super) const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Volume {
    pub metadata: Meta,
    pub spec: VolumeSpec,
    pub status: VolumeStatus,
}

/// What a volume offers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    pub access_modes: Vec<String>,
    pub capacity: Capacity,
    pub claim_ref: Option<ClaimRef>,
    pub persistent_volume_reclaim_policy: String,
    pub storage_class_name: String,
    pub volume_mode: Option<String>,
}

/// For whom a volume is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimRef {
    pub namespace: String,
    pub name: String,
    /// Empty if a user reserved the volume for a claim that is not bound yet.
    pub uid: String,
}

/// How a volume is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeStatus {
    pub phase: String,
}

/// A kind of storage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Class {
    pub metadata: Meta,
    pub provisioner: String,
    pub reclaim_policy: Option<String>,
    pub volume_binding_mode: Option<String>,
}

impl HasMeta for Volume {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl ClaimRef {
    /// The claim it names.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(&self.namespace), &self.name)
    }

    /// Whether it means this claim, by its uid if it says one.
    pub(super) fn is(&self, claim: &Claim) -> bool {
        let meta = &claim.metadata;
        self.namespace == meta.namespace && self.name == meta.name && (self.uid.is_empty() || self.uid == meta.uid)
    }
}

impl Class {
    /// Whether it is for claims that name none.
    pub(super) fn is_default(&self) -> bool {
        let beta = "storageclass.beta.kubernetes.io/is-default-class";
        [IS_DEFAULT, beta].iter().any(|name| self.metadata.annotations.get(*name).is_some_and(|text| text == "true"))
    }

    /// Whether claims wait for a pod.
    pub(super) fn waits(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}
