//! Which part of the objects this replica works on. In: terms of shards that an election begins and ends ([`ShardSeats`]). Out: the
//! term of each shard for everybody who asks ([`Shards`]), and a guard for work on a shard, so that a shard is handed over when
//! nothing works on it any more.

mod balance;
mod claim;
mod election;
mod leases;
mod replica;
mod view;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

pub use election::ShardElection;

use crate::leadership::{Leadership, Seat};
use crate::term::Term;

/// The shards of an operator, and which of them this replica holds. Cheap to clone; all clones are the same.
///
/// An object belongs to the shard that the hash of its uid falls into, for as long as it lives and on every replica. Each shard has a
/// [`Leadership`] of its own.
///
/// ```
/// use konverge_leadership::Shards;
///
/// let (shards, _seats) = Shards::vacant(8, "web-0", 0);
/// let shard = shards.of("7d9f3b6e-2c51-4f0e-9a57-0d6f6f4f1c1e");
/// assert!(shard < 8);
/// assert!(shards.begin(shard).is_none(), "this replica does not hold it");
/// ```
#[derive(Clone, Debug)]
pub struct Shards(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    identity: Arc<str>,
    shards: Box<[Shard]>,
    /// Counts the terms that began or ended.
    changes: watch::Sender<u64>,
    /// How many controllers have not filled their caches.
    unfilled: watch::Sender<usize>,
    /// Whether this replica stops, and takes no more shards.
    is_leaving: AtomicBool,
    status: Mutex<ShardsStatus>,
}

#[derive(Debug)]
struct Shard {
    leadership: Leadership,
    work: watch::Sender<Work>,
}

/// What works on a shard.
#[derive(Clone, Debug, Default)]
struct Work {
    running: usize,
    /// Whether the shard is about to be handed over, so that nothing is begun.
    is_draining: bool,
    /// Since when this replica holds the shard, for people.
    since: Option<Timestamp>,
}

/// How this replica takes part, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardsStatus {
    /// How many replicas there are, this one included; none are known before this one is one of them.
    pub replicas: usize,
    /// Why this replica takes no shards, if it does not.
    pub waiting: Option<String>,
}

/// A shard that this replica holds, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldShard {
    /// Which one.
    pub shard: usize,
    /// Its term.
    pub term: u64,
    /// Since when.
    pub since: Option<Timestamp>,
}

impl Shards {
    /// This many shards, of which none is held yet, and where an election says which are. `controllers` is how many times
    /// [`Shards::caches_filled`] will be called before this replica should take shards.
    pub fn vacant(count: usize, identity: &str, controllers: usize) -> (Self, ShardSeats) {
        let (leaderships, seats): (Vec<Leadership>, Vec<Seat>) =
            (0..count.max(1)).map(|_| Leadership::vacant()).unzip();
        let shard = |leadership| Shard { leadership, work: watch::Sender::default() };
        let shards = Self(Arc::new(Inner {
            identity: identity.into(),
            shards: leaderships.into_iter().map(shard).collect(),
            changes: watch::Sender::new(0),
            unfilled: watch::Sender::new(controllers),
            is_leaving: AtomicBool::new(false),
            status: Mutex::default(),
        }));
        (shards.clone(), ShardSeats { shards, seats })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.shards.len()
    }

    /// Who this replica is.
    pub fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    /// The shard of the object with this uid.
    pub fn of(&self, uid: &str) -> usize {
        shard_of(uid, self.count())
    }

    /// Whether this replica holds a shard, and in which term.
    pub fn leadership(&self, shard: usize) -> &Leadership {
        &self.0.shards[shard].leadership
    }

    /// The shard that the current task works for, if it was begun in a term of one of these.
    pub fn of_this_task(&self) -> Option<usize> {
        let (leadership, _) = Leadership::of_this_task()?;
        self.0.shards.iter().position(|it| it.leadership.is(&leadership))
    }

    /// Whether work on a shard may begin.
    pub fn is_open(&self, shard: usize) -> bool {
        let it = &self.0.shards[shard];
        !it.work.borrow().is_draining && it.leadership.term().is_some()
    }

    /// Begins work on a shard: none if this replica does not hold it, or is about to hand it over.
    pub fn begin(&self, shard: usize) -> Option<ShardWork> {
        let it = &self.0.shards[shard];
        let mut begun = false;
        // Nobody is told: whoever waits, waits for the end of work.
        it.work.send_if_modified(|work| {
            begun = !work.is_draining;
            work.running += usize::from(begun);
            false
        });
        if !begun {
            return None;
        }
        let running = RunningWork { shards: self.clone(), shard };
        let term = it.leadership.term()?;
        Some(ShardWork { term, running })
    }

    /// The shards that this replica holds.
    pub fn held(&self) -> Vec<HeldShard> {
        let held = |(shard, it): (usize, &Shard)| {
            let term = it.leadership.term()?.number;
            Some(HeldShard { shard, term, since: it.work.borrow().since })
        };
        self.0.shards.iter().enumerate().filter_map(held).collect()
    }

    /// Resolves whenever the term of a shard has begun or ended. Whoever has seen that, and reads the count then, finds it counted.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// A controller has filled its caches. A replica takes shards when all have: a shard that it took before would wait.
    pub fn caches_filled(&self) {
        self.0.unfilled.send_modify(|left| *left = left.saturating_sub(1));
    }

    /// This replica stops soon. It keeps its shards until it has stopped, and takes no others.
    pub fn leave(&self) {
        self.0.is_leaving.store(true, Ordering::Relaxed);
    }

    /// How this replica takes part.
    pub fn status(&self) -> ShardsStatus {
        self.0.status.lock().map(|status| status.clone()).unwrap_or_default()
    }

    /// Waits until all controllers have filled their caches.
    async fn filled(&self) {
        // The sender is in `self`, so it is never gone.
        let _ = self.0.unfilled.subscribe().wait_for(|left| *left == 0).await;
    }
}

/// The shard of an object: the hash is cut into equal ranges, as `shardRange` of Kubernetes (KEP-5866) has it, with the same hash. So a
/// range can be asked of a server that knows it.
fn shard_of(uid: &str, count: usize) -> usize {
    let count = u128::try_from(count).unwrap_or(u128::MAX);
    let shard = u128::from(fnv1a(uid)).saturating_mul(count) >> 64;
    usize::try_from(shard).expect("it is less than the count, which is one")
}

/// FNV-1a, 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Work on a shard that goes on. The shard is not handed over before this is dropped, but for work that takes too long.
#[derive(Debug)]
pub struct ShardWork {
    /// The term that the work was begun in.
    pub term: Arc<Term>,
    running: RunningWork,
}

impl ShardWork {
    /// The leadership that the term is of.
    pub fn leadership(&self) -> &Leadership {
        self.running.shards.leadership(self.running.shard)
    }
}

#[derive(Debug)]
struct RunningWork {
    shards: Shards,
    shard: usize,
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.shards.0.shards[self.shard].work.send_if_modified(|work| {
            work.running -= 1;
            work.is_draining && work.running == 0
        });
    }
}

/// Where an election says which shards this replica holds. When it is dropped, all terms are over.
#[derive(Debug)]
pub struct ShardSeats {
    shards: Shards,
    seats: Vec<Seat>,
}

impl ShardSeats {
    /// This replica holds a shard in this term until the deadline.
    pub fn lead(&self, shard: usize, term: Term, deadline: Instant) {
        let it = &self.shards.0.shards[shard];
        let is_new = it.leadership.term().is_none_or(|known| known.number != term.number);
        if !is_new {
            return self.seats[shard].lead(term, deadline);
        }
        let since = Some(Timestamp::now());
        // Work of the term before may end in this moment, so its count is left alone.
        it.work.send_modify(|work| (work.is_draining, work.since) = (false, since));
        self.change(|| self.seats[shard].lead(term, deadline));
    }

    /// This replica does not hold a shard; perhaps another one does.
    pub fn follow(&self, shard: usize, holder: Option<Arc<str>>) {
        match self.shards.leadership(shard).has_term() {
            true => self.change(|| self.seats[shard].follow(holder)),
            false => self.seats[shard].follow(holder),
        }
    }

    /// Nothing begins for a shard any more. The future resolves when nothing works on it.
    fn drain(&self, shard: usize) -> impl Future<Output = ()> + Send + use<> {
        let work = &self.shards.0.shards[shard].work;
        work.send_modify(|work| work.is_draining = true);
        let mut work = work.subscribe();
        async move {
            // The sender is gone only when everything else is, too.
            let _ = work.wait_for(|work| work.running == 0).await;
        }
    }

    fn status(&self, status: ShardsStatus) {
        if let Ok(mut known) = self.shards.0.status.lock() {
            *known = status;
        }
    }

    /// Begins or ends a term, and counts it. Nobody reads the count between the two, so whoever has seen the term finds it counted.
    fn change(&self, act: impl FnOnce()) {
        self.shards.0.changes.send_modify(|changes| {
            act();
            *changes = changes.wrapping_add(1);
        });
    }
}

impl Drop for ShardSeats {
    fn drop(&mut self) {
        (0..self.seats.len()).for_each(|shard| self.follow(shard, None));
        self.status(ShardsStatus::default());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lead(seats: &ShardSeats, shard: usize, number: u64) {
        let term = Term::of_lease("shop", "web-shard", number, &"web-0".into());
        seats.lead(shard, term, Instant::now() + Duration::from_secs(10));
    }

    /// What the sources of Kubernetes 1.36 (`apimachinery/pkg/sharding`) hash, so that a range means the same to a server.
    #[test]
    fn the_hash_is_that_of_kubernetes() {
        for (given, expect) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv1a(given), expect, "{given}");
        }
    }

    #[test]
    fn shards_are_of_about_the_same_size() {
        for count in [1, 2, 3, 8, 12, 100] {
            let mut sizes = vec![0; count];
            for number in 0..count as u64 * 1000 {
                let mixed = fnv1a(&number.to_string());
                let uid = format!("{:08x}-{:04x}-4000-8000-{number:012x}", mixed >> 32, mixed & 0xffff);
                sizes[shard_of(&uid, count)] += 1;
            }
            assert!(sizes.iter().all(|size| (800..1200).contains(size)), "{count}: {sizes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_drained_when_nothing_works_on_it() {
        let (shards, seats) = Shards::vacant(2, "web-0", 0);
        assert!(shards.begin(1).is_none(), "nobody holds it");
        lead(&seats, 1, 3);
        let work = shards.begin(1).expect("it is held");
        assert_eq!((work.term.number, shards.is_open(1), shards.is_open(0)), (3, true, false));
        let drained = tokio::spawn(seats.drain(1));
        assert!(shards.begin(1).is_none() && !shards.is_open(1), "nothing begins while it is drained");
        assert!(work.leadership().term().is_some(), "what runs may write until the shard is given up");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!drained.is_finished());
        drop(work);
        drained.await.unwrap();
        seats.follow(1, None);
        // The same replica may hold it again.
        lead(&seats, 1, 5);
        assert_eq!(shards.begin(1).expect("it is held again").term.number, 5);
        assert_eq!(shards.held().iter().map(|held| (held.shard, held.term)).collect::<Vec<_>>(), [(1, 5)]);
        drop(seats);
        assert!(shards.begin(1).is_none() && shards.held().is_empty());
    }

    /// Whoever sees a term finds it counted: what is complete for a count is complete for all terms that were visible.
    #[test]
    fn a_term_is_counted_when_it_is_seen() {
        const TERMS: u64 = 20_000;
        let (shards, seats) = Shards::vacant(1, "web-0", 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..=TERMS).for_each(|number| lead(&seats, 0, number));
            });
            let changes = shards.changes();
            let mut seen = 0;
            while seen < TERMS {
                seen = shards.leadership(0).term().map_or(0, |term| term.number);
                let counted = *changes.borrow();
                assert!(counted >= seen, "term {seen} is seen, and {counted} are counted");
            }
        });
    }

    /// Work that begins and ends while a term begins is neither forgotten nor counted twice.
    #[tokio::test]
    async fn work_is_counted_while_terms_begin() {
        const TERMS: u64 = 100_000;
        let (shards, seats) = Shards::vacant(1, "web-0", 0);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                while shards.leadership(0).term().is_none_or(|term| term.number < TERMS) {
                    drop(shards.begin(0));
                }
            });
            for number in 1..=TERMS {
                lead(&seats, 0, number);
                if worker.is_finished() {
                    break;
                }
            }
        });
        let drained = tokio::time::timeout(Duration::from_secs(10), seats.drain(0)).await;
        assert!(drained.is_ok(), "{:?}", shards.0.shards[0].work.borrow());
    }
}
