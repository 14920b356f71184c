//! One reconcile of one object: what surrounds the user's functions. In: a key that is due. Out: what the worker does next.
//!
//! ```text
//! reconcile   decode → converge or cleanup, within the time limit → report the failure, or clear an earlier report
//! converge    add the finalizer → watch what the object names → the user's reconcile
//! cleanup     the user's cleanup → remove the finalizer
//! ```

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{
    Action, Cause, Controller as EngineController, ControllerOptions, DecodeCache, Error, Finalized, Object, Predicate,
    Result, Run, ShardPart, TimedOut, WriteError, Writer, panic_message,
};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;

use super::failure::{FailureMark, REPORT_ALLOWANCE, may_have_condition};
use super::{ControllerSpec, ErrorHook, ReconcileFn};
use crate::cached_client::CachedClient;
use crate::context::Context;
use crate::operator::{ElectionGroup, Manager};

/// The shortest requeue: too short to be noticed. Without it, a reconcile that always asks to run again at once would keep
/// a worker busy for ever.
const SHORTEST_REQUEUE: Duration = Duration::from_millis(10);

/// How many bytes of objects a controller keeps decoded, besides their text in the cache. Ten thousand objects of 1.6 KB
/// fit; without it, to decode the object would be most of what a reconcile costs that finds nothing to do.
const DECODED_BYTES: usize = 32 << 20;

impl<R: DeserializeOwned + Send + Sync + 'static> ControllerSpec<R> {
    /// The reconciler of the objects in some namespaces, or in all of them, with its engine controller.
    pub(crate) fn reconciler(
        &self,
        manager: &Manager<'_>,
        writer: Writer,
        namespaces: Vec<String>,
        options: ControllerOptions,
    ) -> Result<ObjectReconciler<R>> {
        let kind = self.kind.clone();
        let Some(reconcile) = self.reconcile.clone() else {
            return Err(Error::permanent(format!(
                "the operator of {} has no function; give it one with .reconcile(…)",
                kind.name()
            )));
        };
        self.selection.check(kind.name())?;
        let target = |namespace| self.selection.narrow(kind.target(namespace)).part(ShardPart::OwnObjects);
        let mut targets = namespaces.iter().map(|namespace| target(Some(namespace)));
        let first = targets.next().unwrap_or_else(|| target(None));
        let definition = (self.definition)();
        let mark = FailureMark::new(self.name.as_deref(), definition.as_ref());
        let own = mark.clone();
        let limit = options.timeout;
        let options = ControllerOptions {
            predicate: options.predicate.and(Predicate::new(move |old, new| !own.is_only_difference(old, new))),
            // The reconciler enforces the limit itself and reports that it was passed. The worker's own limit is for a
            // report that hangs.
            timeout: limit.map(|limit| limit.saturating_add(REPORT_ALLOWANCE)),
            ..options
        };
        let name = self.controller_name();
        let elected = manager.elected(self.group.as_ref().map(ElectionGroup::name));
        let cached = Arc::new(CachedClient {
            client: elected.client,
            caches: manager.caches.clone(),
            writer,
            recorder: elected.recorder,
            controller: EngineController::over(&name, first, targets, manager.caches.clone(), options),
            namespaces,
            metrics: manager.metrics.clone(),
            owned: RwLock::default(),
            indexes: self.indexes.clone(),
            observes_generation: definition.as_ref().is_some_and(observes_generation),
            across_namespaces: self.across_namespaces,
            referenced: RwLock::default(),
            states: self.states.over(&manager.states),
            kind,
        });
        for begin in &self.watches {
            begin(&cached)?;
        }
        Ok(ObjectReconciler {
            reconcile,
            on_delete: self.on_delete.clone(),
            finalizer: self.finalizer.clone(),
            requeue_after: self.requeue_after,
            on_error: self.on_error.clone(),
            limit,
            mark,
            has_conditions: AtomicBool::new(may_have_condition(&self.kind, definition.as_ref())),
            cached,
            decoded: DecodeCache::new(DECODED_BYTES),
        })
    }
}

/// Reconciles the objects of one controller.
pub(crate) struct ObjectReconciler<R> {
    reconcile: ReconcileFn<R>,
    on_delete: Option<ReconcileFn<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    pub(super) on_error: Option<ErrorHook<R>>,
    /// How long one reconcile may take.
    limit: Option<Duration>,
    /// What marks reports of failures as this controller's.
    pub(super) mark: FailureMark,
    /// Whether failures are shown in the status, too. It becomes false when the server says that the kind has no status.
    pub(super) has_conditions: AtomicBool,
    pub cached: Arc<CachedClient>,
    decoded: DecodeCache<R>,
}

impl<R: DeserializeOwned + Send + Sync + 'static> ObjectReconciler<R> {
    /// One reconcile of the object with this key.
    pub(crate) async fn reconcile(&self, run: Run) -> Result<Action> {
        let Some(object) = self.cached.controller.primary_of(&run.key).get(&run.key) else { return Ok(Action::Wait) };
        let mut context = match self.context(object.clone(), run.causes.clone()) {
            Ok(context) => context,
            Err(error) if object.is_terminating() => return self.release_undecodable(&object, &error).await,
            Err(error) => return Err(self.report_undecodable(&object, &error)),
        };
        let reconciled = within(self.limit, async {
            if object.is_terminating() {
                return self.cleanup(&object, context.clone()).await;
            }
            let action = self.converge(&object, &mut context, run.causes.clone()).await?;
            self.clear_report(&context).await.map(|()| action)
        });
        match reconciled.await {
            // The object is deleted with its namespace, where nothing can be created any more.
            Ok(Err(error)) if is_of_terminating_namespace(&error, context.namespace()) => {
                tracing::debug!(%error, "the namespace is being deleted");
                Ok(Action::Wait)
            }
            Ok(Err(error)) => Err(self.report(&context, error, &run).await),
            Ok(Ok(Action::Requeue(after))) => Ok(Action::Requeue(after.max(SHORTEST_REQUEUE))),
            Ok(Ok(action)) => Ok(action),
            Err(panic) => {
                let message = format!("the reconcile panicked: {}", panic_message(&*panic));
                self.report(&context, Error::new(message).reason("Panicked"), &run).await;
                resume_unwind(panic)
            }
        }
    }

    /// The context of an object; an object that does not read as `R` is an error.
    fn context(&self, object: Arc<Object>, causes: Arc<[Arc<Cause>]>) -> Result<Context<R>> {
        let resource = self.decoded.decode(&object)?;
        Ok(Context::new(self.cached.clone(), object, resource, causes))
    }

    /// The reconcile of an object that is not being deleted.
    async fn converge(
        &self,
        object: &Arc<Object>,
        context: &mut Context<R>,
        causes: Arc<[Arc<Cause>]>,
    ) -> Result<Action> {
        if let Some(finalizer) = &self.finalizer
            && !has_finalizer(object, finalizer)
        {
            let (cached, api) = (&self.cached, self.cached.kind.resource());
            match cached.writer.add_finalizer(api, object, finalizer).await? {
                Finalized::Changed(object) => {
                    cached.wrote(api, &object)?;
                    *context = self.context(object, causes)?;
                }
                Finalized::Unchanged => {}
                // The watch is about to bring the deletion, which leads to another reconcile.
                Finalized::Deleting(_) | Finalized::Gone => return Ok(Action::Wait),
            }
        }
        self.cached.watch_referenced(context.resource()).await?;
        match ((self.reconcile)(context.clone()).await?, self.requeue_after) {
            (Action::Wait, Some(after)) => Ok(Action::Requeue(after)),
            (action, _) => Ok(action),
        }
    }

    /// The reconcile of an object that is being deleted.
    async fn cleanup(&self, object: &Arc<Object>, context: Context<R>) -> Result<Action> {
        let Some(finalizer) = self.own_finalizer(object) else { return Ok(Action::Wait) };
        if let Some(cleanup) = &self.on_delete
            && let Action::Requeue(after) = cleanup(context).await?
        {
            // The cleanup is not done; the finalizer stays until it is.
            return Ok(Action::Requeue(after));
        }
        self.remove_finalizer(object, finalizer).await
    }

    /// Releases an object that is being deleted and does not decode. Its cleanup cannot be called, and a retry would not
    /// change that, so the finalizer is removed, and an event tells people to look for what the object leaves behind.
    async fn release_undecodable(&self, object: &Arc<Object>, error: &Error) -> Result<Action> {
        let Some(finalizer) = self.own_finalizer(object) else { return Ok(Action::Wait) };
        if self.on_delete.is_some() {
            let message = format!(
                "the cleanup was left out, because the object does not read as {}: {error:#}; look for what it leaves behind",
                self.cached.kind.name()
            );
            tracing::error!(key = %object.key(), message, "an object is deleted without its cleanup");
            self.warn(object, &Error::permanent(message).reason("CleanupSkipped"));
        }
        self.remove_finalizer(object, finalizer).await
    }

    /// This controller's finalizer, if the object has it.
    fn own_finalizer(&self, object: &Object) -> Option<&str> {
        self.finalizer.as_deref().filter(|finalizer| has_finalizer(object, finalizer))
    }

    async fn remove_finalizer(&self, object: &Arc<Object>, finalizer: &str) -> Result<Action> {
        let (cached, api) = (&self.cached, self.cached.kind.resource());
        match cached.writer.remove_finalizer(api, object, finalizer).await? {
            Finalized::Changed(left) if is_held(&left) => cached.wrote(api, &left)?,
            // The object went with its last finalizer; the answer shows its last state.
            Finalized::Changed(_) | Finalized::Gone => cached.caches.removed(api, &object.key(), object.uid()),
            Finalized::Unchanged | Finalized::Deleting(_) => {}
        }
        Ok(Action::Wait)
    }

    /// Reports an object that does not decode. Only a change of the object, or another version of the operator, mends that,
    /// so the error is not retried.
    fn report_undecodable(&self, object: &Object, error: &Error) -> Error {
        let error = Error::permanent(format!("{error:#}"));
        self.warn(object, &error);
        error
    }
}

/// Runs a reconcile within its time limit. The inner result is the reconcile's own; the outer error is a panic.
async fn within(
    limit: Option<Duration>,
    reconcile: impl Future<Output = Result<Action>>,
) -> Result<Result<Action>, Box<dyn Any + Send>> {
    // A panic leaves nothing half done that outlives the reconcile, so the future is unwind safe.
    let mut reconcile = pin!(AssertUnwindSafe(reconcile).catch_unwind());
    // Most reconciles never wait, and need no timer.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(reconcile.as_mut().poll(cx))).await {
        return done;
    }
    let Some(limit) = limit else { return reconcile.await };
    tokio::time::timeout(limit, reconcile).await.unwrap_or_else(|_| Ok(Err(Error::new(TimedOut { limit }))))
}

fn has_finalizer(object: &Object, finalizer: &str) -> bool {
    object.finalizers().any(|name| name == finalizer)
}

/// Whether the status of a kind has a field for the generation it was observed at.
fn observes_generation(definition: &CustomResourceDefinition) -> bool {
    definition.spec.versions.iter().any(|version| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let status = schema.and_then(|schema| schema.properties.as_ref()?.get("status")?.properties.as_ref());
        status.is_some_and(|fields| fields.contains_key("observedGeneration"))
    })
}

/// Whether an object that is being deleted still exists: a finalizer or its grace period holds it.
fn is_held(object: &Object) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    object.finalizers().next().is_some() || grace.is_some_and(|seconds| seconds != "0")
}

/// Whether something could not be created because the object's own namespace is being deleted. If another namespace is,
/// that is an error: the operator named it.
fn is_of_terminating_namespace(error: &Error, namespace: &str) -> bool {
    let refused = error.find::<WriteError>().filter(|error| error.is_of_ending_namespace());
    refused.is_some_and(|error| error.to_string().contains(&format!("namespace {namespace} because")))
}
