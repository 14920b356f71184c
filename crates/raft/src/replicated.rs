//! The replicated state for the program: get, put, compare and put, delete, list, watch. In: keys and values. Out: what a majority
//! has. Reads and writes go to the leader, from wherever they are asked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use konverge_leadership::Term;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::node::{Node, failed};
use crate::state::{Change, Command, Expected, Outcome, Request, Versioned, Write};
use crate::storage::Changes;
use crate::wire::{Answer, Call, Read, Refusal, Reply};

/// How long a read or a write may take, with an election between.
const DONE_WITHIN: Duration = Duration::from_secs(5);

/// The pause before the leader is asked again, or another one.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The largest key.
const MAX_KEY_BYTES: usize = 1024;

/// A small state that all instances of an operator share: what a leader has to know that is in no object of the cluster, such as which
/// step of a long migration is done.
///
/// - A write that has returned is on a majority of the instances, and is not lost when a minority of them is. With
///   `ha-persist` it is on their disks.
/// - Reads are linearizable: they see every write that had returned when they were asked, by whichever instance.
/// - A write of a reconcile that was begun in an ended term is refused, as its writes to the API server are.
/// - Every key and value is in the memory of every instance; [`RaftConfig`](crate::RaftConfig) has the limits. It is no place for
///   what Kubernetes objects can hold.
///
/// Without a leader, a call waits up to five seconds for one.
#[derive(Clone)]
pub struct Replicated {
    node: Arc<Node>,
}

/// Why a read or a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicatedError {
    /// The key has another version than the one that was expected. Read it again.
    #[error("the key has the version {current:?}, which is not the expected one; read it again")]
    Conflict {
        /// The version that it has; none if it does not exist.
        current: Option<u64>,
    },
    /// The reconcile was begun in a term that is over. Its work is begun again by the leader.
    #[error("the term that this write was begun in is over; the current one is {current}")]
    TermOver {
        /// The term that goes on.
        current: u64,
    },
    /// The value or the key is too large.
    #[error("{what} has {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// `the value`, `the key`
        what: &'static str,
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        limit: u64,
    },
    /// There is no room for it. Delete something.
    #[error(
        "the replicated state would have {bytes} bytes; at most {limit} are allowed; delete keys, or raise max_total_bytes"
    )]
    Full {
        /// How many it would have.
        bytes: u64,
        /// How many it may have.
        limit: u64,
    },
    /// Nobody leads. Nothing has happened.
    #[error("no leader could be reached within {0:?}")]
    NoLeader(Duration),
    /// The answer was lost. The write may have happened, or may still happen.
    #[error("no answer came in time, so it is not known whether the write happened; read the key to find out")]
    Unknown,
}

impl Replicated {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The value of a key, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Versioned>, ReplicatedError> {
        let found = self.node.read(Read::Get(key.to_owned())).await?;
        Ok(found.into_iter().next().map(|(_, value)| value))
    }

    /// The keys that begin with this, in order, with their values.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, ReplicatedError> {
        self.node.read(Read::List(prefix.to_owned())).await
    }

    /// Puts a value, whatever was there. Returns its version.
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<u64, ReplicatedError> {
        self.write_value(key, value.into(), Expected::Anything).await
    }

    /// Puts a value if the key has this version, or with none if it does not exist. Otherwise that is a
    /// [`Conflict`](ReplicatedError::Conflict). Returns the new version.
    pub async fn compare_and_put(
        &self,
        key: &str,
        expected: Option<u64>,
        value: impl Into<Vec<u8>>,
    ) -> Result<u64, ReplicatedError> {
        let expected = expected.map_or(Expected::Nothing, Expected::Version);
        self.write_value(key, value.into(), expected).await
    }

    /// Deletes a key, and says whether it existed.
    pub async fn delete(&self, key: &str) -> Result<bool, ReplicatedError> {
        let write = Write::Delete { key: key.to_owned(), expected: Expected::Anything };
        Ok(self.node.write(write).await?.is_some())
    }

    /// The keys that begin with this as this instance knows them, and then every change in order. This instance may be a moment behind
    /// the leader.
    pub fn watch(&self, prefix: impl Into<String>) -> ReplicatedWatch {
        let prefix = prefix.into();
        let (now, changes) = self.node.machine.watch(&prefix);
        let waiting = std::iter::once(WatchEvent::All(now)).collect();
        ReplicatedWatch { node: self.node.clone(), prefix, waiting, changes }
    }

    async fn write_value(&self, key: &str, value: Vec<u8>, expected: Expected) -> Result<u64, ReplicatedError> {
        let limits = self.node.limits;
        let check = |what, bytes: usize, limit: usize| match bytes > limit {
            true => Err(ReplicatedError::TooLarge { what, bytes: bytes as u64, limit: limit as u64 }),
            false => Ok(()),
        };
        check("the key", key.len(), MAX_KEY_BYTES)?;
        check("the value", value.len(), limits.value)?;
        let write = Write::Put { key: key.to_owned(), value, expected };
        self.node.write(write).await?.ok_or(ReplicatedError::Unknown)
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("cluster", &self.node.cluster).finish_non_exhaustive()
    }
}

/// What a watch of the replicated state brings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// All keys of the watch as they are now: at the beginning, and when changes were missed. Keys that are not among them do not
    /// exist.
    All(Vec<(String, Versioned)>),
    /// One change.
    Change(Change),
}

/// The changes of some keys; see [`Replicated::watch`].
pub struct ReplicatedWatch {
    node: Arc<Node>,
    prefix: String,
    /// What was found and not handed out yet: at most one.
    waiting: VecDeque<WatchEvent>,
    changes: broadcast::Receiver<Changes>,
}

impl ReplicatedWatch {
    /// The next event. It waits for as long as nothing changes.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return event;
            }
            match self.changes.recv().await {
                Ok(Changes::One(change)) if change.key().starts_with(&self.prefix) => {
                    return WatchEvent::Change(change);
                }
                Ok(Changes::One(_)) => {}
                Ok(Changes::All) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    let (now, changes) = self.node.machine.watch(&self.prefix);
                    (self.changes, self.waiting) = (changes, [WatchEvent::All(now)].into());
                }
                // The sender is in the node, which this watch has.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl fmt::Debug for ReplicatedWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedWatch").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// How an attempt ended that may be made again.
enum Again {
    /// Nothing has happened: the member that was asked does not lead.
    Elsewhere,
    /// It is not known what became of it.
    InDoubt,
}

impl Node {
    /// Carries out a write, once, however often it has to be sent.
    async fn write(&self, write: Write) -> Result<Option<u64>, ReplicatedError> {
        let request = Request {
            id: (self.session, self.next_request()),
            since: self.machine.applied(),
            term: Term::of_this_task().map(|term| term.number),
            limit: self.limits.total,
            write,
        };
        let command = Command::Write(request);
        let end = Instant::now() + DONE_WITHIN;
        let mut in_doubt = false;
        loop {
            let attempt = tokio::time::timeout_at(end, self.attempt_write(command.clone())).await;
            match attempt {
                Ok(Ok(outcome)) => return judged(outcome),
                Ok(Err(Again::Elsewhere)) => {}
                Ok(Err(Again::InDoubt)) => in_doubt = true,
                Err(_) => return Err(ReplicatedError::Unknown),
            }
            if Instant::now() + AGAIN_AFTER >= end {
                return Err(if in_doubt { ReplicatedError::Unknown } else { ReplicatedError::NoLeader(DONE_WITHIN) });
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn attempt_write(&self, command: Command) -> Result<Outcome, Again> {
        match self.write_here(command.clone()).await {
            Ok(Reply::Written(outcome)) => Ok(outcome),
            Err(Refusal::NotLeader(Some(leader))) if leader != self.me => {
                let limit = self.timing.election * 2;
                match self.ask_within(&leader.address, None, Call::Write(command), limit).await {
                    Ok(Reply::Written(outcome)) => Ok(outcome),
                    Err(Refusal::NotLeader(_)) => Err(Again::Elsewhere),
                    _ => Err(Again::InDoubt),
                }
            }
            Err(Refusal::NotLeader(_)) => Err(Again::Elsewhere),
            _ => Err(Again::InDoubt),
        }
    }

    /// As the leader, which this member has to be.
    pub(crate) async fn write_here(&self, command: Command) -> Answer {
        match self.raft.client_write(command).await {
            Ok(response) => Ok(Reply::Written(response.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Err(Refusal::NotLeader(forward.leader_node))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn read(&self, read: Read) -> Result<Vec<(String, Versioned)>, ReplicatedError> {
        let end = Instant::now() + DONE_WITHIN;
        loop {
            let attempt = tokio::time::timeout_at(end, self.attempt_read(read.clone())).await;
            match attempt {
                Ok(Some(found)) => return Ok(found),
                Err(_) => return Err(ReplicatedError::NoLeader(DONE_WITHIN)),
                Ok(None) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }

    async fn attempt_read(&self, read: Read) -> Option<Vec<(String, Versioned)>> {
        let here = self.read_here(read.clone()).await;
        let answer = match here {
            Err(Refusal::NotLeader(Some(leader))) if leader != self.me => {
                self.ask_within(&leader.address, None, Call::Read(read), self.timing.election * 2).await
            }
            other => other,
        };
        match answer {
            Ok(Reply::Read(found)) => Some(found),
            _ => None,
        }
    }

    /// As the leader, which this member has to be: a majority confirms it, and everything that had been acknowledged by then is
    /// carried out before the look.
    pub(crate) async fn read_here(&self, read: Read) -> Answer {
        match self.raft.ensure_linearizable().await {
            Ok(_) => {}
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                return Err(Refusal::NotLeader(forward.leader_node));
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Reply::Read(self.machine.read(|state| match &read {
            Read::Get(key) => state.get(key).map(|value| (key.clone(), value.clone())).into_iter().collect(),
            Read::List(prefix) => state.list(prefix).map(|(key, value)| (key.clone(), value.clone())).collect(),
        })))
    }
}

fn judged(outcome: Outcome) -> Result<Option<u64>, ReplicatedError> {
    match outcome {
        Outcome::Written { version } => Ok(version),
        Outcome::Conflict { current } => Err(ReplicatedError::Conflict { current }),
        Outcome::TermOver { current } => Err(ReplicatedError::TermOver { current }),
        Outcome::Full { bytes, limit } => Err(ReplicatedError::Full { bytes, limit }),
        Outcome::None | Outcome::Begun { .. } | Outcome::Forgotten => Err(ReplicatedError::Unknown),
    }
}
