//! The empty object of a kind, with which a created object is compared to find the fields that its manager owns.
//! In: a type. Out: an object with the fields that Go serialises even if they are not set. A struct among them is not owned
//! by the manager that sets its fields.

use serde_json::{Map, Value};

use crate::arena::{Arena, Scalar, Shape, TypeId};

/// Optional structs that Go always serialises, besides `metadata`, `spec` and `status`.
const ALWAYS_PRESENT: &[(&str, &str)] = &[
    ("io.k8s.api.apps.v1.DaemonSetSpec", "updateStrategy"),
    ("io.k8s.api.apps.v1.DeploymentSpec", "strategy"),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", "template"),
    ("io.k8s.api.apps.v1.StatefulSetSpec", "updateStrategy"),
    ("io.k8s.api.authentication.v1.SelfSubjectReviewStatus", "userInfo"),
    ("io.k8s.api.authentication.v1.TokenReviewStatus", "user"),
    ("io.k8s.api.core.v1.Event", "source"),
    ("io.k8s.api.core.v1.NodeDaemonEndpoints", "kubeletEndpoint"),
    ("io.k8s.api.core.v1.NodeStatus", "daemonEndpoints"),
    ("io.k8s.api.core.v1.NodeStatus", "nodeInfo"),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "resources"),
    ("io.k8s.api.core.v1.PodTemplate", "template"),
    ("io.k8s.api.core.v1.ServiceStatus", "loadBalancer"),
    ("io.k8s.api.events.v1.Event", "deprecatedSource"),
    ("io.k8s.api.networking.v1.IngressStatus", "loadBalancer"),
    ("io.k8s.api.resource.v1.ResourceClaimSpec", "devices"),
    ("io.k8s.api.resource.v1beta1.ResourceClaimSpec", "devices"),
    ("io.k8s.api.resource.v1beta2.ResourceClaimSpec", "devices"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", "acceptedNames"),
];

/// Required fields that Go leaves out if they are not set.
const OMITTED: &[(&str, &str)] = &[
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions"),
    ("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
];

/// The empty object of a built-in kind. That of a custom resource is `{}`.
/// The result depends only on the type, so callers can keep it.
pub fn empty_object(arena: &Arena, ty: TypeId) -> Value {
    match &arena.node(ty).shape {
        Shape::Struct { fields, atomic: false, .. } => {
            let mut object = Map::new();
            for field in fields {
                let is_in = |table: &[(&str, &str)]| {
                    table.iter().any(|(name, known)| **known == *field.name && arena.named(name) == Some(ty))
                };
                let present = field.required && !is_in(OMITTED)
                    || matches!(&*field.name, "metadata" | "spec" | "status")
                    || is_in(ALWAYS_PRESENT);
                if present {
                    object.insert((*field.name).into(), empty_object(arena, field.ty));
                }
            }
            Value::Object(object)
        }
        Shape::Scalar(Scalar::String | Scalar::IntOrString) => "".into(),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number) => 0.into(),
        Shape::Scalar(Scalar::Boolean) => false.into(),
        _ => Value::Null,
    }
}
