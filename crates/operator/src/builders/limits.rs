//! Resource requests and limits of a container, and its security context.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::number::{Count, int64};
use super::wrapper::{texts, wrapper};

wrapper! {
    /// The resources that a container requests, and their limits.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let resources = Resources::new().cpu_request("100m").memory_limit("512Mi").limit("nvidia.com/gpu", "1");
    /// assert_eq!(resources.inner().limits.as_ref().unwrap().len(), 2);
    /// ```
    Resources(core::ResourceRequirements)
}

impl Resources {
    /// No requests and no limits.
    pub fn new() -> Self {
        Self(core::ResourceRequirements::default())
    }

    /// The CPU that is reserved for the container: `100m`, `2`.
    pub fn cpu_request(self, quantity: impl Into<String>) -> Self {
        self.request("cpu", quantity)
    }

    /// The CPU that the container may use at most; it is throttled beyond that.
    pub fn cpu_limit(self, quantity: impl Into<String>) -> Self {
        self.limit("cpu", quantity)
    }

    /// The memory that is reserved for the container: `128Mi`, `1Gi`.
    pub fn memory_request(self, quantity: impl Into<String>) -> Self {
        self.request("memory", quantity)
    }

    /// The memory that the container may use at most; it is killed beyond that.
    pub fn memory_limit(self, quantity: impl Into<String>) -> Self {
        self.limit("memory", quantity)
    }

    /// Requests this much of any resource.
    pub fn request(mut self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.0.requests.get_or_insert_default().insert(resource.into(), Quantity(quantity.into()));
        self
    }

    /// Limits any resource.
    pub fn limit(mut self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.0.limits.get_or_insert_default().insert(resource.into(), Quantity(quantity.into()));
        self
    }
}

wrapper! {
    /// The security context of a container.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let context = SecurityContext::restricted().run_as_user(1000);
    /// assert_eq!(context.inner().allow_privilege_escalation, Some(false));
    /// ```
    SecurityContext(core::SecurityContext)
}

impl SecurityContext {
    /// The cluster's defaults.
    pub fn new() -> Self {
        Self(core::SecurityContext::default())
    }

    /// A context that meets the Pod Security Standard `restricted`.
    pub fn restricted() -> Self {
        let seccomp = core::SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None };
        Self::new()
            .run_as_non_root(true)
            .allow_privilege_escalation(false)
            .drop_capabilities(["ALL"])
            .patch(|context| context.seccomp_profile = Some(seccomp))
    }

    /// Whether its root file system is read only.
    pub fn read_only_root_filesystem(mut self, yes: bool) -> Self {
        self.0.read_only_root_filesystem = Some(yes);
        self
    }

    /// Whether it refuses to start as root.
    pub fn run_as_non_root(mut self, yes: bool) -> Self {
        self.0.run_as_non_root = Some(yes);
        self
    }

    /// The user id it runs as.
    pub fn run_as_user(mut self, id: impl Count) -> Self {
        self.0.run_as_user = Some(int64(id));
        self
    }

    /// The group id it runs as.
    pub fn run_as_group(mut self, id: impl Count) -> Self {
        self.0.run_as_group = Some(int64(id));
        self
    }

    /// Whether the container is privileged: it may do all that root may on the node.
    pub fn privileged(mut self, yes: bool) -> Self {
        self.0.privileged = Some(yes);
        self
    }

    /// Whether a process may gain more rights than its parent.
    pub fn allow_privilege_escalation(mut self, yes: bool) -> Self {
        self.0.allow_privilege_escalation = Some(yes);
        self
    }

    /// Adds capabilities of the kernel.
    pub fn add_capabilities(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.capabilities.get_or_insert_default().add.get_or_insert_default().extend(texts(names));
        self
    }

    /// Drops capabilities of the kernel; `ALL` for all.
    pub fn drop_capabilities(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.capabilities.get_or_insert_default().drop.get_or_insert_default().extend(texts(names));
        self
    }
}
