//! Which objects this instance reconciles: all of them while it leads, or those of the shards that it holds. In: keys. Out: the term
//! that a reconcile of a key is begun in, or that the key is not this instance's; and which wakeups are queued.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use konverge_core::ObjectKey;
use konverge_leadership::{Leadership, ShardWork, Shards, Term};

use crate::cache::Cache;

/// The caches of the objects of one controller, one a target.
#[derive(Clone)]
pub(crate) struct Primaries(Arc<[Cache]>);

impl Primaries {
    /// At least one cache.
    pub(crate) fn new(caches: impl Iterator<Item = Cache>) -> Self {
        Self(caches.collect())
    }

    pub(crate) fn all(&self) -> &[Cache] {
        &self.0
    }

    /// The cache that an object of this key is in, or would be in.
    pub(crate) fn of(&self, key: &ObjectKey) -> &Cache {
        let inside = |cache: &&Cache| cache.target().namespace.as_deref() == key.namespace();
        self.0.iter().find(inside).unwrap_or(&self.0[0])
    }
}

/// The shards of an operator, and where its objects are.
#[derive(Clone)]
pub(crate) struct ShardedObjects {
    pub shards: Shards,
    pub primaries: Primaries,
    pub read: ReadShards,
}

/// The shards whose objects are in the caches of a controller, each in the term that they were read in.
#[derive(Clone)]
pub(crate) struct ReadShards(Arc<[AtomicU64]>);

/// No term has this number.
const UNREAD: u64 = u64::MAX;

impl ReadShards {
    /// None of them yet.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(UNREAD)).collect())
    }

    pub(crate) fn set(&self, shard: usize, term: u64) {
        self.0[shard].store(term, Ordering::Release);
    }

    fn has(&self, shard: usize, term: u64) -> bool {
        self.0[shard].load(Ordering::Acquire) == term
    }
}

impl ShardedObjects {
    /// The shard of an object; none if the object is not there, or is in the cache of another instance.
    fn shard(&self, key: &ObjectKey) -> Option<usize> {
        self.primaries.of(key).get(key).map(|object| self.shards.of(object.uid()))
    }

    /// Whether this instance reconciles an object now. A key that it does not is dropped: whoever takes the shard, here or elsewhere,
    /// begins with a reconcile of all its objects.
    pub(crate) fn is_own(&self, key: &ObjectKey) -> bool {
        self.shard(key).is_some_and(|shard| self.shards.is_open(shard) && self.is_read(shard))
    }

    /// Whether the objects of a shard are here, so that work on it may begin.
    fn is_read(&self, shard: usize) -> bool {
        self.shards.leadership(shard).term().is_some_and(|term| self.read.has(shard, term.number))
    }
}

/// Which wakeups are queued. The others are dropped, so that a standby's queue does not grow: objects come and go, and nobody takes their
/// keys out. Nothing is missed, because whoever begins a term wakes all objects of it from the cache, and the change that a dropped wakeup
/// was about came into the cache before the term began.
#[derive(Clone)]
pub(crate) enum WakeupFilter {
    /// Those that come while this instance leads.
    Leader(Leadership),
    /// Those of objects whose shards this instance holds.
    Shards(ShardedObjects),
}

impl WakeupFilter {
    /// Whether there are wakeups that are queued now. Cheap enough to ask before a change is looked at.
    pub(crate) fn takes_some(&self) -> bool {
        match self {
            Self::Leader(leadership) => leadership.term().is_some(),
            Self::Shards(_) => true,
        }
    }

    /// Whether a wakeup of an object is queued, if some are.
    pub(crate) fn takes(&self, key: &ObjectKey) -> bool {
        match self {
            Self::Leader(_) => true,
            Self::Shards(objects) => objects.is_own(key),
        }
    }
}

/// Which objects are reconciled.
#[derive(Clone)]
pub(crate) enum Ownership {
    /// All of them, in this term. Whoever says so ends all work with the term.
    All(Leadership, Arc<Term>),
    /// Those of the shards that are held, each in the term of its shard.
    Shards(ShardedObjects),
}

impl Ownership {
    /// The right to reconcile an object; none if it is not this instance's.
    pub(crate) fn claim(&self, key: &ObjectKey) -> Option<Claim> {
        match self {
            Self::All(leadership, term) => {
                Some(Claim { leadership: leadership.clone(), term: term.clone(), work: None })
            }
            Self::Shards(objects) => {
                let shard = objects.shard(key)?;
                let work = objects.shards.begin(shard).filter(|work| objects.read.has(shard, work.term.number))?;
                Some(Claim { leadership: work.leadership().clone(), term: work.term.clone(), work: Some(work) })
            }
        }
    }
}

/// The right to reconcile one object in a term. While this is kept, its shard is not handed over.
pub(crate) struct Claim {
    pub leadership: Leadership,
    pub term: Arc<Term>,
    work: Option<ShardWork>,
}

impl Claim {
    /// Resolves when the term is over; never for an instance that reconciles all objects, where all work ends together.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let over = self.work.as_ref().map(|work| work.leadership().ended(&work.term));
        async move {
            match over {
                Some(over) => over.await,
                None => std::future::pending().await,
            }
        }
    }
}
