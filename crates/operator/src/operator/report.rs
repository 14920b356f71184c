//! What people see of a reconcile that failed. In: the error, and the object as it is. Out: a Warning event and the
//! condition `Ready=False` on the object, until a reconcile succeeds. Errors that pass by themselves (another writer was
//! faster, the server failed) are not shown before they have lasted for a while, a server that is away is not shown at
//! all, and a condition that the operator's own code sets is never touched.
//!
//! The condition has to be known again after a restart of the operator, to be taken back. Nothing but its text can tell,
//! so its message begins with words that only this file writes ([`Mark`]).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_runtime::{
    Condition, Conditions, Error, Missing, Object, READY, Result, Retry, Run, Severity, WriteError, retry,
};
use serde_json::{Map, Value};

use super::steps::Steps;
use crate::context::Context;
use crate::kind::Kind;

/// How long a hook, and after it the writing of a report, may take: a status is one request, which is fast or hopeless.
/// What is not shown now is shown after the next failure.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);

/// How much longer than its own limit a reconcile is given to end, for the report that it was too late.
pub(super) const REPORTING: Duration = Duration::from_secs(11);

/// How the reports of every controller begin.
const BEGINNING: &str = "reconcile ";

/// By what a controller's reports are known.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// How their messages begin: `reconcile failed`. What every controller's begin with is [`BEGINNING`].
    text: String,
    /// What a server fills in where a report is the first that is in a status.
    defaults: Map<String, Value>,
}

impl Mark {
    /// The mark of a controller. One that was given a name has a mark of its own, because another controller may work on
    /// the same objects.
    pub fn of(controller: Option<&str>, definition: Option<&CustomResourceDefinition>) -> Self {
        let text = match controller {
            Some(name) => format!("{BEGINNING}of {name} failed"),
            None => format!("{BEGINNING}failed"),
        };
        let mut defaults = Map::new();
        let versions = definition.into_iter().flat_map(|definition| &definition.spec.versions);
        for version in versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let status = schema.and_then(|schema| schema.properties.as_ref()?.get("status")?.properties.as_ref());
            let default = |(name, field): (&String, &JSONSchemaProps)| Some((name.clone(), field.default.clone()?.0));
            defaults.extend(status.into_iter().flatten().filter_map(default));
        }
        Self { text, defaults }
    }

    /// What an object says about an error, after which it may be given up.
    fn condition(&self, error: &Error, given_up: Option<u32>) -> Condition {
        let often = given_up.map_or_else(String::new, |attempts| {
            format!(" {attempts} times in a row, and is not tried again until something changes")
        });
        Condition::no(READY, error.get_reason(), format!("{}{often}: {error:#}", self.text))
    }

    /// Whether the condition `Ready` of an object is a report.
    fn is_on(&self, object: &Value) -> bool {
        Conditions::of(object).get(READY).is_some_and(|ready| self.is_of(ready))
    }

    fn is_of(&self, condition: &Value) -> bool {
        condition["message"].as_str().is_some_and(|message| message.starts_with(&self.text))
    }

    /// Whether a report may be on an object: most have none, and need not be parsed to know it.
    fn may_be_on(&self, object: &Object) -> bool {
        object.json().contains(&self.text)
    }

    /// Whether all that differs between two states of an object is a report that came, changed or went. That is no reason
    /// to reconcile: it would fail again, and never be given up. Another controller's report is as little of one: two that
    /// both fail would wake each other for ever.
    pub fn is_all_that_differs(&self, before: &Object, after: &Object) -> bool {
        if !before.json().contains(BEGINNING) && !after.json().contains(BEGINNING) {
            return false;
        }
        let (before, mut after) = (before.value(), after.value());
        let went = is_reported(&before) && Conditions::of(&after).get(READY).is_none();
        if !went && !is_reported(&after) {
            return false;
        }
        if before["status"].is_null()
            && let Some(Value::Object(status)) = after.get_mut("status")
        {
            status.retain(|name, value| self.defaults.get(name) != Some(value));
        }
        without_ready(before) == without_ready(after)
    }
}

/// Whether the condition `Ready` of an object is a report, whichever controller's.
fn is_reported(object: &Value) -> bool {
    let conditions = Conditions::of(object);
    let message = conditions.get(READY).and_then(|ready| ready["message"].as_str()?.strip_prefix(BEGINNING));
    message.is_some_and(|rest| rest.starts_with("failed") || rest.starts_with("of ") && rest.contains(" failed"))
}

/// An object without its condition `Ready` and without what every write changes.
fn without_ready(mut object: Value) -> Value {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|condition| condition["type"] != READY);
            if conditions.is_empty() {
                status.remove("conditions");
            }
        }
        if status.is_empty() {
            object.as_object_mut().expect("it has a status, so it is an object").remove("status");
        }
    }
    object
}

/// Whether an error is nobody's fault and over soon, or not to be told because the server is away.
fn passes(error: &Error, run: &Run) -> bool {
    match retry(error) {
        Retry::Hold(_) | Retry::Stop => true,
        Retry::Fresh | Retry::Outage => !run.lasts() || error.is_unanswered(),
        Retry::Backoff | Retry::After(_) | Retry::UntilChanged => false,
    }
}

/// Whether objects of a kind may be given the condition `Ready`. Those of Kubernetes' own kinds have conditions of theirs,
/// which others act upon: a Node is not unready because an operator failed. A kind without a status has no place for it.
pub(super) fn may_have_condition<R: Kind>(definition: Option<&CustomResourceDefinition>) -> bool {
    let group = R::resource().group;
    match definition {
        Some(definition) => definition
            .spec
            .versions
            .iter()
            .any(|version| version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some())),
        None => group.contains('.') && !group.ends_with(".k8s.io"),
    }
}

impl<R: Kind> Steps<R> {
    /// Shows an error on the object, unless it passes by itself, and gives it back.
    pub(super) async fn report(&self, context: &Context<R>, error: Error, run: &Run) -> Error {
        if passes(&error, run) {
            return error;
        }
        let error = Arc::new(error);
        if let Some(hook) = &self.on_error {
            // The call itself is the user's code, too.
            let hooked = AssertUnwindSafe(async { hook(context.clone(), error.clone()).await }).catch_unwind();
            match tokio::time::timeout(REPORTED_WITHIN, hooked).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(failed))) => tracing::warn!("error" = format!("{failed:#}"), "the on_error hook failed"),
                Ok(Err(_)) => tracing::error!("the on_error hook panicked"),
                Err(_) => tracing::warn!(limit = ?REPORTED_WITHIN, "the on_error hook took too long and was cut"),
            }
        }
        if tokio::time::timeout(REPORTED_WITHIN, self.show(context, &error, run)).await.is_err() {
            tracing::debug!("the failure could not be written to the status in time");
        }
        Error::from_shared(error)
    }

    async fn show(&self, context: &Context<R>, error: &Error, run: &Run) {
        let current = context.current();
        let conditions = Conditions::of(&current.value());
        let ready = conditions.get(READY);
        let is_ours = ready.is_some_and(|ready| self.mark.is_of(ready));
        let given_up = (run.is_last && retry(error) == Retry::Backoff).then_some(run.attempt);
        let condition = self.mark.condition(error, given_up);
        let is_final = given_up.is_some() || retry(error) == Retry::UntilChanged;
        // After a restart every object is looked at; what is wrong with it for good has been reported.
        let is_known = is_final
            && ready.is_some_and(|ready| {
                let observed = ready["observedGeneration"].as_i64();
                ready["message"] == condition.message.as_str() && observed == context.generation()
            });
        let is_said = context.has_said_ready() && !is_ours;
        // One failure says little about something that works.
        let is_first = !is_final && run.attempt <= 1 && conditions.is_true(READY);
        let is_set = self.has_conditions && !is_said && !is_first;
        if matches!(retry(error), Retry::Fresh | Retry::Outage) {
            // A server that does not take this, either, is away for all objects; an event on each of them would say so
            // when it is over.
            if !is_set || self.set_ready(context, condition).await {
                self.warn(&current, error);
            }
            return;
        }
        match given_up {
            _ if is_known => {}
            None => self.warn(&current, error),
            Some(_) => {
                let message = format!("all retries are used up, so it waits until something changes: {error:#}");
                self.warn(&current, &Error::new(message).reason("GaveUp"));
            }
        }
        if is_set {
            self.set_ready(context, condition).await;
        }
    }

    /// Sets the condition; tells whether the object has it.
    async fn set_ready(&self, context: &Context<R>, condition: Condition) -> bool {
        let Err(unsaid) = context.report(condition).await else { return true };
        match unsaid.get_reason() {
            "Invalid" => tracing::warn!(
                %unsaid,
                "the condition could not be set; if fields of the status are required, give it #[serde(default)]"
            ),
            _ => tracing::debug!(%unsaid, "the condition could not be set"),
        }
        false
    }

    /// Takes the report of an earlier failure back, because a reconcile succeeded.
    pub(super) async fn clear(&self, context: &Context<R>) -> Result<()> {
        if !self.has_conditions || !self.mark.may_be_on(context.object()) {
            return Ok(());
        }
        if !self.mark.is_on(&context.current().value()) {
            return Ok(());
        }
        match context.withdraw(READY).await {
            Err(error) if is_gone(&error) => Ok(()),
            withdrawn => withdrawn,
        }
    }

    /// Records an error as an event about the object.
    pub(super) fn warn(&self, object: &Object, error: &Error) {
        let recorded = self.engine.record(object, Severity::Warning, error.get_reason(), format!("{error:#}"));
        if let Err(unsaid) = recorded {
            tracing::debug!(%unsaid, "the event could not be recorded");
        }
    }
}

/// Whether the object went meanwhile.
fn is_gone(error: &Error) -> bool {
    matches!(error.find(), Some(WriteError::NotFound { missing: Missing::Object, .. }))
}

#[cfg(test)]
mod tests {
    use konverge_runtime::Mode;
    use serde_json::json;

    use super::*;
    use crate::builders::ConfigMap;

    /// An object with this version, spec and `Ready` message.
    fn object(version: u32, spec: u32, ready: Option<&str>) -> Object {
        let mut object = json!({"metadata": {"name": "a", "resourceVersion": version.to_string()}, "spec": spec});
        if let Some(message) = ready {
            let ready = json!({"type": READY, "status": "False", "reason": "Failed", "message": message});
            object["status"] = json!({"conditions": [ready]});
        }
        Object::parse(&ConfigMap::resource(), &object.to_string(), Mode::Full).unwrap()
    }

    #[test]
    fn reports_are_told_from_other_changes() {
        let (ours, later) = (Some("reconcile failed: no"), Some("reconcile failed: never"));
        let (theirs, other) = (Some("1 of 3"), Some("reconcile of gold failed: no"));
        let words = Some("reconcile of accounts begins");
        let mark = Mark::of(None, None);
        for (before, after, expect) in [
            ((1, None), (1, ours), true),
            ((1, ours), (1, later), true),
            ((1, ours), (1, None), true),
            ((1, theirs), (1, ours), true),
            ((1, ours), (1, theirs), false),
            ((1, None), (1, theirs), false),
            ((1, None), (1, other), true),
            ((1, ours), (1, other), true),
            ((1, other), (1, None), true),
            ((1, other), (1, theirs), false),
            ((1, None), (1, words), false),
            ((1, None), (2, other), false),
            ((1, None), (2, ours), false),
            ((1, ours), (2, ours), false),
            ((1, None), (2, None), false),
        ] {
            let (before, after) = (object(1, before.0, before.1), object(2, after.0, after.1));
            let (was, is) = (before.json(), after.json());
            assert_eq!(mark.is_all_that_differs(&before, &after), expect, "{was} → {is}");
        }
    }
}
