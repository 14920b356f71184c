//! HorizontalPodAutoscaler: scales workloads by what their pods use.

use k8s_openapi::api::autoscaling::v2 as autoscaling;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::number::{Count, int32};
use super::wrapper::{kind, named, spec};
use crate::kind::Kind;

kind! {
    /// Scales a workload between two numbers of pods, by what the pods use. `scales` and `replicas` are required by the API server.
    ///
    /// Leave `replicas` out of a Deployment that is scaled: otherwise the operator and the autoscaler undo each other's changes.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let scaler = HorizontalPodAutoscaler::new("web").scales::<Deployment>("web").replicas(2, 10).cpu(80);
    /// assert_eq!(scaler.inner().spec.max_replicas, 10);
    /// ```
    HorizontalPodAutoscaler(autoscaling::HorizontalPodAutoscaler)
}
spec!(HorizontalPodAutoscaler, autoscaling::HorizontalPodAutoscalerSpec);

impl HorizontalPodAutoscaler {
    /// An autoscaler called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(autoscaling::HorizontalPodAutoscaler { metadata: named(name), ..Default::default() })
    }

    /// The object that it scales: `scales::<Deployment>("web")`, or any kind that has the scale subresource.
    pub fn scales<T: Kind>(self, name: impl Into<String>) -> Self {
        let api = T::resource();
        let target = autoscaling::CrossVersionObjectReference {
            api_version: Some(api.api_version),
            kind: api.kind,
            name: name.into(),
        };
        self.spec(|spec| spec.scale_target_ref = target)
    }

    /// The smallest and the largest number of pods.
    pub fn replicas(self, min: impl Count, max: impl Count) -> Self {
        let (min, max) = (int32(min), int32(max));
        self.spec(|spec| (spec.min_replicas, spec.max_replicas) = (Some(min), max))
    }

    /// Scales so that pods use this share of the CPU that they request, in percent.
    pub fn cpu(self, percent: impl Count) -> Self {
        self.utilization("cpu", percent)
    }

    /// Scales so that pods use this share of the memory that they request, in percent.
    pub fn memory(self, percent: impl Count) -> Self {
        self.utilization("memory", percent)
    }

    /// Scales so that pods use this share of any resource that they request, in percent.
    pub fn utilization(self, resource: impl Into<String>, percent: impl Count) -> Self {
        let average_utilization = Some(int32(percent));
        self.resource(resource.into(), "Utilization", |target| target.average_utilization = average_utilization)
    }

    /// Scales so that pods use this much of a resource on average: `average("cpu", "500m")`.
    pub fn average(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let average_value = Some(Quantity(quantity.into()));
        self.resource(resource.into(), "AverageValue", |target| target.average_value = average_value)
    }

    /// Adds any other metric, in the type that Kubernetes publishes.
    pub fn metric(self, metric: autoscaling::MetricSpec) -> Self {
        self.spec(|spec| spec.metrics.get_or_insert_default().push(metric))
    }

    /// The stabilization window for scaling down, in seconds: the highest number of pods that was computed in it counts.
    pub fn scale_down_after(self, seconds: impl Count) -> Self {
        let window = Some(int32(seconds));
        self.spec(|spec| {
            let behavior = spec.behavior.get_or_insert_default();
            behavior.scale_down.get_or_insert_default().stabilization_window_seconds = window;
        })
    }

    /// The number of pods that it computed last.
    pub fn desired_replicas(&self) -> i32 {
        self.0.status.as_ref().map_or(0, |status| status.desired_replicas)
    }

    /// Adds a metric of a resource, in the place of one of the same resource.
    fn resource(self, name: String, type_: &str, target: impl FnOnce(&mut autoscaling::MetricTarget)) -> Self {
        let mut wanted = autoscaling::MetricTarget { type_: type_.to_owned(), ..Default::default() };
        target(&mut wanted);
        self.spec(|spec| {
            let metrics = spec.metrics.get_or_insert_default();
            metrics.retain(|metric| metric.resource.as_ref().is_none_or(|resource| resource.name != name));
            metrics.push(autoscaling::MetricSpec {
                type_: "Resource".to_owned(),
                resource: Some(autoscaling::ResourceMetricSource { name, target: wanted }),
                ..Default::default()
            });
        })
    }
}
