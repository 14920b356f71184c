//! What one controller works with: shared caches, writes, events, the clock. In: writes that a planner has decided. Out:
//! requests. Every answer goes into the shared caches at once, so the next read of any controller sees the write. This file
//! never decides what to write.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use konverge_core::ObjectKey;
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

use crate::control_plane::{Manager, Task};
use crate::health::Health;
use crate::meta::Meta;
use crate::requests::{DeleteOptions, Deleted};

/// How many writes of one reconcile run at once: enough to keep a server busy, few enough that other controllers are not
/// starved.
const PARALLEL_WRITES: usize = 32;

/// How many objects a controller reconciles at once.
const CONCURRENCY: usize = 16;

/// The delay before the first retry. It is short because most failures are conflicts with another writer.
const FIRST_RETRY: Duration = Duration::from_millis(5);

/// How many events a controller remembers, and for how long repetitions of an event are counted instead of written.
const EVENT_LOG_SIZE: usize = 1000;
const EVENT_WINDOW: Duration = Duration::from_secs(60);

/// For how many objects a controller remembers its newest reconciles. The number is small because there are many
/// controllers, and their metrics tell most of it.
const RECONCILE_HISTORY: usize = 64;

/// What one controller works with. Clones share the same caches, recorder and clock.
#[derive(Clone)]
pub(crate) struct ControllerContext {
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

/// An event that a planner wants recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl ControllerContext {
    /// The context of the controller of this name, and the task that writes its events.
    pub(crate) fn new(manager: &Manager, name: &'static str) -> (Self, RecorderTask) {
        let writer = Writer::new(manager.client.clone(), FieldManager::new(name), WriterOptions::default());
        let (clock, meter) = (manager.options.clock.clone(), (manager.options.meter)(name));
        let options = RecorderOptions {
            controller: name.into(),
            instance: name.into(),
            log: EventLog::new(EVENT_WINDOW, EVENT_LOG_SIZE),
            clock: clock.clone(),
            ..RecorderOptions::default()
        };
        let (recorder, recording) = Recorder::new(writer.clone(), options);
        let (client, caches, stop) = (manager.client.clone(), manager.caches.clone(), manager.stop.clone());
        let health = manager.health.clone();
        (Self { client, caches, writer, name, recorder, clock, meter, health, stop }, recording)
    }

    /// The recorder of the controller's events.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().0
    }

    /// The shared cache of a target. The first caller starts its watch.
    pub(crate) fn cache(&self, target: Target) -> Cache {
        self.caches.open(target)
    }

    /// A controller that reconciles the objects of a target.
    pub(crate) fn controller(&self, target: Target) -> Arc<Controller> {
        self.controller_with(target, ControllerOptions { concurrency: CONCURRENCY, ..ControllerOptions::default() })
    }

    /// A controller that reconciles the objects of a target, with options of its own. The backoff, the metrics and the
    /// health check are the same for all controllers.
    pub(crate) fn controller_with(&self, target: Target, options: ControllerOptions) -> Arc<Controller> {
        let backoff = Backoff { initial: FIRST_RETRY, ..Backoff::default() };
        let queue = QueueOptions { backoff, ..options.queue };
        let options = ControllerOptions { queue, meter: self.meter.clone(), history: RECONCILE_HISTORY, ..options };
        let controller = Controller::new(self.name, target, self.caches.clone(), options);
        let weak = Arc::downgrade(&controller);
        self.health.add_check(self.name, move || weak.upgrade().map_or(Ok(()), |controller| controller.liveness()));
        controller
    }

    /// Runs a controller until the control plane stops.
    pub(crate) fn run_controller<F, Fut>(&self, controller: Arc<Controller>, reconcile: F) -> Task
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action>> + Send + 'static,
    {
        let stop = self.stopped();
        let reconciler = move |run: Run| -> BoxFuture<Result<Action, Error>> { Box::pin(reconcile(run)) };
        Box::pin(async move { controller.run(Arc::new(reconciler), stop).await })
    }

    /// Resolves when the control plane stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.clone();
        // A dropped sender means that the control plane has stopped, too.
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }

    /// Creates an object and puts the answer into the caches.
    pub(crate) async fn create(&self, api: &ApiResource, object: &Value) -> Result<Value, WriteError> {
        let created = self.writer.create(api, object).await?;
        self.observe_value(api, &created);
        Ok(created)
    }

    /// Patches an object or a subresource of it (`"status"`), with a JSON patch or with a merge patch that names a resource
    /// version. If the object is not as the patch expected, the answer is a conflict. Then the object is read again and put
    /// into the caches, so that the retry does not have to wait for the watch.
    pub(crate) async fn patch(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: Patch,
    ) -> Result<Value, WriteError> {
        let error = match self.writer.patch(api, key, subresource, patch).await {
            Ok(patched) => {
                self.observe_value(api, &patched);
                return Ok(patched);
            }
            Err(error) => failed_test_as_conflict(error),
        };
        if matches!(&error, WriteError::Conflict { .. })
            && let Some(fresh) = self.writer.get(api, key).await?
        {
            self.observe_value(api, &fresh);
        }
        Err(error)
    }

    /// Patches an object that may have been deleted meanwhile. Returns whether it existed.
    pub(crate) async fn patch_if_exists(
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

    /// Sends a merge patch for the resource version of `meta`. An object that has been deleted meanwhile is no error.
    pub(crate) async fn merge_patch(
        &self,
        api: &ApiResource,
        meta: &Meta,
        subresource: &str,
        patch: Value,
    ) -> Result<()> {
        let patch = Patch::Merge { patch, resource_version: meta.resource_version.clone() };
        self.patch_if_exists(api, &meta.key(), subresource, patch).await.map(drop)
    }

    /// Writes the status of an object if it differs from `before`. An object that has been deleted meanwhile is no error.
    pub(crate) async fn write_status<S: Serialize + PartialEq + Sync>(
        &self,
        api: &ApiResource,
        meta: &Meta,
        before: &S,
        status: &S,
    ) -> Result<()> {
        if before == status {
            return Ok(());
        }
        let patch = json!([meta.uid_test(), {"op": "add", "path": "/status", "value": status}]);
        self.patch_if_exists(api, &meta.key(), "status", Patch::Json(patch)).await.map(drop)
    }

    /// Deletes the object with the uid of `options`. An object that is deleted already is no error.
    pub(crate) async fn delete(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        options: &DeleteOptions<'_>,
    ) -> Result<Deleted> {
        let deleted = crate::requests::delete(&self.client, api, key, options).await?;
        match &deleted {
            Deleted::Terminating(json) => self.observe(api, json),
            Deleted::Now | Deleted::NotFound => self.caches.removed(api, key, options.uid),
        }
        Ok(deleted)
    }

    /// Runs independent writes in parallel, at most [`PARALLEL_WRITES`] at a time. A failed write does not stop the others.
    pub(crate) fn in_parallel<T, W>(&self, writes: impl IntoIterator<Item = W>) -> impl Future<Output = Vec<T>> + Send
    where
        T: Send,
        W: Future<Output = T> + Send,
    {
        // Boxed and collected here, so that the returned future does not borrow from the closures that made them.
        let writes: Vec<_> = writes.into_iter().map(Box::pin).collect();
        stream::iter(writes).buffer_unordered(PARALLEL_WRITES).collect()
    }

    /// Records an event that a planner asked for.
    pub(crate) fn record(&self, subject: &Arc<Subject>, event: &PlannedEvent) {
        match event.warning {
            true => self.warning(subject, event.reason, &*event.message),
            false => self.event(subject, event.reason, &*event.message),
        }
    }

    /// Records an event of type Normal.
    pub(crate) fn event(&self, subject: &Arc<Subject>, reason: &str, message: impl Into<String>) {
        self.recorder.record(subject, Event::new(Severity::Info, reason, message));
    }

    /// Records an event of type Warning.
    pub(crate) fn warning(&self, subject: &Arc<Subject>, reason: &str, message: impl Into<String>) {
        self.recorder.record(subject, Event::new(Severity::Warning, reason, message));
    }

    fn observe_value(&self, api: &ApiResource, object: &Value) {
        self.observe(api, &object.to_string());
    }

    /// Puts an object that the server answered with into the caches, so that the next read sees it.
    pub(crate) fn observe(&self, api: &ApiResource, json: &str) {
        if let Err(error) = self.caches.wrote(api, json) {
            tracing::warn!(kind = %api.kind, %error, "cannot read the object in an answer; the watch will deliver it");
        }
    }
}

/// Servers answer a failed `test` operation of a JSON patch like an invalid object. It means that another writer was faster,
/// so it becomes a conflict.
fn failed_test_as_conflict(error: WriteError) -> WriteError {
    match error {
        WriteError::Invalid { message, causes, .. } if causes.is_empty() && message.contains(REJECTED_PATCH) => {
            let message = "the object has changed since it was read".to_owned();
            WriteError::Conflict { message, fields: Vec::new() }
        }
        other => other,
    }
}

/// What API servers say of a patch that cannot be applied. They do not say why, and an invalid object has causes.
const REJECTED_PATCH: &str = "the server rejected our request due to an error in our request";

#[cfg(test)]
mod tests {
    use konverge_core::Cause;

    use super::*;

    #[test]
    fn a_failed_test_is_a_conflict_and_an_invalid_object_is_not() {
        let check = |message: &str, causes: Vec<Cause>, expect: &str| {
            let error = WriteError::Invalid { message: message.into(), causes, by_server: true };
            assert_eq!(failed_test_as_conflict(error).reason(), expect, "{message}");
        };
        check(REJECTED_PATCH, Vec::new(), "Conflict");
        check(REJECTED_PATCH, vec![Cause::default()], "Invalid");
        check("Pod \"p\" is invalid", Vec::new(), "Invalid");
    }
}
