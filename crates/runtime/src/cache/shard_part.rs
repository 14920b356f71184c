//! Caches of an instance that works on a part of the objects. In: the shards that this instance holds. Out: which objects are kept in
//! full; of all others a stub is left, which is enough to know their shard and to notice changes. When a shard comes, its objects are read
//! from the server; when it goes, they become stubs again.
//!
//! ```text
//! a shard comes → what the watch brings of it is kept in full → a list fills the stubs that are left → the shard is complete
//! ```
//!
//! Each shard is complete by itself, in its term: reads for one shard do not wait for another that comes.
//!
//! No change is lost and nothing comes back that is gone, because a list only fills a stub of just that version. What the list shows in
//! another version, or what it does not show, is the watch's to bring: it brings every change, and in full from then on.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use konverge_core::ObjectKey;
use konverge_leadership::Shards;
use kube::Client;
use kube::api::ListParams;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch as channel;

use super::{Cache, Core};
use crate::object::{Mode, Object};
use crate::watch::{Target, WatchSettings};
use crate::write::OWNER_LABEL;

/// How long one page may take, as with the list of a watch.
const PAGE_WITHIN: Duration = Duration::from_secs(60);

/// After a list, stubs may be left whose newest version the watch has not brought. It mostly does so at once; otherwise they are read
/// again, each time after a longer pause.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Which objects a cache keeps in full, in a process whose objects are divided into shards ([`Caches::divided`](super::Caches::divided)).
/// In all others every cache keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShardPart {
    /// All of them.
    #[default]
    Everything,
    /// Those whose shard this instance holds: for the objects that are reconciled.
    OwnObjects,
    /// Those whose owner is in such a shard, and those that have no owner: for children of the objects that are reconciled.
    OwnChildren,
}

/// What a cache knows of an object.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// The object.
    Here(Arc<Object>),
    /// It is there, and this cache does not have it because it belongs to another instance. The server has it.
    Elsewhere,
    /// There is none, as far as the watch has told.
    Absent,
}

/// Decides which objects are kept in full.
pub(super) struct Keeper {
    part: ShardPart,
    shards: Shards,
    progress: channel::Sender<Progress>,
}

/// What is here of the shards that this instance holds.
#[derive(Debug)]
struct Progress {
    /// For each shard, the term in which everything of it is here.
    complete: Vec<Option<u64>>,
    /// Whether the newest list that was to fill stubs failed.
    is_failing: bool,
}

impl Keeper {
    pub(super) fn new(part: ShardPart, shards: Option<&Shards>) -> Option<Self> {
        let shards = shards.filter(|_| part != ShardPart::Everything)?.clone();
        let progress = Progress { complete: vec![None; shards.count()], is_failing: false };
        Some(Self { part, shards, progress: channel::Sender::new(progress) })
    }

    fn term(&self, shard: usize) -> Option<u64> {
        self.shards.leadership(shard).term().map(|term| term.number)
    }

    fn is_held(&self, uid: &str) -> bool {
        self.term(self.shards.of(uid)).is_some()
    }

    /// Whether everything of a shard is here, or of all shards if none is given. Nothing is waited for of a shard that is not held.
    fn is_complete(&self, progress: &Progress, shard: Option<usize>) -> bool {
        let is_here = |shard: usize| self.term(shard).is_none_or(|term| progress.complete[shard] == Some(term));
        match shard {
            Some(shard) => is_here(shard),
            None => (0..self.shards.count()).all(is_here),
        }
    }

    /// Waits until a progress is as wanted.
    async fn until(&self, is_so: impl Fn(&Progress) -> bool) {
        // The sender is in `self`, so it is never gone.
        let _ = self.progress.subscribe().wait_for(is_so).await;
    }

    pub(super) fn keeps(&self, object: &Object) -> bool {
        match self.part {
            ShardPart::Everything => true,
            ShardPart::OwnObjects => self.is_held(object.uid()),
            ShardPart::OwnChildren => {
                let mut owners = owners(object).peekable();
                owners.peek().is_none() || owners.any(|uid| self.is_held(&uid))
            }
        }
    }

    /// Notes the shards that an object belongs to, of those that are held.
    fn note_shards(&self, object: &Object, noted: &mut [bool]) {
        let mut note = |uid: &str| {
            let shard = self.shards.of(uid);
            noted[shard] |= self.term(shard).is_some();
        };
        match self.part {
            ShardPart::OwnObjects => note(object.uid()),
            // What has no owner belongs to whoever looks for it.
            ShardPart::OwnChildren if owners(object).next().is_none() => noted.fill(true),
            ShardPart::OwnChildren => owners(object).for_each(|uid| note(&uid)),
            ShardPart::Everything => {}
        }
    }

    /// What is left of an object that is not kept in full.
    pub(super) fn stub(&self, target: &Target, object: &Object) -> Object {
        let owners: Vec<String> = match self.part {
            ShardPart::OwnChildren => owners(object).map(|uid| uid.into_owned()).collect(),
            ShardPart::OwnObjects | ShardPart::Everything => Vec::new(),
        };
        Object::stub(&target.resource, object, &owners)
    }
}

/// The uids of the owners of an object: those in other namespaces are named by a label.
fn owners(object: &Object) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    object.owners().map(|owner| owner.uid).chain(object.label(OWNER_LABEL))
}

impl Cache {
    /// What this cache knows of an object: one answer under one lock, because a stub may be filled, and an object may become a stub, between
    /// two questions.
    pub fn look_up(&self, key: &ObjectKey) -> LookUp {
        let state = self.0.core.state.read();
        match state.get(key) {
            Some(object) => LookUp::Here(object.clone()),
            None if state.is_elsewhere(key) => LookUp::Elsewhere,
            None => LookUp::Absent,
        }
    }

    /// Whether every object is here that the current task may look for: those of the shard that it works for, or those of all shards
    /// that this instance holds if it works for none.
    pub fn is_complete(&self) -> bool {
        let Some(keeper) = &self.0.core.keeper else { return true };
        keeper.is_complete(&keeper.progress.borrow(), keeper.shards.of_this_task())
    }

    /// Waits until every object is here that the current task may look for. For ever, if no list succeeds.
    pub async fn complete(&self) {
        let Some(keeper) = &self.0.core.keeper else { return };
        let shard = keeper.shards.of_this_task();
        keeper.until(|progress| keeper.is_complete(progress, shard)).await;
    }

    /// Waits until every object of a shard is here that this instance holds in this term.
    pub(crate) async fn has_shard(&self, shard: usize, term: u64) {
        let Some(keeper) = &self.0.core.keeper else { return };
        keeper.until(|progress| progress.complete[shard] == Some(term)).await;
    }

    /// The same, or until it is known that the objects cannot be read now. Whoever looks for one of them waits for it.
    pub(crate) async fn has_shard_if_readable(&self, shard: usize, term: u64) {
        let Some(keeper) = &self.0.core.keeper else { return };
        keeper.until(|progress| progress.complete[shard] == Some(term) || progress.is_failing).await;
    }

    /// Every object that is there, as a stub if it belongs to another instance.
    pub(crate) fn with_stubs(&self) -> Vec<Arc<Object>> {
        self.0.core.state.read().kept().cloned().collect()
    }
}

/// Keeps a cache complete while shards come and go; never ends.
pub(super) async fn keep_complete(core: Arc<Core>, client: Client, settings: WatchSettings) {
    let Some(keeper) = &core.keeper else { return };
    let mut changes = keeper.shards.changes();
    let mut pause = FIRST_PAUSE;
    loop {
        changes.borrow_and_update();
        core.until(|state| state.is_synced()).await;
        let mut is_missing = core.survey(keeper);
        if is_missing {
            let (kind, filled) = (&core.target.resource.kind, fill(&core, keeper, &client, settings.page).await);
            keeper.progress.send_modify(|progress| progress.is_failing = filled.is_err());
            match filled {
                Ok(filled) => {
                    tracing::debug!(kind, filled, "read the objects of shards that came");
                    is_missing = core.survey(keeper);
                }
                Err(error) => {
                    tracing::warn!(kind, %error, ?pause, "cannot read the objects of shards that came; trying again");
                }
            }
        }
        // The sender is in the keeper, so it is never gone.
        if is_missing {
            let _ = tokio::time::timeout(pause, changes.changed()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            pause = FIRST_PAUSE;
            let _ = changes.changed().await;
        }
    }
}

/// One page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<Box<RawValue>>,
}

/// Why a list was not read.
#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error("no answer within {PAGE_WITHIN:?}")]
    Silent(#[from] tokio::time::error::Elapsed),
    #[error("{0}")]
    Refused(#[from] kube::Error),
}

/// Fills the stubs of objects that are to be kept in full from a list, page by page. How many.
async fn fill(core: &Core, keeper: &Keeper, client: &Client, page: u32) -> Result<usize, FillError> {
    let Target { resource, namespace, labels, fields, mode, .. } = &core.target;
    let request = kube::core::Request::new(<DynamicObject as kube::Resource>::url_path(resource, namespace.as_deref()));
    // Without a resource version the list is the newest there is: no older than what the watch has brought.
    let mut params = ListParams::default().labels(labels).fields(fields).limit(page.max(1));
    let mut filled = 0;
    loop {
        let request = match mode {
            Mode::Metadata => request.list_metadata(&params),
            Mode::Full | Mode::WithManagedFields => request.list(&params),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let page: Page = tokio::time::timeout(PAGE_WITHIN, client.request(request)).await??;
        for item in &page.items {
            // What has no name was reported by the watch.
            let Ok(object) = Object::parse(resource, item.get(), *mode) else { continue };
            if keeper.keeps(&object) {
                filled += usize::from(core.fill(object));
            }
            tokio::task::consume_budget().await;
        }
        match page.metadata.continue_ {
            Some(more) if !more.is_empty() => params = params.continue_token(&more),
            _ => return Ok(filled),
        }
    }
}

impl Core {
    /// Puts a full object in the place of its stub, if that is of the same version. Whether it did.
    fn fill(&self, object: Object) -> bool {
        if !self.state.read().is_stub_of(&object) {
            return false;
        }
        let object = Arc::new(object);
        let (state, indexed) = self.lock_for(&object);
        self.change_locked(state, |state, changes| state.exchange(object, indexed, changes));
        true
    }

    /// Notes which shards are complete. Whether there are stubs of objects that are to be kept.
    fn survey(&self, keeper: &Keeper) -> bool {
        // First: what comes into the cache from now on is kept in full in these terms.
        let terms: Vec<Option<u64>> = (0..keeper.shards.count()).map(|shard| keeper.term(shard)).collect();
        let missing = self.settle(keeper);
        keeper.progress.send_modify(|progress| {
            let shards = terms.into_iter().zip(&missing);
            progress.complete = shards.map(|(term, is_missing)| term.filter(|_| !is_missing)).collect();
            // A list that failed says nothing about shards that come later.
            progress.is_failing &= missing.contains(&true);
        });
        missing.contains(&true)
    }

    /// Leaves stubs of objects that are not to be kept any more. The shards of which there are stubs although they are held.
    fn settle(&self, keeper: &Keeper) -> Vec<bool> {
        let kept: Vec<Arc<Object>> = self.state.read().kept().cloned().collect();
        let mut missing = vec![false; keeper.shards.count()];
        for object in kept {
            match (object.is_stub(), keeper.keeps(&object)) {
                (true, true) => keeper.note_shards(&object, &mut missing),
                (false, false) => {
                    let stub = Arc::new(keeper.stub(&self.target, &object));
                    let (state, indexed) = self.lock_for(&stub);
                    // The shard may have come back.
                    if !keeper.keeps(&object) {
                        self.change_locked(state, |state, changes| state.exchange(stub, indexed, changes));
                    }
                }
                (true, false) | (false, true) => {}
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests;
