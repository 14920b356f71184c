//! Writing: the one path of every create and update. In: a resource, a namespace and what the client sent. Out: a committed
//! object, or the `Status` that says why not.
//!
//! ```text
//! create   receive → set namespace → name → prepare → default → manage fields → assign → validate → commit
//! update   read → produce → isolate → carry over → prepare → default → manage fields → assign → validate → commit, and
//!          again from the start after a conflict
//! ```
//!
//! Nothing is stored before the commit; a write that changes nothing is not committed.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, GroupVersion, Status};
use konverge_schema::{Budget, FieldSet, OverBudget, Writer, check_required, check_types, prune, validate};
use konverge_store::{Commit, CommitError, Condition, Entry, Revision, Write as StoreWrite};

use crate::context::RequestContext;
use crate::decode::Decoded;
use crate::env::rfc3339;
use crate::part::Part;
use crate::request::FieldValidation;
use crate::resource::Resource;
use crate::server::Server;
use crate::turns::Turn;
use crate::work::over_budget;
use crate::{assign, crd, defaults, fold, meta, namespace, record, workload};

/// How often another name is generated when one is taken.
const NAME_ATTEMPTS: usize = 8;

/// How often a write is tried again after a conflict. Each conflict means that another write succeeded, so only far too many
/// writers of one object reach this limit; kube-apiserver goes on until the request times out.
pub(crate) const MAX_CONFLICTS: usize = 100;

/// The largest object that is stored: what etcd takes in one request by default. An object that is too large here would be
/// too large on a cluster, and every reader, watcher and cache has to hold whole objects.
const MAX_OBJECT_BYTES: usize = 3 * 512 * 1024;

/// Reading and writing this many bytes of a stored object takes as long as one step of other work.
const BYTES_PER_STEP: usize = 8;

/// How many unknown or duplicate fields are reported: as many as kube-apiserver reports.
const MAX_STRICT_ERRORS: usize = 100;

/// One create or update, as its request describes it.
pub(crate) struct Write<'a> {
    pub server: &'a Server,
    /// Who writes, and whether the result is persisted.
    pub context: &'a RequestContext,
    pub resource: &'a Arc<Resource>,
    pub namespace: Option<&'a str>,
    pub part: Part,
    pub validation: FieldValidation,
    pub manager: String,
    pub api_version: String,
    /// What the write may cost until it commits.
    pub budget: &'a Budget,
}

/// What a write or a deletion did.
#[derive(Debug)]
pub(crate) enum Done {
    /// This record is in the store now.
    Kept(Entry),
    /// A dry run: this object would be stored.
    Dry(Value),
    /// The object was removed from the store; this is its last state.
    Gone(Value),
}

/// Which fields a write records its manager for.
enum Owning {
    /// Those that it changed.
    Changed,
    /// None: server-side apply has recorded them, or nobody manages them.
    Decided,
}

impl Write<'_> {
    /// Creates an object.
    pub async fn create(&self, sent: Decoded, warnings: &mut Vec<String>) -> Result<Done, Status> {
        let object = self.receive(sent, warnings)?;
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
        }
        self.insert(object, Owning::Changed, warnings).await
    }

    /// Replaces an object. Kinds that allow it create an object that does not exist.
    pub async fn replace(&self, name: &str, sent: Decoded, warnings: &mut Vec<String>) -> Result<Done, Status> {
        let object = self.receive(sent, warnings)?;
        self.same_name(name, &object)?;
        let exists = self.current(name)?.is_some();
        if !exists && self.part == Part::Main && self.resource.behaviour.put_creates {
            self.same_uid(name, "", &object)?;
            return self.insert(object, Owning::Changed, warnings).await;
        }
        let unconditional = !self.resource.behaviour.update_needs_version || self.server.lenient_updates;
        if meta::text(&object, "resourceVersion").is_empty() && !unconditional && exists {
            let path = FieldPath::new("metadata").child("resourceVersion");
            let error = FieldError::invalid(path, 0.into(), "must be specified for an update");
            // kube-apiserver names the resource in this error, and the kind in others.
            return Err(Status::invalid(&self.resource.group, &self.resource.plural, name, &[error]));
        }
        self.update(name, Owning::Changed, warnings, |current, _| {
            self.same_uid(name, meta::text(current, "uid"), &object)?;
            Ok(object.clone())
        })
        .await
    }

    /// Changes an object by what `patched` makes of it.
    pub async fn patch(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        patched: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Done, Status> {
        self.update(name, Owning::Changed, warnings, |current, warnings| {
            let value = patched(current)?;
            let object = self.receive(Decoded { value, duplicates: Vec::new() }, warnings);
            // Whatever is wrong with a patched object is an error of the patch.
            let object = object.map_err(|status| {
                let why = status.message.strip_prefix(&self.undecodable("").message).unwrap_or(&status.message);
                let made = patched(current).map(|value| value.to_string()).unwrap_or_default();
                let error = FieldError::invalid(FieldPath::new("patch"), made.into(), why);
                Status::invalid("", "", "", &[error])
            })?;
            self.same_name(name, &object)?;
            Ok(object)
        })
        .await
    }

    /// Changes an object to what `produce` makes of the current one.
    pub async fn alter(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
        produce: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Done, Status> {
        self.update(name, Owning::Changed, warnings, |current, _| produce(current)).await
    }

    /// The same, without recording a field manager.
    pub async fn amend(&self, name: &str, produce: impl Fn(&Value) -> Result<Value, Status>) -> Result<Done, Status> {
        self.update(name, Owning::Decided, &mut Vec::new(), |current, _| produce(current)).await
    }

    /// Applies a configuration: merges it into the object, or creates the object.
    pub async fn apply(
        &self,
        name: &str,
        force: bool,
        sent: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<Done, Status> {
        let mut config = sent.value;
        self.identify(&mut config)?;
        // The merge itself refuses fields that the schema does not declare.
        self.report(&sent.duplicates, Vec::new(), warnings)?;
        if !config["metadata"].is_object() {
            config["metadata"] = json!({});
        }
        // A configuration for an object that exists need not repeat its name.
        if !meta::text(&config, "name").is_empty() {
            self.same_name(name, &config)?;
        }
        self.place(&mut config)?;
        let applied = |live: Option<&Value>| {
            let now = rfc3339(self.server.env.now());
            self.writer(&now, &self.resource.not_written_through(self.part))
                .apply(live, &config, force)
                .map(|mut object| {
                    // The merge leaves null where a map lost its last entry.
                    self.prune(&mut object);
                    object
                })
                .map_err(|error| error.status().about(&self.resource.group, &self.resource.plural, name))
        };
        // The object may be created or deleted between the read and the write: then the other way is tried.
        for _ in 0..MAX_CONFLICTS {
            let exists = self.current(name)?.is_some();
            let done = if exists {
                self.update(name, Owning::Decided, warnings, |current, _| applied(Some(current))).await
            } else if self.part != Part::Main {
                return Err(self.not_found(name));
            } else if !meta::text(&config, "resourceVersion").is_empty() || !meta::text(&config, "uid").is_empty() {
                let why = "the object is absent, and its resourceVersion or uid is given; remove them to create it";
                return Err(Status::conflict(&self.resource.group, &self.resource.plural, name, why));
            } else {
                self.same_name(name, &config)?;
                self.insert(applied(None)?, Owning::Decided, warnings).await
            };
            match done {
                Err(status) if exists && status.reason == "NotFound" => {}
                Err(status) if !exists && status.reason == "AlreadyExists" && !self.context.dry_run => {}
                done => return done,
            }
        }
        Err(self.modified(name))
    }

    /// Adds an object that does not exist yet.
    async fn insert(&self, mut object: Value, owning: Owning, warnings: &mut Vec<String>) -> Result<Done, Status> {
        let resource = self.resource;
        self.place(&mut object)?;
        let generated = meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty();
        resource.initial_status(&mut object);
        let mut attempts = 0;
        for _ in 0..MAX_CONFLICTS {
            let mut fresh = object.clone();
            meta::born(&mut fresh, resource, &*self.server.env);
            meta::tidy(&mut fresh);
            let mut conditions = Vec::new();
            conditions.extend(namespace::must_accept(self.server, resource, self.namespace, &fresh)?);
            conditions.extend(crd::must_accept(self.server, resource)?);
            let turn = crd::turn(self.server, resource).await;
            self.prepare(None, &mut fresh)?;
            defaults::fill(resource, &mut fresh, self.budget).map_err(over_budget)?;
            self.own(&owning, None, &mut fresh);
            let turn = assign::assign(self, None, &mut fresh).await?.or(turn);
            let mut errors = meta::check_create(&fresh, resource);
            errors.extend(self.check(None, &fresh, warnings).map_err(over_budget)?);
            let name = meta::text(&fresh, "name").to_owned();
            if !errors.is_empty() {
                return Err(self.invalid(&name, &errors));
            }
            let key: Arc<str> = resource.key(self.namespace, &name).into();
            if self.context.dry_run {
                return match self.current(&name)? {
                    Some(_) => Err(Status::already_exists(&resource.group, &resource.plural, &name)),
                    None => Ok(Done::Dry(fresh)),
                };
            }
            conditions.push(Condition::Absent(key.clone()));
            let value = self.encode(&owning, fresh).await?;
            match self.commit(turn, &key, conditions, value, None).await {
                Ok(entry) => return Ok(Done::Kept(entry)),
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
        owning: Owning,
        warnings: &mut Vec<String>,
        produce: impl Fn(&Value, &mut Vec<String>) -> Result<Value, Status>,
    ) -> Result<Done, Status> {
        let resource = self.resource;
        for _ in 0..MAX_CONFLICTS {
            let Some(entry) = self.current(name)? else { return Err(self.not_found(name)) };
            self.budget.spend((entry.value.len() / BYTES_PER_STEP) as u64);
            self.budget.check().map_err(over_budget)?;
            let current = crd::must_be_current(self.server, resource)?;
            let mut old = resource.read_object(&entry).await?;
            // An object that was stored before there was a default has it now: adding it is not a change.
            defaults::fill(resource, &mut old, self.budget).map_err(over_budget)?;
            let mut said = Vec::new();
            let mut new = produce(&old, &mut said)?;
            self.place(&mut new)?;
            self.same_version(name, &old, &new)?;
            resource.isolate(self.part, &old, &mut new);
            meta::carry_over(&old, &mut new);
            meta::tidy(&mut new);
            let turn = crd::turn(self.server, resource).await;
            self.prepare(Some(&old), &mut new)?;
            defaults::fill(resource, &mut new, self.budget).map_err(over_budget)?;
            self.own(&owning, Some(&old), &mut new);
            let turn = assign::assign(self, Some(&old), &mut new).await?.or(turn);
            // Neither a status nor a binding changes the desired state, which the generation counts.
            if !matches!(self.part, Part::Status | Part::Binding) {
                meta::count_generation(&old, &mut new, resource);
            }
            let mut errors = meta::check_update(&old, &new);
            errors.extend(meta::check_immutable(&old, &new, resource));
            errors.extend(self.check(Some(&old), &new, &mut said).map_err(over_budget)?);
            if !errors.is_empty() {
                return Err(self.invalid(name, &errors));
            }
            warnings.append(&mut said);
            if new == old {
                return Ok(if self.context.dry_run { Done::Dry(old) } else { Done::Kept(entry) });
            }
            let finished = meta::is_terminating(&new) && crate::delete::may_go(resource, &new);
            if self.context.dry_run {
                return Ok(if finished { Done::Gone(new) } else { Done::Dry(new) });
            }
            let mut conditions = vec![Condition::Unchanged(entry.key.clone(), entry.revision)];
            conditions.extend(current);
            let committed = if finished {
                crate::delete::remove(self.server, self.context, resource, &entry, conditions).await.map(|revision| {
                    meta::of_mut(&mut new).insert("resourceVersion".into(), revision.0.to_string().into());
                    Done::Gone(new)
                })
            } else {
                let value = self.encode(&owning, new).await?;
                self.commit(turn, &entry.key, conditions, value, Some(&entry)).await.map(Done::Kept)
            };
            match committed {
                Ok(done) => return Ok(done),
                Err(CommitError::Conflict { .. }) => warnings.clear(),
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(self.modified(name))
    }

    /// Turns what the client sent into an object of this kind: the right type, known fields, well-formed metadata.
    fn receive(&self, sent: Decoded, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let mut object = sent.value;
        self.identify(&mut object)?;
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        let schema = &self.resource.schema;
        let typed = if self.resource.custom {
            schema.arena.field(schema.root, "metadata").map(|metadata| (metadata, &object["metadata"]))
        } else {
            Some((schema.root, &object))
        };
        if let Some((root, value)) = typed
            && let Err(problem) = check_types(&schema.arena, root, value)
        {
            return Err(self.undecodable(&problem.to_string()));
        }
        let unknown = self.prune(&mut object);
        self.report(&sent.duplicates, unknown, warnings)?;
        Ok(object)
    }

    /// Checks that apiVersion and kind are those that this endpoint serves.
    fn identify(&self, object: &mut Value) -> Result<(), Status> {
        let Some(fields) = object.as_object_mut() else {
            return Err(Status::bad_request("the request body must be a JSON object: an API object"));
        };
        let (expect_version, expect_kind) = (self.resource.api_version(), &*self.resource.kind);
        for (field, expect) in [("apiVersion", expect_version.as_str()), ("kind", expect_kind)] {
            match fields.get(field) {
                Some(Value::String(given)) if given == expect => {}
                // An object of a built-in kind may leave them out; a custom resource has to have them.
                None | Some(Value::Null) if !self.resource.custom => {
                    fields.insert(field.into(), expect.into());
                }
                Some(Value::String(given)) if field == "apiVersion" && GroupVersion::parse(given).is_some() => {
                    return Err(Status::bad_request(format!(
                        "the API version in the data ({given}) does not match the expected API version ({expect})"
                    )));
                }
                Some(Value::String(given)) if field == "kind" && !given.is_empty() => {
                    return Err(Status::bad_request(format!(
                        "the kind in the data ({given}) does not match the expected kind ({expect})"
                    )));
                }
                _ => {
                    let missing = if field == "kind" { "Kind" } else { "apiVersion" };
                    return Err(Status::bad_request(format!(
                        "Object '{missing}' is missing in the request body; set {field}: {expect}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Removes fields that the schema does not know, and names them.
    fn prune(&self, object: &mut Value) -> Vec<String> {
        let schema = &self.resource.schema;
        prune(&schema.arena, schema.root, object, self.resource.flavour())
    }

    /// Refuses, warns about or ignores what strict decoding found, by the request's `fieldValidation`.
    fn report(&self, duplicates: &[String], unknown: Vec<String>, warnings: &mut Vec<String>) -> Result<(), Status> {
        let duplicates = duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
        let unknown = unknown.into_iter().map(|path| format!("unknown field \"{path}\""));
        let found: Vec<String> = duplicates.chain(unknown).take(MAX_STRICT_ERRORS).collect();
        match self.validation {
            _ if found.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                warnings.extend(found);
                Ok(())
            }
            FieldValidation::Strict => Err(self.undecodable(&format!("strict decoding error: {}", found.join(", ")))),
        }
    }

    fn undecodable(&self, why: &str) -> Status {
        let Resource { kind, version, .. } = &**self.resource;
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    }

    /// Makes sure that the object has the namespace of the request.
    fn place(&self, object: &mut Value) -> Result<(), Status> {
        let given = meta::text(object, "namespace").to_owned();
        match self.namespace {
            Some(namespace) if given.is_empty() => {
                meta::of_mut(object).insert("namespace".into(), namespace.into());
            }
            Some(namespace) if given != namespace => {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            None => {
                meta::of_mut(object).remove("namespace");
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses a write whose resourceVersion is not the current one.
    fn same_version(&self, name: &str, old: &Value, new: &Value) -> Result<(), Status> {
        let version = meta::text(new, "resourceVersion");
        if !version.is_empty() && version != "0" && version != meta::text(old, "resourceVersion") {
            return Err(self.modified(name));
        }
        Ok(())
    }

    /// Refuses to replace another object of the same name.
    fn same_uid(&self, name: &str, uid: &str, new: &Value) -> Result<(), Status> {
        let given = meta::text(new, "uid");
        if !given.is_empty() && given != uid {
            let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
            return Err(Status::conflict(&self.resource.group, &self.resource.plural, name, &why));
        }
        Ok(())
    }

    /// Makes sure that the object has the name of the request.
    fn same_name(&self, name: &str, object: &Value) -> Result<(), Status> {
        match meta::text(object, "name") {
            "" => Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            ))),
            given if given != name => Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            ))),
            _ => Ok(()),
        }
    }

    /// Fills in what some kinds need before defaulting.
    fn prepare(&self, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
        fold::fold(self.resource.behaviour, new);
        namespace::prepare(self.resource, new);
        crd::prepare(self.server, self.resource, self.part, old, new)
    }

    /// Records the manager of the fields that the write changes.
    fn own(&self, owning: &Owning, old: Option<&Value>, new: &mut Value) {
        if let Owning::Changed = owning {
            let now = rfc3339(self.server.env.now());
            self.writer(&now, &self.resource.not_written_through(self.part)).update(old, new);
        }
    }

    fn writer<'w>(&'w self, now: &'w str, reset: &'w FieldSet) -> Writer<'w> {
        Writer {
            arena: &self.resource.schema.arena,
            ty: self.resource.schema.root,
            api_version: &self.api_version,
            kind: &self.resource.kind,
            subresource: self.part.name(),
            manager: &self.manager,
            reset,
            blank: &self.resource.blank,
            now,
        }
    }

    /// The errors of an object, except those of its metadata.
    fn check(
        &self,
        old: Option<&Value>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<FieldError>, OverBudget> {
        let schema = &self.resource.schema;
        let mut errors = if self.resource.custom {
            validate(&schema.arena, schema.root, object, self.budget)?
        } else {
            check_required(&schema.arena, schema.root, object)
        };
        errors.extend(meta::check_data(object, self.resource));
        errors.extend(crd::check(self.resource, old, object, warnings, self.budget)?);
        errors.extend(workload::check(self.resource.behaviour.workload, old, object));
        Ok(errors)
    }

    /// The bytes to store. If they are too many, the managed fields are dropped, as kube-apiserver does, unless the write is
    /// a server-side apply.
    async fn encode(&self, owning: &Owning, object: Value) -> Result<Bytes, Status> {
        let mut object = self.resource.to_stored(object).await?;
        self.resource.default_stored(&mut object, self.budget).map_err(over_budget)?;
        let mut value = record::encode(&object);
        if value.len() > MAX_OBJECT_BYTES && matches!(owning, Owning::Changed) {
            meta::of_mut(&mut object).remove("managedFields");
            value = record::encode(&object);
        }
        if value.len() > MAX_OBJECT_BYTES {
            let (name, length) = (meta::text(&object, "name"), value.len());
            // kube-apiserver answers 500 with etcd's words. Sending the same again does not help, so this is a 413.
            return Err(Status::too_large(format!(
                "etcdserver: request is too large: {name:?} would take {length} bytes, and the limit is \
                 {MAX_OBJECT_BYTES}; make it smaller or split it"
            )));
        }
        Ok(value)
    }

    /// Commits, under the lock that this write holds, if any.
    async fn commit(
        &self,
        turn: Option<Turn<'_>>,
        key: &Arc<str>,
        conditions: Vec<Condition>,
        value: Bytes,
        before: Option<&Entry>,
    ) -> Result<Entry, CommitError> {
        let writes = vec![StoreWrite::Put(key.clone(), value.clone())];
        let committing = self.server.store.commit(Commit { conditions, writes });
        let revision = match turn {
            Some(mut turn) => turn.commit(committing).await?,
            None => committing.await?,
        };
        committed(self.server, self.context, self.resource, key, revision);
        let created = before.map_or(revision, |entry| entry.created);
        Ok(Entry { key: key.clone(), value, revision, created })
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

    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        Status::invalid(&self.resource.group, &self.resource.kind, name, errors)
    }
}

/// What follows from a change that is in the store.
pub(crate) fn committed(server: &Server, context: &RequestContext, resource: &Resource, key: &str, revision: Revision) {
    let RequestContext { user, audit_id, .. } = context;
    tracing::debug!(%audit_id, user = user.name, key, revision = revision.0, "committed a change");
    crd::committed(server, resource);
}

/// 503: the store cannot write. The client may try again; somebody has to look at the disk.
pub(crate) fn unavailable(error: &CommitError) -> Status {
    Status::failure(503, "ServiceUnavailable", format!("the store cannot write: {error}")).retry_after(1)
}

#[cfg(test)]
mod tests;
