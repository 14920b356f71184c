//! The one thread that writes. In: commits from the queue. It decides all commits that queued up during the last fsync,
//! makes them durable with one fsync, makes them visible, and only then answers, in order. A small batch goes into the log, and with
//! later ones from there into the database; a larger one goes into the database at once. No delay is added to make batches
//! larger. After a failed write it answers with the reason and reopens the database until it can write; the reopened database
//! shows whether the failed transaction was committed. After a failed fsync that cannot be known, so it refuses for good.

use std::{
    collections::VecDeque,
    fs::File,
    io,
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
    faults::{FileIdentities, Opener, RESERVED, Reserve, is_full},
    high_water_mark::HighWaterMark,
    load::panic_message,
    log::Log,
    queue::{Job, Queue},
    tables::{Outcome, Tables},
};
use crate::{
    CommitError, Health, Revision,
    index::{Batch, Decided, RecordId, Row},
    ledger::Ledger,
};

/// After this long without a commit, the rows of the log go into the database, and retired records are removed from it, in a
/// transaction of their own. Doing so at once would make the next commit wait for that fsync.
pub(super) const IDLE: Duration = Duration::from_millis(100);
/// How often a failing store tries to recover.
const RETRY: Duration = Duration::from_secs(1);
/// How many records one transaction removes: few enough not to slow it down, and more than it can add.
const REMOVE_AT_LEAST: usize = 512;

/// An idle store shrinks its file if the records in it have at most so many bytes: moving them takes some tenths of a
/// second, for which a commit may have to wait. Larger ones wait for the next start, which reads all of them anyway.
const SHRINK_WHEN_IDLE: u64 = 16 << 20;

/// What the writer shares with the store that owns it.
pub(super) struct WriterShared {
    pub queue: Arc<Queue>,
    pub retired: Mutex<Retired>,
    pub commits: AtomicU64,
    pub transactions: AtomicU64,
    /// Whether the store can write, and why not.
    pub health: watch::Sender<Health>,
}

/// Records that no read can reach any more. They are removed in the order in which they were compacted.
#[derive(Default)]
pub(super) struct Retired {
    pub compacted: Revision,
    pub records: VecDeque<RecordId>,
}

impl WriterShared {
    pub(super) fn new(compacted: Revision, leftover: Vec<RecordId>) -> Arc<WriterShared> {
        Arc::new(WriterShared {
            queue: Queue::new(),
            retired: Mutex::new(Retired { compacted, records: leftover.into() }),
            commits: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            health: watch::Sender::default(),
        })
    }

    pub(super) fn retire(&self, records: Vec<RecordId>, compacted: Revision) {
        let mut retired = self.retired.lock();
        retired.compacted = compacted;
        retired.records.extend(records);
    }
}

pub(super) struct Writer {
    pub shared: Arc<WriterShared>,
    pub ledger: Arc<Ledger>,
    pub tables: Tables,
    /// None if the disk had no room for it.
    pub log: Option<Log>,
    pub high_water_mark: HighWaterMark,
    pub repair: Repair,
    /// [`IDLE`], or longer in tests.
    pub idle: Duration,
    /// Keeps other processes out for as long as this one may write.
    pub _lock: File,
}

/// Answers all waiting commits when the thread ends, also by a panic.
struct AbandonOnDrop(Arc<Queue>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// What the writer needs to recover from a failure.
pub(super) struct Repair {
    opener: Opener,
    file_identities: FileIdentities,
    reserve: Reserve,
    sync_failed: Arc<AtomicBool>,
    /// The disk is full: only commits that free space are written, until the reserve fits again.
    full: bool,
    /// The failed transaction; the database must be reopened to know whether it was committed.
    in_doubt: Option<InDoubt>,
    /// The earliest time of the next attempt.
    retry: Option<Instant>,
}

/// A transaction whose outcome is unknown.
struct InDoubt {
    decided: Vec<Decided>,
    retired: Vec<RecordId>,
}

impl Repair {
    pub(super) fn new(
        opener: Opener,
        file_identities: FileIdentities,
        reserve: Reserve,
        sync_failed: Arc<AtomicBool>,
    ) -> Repair {
        Repair { opener, file_identities, reserve, sync_failed, full: false, in_doubt: None, retry: None }
    }
}

/// Why nothing was written.
enum Failure {
    Full(String),
    Failing(String),
    Broken(String),
}

impl Failure {
    fn of(error: &redb::Error, path: &Path) -> Failure {
        let why = format!("{}: {error}", path.display());
        match error {
            redb::Error::Io(error) if is_full(error) => Failure::Full(why),
            redb::Error::Corrupted(_) => Failure::Broken(why),
            _ => Failure::Failing(why),
        }
    }
}

impl Writer {
    /// Reopens the verified file through the opener that tracks failures. On a full disk that can wait: the store then begins as it
    /// goes on when the disk fills up later. `full` says that the file was only read, because the disk is full.
    pub(super) fn begin(&mut self, full: Option<String>, now: Instant) -> io::Result<()> {
        let failure = match full {
            Some(why) => Failure::Full(why),
            None => {
                let Repair { opener, sync_failed, .. } = &self.repair;
                match self.tables.reopen(opener, sync_failed) {
                    Ok(_) => return Ok(()),
                    Err(error) => match Failure::of(&error, self.tables.path()) {
                        full @ Failure::Full(_) => full,
                        _ => return Err(io::Error::other(error)),
                    },
                }
            }
        };
        self.repair.in_doubt = Some(InDoubt { decided: Vec::new(), retired: Vec::new() });
        self.fail(failure, now);
        Ok(())
    }

    pub(super) fn run(mut self) {
        let _abandon = AbandonOnDrop(self.shared.queue.clone());
        self.shrink_if_worth(u64::MAX, Instant::now());
        let mut jobs = Vec::new();
        while self.shared.queue.take(&mut jobs, self.wait_timeout()) {
            let now = Instant::now();
            self.recover(now);
            let jobs = std::mem::take(&mut jobs);
            let idle = jobs.is_empty();
            if self.repair.full && !idle {
                // One by one, so that a commit that frees space does not fail together with one that needs space.
                jobs.into_iter().for_each(|job| self.process(vec![job], now));
            } else {
                self.process(jobs, now);
            }
            if idle && self.shared.retired.lock().records.is_empty() {
                self.shrink_if_worth(SHRINK_WHEN_IDLE, now);
            }
        }
        self.finish();
    }

    /// Leaves a database that has everything, and a log that has nothing. If that fails, the next start does it.
    fn finish(&mut self) {
        let compacted = self.shared.retired.lock().compacted;
        let is_fine = *self.shared.health.borrow() == Health::Fine;
        if is_fine && (self.unfolded().is_empty() || self.transact(std::iter::empty(), &[], compacted).is_ok()) {
            let _ = self.log.as_mut().map(Log::wipe);
        }
    }

    /// The rows that only the log has.
    fn unfolded(&self) -> &[Row] {
        self.log.as_ref().map_or(&[], Log::unfolded)
    }

    /// Shrinks the file if most of its pages are free.
    fn shrink_if_worth(&mut self, at_most: u64, now: Instant) {
        // If the length of the file cannot be read, the next transaction reports the problem.
        let worth = self.tables.mostly_free(at_most).unwrap_or(false);
        if worth && *self.shared.health.borrow() == Health::Fine {
            self.shrink(now);
        }
    }

    /// A failure is handled like the failure of an empty transaction.
    fn shrink(&mut self, now: Instant) {
        let shrunk = self.check_files().and_then(|()| match catch_unwind(AssertUnwindSafe(|| self.tables.shrink())) {
            Ok(shrunk) => shrunk.map_err(|error| Failure::of(&error, self.tables.path())),
            Err(panic) => Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), panic_message(&*panic)))),
        });
        if let Err(failure) = shrunk {
            self.repair.in_doubt = Some(InDoubt { decided: Vec::new(), retired: Vec::new() });
            self.fail(failure, now);
        }
    }

    fn wait_timeout(&self) -> Option<Duration> {
        match *self.shared.health.borrow() {
            Health::Fine => {
                (!self.unfolded().is_empty() || !self.shared.retired.lock().records.is_empty()).then_some(self.idle)
            }
            Health::Failing(_) => Some(RETRY),
            Health::Broken(_) => None,
        }
    }

    /// Decides commits, makes them durable, makes them visible, and answers.
    fn process(&mut self, jobs: Vec<Job>, now: Instant) {
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
            // The caller may have stopped waiting.
            let _ = answer.send(verdict);
        }
    }

    fn publish(&self, decided: Decided, now: Instant) {
        if !decided.rows.is_empty() {
            self.shared.commits.fetch_add(1, Relaxed);
            self.ledger.publish(decided, now, |records, compacted| self.shared.retire(records, compacted));
        }
    }

    /// Writes the decisions. All answers wait for this, also conflicts: a conflict with a commit of the same batch is true
    /// only once that commit is durable.
    fn write(&mut self, decisions: &mut Vec<Result<Decided, CommitError>>, now: Instant) -> Result<(), Arc<str>> {
        let rows: usize = decisions.iter().flatten().map(|decided| decided.rows.len()).sum();
        let frees_space = decisions.iter().flatten().all(frees_space);
        if let Some(problem) = self.shared.health.borrow().problem()
            && (!self.repair.full || self.repair.in_doubt.is_some() || (rows > 0 && !frees_space))
        {
            return Err(problem.clone());
        }
        match self.append(decisions.iter().flatten().flat_map(|decided| &decided.rows)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) => {
                let decided = decisions.drain(..).flatten().collect();
                self.repair.in_doubt = Some(InDoubt { decided, retired: Vec::new() });
                return Err(self.fail(failure, now));
            }
        }
        // By itself first, and then wiped: no other commits may be durable while the log ends with refused ones.
        if rows > 0 && self.log.as_ref().is_some_and(Log::is_spoiled) {
            let compacted = self.shared.retired.lock().compacted;
            if let Err(failure) = self.transact(std::iter::empty(), &[], compacted) {
                self.repair.in_doubt = Some(InDoubt { decided: Vec::new(), retired: Vec::new() });
                return Err(self.fail(failure, now));
            }
        }
        let (retired, compacted) = {
            let mut retired = self.shared.retired.lock();
            let some = retired.records.len().min(REMOVE_AT_LEAST.max(4 * (rows + self.unfolded().len())));
            (retired.records.drain(..some).collect::<Vec<_>>(), retired.compacted)
        };
        if rows == 0 && retired.is_empty() && self.unfolded().is_empty() {
            return Ok(());
        }
        let rows = decisions.iter().flatten().flat_map(|decided| &decided.rows);
        let outcome = self.transact(rows, &retired, compacted);
        outcome.map_err(|failure| {
            let decided = decisions.drain(..).flatten().collect();
            self.repair.in_doubt = Some(InDoubt { decided, retired });
            self.fail(failure, now)
        })
    }

    /// Makes a small batch durable in the log and advances the high-water mark. False if the batch has to go into the database.
    fn append<'a>(&mut self, rows: impl Iterator<Item = &'a Row> + Clone) -> Result<bool, Failure> {
        let Some(log) = self.log.as_mut().filter(|log| !self.repair.full && log.has_room(rows.clone())) else {
            return Ok(false);
        };
        let Some(newest) = rows.clone().last().map(Row::revision) else { return Ok(false) };
        check_files(&self.repair.file_identities)?;
        self.shared.transactions.fetch_add(1, Relaxed);
        match log.append(rows.clone()) {
            Ok(()) => {}
            // Nothing is known about a disk whose fsync failed.
            Err(error) if self.repair.sync_failed.load(SeqCst) => {
                return Err(Failure::of(&redb::Error::Io(error), log.path()));
            }
            // If the database cannot be written either, it says why.
            Err(_) => return Ok(false),
        }
        let advanced = self
            .high_water_mark
            .advance(newest)
            .map_err(|error| Failure::of(&redb::Error::Io(error), self.high_water_mark.path()))
            .and_then(|()| check_files(&self.repair.file_identities));
        if advanced.is_err() {
            log.spoil(rows.count());
        }
        advanced.map(|()| true)
    }

    /// Writes one transaction, with what is in the log, and advances the high-water mark. The files must be the same before and after.
    /// A spoiled log is wiped at the end, so rows are only given while it is not spoiled.
    fn transact<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a Row>,
        retired: &[RecordId],
        compacted: Revision,
    ) -> Result<(), Failure> {
        self.check_files()?;
        self.shared.transactions.fetch_add(1, Relaxed);
        let mut all: Vec<&Row> = self.log.as_ref().map_or(&[][..], Log::unfolded).iter().collect();
        for row in rows {
            all.push(row);
        }
        match catch_unwind(AssertUnwindSafe(|| self.tables.write(&all, retired, compacted))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::of(&error, self.tables.path())),
            Err(panic) => {
                return Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), panic_message(&*panic))));
            }
        }
        self.high_water_mark
            .advance(self.tables.newest())
            .map_err(|error| Failure::of(&redb::Error::Io(error), self.high_water_mark.path()))?;
        self.check_files()?;
        self.tables.resolve_in_doubt();
        self.folded()
    }

    /// The database has what the log has.
    fn folded(&mut self) -> Result<(), Failure> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.folded().map_err(|error| Failure::of(&redb::Error::Io(error), log.path()))
    }

    fn check_files(&self) -> Result<(), Failure> {
        check_files(&self.repair.file_identities)
    }

    /// Sets the health of the store after a failure and returns the reason.
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
                // The freed reserve leaves space for deletions, so there is no need to wait.
                self.repair.retry = None;
                Health::Failing(
                    format!("{why}; until there is space again, only deletions and updates that add nothing are taken").into(),
                )
            }
            Failure::Failing(why) => {
                Health::Failing(format!("{why}; nothing can be committed until that is fixed; reads go on").into())
            }
        };
        let problem = health.problem().cloned().unwrap_or_default();
        // Watchers are notified only when the state changes, because they log it.
        self.shared.health.send_if_modified(|current| {
            let changed = std::mem::discriminant(current) != std::mem::discriminant(&health);
            *current = health;
            changed
        });
        problem
    }

    /// Tries to recover, at most once per [`RETRY`]: reopens the database, resolves the transaction in doubt, and writes an
    /// empty transaction.
    fn recover(&mut self, now: Instant) {
        if self.repair.in_doubt.is_none()
            && *self.shared.health.borrow() == Health::Fine
            && let Err(failure) = self.check_files()
        {
            self.repair.in_doubt = Some(InDoubt { decided: Vec::new(), retired: Vec::new() });
            self.fail(failure, now);
        }
        let failing = matches!(*self.shared.health.borrow(), Health::Failing(_));
        if !failing || self.repair.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.repair.retry = Some(now + RETRY);
        let was_in_doubt = self.repair.in_doubt.is_some();
        if let Err(failure) = self.resolve_in_doubt(now) {
            self.fail(failure, now);
            return;
        }
        if self.repair.full && (was_in_doubt || !self.has_room(now)) {
            // Waiting commits that free space come first.
            return;
        }
        let compacted = self.shared.retired.lock().compacted;
        match self.transact(std::iter::empty(), &[], compacted) {
            Ok(()) => {
                self.repair.full = false;
                // Best effort, as at the start.
                let _ = self.repair.reserve.hold();
                self.shared.health.send_replace(Health::Fine);
            }
            Err(failure) => {
                self.repair.in_doubt = Some(InDoubt { decided: Vec::new(), retired: Vec::new() });
                self.fail(failure, now);
                if self.repair.full {
                    // Waiting deletions continue at once, because the reserve was freed again. The next attempt comes later.
                    self.repair.retry = Some(now + RETRY);
                    if let Err(failure) = self.resolve_in_doubt(now) {
                        self.fail(failure, now);
                    }
                }
            }
        }
    }

    /// Whether a full disk has space again, by itself or because so much was deleted that the file can shrink.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.repair.reserve.hold_with_headroom().is_ok() {
            return true;
        }
        self.forget_history();
        let removed = self.shared.retired.lock().records.is_empty();
        if removed && self.tables.freed() >= 2 * RESERVED as u64 {
            self.shrink(now);
        }
        false
    }

    /// Drops the history to free space. Watchers that are up to date do not need it.
    fn forget_history(&self) {
        let newest = self.ledger.read().newest();
        self.ledger.compact(newest.previous(), |records, compacted| self.shared.retire(records, compacted));
    }

    /// Finds out whether the transaction in doubt was committed, and publishes or undoes it.
    fn resolve_in_doubt(&mut self, now: Instant) -> Result<(), Failure> {
        if self.repair.in_doubt.is_none() {
            return Ok(());
        }
        self.check_files()?;
        let Repair { opener, sync_failed, .. } = &self.repair;
        let reopened = catch_unwind(AssertUnwindSafe(|| self.tables.reopen(opener, sync_failed)));
        let outcome = match reopened {
            Ok(outcome) => outcome.map_err(|error| Failure::of(&error, self.tables.path()))?,
            Err(panic) => {
                return Err(Failure::Broken(format!("{}: {}", self.tables.path().display(), panic_message(&*panic))));
            }
        };
        let Some(InDoubt { decided, retired }) = self.repair.in_doubt.take() else { return Ok(()) };
        match outcome {
            Outcome::Committed => {
                decided.into_iter().for_each(|decided| self.publish(decided, now));
                self.folded()?;
            }
            Outcome::RolledBack => {
                let mut waiting = self.shared.retired.lock();
                retired.into_iter().rev().for_each(|record| waiting.records.push_front(record));
            }
        }
        if self.repair.full {
            self.forget_history();
        }
        Ok(())
    }
}

fn check_files(identities: &FileIdentities) -> Result<(), Failure> {
    match identities.replaced() {
        None => Ok(()),
        Some(path) => Err(Failure::Failing(format!(
            "{}: it was deleted, moved or replaced while the store was open",
            path.display()
        ))),
    }
}

/// Whether a commit needs no more space than before, apart from a few bytes such as a deletion timestamp.
fn frees_space(decided: &Decided) -> bool {
    const TOLERANCE: usize = 512;
    decided.rows.iter().all(|row| match (&row.before, &row.after.value) {
        (_, None) => true,
        (Some(before), Some(value)) => value.len() <= before.size() + TOLERANCE,
        (None, Some(_)) => false,
    })
}
