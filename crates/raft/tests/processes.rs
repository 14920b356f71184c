//! Three real processes on loopback, with their logs on disk: the leader is killed, stopped for longer than its lease, and all are killed
//! at once. Each says when it led, by a clock that all of them share; no two of them may have led at the same time, and nothing that was
//! acknowledged may be lost.
//!
//! `KONVERGE_KILLS=200 KONVERGE_ELECTION_MS=350 cargo test -p konverge-raft --test processes` measures how long others take to take
//! over.

#![allow(clippy::unwrap_used, reason = "it is a test, although it has a `main` of its own")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use konverge_raft::{RaftConfig, RaftNodeManager};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("member") => member(&args[2], &args[3], &args[4], args[5].parse().unwrap()),
        // What `cargo test` asks for before it filters.
        Some("--list") => println!("processes: test"),
        _ => scenarios(),
    }
}

/// Milliseconds of the clock that all processes of a machine share.
fn clock() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// One member. It says every few milliseconds that it leads, and carries out what it reads.
#[tokio::main]
async fn member(ordinal: &str, peers: &str, directory: &str, election: u64) {
    let peers = peers.split(',').enumerate().map(|(ordinal, address)| (ordinal as u64, address));
    let config = RaftConfig::new("processes")
        .node_id(ordinal.parse().unwrap())
        .peers(peers)
        .election_timeout(Duration::from_millis(election));
    let manager = RaftNodeManager::new_with_rocksdb(config, directory).await.unwrap();
    let (leadership, replicated) = (manager.leadership(), manager.replicated());
    std::thread::spawn(move || {
        loop {
            let before = clock();
            if let Some(term) = leadership.term() {
                println!("leads {} {before} {}", term.number, clock());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    let (lines, mut read) = tokio::sync::mpsc::channel::<String>(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = read.recv().await {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["put", key, value] => println!("put {}", replicated.put(key, value).await.is_ok()),
            ["get", key] => {
                let found = replicated.get(key).await.ok().flatten();
                println!("got {}", found.map(|found| String::from_utf8(found.value).unwrap()).unwrap_or_default());
            }
            ["voters"] => println!("voters {}", manager.status().voters.len()),
            ["stop"] => break,
            _ => panic!("{line}"),
        }
    }
    manager.shutdown().await;
}

/// When each term was held: by whom, the first and the last time.
type Terms = Arc<Mutex<BTreeMap<u64, (usize, f64, f64)>>>;

struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

struct Cluster {
    folder: tempfile::TempDir,
    peers: String,
    election: u64,
    members: Vec<Option<Process>>,
    terms: Terms,
}

impl Cluster {
    fn new(election: u64) -> Self {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let peers: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut cluster =
            Self { folder, peers: peers.join(","), election, members: Vec::new(), terms: Terms::default() };
        drop(listeners);
        cluster.members.resize_with(3, || None);
        (0..3).for_each(|ordinal| cluster.start(ordinal));
        cluster
    }

    fn start(&mut self, ordinal: usize) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["member", &ordinal.to_string(), &self.peers])
            .arg(self.folder.path().join(ordinal.to_string()))
            .arg(self.election.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (answer, answers) = channel();
        let terms = self.terms.clone();
        // It ends with the process whose output it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Some(led) = line.strip_prefix("leads ") else {
                    if answer.send(line).is_err() {
                        return;
                    }
                    continue;
                };
                let numbers: Vec<f64> = led.split(' ').filter_map(|number| number.parse().ok()).collect();
                let [number, before, after] = numbers[..] else { continue };
                let mut terms = terms.lock().unwrap();
                let held = terms.entry(number as u64).or_insert((ordinal, after, before));
                assert_eq!(held.0, ordinal, "term {number} is held by two");
                held.2 = held.2.max(before);
            }
        });
        self.members[ordinal] = Some(Process { child, input, answers });
    }

    fn pid(&self, ordinal: usize) -> Pid {
        Pid::from_child(&self.members[ordinal].as_ref().unwrap().child)
    }

    fn kill(&mut self, ordinal: usize) {
        if let Some(mut process) = self.members[ordinal].take() {
            process.child.kill().unwrap();
            process.child.wait().unwrap();
        }
    }

    /// Waits for a term that begins after this one, and says its number and who holds it.
    fn leader_after(&self, number: u64) -> (u64, usize) {
        let began = Instant::now();
        loop {
            let newest = self.terms.lock().unwrap().last_key_value().map(|(number, held)| (*number, held.0));
            if let Some(found) = newest.filter(|(newest, _)| *newest > number) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "nobody leads after term {number}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ask(&mut self, ordinal: usize, question: &str) -> Option<String> {
        let process = self.members[ordinal].as_mut()?;
        writeln!(process.input, "{question}").ok()?;
        match process.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => panic!("no answer to {question}"),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Asks until it answers this.
    fn until(&mut self, ordinal: usize, question: &str, expect: &str) {
        let began = Instant::now();
        loop {
            let answer = self.ask(ordinal, question);
            if answer.as_deref() == Some(expect) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{question}: {answer:?} instead of {expect}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Terms do not overlap.
    fn check(&self) {
        let terms = self.terms.lock().unwrap();
        for ((first, (_, _, end)), (second, (_, begin, _))) in terms.iter().zip(terms.iter().skip(1)) {
            assert!(end < begin, "term {first} was held until {end}, term {second} from {begin}: {terms:?}");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..3).for_each(|ordinal| self.kill(ordinal));
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn scenarios() {
    // Long enough for a machine that is busy with other tests.
    let election = number_of("KONVERGE_ELECTION_MS").unwrap_or(1500);
    let mut cluster = Cluster::new(election);
    let (mut number, mut leader) = cluster.leader_after(0);
    (0..3).for_each(|ordinal| cluster.until(ordinal, "voters", "voters 3"));
    cluster.until((leader + 1) % 3, "put a 1", "put true");

    let kills = number_of("KONVERGE_KILLS").unwrap_or(1);
    let mut took = Vec::new();
    for _ in 0..kills {
        cluster.kill(leader);
        let killed = Instant::now();
        let killed_one = leader;
        (number, leader) = cluster.leader_after(number);
        took.push(killed.elapsed().as_millis());
        assert_ne!(leader, killed_one);
        cluster.until(leader, "get a", "got 1");
        cluster.start(killed_one);
        cluster.until(killed_one, "get a", "got 1");
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    println!("kill -9 of the leader: another led after {} ms (p50), {} ms (p99), {kills} times", at(50), at(99));
    cluster.check();

    // Stopped for longer than the lease: it does not lead when it goes on.
    cluster.until(leader, "put a 2", "put true");
    let stopped = leader;
    kill_process(cluster.pid(stopped), Signal::STOP).unwrap();
    (number, leader) = cluster.leader_after(number);
    assert_ne!(leader, stopped);
    cluster.until(leader, "put a 3", "put true");
    kill_process(cluster.pid(stopped), Signal::CONT).unwrap();
    cluster.until(stopped, "get a", "got 3");
    cluster.check();
    println!("SIGSTOP of the leader: no term overlaps");

    // Told to stop, it hands over. A leader that was elected a moment ago grants nobody a vote, so not before that moment is over.
    std::thread::sleep(Duration::from_millis(election));
    let asked = Instant::now();
    let told = leader;
    writeln!(cluster.members[told].as_mut().unwrap().input, "stop").unwrap();
    (number, leader) = cluster.leader_after(number);
    println!("hand-over: another led after {} ms", asked.elapsed().as_millis());
    let mut process = cluster.members[told].take().unwrap();
    process.child.wait().unwrap();
    cluster.start(told);
    cluster.until(told, "get a", "got 3");
    assert_ne!(leader, told);

    // All at once.
    cluster.until(leader, "put a 4", "put true");
    (0..3).for_each(|ordinal| cluster.kill(ordinal));
    (0..3).for_each(|ordinal| cluster.start(ordinal));
    (_, leader) = cluster.leader_after(number);
    cluster.until(leader, "get a", "got 4");
    (0..3).for_each(|ordinal| cluster.until(ordinal, "get a", "got 4"));
    cluster.check();
    println!("kill -9 of all: nothing is lost");
}
