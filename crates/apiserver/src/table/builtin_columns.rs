//! The columns of built-in kinds, as rows of data: heading, type, priority and what the cell shows. A kind that
//! is not here shows its name and age.

use serde_json::Value;

use super::cell::Cell::{
    self, Age, Bool, Count, Created, Each, Int, Labels, Name, NameDefault, Of, Ratio, Selector, Since, Slashed, Switch,
    Text,
};
use super::{cluster, network, pod, workload};

/// One column of a built-in kind.
#[derive(Clone, Copy)]
pub(super) struct BuiltinColumn {
    pub(super) name: &'static str,
    pub(super) ty: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: i32,
    pub(super) cell: Cell,
}

/// What a row says about an object beside its cells.
pub(super) type Conditions = fn(&Value) -> Option<Value>;

/// How a built-in kind is shown, in all its versions.
pub(super) struct Builtin {
    group: &'static str,
    kind: &'static str,
    pub(super) columns: &'static [BuiltinColumn],
    pub(super) conditions: Option<Conditions>,
}

/// How objects of a kind are shown.
pub(super) fn find(group: &str, kind: &str) -> &'static Builtin {
    KINDS.iter().find(|row| row.group == group && row.kind == kind).unwrap_or(&OTHERS)
}

/// What kinds without a row of their own show.
static OTHERS: Builtin = row("", "", &[NAME, AGE]);

const NAME: BuiltinColumn = BuiltinColumn { format: "name", ..string("Name", Name) };
const AGE: BuiltinColumn = string("Age", Age);

const fn row(group: &'static str, kind: &'static str, columns: &'static [BuiltinColumn]) -> Builtin {
    Builtin { group, kind, columns, conditions: None }
}

const fn column(name: &'static str, ty: &'static str, cell: Cell) -> BuiltinColumn {
    BuiltinColumn { name, ty, format: "", priority: 0, cell }
}

const fn string(name: &'static str, cell: Cell) -> BuiltinColumn {
    column(name, "string", cell)
}

const fn integer(name: &'static str, cell: Cell) -> BuiltinColumn {
    column(name, "integer", cell)
}

const fn boolean(name: &'static str, cell: Cell) -> BuiltinColumn {
    column(name, "boolean", cell)
}

/// Shown with `-o wide` only.
const fn wide(name: &'static str, cell: Cell) -> BuiltinColumn {
    BuiltinColumn { priority: 1, ..string(name, cell) }
}

const DEFAULT_CLASS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const DEFAULT_INGRESS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];
const NAME_AND_CREATED: &[BuiltinColumn] = &[NAME, column("Created At", "date", Created)];
const WEBHOOKS: &[BuiltinColumn] = &[NAME, integer("Webhooks", Count(&["webhooks"])), AGE];
const POLICY_BINDING: &[BuiltinColumn] =
    &[NAME, string("PolicyName", Text("spec.policyName", "")), string("ParamRef", Of(cluster::param_ref)), AGE];
const CONTAINERS: BuiltinColumn = wide("Containers", Each("spec.template.spec.containers", "name", ""));
const IMAGES: BuiltinColumn = wide("Images", Each("spec.template.spec.containers", "image", ""));
const SELECTOR: BuiltinColumn = wide("Selector", Selector("spec.selector", "<none>"));
const REPLICAS: [BuiltinColumn; 7] = [
    NAME,
    integer("Desired", Int("spec.replicas")),
    integer("Current", Int("status.replicas")),
    integer("Ready", Int("status.readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
];
const BINDING: &[BuiltinColumn] = &[
    NAME,
    string("Role", Slashed(&["roleRef.kind", "roleRef.name"])),
    AGE,
    wide("Users", Of(cluster::users)),
    wide("Groups", Of(cluster::groups)),
    wide("ServiceAccounts", Of(cluster::accounts)),
];
const EVENT: &[BuiltinColumn] = &[
    string("Last Seen", Of(cluster::last_seen)),
    string("Type", Text("type", "")),
    string("Reason", Text("reason", "")),
    string("Object", Of(cluster::event_object)),
    wide("Subobject", Of(cluster::event_part)),
    wide("Source", Of(cluster::event_source)),
    string("Message", Of(cluster::event_message)),
    wide("First Seen", Of(cluster::first_seen)),
    wide("Count", Of(cluster::event_count)),
    BuiltinColumn { format: "name", ..wide("Name", Name) },
];

static KINDS: [Builtin; 59] = [
    Builtin {
        conditions: Some(pod::finished),
        ..row(
            "",
            "Pod",
            &[
                NAME,
                string("Ready", Of(pod::ready)),
                string("Status", Of(pod::status)),
                string("Restarts", Of(pod::restarts)),
                AGE,
                wide("IP", Of(pod::ip)),
                wide("Node", Text("spec.nodeName", "<none>")),
                wide("Nominated Node", Text("status.nominatedNodeName", "<none>")),
                wide("Readiness Gates", Of(pod::gates)),
            ],
        )
    },
    row(
        "",
        "PodTemplate",
        &[
            NAME,
            string("Containers", Each("template.spec.containers", "name", "")),
            string("Images", Each("template.spec.containers", "image", "")),
            string("Pod Labels", Labels("template.metadata.labels")),
        ],
    ),
    row(
        "",
        "ReplicationController",
        &[
            REPLICAS[0],
            REPLICAS[1],
            REPLICAS[2],
            REPLICAS[3],
            REPLICAS[4],
            REPLICAS[5],
            REPLICAS[6],
            wide("Selector", Labels("spec.selector")),
        ],
    ),
    row(
        "",
        "Service",
        &[
            NAME,
            string("Type", Text("spec.type", "")),
            string("Cluster-IP", Of(network::cluster_ip)),
            string("External-IP", Of(network::external_ip)),
            string("Port(s)", Of(network::service_ports)),
            AGE,
            wide("Selector", Labels("spec.selector")),
        ],
    ),
    row("", "Endpoints", &[NAME, string("Endpoints", Of(network::endpoints)), AGE]),
    row("", "ConfigMap", &[NAME, string("Data", Count(&["data", "binaryData"])), AGE]),
    row("", "Secret", &[NAME, string("Type", Text("type", "")), string("Data", Count(&["data"])), AGE]),
    row("", "Namespace", &[NAME, string("Status", Text("status.phase", "")), AGE]),
    row(
        "",
        "Node",
        &[
            NAME,
            string("Status", Of(cluster::node_status)),
            string("Roles", Of(cluster::node_roles)),
            AGE,
            string("Version", Text("status.nodeInfo.kubeletVersion", "")),
            wide("Internal-IP", Of(cluster::internal_ip)),
            wide("External-IP", Of(cluster::external_ip)),
            wide("OS-Image", Text("status.nodeInfo.osImage", "<unknown>")),
            wide("Kernel-Version", Of(cluster::kernel)),
            wide("Container-Runtime", Text("status.nodeInfo.containerRuntimeVersion", "<unknown>")),
        ],
    ),
    row("", "LimitRange", NAME_AND_CREATED),
    row(
        "",
        "ComponentStatus",
        &[
            NAME,
            string("Status", Of(cluster::component_health)),
            string("Message", Of(cluster::component_message)),
            string("Error", Of(cluster::component_error)),
        ],
    ),
    row("", "Event", EVENT),
    row("events.k8s.io", "Event", EVENT),
    row(
        "",
        "PersistentVolume",
        &[
            NAME,
            string("Capacity", Of(workload::volume_capacity)),
            string("Access Modes", Of(workload::volume_modes)),
            string("Reclaim Policy", Text("spec.persistentVolumeReclaimPolicy", "")),
            string("Status", Of(workload::volume_phase)),
            string("Claim", Of(workload::volume_claim)),
            string("StorageClass", Of(workload::volume_class)),
            string("VolumeAttributesClass", Text("spec.volumeAttributesClassName", "<unset>")),
            string("Reason", Text("status.reason", "")),
            AGE,
            wide("VolumeMode", Text("spec.volumeMode", "<unset>")),
        ],
    ),
    row(
        "",
        "PersistentVolumeClaim",
        &[
            NAME,
            string("Status", Of(workload::volume_phase)),
            string("Volume", Text("spec.volumeName", "")),
            string("Capacity", Of(workload::claim_capacity)),
            string("Access Modes", Of(workload::claim_modes)),
            string("StorageClass", Of(workload::volume_class)),
            string("VolumeAttributesClass", Text("spec.volumeAttributesClassName", "<unset>")),
            AGE,
            wide("VolumeMode", Text("spec.volumeMode", "<unset>")),
        ],
    ),
    row(
        "",
        "ResourceQuota",
        &[NAME, string("Request", Of(workload::quota_requests)), string("Limit", Of(workload::quota_limits)), AGE],
    ),
    row(
        "apps",
        "Deployment",
        &[
            NAME,
            string("Ready", Ratio("status.readyReplicas", "spec.replicas")),
            string("Up-to-date", Int("status.updatedReplicas")),
            string("Available", Int("status.availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", Selector("spec.selector", "")),
        ],
    ),
    row(
        "apps",
        "ReplicaSet",
        &[REPLICAS[0], REPLICAS[1], REPLICAS[2], REPLICAS[3], REPLICAS[4], REPLICAS[5], REPLICAS[6], SELECTOR],
    ),
    row(
        "apps",
        "StatefulSet",
        &[NAME, string("Ready", Ratio("status.readyReplicas", "spec.replicas")), AGE, CONTAINERS, IMAGES],
    ),
    row(
        "apps",
        "DaemonSet",
        &[
            NAME,
            integer("Desired", Int("status.desiredNumberScheduled")),
            integer("Current", Int("status.currentNumberScheduled")),
            integer("Ready", Int("status.numberReady")),
            integer("Up-to-date", Int("status.updatedNumberScheduled")),
            integer("Available", Int("status.numberAvailable")),
            string("Node Selector", Labels("spec.template.spec.nodeSelector")),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    row(
        "apps",
        "ControllerRevision",
        &[NAME, string("Controller", Of(workload::controller)), string("Revision", Int("revision")), AGE],
    ),
    row(
        "batch",
        "Job",
        &[
            NAME,
            string("Status", Of(workload::job_status)),
            string("Completions", Of(workload::job_completions)),
            string("Duration", Of(workload::job_duration)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    row(
        "batch",
        "CronJob",
        &[
            NAME,
            string("Schedule", Text("spec.schedule", "")),
            string("Timezone", Text("spec.timeZone", "<none>")),
            boolean("Suspend", Switch("spec.suspend")),
            integer("Active", Count(&["status.active"])),
            string("Last Schedule", Since("status.lastScheduleTime", "<none>")),
            AGE,
            wide("Containers", Each("spec.jobTemplate.spec.template.spec.containers", "name", "")),
            wide("Images", Each("spec.jobTemplate.spec.template.spec.containers", "image", "")),
            wide("Selector", Selector("spec.jobTemplate.spec.selector", "<none>")),
        ],
    ),
    row(
        "autoscaling",
        "HorizontalPodAutoscaler",
        &[
            NAME,
            string("Reference", Slashed(&["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"])),
            string("Targets", Of(workload::scaling_targets)),
            string("MinPods", Text("spec.minReplicas", "<unset>")),
            string("MaxPods", Int("spec.maxReplicas")),
            string("Replicas", Int("status.currentReplicas")),
            AGE,
        ],
    ),
    row(
        "autoscaling",
        "Scale",
        &[
            string("Name", Name),
            integer("Desired", Int("spec.replicas")),
            integer("Available", Int("status.replicas")),
            AGE,
        ],
    ),
    row(
        "policy",
        "PodDisruptionBudget",
        &[
            NAME,
            string("Min Available", Text("spec.minAvailable", "N/A")),
            string("Max Unavailable", Text("spec.maxUnavailable", "N/A")),
            integer("Allowed Disruptions", Int("status.disruptionsAllowed")),
            AGE,
        ],
    ),
    row(
        "discovery.k8s.io",
        "EndpointSlice",
        &[
            NAME,
            string("AddressType", Text("addressType", "")),
            string("Ports", Of(network::slice_ports)),
            string("Endpoints", Of(network::slice_addresses)),
            AGE,
        ],
    ),
    row(
        "networking.k8s.io",
        "Ingress",
        &[
            NAME,
            string("Class", Text("spec.ingressClassName", "<none>")),
            string("Hosts", Of(network::hosts)),
            string("Address", Of(network::ingress_address)),
            string("Ports", Of(network::ingress_ports)),
            AGE,
        ],
    ),
    row(
        "networking.k8s.io",
        "IngressClass",
        &[
            BuiltinColumn { format: "name", ..string("Name", NameDefault(DEFAULT_INGRESS)) },
            string("Controller", Text("spec.controller", "")),
            string("Parameters", Of(network::class_parameters)),
            AGE,
        ],
    ),
    row(
        "networking.k8s.io",
        "NetworkPolicy",
        &[NAME, string("Pod-Selector", Selector("spec.podSelector", "<none>")), AGE],
    ),
    row("networking.k8s.io", "ServiceCIDR", &[NAME, string("CIDRs", Each("spec.cidrs", "", "")), AGE]),
    row("networking.k8s.io", "IPAddress", &[NAME, string("ParentRef", Of(network::parent))]),
    row("rbac.authorization.k8s.io", "Role", NAME_AND_CREATED),
    row("rbac.authorization.k8s.io", "ClusterRole", NAME_AND_CREATED),
    row("rbac.authorization.k8s.io", "RoleBinding", BINDING),
    row("rbac.authorization.k8s.io", "ClusterRoleBinding", BINDING),
    row("coordination.k8s.io", "Lease", &[NAME, string("Holder", Text("spec.holderIdentity", "")), AGE]),
    row(
        "coordination.k8s.io",
        "LeaseCandidate",
        &[
            NAME,
            string("LeaseName", Text("spec.leaseName", "")),
            string("BinaryVersion", Text("spec.binaryVersion", "")),
            string("EmulationVersion", Text("spec.emulationVersion", "")),
            AGE,
        ],
    ),
    row("apiextensions.k8s.io", "CustomResourceDefinition", NAME_AND_CREATED),
    row(
        "apiregistration.k8s.io",
        "APIService",
        &[NAME, string("Service", Of(cluster::api_service)), string("Available", Of(cluster::api_available)), AGE],
    ),
    row(
        "scheduling.k8s.io",
        "PriorityClass",
        &[
            NAME,
            integer("Value", Int("value")),
            boolean("Global-Default", Bool("globalDefault", false)),
            AGE,
            string("PreemptionPolicy", Text("preemptionPolicy", "")),
        ],
    ),
    row("node.k8s.io", "RuntimeClass", &[NAME, string("Handler", Text("handler", "")), AGE]),
    row(
        "storage.k8s.io",
        "StorageClass",
        &[
            BuiltinColumn { format: "name", ..string("Name", NameDefault(DEFAULT_CLASS)) },
            string("Provisioner", Text("provisioner", "")),
            string("ReclaimPolicy", Text("reclaimPolicy", "Delete")),
            string("VolumeBindingMode", Text("volumeBindingMode", "Immediate")),
            string("AllowVolumeExpansion", Bool("allowVolumeExpansion", false)),
            AGE,
        ],
    ),
    row("storage.k8s.io", "VolumeAttributesClass", &[NAME, string("DriverName", Text("driverName", "")), AGE]),
    row(
        "storage.k8s.io",
        "VolumeAttachment",
        &[
            NAME,
            BuiltinColumn { format: "name", ..string("Attacher", Text("spec.attacher", "")) },
            string("PV", Text("spec.source.persistentVolumeName", "")),
            string("Node", Text("spec.nodeName", "")),
            boolean("Attached", Bool("status.attached", false)),
            AGE,
        ],
    ),
    row("storage.k8s.io", "CSINode", &[NAME, integer("Drivers", Count(&["spec.drivers"])), AGE]),
    row(
        "storage.k8s.io",
        "CSIDriver",
        &[
            NAME,
            boolean("AttachRequired", Bool("spec.attachRequired", true)),
            boolean("PodInfoOnMount", Bool("spec.podInfoOnMount", false)),
            boolean("StorageCapacity", Bool("spec.storageCapacity", false)),
            string("TokenRequests", Each("spec.tokenRequests", "audience", "<unset>")),
            boolean("RequiresRepublish", Bool("spec.requiresRepublish", false)),
            string("Modes", Each("spec.volumeLifecycleModes", "", "<none>")),
            AGE,
        ],
    ),
    row("storage.k8s.io", "CSIStorageCapacity", NAME_AND_CREATED),
    row("admissionregistration.k8s.io", "MutatingWebhookConfiguration", WEBHOOKS),
    row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", WEBHOOKS),
    row(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        &[
            NAME,
            integer("Validations", Count(&["spec.validations"])),
            string("ParamKind", Of(cluster::param_kind)),
            AGE,
        ],
    ),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", POLICY_BINDING),
    row(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        &[NAME, integer("Mutations", Count(&["spec.mutations"])), string("ParamKind", Of(cluster::param_kind)), AGE],
    ),
    row("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", POLICY_BINDING),
    row(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        &[
            NAME,
            AGE,
            string("SignerName", Text("spec.signerName", "<none>")),
            string("Requestor", Text("spec.username", "")),
            string("RequestedDuration", Of(cluster::requested_duration)),
            string("Condition", Of(cluster::request_condition)),
        ],
    ),
    row(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        &[
            NAME,
            string("PriorityLevel", Text("spec.priorityLevelConfiguration.name", "")),
            string("MatchingPrecedence", Int("spec.matchingPrecedence")),
            string("DistinguisherMethod", Text("spec.distinguisherMethod.type", "<none>")),
            AGE,
            string("MissingPL", Of(cluster::dangling)),
        ],
    ),
    row(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        &[
            NAME,
            string("Type", Text("spec.type", "")),
            string("NominalConcurrencyShares", Text("spec.limited.nominalConcurrencyShares", "<none>")),
            string("Queues", Text("spec.limited.limitResponse.queuing.queues", "<none>")),
            string("HandSize", Text("spec.limited.limitResponse.queuing.handSize", "<none>")),
            string("QueueLengthLimit", Text("spec.limited.limitResponse.queuing.queueLengthLimit", "<none>")),
            AGE,
        ],
    ),
    row("resource.k8s.io", "ResourceClaim", &[NAME, string("State", Of(cluster::claim_state)), AGE]),
    row(
        "resource.k8s.io",
        "ResourceSlice",
        &[
            NAME,
            string("Node", Text("spec.nodeName", "")),
            string("Driver", Text("spec.driver", "")),
            string("Pool", Text("spec.pool.name", "")),
            AGE,
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_about_a_kind_that_exists() {
        let served = crate::builtin::builtin();
        let mut seen = BTreeSet::new();
        for row in &KINDS {
            assert!(seen.insert((row.group, row.kind)), "{} is there twice", row.kind);
            let known = served.iter().any(|resource| &*resource.group == row.group && &*resource.kind == row.kind);
            // One is what a subresource speaks, the other comes with a beta version.
            assert!(known || matches!(row.kind, "Scale" | "LeaseCandidate"), "{} {}", row.group, row.kind);
            assert!(row.columns.iter().any(|column| column.format == "name") || row.kind == "Scale", "{}", row.kind);
        }
    }
}
