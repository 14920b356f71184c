//! The queue of commits for the writer: callers on any runtime add them, the writer thread takes all at once. It is bounded; a
//! caller that finds it full waits without blocking a thread. Closing it wakes all callers, so none waits for a writer that has
//! ended.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Commit, CommitError, Revision};

/// The queue is full at 64 MiB of values or at 1,024 commits, whichever comes first: more than any fsync lets pile up
/// from well-behaved callers, and a batch that is still written in one go. A permit is one KiB.
const PERMITS: u32 = 64 << 10;
/// What a commit weighs at least, so that there are at most 1,024.
const LEAST: u32 = PERMITS / 1024;

pub(super) type Answer = Result<Revision, CommitError>;

/// A commit and who waits for it.
pub(super) struct Job {
    pub commit: Commit,
    pub answer: oneshot::Sender<Answer>,
    /// Its place in the queue, given back when it is answered.
    pub room: OwnedSemaphorePermit,
}

pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    nudged: bool,
    closed: bool,
}

impl Queue {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Queue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            room: Arc::new(Semaphore::new(PERMITS as usize)),
        })
    }

    /// Puts a commit in, at once if there is room. `None`: the queue is closed.
    pub(super) fn push(self: &Arc<Self>, commit: Commit) -> impl Future<Output = Option<Answer>> + Send + use<> {
        let weight = u32::try_from(commit.size() >> 10).unwrap_or(PERMITS).saturating_add(LEAST).min(PERMITS);
        let (answer, answered) = oneshot::channel();
        // The common case needs no waiting, and the commit is on its way even if the future is never polled.
        let waiting = match self.room.clone().try_acquire_many_owned(weight) {
            Ok(room) => {
                self.add(Job { commit, answer, room });
                None
            }
            Err(_) => Some((commit, answer, self.clone())),
        };
        async move {
            if let Some((commit, answer, queue)) = waiting {
                let room = queue.room.clone().acquire_many_owned(weight).await.ok()?;
                queue.add(Job { commit, answer, room });
            }
            answered.await.ok()
        }
    }

    /// Moves everything that waits into `jobs`. Waits for a commit, a nudge or until patience ends; then `jobs` may
    /// stay empty. False: closed, and nothing waits any more.
    pub(super) fn take(&self, jobs: &mut Vec<Job>, wait_timeout: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if state.jobs.is_empty() && !state.closed && !state.nudged {
            match wait_timeout {
                Some(wait_timeout) => drop(self.arrived.wait_for(&mut state, wait_timeout)),
                None => self.arrived.wait(&mut state),
            }
        }
        state.nudged = false;
        jobs.append(&mut state.jobs);
        !jobs.is_empty() || !state.closed
    }

    /// Wakes the writer although no commit waits.
    pub(super) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.arrived.notify_one();
    }

    /// Lets nothing more in. What waits already is still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
    }

    /// Closes the queue and drops the waiting commits, so that their callers get an error: for a writer that ends early.
    pub(super) fn abandon(&self) {
        self.close();
        self.state.lock().jobs.clear();
    }

    /// If the queue is closed, the job is dropped, so that its caller gets an error.
    fn add(&self, job: Job) {
        let mut state = self.state.lock();
        if !state.closed {
            state.jobs.push(job);
            drop(state);
            self.arrived.notify_one();
        }
    }
}
