//! An acknowledged commit survives `kill -9` (R10). The test runs itself as a child that writes and says on a pipe what
//! was acknowledged, kills it at a random moment, and checks what is left: every acknowledged commit is there with its
//! key and value, no revision went back or was given twice, and the history has no gap.
//!
//! `KONVERGE_KILLS=1000` runs it for longer, `KONVERGE_SEED=7` repeats the dice (not the scheduler).

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use konverge_store::{Change, Commit, CommitError, Disk, Range, Retention, Revision, Store, conformance::Rng};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--writer") => write(Path::new(&arguments[2]), arguments[3].parse().expect("a seed")),
        // What `cargo test` passes on, such as a filter, has no meaning here.
        _ => kill_again_and_again(),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Half of the children forget so fast that compaction is always under way when they die.
fn retention(seed: u64) -> Retention {
    Retention { changes: if seed.is_multiple_of(2) { 50 } else { 100_000 }, ..Retention::default() }
}

/// The child: eight tasks that write until they are killed. Says `revision key value` for each acknowledgement.
fn write(dir: &Path, seed: u64) {
    let store = Arc::new(Disk::open(dir, retention(seed), Revision::ZERO).expect("what a kill left behind opens"));
    println!("open");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let tasks: Vec<_> = (0..8).map(|task| runtime.spawn(write_one(store.clone(), seed, task))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("writers write until they are killed");
        }
    });
}

async fn write_one(store: Arc<Disk>, seed: u64, task: u64) {
    let mut rng = Rng::new(seed * 8 + task);
    for count in 0u64.. {
        let (key, value) = (rng.below(20), format!("{seed}.{task}.{count}.{}", "x".repeat(rng.below(3000))));
        // Two keys that are always written together show whether a commit can be torn.
        let (left, right) = (format!("/left/{key}"), format!("/right/{key}"));
        let commit = match rng.below(4) {
            0 => Commit::default().delete(left).delete(right),
            1 => match store.get(&left, None).expect("the newest is readable") {
                Some(entry) => Commit::default().unchanged(left.as_str(), entry.revision),
                None => Commit::default().absent(left.as_str()),
            }
            .put(left, value.clone())
            .put(right, value.clone()),
            _ => Commit::default().put(left, value.clone()).put(right, value.clone()),
        };
        let deletes = commit.writes.iter().any(|write| write.value().is_none());
        match store.commit(commit).await {
            Ok(revision) => {
                let panic_message = format!("{revision} {key} {}\n", if deletes { "-" } else { &value });
                std::io::stdout().lock().write_all(panic_message.as_bytes()).expect("the parent listens");
            }
            Err(CommitError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// What the parent knows across all kills.
#[derive(Default)]
struct Known {
    /// Every acknowledged put: its key and value.
    puts: HashMap<Revision, (String, String)>,
    /// The newest acknowledged put of each key.
    newest_put: HashMap<String, Revision>,
    /// The newest acknowledged revision.
    newest: Revision,
    acknowledged: u64,
    checked_in_history: u64,
}

/// When a child dies: so long after its start, or after it was open.
enum Moment {
    Opening(Duration),
    Writing(Duration),
}

fn kill_again_and_again() {
    let (kills, seed) = (number("KONVERGE_KILLS", 30), number("KONVERGE_SEED", 1));
    println!("KONVERGE_KILLS={kills} KONVERGE_SEED={seed}");
    let home = tempfile::tempdir().expect("a directory");
    let (dir, copy) = (home.path().join("data"), home.path().join("copy"));
    let mut rng = Rng::new(seed);
    let mut known = Known::default();
    let begun = Instant::now();
    for round in 0..kills {
        let moment = match rng.below(4) {
            0 => Moment::Opening(Duration::from_micros(rng.next_u64() % 40_000)),
            _ => Moment::Writing(Duration::from_micros(rng.next_u64() % 60_000)),
        };
        write_and_kill(&dir, seed * 1_000_000 + round, moment, &mut known);
        // A copy is checked, so that the next child itself has to cope with what the kill left behind.
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("writable");
        if let Ok(files) = fs::read_dir(&dir) {
            for file in files {
                let file = file.expect("an entry");
                fs::copy(file.path(), copy.join(file.file_name())).expect("a copy");
            }
        }
        check(&copy, round, &mut known);
    }
    println!(
        "{kills} kills in {:.1} s: {} acknowledged commits, newest revision {}; 0 lost, 0 repeated, 0 torn; {} seen again in history",
        begun.elapsed().as_secs_f64(),
        known.acknowledged,
        known.newest,
        known.checked_in_history
    );
    assert!(known.acknowledged > kills, "the children hardly wrote anything");
}

fn write_and_kill(dir: &Path, seed: u64, moment: Moment, known: &mut Known) {
    let myself = std::env::current_exe().expect("this program");
    let mut child = Command::new(myself)
        .arg("--writer")
        .arg(dir)
        .arg(seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut pipe = BufReader::new(child.stdout.take().expect("a pipe"));
    let wait_timeout = match moment {
        Moment::Opening(wait_timeout) => wait_timeout,
        Moment::Writing(wait_timeout) => {
            pipe.read_line(&mut String::new()).expect("the child says when it is open");
            wait_timeout
        }
    };
    // Kills while the pipe is being read, for a full pipe would stop the child.
    let killer = std::thread::spawn(move || {
        std::thread::sleep(wait_timeout);
        child.kill().expect("killable");
        child.wait().expect("dead").code()
    });
    let mut line = String::new();
    while pipe.read_line(&mut line).expect("text") > 0 {
        // What was not said whole was not heard: the kill may have cut the last line.
        let panic_message = line.strip_suffix('\n').map(|whole| whole.splitn(3, ' ').collect::<Vec<_>>());
        if let Some([revision, key, value]) = panic_message.as_deref() {
            let revision = Revision(revision.parse().expect("a number"));
            known.acknowledged += 1;
            known.newest = known.newest.max(revision);
            if *value != "-" {
                let newest = known.newest_put.entry(key.to_string()).or_default();
                *newest = revision.max(*newest);
                let twice = known.puts.insert(revision, (key.to_string(), value.to_string()));
                assert!(twice.is_none(), "revision {revision} was given twice");
            }
        }
        line.clear();
    }
    let code = killer.join().expect("the killer never fails");
    assert_eq!(code, None, "the child ended by itself");
}

fn check(dir: &Path, round: u64, known: &mut Known) {
    let store =
        Disk::open(dir, Retention::default(), Revision::ZERO).unwrap_or_else(|error| panic!("kill {round}: {error}"));
    assert!(
        store.revision() >= known.newest,
        "kill {round}: {} was acknowledged, found {}",
        known.newest,
        store.revision()
    );

    // The history: no gap, no torn commit, and in it what was acknowledged.
    let mut watch = store.watch("", store.oldest()).expect("the oldest can be watched");
    let mut expect = store.oldest();
    loop {
        let changes = watch.take(1).expect("not compacted");
        let Some(first) = changes.first() else { break };
        expect = expect.next();
        assert_eq!(first.revision, expect, "kill {round}: a gap in the history");
        let values: Vec<_> = changes.iter().map(|change| change.after.as_ref().map(|entry| &entry.value)).collect();
        assert!(values.len() == 2 && values[0] == values[1], "kill {round}: revision {expect} is torn");
        known.checked_in_history += u64::from(agrees(&changes[0], &known.puts, round));
    }
    assert_eq!(expect, store.revision(), "kill {round}: the history ends early");

    // The newest state: what is older than the history shows here, if nothing replaced it.
    for (key, acknowledged) in &known.newest_put {
        if let Some(found) = store.get(&format!("/left/{key}"), None).expect("readable") {
            assert!(found.revision >= *acknowledged, "kill {round}: {key} fell back behind {acknowledged}");
        }
    }
    for entry in store.range(Range { prefix: "/left/", ..Range::default() }).expect("readable").entries {
        if let Some((key, value)) = known.puts.get(&entry.revision) {
            assert_eq!((&*entry.key, &entry.value[..]), (&*format!("/left/{key}"), value.as_bytes()), "kill {round}");
        }
        let other = store.get(&entry.key.replace("left", "right"), None).expect("readable").expect("written together");
        assert_eq!((other.revision, other.value), (entry.revision, entry.value), "kill {round}: torn");
    }
}

/// True if this change is one that was acknowledged; panics if it is not what was acknowledged.
fn agrees(change: &Change, puts: &HashMap<Revision, (String, String)>, round: u64) -> bool {
    let Some((key, value)) = puts.get(&change.revision) else { return false };
    let after = change.after.as_ref().map(|entry| (&*entry.key, &entry.value[..]));
    assert_eq!(after, Some((&*format!("/left/{key}"), value.as_bytes())), "kill {round}: revision {}", change.revision);
    true
}
