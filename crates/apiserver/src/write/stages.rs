//! What a create and an update go through between reading the object and committing it. In: an object. Out: the same, filled in,
//! admitted, checked or encoded, or the `Status` that says why not.

use bytes::Bytes;
use serde_json::Value;

use konverge_core::{FieldError, Status};
use konverge_schema::{Budget, FieldManager, FieldSet, OverBudget, check_required};

use super::{FieldOwnership, WriteRequest};
use crate::admission::{Admission, Attributes};
use crate::assign::Reservation;
use crate::authorize::{ResourceAttributes, authorize_verb};
use crate::commit_lock::CommitGuard;
use crate::env::rfc3339;
use crate::resource::Resource;
use crate::verb::Verb;
use crate::work::{INLINE_STEPS, over_budget};
use crate::{assign, crd, gated_fields, meta, namespace, record, scale, validation, write_only};

/// The largest object that is stored: what etcd takes in one request by default. An object that is too large here would be
/// too large on a cluster, and every reader, watcher and cache has to hold whole objects.
const MAX_OBJECT_BYTES: usize = 3 * 512 * 1024;

impl WriteRequest<'_> {
    /// Runs the plugins that change the object.
    pub(super) async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        admission: &mut Admission,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if self.admitted {
            return Ok(());
        }
        self.foresee_validation(attributes.old, object)?;
        let admitted = self.server.admission.admit(attributes, object, admission).await;
        warnings.append(&mut admission.warnings);
        admitted
    }

    /// Validates a custom resource before webhooks are asked, only to see what that takes. If it is more than the request may
    /// compute where it arrived, it moves to a thread of its own now: later it would ask all webhooks a second time.
    fn foresee_validation(&self, old: Option<&Value>, object: &Value) -> Result<(), Status> {
        let left = self.budget.steps_left();
        if !self.resource.custom || left > INLINE_STEPS || !self.server.webhooks.are_there(self.server) {
            return Ok(());
        }
        // Storing the object takes something, too.
        let trial = Budget::new(left - left / 8, u64::MAX);
        if crd::validate_object(&self.resource.schema, old, object, &mut Vec::new(), &trial).is_err() {
            self.budget.spend(INLINE_STEPS);
        }
        self.budget.check().map_err(over_budget)
    }

    /// Runs the plugins that only refuse.
    pub(super) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        admission: &mut Admission,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if self.admitted {
            return Ok(());
        }
        let validated = self.server.admission.validate(attributes, object, admission).await;
        warnings.append(&mut admission.warnings);
        validated
    }

    /// The bytes to store of an object that a webhook converts. It does so before plugins validate, because a quota makes other
    /// writes wait from then on until the commit.
    pub(super) async fn converted(&self, ownership: &FieldOwnership, new: &Value) -> Result<Option<Bytes>, Status> {
        if !self.resource.has_converter() || self.context.dry_run {
            return Ok(None);
        }
        self.encode(ownership, new.clone()).await.map(Some)
    }

    /// The lock for what the object has to be committed under: the names of a kind, or what a service has reserved.
    pub(super) async fn lock(&self, reservation: Option<&Reservation<'_>>) -> Option<CommitGuard<'_>> {
        match reservation {
            Some(_) => Some(self.server.service_lock.lock().await),
            None => crd::lock(self.server, self.resource).await,
        }
    }

    /// Fills in what some kinds need before defaulting.
    pub(super) fn prepare(&self, old: Option<&Value>, new: &mut Value) {
        write_only::merge(self.resource.behaviour, new);
        namespace::prepare(self.resource, old, new);
        crd::prepare(self.resource, self.subresource, old, new);
        gated_fields::drop_disabled(self.resource, old, new);
        assign::prepare(self.resource, old, new);
    }

    /// Records the manager of the fields that the write changes.
    pub(super) fn track_managers(&self, ownership: &FieldOwnership, old: Option<&Value>, new: &mut Value) {
        if let FieldOwnership::Changed = ownership {
            let now = rfc3339(self.server.env.now());
            self.field_manager(&now, &self.resource.not_written_through(self.subresource)).update(old, new);
        }
    }

    /// Records the manager of all fields of an object that the server itself makes.
    pub(crate) fn own_fields(&self, new: &mut Value) {
        self.track_managers(&FieldOwnership::Changed, None, new);
    }

    pub(super) fn field_manager<'w>(&'w self, now: &'w str, reset: &'w FieldSet) -> FieldManager<'w> {
        FieldManager {
            arena: &self.resource.schema.arena,
            ty: self.resource.schema.root,
            api_version: &self.api_version,
            kind: &self.resource.kind,
            subresource: self.subresource.name(),
            manager: &self.manager,
            reset,
            empty_object: &self.resource.empty_object,
            now,
        }
    }

    /// The errors of an object, except those of its metadata.
    pub(super) fn check(
        &self,
        old: Option<&Value>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<FieldError>, OverBudget> {
        let schema = &self.resource.schema;
        let privileged = self.server.privileged;
        if let Some(errors) = validation::check(self.resource, self.subresource, old, object, privileged, self.budget)?
        {
            return Ok(errors);
        }
        let mut errors = if self.resource.custom {
            let mut errors = crd::validate_object(schema, old, object, warnings, self.budget)?;
            let paths = self.resource.scale.as_ref();
            errors.extend(paths.into_iter().flat_map(|paths| scale::check(object, paths, self.subresource)));
            errors
        } else {
            check_required(&schema.arena, schema.root, object)
        };
        errors.extend(crd::check(self.resource, self.subresource, old, object, warnings, self.budget)?);
        Ok(errors)
    }

    /// The bytes to store. If they are too many, the managed fields are dropped, as kube-apiserver does, unless the write is
    /// a server-side apply.
    pub(super) async fn encode(&self, ownership: &FieldOwnership, object: Value) -> Result<Bytes, Status> {
        let mut object = self.resource.to_stored(object).await?;
        self.resource.default_stored(&mut object, self.budget).map_err(over_budget)?;
        let mut value = record::encode(&object);
        if value.len() > MAX_OBJECT_BYTES && matches!(ownership, FieldOwnership::Changed) {
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

    /// Asks whether the user may create the object.
    pub(super) async fn may_create(&self, name: &str) -> Result<(), Status> {
        let Resource { group, version, plural: resource, .. } = &**self.resource;
        let namespace = self.namespace.unwrap_or_default();
        let resource = ResourceAttributes { group, version, resource, namespace, name, ..Default::default() };
        authorize_verb(self.server, &self.context.user, Verb::Create, "", resource).await
    }
}
