//! One process: a member. In: lines with a number and a command. Out: lines with that number and the answer, a line every few milliseconds
//! while it leads, and one when it ends by itself.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use konverge_raft::{RaftConfig, RaftNodeManager, RaftStatus, Replicated, Versioned};
use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the clock that all processes of a machine share. It is asked of the system itself, so nothing can have it wrong.
fn clock() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

#[tokio::main]
pub(crate) async fn run(args: &[String]) {
    let [ordinal, peers, bind, directory, election] = args else { panic!("{args:?}") };
    let peers = peers.split(',').enumerate().map(|(ordinal, address)| (ordinal as u64, address));
    let config = RaftConfig::new("processes")
        .node_id(ordinal.parse().unwrap())
        .peers(peers)
        .bind_address(bind.parse().unwrap())
        .election_timeout(Duration::from_millis(election.parse().unwrap()))
        .removed_after(Duration::from_secs(2))
        .max_total_bytes(4 << 20)
        .snapshot_after(60);
    let mut manager = RaftNodeManager::new_with_rocksdb(config, directory).await.unwrap();
    let (leadership, replicated, status) = (manager.leadership(), manager.replicated(), manager.status_source());
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
    loop {
        let line = tokio::select! {
            line = read.recv() => line,
            why = manager.failed() => {
                println!("failed {}", why.replace('\n', " "));
                let _ = std::io::stdout().flush();
                std::process::exit(3);
            }
        };
        let Some(line) = line.filter(|line| line != "stop") else { break };
        let (replicated, status) = (replicated.clone(), status());
        tokio::spawn(async move {
            let (number, command) = line.split_once(' ').unwrap();
            println!("{number} {}", carry_out(command, &replicated, &status).await);
        });
    }
    manager.shutdown().await;
}

async fn carry_out(command: &str, replicated: &Replicated, status: &RaftStatus) -> String {
    let written = |version: Result<u64, _>| version.map_or("no".to_owned(), |version| format!("wrote {version}"));
    match command.split(' ').collect::<Vec<_>>()[..] {
        ["put", key, value] => written(replicated.put(key, value).await),
        ["fill", key, bytes] => written(replicated.put(key, vec![7; bytes.parse().unwrap()]).await),
        ["swap", key, version, value] => {
            let before = Some(version.parse().unwrap()).filter(|version| *version > 0);
            written(replicated.compare_and_put(key, before, value).await)
        }
        ["get", key] => replicated.get(key).await.map_or("no".to_owned(), found),
        ["list", key] => match replicated.list(key).await {
            Ok(listed) => found(listed.into_iter().find(|(known, _)| known == key).map(|(_, value)| value)),
            Err(_) => "no".to_owned(),
        },
        ["status"] => format!(
            "{} {} {} {} {} {}",
            status.role,
            status.voters.len(),
            status.is_settled && status.learners.is_empty(),
            status.last_log_index,
            status.purged_index,
            status.snapshot_index,
        ),
        // What it believes the time to be.
        ["time"] => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string(),
        _ => panic!("{command}"),
    }
}

fn found(found: Option<Versioned>) -> String {
    match found {
        Some(found) => format!("found {} {}", found.version, String::from_utf8_lossy(&found.value)),
        None => "found 0 ".to_owned(),
    }
}
