//! One reconcile, and what surrounds the user's function: finalizer, cleanup, requeue, and what becomes of errors. In: a
//! key that is due. Out: what comes next.

use std::sync::Arc;
use std::time::Duration;

use konverge_runtime::{
    Action, Condition, Controller, ControllerOptions, Error, Finalized, Object, READY, Result, Retry, Run, Severity,
    WriteError, retry,
};
use parking_lot::RwLock;

use super::life::Shared;
use super::{Operator, Step};
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
        });
        for watches in &self.watches {
            watches(&engine)?;
        }
        Ok(Steps {
            reconcile,
            on_delete: self.on_delete.clone(),
            finalizer: self.finalizer.clone(),
            requeue_after: self.requeue_after,
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
    pub engine: Arc<Engine>,
}

impl<R: Kind> Steps<R> {
    pub async fn walk(&self, run: Run) -> Result<Action> {
        let Some(object) = self.engine.controller.primary_of(&run.key).get(&run.key) else { return Ok(Action::Wait) };
        let context = match Context::<R>::new(self.engine.clone(), object.clone(), run.causes.clone()) {
            Ok(context) => context,
            Err(error) => return Err(self.unreadable(&object, &error)),
        };
        let walked = if object.is_terminating() {
            self.leave(&object, context.clone()).await
        } else {
            self.stay(&object, context.clone(), run).await
        };
        match walked {
            // The object goes with its namespace, and nothing can be made in there any more.
            Err(error) if is_of_ending(&error, context.namespace()) => {
                tracing::debug!(%error, "the namespace is going");
                Ok(Action::Wait)
            }
            Err(error) if retry(&error) == Retry::UntilChanged => {
                self.say(&context, &object, &error).await;
                Err(error)
            }
            // Somebody has to grant it, and sees it on the object; the retries find out by themselves when it is so.
            Err(error) if matches!(error.find(), Some(WriteError::Forbidden { .. })) => {
                self.warn(&object, &error);
                Err(error)
            }
            Ok(Action::Requeue(after)) => Ok(Action::Requeue(after.max(SOONEST))),
            walked => walked,
        }
    }

    async fn stay(&self, object: &Arc<Object>, mut context: Context<R>, run: Run) -> Result<Action> {
        if let Some(finalizer) = &self.finalizer
            && !object.finalizers().any(|name| name == finalizer.as_str())
        {
            let engine = &self.engine;
            match engine.writer.add_finalizer(&engine.owner, object, finalizer).await? {
                Finalized::Changed(object) => {
                    engine.wrote(&engine.owner, &object)?;
                    context = Context::new(engine.clone(), object, run.causes)?;
                }
                Finalized::Unchanged => {}
                // The change that says so is on its way.
                Finalized::Deleting(_) | Finalized::Gone => return Ok(Action::Wait),
            }
        }
        match ((self.reconcile)(context).await?, self.requeue_after) {
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

    /// Shows an error on the object.
    fn warn(&self, object: &Object, error: &Error) {
        if let Err(unsaid) = self.engine.record(object, Severity::Warning, error.reason(), format!("{error:#}")) {
            tracing::debug!(%unsaid, "the event could not be recorded");
        }
    }

    /// An error that no retry mends is for people: it is shown where they look.
    async fn say(&self, context: &Context<R>, object: &Object, error: &Error) {
        self.warn(object, error);
        let (reason, message) = (error.reason(), format!("{error:#}"));
        // Kinds without a status subresource have no place for it.
        if let Err(unsaid) = context.set_condition(Condition::no(READY, reason, message)).await {
            match unsaid.reason() {
                "Invalid" => tracing::warn!(
                    %unsaid,
                    "the condition could not be set; if fields of the status are required, give it #[serde(default)]"
                ),
                _ => tracing::debug!(%unsaid, "the condition could not be set"),
            }
        }
    }
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
