//! Namespace, and ResourceQuota: how much may be in one.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::number::Count;
use super::wrapper::{kind, named, spec, texts};

kind! {
    /// A place for objects, with everything in it that goes when it goes.
    ///
    /// Namespaces are in no namespace, so an object that is in one cannot own them: they stay when it goes, unless
    /// `on_delete` deletes them.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let team = Namespace::new("team-red").pod_security("restricted");
    /// assert_eq!(team.get_label("pod-security.kubernetes.io/enforce"), Some("restricted"));
    /// ```
    Namespace(core::Namespace)
}

impl Namespace {
    /// A namespace called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::Namespace { metadata: named(name), ..Default::default() })
    }

    /// What pods in it may do at most: `privileged`, `baseline`, `restricted`.
    pub fn pod_security(self, level: impl Into<String>) -> Self {
        self.label("pod-security.kubernetes.io/enforce", level)
    }

    /// Whether objects can be made in it: it is there, and not about to go.
    pub fn is_active(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Active"))
    }
}

kind! {
    /// How much may be used in a namespace, and how many objects may be in it.
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

    /// At most so much of anything: `hard("requests.nvidia.com/gpu", "4")`.
    pub fn hard(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.spec(|spec| drop(spec.hard.get_or_insert_default().insert(resource, quantity)))
    }

    /// At most so many objects: `pods`, `services`, `secrets`, or `count/deployments.apps` for every other kind.
    pub fn count(self, objects: impl Into<String>, most: impl Count) -> Self {
        self.hard(objects, most.count().to_string())
    }

    /// All pods together request at most so much CPU.
    pub fn cpu_requests(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.cpu", quantity)
    }

    /// The CPU limits of all pods together.
    pub fn cpu_limits(self, quantity: impl Into<String>) -> Self {
        self.hard("limits.cpu", quantity)
    }

    /// All pods together request at most so much memory.
    pub fn memory_requests(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.memory", quantity)
    }

    /// The memory limits of all pods together.
    pub fn memory_limits(self, quantity: impl Into<String>) -> Self {
        self.hard("limits.memory", quantity)
    }

    /// All claims together ask for at most so much storage.
    pub fn storage(self, quantity: impl Into<String>) -> Self {
        self.hard("requests.storage", quantity)
    }

    /// Only for some pods: `BestEffort`, `NotBestEffort`, `Terminating`, `NotTerminating`.
    pub fn scopes(self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.spec(|spec| spec.scopes = Some(texts(scopes)))
    }

    /// How much of a resource is used: `used("pods")`.
    pub fn used(&self, resource: &str) -> Option<&str> {
        let used = self.0.status.as_ref()?.used.as_ref()?;
        used.get(resource).map(|quantity| quantity.0.as_str())
    }
}
