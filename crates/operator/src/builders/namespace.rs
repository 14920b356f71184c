//! Namespace, and ResourceQuota, which limits what may be in one.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::number::Count;
use super::wrapper::{kind, named, spec, texts};

kind! {
    /// A namespace. Kubernetes deletes all objects in it with it.
    ///
    /// Namespaces are cluster-scoped, so a namespaced object cannot own them: they stay when that object is deleted, unless
    /// `on_delete` deletes them.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let team = Namespace::new("team-red").pod_security("restricted");
    /// assert_eq!(team.get_label("pod-security.kubernetes.io/enforce"), Some("restricted"));
    /// ```
    Namespace(core::Namespace)
}
spec!(Namespace, core::NamespaceSpec);

impl Namespace {
    /// A namespace called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::Namespace { metadata: named(name), ..Default::default() })
    }

    /// The Pod Security Standard that its pods have to meet: `privileged`, `baseline`, `restricted`.
    pub fn pod_security(self, level: impl Into<String>) -> Self {
        self.label("pod-security.kubernetes.io/enforce", level)
    }

    /// Whether objects can be created in it: it exists and is not being deleted.
    pub fn is_active(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Active"))
    }
}

kind! {
    /// Limits what may be used in a namespace, and how many objects may be in it.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let quota = ResourceQuota::new("team").cpu_requests("10").memory_requests("20Gi").count("pods", 50);
    /// assert_eq!(quota.inner().spec.as_ref().unwrap().hard.as_ref().unwrap()["pods"].0, "50");
    /// ```
    ResourceQuota(core::ResourceQuota)
}
spec!(ResourceQuota, core::ResourceQuotaSpec);

impl ResourceQuota {
    /// A quota called `name` that limits nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::ResourceQuota { metadata: named(name), ..Default::default() })
    }

    /// Limits any resource: `hard("requests.nvidia.com/gpu", "4")`.
    pub fn hard(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.spec(|spec| drop(spec.hard.get_or_insert_default().insert(resource, quantity)))
    }

    /// Limits the number of objects: `pods`, `services`, `secrets`, or `count/deployments.apps` for every other kind.
    pub fn count(self, objects: impl Into<String>, most: impl Count) -> Self {
        self.hard(objects, most.count().to_string())
    }

    /// Limits the CPU that all pods together request.
    pub fn cpu_requests(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.cpu", quantity)
    }

    /// Limits the sum of the CPU limits of all pods.
    pub fn cpu_limits(self, quantity: impl Into<String>) -> Self {
        self.hard("limits.cpu", quantity)
    }

    /// Limits the memory that all pods together request.
    pub fn memory_requests(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.memory", quantity)
    }

    /// Limits the sum of the memory limits of all pods.
    pub fn memory_limits(self, quantity: impl Into<String>) -> Self {
        self.hard("limits.memory", quantity)
    }

    /// Limits the storage that all claims together request.
    pub fn storage(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.storage", quantity)
    }

    /// Limits the quota to some pods: `BestEffort`, `NotBestEffort`, `Terminating`, `NotTerminating`.
    pub fn scopes(self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.spec(|spec| spec.scopes = Some(texts(scopes)))
    }

    /// How much of a resource is used: `used("pods")`.
    pub fn used(&self, resource: &str) -> Option<&str> {
        let used = self.0.status.as_ref()?.used.as_ref()?;
        used.get(resource).map(|quantity| quantity.0.as_str())
    }
}
