//! The checks, by name: what `konverge doctor --list` prints. A new check is a row here and a function in the file of its area.

use super::finding::Area;

/// Something that is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub area: Area,
    pub name: &'static str,
    /// What is looked at, for people.
    pub about: &'static str,
}

macro_rules! checks {
    ($($id:ident: $area:ident $name:literal $about:literal,)*) => {
        $(pub(crate) static $id: Check = Check { area: Area::$area, name: $name, about: $about };)*

        /// All checks, in the order in which they are reported.
        pub(crate) const ALL: &[&Check] = &[$(&$id),*];
    };
}

checks! {
    RUST: Machine "rust" "the compiler is there, and as new as the project needs",
    C_COMPILER: Machine "c-compiler" "a C compiler is there; some dependencies are built with one",
    KUBECTL: Machine "kubectl" "kubectl is there, and at most one minor version away from the server",
    ENGINE: Machine "engine" "docker, podman or buildah works, for konverge build",
    OPEN_FILES: Machine "open-files" "the limit of open files suffices for konverge dev",
    DISK: Machine "disk" "there is space for a build and for data",
    CLOCK: Machine "clock" "this machine and the server agree on the time",
    FOUND: Project "found" "this directory belongs to an operator's project",
    DEPENDENCY: Project "dependency" "the project uses the konverge of this program's version",
    SCAFFOLD: Project "scaffold" "the scaffold is that of this program",
    BUILD: Project "build" "the operator compiles (--build), or was built since its sources changed",
    GENERATED: Project "generated" "manifests and chart are those of the operator",
    SAMPLES: Project "samples" "config/samples is valid",
    FILES: Kubeconfig "files" "the kubeconfig is there and can be read",
    CONTEXT: Kubeconfig "context" "the context, its cluster and its user exist",
    CERTIFICATE: Kubeconfig "certificate" "certificates are valid, and stay so for some time",
    PLUGIN: Kubeconfig "plugin" "the program that fetches credentials is there",
    SERVER: Kubeconfig "server" "the server answers, and is trusted",
    IDENTITY: Kubeconfig "identity" "the server knows who asks",
    VERSION: Cluster "version" "operators of this konverge work with the server's version",
    DEFINITIONS: Cluster "crds" "the project's CRDs are installed, established and the project's",
    STORED_VERSIONS: Cluster "stored-versions" "objects are stored in the newest version",
    WEBHOOKS: Cluster "webhooks" "webhooks have a service that answers, and a CA that is valid",
    DEPLOY_RIGHTS: Cluster "deploy-rights" "the current user may deploy the operator",
    NAMESPACES: Cluster "namespaces" "no namespace is stuck in Terminating",
    API_SERVICES: Cluster "api-services" "all aggregated APIs are available",
    DEPLOYED: Operator "deployed" "the operator is deployed, and rolled out",
    PODS: Operator "pods" "its Pods run and are ready",
    OPERATOR_RIGHTS: Operator "rights" "its ServiceAccount has the rights that it declares",
    LEASE: Operator "lease" "a Pod of it leads, and renews its Lease",
    PROBES: Operator "probes" "liveness and readiness pass",
    METRICS: Operator "metrics" "queues are short, reconciles succeed, certificates are valid",
    EVENTS: Operator "events" "no warnings in the last hour",
    DELETIONS: Operator "deletions" "no object of its kinds waits for a finalizer",
    CONDITIONS: Operator "conditions" "objects of its kinds are ready",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (at, check) in ALL.iter().enumerate() {
            assert!(
                ALL[..at].iter().all(|other| (other.area, other.name) != (check.area, check.name)),
                "{}",
                check.name
            );
            assert!(ALL[..at].iter().all(|other| other.area <= check.area), "{} is listed with its area", check.name);
        }
    }
}
