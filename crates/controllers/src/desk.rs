//! What a controller works with: caches, writes and events. In: what should be. Out: requests, and caches that know of
//! them at once. Never decides what to write: planners do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use konverge_core::{Cause, ObjectKey};
use konverge_runtime::{
    Action, Backoff, BoxFuture, Cache, Caches, Clock, Controller, ControllerOptions, Error, Event, EventLog,
    FieldManager, Meter, Missing, Patch, QueueOptions, Recorder, RecorderOptions, RecorderTask, Result, Run, Severity,
    Subject, Target, WriteError, Writer, WriterOptions,
};
use kube::Client;
use kube::core::ApiResource;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::health::Health;
use crate::meta::Meta;
use crate::plane::{Plane, Task};
use crate::requests::{DeleteOptions, Gone};

/// How many writes of one reconcile are under way at once: enough to keep a server busy, few enough that other
/// controllers get their turn.
const AT_ONCE: usize = 32;

/// How many objects a controller works on at once.
const CONCURRENCY: usize = 16;

/// How long the first retry waits: most failures are conflicts with somebody who was faster.
const FIRST_RETRY: Duration = Duration::from_millis(5);

/// How many events a controller remembers, and for how long repetitions are counted together.
const HISTORY: usize = 1000;
const WINDOW: Duration = Duration::from_secs(60);

/// Of how many objects a controller remembers the newest runs. There are many controllers, and their work is on the metrics.
const REMEMBERED: usize = 64;

/// What one controller works with. Clones are the same.
#[derive(Clone)]
pub(crate) struct Desk {
    pub client: Client,
    pub caches: Caches,
    pub writer: Writer,
    name: &'static str,
    recorder: Recorder,
    clock: Clock,
    meter: Arc<dyn Meter>,
    health: Health,
    stop: watch::Receiver<bool>,
}

impl Desk {
    /// A desk, and the task that writes its events.
    pub fn new(plane: &Plane, name: &'static str) -> (Self, RecorderTask) {
        let writer = Writer::new(plane.client.clone(), FieldManager::new(name), WriterOptions::default());
        let (clock, meter) = (plane.options.clock.clone(), (plane.options.meter)(name));
        let options = RecorderOptions {
            controller: name.into(),
            instance: name.into(),
            log: EventLog::new(WINDOW, HISTORY),
            clock: clock.clone(),
            ..RecorderOptions::default()
        };
        let (recorder, recording) = Recorder::new(writer.clone(), options);
        let (client, caches, stop) = (plane.client.clone(), plane.caches.clone(), plane.stop.clone());
        let health = plane.health.clone();
        (Self { client, caches, writer, name, recorder, clock, meter, health, stop }, recording)
    }

    /// What records the controller's events.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Throws the dice.
    pub fn random(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().0
    }

    /// The cache of everything a target names; opened if nobody has it open.
    pub fn cache(&self, target: Target) -> Cache {
        self.caches.open(target)
    }

    /// The controller of the objects of a target.
    pub fn controller(&self, target: Target) -> Arc<Controller> {
        self.controller_with(target, ControllerOptions { concurrency: CONCURRENCY, ..ControllerOptions::default() })
    }

    /// The controller of the objects of a target, with options of its own; how failures wait is the same for all.
    pub fn controller_with(&self, target: Target, options: ControllerOptions) -> Arc<Controller> {
        let backoff = Backoff { initial: FIRST_RETRY, ..Backoff::default() };
        let queue = QueueOptions { backoff, ..options.queue };
        let options = ControllerOptions { queue, meter: self.meter.clone(), history: REMEMBERED, ..options };
        let controller = Controller::new(self.name, target, self.caches.clone(), options);
        let asked = Arc::downgrade(&controller);
        self.health.ask(self.name, move || asked.upgrade().map_or(Ok(()), |controller| controller.liveness()));
        controller
    }

    /// Works until the control plane stops.
    pub fn work<F, Fut>(&self, controller: Arc<Controller>, reconcile: F) -> Task
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action>> + Send + 'static,
    {
        let stop = self.stopped();
        let reconciler = move |run: Run| -> BoxFuture<Result<Action, Error>> { Box::pin(reconcile(run)) };
        Box::pin(async move { controller.run(Arc::new(reconciler), stop).await })
    }

    /// Resolves when the control plane stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.clone();
        // Who stops without saying so has stopped all the same.
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }

    /// Creates an object.
    pub async fn create(&self, api: &ApiResource, object: &Value) -> Result<Value, WriteError> {
        let created = self.writer.create(api, object).await?;
        self.wrote(api, &created);
        Ok(created)
    }

    /// Patches an object or a part of it (`"status"`), by the operations of RFC 6902 or guarded by a version. A patch that
    /// finds the object other than it expected has lost a race: that is a conflict, and the caches know at once how the
    /// object is now, so that the next try does not have to wait for a watch.
    pub async fn patch(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: Patch,
    ) -> Result<Value, WriteError> {
        let error = match self.writer.patch(api, key, subresource, patch).await {
            Ok(patched) => {
                self.wrote(api, &patched);
                return Ok(patched);
            }
            Err(error) => lost_race(error),
        };
        if matches!(&error, WriteError::Conflict { .. })
            && let Some(fresh) = self.writer.get(api, key).await?
        {
            self.wrote(api, &fresh);
        }
        Err(error)
    }

    /// Patches an object that may be gone by now, which is fine. Says whether it was there.
    pub async fn patch_if_there(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: Patch,
    ) -> Result<bool> {
        match self.patch(api, key, subresource, patch).await {
            Ok(_) => Ok(true),
            Err(WriteError::NotFound { missing: Missing::Object | Missing::Namespace, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Merges a patch into an object or a part of it, if it is as it was. That it is gone is fine.
    pub async fn merge(&self, api: &ApiResource, meta: &Meta, subresource: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge { patch, resource_version: meta.resource_version.clone() };
        self.patch_if_there(api, &meta.key(), subresource, patch).await.map(drop)
    }

    /// Writes the status of an object, if it is another one than before. That the object is gone is fine.
    pub async fn write_status<S: Serialize + PartialEq + Sync>(
        &self,
        api: &ApiResource,
        meta: &Meta,
        before: &S,
        status: &S,
    ) -> Result<()> {
        if before == status {
            return Ok(());
        }
        let patch = json!([meta.is_still_it(), {"op": "add", "path": "/status", "value": status}]);
        self.patch_if_there(api, &meta.key(), "status", Patch::Json(patch)).await.map(drop)
    }

    /// Deletes the object of this uid. That it is gone already is fine.
    pub async fn delete(&self, api: &ApiResource, key: &ObjectKey, options: &DeleteOptions<'_>) -> Result<Gone> {
        let gone = crate::requests::delete(&self.client, api, key, options).await?;
        match &gone {
            Gone::Later(json) => self.note(api, json),
            Gone::Now | Gone::Absent => self.caches.removed(api, key, options.uid),
        }
        Ok(gone)
    }

    /// Runs writes that do not depend on each other at the same time, bounded; all of them, whatever becomes of one.
    pub fn together<T, W>(&self, writes: impl IntoIterator<Item = W>) -> impl Future<Output = Vec<T>> + Send
    where
        T: Send,
        W: Future<Output = T> + Send,
    {
        // Boxed and collected here, so that the answer knows nothing of the closures that made them.
        let writes: Vec<_> = writes.into_iter().map(Box::pin).collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).collect()
    }

    /// Records that all is well.
    pub fn event(&self, subject: &Arc<Subject>, reason: &str, message: impl Into<String>) {
        self.recorder.record(subject, Event::new(Severity::Info, reason, message));
    }

    /// Records that somebody should have a look.
    pub fn warning(&self, subject: &Arc<Subject>, reason: &str, message: impl Into<String>) {
        self.recorder.record(subject, Event::new(Severity::Warning, reason, message));
    }

    fn wrote(&self, api: &ApiResource, object: &Value) {
        self.note(api, &object.to_string());
    }

    /// Tells the caches what the server answered, so that the next look sees it.
    pub fn note(&self, api: &ApiResource, json: &str) {
        if let Err(error) = self.caches.wrote(api, json) {
            tracing::warn!(kind = %api.kind, %error, "an answer could not be read; the watch will bring it");
        }
    }
}

/// A `test` of a JSON patch that failed is answered like an invalid object, but says that somebody else was faster.
fn lost_race(error: WriteError) -> WriteError {
    match error {
        WriteError::Invalid { causes, .. } if causes.iter().any(is_failed_test) => {
            let why = causes.into_iter().find(is_failed_test).map(|cause| cause.message).unwrap_or_default();
            WriteError::Conflict { message: format!("the object has changed: {why}"), fields: Vec::new() }
        }
        other => other,
    }
}

/// API servers report a patch that cannot be carried out, and nothing else, as an unexpected response about no field of the
/// object.
fn is_failed_test(cause: &Cause) -> bool {
    cause.reason == "UnexpectedServerResponse"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_a_lost_race_and_an_invalid_object_is_not() {
        let check = |reason: &str, expect: &str| {
            let cause = Cause {
                reason: reason.into(),
                message: "testing path /metadata/uid failed".into(),
                ..Cause::default()
            };
            let error = WriteError::Invalid { message: "refused".into(), causes: vec![cause], by_server: true };
            assert_eq!(lost_race(error).reason(), expect, "{reason}");
        };
        check("UnexpectedServerResponse", "Conflict");
        check("FieldValueInvalid", "Invalid");
    }
}
