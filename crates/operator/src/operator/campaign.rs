//! Campaigns that go on, and who is told of them. In: the task of an election, and functions of the program. Out: the election until it
//! is to stop, and each change of who leads, told once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, select_all};
use konverge_runtime::{Error, HeldShard, Leadership, Standing, Term};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How long functions that are told of the last change may take when the process ends.
const CALLBACKS_END_WITHIN: Duration = Duration::from_secs(1);

/// Functions of the program that are told who leads.
#[derive(Clone, Default)]
pub(super) struct LeaderCallbacks {
    pub started: Vec<Callback<Term>>,
    pub stopped: Vec<Callback<Term>>,
    pub new_leader: Vec<Callback<str>>,
    pub shards: Vec<Callback<[HeldShard]>>,
}

pub(super) type Callback<T> = Arc<dyn Fn(&T) + Send + Sync>;

impl LeaderCallbacks {
    /// Tells those of another one as well.
    pub(super) fn extend(&mut self, other: &Self) {
        self.started.extend(other.started.iter().cloned());
        self.stopped.extend(other.stopped.iter().cloned());
        self.new_leader.extend(other.new_leader.iter().cloned());
        self.shards.extend(other.shards.iter().cloned());
    }

    pub(super) fn tell(&self, change: &Change) {
        match change {
            Change::Leader(leader) => self.new_leader.iter().for_each(|told| told(leader)),
            Change::Started(term) => self.started.iter().for_each(|told| told(term)),
            Change::Stopped(term) => self.stopped.iter().for_each(|told| told(term)),
        }
    }
}

/// The campaigns of an instance that go on: one, or one more for each election group.
#[derive(Default)]
pub(super) struct Campaigns(Vec<Campaign>);

impl Campaigns {
    pub(super) fn push(&mut self, campaign: Campaign) {
        self.0.push(campaign);
    }

    /// Resolves with an error if a campaign ends by itself, which it does only if something is broken.
    pub(super) async fn broken(&mut self) -> Error {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter_mut().map(|campaign| campaign.broken().boxed())).await.0
    }

    /// Resolves when a term of this instance is over.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let leaderships: Vec<Leadership> = self.0.iter().map(|campaign| campaign.leadership.clone()).collect();
        async move {
            let lost = leaderships.iter().map(|leadership| {
                async move {
                    let term = leadership.begun().await;
                    leadership.ended(&term).await;
                }
                .boxed()
            });
            match lost.len() {
                0 => std::future::pending().await,
                _ => select_all(lost).await.0,
            }
        }
    }

    /// Releases all Leases, so that other instances take over at once.
    pub(super) async fn stop(self) {
        join_all(self.0.into_iter().map(Campaign::stop)).await;
    }
}

/// A campaign that goes on. It is aborted when this is dropped, like a crash: the Lease is not released.
pub(super) struct Campaign {
    tasks: Option<Tasks>,
    leadership: Leadership,
}

struct Tasks {
    campaign: JoinHandle<()>,
    tell: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    /// Dropped when the campaign is over, so that `tell` ends after the last change.
    end: oneshot::Sender<()>,
}

impl Campaign {
    /// Begins it. `campaign` is given what resolves when it has to stop, `tell` what resolves when it has stopped.
    pub(super) fn start<C, T>(
        leadership: Leadership,
        campaign: impl FnOnce(BoxFuture<'static, ()>) -> C,
        tell: impl FnOnce(BoxFuture<'static, ()>) -> T,
    ) -> Self
    where
        C: Future<Output = ()> + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let ((stop, stopped), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let tell = tokio::spawn(tell(async { drop(ended.await) }.boxed()));
        let campaign = tokio::spawn(campaign(async { drop(stopped.await) }.boxed()));
        Self { tasks: Some(Tasks { campaign, tell, stop, end }), leadership }
    }

    async fn broken(&mut self) -> Error {
        let Some(tasks) = &mut self.tasks else { return std::future::pending().await };
        // Why a task ended is in the log: the panic hook wrote it.
        tokio::select! {
            _ = &mut tasks.campaign => Error::new("the leader election ended by itself"),
            _ = &mut tasks.tell => Error::new("a function that is told about leader election panicked"),
        }
    }

    /// Releases the Lease, so that another instance takes over at once.
    async fn stop(mut self) {
        let Some(tasks) = self.tasks.take() else { return };
        let Tasks { campaign, mut tell, stop, end } = tasks;
        drop(stop);
        // A task that ended by itself was joined already, and a second join would panic.
        if !campaign.is_finished() {
            // It ends within the time that the release of a Lease may take.
            let _ = campaign.await;
        }
        drop(end);
        if !tell.is_finished() && tokio::time::timeout(CALLBACKS_END_WITHIN, &mut tell).await.is_err() {
            tracing::warn!("a function that is told about leader election does not return");
            tell.abort();
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Some(tasks) = &self.tasks {
            tasks.campaign.abort();
            tasks.tell.abort();
        }
    }
}

/// A change of who leads, as the callbacks of client-go tell it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Leader(Arc<str>),
    Started(Arc<Term>),
    Stopped(Arc<Term>),
}

/// Calls `tell` for each change until `ended` resolves, and then for what changed last: a term that began is also told to be over.
pub(super) async fn follow(
    mut changes: watch::Receiver<Standing>,
    ended: impl Future<Output = ()>,
    tell: impl Fn(Change),
) {
    let (mut known, mut ended) = (Standing::default(), pin!(ended));
    loop {
        let is_over = tokio::select! {
            biased;
            changed = changes.changed() => changed.is_err(),
            () = &mut ended => true,
        };
        let mut now = changes.borrow_and_update().clone();
        if is_over {
            now.term = None;
        }
        differences(&known, &now).into_iter().for_each(&tell);
        if is_over {
            return;
        }
        known = now;
    }
}

fn differences(before: &Standing, after: &Standing) -> Vec<Change> {
    let mut changes = Vec::new();
    let number = |standing: &Standing| standing.term.as_ref().map(|term| term.number);
    let has_changed = number(before) != number(after);
    if let Some(term) = before.term.as_ref().filter(|_| has_changed) {
        changes.push(Change::Stopped(term.clone()));
    }
    if let Some(leader) = after.leader.as_ref().filter(|leader| before.leader.as_ref() != Some(leader)) {
        changes.push(Change::Leader(leader.clone()));
    }
    if let Some(term) = after.term.as_ref().filter(|_| has_changed) {
        changes.push(Change::Started(term.clone()));
    }
    changes
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    /// Whoever was told that a term began is told that it is over, also if the process ends at that moment.
    #[tokio::test]
    async fn a_term_that_began_is_told_to_be_over() {
        for (release, expect) in [(false, "leader a, started 1, stopped 1"), (true, "leader a, started 1, stopped 1")] {
            let (leadership, seat) = Leadership::vacant();
            let (told, (end, ended)) = (Mutex::new(Vec::new()), oneshot::channel::<()>());
            let following = follow(leadership.changes(), async { drop(ended.await) }, |change| {
                told.lock().push(match change {
                    Change::Leader(leader) => format!("leader {leader}"),
                    Change::Started(term) => format!("started {}", term.number),
                    Change::Stopped(term) => format!("stopped {}", term.number),
                });
            });
            let mut following = pin!(following);
            seat.lead(Term { number: 1, holder: "a".into(), fence: None }, Instant::now() + Duration::from_secs(60));
            assert!(futures_util::poll!(following.as_mut()).is_pending());
            // Nobody is polled between the last change and the end.
            if release {
                seat.follow(None);
            }
            drop(end);
            following.await;
            assert_eq!(told.lock().join(", "), expect);
        }
    }
}
