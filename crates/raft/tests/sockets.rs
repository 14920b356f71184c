//! Members over real sockets, with certificates and without: who is heard, and that it works at all.

#![allow(clippy::unwrap_used, reason = "the functions that tests share are tests, too")]

use std::io::Write;
use std::net::{Ipv6Addr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use konverge_raft::{Change, RaftConfig, RaftNodeManager, ReplicatedError, WatchEvent};
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

/// Waits until all members know of so many voters, and none of a change that goes on: until its end a majority of those that voted before
/// is needed, too, and one of two is none.
async fn wait_for_voters(members: &[RaftNodeManager], count: usize) {
    let are_voters = |member: &RaftNodeManager| {
        let status = member.status();
        status.voters.len() == count && status.is_settled
    };
    wait(members, "all are voters", are_voters).await;
}

/// A CA of members.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Puts a certificate for these names into a directory, beside the CAs that whoever reads it is to believe. Each file is replaced at
    /// once, as those of a Secret are.
    fn issue(&self, directory: &Path, believed: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = [("ca.crt", believed.to_owned()), ("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())];
        for (name, pem) in files {
            std::fs::write(directory.join("next"), pem).unwrap();
            std::fs::rename(directory.join("next"), directory.join(name)).unwrap();
        }
    }
}

fn folders(count: usize) -> Vec<tempfile::TempDir> {
    (0..count).map(|_| tempfile::tempdir().unwrap()).collect()
}

/// They elect one, share what is written through any of them, and a stopped leader is followed at once.
async fn works(mut members: Vec<RaftNodeManager>) {
    let count = members.len();
    wait_for_voters(&members, count).await;
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
    let folders = folders(4);
    let (ours, other) = (Authority::new(), Authority::new());
    ours.issue(folders[0].path(), &ours.pem, &["127.0.0.1"]);
    ours.issue(folders[1].path(), &ours.pem, &["127.0.0.1"]);
    // That of another cluster.
    other.issue(folders[2].path(), &other.pem, &["127.0.0.1"]);
    // Another workload with a certificate of the same CA, and a member that would hear it.
    ours.issue(folders[3].path(), &ours.pem, &["mail.shop.svc", "127.0.0.2"]);
    let with = |ordinal: u64, folder: usize| config(&peers, ordinal).tls_dir(folders[folder].path());
    let first = RaftNodeManager::new(with(0, 0)).await.unwrap();
    for stranger in [config(&peers, 1), with(1, 2), with(1, 3), with(1, 3).tls_name("mail.shop.svc")] {
        let stranger = RaftNodeManager::new(stranger).await.unwrap();
        // Long enough for many attempts: without an answer from the other, no cluster is founded.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(first.status().voters.is_empty() && stranger.status().voters.is_empty(), "{:?}", first.status());
        stranger.shutdown().await;
    }
    let second = RaftNodeManager::new(with(1, 1)).await.unwrap();
    works_with_two(first, second).await;
}

/// A cluster is there, and somebody with a certificate of its CA, but for another name, wants to be a member of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_workload_of_the_same_ca_cannot_join() {
    let peers = addresses(2);
    let folders = folders(2);
    let ours = Authority::new();
    ours.issue(folders[0].path(), &ours.pem, &["127.0.0.1"]);
    ours.issue(folders[1].path(), &ours.pem, &["mail.shop.svc"]);
    let only = vec![peers[0].clone()];
    let first = RaftNodeManager::new(config(&only, 0).tls_dir(folders[0].path())).await.unwrap();
    let members = [first];
    wait(&members, "it leads", |member| member.leadership().term().is_some()).await;
    // It hears the leader, whose certificate is for the address, and asks to join.
    let stranger = RaftNodeManager::new(config(&peers, 1).tls_dir(folders[1].path())).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = members[0].status();
    assert!(status.voters.len() == 1 && status.learners.is_empty(), "{status:?}");
    stranger.shutdown().await;
    let [first] = members;
    first.shutdown().await;
    // By the name that both have, they work together.
    ours.issue(folders[0].path(), &ours.pem, &["raft.shop.svc"]);
    ours.issue(folders[1].path(), &ours.pem, &["raft.shop.svc"]);
    let peers = addresses(2);
    let named =
        |ordinal: u64| config(&peers, ordinal).tls_dir(folders[ordinal as usize].path()).tls_name("raft.shop.svc");
    let (first, second) =
        (RaftNodeManager::new(named(0)).await.unwrap(), RaftNodeManager::new(named(1)).await.unwrap());
    works_with_two(first, second).await;
}

/// What is logged, in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whoever is refused costs a line of the log for each reason, not one for each attempt.
#[tokio::test]
async fn the_log_says_once_who_is_refused() {
    let (log, peers, folders, ours) = (Log::default(), addresses(2), folders(2), Authority::new());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    ours.issue(folders[0].path(), &ours.pem, &["127.0.0.1"]);
    ours.issue(folders[1].path(), &ours.pem, &["mail.shop.svc"]);
    let first = RaftNodeManager::new(config(&peers, 0).tls_dir(folders[0].path())).await.unwrap();
    // Its own log must not be mistaken for that of the first one.
    let stranger = || RaftConfig::new("strangers").node_id(1).peers(peers.clone());
    for stranger in [stranger(), stranger().tls_dir(folders[1].path())] {
        let stranger = RaftNodeManager::new(stranger).await.unwrap();
        // It asks more often than once a second.
        tokio::time::sleep(Duration::from_secs(4)).await;
        stranger.shutdown().await;
    }
    first.shutdown().await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let of_first: Vec<&str> = text.lines().filter(|line| line.contains("cluster=test ")).collect();
    for why in ["no handshake of TLS", "it is for none of the names that are expected here"] {
        let said = of_first.iter().filter(|line| line.contains("was refused") && line.contains(why)).count();
        assert_eq!(said, 1, "{why}: {text}");
    }
}

/// The CA changes in three steps while the members run, and the leader leads on: first all believe both, then all show certificates of
/// the new one, then nobody believes the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_ca_changes_while_members_run() {
    let peers = addresses(3);
    let folders = folders(3);
    let (old, new) = (Authority::new(), Authority::new());
    let both = format!("{}{}", old.pem, new.pem);
    let issue = |authority: &Authority, believed: &str| {
        folders.iter().for_each(|folder| authority.issue(folder.path(), believed, &["127.0.0.1"]));
    };
    issue(&old, &old.pem);
    // The lead is lost when nobody is heard, and not because the machine is busy.
    let election = Duration::from_secs(3);
    let with = |ordinal: u64, folder: &Path| config(&peers, ordinal).tls_dir(folder).election_timeout(election);
    let mut members = Vec::new();
    for ordinal in 0..3 {
        members.push(RaftNodeManager::new(with(ordinal, folders[ordinal as usize].path())).await.unwrap());
    }
    wait_for_voters(&members, 3).await;
    wait(&members, "all know the leader", |member| member.leadership().leader().is_some()).await;
    let at = members.iter().position(|member| member.leadership().term().is_some()).unwrap();
    let term = members[at].leadership().term();
    members.swap(0, at);
    for (authority, believed) in [(&old, both.as_str()), (&new, both.as_str()), (&new, new.pem.as_str())] {
        issue(authority, believed);
        // The files are looked at every two seconds, and connections made anew at the next heartbeat.
        let end = tokio::time::Instant::now() + Duration::from_secs(3) + election;
        while tokio::time::Instant::now() < end {
            members[1].replicated().put("a", "1").await.unwrap();
            assert_eq!(members[0].leadership().term(), term, "the leader lost the lead");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // Who starts now has never heard of the old CA, and shows nothing of it.
    let gone = members.pop().unwrap();
    let ordinal = gone.status().member.rsplit_once('_').unwrap().0.rsplit_once('-').unwrap().1.parse().unwrap();
    gone.shutdown().await;
    let fresh = tempfile::tempdir().unwrap();
    new.issue(fresh.path(), &new.pem, &["127.0.0.1"]);
    members.push(RaftNodeManager::new(with(ordinal, fresh.path())).await.unwrap());
    let newest = members[2].status().member;
    wait(&members, "it is a voter", |member| member.status().voters.contains(&newest)).await;
    // And whoever still has the old one is not heard.
    let stale = tempfile::tempdir().unwrap();
    old.issue(stale.path(), &both, &["127.0.0.1"]);
    let gone = members.pop().unwrap();
    gone.shutdown().await;
    let stranger = RaftNodeManager::new(with(ordinal, stale.path())).await.unwrap();
    tokio::time::sleep(2 * election).await;
    let stranger_is = stranger.status().member;
    assert!(!members[0].status().voters.contains(&stranger_is) && !members[0].status().learners.contains(&stranger_is));
    stranger.shutdown().await;
    for member in members {
        member.shutdown().await;
    }
}

/// Members with IPv6 addresses, and certificates for them; and one that listens on `::` and is found at an IPv4 address.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_find_each_other_over_ipv6() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        println!("not checked: this machine has no IPv6 ({error})");
        return;
    }
    let folders = folders(2);
    let ours = Authority::new();
    for folder in &folders {
        ours.issue(folder.path(), &ours.pem, &["::1", "127.0.0.1"]);
    }
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    for (hosts, bind) in [(["[::1]", "[::1]"], None), (["[::1]", "127.0.0.1"], Some(Ipv6Addr::UNSPECIFIED))] {
        let peers: Vec<(u64, String)> = addresses(2)
            .into_iter()
            .map(|(ordinal, address)| (ordinal, format!("{}:{}", hosts[ordinal as usize], port(&address))))
            .collect();
        let with = |ordinal: u64| {
            let config = config(&peers, ordinal).tls_dir(folders[ordinal as usize].path());
            bind.map_or(config.clone(), |bind| config.bind_address(bind.into()))
        };
        let (first, second) =
            (RaftNodeManager::new(with(0)).await.unwrap(), RaftNodeManager::new(with(1)).await.unwrap());
        works_with_two(first, second).await;
    }
}

/// A list is larger than any message between members.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_large_list_is_the_same_through_every_member() {
    let peers = addresses(3);
    let mut members = Vec::new();
    for ordinal in 0..3 {
        // Without optimisation, a large entry takes long to be written and read.
        let patient = config(&peers, ordinal).election_timeout(Duration::from_secs(4));
        members.push(RaftNodeManager::new(patient).await.unwrap());
    }
    wait_for_voters(&members, 3).await;
    for key in 0..24 {
        members[0].replicated().put(&format!("a/{key:02}"), vec![key; 400_000]).await.unwrap();
    }
    for (at, member) in members.iter().enumerate() {
        // One that lags says so, and is asked again.
        let asked = async {
            loop {
                match member.replicated().list("a/").await {
                    Err(ReplicatedError::Behind(_)) => {}
                    other => return other.unwrap(),
                }
            }
        };
        let listed = timeout(PATIENCE, asked).await.unwrap();
        let bytes: usize = listed.iter().map(|(_, found)| found.value.len()).sum();
        assert_eq!((listed.len(), bytes), (24, 24 * 400_000), "through member {at}");
        let keys: Vec<u8> = listed.iter().map(|(_, found)| found.value[0]).collect();
        assert_eq!(keys, (0..24).collect::<Vec<u8>>());
    }
    for member in members {
        member.shutdown().await;
    }
}

/// A watch that nobody reads is told that it has missed something, and one beside it sees every change.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_that_nobody_reads_is_told_that_it_missed_something() {
    let peers = addresses(1);
    let member = RaftNodeManager::new(config(&peers, 0).max_total_bytes(1 << 20)).await.unwrap();
    let replicated = member.replicated();
    replicated.put("a/0", "first").await.unwrap();
    let (mut unread, mut read) = (replicated.watch("a/"), replicated.watch("a/"));
    for watch in [&mut unread, &mut read] {
        assert!(matches!(watch.next().await, WatchEvent::All(all) if all.len() == 1));
    }
    let reading = async {
        for count in 0..40_u8 {
            let event = timeout(PATIENCE, read.next()).await.unwrap();
            let WatchEvent::Change(Change::Put { value, .. }) = event else { panic!("{count}: {event:?}") };
            assert_eq!(value.value[0], count);
        }
    };
    // Twice what is kept for all watches together.
    let writing = async {
        for count in 0..40 {
            replicated.put("a/0", vec![count; 200_000]).await.unwrap();
        }
    };
    tokio::join!(reading, writing);
    let event = timeout(PATIENCE, unread.next()).await.unwrap();
    let WatchEvent::All(all) = event else { panic!("{event:?}") };
    assert_eq!(all[0].1.value[0], 39);
    replicated.delete("a/0").await.unwrap();
    let event = timeout(PATIENCE, unread.next()).await.unwrap();
    assert_eq!(event, WatchEvent::Change(Change::Deleted { key: "a/0".into() }));
    member.shutdown().await;
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
    wait_for_voters(&members, 3).await;
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
    let states = || members.iter().map(RaftNodeManager::status).collect::<Vec<_>>();
    assert!(timeout(PATIENCE, other).await.is_ok(), "nobody else leads: {:#?}", states());
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
