//! The processes of a cluster: starts, kills, stops and asks them, and notes from what they say when each term was held.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clocks;
use crate::link::{BEHIND, Links};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the disks that can be filled.
const DISK: &str = "size=40m";

/// When each term was held: by whom, the first and the last time.
type Terms = Arc<Mutex<BTreeMap<u64, (usize, f64, f64)>>>;

/// Who waits for which answer; none once the process has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<String>>>>>;

pub(crate) struct Process {
    child: Mutex<Child>,
    pid: Pid,
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Process {
    /// The answer; none if the process has ended.
    pub(crate) fn ask(&self, question: &str) -> Option<String> {
        let number = self.next.fetch_add(1, Relaxed);
        let (answer, answers) = channel();
        self.waiting.lock().unwrap().as_mut()?.insert(number, answer);
        writeln!(self.input.lock().unwrap(), "{number} {question}").ok()?;
        match answers.recv_timeout(PATIENCE) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => panic!("no answer to {question}"),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(&self) {
        writeln!(self.input.lock().unwrap(), "stop").unwrap();
        self.child.lock().unwrap().wait().unwrap();
    }

    /// Waits until it ends by itself, and says with what.
    pub(crate) fn ended(&self, within: Duration) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < within {
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

pub(crate) type Processes = Arc<Mutex<BTreeMap<usize, Arc<Process>>>>;

pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    pub links: Links,
    pub clocks: Option<Clocks>,
    pub election: Duration,
    pub processes: Processes,
    /// Those with a disk of their own, and where it is.
    pub disks: BTreeMap<usize, PathBuf>,
    terms: Terms,
}

impl Cluster {
    pub(crate) fn new(most: usize, election: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clocks = Clocks::new(folder.path());
        let disks =
            (0..3).filter_map(|ordinal| Some((ordinal, mount(&folder.path().join(format!("disk-{ordinal}")))?)));
        let disks = disks.collect();
        let (links, processes, terms) = (Links::new(most), Processes::default(), Terms::default());
        Self { folder, links, clocks, election, processes, disks, terms }
    }

    /// Starts a member, which knows of itself and those before it.
    pub(crate) fn start(&self, ordinal: usize) {
        self.start_with(ordinal, ordinal + 1, 1.0);
    }

    /// Starts a member that knows this many, with a clock that runs this fast.
    pub(crate) fn start_with(&self, ordinal: usize, known: usize, rate: f64) {
        let peers: Vec<String> = self.links.addresses[..known].iter().map(ToString::to_string).collect();
        let directory = self.disks.get(&ordinal).cloned();
        let directory = directory.unwrap_or_else(|| self.folder.path().join(ordinal.to_string()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["member", &ordinal.to_string(), &peers.join(","), BEHIND])
            .arg(directory)
            .arg(self.election.as_millis().to_string())
            .env_remove("KONVERGE_RAFT_PEERS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(clocks) = &self.clocks {
            clocks.give(&mut command, ordinal, rate);
        }
        let mut child = command.spawn().unwrap();
        self.links.belongs(ordinal, child.id());
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (terms, answering) = (self.terms.clone(), waiting.clone());
        // It ends with the process whose output it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match line.split_once(' ') {
                    Some(("leads", led)) => note(&terms, ordinal, led),
                    Some(("failed", why)) => println!("    member {ordinal} has ended: {why}"),
                    Some((number, answer)) => {
                        let number: u64 = number.parse().unwrap();
                        let asker = answering.lock().unwrap().as_mut().and_then(|waiting| waiting.remove(&number));
                        // It may not wait any more.
                        let _ = asker.map(|asker| asker.send(answer.to_owned()));
                    }
                    None => panic!("{line}"),
                }
            }
            answering.lock().unwrap().take();
        });
        let (pid, input) = (Pid::from_child(&child), Mutex::new(input));
        let process = Process { child: Mutex::new(child), pid, input, waiting, next: AtomicU64::new(0) };
        self.processes.lock().unwrap().insert(ordinal, Arc::new(process));
    }

    pub(crate) fn process(&self, ordinal: usize) -> Arc<Process> {
        self.processes.lock().unwrap()[&ordinal].clone()
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        self.processes.lock().unwrap().keys().copied().collect()
    }

    /// `kill -9`; it is none of the cluster's processes any more.
    pub(crate) fn kill(&self, ordinal: usize) {
        let Some(process) = self.processes.lock().unwrap().remove(&ordinal) else { return };
        let mut child = process.child.lock().unwrap();
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// The newest term and who holds it.
    pub(crate) fn leader(&self) -> (u64, usize) {
        self.leader_after(0)
    }

    /// Waits for a term that begins after this one, and says its number and who holds it.
    pub(crate) fn leader_after(&self, number: u64) -> (u64, usize) {
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

    /// Waits until one of those that run leads, and exactly they are voters.
    pub(crate) fn settled(&self) {
        let (began, running) = (Instant::now(), self.running());
        loop {
            let states: Vec<Option<String>> = running.iter().map(|one| self.process(*one).ask("status")).collect();
            let states: Vec<&str> = states.iter().flatten().map(String::as_str).collect();
            let leaders = states.iter().filter(|state| state.starts_with("leader ")).count();
            let wanted = format!(" {} true ", running.len());
            if states.len() == running.len() && leaders == 1 && states.iter().all(|state| state.contains(&wanted)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{running:?} are not one cluster: {states:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Terms do not overlap.
    pub(crate) fn check_terms(&self) {
        let terms = self.terms.lock().unwrap();
        for ((first, (_, _, end)), (second, (_, begin, _))) in terms.iter().zip(terms.iter().skip(1)) {
            assert!(end < begin, "term {first} was held until {end}, term {second} from {begin}: {terms:?}");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.running().into_iter().for_each(|ordinal| self.kill(ordinal));
        for disk in self.disks.values() {
            let _ = Command::new("umount").arg(disk).status();
        }
    }
}

fn note(terms: &Terms, ordinal: usize, led: &str) {
    let numbers: Vec<f64> = led.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [number, before, after] = numbers[..] else { panic!("{led}") };
    let mut terms = terms.lock().unwrap();
    let held = terms.entry(number as u64).or_insert((ordinal, after, before));
    assert_eq!(held.0, ordinal, "term {number} is held by two");
    held.2 = held.2.max(before);
}

/// A small disk in memory; none if this user may not have one.
fn mount(at: &Path) -> Option<PathBuf> {
    std::fs::create_dir(at).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(at).stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success()).then(|| at.to_owned())
}
