//! The one thread that writes. Commits come in through the queue; it decides them, makes them durable with one fsync
//! for all that queued up during the one before, shows them, and only then answers, in order. No delay is added to
//! make batches larger. After a failed write it answers with the reason, and opens the database again until it can write:
//! then it knows whether the failed transaction happened. After a failed fsync nobody can know, so it refuses for good.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    guard::{Links, Opener, RESERVED, Reserve},
    load::said,
    mark::Mark,
    queue::{Job, Queue},
    tables::{Fate, Tables},
};
use crate::{
    CommitError, Health, Revision,
    index::{Batch, Decided, RecordId},
    ledger::Ledger,
};

/// When nothing was committed for so long, retired records are removed without a commit to ride on. Doing so at once
/// would make the next commit wait for an fsync that is not its own.
const IDLE: Duration = Duration::from_millis(100);
/// How often a store that fails tries to come back.
const RETRY: Duration = Duration::from_secs(1);
/// Records removed in one transaction: as many as a transaction hardly notices, and more than it can add.
const REMOVE_AT_LEAST: usize = 512;

/// An idle store shrinks its file if the records in it have at most so many bytes: moving them takes some tenths of a
/// second, for which a commit may have to wait. Larger ones wait for the next start, which reads all of them anyway.
const SHRINK_WHEN_IDLE: u64 = 16 << 20;

/// What the writer shares with the store that owns it.
pub(super) struct Desk {
    pub queue: Arc<Queue>,
    pub retired: Mutex<Retired>,
    pub commits: AtomicU64,
    pub transactions: AtomicU64,
    /// Whether anything is written, and why not.
    pub health: watch::Sender<Health>,
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
            health: watch::Sender::default(),
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
    pub repair: Repair,
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

/// How the writer comes back after a failure.
pub(super) struct Repair {
    opener: Opener,
    links: Links,
    reserve: Reserve,
    sync_failed: Arc<AtomicBool>,
    /// The disk is full: only what makes room is written, until the reserve fits again.
    full: bool,
    /// What the failed transaction would have done; the database must be opened again to know whether it did.
    doubt: Option<Doubt>,
    /// Nothing is tried again before this time.
    retry: Option<Instant>,
}

struct Doubt {
    decided: Vec<Decided>,
    retired: Vec<RecordId>,
}

impl Repair {
    pub fn new(opener: Opener, links: Links, reserve: Reserve) -> Repair {
        let sync_failed = Arc::new(AtomicBool::new(false));
        Repair { opener, links, reserve, sync_failed, full: false, doubt: None, retry: None }
    }
}

/// Why a turn wrote nothing.
enum Failure {
    Full(String),
    Failing(String),
    Broken(String),
}

impl Failure {
    fn of(error: &redb::Error, path: &Path) -> Failure {
        let why = format!("{}: {error}", path.display());
        match error {
            redb::Error::Io(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                Failure::Full(why)
            }
            redb::Error::Corrupted(_) => Failure::Broken(why),
            _ => Failure::Failing(why),
        }
    }
}

impl Writer {
    /// Reaches the verified file through a way that tells failures apart.
    pub fn begin(&mut self) -> io::Result<()> {
        let Repair { opener, sync_failed, .. } = &self.repair;
        self.tables.reopen(opener, sync_failed).map(drop).map_err(io::Error::other)
    }

    pub fn run(mut self) {
        let _leaving = Leaving(self.desk.queue.clone());
        self.shrink_if_worth(u64::MAX, Instant::now());
        let mut jobs = Vec::new();
        while self.desk.queue.take(&mut jobs, self.patience()) {
            let now = Instant::now();
            self.recover(now);
            let jobs = std::mem::take(&mut jobs);
            let idle = jobs.is_empty();
            if self.repair.full && !idle {
                // One by one, so that what makes room does not fail with what takes some.
                jobs.into_iter().for_each(|job| self.turn(vec![job], now));
            } else {
                self.turn(jobs, now);
            }
            if idle && self.desk.retired.lock().records.is_empty() {
                self.shrink_if_worth(SHRINK_WHEN_IDLE, now);
            }
        }
    }

    /// Gives the file's free pages back if they are most of it.
    fn shrink_if_worth(&mut self, at_most: u64, now: Instant) {
        // A file whose length is not known is the next transaction's trouble.
        let worth = self.tables.mostly_free(at_most).unwrap_or(false);
        if worth && *self.desk.health.borrow() == Health::Fine {
            self.shrink(now);
        }
    }

    /// A failure is treated as that of a transaction which would have changed nothing.
    fn shrink(&mut self, now: Instant) {
        let shrunk = self.linked().and_then(|()| match catch_unwind(AssertUnwindSafe(|| self.tables.shrink())) {
            Ok(shrunk) => shrunk.map_err(|error| Failure::of(&error, self.tables.path())),
            Err(panic) => Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), said(&*panic)))),
        });
        if let Err(failure) = shrunk {
            self.repair.doubt = Some(Doubt { decided: Vec::new(), retired: Vec::new() });
            self.fail(failure, now);
        }
    }

    fn patience(&self) -> Option<Duration> {
        match *self.desk.health.borrow() {
            Health::Fine => (!self.desk.retired.lock().records.is_empty()).then_some(IDLE),
            Health::Failing(_) => Some(RETRY),
            Health::Broken(_) => None,
        }
    }

    /// Decide, make durable, show, answer.
    fn turn(&mut self, jobs: Vec<Job>, now: Instant) {
        let (commits, waiting): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.commit, (job.answer, job.room))).unzip();
        let mut decisions: Vec<Result<Decided, CommitError>> = {
            let index = self.ledger.read();
            let mut batch = Batch::new(&index);
            commits.into_iter().map(|commit| batch.decide(commit)).collect()
        };
        if let Err(failure) = self.write(&mut decisions, now) {
            for (answer, _room) in waiting {
                let _ = answer.send(Err(CommitError::Unavailable(failure.clone())));
            }
            return;
        }
        for (decision, (answer, _room)) in decisions.into_iter().zip(waiting) {
            let verdict = decision.map(|decided| {
                let revision = decided.revision;
                self.publish(decided, now);
                revision
            });
            // Who does not wait any more does not need to hear it.
            let _ = answer.send(verdict);
        }
    }

    fn publish(&self, decided: Decided, now: Instant) {
        if !decided.rows.is_empty() {
            self.desk.commits.fetch_add(1, Relaxed);
            self.ledger.publish(decided, now, |records, compacted| self.desk.retire(records, compacted));
        }
    }

    /// A conflict with a commit of the same batch is true only once that is durable, so all answers wait for this.
    fn write(&mut self, decisions: &mut Vec<Result<Decided, CommitError>>, now: Instant) -> Result<(), Arc<str>> {
        let rows: usize = decisions.iter().flatten().map(|decided| decided.rows.len()).sum();
        let makes_room = decisions.iter().flatten().all(makes_room);
        if let Some(problem) = self.desk.health.borrow().problem()
            && (!self.repair.full || self.repair.doubt.is_some() || (rows > 0 && !makes_room))
        {
            return Err(problem.clone());
        }
        let (retired, compacted) = {
            let mut retired = self.desk.retired.lock();
            let some = retired.records.len().min(REMOVE_AT_LEAST.max(4 * rows));
            (retired.records.drain(..some).collect::<Vec<_>>(), retired.compacted)
        };
        if rows == 0 && retired.is_empty() {
            return Ok(());
        }
        let outcome = self.transact(decisions.iter().flatten(), &retired, compacted);
        outcome.map_err(|failure| {
            let decided = decisions.drain(..).flatten().collect();
            self.repair.doubt = Some(Doubt { decided, retired });
            self.fail(failure, now)
        })
    }

    /// One transaction with all its witnesses: the files must still be where they were, before it and after.
    fn transact<'a>(
        &mut self,
        decided: impl Iterator<Item = &'a Decided>,
        retired: &[RecordId],
        compacted: Revision,
    ) -> Result<(), Failure> {
        self.linked()?;
        self.desk.transactions.fetch_add(1, Relaxed);
        match catch_unwind(AssertUnwindSafe(|| self.tables.write(decided, retired, compacted))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::of(&error, self.tables.path())),
            Err(panic) => return Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), said(&*panic)))),
        }
        self.mark
            .advance(self.tables.newest())
            .map_err(|error| Failure::of(&redb::Error::Io(error), self.mark.path()))?;
        self.linked()?;
        self.tables.settled();
        Ok(())
    }

    fn linked(&self) -> Result<(), Failure> {
        match self.repair.links.broken() {
            None => Ok(()),
            Some(path) => Err(Failure::Failing(format!(
                "{}: it was deleted, moved or replaced while the store was open",
                path.display()
            ))),
        }
    }

    /// Says what is wrong, once for all who ask, and what is to be done.
    fn fail(&mut self, failure: Failure, now: Instant) -> Arc<str> {
        self.repair.retry = Some(now + RETRY);
        let health = match failure {
            _ if self.repair.sync_failed.load(SeqCst) => Health::Broken(
                format!(
                    "{}: an fsync failed, so what the disk holds is not known: nothing more can be committed; check the \
                     disk and restart, which keeps everything that was acknowledged",
                    self.tables.path().display()
                )
                .into(),
            ),
            Failure::Broken(why) => Health::Broken(
                format!("{why}; nothing more can be committed: restart, which keeps everything that was acknowledged")
                    .into(),
            ),
            Failure::Full(why) => {
                self.repair.full = true;
                self.repair.reserve.release();
                // There is room for what makes room right now.
                self.repair.retry = None;
                Health::Failing(
                    format!("{why}; until there is space again, only deletions and updates that add nothing are taken").into(),
                )
            }
            Failure::Failing(why) => {
                Health::Failing(format!("{why}; nothing can be committed until that is mended; reads go on").into())
            }
        };
        let problem = health.problem().cloned().unwrap_or_default();
        // Only a change is told: who watches would log each attempt.
        self.desk.health.send_if_modified(|told| {
            let news = std::mem::discriminant(told) != std::mem::discriminant(&health);
            *told = health;
            news
        });
        problem
    }

    /// Tries to come back, now and then: opens the database again, learns what became of the transaction that failed, and
    /// writes a little.
    fn recover(&mut self, now: Instant) {
        if self.repair.doubt.is_none()
            && *self.desk.health.borrow() == Health::Fine
            && let Err(failure) = self.linked()
        {
            self.repair.doubt = Some(Doubt { decided: Vec::new(), retired: Vec::new() });
            self.fail(failure, now);
        }
        let failing = matches!(*self.desk.health.borrow(), Health::Failing(_));
        if !failing || self.repair.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.repair.retry = Some(now + RETRY);
        let doubtful = self.repair.doubt.is_some();
        if let Err(failure) = self.settle(now) {
            self.fail(failure, now);
            return;
        }
        if self.repair.full && (doubtful || !self.has_room(now)) {
            // What waits and makes room comes first.
            return;
        }
        let compacted = self.desk.retired.lock().compacted;
        match self.transact(std::iter::empty(), &[], compacted) {
            Ok(()) => {
                self.repair.full = false;
                // Best effort, as at the start.
                let _ = self.repair.reserve.hold();
                self.desk.health.send_replace(Health::Fine);
            }
            Err(failure) => {
                self.repair.doubt = Some(Doubt { decided: Vec::new(), retired: Vec::new() });
                self.fail(failure, now);
                if self.repair.full {
                    // Deletions that wait go on at once: the reserve was given up again. The next try is for later.
                    self.repair.retry = Some(now + RETRY);
                    if let Err(failure) = self.settle(now) {
                        self.fail(failure, now);
                    }
                }
            }
        }
    }

    /// Whether a full disk has room again, by itself or because so much was deleted that the file can be cut.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.repair.reserve.hold_with_headroom().is_ok() {
            return true;
        }
        self.forget_history();
        let removed = self.desk.retired.lock().records.is_empty();
        if removed && self.tables.freed() >= 2 * RESERVED as u64 {
            self.shrink(now);
        }
        false
    }

    /// On a full disk history takes room, too; whoever follows the newest changes does not miss it.
    fn forget_history(&self) {
        let newest = self.ledger.read().newest();
        self.ledger.compact(newest.previous(), |records, compacted| self.desk.retire(records, compacted));
    }

    /// Ends the doubt about the transaction that failed.
    fn settle(&mut self, now: Instant) -> Result<(), Failure> {
        if self.repair.doubt.is_none() {
            return Ok(());
        }
        self.linked()?;
        let Repair { opener, sync_failed, .. } = &self.repair;
        let reopened = catch_unwind(AssertUnwindSafe(|| self.tables.reopen(opener, sync_failed)));
        let fate = match reopened {
            Ok(fate) => fate.map_err(|error| Failure::of(&error, self.tables.path()))?,
            Err(panic) => return Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), said(&*panic)))),
        };
        let Some(Doubt { decided, retired }) = self.repair.doubt.take() else { return Ok(()) };
        match fate {
            Fate::Happened => decided.into_iter().for_each(|decided| self.publish(decided, now)),
            Fate::Nothing => {
                let mut waiting = self.desk.retired.lock();
                retired.into_iter().rev().for_each(|record| waiting.records.push_front(record));
            }
        }
        if self.repair.full {
            self.forget_history();
        }
        Ok(())
    }
}

/// Whether a commit leaves no more than it found, but for a few marks such as a time of deletion.
fn makes_room(decided: &Decided) -> bool {
    const MARKS: usize = 512;
    decided.rows.iter().all(|row| match (&row.before, &row.after.value) {
        (_, None) => true,
        (Some(before), Some(value)) => value.len() <= before.size() + MARKS,
        (None, Some(_)) => false,
    })
}
