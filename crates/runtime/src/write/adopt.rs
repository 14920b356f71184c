//! Adoption: an owner takes over an object that exists already and does not refer to it. In: the owner, and the object as
//! the cache has it. Out: whether the reference may be added, asked of the server where the cache may be too old to tell.
//!
//! An owner that is deleted without its children (`--cascade=orphan`) loses their references first. Whoever puts them
//! back meanwhile loses the children, because an object whose owners are all gone is collected. kube-controller-manager
//! asks the server before it adopts, too.

use konverge_core::ObjectKey;
use kube::core::ApiResource;
use tokio::sync::OnceCell;

use super::{ApplyOptions, Owner, Writer};
use crate::error::WriteError;
use crate::object::Object;

/// Whether an owner may take over objects that exist and do not refer to it.
#[derive(Clone, Copy, Debug, Default)]
pub enum Adopt<'a> {
    /// Yes, without asking: for callers that have just read the owner from the server.
    #[default]
    Always,
    /// Only if the server says that the owner exists and is not being deleted. A child that refers to the owner in the
    /// cache is written only if that is still its version: its reference may have been taken away since.
    IfAlive {
        /// The owner's kind.
        api: &'a ApiResource,
        /// Remembers the answer.
        check: &'a OwnerCheck,
    },
    /// No: the object is changed, but not taken over. For the cleanup of an owner that is being deleted.
    Never,
}

/// What the server says of an owner. It is asked when the first object is to be adopted, and once at most, so one of
/// these belongs to one reconcile.
#[derive(Debug, Default)]
pub struct OwnerCheck(OnceCell<Standing>);

#[derive(Debug)]
enum Standing {
    Alive,
    /// It must not adopt anything, because of this.
    Leaving(&'static str),
}

impl ApplyOptions<'_> {
    /// Whether an apply would add a reference to an object that has none to this owner.
    pub(super) fn adopts(&self, live: Option<&Object>) -> bool {
        self.reference_in(live) == Some(false)
    }

    /// The version that an object must still have when it is written, if its reference might have been taken away since.
    pub(super) fn expects<'o>(&self, live: Option<&'o Object>) -> Option<&'o str> {
        let guarded = !matches!(self.adopt, Adopt::Always) && self.reference_in(live) == Some(true);
        live.filter(|_| guarded).map(Object::resource_version).filter(|version| !version.is_empty())
    }

    /// Whether an object refers to the owner; none if there is no object, or nothing that could refer.
    fn reference_in(&self, live: Option<&Object>) -> Option<bool> {
        let (owner, live) = (self.owner?, live?);
        owner.may_own(&live.key()).then(|| live.owners().any(|one| one.uid == owner.uid))
    }
}

impl Writer {
    /// Refuses an adoption by an owner that is going or gone. The refusal is a conflict: what the caller knows of the
    /// owner is old, and the watch is about to bring what is new.
    pub(super) async fn check_owner(
        &self,
        api: &ApiResource,
        owner: &Owner,
        child: &ObjectKey,
        check: &OwnerCheck,
    ) -> Result<(), WriteError> {
        let ask = async || {
            let Some(live) = self.get_object(api, &owner.key).await? else { return Ok(Standing::Leaving("is gone")) };
            Ok::<_, WriteError>(match live.uid() == owner.uid {
                false => Standing::Leaving("was replaced by another object of its name"),
                true if live.is_terminating() => Standing::Leaving("is being deleted"),
                true => Standing::Alive,
            })
        };
        match check.0.get_or_try_init(ask).await? {
            Standing::Alive => Ok(()),
            Standing::Leaving(why) => Err(WriteError::Conflict {
                message: format!("{} {} {why}, so it does not adopt {child}", owner.kind, owner.key),
                fields: Vec::new(),
            }),
        }
    }
}
