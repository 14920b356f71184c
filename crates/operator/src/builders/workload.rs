//! Kinds that keep pods running: Deployment, StatefulSet, DaemonSet.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::number::{Count, NumberOrText, int32};
use super::pods::{Pods as _, Template, app, pods};
use super::restart::{CHECKSUM, checksum};
use super::wrapper::{kind, named, put, spec};
use super::{Labels, PersistentVolumeClaim, Selector};

kind! {
    /// Keeps a number of equal pods running and replaces them step by step when they change.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let web = Deployment::new("web").replicas(3).container(Container::new("app").image("nginx:1.25").port(80));
    /// assert_eq!(web.desired_replicas(), 3);
    /// ```
    Deployment(apps::Deployment) with pods
}
spec!(Deployment, apps::DeploymentSpec);
pods!(Deployment(apps::Deployment));

kind! {
    /// Keeps pods running that have names and storage of their own, started in order.
    StatefulSet(apps::StatefulSet) with pods
}
spec!(StatefulSet, apps::StatefulSetSpec);
pods!(StatefulSet(apps::StatefulSet));

kind! {
    /// Keeps one pod running on every node.
    DaemonSet(apps::DaemonSet) with pods
}
spec!(DaemonSet, apps::DaemonSetSpec);
pods!(DaemonSet(apps::DaemonSet));

/// The methods of all three.
macro_rules! workload {
    ($name:ident, $raw:ident, $spec:ident) => {
        impl Template for apps::$raw {
            fn template(&mut self) -> &mut core::PodTemplateSpec {
                &mut self.spec.template
            }

            fn selector(&mut self) -> Option<&mut LabelSelector> {
                Some(&mut self.spec.selector)
            }
        }

        impl $name {
            /// A workload called `name`, whose pods have the label `app: name`.
            pub fn new(name: impl Into<String>) -> Self {
                let metadata = named(name);
                let (selector, pods) = app(metadata.name.as_deref().unwrap_or_default());
                let template = core::PodTemplateSpec { metadata: Some(pods), spec: Some(core::PodSpec::default()) };
                let spec = apps::$spec { selector, template, ..Default::default() };
                Self(apps::$raw { metadata, spec, ..Default::default() })
            }

            /// Selects the pods by these labels instead of `app`, and gives them these labels.
            pub fn selector(mut self, selector: impl Into<Selector>) -> Self {
                let selector = selector.into();
                let before = self.0.spec.selector.match_labels.replace(selector.clone().into()).unwrap_or_default();
                let labels = self.0.pod_metadata().labels.get_or_insert_default();
                labels.retain(|key, _| !before.contains_key(key));
                self.0.add_pod_labels(&selector.into_iter().collect::<Labels>());
                self
            }

            /// Starts new pods whenever the data of this ConfigMap or Secret changes, step by step as after any other
            /// change: pods read environment variables only when they start, and most programs read their files only
            /// then, too. It may be called for several of them.
            ///
            /// ```
            /// use konverge::prelude::*;
            /// let config = ConfigMap::new("web").data("colour", "blue");
            #[doc = concat!("let web = ", stringify!($name), "::new(\"web\")")]
            ///     .container(Container::new("app").image("nginx:1.25").all_env_from_configmap(config.name()))
            ///     .restart_when(&config);
            /// ```
            ///
            /// The pods have a checksum of the data (half of a SHA-256) in the annotation `konverge.dev/config-checksum`. It
            /// does not show the data, but whoever may read the pods can find out whether a guess of it is right.
            pub fn restart_when(mut self, config: &impl super::ConfigData) -> Self {
                let annotations = self.0.pod_metadata().annotations.get_or_insert_default();
                let sum = checksum(annotations.get(CHECKSUM).map(String::as_str), config);
                annotations.insert(CHECKSUM.to_owned(), sum);
                self
            }

            /// Seconds that a pod has to be ready before it counts as available.
            pub fn min_ready_seconds(self, seconds: impl Count) -> Self {
                let seconds = int32(seconds);
                self.spec(|spec| spec.min_ready_seconds = Some(seconds))
            }

            /// How many old revisions are kept for a rollback.
            pub fn revision_history_limit(self, count: impl Count) -> Self {
                let count = int32(count);
                self.spec(|spec| spec.revision_history_limit = Some(count))
            }

            /// Whether its controller has seen the newest spec.
            fn is_observed(metadata: &ObjectMeta, observed: Option<i64>) -> bool {
                observed.unwrap_or_default() >= metadata.generation.unwrap_or_default()
            }
        }
    };
}

workload!(Deployment, Deployment, DeploymentSpec);
workload!(StatefulSet, StatefulSet, StatefulSetSpec);
workload!(DaemonSet, DaemonSet, DaemonSetSpec);

/// The methods of the two that have a number of replicas.
macro_rules! replicated {
    ($name:ident) => {
        impl $name {
            /// Sets the number of pods.
            pub fn replicas(self, replicas: impl Count) -> Self {
                let replicas = int32(replicas);
                self.spec(|spec| spec.replicas = Some(replicas))
            }

            /// How many pods are desired: 1 if the spec does not say.
            pub fn desired_replicas(&self) -> i32 {
                self.0.spec.replicas.unwrap_or(1)
            }

            /// How many pods are ready.
            pub fn ready_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
            }

            /// Whether at least so many pods are ready. It takes numbers of any type: `web.has_ready(spec.replicas)`.
            pub fn has_ready(&self, pods: impl Count) -> bool {
                i128::from(self.ready_replicas()) >= pods.count()
            }

            /// How many pods are available.
            pub fn available_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
            }

            /// How many pods are of the newest revision.
            pub fn updated_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.updated_replicas).unwrap_or_default()
            }

            /// Whether all pods are of the newest revision and available.
            pub fn is_rolled_out(&self) -> bool {
                let Some(status) = &self.0.status else { return false };
                let all = self.desired_replicas();
                Self::is_observed(&self.0.metadata, status.observed_generation)
                    && self.updated_replicas() >= all
                    && self.available_replicas() >= all
            }
        }
    };
}

replicated!(Deployment);
replicated!(StatefulSet);

impl Deployment {
    /// Updates pods step by step, with at most `max_surge` more and `max_unavailable` fewer than desired at a time: numbers, or
    /// shares such as `"25%"`.
    pub fn rolling_update(self, max_surge: impl NumberOrText, max_unavailable: impl NumberOrText) -> Self {
        let rolling_update = apps::RollingUpdateDeployment {
            max_surge: Some(max_surge.number_or_text()),
            max_unavailable: Some(max_unavailable.number_or_text()),
        };
        let type_ = Some("RollingUpdate".to_owned());
        self.spec(|spec| {
            spec.strategy = Some(apps::DeploymentStrategy { rolling_update: Some(rolling_update), type_ });
        })
    }

    /// Updates by stopping all pods before new ones start.
    pub fn recreate(self) -> Self {
        let strategy = apps::DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None };
        self.spec(|spec| spec.strategy = Some(strategy))
    }

    /// Seconds without progress after which a rollout has failed.
    pub fn progress_deadline(self, seconds: impl Count) -> Self {
        let seconds = int32(seconds);
        self.spec(|spec| spec.progress_deadline_seconds = Some(seconds))
    }

    /// Whether rollouts are paused.
    pub fn paused(self, yes: bool) -> Self {
        self.spec(|spec| spec.paused = Some(yes))
    }

    /// Whether the controller has seen the newest spec and enough pods are available.
    pub fn is_available(&self) -> bool {
        let Some(status) = &self.0.status else { return false };
        let available = |condition: &apps::DeploymentCondition| {
            condition.type_.as_deref() == Some("Available") && condition.status.as_deref() == Some("True")
        };
        Self::is_observed(&self.0.metadata, status.observed_generation)
            && status.conditions.iter().flatten().any(available)
    }
}

impl StatefulSet {
    /// The headless service that gives its pods their names in DNS.
    pub fn service_name(self, name: impl Into<String>) -> Self {
        self.spec(|spec| spec.service_name = Some(name.into()))
    }

    /// Adds a claim template: every pod gets a claim of its own, and containers mount it by the template's name.
    pub fn volume_claim_template(self, claim: PersistentVolumeClaim) -> Self {
        self.spec(|spec| {
            let key = |claim: &core::PersistentVolumeClaim| claim.metadata.name.clone();
            put(&mut spec.volume_claim_templates, claim.into(), key);
        })
    }

    /// Starts and stops pods all at once instead of one after the other.
    pub fn parallel(self) -> Self {
        self.spec(|spec| spec.pod_management_policy = Some("Parallel".to_owned()))
    }

    /// Updates only pods whose ordinal is at least this.
    pub fn partition(self, ordinal: impl Count) -> Self {
        let rolling_update =
            apps::RollingUpdateStatefulSetStrategy { partition: Some(int32(ordinal)), ..Default::default() };
        let type_ = Some("RollingUpdate".to_owned());
        self.spec(|spec| {
            let strategy = apps::StatefulSetUpdateStrategy { rolling_update: Some(rolling_update), type_ };
            spec.update_strategy = Some(strategy);
        })
    }

    /// Updates a pod only after somebody has deleted it.
    pub fn update_on_delete(self) -> Self {
        let strategy = apps::StatefulSetUpdateStrategy { type_: Some("OnDelete".to_owned()), ..Default::default() };
        self.spec(|spec| spec.update_strategy = Some(strategy))
    }

    /// Whether the controller has seen the newest spec and all desired pods are available.
    pub fn is_available(&self) -> bool {
        let Some(status) = &self.0.status else { return false };
        Self::is_observed(&self.0.metadata, status.observed_generation)
            && self.available_replicas() >= self.desired_replicas()
    }
}

impl DaemonSet {
    /// Updates at most so many nodes at a time: a number, or a share such as `"10%"`.
    pub fn max_unavailable(self, nodes: impl NumberOrText) -> Self {
        let rolling_update =
            apps::RollingUpdateDaemonSet { max_unavailable: Some(nodes.number_or_text()), ..Default::default() };
        let type_ = Some("RollingUpdate".to_owned());
        self.spec(|spec| {
            let strategy = apps::DaemonSetUpdateStrategy { rolling_update: Some(rolling_update), type_ };
            spec.update_strategy = Some(strategy);
        })
    }

    /// On how many nodes a pod should run.
    pub fn desired_nodes(&self) -> i32 {
        self.0.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
    }

    /// On how many nodes a pod is ready.
    pub fn ready_nodes(&self) -> i32 {
        self.0.status.as_ref().map_or(0, |status| status.number_ready)
    }

    /// Whether the controller has seen the newest spec and a pod is available on every node where one should run.
    pub fn is_available(&self) -> bool {
        let Some(status) = &self.0.status else { return false };
        Self::is_observed(&self.0.metadata, status.observed_generation)
            && status.number_available.unwrap_or_default() >= status.desired_number_scheduled
    }
}
