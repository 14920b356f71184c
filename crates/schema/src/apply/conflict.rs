//! Conflicts between field managers, and the other errors of an apply.
//! In: the fields that an apply would change and their owners. Out: the conflicts, and the `Status` to answer with.

use std::fmt;

use konverge_core::Status;

use crate::field_set::{FieldSet, FieldSetPath};
use crate::managed_fields::{ManagedEntry, ManagedFields, ManagedFieldsError};

/// One field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, as error messages name it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field.
    pub path: FieldSetPath,
}

/// Every field that an apply would take from other managers; never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

/// Why an apply failed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApplyError {
    /// The request is invalid: 400.
    #[error("{0}")]
    BadRequest(String),
    /// Other managers own the fields: 409, unless forced.
    #[error("{0}")]
    Conflict(Conflicts),
    /// The configuration does not fit its type: 500, as in Kubernetes.
    #[error("failed to create typed patch object ({object}): {why}")]
    Typed {
        /// Namespace, name, version and kind.
        object: String,
        /// The fields that do not fit, and why.
        why: String,
    },
    /// The object's managers cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] ManagedFieldsError),
}

impl ApplyError {
    /// The answer to the client.
    pub fn status(&self) -> Status {
        match self {
            Self::BadRequest(why) => Status::bad_request(why.as_str()),
            Self::Conflict(conflicts) => {
                let status = Status::failure(409, "Conflict", conflicts.to_string());
                conflicts.0.iter().fold(status, |status, conflict| {
                    let message = format!("conflict with {}", conflict.manager);
                    status.with_cause("FieldManagerConflict", &message, &conflict.path.to_string())
                })
            }
            Self::Typed { .. } | Self::ManagedFields(_) => Status::failure(500, "", self.to_string()),
        }
    }
}

/// Fails if managers other than `this` own some of the `fields`.
pub(super) fn find_conflicts(managed: &ManagedFields, this: &ManagedEntry, fields: &FieldSet) -> Result<(), Conflicts> {
    let conflicts: Vec<_> = (managed.entries.iter())
        .filter(|entry| !entry.is_same_manager(this))
        .map(|entry| (entry, entry.fields.intersection(fields)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    if conflicts.is_empty() { Ok(()) } else { Err(Conflicts::new(conflicts)) }
}

impl Conflicts {
    /// One conflict for each field, managers in Kubernetes' order.
    fn new(mut taken: Vec<(&ManagedEntry, FieldSet)>) -> Self {
        taken.sort_by(|(a, _), (b, _)| a.by_identity(b));
        let each = taken.into_iter().flat_map(|(entry, fields)| {
            let manager = entry.describe();
            fields.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        });
        Self(each.collect())
    }

    /// The conflicts without those over these fields.
    pub(super) fn outside(self, fields: &FieldSet) -> Self {
        Self(self.0.into_iter().filter(|conflict| !fields.has(&conflict.path.0)).collect())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Conflict { manager, path }] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let groups = self.0.chunk_by(|a, b| a.manager == b.manager);
        for (at, group) in groups.enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            write!(f, "{newline}conflicts with {}:", group[0].manager)?;
            group.iter().try_for_each(|conflict| write!(f, "\n- {}", conflict.path))?;
        }
        Ok(())
    }
}
