//! Volumes of pods, and claims for storage.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::number::{Count, int32};
use super::wrapper::{kind, named, spec, texts, wrapper};

wrapper! {
    /// A volume of a pod; containers mount it by its name.
    Volume(core::Volume)
}

impl Volume {
    fn of(name: impl Into<String>, source: impl FnOnce(&mut core::Volume)) -> Self {
        let mut volume = core::Volume { name: name.into(), ..Default::default() };
        source(&mut volume);
        Self(volume)
    }

    /// The volume that the PersistentVolumeClaim `claim` is bound to.
    pub fn pvc(name: impl Into<String>, claim: impl Into<String>) -> Self {
        let source = core::PersistentVolumeClaimVolumeSource { claim_name: claim.into(), read_only: None };
        Self::of(name, |volume| volume.persistent_volume_claim = Some(source))
    }

    /// A volume with a file for each key of a ConfigMap.
    pub fn configmap(name: impl Into<String>, config_map: impl Into<String>) -> Self {
        let source = core::ConfigMapVolumeSource { name: config_map.into(), ..Default::default() };
        Self::of(name, |volume| volume.config_map = Some(source))
    }

    /// A volume with a file for each key of a Secret.
    pub fn secret(name: impl Into<String>, secret: impl Into<String>) -> Self {
        let source = core::SecretVolumeSource { secret_name: Some(secret.into()), ..Default::default() };
        Self::of(name, |volume| volume.secret = Some(source))
    }

    /// A volume that is empty when the pod starts and deleted when it ends.
    pub fn empty_dir(name: impl Into<String>) -> Self {
        Self::of(name, |volume| volume.empty_dir = Some(core::EmptyDirVolumeSource::default()))
    }

    /// The same in memory, where it counts against the memory limits of the containers.
    pub fn memory(name: impl Into<String>) -> Self {
        let source = core::EmptyDirVolumeSource { medium: Some("Memory".to_owned()), ..Default::default() };
        Self::of(name, |volume| volume.empty_dir = Some(source))
    }

    /// A path of the node's own file system.
    pub fn host_path(name: impl Into<String>, path: impl Into<String>) -> Self {
        let source = core::HostPathVolumeSource { path: path.into(), type_: None };
        Self::of(name, |volume| volume.host_path = Some(source))
    }

    /// Takes only `key` of the ConfigMap or Secret, as the file `path`.
    pub fn item(mut self, key: impl Into<String>, path: impl Into<String>) -> Self {
        let item = core::KeyToPath { key: key.into(), path: path.into(), ..Default::default() };
        if let Some(source) = &mut self.0.config_map {
            source.items.get_or_insert_default().push(item);
        } else if let Some(source) = &mut self.0.secret {
            source.items.get_or_insert_default().push(item);
        }
        self
    }

    /// The mode of the files of a ConfigMap or Secret: `0o400`.
    pub fn mode(mut self, mode: impl Count) -> Self {
        let mode = Some(int32(mode));
        if let Some(source) = &mut self.0.config_map {
            source.default_mode = mode;
        } else if let Some(source) = &mut self.0.secret {
            source.default_mode = mode;
        }
        self
    }

    /// Lets the pod start even if the ConfigMap or Secret does not exist.
    pub fn optional(mut self) -> Self {
        if let Some(source) = &mut self.0.config_map {
            source.optional = Some(true);
        } else if let Some(source) = &mut self.0.secret {
            source.optional = Some(true);
        }
        self
    }
}

kind! {
    /// A claim for storage. The access mode is `ReadWriteOnce` by default.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let claim = PersistentVolumeClaim::new("data").storage("10Gi").storage_class("fast");
    /// assert!(!claim.is_bound());
    /// ```
    PersistentVolumeClaim(core::PersistentVolumeClaim)
}

spec!(PersistentVolumeClaim, core::PersistentVolumeClaimSpec);

impl PersistentVolumeClaim {
    /// A claim called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let claim = core::PersistentVolumeClaim { metadata: named(name), ..Default::default() };
        Self(claim).access_mode("ReadWriteOnce")
    }

    /// The size: `10Gi`.
    pub fn storage(self, quantity: impl Into<String>) -> Self {
        let quantity = Quantity(quantity.into());
        self.spec(|spec| {
            let requests = &mut spec.resources.get_or_insert_default().requests;
            requests.get_or_insert_default().insert("storage".to_owned(), quantity);
        })
    }

    /// The access mode: `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany`, `ReadWriteOncePod`.
    pub fn access_mode(self, mode: impl Into<String>) -> Self {
        self.access_modes([mode])
    }

    /// Several access modes.
    pub fn access_modes(self, modes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.spec(|spec| spec.access_modes = Some(texts(modes)))
    }

    /// The storage class; without it, the cluster's default.
    pub fn storage_class(self, class: impl Into<String>) -> Self {
        self.spec(|spec| spec.storage_class_name = Some(class.into()))
    }

    /// Asks for a block device instead of a file system.
    pub fn block(self) -> Self {
        self.spec(|spec| spec.volume_mode = Some("Block".to_owned()))
    }

    /// Whether the claim is bound to a volume.
    pub fn is_bound(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    }
}
