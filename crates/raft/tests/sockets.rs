//! Members over real sockets, with certificates and without: who is heard, and that it works at all.

#![allow(clippy::unwrap_used, reason = "the functions that tests share are tests, too")]

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use konverge_raft::{RaftConfig, RaftNodeManager, WatchEvent};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn addresses(count: usize) -> Vec<(u64, String)> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    listeners.iter().enumerate().map(|(at, listener)| (at as u64, address(listener))).collect()
}

fn config(peers: &[(u64, String)], ordinal: u64) -> RaftConfig {
    // The machine of a test may be busy.
    RaftConfig::new("test").node_id(ordinal).peers(peers.to_vec()).election_timeout(Duration::from_secs(1))
}

/// Waits until a condition of all members is true.
async fn wait(members: &[RaftNodeManager], what: &str, is_true: impl Fn(&RaftNodeManager) -> bool) {
    let all = async {
        while !members.iter().all(&is_true) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(PATIENCE, all).await.is_err() {
        let states: Vec<_> = members.iter().map(RaftNodeManager::status).collect();
        panic!("{what}: {states:#?}");
    }
}

/// A CA, and in each directory a certificate of it for this machine.
fn certificates(directories: &[&Path], names: &[&str]) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    for directory in directories {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.join("ca.crt"), ca.pem()).unwrap();
        std::fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    }
}

/// They elect one, share what is written through any of them, and a stopped leader is followed at once.
async fn works(mut members: Vec<RaftNodeManager>) {
    let count = members.len();
    wait(&members, "all are voters", |member| member.status().voters.len() == count).await;
    wait(&members, "all know the leader", |member| member.leadership().leader().is_some()).await;
    let leads = |member: &RaftNodeManager| member.leadership().term().is_some();
    let mut watch = members[0].replicated().watch("a");
    assert_eq!(watch.next().await, WatchEvent::All(Vec::new()));
    for (at, member) in members.iter().enumerate() {
        member.replicated().put(&format!("a/{at}"), vec![at as u8; 100_000]).await.unwrap();
    }
    for member in &members {
        assert_eq!(member.replicated().list("a/").await.unwrap().len(), count);
    }
    let WatchEvent::Change(change) = timeout(PATIENCE, watch.next()).await.unwrap() else { panic!("no change") };
    assert_eq!(change.key(), "a/0");

    let at = timeout(PATIENCE, async {
        loop {
            match members.iter().position(leads) {
                Some(at) => return at,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let leader = members.remove(at.await.unwrap());
    let before = leader.leadership().term().map_or(0, |term| term.number);
    leader.shutdown().await;
    let next = async {
        loop {
            if let Some(term) = members.iter().find_map(|member| member.leadership().term()) {
                return term.number;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, next).await.expect("another leads") > before);
    for member in members {
        member.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_members_work_together() {
    let peers = addresses(3);
    let mut members = Vec::new();
    for ordinal in 0..3 {
        members.push(RaftNodeManager::new(config(&peers, ordinal)).await.unwrap());
    }
    works(members).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_with_certificates_hear_only_each_other() {
    let peers = addresses(2);
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    certificates(&[folders[0].path(), folders[1].path()], &["127.0.0.1"]);
    // Another CA of another cluster.
    certificates(&[folders[2].path()], &["127.0.0.1"]);
    let with = |ordinal: u64, folder: usize| config(&peers, ordinal).tls_dir(folders[folder].path());
    let first = RaftNodeManager::new(with(0, 0)).await.unwrap();
    for stranger in [config(&peers, 1), with(1, 2)] {
        let stranger = RaftNodeManager::new(stranger).await.unwrap();
        // Long enough for many attempts: without an answer from the other, no cluster is founded.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(first.status().voters.is_empty() && stranger.status().voters.is_empty(), "{:?}", first.status());
        stranger.shutdown().await;
    }
    let second = RaftNodeManager::new(with(1, 1)).await.unwrap();
    works_with_two(first, second).await;
}

async fn works_with_two(first: RaftNodeManager, second: RaftNodeManager) {
    let members = [first, second];
    wait(&members, "both are voters", |member| member.status().voters.len() == 2).await;
    members[1].replicated().put("a", "1").await.unwrap();
    assert_eq!(members[0].replicated().get("a").await.unwrap().unwrap().value, b"1");
    for member in members {
        member.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_name() {
    let peers = addresses(1);
    let config = config(&peers, 0).max_value_bytes(10).max_total_bytes(30);
    let member = RaftNodeManager::new(config).await.unwrap();
    let replicated = member.replicated();
    for (key, value, expect) in [
        ("a", "0123456789", ""),
        ("b", "0123456789x", "the value has 11 bytes; at most 10 are allowed"),
        ("c", "0123456789", ""),
        ("d", "0123456789", "the replicated state would have 33 bytes; at most 30 are allowed"),
        (&"k".repeat(2000), "", "the key has 2000 bytes; at most 1024 are allowed"),
    ] {
        let got = replicated.put(key, value).await.map_or_else(|error| error.to_string(), |_| String::new());
        assert!(got.starts_with(expect) && got.is_empty() == expect.is_empty(), "{got} instead of {expect}");
    }
    assert!(replicated.delete("a").await.unwrap() && !replicated.delete("a").await.unwrap());
    member.shutdown().await;
}

/// A manager that is dropped is gone for the others, also if the program still has a handle to the replicated state.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_is_dropped_is_followed_by_another() {
    let peers = addresses(3);
    let mut members = Vec::new();
    for ordinal in 0..3 {
        members.push(RaftNodeManager::new(config(&peers, ordinal)).await.unwrap());
    }
    wait(&members, "all are voters", |member| member.status().voters.len() == 3).await;
    let leads = |member: &RaftNodeManager| member.leadership().term().is_some();
    let leader = timeout(PATIENCE, async {
        loop {
            match members.iter().position(leads) {
                Some(at) => return members.remove(at),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let leader = leader.await.unwrap();
    let replicated = leader.replicated();
    drop(leader);
    let other = async {
        while !members.iter().any(leads) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), other).await.is_ok(), "nobody else leads");
    drop(replicated);
    for member in members {
        member.shutdown().await;
    }
}

/// A few large values are as much as many small ones: a snapshot takes their place before there are `snapshot_after` entries.
#[tokio::test]
async fn the_log_is_bounded_in_bytes() {
    let peers = addresses(1);
    let member = RaftNodeManager::new(config(&peers, 0).max_total_bytes(1 << 20)).await.unwrap();
    for _ in 0..40 {
        member.replicated().put("a", vec![7; 200_000]).await.unwrap();
    }
    let all = [member];
    wait(&all, "the log is purged", |member| member.status().purged_index >= 20).await;
    for member in all {
        member.shutdown().await;
    }
}
