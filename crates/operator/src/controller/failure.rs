//! What users see of a reconcile that failed. In: the error, and the object as it is. Out: a Warning event and the condition
//! `Ready=False` on the object, until a reconcile succeeds. Errors that pass by themselves (a conflict, an error of the
//! server) are shown only after they have lasted for a while, a server that is away is not shown at all, and a condition that
//! the operator's own code sets is never touched.

mod mark;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{
    Condition, Conditions, Error, Missing, Object, READY, Result, Retry, Run, Severity, WriteError, retry,
};

pub(crate) use mark::FailureMark;

use super::ObjectReconciler;
use crate::api_kind::ApiKind;
use crate::context::Context;

/// How long a hook, and after it the write of a report, may take: a status is one request, which is fast or hopeless. What
/// is not shown now is shown after the next failure.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer than its own limit a reconcile may take, for the hook and for the report that it was too late.
pub(super) const REPORT_ALLOWANCE: Duration = Duration::from_secs(11);

/// What became of a condition that was to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConditionWrite {
    /// The object has it.
    Done,
    /// The kind has no status subresource, so there is no place for it.
    NoStatus,
    /// The server did not take it.
    Failed,
}

/// Whether an error passes by itself soon, or is not shown because the server is away.
fn is_passing(error: &Error, run: &Run) -> bool {
    match retry(error) {
        Retry::Hold(_) | Retry::Stop => true,
        Retry::Fresh | Retry::Outage => !run.is_persistent() || error.is_unanswered(),
        Retry::Backoff | Retry::After(_) | Retry::UntilChanged => false,
    }
}

/// Whether objects of a kind may be given the condition `Ready`. Kubernetes' own kinds have conditions that others act upon:
/// a Node is not unready because an operator failed. A kind without a status has no place for a condition.
pub(super) fn may_have_condition(kind: &ApiKind, definition: Option<&CustomResourceDefinition>) -> bool {
    let group = &kind.resource().group;
    match definition {
        Some(definition) => definition
            .spec
            .versions
            .iter()
            .any(|version| version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some())),
        None => group.contains('.') && !group.ends_with(".k8s.io"),
    }
}

impl<R: Send + Sync + 'static> ObjectReconciler<R> {
    /// Shows an error on the object, unless it passes by itself, and returns the error.
    pub(super) async fn report(&self, context: &Context<R>, error: Error, run: &Run) -> Error {
        if is_passing(&error, run) {
            return error;
        }
        let error = Arc::new(error);
        if let Some(hook) = &self.on_error {
            // The call that makes the future is the user's code, too.
            let hooked = AssertUnwindSafe(async { hook(context.clone(), error.clone()).await }).catch_unwind();
            match tokio::time::timeout(REPORT_TIMEOUT, hooked).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(failed))) => tracing::warn!("error" = format!("{failed:#}"), "the on_error hook failed"),
                Ok(Err(_)) => tracing::error!("the on_error hook panicked"),
                Err(_) => tracing::warn!(limit = ?REPORT_TIMEOUT, "the on_error hook took too long and was cancelled"),
            }
        }
        if tokio::time::timeout(REPORT_TIMEOUT, self.show(context, &error, run)).await.is_err() {
            tracing::debug!("the failure could not be written to the status in time");
        }
        Error::from_shared(error)
    }

    async fn show(&self, context: &Context<R>, error: &Error, run: &Run) {
        let reconciliation = context.reconciliation();
        let current = reconciliation.current();
        let conditions = Conditions::of(&current.value());
        let ready = conditions.get(READY);
        let is_own_report = ready.is_some_and(|ready| self.mark.is_in(ready));
        let given_up = (run.is_last && retry(error) == Retry::Backoff).then_some(run.attempt);
        let condition = self.mark.condition(error, given_up);
        let is_final = given_up.is_some() || retry(error) == Retry::UntilChanged;
        // After a restart every object is reconciled; a final failure was reported before.
        let is_reported = is_final
            && ready.is_some_and(|ready| {
                let observed = ready["observedGeneration"].as_i64();
                ready["message"] == condition.message.as_str() && observed == reconciliation.object.generation()
            });
        let is_set_by_operator = reconciliation.sets_ready() && !is_own_report;
        // One failure says little about an object that is ready.
        let is_first = !is_final && run.attempt <= 1 && conditions.is_true(READY);
        let is_shown = self.has_conditions.load(Relaxed) && !is_set_by_operator && !is_first;
        if matches!(retry(error), Retry::Fresh | Retry::Outage) {
            // If the server does not take the condition, either, it is away for all objects. Then there is no event: events
            // on all of them would be written when the server is back.
            if !is_shown || self.set_ready(context, condition).await != ConditionWrite::Failed {
                self.warn(&current, error);
            }
            return;
        }
        match given_up {
            _ if is_reported => {}
            None => self.warn(&current, error),
            Some(_) => {
                let message = format!("all retries are used up, so it waits until something changes: {error:#}");
                self.warn(&current, &Error::new(message).reason("GaveUp"));
            }
        }
        if is_shown {
            self.set_ready(context, condition).await;
        }
    }

    /// Sets the condition.
    async fn set_ready(&self, context: &Context<R>, condition: Condition) -> ConditionWrite {
        let Err(error) = context.reconciliation().set_framework_condition(condition).await else {
            return ConditionWrite::Done;
        };
        if matches!(error.find(), Some(WriteError::NotFound { missing: Missing::Kind, .. })) {
            // Until the next start no further condition is tried: each would be a request for nothing.
            self.has_conditions.store(false, Relaxed);
            tracing::info!(%error, "failures of this kind are shown as events only");
            return ConditionWrite::NoStatus;
        }
        match error.get_reason() {
            "Invalid" => tracing::warn!(
                %error,
                "the condition could not be set; if fields of the status are required, give it #[serde(default)]"
            ),
            _ => tracing::debug!(%error, "the condition could not be set"),
        }
        ConditionWrite::Failed
    }

    /// Removes the report of an earlier failure, because a reconcile succeeded.
    pub(super) async fn clear_report(&self, context: &Context<R>) -> Result<()> {
        let reconciliation = context.reconciliation();
        if !self.has_conditions.load(Relaxed) || !self.mark.may_be_on(&reconciliation.object) {
            return Ok(());
        }
        if !self.mark.is_on(&reconciliation.current().value()) {
            return Ok(());
        }
        match reconciliation.remove_framework_condition(READY).await {
            Err(error) if is_not_found(&error) => Ok(()),
            removed => removed,
        }
    }

    /// Records an error as an event about the object.
    pub(super) fn warn(&self, object: &Object, error: &Error) {
        let recorded = self.cached.record(object, Severity::Warning, error.get_reason(), format!("{error:#}"));
        if let Err(error) = recorded {
            tracing::debug!(%error, "the event could not be recorded");
        }
    }
}

/// Whether the object was deleted meanwhile.
fn is_not_found(error: &Error) -> bool {
    matches!(error.find(), Some(WriteError::NotFound { missing: Missing::Object, .. }))
}
