//! The methods of all kinds that run pods: containers, volumes, identity, placement.
//!
//! Pods carry the label `app` with the name of the object that runs them, and the object selects them by it.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::words::Labels;

/// The pods of a kind: their spec, metadata and selector.
pub(super) trait Pods {
    /// The spec of the pods.
    fn pod_spec(&mut self) -> &mut core::PodSpec;
    /// The metadata of the pods.
    fn pod_metadata(&mut self) -> &mut ObjectMeta;
    /// The selector of the pods, if the kind has one.
    fn pod_selector(&mut self) -> Option<&mut LabelSelector>;

    /// Labels the pods. A selector that asks for one of these labels is changed along.
    fn add_pod_labels(&mut self, labels: &Labels) {
        let known = self.pod_metadata().labels.get_or_insert_default();
        known.extend(labels.clone());
        if let Some(selected) = self.pod_selector().and_then(|selector| selector.match_labels.as_mut()) {
            for (key, value) in labels.iter().filter(|(key, _)| selected.contains_key(*key)).collect::<Vec<_>>() {
                selected.insert(key.to_owned(), value.to_owned());
            }
        }
    }

    /// The labels by which all pods of this object, and of no other, are found.
    fn pods_found_by(&mut self) -> LabelSelector {
        if let Some(selector) = self.pod_selector() {
            return selector.clone();
        }
        let app = self.pod_metadata().labels.iter().flatten().filter(|(key, _)| *key == "app");
        LabelSelector {
            match_labels: Some(app.map(|(k, v)| (k.clone(), v.clone())).collect()),
            match_expressions: None,
        }
    }
}

/// A kind that makes its pods from a template.
pub(super) trait Template {
    /// The template.
    fn template(&mut self) -> &mut core::PodTemplateSpec;

    /// The selector of the pods, if the kind has one.
    fn selector(&mut self) -> Option<&mut LabelSelector> {
        None
    }
}

impl<T: Template> Pods for T {
    fn pod_spec(&mut self) -> &mut core::PodSpec {
        self.template().spec.get_or_insert_default()
    }

    fn pod_metadata(&mut self) -> &mut ObjectMeta {
        self.template().metadata.get_or_insert_default()
    }

    fn pod_selector(&mut self) -> Option<&mut LabelSelector> {
        self.selector()
    }
}

/// A selector of, and the metadata for, the pods of `name`.
pub(super) fn app(name: &str) -> (LabelSelector, ObjectMeta) {
    let labels = Some([("app".to_owned(), name.to_owned())].into());
    let selector = LabelSelector { match_labels: labels.clone(), match_expressions: None };
    (selector, ObjectMeta { labels, ..Default::default() })
}

/// The methods of a builder for a kind that runs pods.
macro_rules! pods {
    ($name:ident($raw:ty)) => {
        impl $crate::builders::wrapper::LabelPods for $raw {
            fn label_pods(&mut self, labels: &$crate::builders::Labels) {
                $crate::builders::pods::Pods::add_pod_labels(self, labels);
            }
        }

        impl $name {
            /// Adds a container, in the place of one with the same name.
            pub fn container(self, container: $crate::builders::Container) -> Self {
                self.pod_spec(|spec| {
                    let key = |container: &core::Container| container.name.clone();
                    $crate::builders::wrapper::put_into(&mut spec.containers, container.into(), key);
                })
            }

            /// Adds an init container: it runs to its end before the others start.
            pub fn init_container(self, container: $crate::builders::Container) -> Self {
                self.pod_spec(|spec| {
                    let key = |container: &core::Container| container.name.clone();
                    $crate::builders::wrapper::put(&mut spec.init_containers, container.into(), key);
                })
            }

            /// Adds a sidecar: it starts before the other containers and stops after them.
            pub fn sidecar(self, container: $crate::builders::Container) -> Self {
                self.init_container(container.patch(|container| container.restart_policy = Some("Always".to_owned())))
            }

            /// Adds a volume, in the place of one with the same name.
            pub fn volume(self, volume: $crate::builders::Volume) -> Self {
                self.pod_spec(|spec| {
                    let key = |volume: &core::Volume| volume.name.clone();
                    $crate::builders::wrapper::put(&mut spec.volumes, volume.into(), key);
                })
            }

            /// The service account of the pods.
            pub fn service_account(self, name: impl Into<String>) -> Self {
                self.pod_spec(|spec| spec.service_account_name = Some(name.into()))
            }

            /// Whether the token of the service account is mounted into the pods.
            pub fn automount_service_account_token(self, yes: bool) -> Self {
                self.pod_spec(|spec| spec.automount_service_account_token = Some(yes))
            }

            /// Adds a Secret with the credentials of an image registry.
            pub fn image_pull_secret(self, name: impl Into<String>) -> Self {
                let secret = core::LocalObjectReference { name: name.into() };
                self.pod_spec(|spec| {
                    let key = |secret: &core::LocalObjectReference| secret.name.clone();
                    $crate::builders::wrapper::put(&mut spec.image_pull_secrets, secret, key);
                })
            }

            /// Runs the pods only on nodes with these labels.
            pub fn node_selector(self, labels: impl Into<$crate::builders::Selector>) -> Self {
                let labels = labels.into();
                self.pod_spec(|spec| $crate::builders::wrapper::add(&mut spec.node_selector, labels))
            }

            /// Lets the pods run on nodes with the taint `key=value:effect`.
            pub fn toleration(
                self,
                key: impl Into<String>,
                value: impl Into<String>,
                effect: impl Into<String>,
            ) -> Self {
                self.tolerate(core::Toleration {
                    key: Some(key.into()),
                    operator: Some("Equal".to_owned()),
                    value: Some(value.into()),
                    effect: Some(effect.into()),
                    toleration_seconds: None,
                })
            }

            /// Lets the pods run on nodes with the taint `key`, whatever its value and effect.
            pub fn tolerates(self, key: impl Into<String>) -> Self {
                let operator = Some("Exists".to_owned());
                self.tolerate(core::Toleration { key: Some(key.into()), operator, ..Default::default() })
            }

            fn tolerate(self, toleration: core::Toleration) -> Self {
                self.pod_spec(|spec| spec.tolerations.get_or_insert_default().push(toleration))
            }

            /// Spreads the pods evenly over zones, nodes or whatever `topology_key` names, as far as possible.
            /// Call it after `labels` and `selector`: it counts the pods that are selected at the time of the call.
            pub fn spread_over(mut self, topology_key: impl Into<String>) -> Self {
                let spread = core::TopologySpreadConstraint {
                    topology_key: topology_key.into(),
                    max_skew: 1,
                    when_unsatisfiable: "ScheduleAnyway".to_owned(),
                    label_selector: Some($crate::builders::pods::Pods::pods_found_by(&mut self.0)),
                    ..Default::default()
                };
                self.pod_spec(|spec| spec.topology_spread_constraints.get_or_insert_default().push(spread))
            }

            /// The affinity rules of the pods, in the type that Kubernetes publishes.
            pub fn affinity(self, affinity: core::Affinity) -> Self {
                self.pod_spec(|spec| spec.affinity = Some(affinity))
            }

            /// The priority class of the pods.
            pub fn priority_class(self, name: impl Into<String>) -> Self {
                self.pod_spec(|spec| spec.priority_class_name = Some(name.into()))
            }

            /// Seconds that a pod has to stop before it is killed.
            pub fn termination_grace_period(self, seconds: impl $crate::builders::Count) -> Self {
                let seconds = $crate::builders::number::int64(seconds);
                self.pod_spec(|spec| spec.termination_grace_period_seconds = Some(seconds))
            }

            /// When a container that ended is restarted: `Always`, `OnFailure`, `Never`.
            pub fn restart_policy(self, policy: impl Into<String>) -> Self {
                self.pod_spec(|spec| spec.restart_policy = Some(policy.into()))
            }

            /// Whether pods share the network of their node.
            pub fn host_network(self, yes: bool) -> Self {
                self.pod_spec(|spec| spec.host_network = Some(yes))
            }

            /// The security context of the pods, in the type that Kubernetes publishes.
            pub fn pod_security_context(self, context: core::PodSecurityContext) -> Self {
                self.pod_spec(|spec| spec.security_context = Some(context))
            }

            /// The group that owns the files of mounted volumes.
            pub fn fs_group(self, id: impl $crate::builders::Count) -> Self {
                let id = $crate::builders::number::int64(id);
                self.pod_spec(|spec| spec.security_context.get_or_insert_default().fs_group = Some(id))
            }

            /// Adds labels to the pods, and not to the object itself.
            pub fn pod_labels(mut self, labels: impl Into<$crate::builders::Labels>) -> Self {
                $crate::builders::pods::Pods::add_pod_labels(&mut self.0, &labels.into());
                self
            }

            /// Adds an annotation to the pods, and not to the object itself.
            pub fn pod_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                let metadata = $crate::builders::pods::Pods::pod_metadata(&mut self.0);
                metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
                self
            }

            /// Changes fields of the pods' spec that this builder has no method for, in the type that Kubernetes publishes.
            pub fn pod_spec(mut self, change: impl FnOnce(&mut core::PodSpec)) -> Self {
                change($crate::builders::pods::Pods::pod_spec(&mut self.0));
                self
            }
        }
    };
}

pub(super) use pods;
