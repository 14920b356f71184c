//! What keeps pods running: Deployment, StatefulSet, DaemonSet.

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

/// What the three have in common, which their types do not say.
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
            /// One called `name`, whose pods carry `app: name`.
            pub fn new(name: impl Into<String>) -> Self {
                let metadata = named(name);
                let (selector, pods) = app(metadata.name.as_deref().unwrap_or_default());
                let template = core::PodTemplateSpec { metadata: Some(pods), spec: Some(core::PodSpec::default()) };
                let spec = apps::$spec { selector, template, ..Default::default() };
                Self(apps::$raw { metadata, spec, ..Default::default() })
            }

            /// Selects its pods by these labels instead of `app`, and labels them so.
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
            /// then, too. May be said several times.
            ///
            /// ```
            /// use konverge::prelude::*;
            /// let config = ConfigMap::new("web").data("colour", "blue");
            #[doc = concat!("let web = ", stringify!($name), "::new(\"web\")")]
            ///     .container(Container::new("app").image("nginx:1.25").all_env_from_configmap(config.name()))
            ///     .restart_when(&config);
            /// ```
            ///
            /// The pods carry a sum of the data (half of a SHA-256) in the annotation `konverge.dev/config-checksum`. It
            /// does not show the data, but whoever may read the pods can find out whether a guess of it is right.
            pub fn restart_when(mut self, config: &impl super::ConfigData) -> Self {
                let annotations = self.0.pod_metadata().annotations.get_or_insert_default();
                let sum = checksum(annotations.get(CHECKSUM).map(String::as_str), config);
                annotations.insert(CHECKSUM.to_owned(), sum);
                self
            }

            /// Seconds a pod must be ready before it counts.
            pub fn min_ready_seconds(self, seconds: impl Count) -> Self {
                let seconds = int32(seconds);
                self.spec(|spec| spec.min_ready_seconds = Some(seconds))
            }

            /// How many former versions are kept.
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

/// What the two that count their pods have in common.
macro_rules! replicated {
    ($name:ident) => {
        impl $name {
            /// How many pods.
            pub fn replicas(self, replicas: impl Count) -> Self {
                let replicas = int32(replicas);
                self.spec(|spec| spec.replicas = Some(replicas))
            }

            /// How many pods are wanted.
            pub fn desired_replicas(&self) -> i32 {
                self.0.spec.replicas.unwrap_or(1)
            }

            /// How many pods are ready.
            pub fn ready_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
            }

            /// Whether so many pods are ready, in whatever type the number is: `web.has_ready(spec.replicas)`.
            pub fn has_ready(&self, pods: impl Count) -> bool {
                i128::from(self.ready_replicas()) >= pods.count()
            }

            /// How many pods are available.
            pub fn available_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
            }

            /// How many pods are of the newest version.
            pub fn updated_replicas(&self) -> i32 {
                self.0.status.as_ref().and_then(|status| status.updated_replicas).unwrap_or_default()
            }

            /// Whether all pods are of the newest version and available.
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
    /// Replaces pods with so many more and so many fewer than wanted at once: numbers, or shares such as `"25%"`.
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

    /// Stops all pods before it starts new ones.
    pub fn recreate(self) -> Self {
        let strategy = apps::DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None };
        self.spec(|spec| spec.strategy = Some(strategy))
    }

    /// Seconds after which an update without progress has failed.
    pub fn progress_deadline(self, seconds: impl Count) -> Self {
        let seconds = int32(seconds);
        self.spec(|spec| spec.progress_deadline_seconds = Some(seconds))
    }

    /// Whether changes wait until it goes on.
    pub fn paused(self, yes: bool) -> Self {
        self.spec(|spec| spec.paused = Some(yes))
    }

    /// Whether enough pods are available, as its controller saw it of the newest spec.
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

    /// Adds a claim that every pod has one of; containers mount it by the claim's name.
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

    /// Updates only pods from this ordinal on.
    pub fn partition(self, ordinal: impl Count) -> Self {
        let rolling_update =
            apps::RollingUpdateStatefulSetStrategy { partition: Some(int32(ordinal)), ..Default::default() };
        let type_ = Some("RollingUpdate".to_owned());
        self.spec(|spec| {
            let strategy = apps::StatefulSetUpdateStrategy { rolling_update: Some(rolling_update), type_ };
            spec.update_strategy = Some(strategy);
        })
    }

    /// Updates a pod only once somebody deletes it.
    pub fn update_on_delete(self) -> Self {
        let strategy = apps::StatefulSetUpdateStrategy { type_: Some("OnDelete".to_owned()), ..Default::default() };
        self.spec(|spec| spec.update_strategy = Some(strategy))
    }

    /// Whether all wanted pods are available, as its controller saw it of the newest spec.
    pub fn is_available(&self) -> bool {
        let Some(status) = &self.0.status else { return false };
        Self::is_observed(&self.0.metadata, status.observed_generation)
            && self.available_replicas() >= self.desired_replicas()
    }
}

impl DaemonSet {
    /// Updates so many nodes at once: a number, or a share such as `"10%"`.
    pub fn max_unavailable(self, nodes: impl NumberOrText) -> Self {
        let rolling_update =
            apps::RollingUpdateDaemonSet { max_unavailable: Some(nodes.number_or_text()), ..Default::default() };
        let type_ = Some("RollingUpdate".to_owned());
        self.spec(|spec| {
            let strategy = apps::DaemonSetUpdateStrategy { rolling_update: Some(rolling_update), type_ };
            spec.update_strategy = Some(strategy);
        })
    }

    /// On how many nodes it should run.
    pub fn desired_nodes(&self) -> i32 {
        self.0.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
    }

    /// On how many nodes it is ready.
    pub fn ready_nodes(&self) -> i32 {
        self.0.status.as_ref().map_or(0, |status| status.number_ready)
    }

    /// Whether it is available on every node it should run on, as its controller saw it of the newest spec.
    pub fn is_available(&self) -> bool {
        let Some(status) = &self.0.status else { return false };
        Self::is_observed(&self.0.metadata, status.observed_generation)
            && status.number_available.unwrap_or_default() >= status.desired_number_scheduled
    }
}
