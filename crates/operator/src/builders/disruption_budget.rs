//! PodDisruptionBudget: how many pods may be evicted at a time.

use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::number::NumberOrText;
use super::pods::app;
use super::wrapper::{kind, named, spec};

kind! {
    /// Keeps enough pods running while nodes are drained: an eviction that would leave too few is refused.
    ///
    /// It is about the pods with the label `app` and its own name, as those of a Deployment of that name have;
    /// [`selector`](Self::selector) changes that. Call one of `min_available` and `max_unavailable`.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let budget = PodDisruptionBudget::new("web").max_unavailable("25%");
    /// assert_eq!(budget.disruptions_allowed(), 0); // nothing is known of it yet
    /// ```
    PodDisruptionBudget(policy::PodDisruptionBudget)
}
spec!(PodDisruptionBudget, policy::PodDisruptionBudgetSpec);

impl PodDisruptionBudget {
    /// A budget called `name`, for pods with the label `app: name`.
    pub fn new(name: impl Into<String>) -> Self {
        let metadata = named(name);
        let (selector, _) = app(metadata.name.as_deref().unwrap_or_default());
        let spec = policy::PodDisruptionBudgetSpec { selector: Some(selector), ..Default::default() };
        Self(policy::PodDisruptionBudget { metadata, spec: Some(spec), status: None })
    }

    /// Selects pods by these labels instead of `app`.
    pub fn selector(self, selector: impl Into<LabelSelector>) -> Self {
        let selector = selector.into();
        self.spec(|spec| spec.selector = Some(selector))
    }

    /// How many pods have to stay available: a number, or a share such as `"50%"`. Replaces `max_unavailable`.
    pub fn min_available(self, pods: impl NumberOrText) -> Self {
        let pods = pods.number_or_text();
        self.spec(|spec| (spec.min_available, spec.max_unavailable) = (Some(pods), None))
    }

    /// How many pods may be unavailable: a number, or a share such as `"25%"`. Replaces `min_available`.
    pub fn max_unavailable(self, pods: impl NumberOrText) -> Self {
        let pods = pods.number_or_text();
        self.spec(|spec| (spec.min_available, spec.max_unavailable) = (None, Some(pods)))
    }

    /// Lets pods that are not ready be evicted always: otherwise they could keep a node from being drained.
    pub fn always_evict_unhealthy(self) -> Self {
        self.spec(|spec| spec.unhealthy_pod_eviction_policy = Some("AlwaysAllow".to_owned()))
    }

    /// How many pods may be evicted now.
    pub fn disruptions_allowed(&self) -> i32 {
        self.0.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or_default()
    }
}
