//! Server-side apply. In: a configuration. Out: the object it is merged into, written as an update, or as a create if there is
//! none.

use serde_json::{Value, json};

use konverge_core::{GroupVersion, Status};

use super::receive::{duplicate_fields, not_an_object, whole_numbers};
use super::{FieldOwnership, Insertion, WriteOutcome, WriteRequest};
use crate::commit::MAX_CONFLICTS;
use crate::decode::Decoded;
use crate::env::rfc3339;
use crate::resource::ScalePaths;
use crate::subresource::Subresource;
use crate::{meta, scale};

impl WriteRequest<'_> {
    /// Applies a configuration: merges it into the object, or creates the object.
    pub(crate) async fn apply(
        &self,
        name: &str,
        force: bool,
        sent: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let mut config = sent.value;
        whole_numbers(&mut config);
        if let Some((GroupVersion { group, version }, kind, _)) = self.foreign(&config) {
            return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        if !config.is_object() {
            return Err(not_an_object());
        }
        // The merge itself refuses a configuration without apiVersion and kind, and fields that the schema does not declare.
        let duplicates = duplicate_fields(&sent.duplicates);
        self.report(duplicates, warnings).map_err(|why| self.undecodable(&why))?;
        if !config["metadata"].is_object() {
            config["metadata"] = json!({});
        }
        // A configuration for an object that exists need not repeat its name.
        if !meta::text(&config, "name").is_empty() {
            self.same_name(name, &config)?;
        }
        // Errors show the configuration as it was sent, so that it does not get the namespace of the request.
        self.set_namespace(&mut json!({"metadata": {"namespace": config["metadata"]["namespace"]}}))?;
        let applied = |live: Option<&Value>| self.merged(live, &config, force);
        // The object may be created or deleted in between: then the other way is tried.
        let warned_before = warnings.len();
        for _ in 0..MAX_CONFLICTS {
            warnings.truncate(warned_before);
            match self.update(name, FieldOwnership::Decided, warnings, |current, _| applied(Some(current))).await {
                Err(status) if status.reason == "NotFound" && self.subresource == Subresource::Main => {}
                outcome => return outcome,
            }
            if !meta::text(&config, "resourceVersion").is_empty() || !meta::text(&config, "uid").is_empty() {
                let why = "the object is absent, and its resourceVersion or uid is given; remove them to create it";
                return Err(Status::conflict(&self.resource.group, &self.resource.plural, name, why));
            }
            self.same_name(name, &config)?;
            match self.insert(applied(None)?, Insertion::Upsert, FieldOwnership::Decided, warnings).await {
                Err(status) if status.reason == "AlreadyExists" && !self.context.dry_run => {}
                outcome => return outcome,
            }
        }
        Err(self.modified(name))
    }

    /// Applies a Scale to the object that it is the scale of.
    pub(crate) async fn apply_scale(
        &self,
        name: &str,
        force: bool,
        sent: &Decoded,
        paths: &ScalePaths,
        warnings: &mut Vec<String>,
    ) -> Result<WriteOutcome, Status> {
        let scale = &sent.value;
        let duplicates = duplicate_fields(&sent.duplicates);
        self.report(duplicates, warnings).map_err(|why| scale::undecodable(&why))?;
        if !scale["metadata"]["managedFields"].is_null() {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        self.update(name, FieldOwnership::Decided, warnings, |current, _| {
            let config = scale::configuration(current, scale, self.resource, paths)?;
            scale::with_number(self.merged(Some(current), &config, force)?, paths)
        })
        .await
    }

    /// The object as server-side apply merges a configuration into it.
    pub(crate) fn merged(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, Status> {
        let now = rfc3339(self.server.env.now());
        let mut merged = self
            .field_manager(&now, &self.resource.not_written_through(self.subresource))
            .apply(live, config, force)
            .map_err(|error| error.status())?;
        // The merge leaves null where a map lost its last entry.
        self.prune(&mut merged);
        if self.resource.custom {
            // What the configuration itself has is validated as it is.
            restore_nulls(config, &mut merged);
        }
        self.check_merged(config, &merged)?;
        Ok(merged)
    }
}

/// Puts the nulls of a configuration back where pruning left nothing, besides those of the metadata.
fn restore_nulls(config: &Value, merged: &mut Value) {
    fn restore(config: &Value, merged: &mut Value) {
        let (Value::Object(config), Value::Object(merged)) = (config, merged) else { return };
        for (name, value) in config {
            match merged.get_mut(name) {
                Some(field) => restore(value, field),
                None if value.is_null() => {
                    merged.insert(name.clone(), Value::Null);
                }
                None => {}
            }
        }
    }
    for (name, value) in config.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        if let Some(field) = merged.get_mut(name) {
            restore(value, field);
        }
    }
}
