//! Kinds that run pods to their end: Job, CronJob. The restart policy is `Never` by default: the job creates new pods.

use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;

use super::number::{Count, int32, int64};
use super::pods::{Pods as _, Template, app, pods};
use super::wrapper::{kind, named, spec};

kind! {
    /// Runs pods until enough of them have succeeded.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let job = Job::new("migrate").backoff_limit(3).container(Container::new("job").image("busybox"));
    /// assert!(!job.is_complete() && !job.is_failed());
    /// ```
    Job(batch::Job) with pods
}
spec!(Job, batch::JobSpec);
pods!(Job(batch::Job));

kind! {
    /// Starts jobs on a schedule. `schedule` is required by the API server.
    CronJob(batch::CronJob) with pods
}
spec!(CronJob, batch::CronJobSpec);
pods!(CronJob(batch::CronJob));

impl Template for batch::Job {
    fn template(&mut self) -> &mut core::PodTemplateSpec {
        &mut job_of(self).template
    }
}

impl Template for batch::CronJob {
    fn template(&mut self) -> &mut core::PodTemplateSpec {
        &mut jobs_of(self).template
    }
}

fn job_of(job: &mut batch::Job) -> &mut batch::JobSpec {
    job.spec.get_or_insert_default()
}

fn jobs_of(cron_job: &mut batch::CronJob) -> &mut batch::JobSpec {
    cron_job.spec.job_template.spec.get_or_insert_default()
}

/// The methods of both; those of a CronJob are about the jobs that it starts.
macro_rules! job {
    ($name:ident, $job:ident) => {
        impl $name {
            /// An object called `name`, whose pods have the label `app: name`.
            pub fn new(name: impl Into<String>) -> Self {
                let mut builder = Self::default();
                builder.0.metadata = named(name);
                let (_, pods) = app(builder.name());
                *builder.0.pod_metadata() = pods;
                builder.restart_policy("Never")
            }

            /// How many failed pods are replaced before the job has failed.
            pub fn backoff_limit(mut self, times: impl Count) -> Self {
                $job(&mut self.0).backoff_limit = Some(int32(times));
                self
            }

            /// How many pods have to succeed.
            pub fn completions(mut self, count: impl Count) -> Self {
                $job(&mut self.0).completions = Some(int32(count));
                self
            }

            /// How many pods run at once.
            pub fn parallelism(mut self, count: impl Count) -> Self {
                $job(&mut self.0).parallelism = Some(int32(count));
                self
            }

            /// Gives every pod an index of its own.
            pub fn indexed(mut self) -> Self {
                $job(&mut self.0).completion_mode = Some("Indexed".to_owned());
                self
            }

            /// Seconds after which a job that still runs has failed.
            pub fn active_deadline(mut self, seconds: impl Count) -> Self {
                $job(&mut self.0).active_deadline_seconds = Some(int64(seconds));
                self
            }

            /// Seconds after which a finished job is deleted.
            pub fn ttl_after_finished(mut self, seconds: impl Count) -> Self {
                $job(&mut self.0).ttl_seconds_after_finished = Some(int32(seconds));
                self
            }
        }
    };
}

job!(Job, job_of);
job!(CronJob, jobs_of);

impl Job {
    /// Whether the job is suspended: it runs no pods.
    pub fn suspend(self, yes: bool) -> Self {
        self.spec(|spec| spec.suspend = Some(yes))
    }

    /// How many pods have succeeded.
    pub fn succeeded(&self) -> i32 {
        self.0.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default()
    }

    /// Whether the job is complete: enough pods have succeeded.
    pub fn is_complete(&self) -> bool {
        self.has("Complete")
    }

    /// Whether the job has failed.
    pub fn is_failed(&self) -> bool {
        self.has("Failed")
    }

    fn has(&self, condition: &str) -> bool {
        let conditions = self.0.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        conditions.into_iter().any(|known| known.type_ == condition && known.status == "True")
    }
}

impl CronJob {
    /// The schedule in cron's format: minute, hour, day of month, month, day of week.
    pub fn schedule(self, schedule: impl Into<String>) -> Self {
        self.spec(|spec| spec.schedule = schedule.into())
    }

    /// The time zone of the schedule: `Europe/Zurich`; without it, the control plane's.
    pub fn time_zone(self, zone: impl Into<String>) -> Self {
        self.spec(|spec| spec.time_zone = Some(zone.into()))
    }

    /// Whether it is suspended: it starts no jobs.
    pub fn suspend(self, yes: bool) -> Self {
        self.spec(|spec| spec.suspend = Some(yes))
    }

    /// What happens if the last job still runs when the next is due: `Allow`, `Forbid`, `Replace`.
    pub fn concurrency_policy(self, policy: impl Into<String>) -> Self {
        self.spec(|spec| spec.concurrency_policy = Some(policy.into()))
    }

    /// How many successful and failed jobs are kept.
    pub fn history(self, successful: impl Count, failed: impl Count) -> Self {
        let (successful, failed) = (int32(successful), int32(failed));
        self.spec(|spec| {
            spec.successful_jobs_history_limit = Some(successful);
            spec.failed_jobs_history_limit = Some(failed);
        })
    }

    /// Seconds after its time within which a missed job is still started.
    pub fn starting_deadline(self, seconds: impl Count) -> Self {
        let seconds = int64(seconds);
        self.spec(|spec| spec.starting_deadline_seconds = Some(seconds))
    }
}
