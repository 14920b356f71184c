//! How long a Job waits after pods have failed. In: pods that ended, and when. Out: a count of failures since the last
//! success, and the time until the next pod: twice as long after each failure, up to ten minutes. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::meta::condition;
use crate::pods::Pod;

/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(600);

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub many: u32,
    /// When the last of them was.
    pub last: Option<Timestamp>,
}

impl Failures {
    /// With pods that have ended since. A success wipes out the failures before it.
    pub(super) fn with(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let success = succeeded.iter().filter_map(|pod| ended(pod)).max();
        let failures = failed.iter().filter_map(|pod| ended(pod)).filter(|end| success.is_none_or(|past| *end > past));
        let failures: Vec<Timestamp> = failures.collect();
        let before = if succeeded.is_empty() { self } else { Self::default() };
        let many = before.many.saturating_add(u32::try_from(failures.len()).unwrap_or(u32::MAX));
        Self { many, last: failures.into_iter().max().or(before.last) }
    }

    /// How long no pod is created. `first` is the wait after one failure.
    pub(super) fn wait(&self, first: Duration, now: Timestamp) -> Option<Duration> {
        let last = self.last.filter(|_| self.many > 0)?;
        let doubled = first.saturating_mul(1_u32.checked_shl(self.many - 1).unwrap_or(u32::MAX));
        let wait = SignedDuration::try_from(doubled.min(LONGEST)).ok()? - now.duration_since(last);
        Duration::try_from(wait).ok().filter(|wait| !wait.is_zero())
    }
}

/// When a pod came to its end: when its last container did, or when it stopped being ready, or when it was told to go.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let containers = &pod.status.container_statuses;
    let ends: Option<Vec<Timestamp>> =
        containers.iter().map(|container| Some(container.state.terminated.as_ref()?.finished_at.as_ref()?.0)).collect();
    let unready = || condition(&pod.status.conditions, "Ready").filter(|ready| ready.status == "False");
    let terminated = || {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        pod.metadata.deletion_timestamp.as_ref().and_then(|time| time.0.checked_sub(grace).ok())
    };
    ends.and_then(|ends| ends.into_iter().max())
        .or_else(|| unready()?.last_transition_time.as_ref().map(|time| time.0))
        .or_else(terminated)
        .or_else(|| pod.metadata.created())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ended_at(second: i64) -> Arc<Pod> {
        let state = json!({"terminated": {"exitCode": 1, "finishedAt": at(second).to_string()}});
        Arc::new(serde_json::from_value(json!({"status": {"containerStatuses": [{"state": state}]}})).unwrap())
    }

    #[test]
    fn failures_add_up_until_a_success() {
        let check = |before: u32, succeeded: &[i64], failed: &[i64], expect: (u32, Option<i64>)| {
            let pods = |ends: &[i64]| ends.iter().map(|end| ended_at(*end)).collect::<Vec<_>>();
            let before = Failures { many: before, last: (before > 0).then(|| at(1)) };
            let got = before.with(&pods(succeeded), &pods(failed));
            assert_eq!((got.many, got.last.map(|last| last.as_second())), expect, "{succeeded:?} {failed:?}");
        };
        check(0, &[], &[], (0, None));
        check(2, &[], &[], (2, Some(1)));
        check(2, &[], &[9, 7], (4, Some(9)));
        check(2, &[5], &[], (0, None));
        check(2, &[5], &[4, 5, 6, 8], (2, Some(8)));
    }

    #[test]
    fn each_failure_doubles_the_wait() {
        let check = |many: u32, passed: i64, expect: Option<u64>| {
            let failures = Failures { many, last: Some(at(0)) };
            let wait = failures.wait(Duration::from_secs(10), at(passed));
            assert_eq!(wait.map(|wait| wait.as_secs()), expect, "{many} {passed}");
        };
        check(0, 0, None);
        check(1, 0, Some(10));
        check(1, 4, Some(6));
        check(1, 10, None);
        check(3, 0, Some(40));
        check(20, 0, Some(600));
        check(200, 0, Some(600));
    }

    #[test]
    fn a_pod_without_containers_ended_when_something_says_so() {
        let check = |pod: serde_json::Value, expect: i64| {
            let read: Pod = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(ended(&read).map(|end| end.as_second()), Some(expect), "{pod}");
        };
        let created = json!({"creationTimestamp": at(1).to_string()});
        let going = json!({"deletionTimestamp": at(40).to_string(), "deletionGracePeriodSeconds": 30});
        let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(5).to_string()}]);
        check(json!({"metadata": created, "status": {}}), 1);
        check(json!({"metadata": going, "status": {}}), 10);
        check(json!({"metadata": going, "status": {"conditions": unready}}), 5);
        check(json!({"metadata": going, "status": {"containerStatuses": [{"state": {"running": {}}}]}}), 10);
    }
}
