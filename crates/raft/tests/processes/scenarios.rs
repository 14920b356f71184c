//! What goes wrong, and what has to be true during and after it. A seed decides the order, and who is hit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Cluster, PATIENCE, Processes};
use crate::history::History;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// The sequence of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.next() as usize % (at + 1));
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

pub(crate) fn run() {
    // Long enough for a machine that is busy with other tests.
    let election = Duration::from_millis(number_of("KONVERGE_ELECTION_MS").unwrap_or(1000));
    if let Some(kills) = number_of("KONVERGE_KILLS") {
        return measure(kills, election);
    }
    let seeds: Vec<u64> = match number_of("KONVERGE_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number_of("KONVERGE_SEEDS").unwrap_or(1)).collect(),
    };
    for seed in seeds {
        let failed = std::panic::catch_unwind(|| run_seed(seed, election));
        if let Err(why) = failed {
            eprintln!(
                "seed {seed} failed; run it again with KONVERGE_SEED={seed} cargo test -p konverge-raft --test processes"
            );
            std::panic::resume_unwind(why);
        }
    }
}

/// One fault; the cluster is settled before and after it.
type Fault = (&'static str, fn(&Cluster, &mut Random));

const FAULTS: [Fault; 12] = [
    ("kill -9 of the leader", kill_leader),
    ("kill -9 of all at once", kill_all),
    ("SIGSTOP of the leader for longer than its term", stop_leader),
    ("the leader is cut off", cut_off),
    ("nothing that the leader sends arrives", cut_off_sending),
    ("nothing arrives at the leader", cut_off_hearing),
    ("a slow network", slow_network),
    ("the leader's disk is full", full_disk),
    ("a member that lags is given a snapshot", lag),
    ("clocks jump by an hour", clocks_jump),
    ("clocks run 1.5 times as fast as the leader's", clocks_run_fast),
    ("a rolling restart", rolling_restart),
];

fn run_seed(seed: u64, election: Duration) {
    let mut random = Random(seed);
    let cluster = Cluster::new(5, election);
    let clients = Clients::start(&cluster.processes, seed);
    println!("seed {seed}");
    let step = |what: &str, act: &mut dyn FnMut()| {
        let began = Instant::now();
        act();
        cluster.links.heal();
        cluster.settled();
        cluster.check_terms();
        println!("  {what}: {:.1} s, {} operations", began.elapsed().as_secs_f64(), clients.count());
    };
    step("one member", &mut || cluster.start(0));
    step("from 1 to 3", &mut || (1..3).for_each(|ordinal| cluster.start(ordinal)));
    let mut faults = FAULTS;
    random.shuffle(&mut faults);
    for (what, act) in faults {
        step(what, &mut || act(&cluster, &mut random));
    }
    step("from 3 to 5", &mut || (3..5).for_each(|ordinal| cluster.start(ordinal)));
    // Two of five may be away.
    step("kill -9 of the leader of five and another", &mut || {
        let (number, leader) = cluster.leader();
        let other = random.pick(&others(&cluster, leader));
        [leader, other].into_iter().for_each(|ordinal| cluster.kill(ordinal));
        cluster.leader_after(number);
        [leader, other].into_iter().for_each(|ordinal| cluster.start(ordinal));
    });
    step("the leader of five and another are cut off from the rest", &mut || {
        let (number, leader) = cluster.leader();
        let other = random.pick(&others(&cluster, leader));
        for rest in others(&cluster, leader).into_iter().filter(|one| *one != other) {
            for one in [leader, other] {
                cluster.links.hold(one, rest);
                cluster.links.hold(rest, one);
            }
        }
        cluster.leader_after(number);
    });
    step("from 5 to 4", &mut || cluster.kill(4));
    step("from 4 to 3", &mut || cluster.kill(3));
    clients.check(&cluster);
    cluster.check_terms();
}

fn others(cluster: &Cluster, leader: usize) -> Vec<usize> {
    cluster.running().into_iter().filter(|one| *one != leader).collect()
}

fn kill_leader(cluster: &Cluster, _: &mut Random) {
    let (number, leader) = cluster.leader();
    cluster.kill(leader);
    assert_ne!(cluster.leader_after(number).1, leader);
    cluster.start(leader);
}

fn kill_all(cluster: &Cluster, _: &mut Random) {
    let (number, _) = cluster.leader();
    let all = cluster.running();
    all.iter().for_each(|ordinal| cluster.kill(*ordinal));
    all.iter().for_each(|ordinal| cluster.start(*ordinal));
    cluster.leader_after(number);
}

fn stop_leader(cluster: &Cluster, random: &mut Random) {
    let (number, leader) = cluster.leader();
    let process = cluster.process(leader);
    process.signal(Signal::STOP);
    assert_ne!(cluster.leader_after(number).1, leader);
    std::thread::sleep(cluster.election.mul_f64(random.pick(&[0.0, 0.5, 1.0])));
    process.signal(Signal::CONT);
}

/// The leader is cut off in these directions, and another leads.
fn cut(cluster: &Cluster, random: &mut Random, sending: bool, hearing: bool) {
    let (number, leader) = cluster.leader();
    for other in others(cluster, leader) {
        if sending {
            cluster.links.hold(leader, other);
        }
        if hearing {
            cluster.links.hold(other, leader);
        }
    }
    assert_ne!(cluster.leader_after(number).1, leader);
    std::thread::sleep(cluster.election.mul_f64(random.pick(&[0.0, 0.5, 1.0])));
}

fn cut_off(cluster: &Cluster, random: &mut Random) {
    cut(cluster, random, true, true);
}

fn cut_off_sending(cluster: &Cluster, random: &mut Random) {
    cut(cluster, random, true, false);
}

fn cut_off_hearing(cluster: &Cluster, random: &mut Random) {
    cut(cluster, random, false, true);
}

/// Everything takes longer, and goes on. There and back has to take less than the fifth of the election timeout that a heartbeat may take.
fn slow_network(cluster: &Cluster, _: &mut Random) {
    cluster.links.slow_down(cluster.election / 20);
    for _ in 0..5 {
        write(cluster, "put slow 1");
    }
}

/// Writes, through whichever member.
fn write(cluster: &Cluster, command: &str) {
    let began = Instant::now();
    loop {
        let ordinals = cluster.running();
        let written = ordinals
            .iter()
            .any(|one| cluster.process(*one).ask(command).is_some_and(|answer| answer.starts_with("wrote")));
        if written {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{command} does not happen");
    }
}

/// It ends, because it does not know any more what it has written, and nothing that was acknowledged is lost. With room, it comes back.
fn full_disk(cluster: &Cluster, _: &mut Random) {
    let (number, leader) = cluster.leader();
    let Some(disk) = cluster.disks.get(&leader) else {
        println!("    not checked: this user may not mount a small disk");
        return;
    };
    let process = cluster.process(leader);
    let filler = disk.join("filler");
    fill(&filler);
    let began = Instant::now();
    let ended = loop {
        if let Some(code) = process.ended(Duration::from_millis(1)) {
            break code;
        }
        assert!(began.elapsed() < PATIENCE, "it goes on although its disk is full");
        // Whether this is acknowledged is up to the others.
        let _ = process.ask("fill full 200000");
    };
    assert_eq!(ended, 3, "it ended in another way");
    assert_ne!(cluster.leader_after(number).1, leader);
    write(cluster, "put full 1");
    cluster.kill(leader);
    std::fs::remove_file(filler).unwrap();
    cluster.start(leader);
}

/// Takes all the room there is.
fn fill(path: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = vec![7; 64 << 10];
    while file.write_all(&block).is_ok() {}
}

fn lag(cluster: &Cluster, random: &mut Random) {
    let (_, leader) = cluster.leader();
    let behind = random.pick(&others(cluster, leader));
    for other in others(cluster, behind) {
        cluster.links.hold(behind, other);
        cluster.links.hold(other, behind);
    }
    let index = |ordinal: usize, at: usize| -> u64 {
        let status = cluster.process(ordinal).ask("status").unwrap();
        status.split(' ').nth(at).unwrap().parse().unwrap()
    };
    let (log, purged, snapshot) = (3, 4, 5);
    let last = index(behind, log);
    let began = Instant::now();
    // The leader may change meanwhile.
    let gone = loop {
        let (_, leader) = cluster.leader();
        let _ = cluster.process(leader).ask("put lag 1");
        let gone = index(leader, purged);
        if gone > last + 10 {
            break gone;
        }
        assert!(began.elapsed() < PATIENCE, "the log is not compacted: {gone}, and the member has {last}");
    };
    assert!(index(behind, log) < gone, "it was not cut off");
    cluster.links.heal();
    while index(behind, snapshot) < gone {
        assert!(began.elapsed() < PATIENCE, "it was given no snapshot");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Wall clocks go forward and back by an hour, and nobody loses anything: nothing is decided by them.
fn clocks_jump(cluster: &Cluster, _: &mut Random) {
    let Some(clocks) = &cluster.clocks else {
        println!("    not checked: there is no C compiler for a clock that jumps");
        return;
    };
    let time = |ordinal: usize| cluster.process(ordinal).ask("time").unwrap().parse::<i64>().unwrap();
    let (number, leader) = cluster.leader();
    let other = others(cluster, leader)[0];
    let before = (time(leader), time(other));
    clocks.jump(leader, 3600);
    clocks.jump(other, -3600);
    let jumped = (time(leader) - before.0, time(other) - before.1);
    assert!(jumped.0 >= 3600 && jumped.1 < -3000, "the clocks have not jumped: {jumped:?}");
    let began = Instant::now();
    while began.elapsed() < cluster.election * 2 {
        write(cluster, "put clock 1");
    }
    // A machine that is busy may have had it lose the lead; it has not lost it at the moment of the jump for good.
    println!("    led in term {number}, and in term {} after it", cluster.leader().0);
    clocks.jump(leader, -3600);
    clocks.jump(other, 3600);
    write(cluster, "put clock 2");
    cluster.settled();
    [leader, other].into_iter().for_each(|ordinal| clocks.jump(ordinal, 0));
}

/// As far apart as is promised. The leader is cut off, so that its lease and the patience of the others end at the same moment.
fn clocks_run_fast(cluster: &Cluster, random: &mut Random) {
    if cluster.clocks.is_none() {
        println!("    not checked: there is no C compiler for a clock that runs fast");
        return;
    }
    let (_, leader) = cluster.leader();
    for other in others(cluster, leader) {
        cluster.process(other).stop();
        cluster.kill(other);
        cluster.start_with(other, other + 1, 1.5);
        cluster.settled();
    }
    for _ in 0..2 {
        cut(cluster, random, true, true);
        cluster.links.heal();
        cluster.settled();
        cluster.check_terms();
    }
    for other in others(cluster, leader) {
        cluster.kill(other);
        cluster.start(other);
        cluster.settled();
    }
}

/// Each is told to stop, and the next when all are well again. One that leads hands over.
fn rolling_restart(cluster: &Cluster, _: &mut Random) {
    for ordinal in cluster.running() {
        cluster.process(ordinal).stop();
        cluster.kill(ordinal);
        cluster.leader();
        cluster.start(ordinal);
        cluster.settled();
    }
}

/// Clients that read and write through whichever process there is, until they are checked.
struct Clients {
    history: Arc<History>,
    done: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    fn start(processes: &Processes, seed: u64) -> Self {
        let (history, done, count) = (Arc::new(History::default()), Arc::default(), Arc::default());
        let threads = (0..6).map(|number| {
            let (processes, history) = (processes.clone(), history.clone());
            let (done, count): (Arc<AtomicBool>, Arc<AtomicU64>) = (Arc::clone(&done), Arc::clone(&count));
            std::thread::spawn(move || {
                let mut random = Random(seed ^ number << 32);
                let mut values = 0;
                while !done.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(20 + random.next() % 100));
                    let running: Vec<_> = processes.lock().unwrap().values().cloned().collect();
                    if running.is_empty() {
                        continue;
                    }
                    let process = &running[random.next() as usize % running.len()];
                    values += 1;
                    let value = format!("{number}-{values}");
                    let ask = |question: &str| process.ask(question);
                    if operate(&history, &mut random, &value, &ask).is_some() {
                        count.fetch_add(1, Relaxed);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { history, done, count, threads }
    }

    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// No acknowledged value is lost, and reads are linearizable.
    fn check(self, cluster: &Cluster) {
        self.done.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("a client");
        }
        for ordinal in cluster.running() {
            let process = cluster.process(ordinal);
            let ask = |question: &str| process.ask(question);
            for key in KEYS {
                read(&self.history, "get", key, &ask).expect("a cluster that is settled answers");
            }
        }
        self.history.check();
    }
}

type Ask<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One operation, or two; none if it is not known how it ended.
fn operate(history: &History, random: &mut Random, value: &str, ask: Ask<'_>) -> Option<()> {
    let key = random.pick(&KEYS);
    match random.next() % 5 {
        0 | 1 => write_value(history, key, value, None, ask),
        2 => {
            let before = read(history, "get", key, ask)?;
            write_value(history, key, value, Some(before), ask)
        }
        3 => read(history, "list", key, ask).map(drop),
        _ => read(history, "get", key, ask).map(drop),
    }
}

fn write_value(history: &History, key: &str, value: &str, before: Option<u64>, ask: Ask<'_>) -> Option<()> {
    let question = match before {
        Some(version) => format!("swap {key} {version} {value}"),
        None => format!("put {key} {value}"),
    };
    let began = history.begin();
    let version = ask(&question)?.strip_prefix("wrote ")?.parse().unwrap();
    history.wrote(began, key, value, before, version);
    Some(())
}

/// The version that was found; 0 if there is none.
fn read(history: &History, how: &str, key: &str, ask: Ask<'_>) -> Option<u64> {
    let began = history.begin();
    let answer = ask(&format!("{how} {key}"))?;
    let (version, value) = answer.strip_prefix("found ")?.split_once(' ')?;
    let version = version.parse().unwrap();
    history.read(began, key, (version > 0).then_some((version, value.as_bytes())));
    Some(version)
}

/// How long another takes to lead after `kill -9`, and after a hand-over.
fn measure(kills: u64, election: Duration) {
    let cluster = Cluster::new(3, election);
    (0..3).for_each(|ordinal| cluster.start_with(ordinal, 3, 1.0));
    cluster.settled();
    write(&cluster, "put a 1");
    let (mut killed, mut handed) = (Vec::new(), Vec::new());
    for _ in 0..kills {
        let (number, leader) = cluster.leader();
        let began = Instant::now();
        cluster.kill(leader);
        let (_, next) = cluster.leader_after(number);
        killed.push(began.elapsed().as_millis());
        assert!(cluster.process(next).ask("get a").is_some_and(|answer| answer.ends_with(" 1")), "it is lost");
        cluster.start_with(leader, 3, 1.0);
        cluster.settled();
        // A leader that was elected a moment ago grants nobody a vote, so not before that moment is over.
        std::thread::sleep(election);
        let (number, leader) = cluster.leader();
        let (process, began) = (cluster.process(leader), Instant::now());
        let waiting = std::thread::spawn(move || process.stop());
        cluster.leader_after(number);
        handed.push(began.elapsed().as_millis());
        waiting.join().unwrap();
        cluster.kill(leader);
        cluster.start_with(leader, 3, 1.0);
        cluster.settled();
    }
    cluster.check_terms();
    for (what, mut took) in [("kill -9 of the leader", killed), ("hand-over", handed)] {
        took.sort_unstable();
        let at = |share: usize| took[(took.len() - 1) * share / 100];
        println!(
            "{what}: another led after {} ms (p50), {} ms (p99), {} ms (longest), {kills} times",
            at(50),
            at(99),
            at(100)
        );
    }
}
