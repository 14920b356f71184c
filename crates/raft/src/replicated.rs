//! The replicated state for the program: get, put, compare and put, delete, list, watch. In: keys and values. Out: what a majority
//! has. Reads and writes go to the leader, from wherever they are asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use konverge_leadership::Term;
use openraft::LogIdOptionExt;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::node::{Node, failed};
use crate::state::{Change, Command, Expected, Outcome, Request, Versioned, Write};
use crate::storage::Found;
use crate::wire::{Answer, Call, Refusal, Reply};

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
    /// This instance lacks what was written before the read. It is told by the leader, so ask again.
    #[error("this instance has not caught up with the leader within {0:?}; ask again, or ask another instance")]
    Behind(Duration),
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
        self.node.get(key).await
    }

    /// The keys that begin with this, in order, with their values, as they are at one moment. This instance asks the leader up to where
    /// it has to know the log, and then answers from its own memory, so a list may be as large as the state.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, ReplicatedError> {
        self.node.catch_up().await?;
        Ok(self.node.machine.list(prefix).0)
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

    /// The keys that begin with this as this instance knows them at the first [`next`](ReplicatedWatch::next), and then every change in
    /// order. This instance may be a moment behind the leader.
    ///
    /// A watch that is read too slowly misses changes, and is told so: it gets all keys anew ([`WatchEvent::All`]). All watches share
    /// the newest 1024 changes, at most 4 MiB of them, so one that nobody reads costs nothing and holds up nobody.
    pub fn watch(&self, prefix: impl Into<String>) -> ReplicatedWatch {
        let newest = self.node.machine.changes();
        ReplicatedWatch { node: self.node.clone(), prefix: prefix.into(), at: None, newest }
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
    /// The number of the change that comes next; none if all keys do.
    at: Option<u64>,
    newest: watch::Receiver<u64>,
}

impl ReplicatedWatch {
    /// The next event. It waits for as long as nothing changes. Nothing is lost if it is cancelled.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            let Some(number) = self.at else {
                let (now, next) = self.node.machine.list(&self.prefix);
                self.at = Some(next);
                return WatchEvent::All(now);
            };
            match self.node.machine.change(number) {
                Found::Change(change) => {
                    self.at = Some(number + 1);
                    if change.key().starts_with(&self.prefix) {
                        return WatchEvent::Change(Change::clone(&change));
                    }
                }
                Found::Missed => self.at = None,
                // The sender is in the node, which this watch has.
                Found::Nothing => drop(self.newest.wait_for(|next| *next > number).await),
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

    async fn get(&self, key: &str) -> Result<Option<Versioned>, ReplicatedError> {
        let attempt = || async {
            match self.or_leader(self.get_here(key).await.map(Reply::Got), Call::Get(key.to_owned())).await {
                Ok(Reply::Got(found)) => Some(found),
                _ => None,
            }
        };
        until_answered(attempt, Instant::now() + DONE_WITHIN).await
    }

    /// Waits until this member has carried out everything that was acknowledged when this was asked.
    async fn catch_up(&self) -> Result<(), ReplicatedError> {
        let end = Instant::now() + DONE_WITHIN;
        let attempt = || async {
            match self.or_leader(self.read_index_here().await.map(Reply::ReadIndex), Call::ReadIndex).await {
                Ok(Reply::ReadIndex(index)) => Some(index),
                _ => None,
            }
        };
        let index = until_answered(attempt, end).await?;
        let caught_up = tokio::time::timeout_at(end, self.machine.has_applied(index)).await;
        caught_up.map_err(|_| ReplicatedError::Behind(DONE_WITHIN))
    }

    /// The answer of this member, or that of the leader if another one leads.
    async fn or_leader(&self, here: Answer, call: Call) -> Answer {
        match here {
            Err(Refusal::NotLeader(Some(leader))) if leader != self.me => {
                self.ask_within(&leader.address, None, call, self.timing.election * 2).await
            }
            other => other,
        }
    }

    /// As the leader, which this member has to be.
    pub(crate) async fn get_here(&self, key: &str) -> Result<Option<Versioned>, Refusal> {
        let index = self.read_index_here().await?;
        let applied = tokio::time::timeout(DONE_WITHIN, self.machine.has_applied(index)).await;
        applied.map_err(|_| Refusal::Failed("the log is not carried out".into()))?;
        Ok(self.machine.read(|state| state.get(key).cloned()))
    }

    /// As the leader, which this member has to be: a majority confirms it. Whoever has carried out the log up to this index sees
    /// everything that was acknowledged before.
    pub(crate) async fn read_index_here(&self) -> Result<u64, Refusal> {
        // Asked first: a vote that comes after this has entries of its own.
        let before = self.committed_before();
        match self.raft.get_read_log_id().await {
            Ok((index, _)) => Ok(index.index().unwrap_or(0).max(before)),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(Refusal::NotLeader(forward.leader_node))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Makes attempts until one has an answer.
async fn until_answered<T, A>(attempt: impl Fn() -> A, end: Instant) -> Result<T, ReplicatedError>
where
    A: Future<Output = Option<T>>,
{
    loop {
        match tokio::time::timeout_at(end, attempt()).await {
            Ok(Some(found)) => return Ok(found),
            // Attempts of a member that has ended fail at once, so that no timeout ever ends them.
            Ok(None) if Instant::now() + AGAIN_AFTER < end => tokio::time::sleep(AGAIN_AFTER).await,
            Ok(None) | Err(_) => return Err(ReplicatedError::NoLeader(DONE_WITHIN)),
        }
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
