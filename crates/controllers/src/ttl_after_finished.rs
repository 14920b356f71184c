//! Deletes finished Jobs with their pods. In: Jobs with `ttlSecondsAfterFinished`. Out: deletions of those whose time is over.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1 as batch;
use konverge_runtime::{Action, CacheOf, Result, Run, Target};
use kube::core::ApiResource;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::job::{self, Job};
use crate::requests::DeleteOptions;

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "ttl-after-finished-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<batch::Job>());
    let jobs = CacheOf::new(controller.primary().clone());
    let this = Arc::new(Ended { ctx: ctx.clone(), jobs, api: job::api() });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Ended {
    ctx: ControllerContext,
    jobs: CacheOf<Job>,
    api: ApiResource,
}

impl Ended {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(job) = self.jobs.get(&run.key)? else { return Ok(Action::Wait) };
        let now = self.ctx.now();
        match left(&job, now) {
            None => return Ok(Action::Wait),
            Some(left) if !left.is_zero() => return Ok(Action::requeue(left)),
            Some(_) => {}
        }
        // Its time may have been prolonged a moment ago, so the server is asked.
        let Some(fresh) = self.ctx.writer.get(&self.api, &run.key).await? else { return Ok(Action::Wait) };
        let fresh: Job = serde_json::from_value(fresh)?;
        if left(&fresh, now).is_some_and(|left| left.is_zero()) {
            let options =
                DeleteOptions { uid: &job.metadata.uid, propagation: Some("Foreground"), ..DeleteOptions::default() };
            self.ctx.delete(&self.api, &run.key, &options).await?;
        }
        Ok(Action::Wait)
    }
}

/// How long a Job still stays, if it goes at all.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let end = job.finished()?.last_transition_time.as_ref()?.0;
    let stays =
        SignedDuration::from_secs(job.spec.ttl_seconds_after_finished.filter(|_| !job.metadata.is_terminating())?);
    Some(Duration::try_from(stays - now.duration_since(end)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_has_ended_stays_for_a_while() {
        let check = |ttl: Option<i64>, type_: &str, status: &str, going: Option<&str>, expect: Option<u64>| {
            let ended: Value = json!([{"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let job: Job = serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": going},
                "spec": {"ttlSecondsAfterFinished": ttl},
                "status": {"conditions": ended},
            }))
            .unwrap();
            let left = left(&job, "2026-01-01T00:01:00Z".parse().unwrap());
            assert_eq!(left.map(|left| left.as_secs()), expect, "{ttl:?} {type_} {status}");
        };
        check(None, "Complete", "True", None, None);
        check(Some(100), "Complete", "True", None, Some(40));
        check(Some(10), "Failed", "True", None, Some(0));
        check(Some(10), "Failed", "False", None, None);
        check(Some(10), "FailureTarget", "True", None, None);
        check(Some(10), "Complete", "True", Some("2026-01-01T00:00:30Z"), None);
    }
}
