//! One reconcile, and what surrounds the user's function: finalizer, cleanup, requeue, its time limit, and that a failure
//! is reported ([`super::report`]). In: a key that is due. Out: what comes next.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{
    Action, Cause, Controller, ControllerOptions, Error, Finalized, Object, Predicate, Result, Run, TimedOut,
    WriteError, panic_message,
};
use parking_lot::RwLock;

use super::life::Shared;
use super::report::{Mark, REPORTING, may_have_condition};
use super::{Hook, Operator, Step};
use crate::context::Context;
use crate::engine::{Engine, target};
use crate::kind::Kind;

/// The shortest time to another look: too short to be noticed. A reconcile that always asks for one at once would be all
/// that is done.
const SOONEST: Duration = Duration::from_millis(10);

impl<R: Kind> Operator<R> {
    /// What the controller of this kind is called.
    pub(super) fn controller_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let (api, kind) = (R::resource(), R::kind(&()).to_lowercase());
        if api.group.is_empty() { kind } else { format!("{kind}.{}", api.group) }
    }

    /// A controller of the objects in some namespaces, or in all of them, and what it does for each.
    pub(super) fn steps(
        &self,
        shared: &Shared<'_>,
        namespaces: Vec<String>,
        options: ControllerOptions,
    ) -> Result<Steps<R>> {
        let owner = R::resource();
        let Some(reconcile) = self.reconcile.clone() else {
            return Err(Error::permanent(format!(
                "the operator of {} has no function; give it one with .reconcile(…)",
                owner.kind
            )));
        };
        self.selection.check(&owner.kind)?;
        let mut targets = namespaces.iter().map(|namespace| self.selection.of(target::<R>(Some(namespace))));
        let first = targets.next().unwrap_or_else(|| self.selection.of(target::<R>(None)));
        let definition = R::definition();
        let mark = Mark::of(self.name.as_deref(), definition.as_ref());
        let own = mark.clone();
        let limit = options.timeout;
        let options = ControllerOptions {
            predicate: options.predicate.and(Predicate::new(move |old, new| !own.is_all_that_differs(old, new))),
            // The steps keep the limit themselves, and report that it was passed; the worker ends what not even that does.
            timeout: limit.map(|limit| limit.saturating_add(REPORTING)),
            ..options
        };
        let engine = Arc::new(Engine {
            client: shared.client.clone(),
            caches: shared.caches.clone(),
            writer: shared.writer.clone(),
            recorder: shared.recorder.clone(),
            controller: Controller::over(&self.controller_name(), first, targets, shared.caches.clone(), options),
            namespaces,
            owner,
            owner_scope: R::scope(),
            metrics: shared.metrics.clone(),
            owned: RwLock::default(),
            indexes: self.indexes.clone(),
            observes_generation: definition.as_ref().is_some_and(observes_generation),
            named: RwLock::default(),
            states: self.states.clone(),
        });
        for watches in &self.watches {
            watches(&engine)?;
        }
        Ok(Steps {
            reconcile,
            on_delete: self.on_delete.clone(),
            finalizer: self.finalizer.clone(),
            requeue_after: self.requeue_after,
            on_error: self.on_error.clone(),
            limit,
            mark,
            has_conditions: may_have_condition::<R>(definition.as_ref()),
            engine,
        })
    }
}

/// What surrounds a user's function: finalizer, cleanup, requeue, and what becomes of errors.
pub(super) struct Steps<R: Kind> {
    reconcile: Step<R>,
    on_delete: Option<Step<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    pub on_error: Option<Hook<R>>,
    /// How long one reconcile may take.
    limit: Option<Duration>,
    /// How reports of failures begin.
    pub mark: Mark,
    /// Whether failures are shown in the status, too.
    pub has_conditions: bool,
    pub engine: Arc<Engine>,
}

impl<R: Kind> Steps<R> {
    pub async fn walk(&self, run: Run) -> Result<Action> {
        let Some(object) = self.engine.controller.primary_of(&run.key).get(&run.key) else { return Ok(Action::Wait) };
        let mut context = match Context::<R>::new(self.engine.clone(), object.clone(), run.causes.clone()) {
            Ok(context) => context,
            Err(error) if object.is_terminating() => return self.delete_unreadable(&object, &error).await,
            Err(error) => return Err(self.unreadable(&object, &error)),
        };
        let walked = within(self.limit, async {
            if object.is_terminating() {
                return self.leave(&object, context.clone()).await;
            }
            let action = self.stay(&object, &mut context, run.causes.clone()).await?;
            self.clear(&context).await.map(|()| action)
        });
        match walked.await {
            // The object goes with its namespace, and nothing can be made in there any more.
            Ok(Err(error)) if is_of_ending(&error, context.namespace()) => {
                tracing::debug!(%error, "the namespace is going");
                Ok(Action::Wait)
            }
            Ok(Err(error)) => Err(self.report(&context, error, &run).await),
            Ok(Ok(Action::Requeue(after))) => Ok(Action::Requeue(after.max(SOONEST))),
            Ok(Ok(Action::Wait)) => Ok(Action::Wait),
            Err(panic) => {
                let message = format!("the reconcile panicked: {}", panic_message(&*panic));
                self.report(&context, Error::new(message).reason("Panicked"), &run).await;
                resume_unwind(panic)
            }
        }
    }

    async fn stay(&self, object: &Arc<Object>, context: &mut Context<R>, causes: Arc<[Arc<Cause>]>) -> Result<Action> {
        if let Some(finalizer) = &self.finalizer
            && !object.finalizers().any(|name| name == finalizer.as_str())
        {
            let engine = &self.engine;
            match engine.writer.add_finalizer(&engine.owner, object, finalizer).await? {
                Finalized::Changed(object) => {
                    engine.wrote(&engine.owner, &object)?;
                    *context = Context::new(engine.clone(), object, causes)?;
                }
                Finalized::Unchanged => {}
                // The change that says so is on its way.
                Finalized::Deleting(_) | Finalized::Gone => return Ok(Action::Wait),
            }
        }
        self.engine.names_are_watched(context.resource()).await?;
        match ((self.reconcile)(context.clone()).await?, self.requeue_after) {
            (Action::Wait, Some(after)) => Ok(Action::Requeue(after)),
            (action, _) => Ok(action),
        }
    }

    async fn leave(&self, object: &Arc<Object>, context: Context<R>) -> Result<Action> {
        let Some(finalizer) = &self.finalizer else { return Ok(Action::Wait) };
        if !object.finalizers().any(|name| name == finalizer.as_str()) {
            return Ok(Action::Wait);
        }
        if let Some(cleanup) = &self.on_delete
            && let Action::Requeue(after) = cleanup(context).await?
        {
            // The cleanup is under way; the object stays until it says that it is done.
            return Ok(Action::Requeue(after));
        }
        self.remove_finalizer(object, finalizer).await
    }

    /// An object that does not read as its type is deleted. Its cleanup cannot be called, and nothing that this operator
    /// does would ever change that, so it goes without, and people are told to look for what it leaves behind.
    async fn delete_unreadable(&self, object: &Arc<Object>, error: &Error) -> Result<Action> {
        let Some(finalizer) = &self.finalizer else { return Ok(Action::Wait) };
        if !object.finalizers().any(|name| name == finalizer.as_str()) {
            return Ok(Action::Wait);
        }
        if self.on_delete.is_some() {
            let message = format!(
                "the cleanup was left out, because the object does not read as {}: {error:#}; look for what it leaves behind",
                self.engine.owner.kind
            );
            tracing::error!(key = %object.key(), message, "an object is deleted without its cleanup");
            self.warn(object, &Error::permanent(message).reason("CleanupSkipped"));
        }
        self.remove_finalizer(object, finalizer).await
    }

    /// Removes the finalizer.
    async fn remove_finalizer(&self, object: &Arc<Object>, finalizer: &str) -> Result<Action> {
        let engine = &self.engine;
        match engine.writer.remove_finalizer(&engine.owner, object, finalizer).await? {
            Finalized::Changed(left) if stays(&left) => engine.wrote(&engine.owner, &left)?,
            // With its last finalizer it went; the answer shows how it last was.
            Finalized::Changed(_) | Finalized::Gone => {
                engine.caches.removed(&engine.owner, &object.key(), object.uid());
            }
            Finalized::Unchanged | Finalized::Deleting(_) => {}
        }
        Ok(Action::Wait)
    }

    /// What becomes of an object that does not read as its type. Only a change of it, or another operator, mends that.
    fn unreadable(&self, object: &Object, error: &Error) -> Error {
        let error = Error::permanent(format!("{error:#}"));
        self.warn(object, &error);
        error
    }
}

/// What a reconcile came to, within its time; or what it panicked with.
async fn within(
    limit: Option<Duration>,
    walk: impl Future<Output = Result<Action>>,
) -> Result<Result<Action>, Box<dyn Any + Send>> {
    // Whatever a panic leaves half done was the reconcile's own, and goes with it.
    let mut walk = pin!(AssertUnwindSafe(walk).catch_unwind());
    // Most reconciles never wait, and need no timer.
    if let Poll::Ready(walked) = poll_fn(|cx| Poll::Ready(walk.as_mut().poll(cx))).await {
        return walked;
    }
    let Some(limit) = limit else { return walk.await };
    tokio::time::timeout(limit, walk).await.unwrap_or_else(|_| Ok(Err(Error::new(TimedOut { limit }))))
}

/// Whether the status of a kind has a field for the generation it was observed at.
fn observes_generation(definition: &CustomResourceDefinition) -> bool {
    definition.spec.versions.iter().any(|version| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let status = schema.and_then(|schema| schema.properties.as_ref()?.get("status")?.properties.as_ref());
        status.is_some_and(|fields| fields.contains_key("observedGeneration"))
    })
}

/// Whether something still holds an object that is being deleted: a finalizer, or its time to end.
fn stays(object: &Object) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    object.finalizers().next().is_some() || grace.is_some_and(|seconds| seconds != "0")
}

/// Whether something could not be made because this very namespace is going. Another one that is not there is an error:
/// somebody named it.
fn is_of_ending(error: &Error, namespace: &str) -> bool {
    let ending = error.find::<WriteError>().filter(|error| error.is_of_ending_namespace());
    ending.is_some_and(|error| error.to_string().contains(&format!("namespace {namespace} because")))
}
