//! PersistentVolume: storage of the cluster, which claims are bound to.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::wrapper::{kind, named, spec, texts};

kind! {
    /// A piece of storage that a claim can be bound to. The access mode is `ReadWriteOnce` by default.
    ///
    /// Volumes are cluster-scoped, so a namespaced object cannot own them: they stay when it is deleted, unless `on_delete`
    /// deletes them.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let volume = PersistentVolume::new("films").storage("1Ti").nfs("10.0.0.7", "/films").reclaim_policy("Retain");
    /// assert!(!volume.is_bound());
    /// ```
    PersistentVolume(core::PersistentVolume)
}
spec!(PersistentVolume, core::PersistentVolumeSpec);

impl PersistentVolume {
    /// A volume called `name`. The API server requires a size, and one of `nfs`, `csi`, `local` and `host_path`.
    pub fn new(name: impl Into<String>) -> Self {
        let volume = core::PersistentVolume { metadata: named(name), ..Default::default() };
        Self(volume).access_modes(["ReadWriteOnce"])
    }

    /// The size: `10Gi`.
    pub fn storage(self, quantity: impl Into<String>) -> Self {
        let quantity = Quantity(quantity.into());
        self.spec(|spec| drop(spec.capacity.get_or_insert_default().insert("storage".to_owned(), quantity)))
    }

    /// The access modes: `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany`, `ReadWriteOncePod`.
    pub fn access_modes(self, modes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.spec(|spec| spec.access_modes = Some(texts(modes)))
    }

    /// The storage class: only claims of this class are bound to it.
    pub fn storage_class(self, class: impl Into<String>) -> Self {
        self.spec(|spec| spec.storage_class_name = Some(class.into()))
    }

    /// What happens to the volume when its claim is deleted: `Retain`, `Delete`.
    pub fn reclaim_policy(self, policy: impl Into<String>) -> Self {
        self.spec(|spec| spec.persistent_volume_reclaim_policy = Some(policy.into()))
    }

    /// Reserves the volume for one claim.
    pub fn claimed_by(self, namespace: impl Into<String>, claim: impl Into<String>) -> Self {
        let claim = core::ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(namespace.into()),
            name: Some(claim.into()),
            ..Default::default()
        };
        self.spec(|spec| spec.claim_ref = Some(claim))
    }

    /// The storage is a path of an NFS server.
    pub fn nfs(self, server: impl Into<String>, path: impl Into<String>) -> Self {
        let source = core::NFSVolumeSource { server: server.into(), path: path.into(), read_only: None };
        self.spec(|spec| spec.nfs = Some(source))
    }

    /// The storage is a volume of a CSI driver, with this handle.
    pub fn csi(self, driver: impl Into<String>, handle: impl Into<String>) -> Self {
        let source = core::CSIPersistentVolumeSource {
            driver: driver.into(),
            volume_handle: handle.into(),
            ..Default::default()
        };
        self.spec(|spec| spec.csi = Some(source))
    }

    /// The storage is a path of the node called `node`: pods that use it run there.
    pub fn local(self, node: impl Into<String>, path: impl Into<String>) -> Self {
        let here = core::NodeSelectorRequirement {
            key: "kubernetes.io/hostname".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.into()]),
        };
        let term = core::NodeSelectorTerm { match_expressions: Some(vec![here]), match_fields: None };
        let nodes = core::NodeSelector { node_selector_terms: vec![term] };
        let source = core::LocalVolumeSource { path: path.into(), fs_type: None };
        self.spec(|spec| {
            spec.local = Some(source);
            spec.node_affinity = Some(core::VolumeNodeAffinity { required: Some(nodes) });
        })
    }

    /// The storage is a path of whichever node a pod runs on: for clusters with one node.
    pub fn host_path(self, path: impl Into<String>) -> Self {
        let source = core::HostPathVolumeSource { path: path.into(), type_: None };
        self.spec(|spec| spec.host_path = Some(source))
    }

    /// Whether a claim is bound to it.
    pub fn is_bound(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    }
}
