//! Deleting: an object is removed at once, or marked until its finalizers and its grace period are over. In: a resource, a
//! name, options. Out: the marked object, or the removed one.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, Propagation, Status};
use konverge_schema::Budget;
use konverge_store::{CommitError, Condition};

use crate::admission::{Admission, Attributes, Operation, RequestOptions};
use crate::behaviour::Dependents;
use crate::commit::{Committer, MAX_CONFLICTS, unavailable};
use crate::context::RequestContext;
use crate::conversion::default_budget;
use crate::meta::{self, FOREGROUND, ORPHAN};
use crate::request::{Query, invalid_options};
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::write::{WriteOutcome, unregistered};
use crate::{crd, fence, namespace, record};

/// Delete options are short; longer ones are refused, because they are read on a thread that serves connections.
pub(crate) const OPTIONS_STEPS: u64 = 20_000;
pub(crate) const OPTIONS_BYTES: u64 = 64 * 1024;

/// The grace period of a pod that sets none.
const POD_GRACE_SECONDS: i64 = 30;

/// How to delete.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
}

fn not_options(why: &dyn std::fmt::Display) -> Status {
    Status::bad_request(format!("the body of a delete must be DeleteOptions or empty: {why}"))
}

/// The options as clients send them.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SentOptions {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads them from an object, which can also make the request a dry run, so the context to go on with comes back with the options.
    pub(crate) fn read(value: Value, context: &RequestContext) -> Result<(Self, RequestContext), Status> {
        // An option that cannot be read may be the one that was to protect the object.
        let sent: SentOptions = match value {
            Value::Null => SentOptions::default(),
            Value::Object(_) if !is_delete_options(&value) => {
                let text = |field: &str| value[field].as_str().unwrap_or_default();
                let (kind, version) = (text("kind"), text("apiVersion"));
                return Err(Status::bad_request(unregistered(kind, version)));
            }
            Value::Object(_) => SentOptions::deserialize(value).map_err(|why| not_options(&why))?,
            _ => return Err(not_options(&"it is no object")),
        };
        Self::checked(sent, context)
    }

    /// Reads them from the query of a request without a body. A request with a body has its options there, and only there.
    pub(crate) fn of_query(query: &Query, context: &RequestContext) -> Result<(Self, RequestContext), Status> {
        query.check_write("DeleteOptions", false)?;
        let text = |name: &str| query.get(name).map(str::to_owned);
        let sent = SentOptions {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation_policy: text("propagationPolicy"),
            orphan_dependents: query.switch("orphanDependents"),
            preconditions: Some(Preconditions { uid: text("uid"), resource_version: text("resourceVersion") }),
            dry_run: None,
        };
        Self::checked(sent, context)
    }

    fn checked(sent: SentOptions, context: &RequestContext) -> Result<(Self, RequestContext), Status> {
        let mut errors = Vec::new();
        let (orphan, propagation) = (sent.orphan_dependents, sent.propagation_policy);
        let path = || FieldPath::new("propagationPolicy");
        if let (Some(_), Some(policy)) = (orphan, &propagation) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(path(), policy.as_str().into(), why));
        }
        let propagation = match (propagation.as_deref(), orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(path(), other.into(), known));
                None
            }
        };
        let dry_run = sent.dry_run.unwrap_or_default();
        if dry_run.iter().any(|value| value != "All") {
            errors.push(FieldError::not_supported(FieldPath::new("dryRun"), dry_run.clone().into(), ["All"]));
        }
        invalid_options("DeleteOptions", &errors)?;
        let grace = sent.grace_period_seconds;
        let preconditions = sent.preconditions.unwrap_or_default();
        let options = Self {
            // A negative grace period means the shortest one.
            grace: grace.map(|grace| if grace < 0 { 1 } else { grace }),
            propagation,
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
        };
        Ok((options, context.with_dry_run(context.dry_run || !dry_run.is_empty())))
    }

    /// Options that delete the object with this uid only.
    pub(crate) fn of(uid: &str, propagation: Propagation) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::propagated(propagation) }
    }

    /// Options with this propagation policy.
    pub(crate) fn propagated(propagation: Propagation) -> Self {
        Self { propagation: Some(propagation), ..Self::default() }
    }

    /// Whether nothing is said about dependents.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.propagation.is_none()
    }

    /// Whether the options have a resourceVersion as a precondition.
    pub(crate) fn is_pinned(&self) -> bool {
        self.resource_version.is_some()
    }

    /// The same options with this resourceVersion as a precondition.
    #[must_use]
    pub(crate) fn pinned(&self, resource_version: &str) -> Self {
        Self { resource_version: Some(resource_version.to_owned()), ..self.clone() }
    }

    /// Adds what was asked for to a `DeleteOptions` object, as admission shows it.
    pub(crate) fn show(&self, options: &mut Value) {
        if let Some(grace) = self.grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        if let Some(propagation) = self.propagation {
            options["propagationPolicy"] = match propagation {
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
                Propagation::Orphan => "Orphan",
            }
            .into();
        }
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                options["preconditions"][field] = json!(value);
            }
        }
    }

    /// Checks the preconditions.
    pub(crate) fn check(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let name = meta::text(object, "name");
        let conflict = |what: &str, given: &str, found: &str| {
            let why = format!(
                "the {what} in the precondition ({given}) does not match the {what} in record ({found}). \
                 The object might have been deleted and then recreated"
            );
            let modified = format!(
                "the {what} in the precondition ({given}) does not match the {what} in record ({found}). \
                 The object might have been modified"
            );
            let why = if what == "UID" { why } else { modified };
            // kube-apiserver names the kind in this conflict, and the resource in others.
            Status::conflict(&resource.group, &resource.kind, name, &why)
        };
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != meta::text(object, "uid")) {
            return Err(conflict("UID", uid, meta::text(object, "uid")));
        }
        let version = meta::text(object, "resourceVersion");
        if let Some(given) = self.resource_version.as_deref().filter(|given| *given != version) {
            return Err(conflict("ResourceVersion", given, version));
        }
        Ok(())
    }
}

/// Delete options as the audit log of kube-apiserver has them: whatever version they say, they are internal by then.
pub(crate) fn shown_options(sent: &Value) -> Value {
    let mut shown = sent.clone();
    (shown["kind"], shown["apiVersion"]) = ("DeleteOptions".into(), "meta.k8s.io/__internal".into());
    shown
}

/// Whether a body says that it is delete options, in any version, or nothing at all.
fn is_delete_options(body: &Value) -> bool {
    body["kind"].as_str().is_none_or(|kind| matches!(kind, "" | "DeleteOptions"))
}

/// A deletion, of one object or of several.
#[derive(Clone, Copy)]
pub(crate) struct Deletion<'a> {
    pub server: &'a Server,
    pub context: &'a RequestContext,
    pub resource: &'a Arc<Resource>,
    pub options: &'a DeleteOptions,
    /// Whether admission has judged the request already.
    pub admitted: bool,
    /// Whether the request is for a collection. Then admission sees no name.
    pub collection: bool,
    /// Where warnings of admission go, if somebody reads them.
    pub warnings: Option<&'a Mutex<Vec<String>>>,
}

impl Deletion<'_> {
    /// Deletes one object. The budget is what admission may compute.
    pub(crate) async fn run(
        &self,
        namespace: Option<&str>,
        name: &str,
        budget: &Budget,
    ) -> Result<WriteOutcome, Status> {
        let Self { server, context, resource, options, admitted, .. } = *self;
        for _ in 0..MAX_CONFLICTS {
            let key = resource.key(namespace, name);
            let found = server.store.get(&key, None).map_err(Status::internal)?;
            let Some(entry) = found else {
                return Err(Status::not_found(&resource.group, &resource.plural, name));
            };
            let current = crd::must_be_current(server, resource)?;
            let old = resource.read_object(&entry).await?;
            options.check(resource, &old)?;
            if is_pending(resource, &old, options.grace) {
                return Ok(WriteOutcome::Stored(entry));
            }
            let admission = match admitted {
                true => Admission::default(),
                false => self.admit(namespace, &old, budget).await?,
            };
            let mut new = old.clone();
            let finalizers = finalizers_for(resource, &old, options.propagation);
            meta::set_finalizers(&mut new, &finalizers);
            if meta::is_terminating(&old) {
                meta::shorten_grace(&mut new, server.env.now(), options.grace);
            } else {
                meta::begin_deletion(&mut new, server.env.now(), grace(resource, &old, options.grace));
            }
            namespace::terminate(resource, &mut new);
            crd::terminate(server, resource, &mut new);
            let finished = can_be_removed(resource, &new);
            if context.dry_run {
                let marked = resource.behaviour.graceful;
                return Ok(match finished {
                    true => WriteOutcome::Deleted(if marked { new } else { old }),
                    false => WriteOutcome::DryRun(new),
                });
            }
            if !finished && new == old {
                return Ok(WriteOutcome::Stored(entry));
            }
            let mut conditions = vec![Condition::Unchanged(entry.key.clone(), entry.revision)];
            conditions.extend(current);
            conditions.extend(fence::conditions(server, context)?);
            conditions.extend(admission.conditions);
            let committer = Committer { server, context, resource, with: admission.writes };
            let committed = if finished {
                committer.remove(&entry, conditions).await.map(|revision| {
                    // What is removed at once was never marked; only pods show that they were.
                    if !resource.behaviour.graceful && !meta::is_terminating(&old) {
                        new = old;
                    }
                    meta::of_mut(&mut new).insert("resourceVersion".into(), revision.0.to_string().into());
                    WriteOutcome::Deleted(new)
                })
            } else {
                let value = encode(resource, new).await?;
                committer.replace(None, &entry, conditions, value).await.map(WriteOutcome::Stored)
            };
            match committed {
                Ok(done) => return Ok(done),
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(Status::modified(&resource.group, &resource.plural, name))
    }

    /// Asks the admission plugins whether an object may be deleted.
    async fn admit(&self, namespace: Option<&str>, old: &Value, budget: &Budget) -> Result<Admission, Status> {
        let Self { server, context, resource, options, collection, .. } = *self;
        let attributes = Attributes {
            server,
            context,
            operation: Operation::Delete,
            resource,
            subresource: Subresource::Main,
            namespace,
            name: if collection { "" } else { meta::text(old, "name") },
            name_prefix: "",
            old: Some(old),
            options: RequestOptions::Delete(options),
            budget,
        };
        let mut admission = Admission::default();
        // A deletion has no new object that plugins could change.
        let admitted = match server.admission.admit(&attributes, &mut Value::Null, &mut admission).await {
            Ok(()) => server.admission.validate(&attributes, old, &mut admission).await,
            refused => refused,
        };
        if let Some(warnings) = self.warnings {
            warnings.lock().append(&mut admission.warnings);
        }
        admitted.map(|()| admission)
    }
}

/// Deletes one object, for the server itself or as part of another request.
pub(crate) async fn delete(
    server: &Server,
    context: &RequestContext,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    name: &str,
    options: &DeleteOptions,
) -> Result<WriteOutcome, Status> {
    let limits = server.workers.limits();
    let deletion = Deletion { server, context, resource, options, admitted: false, collection: false, warnings: None };
    deletion.run(namespace, name, &Budget::new(limits.steps, limits.bytes)).await
}

/// Whether a marked object can be removed: it has no finalizers and no grace period left.
pub(crate) fn can_be_removed(resource: &Resource, object: &Value) -> bool {
    let grace = meta::of(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    meta::finalizers(object).is_empty() && grace == 0 && namespace::is_finalized(resource, object)
}

/// Whether an object is in its grace period already, and is not asked to end sooner. Then a deletion does nothing.
fn is_pending(resource: &Resource, object: &Value, asked: Option<i64>) -> bool {
    let left = meta::of(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    let graceful = resource.behaviour.graceful && meta::is_terminating(object) && left > 0;
    graceful && asked.is_none_or(|asked| asked >= left)
}

/// The bytes to store of an object whose deletion has begun. Defaults that would make far more of it than can be stored do
/// not prevent its deletion.
async fn encode(resource: &Resource, object: Value) -> Result<Bytes, Status> {
    let bare = resource.to_stored(object).await?;
    let mut whole = bare.clone();
    let defaulted = resource.default_stored(&mut whole, &default_budget());
    Ok(record::encode(if defaulted.is_ok() { &whole } else { &bare }))
}

/// The finalizers of an object that is deleted with this propagation policy. Without one, finalizers that the object has already
/// decide what becomes of its dependents, and then the kind.
fn finalizers_for<'o>(resource: &Resource, object: &'o Value, propagation: Option<Propagation>) -> Vec<&'o str> {
    let mut finalizers = meta::finalizers(object);
    let decided = finalizers.iter().any(|name| matches!(*name, FOREGROUND | ORPHAN));
    let propagation = match (resource.behaviour.dependents, propagation) {
        (Dependents::Ignored, _) => None,
        (Dependents::Orphan, None) if !decided => Some(Propagation::Orphan),
        (_, propagation) => propagation,
    };
    if let Some(propagation) = propagation {
        finalizers.retain(|name| !matches!(*name, FOREGROUND | ORPHAN));
        match propagation {
            Propagation::Background => {}
            Propagation::Foreground => finalizers.push(FOREGROUND),
            Propagation::Orphan => finalizers.push(ORPHAN),
        }
    }
    finalizers
}

/// The grace period in seconds: only pods that have a node get one.
fn grace(resource: &Resource, object: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    let placed = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if !resource.behaviour.graceful || ended || !placed {
        return 0;
    }
    asked.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(POD_GRACE_SECONDS)
}
