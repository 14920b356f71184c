//! Plans the size of the target of an autoscaler. In: the autoscaler, the scale of its target, its pods, the scaling history,
//! the time. Out: a new size or none, the status, and warning events. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::behavior::{ScalingHistory, normalize};
use super::kind::{Autoscaler, AutoscalerStatus};
use super::metrics::{Measured, Proposal, Unknown};
use crate::meta::{Condition, seconds};
use crate::pods::Pod;
use crate::scale::Scale;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub autoscaler: &'a Autoscaler,
    pub scale: &'a Scale,
    pub pods: &'a [Arc<Pod>],
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The new size and the reason, if the size changes.
    pub resize: Option<(i32, String)>,
    /// The status before the size is changed.
    pub status: AutoscalerStatus,
    /// Warning events: a reason and a message.
    pub warn: Vec<(&'static str, String)>,
}

/// Makes the plan, and records the recommendation in the history.
pub(crate) fn plan(observed: &Observed<'_>, history: &mut ScalingHistory) -> Plan {
    let (autoscaler, now) = (observed.autoscaler, observed.now);
    let (current, min, max) = (observed.scale.spec.replicas, autoscaler.min(), autoscaler.spec.max_replicas);
    let mut plan = Plan { status: autoscaler.status.clone(), ..Plan::default() };
    plan.status.current_replicas = Some(current);
    let got = "the HPA controller was able to get the target's current scale";
    plan.set(ABLE, "True", "SucceededGetScale", got, now);
    if history.recommendations.is_empty() {
        history.recommend(autoscaler, current, now);
    }
    let (desired, why) = match () {
        () if current == 0 && min != 0 => {
            let why = "scaling is disabled since the replica count of the target is zero";
            plan.set(ACTIVE, "False", "ScalingDisabled", why, now);
            (0, String::new())
        }
        () if current > max => (max, "Current number of replicas above Spec.MaxReplicas".into()),
        () if current < min => (min, "Current number of replicas below Spec.MinReplicas".into()),
        () => match plan.measure(observed) {
            Some(best) => {
                let normalized = normalize(autoscaler, history, current, best.replicas, now);
                history.recommend(autoscaler, best.replicas, now);
                plan.set(ABLE, "True", normalized.able.0, normalized.able.1, now);
                let (limited, reason, message) = normalized.limited;
                plan.set(LIMITED, if limited { "True" } else { "False" }, reason, message, now);
                let grows = best.replicas > current;
                let why = if grows { format!("{} above target", best.name) } else { "All metrics below target".into() };
                (normalized.replicas, why)
            }
            None => return plan,
        },
    };
    plan.status.desired_replicas = desired;
    plan.resize = (desired != current).then_some((desired, why));
    plan
}

impl Plan {
    /// The metric that recommends the most replicas; `None` if no metric decides.
    fn measure(&mut self, observed: &Observed<'_>) -> Option<Proposal> {
        let (current, now) = (observed.scale.spec.replicas, observed.now);
        if observed.scale.selector().is_none() {
            let why = "the HPA target's scale is missing a selector";
            self.set(ACTIVE, "False", "InvalidSelector", why, now);
            self.warn.push(("SelectorRequired", "selector is required".into()));
            return None;
        }
        let measured = Measured { autoscaler: observed.autoscaler, scale: observed.scale, pods: observed.pods };
        let metrics = observed.autoscaler.metrics();
        let results = metrics.iter().map(|metric| measured.propose(metric));
        let (known, unknown): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
        let known: Vec<Proposal> = known.into_iter().flatten().collect();
        let unknown: Vec<Unknown> = unknown.into_iter().filter_map(Result::err).collect();
        let values: Vec<Value> = known.iter().map(|proposal| proposal.status.clone()).collect();
        self.status.current_metrics = (!values.is_empty()).then_some(values);
        // Of equal recommendations the first counts.
        let best = known.into_iter().reduce(|best, next| if next.replicas > best.replicas { next } else { best });
        let first = unknown.first();
        // An unknown metric might recommend more, so the target may grow but not shrink.
        let best = best.filter(|best| first.is_none() || best.replicas >= current);
        self.warn.extend(unknown.iter().map(|unknown| (unknown.reason, unknown.message.clone())));
        match (&best, first) {
            (Some(best), _) => {
                let why = format!("the HPA was able to successfully calculate a replica count from {}", best.name);
                self.set(ACTIVE, "True", "ValidMetricFound", &why, now);
            }
            (None, Some(Unknown { reason, message })) => {
                let why = format!("the HPA was unable to compute the replica count: {message}");
                self.set(ACTIVE, "False", reason, &why, now);
                let (bad, all) = (unknown.len(), metrics.len());
                let all = format!("invalid metrics ({bad} invalid out of {all}), first error is: {message}");
                self.warn.push(("FailedComputeMetricsReplicas", all));
            }
            (None, None) => {}
        }
        best
    }

    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
        set(&mut self.status, type_, status, reason, message, now);
    }
}

/// The status after the size was changed.
pub(crate) fn resized(mut status: AutoscalerStatus, to: i32, now: Timestamp) -> AutoscalerStatus {
    let message = format!("the HPA controller was able to update the target scale to {to}");
    set(&mut status, ABLE, "True", "SucceededRescale", &message, now);
    status.last_scale_time = Some(seconds(now));
    status
}

/// The status if the scale could not be read or changed.
pub(crate) fn unable(mut status: AutoscalerStatus, reason: &str, message: &str, now: Timestamp) -> AutoscalerStatus {
    set(&mut status, ABLE, "False", reason, message, now);
    status
}

/// Sets a condition in place. A condition with the same status keeps its transition time.
fn set(status: &mut AutoscalerStatus, type_: &str, is: &str, reason: &str, message: &str, now: Timestamp) {
    let new = Condition::new(type_, is, reason, message, now);
    match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(before) if before.status == is => {
            let since = before.last_transition_time.take();
            *before = Condition { last_transition_time: since, ..new };
        }
        Some(before) => *before = new,
        None => status.conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    /// Two cores are wanted on average; pods use `used`.
    fn made(replicas: i32, used: Option<&str>, metrics: Value) -> Plan {
        let annotations = used.map_or(json!({}), |used| json!({"simulate.konverge.dev/cpu": used}));
        let autoscaler: Autoscaler = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"minReplicas": 2, "maxReplicas": 10, "metrics": metrics},
        }))
        .unwrap();
        let scale = json!({"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}});
        let scale: Scale = serde_json::from_value(scale).unwrap();
        let pod = |at: i32| {
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            Arc::new(serde_json::from_value(json!({"metadata": {"name": format!("p{at}")}, "status": status})).unwrap())
        };
        let pods: Vec<Arc<Pod>> = (0..replicas).map(pod).collect();
        plan(
            &Observed { autoscaler: &autoscaler, scale: &scale, pods: &pods, now: now() },
            &mut ScalingHistory::default(),
        )
    }

    fn cpu() -> Value {
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "2"}}})
    }

    fn conditions(plan: &Plan) -> Vec<String> {
        let all = plan.status.conditions.iter();
        all.map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason)).collect()
    }

    #[test]
    fn sizes() {
        let check = |replicas: i32, used: Option<&str>, expect: Option<(i32, &str)>, conditions_expected: &[&str]| {
            let plan = made(replicas, used, json!([cpu()]));
            let resize = plan.resize.as_ref().map(|(to, why)| (*to, why.as_str()));
            assert_eq!(resize, expect, "{replicas} {used:?}");
            assert_eq!(conditions(&plan), conditions_expected, "{replicas} {used:?}");
        };
        let (got, ready) = ("AbleToScale=True SucceededGetScale", "AbleToScale=True ReadyForNewScale");
        let found = "ScalingActive=True ValidMetricFound";
        let free = "ScalingLimited=False DesiredWithinRange";
        check(3, Some("2"), None, &[ready, found, free]);
        check(3, Some("3"), Some((5, "cpu resource above target")), &[ready, found, free]);
        check(
            3,
            Some("9"),
            Some((6, "cpu resource above target")),
            &[ready, found, "ScalingLimited=True ScaleUpLimit"],
        );
        check(3, Some("1"), None, &["AbleToScale=True ScaleDownStabilized", found, free]);
        check(0, Some("9"), None, &[got, "ScalingActive=False ScalingDisabled"]);
        check(12, Some("9"), Some((10, "Current number of replicas above Spec.MaxReplicas")), &[got]);
        check(1, Some("9"), Some((2, "Current number of replicas below Spec.MinReplicas")), &[got]);
        check(3, None, None, &[got, "ScalingActive=False FailedGetResourceMetric"]);
    }

    #[test]
    fn what_is_not_known_lets_it_grow_and_not_shrink() {
        let other = json!({"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"averageValue": "1"}}});
        let check = |used: &str, expect: Option<i32>, warnings: usize| {
            let plan = made(3, Some(used), json!([other, cpu()]));
            assert_eq!((plan.resize.map(|(to, _)| to), plan.warn.len()), (expect, warnings), "{used}");
        };
        check("3", Some(5), 1);
        check("1", None, 2);
    }

    #[test]
    fn conditions_keep_their_time_and_get_new_words() {
        let status = unable(AutoscalerStatus::default(), "FailedGetScale", "first", now());
        let later = now() + jiff::SignedDuration::from_secs(60);
        let second = unable(status.clone(), "FailedUpdateScale", "second", later);
        assert_eq!(second.conditions[0].last_transition_time, status.conditions[0].last_transition_time);
        assert_eq!((&*second.conditions[0].message, second.conditions.len()), ("second", 1));
        let resized = resized(second, 4, later);
        assert_eq!((&*resized.conditions[0].status, resized.last_scale_time), ("True", Some(seconds(later))));
    }
}
