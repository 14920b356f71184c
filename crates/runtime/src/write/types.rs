//! Which type an object has. In: group, version and kind. Out: the published type, one that was learned, or none: then
//! the structure is deduced from the values, as a server does for what it has no schema of.

use std::collections::HashMap;
use std::sync::Arc;

use konverge_schema::{Arena, CompileError, OBJECT_META, TypeId, compile, kubernetes};
use kube::core::ApiResource;
use parking_lot::RwLock;
use serde_json::Value;

/// The groups whose types are published, with the package they are published under.
const GROUPS: [(&str, &str); 22] = [
    ("", "io.k8s.api.core"),
    ("admissionregistration.k8s.io", "io.k8s.api.admissionregistration"),
    ("apiextensions.k8s.io", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions"),
    ("apiregistration.k8s.io", "io.k8s.kube-aggregator.pkg.apis.apiregistration"),
    ("apps", "io.k8s.api.apps"),
    ("authentication.k8s.io", "io.k8s.api.authentication"),
    ("authorization.k8s.io", "io.k8s.api.authorization"),
    ("autoscaling", "io.k8s.api.autoscaling"),
    ("batch", "io.k8s.api.batch"),
    ("certificates.k8s.io", "io.k8s.api.certificates"),
    ("coordination.k8s.io", "io.k8s.api.coordination"),
    ("discovery.k8s.io", "io.k8s.api.discovery"),
    ("events.k8s.io", "io.k8s.api.events"),
    ("flowcontrol.apiserver.k8s.io", "io.k8s.api.flowcontrol"),
    ("networking.k8s.io", "io.k8s.api.networking"),
    ("node.k8s.io", "io.k8s.api.node"),
    ("policy", "io.k8s.api.policy"),
    ("rbac.authorization.k8s.io", "io.k8s.api.rbac"),
    ("resource.k8s.io", "io.k8s.api.resource"),
    ("scheduling.k8s.io", "io.k8s.api.scheduling"),
    ("storage.k8s.io", "io.k8s.api.storage"),
    ("storagemigration.k8s.io", "io.k8s.api.storagemigration"),
];

/// A type in its arena.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub arena: Arc<Arena>,
    /// None where the structure is deduced.
    pub root: Option<TypeId>,
    /// Whether the server keeps objects as typed structs, and so leaves out what is zero.
    pub typed: bool,
}

/// Every type there is a schema of.
#[derive(Debug, Default)]
pub(crate) struct Types {
    learned: RwLock<HashMap<(String, String, String), Type>>,
}

impl Types {
    /// The type of this kind.
    pub(super) fn of(&self, api: &ApiResource) -> Type {
        let published = GROUPS
            .iter()
            .find(|(group, _)| *group == api.group)
            .and_then(|(_, package)| kubernetes().named(&format!("{package}.{}.{}", api.version, api.kind)));
        if let Some(root) = published {
            return Type { arena: kubernetes().clone(), root: Some(root), typed: true };
        }
        let learned = self.learned.read();
        let learned = (!learned.is_empty()).then(|| learned.get(&name(api)).cloned()).flatten();
        learned.unwrap_or_else(|| Type { arena: kubernetes().clone(), root: None, typed: false })
    }

    /// Learns the schema of a custom resource: what a CRD has under `schema.openAPIV3Schema`.
    pub(super) fn learn(&self, api: &ApiResource, schema: &Value) -> Result<(), CompileError> {
        let mut arena = Arena::default();
        let root = compile(&mut arena, Some(schema))?;
        let ty = Type { arena: Arc::new(arena), root: Some(root), typed: false };
        self.learned.write().insert(name(api), ty);
        Ok(())
    }
}

/// The type of `metadata`, which is the same for every object.
pub(crate) fn object_meta() -> (&'static Arena, TypeId) {
    let arena = kubernetes();
    (arena, arena.named(OBJECT_META).expect("the table of published types has ObjectMeta, and a test reads it"))
}

fn name(api: &ApiResource) -> (String, String, String) {
    (api.group.clone(), api.version.clone(), api.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_kinds_are_found_and_others_deduced() {
        let cases = [
            ("", "v1", "ConfigMap", true),
            ("apps", "v1", "StatefulSet", true),
            ("networking.k8s.io", "v1", "Ingress", true),
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", true),
            ("events.k8s.io", "v1", "Event", true),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", true),
            ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", true),
            ("policy", "v1", "PodDisruptionBudget", true),
            ("apps.example.com", "v1", "Deployment", false),
            ("example.com", "v1", "WebApp", false),
        ];
        for (group, version, kind, expect) in cases {
            let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
            let ty = Types::default().of(&ApiResource::from_gvk(&gvk));
            assert_eq!((ty.root.is_some(), ty.typed), (expect, expect), "{group}/{version} {kind}");
        }
        assert!(matches!(object_meta().0.node(object_meta().1).shape, konverge_schema::Shape::Struct { .. }));
    }
}
