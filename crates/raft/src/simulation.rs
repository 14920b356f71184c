//! Whole clusters in virtual time, on a network that loses, delays and cuts: members are killed, come back with their storage or without,
//! join and leave, while clients read and write. In: a seed. Out: nothing, or which promise was broken.
//!
//! ```text
//! network   what happens to messages           history   what clients saw, and whether one state explains it
//! directed  single faults, one after the other
//! ```
//!
//! `KONVERGE_SEEDS=500 cargo test -p konverge-raft seeds` runs more of them, `KONVERGE_SEED=17` one. Faults and their times are decided
//! by the seed; the order in which tasks of one moment run is tokio's, so a seed that fails may need some runs.

mod directed;
mod history;
mod network;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use self::history::History;
use self::network::SimulatedNetwork;
use crate::manager::run;
use crate::member::{Member, MemberId, new_id};
use crate::node::{Limits, Node, Parts};
use crate::peers::{Peers, tests::Names};
use crate::random::Random;
use crate::replicated::Replicated;
use crate::state::Versioned;
use crate::storage::{Machine, MemoryLog, SnapshotStore, StorageResult};
use crate::timing::Timing;

const ELECTION: Duration = Duration::from_millis(350);
const REMOVED_AFTER: Duration = Duration::from_secs(2);
const KEYS: [&str; 3] = ["a", "b", "c"];

/// A disk: what a member had written stays when it is killed.
#[derive(Clone, Default)]
struct Disk {
    id: Option<MemberId>,
    log: MemoryLog,
    snapshot: Arc<Kept>,
}

#[derive(Default)]
struct Kept(Mutex<Option<(Vec<u8>, Vec<u8>)>>);

impl SnapshotStore for Kept {
    fn save(&self, meta: &[u8], data: &[u8]) -> StorageResult<()> {
        *self.0.lock() = Some((meta.to_vec(), data.to_vec()));
        Ok(())
    }

    fn load(&self) -> StorageResult<Option<(Vec<u8>, Vec<u8>)>> {
        Ok(self.0.lock().clone())
    }
}

struct Running {
    node: Arc<Node>,
    tasks: JoinSet<String>,
}

struct Cluster {
    network: SimulatedNetwork,
    random: Random,
    running: BTreeMap<u64, Running>,
    disks: BTreeMap<u64, Disk>,
    /// Whether members keep what they wrote when they are killed.
    keeps: bool,
    /// How fast the clock of each member runs; as time does if it is not among these.
    rates: BTreeMap<u64, f64>,
    /// Where members find each other if not by a list.
    names: Option<Names>,
    /// Shared with those who look at it all the time.
    alive: Arc<Mutex<Vec<Arc<Node>>>>,
}

impl Cluster {
    fn new(seed: u64, keeps: bool) -> Self {
        let mut random = Random::seeded(seed);
        let network = SimulatedNetwork::new(random.next());
        let (running, disks, rates, alive) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), Arc::default());
        Self { network, random, running, disks, keeps, rates, names: None, alive }
    }

    /// Starts an instance, which knows these of itself and others.
    async fn start(&mut self, ordinal: u64, known: u64) {
        let address = |ordinal: u64| format!("node-{ordinal}:1");
        let listed = || Peers::Listed((0..known.max(ordinal + 1)).map(|ordinal| (ordinal, address(ordinal))).collect());
        let peers = self.names.as_ref().map_or_else(listed, |names| names.peers("web"));
        let disk = self.disks.entry(ordinal).or_default();
        let new = new_id(ordinal, self.random.next());
        let id = if self.keeps { *disk.id.get_or_insert(new) } else { new };
        let parts = Parts {
            id,
            me: Member { ordinal, name: format!("node-{ordinal}"), address: address(ordinal) },
            cluster: "simulated".into(),
            timing: by_clock(Timing::of(ELECTION), self.rates.get(&ordinal).copied().unwrap_or(1.0)),
            snapshot_after: 20,
            limits: Limits { value: 1024, total: 1 << 20 },
            transport: Arc::new(self.network.of(&address(ordinal))),
            random: Random::seeded(self.random.next()),
        };
        let node = match self.keeps {
            true => Node::start(parts, disk.log.clone(), Machine::restored(disk.snapshot.clone()).unwrap(), false),
            false => Node::start(parts, MemoryLog::default(), Machine::in_memory(), true),
        };
        let node = node.await.unwrap();
        self.network.add(&address(ordinal), &node);
        if self.names.is_some() {
            self.network.add(&format!("10.0.0.{ordinal}:1"), &node);
        }
        let tasks = run(&node, peers, 1, REMOVED_AFTER);
        self.alive.lock().push(node.clone());
        self.running.insert(ordinal, Running { node, tasks });
    }

    async fn kill(&mut self, ordinal: u64) {
        let Some(Running { node, tasks }) = self.running.remove(&ordinal) else { return };
        self.network.remove(&node.me.address);
        self.network.remove(&format!("10.0.0.{ordinal}:1"));
        self.alive.lock().retain(|other| other.id != node.id);
        drop(tasks);
        node.lease.give_up();
        node.raft.shutdown().await.unwrap();
        if let Some(disk) = self.disks.get(&ordinal) {
            disk.log.forget_committed();
        }
    }

    fn leader(&self) -> Option<u64> {
        self.running.iter().find(|(_, running)| running.node.lease.leadership().term().is_some()).map(|(at, _)| *at)
    }

    /// Waits until one leads, and exactly the instances that run are its voters.
    async fn settled(&self, within: Duration) {
        let wanted: Vec<MemberId> = self.running.values().map(|running| running.node.id).collect();
        let settled = async {
            loop {
                if let Some(leader) = self.leader() {
                    let node = &self.running[&leader].node;
                    let metrics = node.raft.metrics().borrow().clone();
                    let mut voters: Vec<MemberId> = metrics.membership_config.voter_ids().collect();
                    voters.sort_unstable_by_key(|id| crate::member::ordinal_of(*id));
                    let is_joint = metrics.membership_config.membership().get_joint_config().len() > 1;
                    if voters == wanted && !is_joint {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(within, settled).await.is_err() {
            let states: Vec<_> = self.running.values().map(|running| running.node.status()).collect();
            panic!("no leader with the voters {wanted:?} within {within:?}: {states:#?}");
        }
    }

    fn pick(&mut self) -> Option<u64> {
        let ordinals: Vec<u64> = self.running.keys().copied().collect();
        let at = self.random.next() as usize % ordinals.len().max(1);
        ordinals.get(at).copied()
    }
}

/// Times of a member whose clock runs this many times as fast as time: everything that it waits for comes so much earlier.
fn by_clock(timing: Timing, rate: f64) -> Timing {
    let Timing { election, lease, heartbeat, jitter, search } = timing;
    Timing {
        election: election.div_f64(rate),
        lease: lease.div_f64(rate),
        heartbeat: heartbeat.div_f64(rate),
        jitter: jitter.div_f64(rate),
        search: search.div_f64(rate),
    }
}

/// Looks at every millisecond that at most one leads, and that numbers of terms grow and belong to one holder.
fn watch_leaders(alive: Arc<Mutex<Vec<Arc<Node>>>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut newest: Option<(u64, Arc<str>)> = None;
        loop {
            let nodes = alive.lock().clone();
            let terms: Vec<_> = nodes.iter().filter_map(|node| node.lease.leadership().term()).collect();
            assert!(terms.len() <= 1, "two lead at the same time: {terms:?}");
            if let Some(term) = terms.first() {
                if let Some((number, holder)) = &newest {
                    assert!(term.number >= *number, "{term} after term {number}");
                    assert!(term.number > *number || term.holder == *holder, "{term} is that of {holder}, too");
                }
                newest = Some((term.number, term.holder.clone()));
            }
            drop(nodes);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}

/// A client that reads and writes through whichever member lives.
fn client(number: u64, seed: u64, alive: Arc<Mutex<Vec<Arc<Node>>>>, history: Arc<History>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut random = Random::seeded(seed);
        let mut count = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(5) + random.up_to(Duration::from_millis(60))).await;
            let node = {
                let alive = alive.lock();
                let Some(node) = alive.get(random.next() as usize % alive.len().max(1)) else { continue };
                node.clone()
            };
            let replicated = Replicated::new(node);
            let key = KEYS[random.next() as usize % KEYS.len()];
            count += 1;
            let value = format!("{number}-{count}");
            let began = history.begin();
            match random.next() % 5 {
                0 | 1 => {
                    if let Ok(version) = replicated.put(key, value.clone()).await {
                        history.wrote(began, key, &value, None, version);
                    }
                }
                2 => {
                    let Ok(found) = replicated.get(key).await else { continue };
                    history.read(began, key, seen(&found));
                    let before = found.map(|found| found.version);
                    let began = history.begin();
                    if let Ok(version) = replicated.compare_and_put(key, before, value.clone()).await {
                        history.wrote(began, key, &value, Some(before.unwrap_or(0)), version);
                    }
                }
                3 => {
                    // All keys, as the member that is asked has them in its own memory.
                    let Ok(listed) = replicated.list("").await else { continue };
                    let found = listed.into_iter().find(|(known, _)| known == key).map(|(_, found)| found);
                    history.read(began, key, seen(&found));
                }
                _ => {
                    if let Ok(found) = replicated.get(key).await {
                        history.read(began, key, seen(&found));
                    }
                }
            }
        }
    })
}

fn seen(found: &Option<Versioned>) -> Option<(u64, &[u8])> {
    found.as_ref().map(|found| (found.version, found.value.as_slice()))
}

async fn run_seed(seed: u64) {
    let keeps = seed.is_multiple_of(2);
    let mut cluster = Cluster::new(seed, keeps);
    let history = Arc::new(History::default());
    if seed.is_multiple_of(5) {
        // No clock runs more than 1.5 times as fast as another.
        let rate = |random: &mut Random| 1.0 + (random.next() % 501) as f64 / 1000.0;
        cluster.rates = (0..4).map(|ordinal| (ordinal, rate(&mut cluster.random))).collect();
    }
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    let watching = watch_leaders(cluster.alive.clone());
    cluster.settled(Duration::from_secs(20)).await;
    let clients: Vec<_> =
        (0..6).map(|number| client(number, cluster.random.next(), cluster.alive.clone(), history.clone())).collect();

    // Safety: whatever happens, nothing is promised twice.
    for _ in 0..12 {
        let pause = Duration::from_millis(100) + cluster.random.up_to(Duration::from_millis(1500));
        let Some(one) = cluster.pick() else { break };
        let address = |ordinal: u64| format!("node-{ordinal}:1");
        match cluster.random.next() % 8 {
            0 => cluster.network.isolate(&address(one)),
            1 => {
                let other = cluster.pick().unwrap_or(one);
                cluster.network.cut(&address(one), &address(other));
            }
            2 => {
                if let Some(leader) = cluster.leader() {
                    cluster.network.isolate(&address(leader));
                }
            }
            3 => cluster.network.set_faults(10, Duration::from_millis(40)),
            4 => {
                // A leader, or any. Without storage a majority must not be lost: all have to be members first.
                let victim = cluster.leader().filter(|_| seed.is_multiple_of(3)).unwrap_or(one);
                if !keeps {
                    cluster.network.heal();
                    cluster.settled(Duration::from_secs(60)).await;
                }
                cluster.kill(victim).await;
                tokio::time::sleep(pause).await;
                cluster.start(victim, 3).await;
            }
            5 if keeps => {
                // All at once.
                let all: Vec<u64> = cluster.running.keys().copied().collect();
                for ordinal in &all {
                    cluster.kill(*ordinal).await;
                }
                for ordinal in all {
                    cluster.start(ordinal, 3).await;
                }
            }
            6 => match cluster.running.contains_key(&3) {
                // Of four voters in memory, three have to be there: nobody else goes before it, nor until it is none any more.
                true if !keeps => {
                    cluster.network.heal();
                    cluster.settled(Duration::from_secs(60)).await;
                    cluster.kill(3).await;
                    cluster.settled(Duration::from_secs(60)).await;
                }
                true => cluster.kill(3).await,
                false => cluster.start(3, 4).await,
            },
            _ => cluster.network.heal(),
        }
        tokio::time::sleep(pause).await;
        assert!(!watching.is_finished(), "a promise about leaders was broken");
    }

    // Liveness: when the network works, so does the cluster.
    cluster.network.heal();
    cluster.settled(Duration::from_secs(60)).await;
    let busy = async {
        while !history.is_enough() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), busy).await.expect("clients are served");
    clients.iter().for_each(JoinHandle::abort);
    let leader = cluster.leader().unwrap_or(0);
    let replicated = Replicated::new(cluster.running[&leader].node.clone());
    for key in KEYS {
        let began = history.begin();
        let found = replicated.get(key).await.expect("a cluster that is settled answers");
        history.read(began, key, seen(&found));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    if watching.is_finished() {
        watching.await.unwrap();
    } else {
        watching.abort();
    }
    history.check();
    for ordinal in cluster.running.keys().copied().collect::<Vec<_>>() {
        cluster.kill(ordinal).await;
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs one seed in a runtime of its own, and names it if it fails.
fn simulate(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run_seed(seed))));
    if let Err(why) = failed {
        eprintln!("seed {seed} failed; run it again with KONVERGE_SEED={seed} cargo test -p konverge-raft seeds");
        std::panic::resume_unwind(why);
    }
}

#[test]
fn seeds_keep_every_promise() {
    if let Some(seed) = number_of("KONVERGE_SEED") {
        return simulate(seed);
    }
    let count = number_of("KONVERGE_SEEDS").unwrap_or(4);
    (1..=count).for_each(simulate);
}
