//! Where pods keep files.

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

    /// What the claim `claim` was given.
    pub fn pvc(name: impl Into<String>, claim: impl Into<String>) -> Self {
        let source = core::PersistentVolumeClaimVolumeSource { claim_name: claim.into(), read_only: None };
        Self::of(name, |volume| volume.persistent_volume_claim = Some(source))
    }

    /// A file for each key of a config map.
    pub fn configmap(name: impl Into<String>, config_map: impl Into<String>) -> Self {
        let source = core::ConfigMapVolumeSource { name: config_map.into(), ..Default::default() };
        Self::of(name, |volume| volume.config_map = Some(source))
    }

    /// A file for each key of a secret.
    pub fn secret(name: impl Into<String>, secret: impl Into<String>) -> Self {
        let source = core::SecretVolumeSource { secret_name: Some(secret.into()), ..Default::default() };
        Self::of(name, |volume| volume.secret = Some(source))
    }

    /// Empty when the pod starts, gone when it ends.
    pub fn empty_dir(name: impl Into<String>) -> Self {
        Self::of(name, |volume| volume.empty_dir = Some(core::EmptyDirVolumeSource::default()))
    }

    /// Empty when the pod starts, gone when it ends, and in memory.
    pub fn memory(name: impl Into<String>) -> Self {
        let source = core::EmptyDirVolumeSource { medium: Some("Memory".to_owned()), ..Default::default() };
        Self::of(name, |volume| volume.empty_dir = Some(source))
    }

    /// A path of the node.
    pub fn host_path(name: impl Into<String>, path: impl Into<String>) -> Self {
        let source = core::HostPathVolumeSource { path: path.into(), type_: None };
        Self::of(name, |volume| volume.host_path = Some(source))
    }

    /// Of a config map or secret, only `key`, as the file `path`.
    pub fn item(mut self, key: impl Into<String>, path: impl Into<String>) -> Self {
        let item = core::KeyToPath { key: key.into(), path: path.into(), ..Default::default() };
        if let Some(source) = &mut self.0.config_map {
            source.items.get_or_insert_default().push(item);
        } else if let Some(source) = &mut self.0.secret {
            source.items.get_or_insert_default().push(item);
        }
        self
    }

    /// The mode of the files of a config map or secret: `0o400`.
    pub fn mode(mut self, mode: impl Count) -> Self {
        let mode = Some(int32(mode));
        if let Some(source) = &mut self.0.config_map {
            source.default_mode = mode;
        } else if let Some(source) = &mut self.0.secret {
            source.default_mode = mode;
        }
        self
    }

    /// The pod starts even if the config map or secret is not there.
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
    /// Asks the cluster for storage. `ReadWriteOnce` unless said otherwise.
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

    /// How much: `10Gi`.
    pub fn storage(self, quantity: impl Into<String>) -> Self {
        let quantity = Quantity(quantity.into());
        self.spec(|spec| {
            let requests = &mut spec.resources.get_or_insert_default().requests;
            requests.get_or_insert_default().insert("storage".to_owned(), quantity);
        })
    }

    /// By how many nodes at once: `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany`, `ReadWriteOncePod`.
    pub fn access_mode(self, mode: impl Into<String>) -> Self {
        self.access_modes([mode])
    }

    /// Several of these.
    pub fn access_modes(self, modes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.spec(|spec| spec.access_modes = Some(texts(modes)))
    }

    /// Of which class; the cluster's default otherwise.
    pub fn storage_class(self, class: impl Into<String>) -> Self {
        self.spec(|spec| spec.storage_class_name = Some(class.into()))
    }

    /// A device instead of files.
    pub fn block(self) -> Self {
        self.spec(|spec| spec.volume_mode = Some("Block".to_owned()))
    }

    /// Whether it has been given a volume.
    pub fn is_bound(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    }
}
