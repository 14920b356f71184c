//! The last stage of every write: one commit of the store. In: bytes or a key to remove, and the conditions under which that
//! is right. Out: the record as it is stored, or why not. After a commit the registry follows it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use konverge_core::Status;
use konverge_store::{Commit, CommitError, Condition, Entry, Revision, Write as StoreWrite};

use crate::admission::{Policies, Webhooks};
use crate::assign::IpAddressChanges;
use crate::commit_lock::CommitGuard;
use crate::context::RequestContext;
use crate::crd;
use crate::meta;
use crate::rbac;
use crate::record;
use crate::resource::Resource;
use crate::server::Server;

/// How often a write is tried again after a conflict. Each conflict means that another write succeeded, so only far too many
/// writers of one object reach this limit; kube-apiserver goes on until the request times out.
pub(crate) const MAX_CONFLICTS: usize = 100;

/// Creates those of the objects that do not exist yet, at the start of the server. The objects have no namespace.
pub(crate) async fn create_missing(
    server: &Server,
    resource: &Resource,
    objects: impl IntoIterator<Item = Value>,
) -> Result<(), CommitError> {
    // All commits begin before the first one is awaited, so that they share one fsync.
    let commits = objects.into_iter().map(|mut object| {
        meta::initialize(&mut object, resource, &*server.env);
        let key: Arc<str> = resource.key(None, meta::text(&object, "name")).into();
        let conditions = vec![Condition::Absent(key.clone())];
        let writes = vec![StoreWrite::Put(key, record::encode(&object))];
        server.store.commit(Commit { conditions, writes })
    });
    for commit in commits.collect::<Vec<_>>() {
        match commit.await {
            Ok(_) | Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Commits changes of one resource for one request.
pub(crate) struct Committer<'a> {
    pub server: &'a Server,
    pub context: &'a RequestContext,
    pub resource: &'a Resource,
    /// What is committed together with the object.
    pub with: Vec<StoreWrite>,
}

impl Committer<'_> {
    /// Stores a new object.
    pub(crate) async fn create(
        self,
        guard: Option<CommitGuard<'_>>,
        key: &Arc<str>,
        conditions: Vec<Condition>,
        value: Bytes,
    ) -> Result<Entry, CommitError> {
        let write = StoreWrite::Put(key.clone(), value.clone());
        let revision = self.commit(guard, None, conditions, write).await?;
        Ok(Entry { key: key.clone(), value, revision, created: revision })
    }

    /// Stores another version of an object.
    pub(crate) async fn replace(
        self,
        guard: Option<CommitGuard<'_>>,
        before: &Entry,
        conditions: Vec<Condition>,
        value: Bytes,
    ) -> Result<Entry, CommitError> {
        let Entry { key, created, .. } = before;
        let write = StoreWrite::Put(key.clone(), value.clone());
        let revision = self.commit(guard, Some(before), conditions, write).await?;
        Ok(Entry { key: key.clone(), value, revision, created: *created })
    }

    /// Removes an object.
    pub(crate) async fn remove(self, before: &Entry, conditions: Vec<Condition>) -> Result<Revision, CommitError> {
        self.commit(None, Some(before), conditions, StoreWrite::Delete(before.key.clone())).await
    }

    /// Commits, under the lock that the write holds, if any.
    async fn commit(
        self,
        guard: Option<CommitGuard<'_>>,
        before: Option<&Entry>,
        mut conditions: Vec<Condition>,
        write: StoreWrite,
    ) -> Result<Revision, CommitError> {
        let key = write.key().clone();
        let before = before.map(|entry| &*entry.value);
        let after = write.value().map(|value| &**value);
        let addresses = IpAddressChanges::of(self.server, self.resource, &key, before, after);
        conditions.extend(addresses.conditions);
        let writes = std::iter::once(write).chain(self.with).chain(addresses.writes).collect();
        let committing = self.server.store.commit(Commit { conditions, writes });
        let revision = match guard {
            Some(mut guard) => guard.commit(committing).await?,
            None => committing.await?,
        };
        let RequestContext { user, audit_id, .. } = self.context;
        tracing::debug!(%audit_id, user = user.name, %key, revision = revision.0, "committed a change");
        crd::committed(self.server, self.resource);
        rbac::committed(self.server, self.resource);
        Policies::committed(self.server, self.resource);
        Webhooks::committed(self.server, self.resource);
        Ok(revision)
    }
}

/// 503: the store cannot write. The client may try again; somebody has to look at the disk.
pub(crate) fn unavailable(error: &CommitError) -> Status {
    Status::failure(503, "ServiceUnavailable", format!("the store cannot write: {error}")).retry_after(1)
}
