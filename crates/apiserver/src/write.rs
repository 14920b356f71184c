//! Writing: the one path of every create and update. In: a resource, a namespace and what the client sent. Out: a committed
//! object, or the `Status` that says why not.
//!
//! ```text
//! create   receive → set namespace → name → prepare → default → manage fields → admit → assign → validate → commit
//! update   read → produce → isolate → carry over → prepare → default → manage fields → admit → assign → validate → commit,
//!          and again from the start after a conflict
//! ```
//!
//! `receive` is the first stage, `commit` the last; both have files of their own, as have server-side apply and the `stages`
//! between. Nothing is stored before the commit; a write that changes nothing is not committed.

mod apply;
mod receive;
mod scale;
mod stages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, Status};
use konverge_schema::{Budget, check_restorable, go_plain};
use konverge_store::{CommitError, Condition, Entry};

pub(crate) use receive::{foreign_namespace, unregistered};

use crate::admission::{Admission, Attributes, Operation, RequestOptions, check_param_access, namespace_accepts};
use crate::commit::{Committer, MAX_CONFLICTS, unavailable};
use crate::context::RequestContext;
use crate::decode::Decoded;
use crate::delete::can_be_removed;
use crate::patch::Patch;
use crate::request::FieldValidation;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::work::over_budget;
use crate::{assign, crd, defaults, fence, meta, rbac, warning};

/// How often another name is generated when one is taken.
const NAME_ATTEMPTS: usize = 8;

/// Reading and writing this many bytes of a stored object takes as long as one step of other work.
const BYTES_PER_STEP: usize = 8;

/// One create or update, as its request describes it.
pub(crate) struct WriteRequest<'a> {
    pub server: &'a Server,
    /// Who writes, and whether the result is persisted.
    pub context: &'a RequestContext,
    pub resource: &'a Arc<Resource>,
    pub namespace: Option<&'a str>,
    pub subresource: Subresource,
    pub validation: FieldValidation,
    pub manager: String,
    pub api_version: String,
    /// What the request says about how it is to be processed, for admission.
    pub options: RequestOptions<'a>,
    /// What the write may cost until it commits.
    pub budget: &'a Budget,
    /// Whether admission has nothing to say about the write.
    pub admitted: bool,
}

/// What a write or a deletion did.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// This record is in the store now.
    Stored(Entry),
    /// A dry run: this object would be stored.
    DryRun(Value),
    /// The object was removed from the store; this is its last state.
    Deleted(Value),
}

/// Which fields a write records its manager for.
enum FieldOwnership {
    /// Those that it changed.
    Changed,
    /// None: server-side apply has recorded them, or nobody manages them.
    Decided,
}

/// What asked for an object that is to be added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insertion {
    /// A create.
    Create,
    /// An update or an apply, which found no object. Its user needs the right to create, too.
    Upsert,
}

impl WriteRequest<'_> {
    /// Creates an object.
    pub(crate) async fn create(&self, sent: Decoded, warnings: &mut Vec<String>) -> Result<WriteOutcome, Status> {
        let mut object = self.receive(sent, warnings)?;
        self.note_sent(&object);
        drop_duplicate_owners(&mut object, "", warnings);
        self.check_unversioned(&object)?;
        self.insert(object, Insertion::Create, FieldOwnership::Changed, warnings).await
    }

    /// Reads an object that is answered and not stored, with the managers of its fields.
    pub(crate) fn receive_unstored(&self, sent: Decoded, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let mut object = self.receive(sent, warnings)?;
        self.note_sent(&object);
        drop_duplicate_owners(&mut object, "", warnings);
        self.set_namespace(&mut object)?;
        meta::drop_empty(&mut object);
        self.track_managers(&FieldOwnership::Changed, None, &mut object);
        Ok(object)
    }

    /// Asks the admission plugins about such an object. Gives back what they made of it.
    pub(crate) async fn admit_unstored(&self, mut object: Value, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let (chain, mut admission) = (&self.server.admission, Admission::default());
        let name = meta::text(&object, "name").to_owned();
        let attributes = self.attributes(&name, None);
        let admitted = match chain.admit(&attributes, &mut object, &mut admission).await {
            Ok(()) => chain.validate(&attributes, &object, &mut admission).await,
            refused => refused,
        };
        warnings.append(&mut admission.warnings);
        admitted.map(|()| object)
    }

    /// Replaces an object. Kinds that allow it create an object that does not exist.
    pub(crate) async fn replace(
        &self,
        name: &str,
        sent: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let mut object = self.receive(sent, warnings)?;
        self.note_sent(&object);
        drop_duplicate_owners(&mut object, "", warnings);
        self.same_name(name, &object)?;
        let exists = self.current(name)?.is_some();
        if !exists && self.subresource == Subresource::Main && self.resource.behaviour.put_creates {
            self.same_uid(name, "", &object)?;
            return self.insert(object, Insertion::Upsert, FieldOwnership::Changed, warnings).await;
        }
        if exists {
            self.check_versioned(name, &object)?;
        }
        self.update(name, FieldOwnership::Changed, warnings, |current, _| {
            self.same_uid(name, meta::text(current, "uid"), &object)?;
            Ok(object.clone())
        })
        .await
    }

    /// Changes an object by what `patched` makes of it.
    pub(crate) async fn patch(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        patched: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        self.patch_by(name, warnings, None, &[], patched).await
    }

    /// The same by a patch that a client sent.
    pub(crate) async fn patch_with(
        &self,
        name: &str,
        patch: &Patch,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let patched = |current: &Value| patch.apply(self.resource, current, self.budget);
        self.patch_by(name, warnings, patch.shown_in_errors(), &patch.strict_errors, patched).await
    }

    /// Errors show what the patch made, or `shown` instead.
    async fn patch_by(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        shown: Option<&Value>,
        strict_errors: &[String],
        patched: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        self.update(name, FieldOwnership::Changed, warnings, |current, warnings| {
            let value = patched(current)?;
            // Whatever is wrong with a patched object is an error of the patch.
            let refused = |why: &str| {
                let made = match shown {
                    Some(patch) => go_plain(patch),
                    None => patched(current).map(|value| value.to_string()).unwrap_or_default(),
                };
                let error = FieldError::invalid(FieldPath::new("patch"), made.into(), why);
                Status::invalid("", "", "", &[error])
            };
            let schema = &self.resource.schema;
            if shown.is_some()
                && let Err(error) = check_restorable(&schema.arena, schema.root, &value)
            {
                return Err(refused(&error.to_string()));
            }
            let object = self.receive_value(value, strict_errors.iter().cloned(), warnings).map_err(|status| {
                refused(status.message.strip_prefix(&self.undecodable("").message).unwrap_or(&status.message))
            })?;
            self.same_name(name, &object)?;
            Ok(object)
        })
        .await
    }

    /// Changes an object to what `produce` makes of the current one.
    pub(crate) async fn modify(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        produce: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        self.update(name, FieldOwnership::Changed, warnings, |current, _| produce(current)).await
    }

    /// The same, without recording a field manager.
    pub(crate) async fn modify_unmanaged(
        &self,
        name: &str,
        produce: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        self.update(name, FieldOwnership::Decided, &mut Vec::new(), |current, _| produce(current)).await
    }

    /// Adds an object that does not exist yet.
    async fn insert(
        &self,
        mut object: Value,
        insertion: Insertion,
        ownership: FieldOwnership,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let resource = self.resource;
        self.set_namespace(&mut object)?;
        let generated = meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty();
        resource.initial_status(&mut object);
        let mut attempts = 0;
        let warned_before = warnings.len();
        for _ in 0..MAX_CONFLICTS {
            // Each attempt checks the object again, and gives the same warnings.
            warnings.truncate(warned_before);
            let mut fresh = object.clone();
            meta::initialize(&mut fresh, resource, &*self.server.env);
            meta::drop_empty(&mut fresh);
            crd::must_accept(self.server, resource)?;
            self.prepare(None, &mut fresh);
            defaults::fill(resource, &mut fresh, self.budget).map_err(over_budget)?;
            self.track_managers(&ownership, None, &mut fresh);
            let mut admission = Admission::default();
            let name = meta::text(&fresh, "name").to_owned();
            // As in kube-apiserver, plugins that change the object do not know a name that is generated.
            let attributes = match generated {
                true => Attributes { name_prefix: meta::text(&object, "generateName"), ..self.attributes("", None) },
                false => self.attributes(&name, None),
            };
            self.admit(&attributes, &mut fresh, &mut admission, warnings).await?;
            if admission.reinvocation.needed {
                // A policy or a webhook may change what its endpoint may not, and what the kind needs.
                self.check_unversioned(&fresh)?;
                meta::drop_deletion(&mut fresh);
                self.set_namespace(&mut fresh)?;
                resource.initial_status(&mut fresh);
                self.prepare(None, &mut fresh);
            }
            let name = meta::text(&fresh, "name").to_owned();
            rbac::check(self, if generated { "" } else { &name }, None, &fresh).await?;
            drop_duplicate_owners(&mut fresh, " after mutating admission happens", warnings);
            let reservation = assign::assign(self, None, &mut fresh, warnings).await?;
            let mut errors = meta::check_create(&fresh, resource);
            errors.extend(self.check(None, &fresh, warnings).map_err(over_budget)?);
            if errors.is_empty() {
                errors.extend(check_param_access(self, None, &fresh).await?);
            }
            if !errors.is_empty() {
                return Err(self.invalid(&name, &errors));
            }
            warnings.extend(warning::of(resource, self.subresource, None, &fresh));
            if insertion == Insertion::Upsert {
                self.may_create(&name).await?;
            }
            let converted = self.converted(&ownership, &fresh).await?;
            let attributes = self.attributes(&name, None);
            self.validate(&attributes, &fresh, &mut admission, warnings).await?;
            // No lock is held while plugins wait for webhooks, so what depends on other objects is decided here.
            let guard = self.lock(reservation.as_ref()).await;
            crd::accept_names(self.server, resource, self.subresource, None, &mut fresh);
            let key: Arc<str> = resource.key(self.namespace, &name).into();
            if self.context.dry_run {
                return match self.current(&name)? {
                    Some(_) => Err(Status::already_exists(&resource.group, &resource.plural, &name)),
                    None => Ok(WriteOutcome::DryRun(fresh)),
                };
            }
            let value = match converted {
                Some(value) => value,
                None => self.encode(&ownership, fresh).await?,
            };
            // Both may have changed while webhooks were asked, and only what they are now matters.
            let mut conditions = admission.conditions;
            conditions.extend(crd::must_accept(self.server, resource)?);
            if admission.in_namespace {
                conditions.extend(namespace_accepts(&attributes)?);
            }
            conditions.extend(fence::conditions(self.server, self.context)?);
            conditions.push(Condition::Absent(key.clone()));
            match self.committer(admission.writes).create(guard, &key, conditions, value).await {
                Ok(entry) => return Ok(WriteOutcome::Stored(entry)),
                Err(CommitError::Conflict { key: taken, .. }) if taken == key => {
                    attempts += 1;
                    if !generated {
                        return Err(Status::already_exists(&resource.group, &resource.plural, &name));
                    }
                    if attempts == NAME_ATTEMPTS {
                        let mut status =
                            Status::already_exists(&resource.group, &resource.plural, &name).retry_after(1);
                        status.message.push_str(", the server was not able to generate a unique name for the object");
                        return Err(status);
                    }
                }
                // The namespace or the definition has changed meanwhile: check again whether it accepts the object.
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(self.modified(meta::text(&object, "name")))
    }

    /// Changes an object that exists.
    async fn update(
        &self,
        name: &str,
        ownership: FieldOwnership,
        warnings: &mut Vec<String>,
        produce: impl Fn(&Value, &mut Vec<String>) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        let resource = self.resource;
        let warned_before = warnings.len();
        for _ in 0..MAX_CONFLICTS {
            // Each attempt checks the object again, and gives the same warnings.
            warnings.truncate(warned_before);
            let Some(entry) = self.current(name)? else { return Err(self.not_found(name)) };
            self.budget.spend((entry.value.len() / BYTES_PER_STEP) as u64);
            self.budget.check().map_err(over_budget)?;
            crd::must_be_current(self.server, resource)?;
            let mut old = resource.read_object(&entry).await?;
            // An object that was stored before there was a default has it now: adding it is not a change.
            defaults::fill(resource, &mut old, self.budget).map_err(over_budget)?;
            let mut new = produce(&old, warnings)?;
            self.set_namespace(&mut new)?;
            self.check_versioned(name, &new)?;
            self.same_version(name, &old, &new)?;
            resource.isolate(self.subresource, &old, &mut new);
            meta::carry_over(&old, &mut new);
            meta::drop_empty(&mut new);
            self.prepare(Some(&old), &mut new);
            defaults::fill(resource, &mut new, self.budget).map_err(over_budget)?;
            self.track_managers(&ownership, Some(&old), &mut new);
            let mut admission = Admission::default();
            let attributes = self.attributes(name, Some(&old));
            self.admit(&attributes, &mut new, &mut admission, warnings).await?;
            if admission.reinvocation.needed {
                // A policy or a webhook may change what its endpoint may not, and what the kind needs.
                self.set_namespace(&mut new)?;
                resource.isolate(self.subresource, &old, &mut new);
                meta::carry_over(&old, &mut new);
                self.prepare(Some(&old), &mut new);
            }
            rbac::check(self, name, Some(&old), &new).await?;
            drop_duplicate_owners(&mut new, " after mutating admission happens", warnings);
            let reservation = assign::assign(self, Some(&old), &mut new, warnings).await?;
            // Neither a status nor a binding changes the desired state, which the generation counts.
            if !matches!(self.subresource, Subresource::Status | Subresource::Binding | Subresource::Approval) {
                meta::count_generation(&old, &mut new, resource);
            }
            let mut errors = meta::check_update(&old, &new, resource);
            errors.extend(self.check(Some(&old), &new, warnings).map_err(over_budget)?);
            if errors.is_empty() {
                errors.extend(check_param_access(self, Some(&old), &new).await?);
            }
            if !errors.is_empty() {
                return Err(self.invalid(name, &errors));
            }
            warnings.extend(warning::of(resource, self.subresource, Some(&old), &new));
            // Kubernetes compares what is stored: an object in a version that is not stored any more is written anew, though its clients
            // see no change. Migrations to another version count on that.
            let is_stored_so = resource.is_stored_in_current_form(&entry);
            let converted = if new == old && is_stored_so { None } else { self.converted(&ownership, &new).await? };
            self.validate(&attributes, &new, &mut admission, warnings).await?;
            // No lock is held while plugins wait for webhooks, so what depends on other objects is decided here.
            let guard = self.lock(reservation.as_ref()).await;
            crd::accept_names(self.server, resource, self.subresource, Some(&old), &mut new);
            let is_same = new == old;
            if is_same && (is_stored_so || self.context.dry_run) {
                return Ok(if self.context.dry_run { WriteOutcome::DryRun(old) } else { WriteOutcome::Stored(entry) });
            }
            let finished = meta::is_terminating(&new) && can_be_removed(resource, &new);
            if self.context.dry_run {
                return Ok(if finished { WriteOutcome::Deleted(new) } else { WriteOutcome::DryRun(new) });
            }
            let mut conditions = vec![Condition::Unchanged(entry.key.clone(), entry.revision)];
            conditions.extend(crd::must_be_current(self.server, resource)?);
            conditions.extend(fence::conditions(self.server, self.context)?);
            conditions.extend(admission.conditions);
            let committer = self.committer(admission.writes);
            let committed = if finished {
                committer.remove(&entry, conditions).await.map(|revision| {
                    meta::of_mut(&mut new).insert("resourceVersion".into(), revision.0.to_string().into());
                    WriteOutcome::Deleted(new)
                })
            } else {
                let value = match converted {
                    Some(value) => value,
                    None => self.encode(&ownership, new).await?,
                };
                if is_same && value == entry.value {
                    return Ok(WriteOutcome::Stored(entry));
                }
                committer.replace(guard, &entry, conditions, value).await.map(WriteOutcome::Stored)
            };
            match committed {
                Ok(done) => return Ok(done),
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(self.modified(name))
    }

    /// The write as admission plugins see it.
    pub(crate) fn attributes<'a>(&'a self, name: &'a str, old: Option<&'a Value>) -> Attributes<'a> {
        let WriteRequest { server, context, resource, namespace, subresource, options, budget, .. } = *self;
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let name_prefix = "";
        Attributes {
            server,
            context,
            operation,
            resource,
            subresource,
            namespace,
            name,
            name_prefix,
            old,
            options,
            budget,
        }
    }

    fn committer(&self, with: Vec<konverge_store::Write>) -> Committer<'_> {
        Committer { server: self.server, context: self.context, resource: self.resource, with }
    }

    fn current(&self, name: &str) -> Result<Option<Entry>, Status> {
        self.server.store.get(&self.resource.key(self.namespace, name), None).map_err(Status::internal)
    }

    /// 409: another write came first.
    fn modified(&self, name: &str) -> Status {
        Status::modified(&self.resource.group, &self.resource.plural, name)
    }

    fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, name)
    }

    pub(crate) fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        Status::invalid(&self.resource.group, &self.resource.kind, name, errors)
    }
}

/// Removes owner references that are there twice, and warns of them in the words of kube-apiserver.
fn drop_duplicate_owners(object: &mut Value, when: &str, warnings: &mut Vec<String>) {
    let duplicates = meta::drop_duplicate_owners(object);
    if !duplicates.is_empty() {
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        ));
    }
}
