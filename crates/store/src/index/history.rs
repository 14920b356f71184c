//! The window of recent changes, which every watch walks with its own cursor. Rows come in with each commit and leave
//! at the front when they are too many, too heavy or too old. Nobody pushes into a queue per watcher: a stalled one
//! costs nothing and can lose only itself.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Version, chain::give_back};
use crate::{Change, Revision};

/// How much history is kept for watches and for reads that look back. History goes when *any* of these is exceeded: a
/// little with each commit, and the rest when [`crate::Store::maintain`] is called.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// At most so many changes. A row costs 32 bytes, and a watcher a hundred thousand changes behind is better off
    /// with a fresh list.
    pub changes: usize,
    /// At most so many bytes of replaced and deleted values: what history costs in memory beyond the newest versions.
    pub bytes: usize,
    /// At most so old. Clients of Kubernetes expect to resume a watch or a paged list within five minutes; below 75
    /// seconds, a connection that is only noticed dead after a minute could never resume.
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { changes: 100_000, bytes: 64 << 20, age: Duration::from_secs(300) }
    }
}

/// One change in the history.
#[derive(Clone)]
pub(crate) struct Row {
    pub key: Arc<str>,
    /// The version that was readable before; `None`: the key was absent.
    pub before: Option<Arc<Version>>,
    pub after: Arc<Version>,
}

impl Row {
    pub(crate) fn revision(&self) -> Revision {
        self.after.revision
    }

    fn change(&self) -> Change {
        let Row { key, before, after } = self;
        Change {
            revision: after.revision,
            key: key.clone(),
            before: before.as_ref().and_then(|before| before.entry(key)),
            after: after.entry(key),
        }
    }

    fn superseded(&self) -> usize {
        self.before.as_ref().map_or(0, |before| before.size())
    }
}

/// How exactly ages are known. One mark per commit would cost more than the rows of small commits.
const MARK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct History {
    rows: VecDeque<Row>,
    /// The bytes of all `before` values in `rows`.
    superseded: usize,
    /// "Everything up to this revision happened by this time", at most one for each [`MARK_EVERY`].
    marks: VecDeque<(Instant, Revision)>,
}

impl History {
    pub(super) fn push(&mut self, row: Row, now: Instant) {
        let revision = row.revision();
        match self.marks.back_mut() {
            Some((since, through)) if now.saturating_duration_since(*since) < MARK_EVERY => *through = revision,
            _ => self.marks.push_back((now, revision)),
        }
        self.superseded += row.superseded();
        self.rows.push_back(row);
    }

    pub(super) fn pop_through(&mut self, through: Revision) -> Vec<Row> {
        let gone = self.rows.partition_point(|row| row.revision() <= through);
        let rows: Vec<Row> = self.rows.drain(..gone).collect();
        self.superseded -= rows.iter().map(Row::superseded).sum::<usize>();
        let old = self.marks.partition_point(|(_, revision)| *revision <= through);
        self.marks.drain(..old);
        give_back(&mut self.rows);
        rows
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The revision through which `budget` rows go, if that is before `through`. A commit is never split.
    pub(super) fn within(&self, through: Revision, budget: usize) -> Revision {
        self.rows.get(budget.saturating_sub(1)).map_or(through, |row| row.revision().min(through))
    }

    /// The revision through which history exceeds the retention; zero: it does not.
    pub(super) fn surplus(&self, retention: &Retention, now: Instant) -> Revision {
        let too_many = match self.rows.len().saturating_sub(retention.changes) {
            0 => Revision::ZERO,
            excess => self.rows[excess - 1].revision(),
        };
        let mut excess = self.superseded.saturating_sub(retention.bytes);
        let too_heavy = self.rows.iter().take_while(|row| {
            let heavy = excess > 0;
            excess = excess.saturating_sub(row.superseded());
            heavy
        });
        let too_heavy = too_heavy.last().map_or(Revision::ZERO, Row::revision);
        // A mark stands for up to MARK_EVERY after its time, so it is old only when that has passed, too.
        let old = |(since, _): &&(Instant, Revision)| {
            now.saturating_duration_since(*since) > retention.age.saturating_add(MARK_EVERY)
        };
        let too_old = self.marks.iter().take_while(old).last().map_or(Revision::ZERO, |(_, revision)| *revision);
        too_many.max(too_heavy).max(too_old)
    }

    pub(super) fn changes(
        &self,
        prefix: &str,
        after: Revision,
        max: usize,
        budget: usize,
        newest: Revision,
    ) -> (Vec<Change>, Revision) {
        let from = self.rows.partition_point(|row| row.revision() <= after);
        let mut found: Vec<Change> = Vec::new();
        let mut seen = after;
        let mut begun = 0; // Where the commit that is being looked at begins in `found`.
        for (looked, row) in self.rows.range(from..).enumerate() {
            if row.revision() != seen {
                // The commit before is complete; may another one begin?
                if found.len() >= max || looked >= budget {
                    return (found, seen);
                }
                begun = found.len();
            }
            seen = row.revision();
            if row.key.starts_with(prefix) {
                if found.len() >= max && begun > 0 {
                    found.truncate(begun);
                    return (found, seen.previous());
                }
                found.push(row.change());
            }
        }
        (found, newest)
    }
}
