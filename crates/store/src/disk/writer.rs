//! The one thread that writes. Commits come in through the queue; it decides them, makes them durable with one fsync
//! for all that queued up during the one before, shows them, and only then answers, in order. No delay is added to
//! make batches larger. After a failed write it answers nothing but the reason, for good: what the disk holds is known
//! again only after a restart.

use std::{
    collections::VecDeque,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    load::said,
    mark::Mark,
    queue::{Job, Queue},
    tables::Tables,
};
use crate::{
    CommitError, Revision,
    index::{Batch, Decided, RecordId},
    ledger::Ledger,
};

/// When nothing was committed for so long, retired records are removed without a commit to ride on. Doing so at once
/// would make the next commit wait for an fsync that is not its own.
const IDLE: Duration = Duration::from_millis(100);
/// Records removed in one transaction: as many as a transaction hardly notices, and more than it can add.
const REMOVE_AT_LEAST: usize = 512;

/// What the writer shares with the store that owns it.
pub(super) struct Desk {
    pub queue: Arc<Queue>,
    pub retired: Mutex<Retired>,
    pub commits: AtomicU64,
    pub transactions: AtomicU64,
    /// Why nothing is written any more.
    pub failure: OnceLock<Arc<str>>,
}

/// Records nobody can read any more, waiting to be removed in the order in which they were forgotten.
#[derive(Default)]
pub(super) struct Retired {
    pub compacted: Revision,
    pub records: VecDeque<RecordId>,
}

impl Desk {
    pub fn new(compacted: Revision, leftover: Vec<RecordId>) -> Arc<Desk> {
        Arc::new(Desk {
            queue: Queue::new(),
            retired: Mutex::new(Retired { compacted, records: leftover.into() }),
            commits: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            failure: OnceLock::new(),
        })
    }

    pub fn retire(&self, records: Vec<RecordId>, compacted: Revision) {
        let mut retired = self.retired.lock();
        retired.compacted = compacted;
        retired.records.extend(records);
    }
}

pub(super) struct Writer {
    pub desk: Arc<Desk>,
    pub ledger: Arc<Ledger>,
    pub tables: Tables,
    pub mark: Mark,
    /// Keeps other processes out for as long as this one may write.
    pub _lock: File,
}

/// However the thread ends, nobody waits for it any longer.
struct Leaving(Arc<Queue>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Writer {
    pub fn run(mut self) {
        let _leaving = Leaving(self.desk.queue.clone());
        let mut jobs = Vec::new();
        while self.desk.queue.take(&mut jobs, self.patience()) {
            self.turn(std::mem::take(&mut jobs));
        }
    }

    fn patience(&self) -> Option<Duration> {
        let waiting = self.desk.failure.get().is_none() && !self.desk.retired.lock().records.is_empty();
        waiting.then_some(IDLE)
    }

    /// Decide, make durable, show, answer.
    fn turn(&mut self, jobs: Vec<Job>) {
        let (commits, waiting): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.commit, (job.answer, job.room))).unzip();
        let decisions: Vec<Result<Decided, CommitError>> = {
            let index = self.ledger.read();
            let mut batch = Batch::new(&index);
            commits.into_iter().map(|commit| batch.decide(commit)).collect()
        };
        if let Err(failure) = self.write(&decisions) {
            for (answer, _room) in waiting {
                let _ = answer.send(Err(CommitError::Unavailable(failure.clone())));
            }
            return;
        }
        let now = Instant::now();
        for (decision, (answer, _room)) in decisions.into_iter().zip(waiting) {
            let verdict = decision.map(|decided| {
                let revision = decided.revision;
                if !decided.rows.is_empty() {
                    self.desk.commits.fetch_add(1, Relaxed);
                    self.ledger.publish(decided, now, |records, compacted| self.desk.retire(records, compacted));
                }
                revision
            });
            // Who does not wait any more does not need to hear it.
            let _ = answer.send(verdict);
        }
    }

    /// A conflict with a commit of the same batch is true only once that is durable, so all answers wait for this.
    fn write(&mut self, decisions: &[Result<Decided, CommitError>]) -> Result<(), Arc<str>> {
        if let Some(failure) = self.desk.failure.get() {
            return Err(failure.clone());
        }
        let rows: usize = decisions.iter().flatten().map(|decided| decided.rows.len()).sum();
        let (retired, compacted) = {
            let mut retired = self.desk.retired.lock();
            let some = retired.records.len().min(REMOVE_AT_LEAST.max(4 * rows));
            (retired.records.drain(..some).collect::<Vec<_>>(), retired.compacted)
        };
        if rows == 0 && retired.is_empty() {
            return Ok(());
        }
        let durable = decisions.iter().flatten().map(|decided| decided.revision).max();
        let written =
            catch_unwind(AssertUnwindSafe(|| self.tables.write(decisions.iter().flatten(), &retired, compacted)));
        let outcome = match written {
            Ok(Ok(())) => match durable.map_or(Ok(()), |durable| self.mark.advance(durable)) {
                Ok(()) => Ok(()),
                Err(error) => Err(format!("{}: {error}", self.mark.path().display())),
            },
            Ok(Err(error)) => Err(format!("{}: {error}", self.tables.path().display())),
            Err(panic) => Err(format!("{}: {}", self.tables.path().display(), said(&*panic))),
        };
        self.desk.transactions.fetch_add(1, Relaxed);
        outcome.map_err(|cause| {
            let failure: Arc<str> = format!(
                "{cause}; nothing more can be committed, while reads go on: repair or free the disk and restart, \
                 which keeps everything that was acknowledged"
            )
            .into();
            self.desk.failure.get_or_init(|| failure).clone()
        })
    }
}
