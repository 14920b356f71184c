//! The admission plugins by their names in kube-apiserver, in the order in which they run. In: names to enable and to disable.
//! Out: the plugins of a server, or which name is wrong.

use std::collections::BTreeSet;

use super::Plugin;
use super::always_deny::AlwaysDeny;
use super::always_pull_images::AlwaysPullImages;
use super::certificate_signers::CertificateSigners;
use super::certificate_subject_restriction::CertificateSubjectRestriction;
use super::default_ingress_class::DefaultIngressClass;
use super::default_storage_class::DefaultStorageClass;
use super::default_toleration_seconds::DefaultTolerationSeconds;
use super::deny_service_external_ips::DenyServiceExternalIps;
use super::extended_resource_toleration::ExtendedResourceToleration;
use super::limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology;
use super::limit_ranger::LimitRanger;
use super::namespace_exists::NamespaceExists;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_restriction::NodeRestriction;
use super::persistent_volume_claim_resize::PersistentVolumeClaimResize;
use super::pod_resize_validator::PodResizeValidator;
use super::pod_security::PodSecurity;
use super::pod_topology_labels::PodTopologyLabels;
use super::policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use super::priority::Priority;
use super::resource_quota::ResourceQuota;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::storage_object_in_use_protection::StorageObjectInUseProtection;
use super::taint_nodes_by_condition::TaintNodesByCondition;
use super::webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};

/// One plugin of kube-apiserver.
struct Row {
    name: &'static str,
    /// Whether kube-apiserver enables it by default.
    on: bool,
    effect: Effect,
}

/// What a plugin does here.
enum Effect {
    Makes(fn() -> Box<dyn Plugin>),
    /// Nothing, in kube-apiserver as well: it admits everything, or is about kinds that are not served by default.
    Nothing,
    /// Only kube-apiserver has it. Whoever enables it is told that this has no effect.
    Missing,
}

const fn on(name: &'static str, make: fn() -> Box<dyn Plugin>) -> Row {
    Row { name, on: true, effect: Effect::Makes(make) }
}

const fn off(name: &'static str, make: fn() -> Box<dyn Plugin>) -> Row {
    Row { name, on: false, effect: Effect::Makes(make) }
}

const fn nothing(name: &'static str, on: bool) -> Row {
    Row { name, on, effect: Effect::Nothing }
}

const fn missing(name: &'static str, on: bool) -> Row {
    Row { name, on, effect: Effect::Missing }
}

/// Every plugin of Kubernetes 1.36, in the order of kube-apiserver.
const TABLE: &[Row] = &[
    nothing("AlwaysAdmit", false),
    missing("NamespaceAutoProvision", false),
    on("NamespaceLifecycle", || Box::new(NamespaceLifecycle)),
    off("NamespaceExists", || Box::new(NamespaceExists)),
    off("LimitPodHardAntiAffinityTopology", || Box::new(LimitPodHardAntiAffinityTopology)),
    on("LimitRanger", || Box::new(LimitRanger)),
    on("ServiceAccount", || Box::new(ServiceAccount)),
    off("NodeRestriction", || Box::new(NodeRestriction)),
    on("TaintNodesByCondition", || Box::new(TaintNodesByCondition)),
    off("AlwaysPullImages", || Box::new(AlwaysPullImages)),
    missing("ImagePolicyWebhook", false),
    on("PodSecurity", || Box::new(PodSecurity)),
    missing("PodNodeSelector", false),
    on("Priority", || Box::new(Priority)),
    on("DefaultTolerationSeconds", || Box::new(DefaultTolerationSeconds)),
    missing("PodTolerationRestriction", false),
    missing("EventRateLimit", false),
    off("ExtendedResourceToleration", || Box::new(ExtendedResourceToleration)),
    on("DefaultStorageClass", || Box::new(DefaultStorageClass)),
    on("StorageObjectInUseProtection", || Box::new(StorageObjectInUseProtection)),
    nothing("PodGroupProtection", true),
    missing("OwnerReferencesPermissionEnforcement", false),
    on("PersistentVolumeClaimResize", || Box::new(PersistentVolumeClaimResize)),
    on("RuntimeClass", || Box::new(RuntimeClass)),
    on("CertificateApproval", || Box::new(CertificateSigners::APPROVAL)),
    on("CertificateSigning", || Box::new(CertificateSigners::SIGNING)),
    nothing("ClusterTrustBundleAttest", true),
    on("CertificateSubjectRestriction", || Box::new(CertificateSubjectRestriction)),
    on("DefaultIngressClass", || Box::new(DefaultIngressClass)),
    off("DenyServiceExternalIPs", || Box::new(DenyServiceExternalIps)),
    on("PodTopologyLabels", || Box::new(PodTopologyLabels)),
    nothing("PodGroupWorkloadExists", true),
    missing("NodeDeclaredFeatureValidator", true),
    nothing("JobValidation", true),
    on("PodResizeValidator", || Box::new(PodResizeValidator)),
    on("MutatingAdmissionPolicy", || Box::new(MutatingAdmissionPolicy)),
    on("MutatingAdmissionWebhook", || Box::new(MutatingAdmissionWebhook)),
    on("ValidatingAdmissionPolicy", || Box::new(ValidatingAdmissionPolicy)),
    on("ValidatingAdmissionWebhook", || Box::new(ValidatingAdmissionWebhook)),
    on("ResourceQuota", || Box::new(ResourceQuota)),
    off("AlwaysDeny", || Box::new(AlwaysDeny)),
];

/// The admission plugins that a server runs, by their names in kube-apiserver.
///
/// ```
/// use konverge_apiserver::AdmissionPlugins;
/// let plugins = AdmissionPlugins::default().with(&["AlwaysPullImages"], &["PodSecurity"])?;
/// assert!(plugins.is_enabled("AlwaysPullImages") && !plugins.is_enabled("PodSecurity"));
/// # Ok::<(), konverge_apiserver::PluginError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPlugins(BTreeSet<&'static str>);

/// Why plugins cannot be enabled or disabled, in the words of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// There is no plugin of this name.
    #[error("{flag} plugin {name:?} is unknown; the plugins are {}", AdmissionPlugins::known().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// `enable-admission-plugins` or `disable-admission-plugins`.
        flag: &'static str,
        /// The unknown name.
        name: String,
    },
    /// The same plugins are to be enabled and disabled.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Overlap(Vec<&'static str>),
}

/// Those that kube-apiserver enables by default, except for two that need controllers. Without the account `default` of each
/// namespace, ServiceAccount refuses every pod; and without anybody who removes the finalizers of
/// StorageObjectInUseProtection, no claim and no volume can be deleted.
impl Default for AdmissionPlugins {
    fn default() -> Self {
        let mut plugins = Self::kubernetes();
        plugins.0.retain(|name| !NEED_CONTROLLERS.contains(name));
        plugins
    }
}

/// Plugins that are off by default in a server without controllers.
const NEED_CONTROLLERS: [&str; 2] = ["ServiceAccount", "StorageObjectInUseProtection"];

impl AdmissionPlugins {
    /// Those that kube-apiserver enables by default.
    pub fn kubernetes() -> Self {
        Self(TABLE.iter().filter(|row| row.on).map(|row| row.name).collect())
    }

    /// The names of all plugins of kube-apiserver, in the order in which they run.
    pub fn known() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }

    /// The names of the plugins of kube-apiserver that have no effect here.
    pub fn missing() -> impl Iterator<Item = &'static str> {
        TABLE.iter().filter(|row| matches!(row.effect, Effect::Missing)).map(|row| row.name)
    }

    /// The same plugins, with some more and without others.
    pub fn with<S: AsRef<str>>(mut self, enable: &[S], disable: &[S]) -> Result<Self, PluginError> {
        let find = |flag: &'static str, names: &[S]| {
            let named = |name: &S| {
                let row = TABLE.iter().find(|row| row.name == name.as_ref());
                row.map(|row| row.name).ok_or_else(|| PluginError::Unknown { flag, name: name.as_ref().to_owned() })
            };
            names.iter().map(named).collect::<Result<BTreeSet<_>, _>>()
        };
        let enable = find("enable-admission-plugins", enable)?;
        let disable = find("disable-admission-plugins", disable)?;
        let both: Vec<&'static str> = enable.intersection(&disable).copied().collect();
        if !both.is_empty() {
            return Err(PluginError::Overlap(both));
        }
        self.0.extend(enable);
        self.0.retain(|name| !disable.contains(name));
        Ok(self)
    }

    /// Whether a plugin of this name is enabled.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether a plugin of this name is enabled and does what it does in kube-apiserver.
    pub(super) fn is_effective(&self, name: &str) -> bool {
        self.is_enabled(name) && Self::missing().all(|missing| missing != name)
    }

    pub(super) fn build(&self) -> Vec<Box<dyn Plugin>> {
        let enabled = TABLE.iter().filter(|row| self.is_enabled(row.name));
        enabled
            .filter_map(|row| match row.effect {
                Effect::Makes(make) => Some(make()),
                Effect::Nothing | Effect::Missing => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_switched_as_in_kube_apiserver() {
        let of = |enable: &[&str], disable: &[&str]| AdmissionPlugins::default().with(enable, disable);
        assert!(!of(&[], &[]).unwrap().is_enabled("ServiceAccount"));
        assert!(of(&["ServiceAccount"], &[]).unwrap().is_enabled("ServiceAccount"));
        assert!(!of(&[], &["Priority"]).unwrap().is_enabled("Priority"));
        let unknown = of(&["Nonsense"], &[]).unwrap_err().to_string();
        assert!(
            unknown
                .starts_with("enable-admission-plugins plugin \"Nonsense\" is unknown; the plugins are AlwaysAdmit, ")
        );
        let unknown = of(&[], &["priority"]).unwrap_err().to_string();
        assert!(unknown.starts_with("disable-admission-plugins plugin \"priority\" is unknown"));
        assert_eq!(
            of(&["Priority", "AlwaysDeny"], &["AlwaysDeny", "Priority"]).unwrap_err().to_string(),
            "[AlwaysDeny Priority] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
        assert_eq!(AdmissionPlugins::known().count(), 41);
        assert_eq!(AdmissionPlugins::known().collect::<BTreeSet<_>>().len(), 41, "each name once");
    }
}
