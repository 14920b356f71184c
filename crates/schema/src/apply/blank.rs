//! The empty object of a kind: what a created object is compared with to find who owns what.
//! In: a type. Out: an object with what is always there. It matters for one thing: a struct that is always
//! there is not owned by whoever fills it in.

use serde_json::{Map, Value};

use crate::arena::{Arena, Scalar, Shape, TypeId};

/// Structs that are always there though they are optional, besides `metadata`, `spec` and `status`.
const ALWAYS_THERE: &[(&str, &str)] = &[
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

/// The empty object of a built-in kind. A custom resource starts from nothing: pass `{}` for it.
/// The result depends on the type only, so it is worth keeping.
pub fn blank(arena: &Arena, ty: TypeId) -> Value {
    match &arena.node(ty).shape {
        Shape::Struct { fields, atomic: false, .. } => {
            let mut object = Map::new();
            for field in fields {
                let there = field.required
                    || matches!(&*field.name, "metadata" | "spec" | "status")
                    || ALWAYS_THERE.iter().any(|(name, known)| **known == *field.name && arena.named(name) == Some(ty));
                if there {
                    object.insert((*field.name).into(), blank(arena, field.ty));
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
