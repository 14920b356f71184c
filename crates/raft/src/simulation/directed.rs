//! Single faults in virtual time: what exactly follows each of them, and how soon.

use std::time::Duration;

use tokio::time::Instant;

use super::{Cluster, ELECTION, REMOVED_AFTER};
use crate::peers::tests::Names;
use crate::replicated::{Replicated, ReplicatedError};

/// The leader is cut off: it stops before another one begins, and what it is asked to write is not acknowledged by it.
#[tokio::test(start_paused = true)]
async fn an_isolated_leader_stops_before_another_begins() {
    let mut cluster = Cluster::new(1, true);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(20)).await;
    let leader = cluster.leader().unwrap();
    let old = cluster.running[&leader].node.clone();
    let term = old.lease.leadership().term().unwrap();
    let cut = Instant::now();
    cluster.network.isolate(&old.me.address);
    old.lease.leadership().ended(&term).await;
    let stopped = cut.elapsed();
    assert!(stopped <= ELECTION * 2 / 3, "it led for {stopped:?}");
    let next = loop {
        match cluster.leader() {
            Some(next) => break next,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    assert_ne!(next, leader);
    let taken_over = cut.elapsed();
    assert!(taken_over > stopped && taken_over < ELECTION * 2, "another led after {taken_over:?}");
    assert!(cluster.running[&next].node.lease.leadership().term().unwrap().number > term.number);
    let refused = Replicated::new(old).put("a", "1").await;
    assert!(matches!(refused, Err(ReplicatedError::Unknown | ReplicatedError::NoLeader(_))), "{refused:?}");
}

/// A member that was cut off has begun no elections that would depose the leader when it comes back.
#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_does_not_depose_the_leader() {
    let mut cluster = Cluster::new(2, true);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(20)).await;
    let leader = cluster.leader().unwrap();
    let term = cluster.running[&leader].node.lease.leadership().term().unwrap();
    let other = cluster.running.keys().copied().find(|ordinal| *ordinal != leader).unwrap();
    cluster.network.isolate(&format!("node-{other}:1"));
    tokio::time::sleep(ELECTION * 20).await;
    cluster.network.heal();
    tokio::time::sleep(ELECTION * 20).await;
    assert_eq!(cluster.running[&leader].node.lease.leadership().term(), Some(term));
}

/// A leader that stops has another one elected at once, in a cluster of three without waiting for anybody's lease.
#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over() {
    let mut cluster = Cluster::new(3, true);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(20)).await;
    // A leader that was elected a moment ago grants nobody a vote yet.
    tokio::time::sleep(ELECTION * 2).await;
    let leader = cluster.leader().unwrap();
    let asked = Instant::now();
    cluster.running[&leader].node.hand_over(Duration::from_secs(2)).await;
    while cluster.leader().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_ne!(cluster.leader(), Some(leader));
    assert!(asked.elapsed() < Duration::from_millis(150), "it took {:?}", asked.elapsed());
}

/// Two of three members in memory are started again: nobody can be elected, so the one that is left says so and ends.
#[tokio::test(start_paused = true)]
async fn a_member_whose_cluster_is_lost_ends() {
    let mut cluster = Cluster::new(4, false);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(20)).await;
    for ordinal in [0, 2] {
        cluster.kill(ordinal).await;
    }
    for ordinal in [0, 2] {
        cluster.start(ordinal, 3).await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(30), cluster.running.get_mut(&1).unwrap().tasks.join_next());
    let why = ended.await.expect("it ends").unwrap().unwrap();
    assert!(why.contains("without what they knew"), "{why}");
    // Whoever started it starts it again, and then a new cluster is founded.
    cluster.kill(1).await;
    cluster.start(1, 3).await;
    cluster.settled(Duration::from_secs(30)).await;
}

/// The leader ends while the third voter is made one: the two voters before it have no majority without the leader. In memory the leader
/// comes back as another member, so nobody can be elected, and those that are left say so and end.
#[tokio::test(start_paused = true)]
async fn members_whose_leader_is_lost_while_voters_change_end() {
    let mut cluster = Cluster::new(10, false);
    // The change takes long enough to be seen.
    cluster.network.set_faults(0, Duration::from_millis(30));
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    let sets = |cluster: &Cluster, ordinal: u64| {
        let sets = cluster.running[&ordinal].node.voters().unwrap_or_default();
        sets.iter().map(std::collections::BTreeSet::len).collect::<Vec<_>>()
    };
    let changing = async {
        while [1, 2].map(|ordinal| sets(&cluster, ordinal)) != [[2, 3], [2, 3]] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), changing).await.expect("both know of the change");
    assert_eq!(cluster.leader(), Some(0));
    cluster.kill(0).await;
    cluster.network.heal();
    // It may come back as it was for as long as nobody has seen another in its place.
    tokio::time::sleep(ELECTION * 40).await;
    assert!([1, 2].iter().all(|ordinal| cluster.running[ordinal].tasks.len() == 5) && cluster.leader().is_none());
    cluster.start(0, 3).await;
    for ordinal in [1, 2] {
        let tasks = &mut cluster.running.get_mut(&ordinal).unwrap().tasks;
        let ended = tokio::time::timeout(Duration::from_secs(30), tasks.join_next());
        let why = ended.await.expect("it ends").unwrap().unwrap();
        assert!(why.contains("without what they knew"), "{why}");
    }
    for ordinal in [1, 2] {
        cluster.kill(ordinal).await;
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(30)).await;
}

/// A member that lags behind what the log still has is given a snapshot, and watchers hear of it.
#[tokio::test(start_paused = true)]
async fn a_member_that_lags_is_given_a_snapshot() {
    let mut cluster = Cluster::new(5, true);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    cluster.settled(Duration::from_secs(20)).await;
    let leader = cluster.leader().unwrap();
    let behind = cluster.running.keys().copied().find(|ordinal| *ordinal != leader).unwrap();
    let node = cluster.running[&behind].node.clone();
    let mut watch = Replicated::new(node.clone()).watch("");
    assert_eq!(watch.next().await, crate::replicated::WatchEvent::All(Vec::new()));
    cluster.network.isolate(&node.me.address);
    let replicated = Replicated::new(cluster.running[&leader].node.clone());
    for count in 0..200 {
        replicated.put("a", count.to_string()).await.unwrap();
    }
    let purged = cluster.running[&leader].node.status().purged_index;
    assert!(purged > 100, "the log is not compacted: {purged}");
    cluster.network.heal();
    let all = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("a snapshot");
    let crate::replicated::WatchEvent::All(all) = all else { panic!("{all:?}") };
    assert_eq!(all.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a"]);
    let got = Replicated::new(node).get("a").await.unwrap().unwrap();
    assert_eq!(got.value, b"199");
}

/// A leader that has given up writes nothing by itself any more: an entry between the last one that others have and their election would
/// keep them from being elected.
#[tokio::test(start_paused = true)]
async fn a_leader_that_gave_up_writes_nothing() {
    let mut cluster = Cluster::new(6, true);
    cluster.start(0, 1).await;
    cluster.settled(Duration::from_secs(20)).await;
    let node = &cluster.running[&0].node;
    node.lease.give_up();
    tokio::time::sleep(ELECTION).await;
    let before = node.status().last_log_index;
    tokio::time::sleep(ELECTION * 10).await;
    assert_eq!(node.status().last_log_index, before);
}

/// Nobody is removed while DNS fails, or answers in part, however long; and nobody founds a cluster without an answer of it.
#[tokio::test(start_paused = true)]
async fn dns_that_fails_or_answers_in_part_removes_nobody() {
    let mut cluster = Cluster::new(7, true);
    let names = Names::default();
    cluster.names = Some(names.clone());
    let all: &[&str] = &["10.0.0.0:1", "10.0.0.1:1", "10.0.0.2:1"];
    let host = |ordinal: u64| format!("node-{ordinal}");
    (0..3).for_each(|ordinal| names.set(&host(ordinal), Some(&all[ordinal as usize..=ordinal as usize])));
    names.set("web", None);
    for ordinal in 0..3 {
        cluster.start(ordinal, 3).await;
    }
    tokio::time::sleep(REMOVED_AFTER * 10).await;
    assert_eq!(cluster.leader(), None, "a cluster was founded without DNS");
    names.set("web", Some(all));
    cluster.settled(Duration::from_secs(20)).await;

    let voters = |cluster: &Cluster| cluster.leader().map(|leader| cluster.running[&leader].node.status().voters.len());
    // It lives, although DNS has forgotten it.
    names.set("web", Some(&all[..2]));
    names.remove("node-2");
    tokio::time::sleep(REMOVED_AFTER * 10).await;
    cluster.settled(Duration::from_secs(20)).await;
    // It is away, and nobody can say whether it is to come back.
    cluster.kill(2).await;
    for (service, own) in [(None, false), (Some(all), false), (Some(&all[..2]), true), (None, true)] {
        names.set("web", service);
        match own {
            true => names.set("node-2", None),
            false => names.remove("node-2"),
        }
        tokio::time::sleep(REMOVED_AFTER * 10).await;
        assert_eq!(voters(&cluster), Some(3), "{service:?} {own}");
    }
    // Now DNS says that it is gone.
    names.set("web", Some(&all[..2]));
    names.remove("node-2");
    cluster.settled(Duration::from_secs(20)).await;
}

/// A leader that is started again before the others elect another goes on to lead. What it had committed is not on its disk, but in its
/// log: whoever reads through it has to see that.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_started_again_at_once_shows_nothing_old() {
    for seed in 8..28 {
        let mut cluster = Cluster::new(seed, true);
        for ordinal in 0..3 {
            cluster.start(ordinal, 3).await;
        }
        cluster.settled(Duration::from_secs(20)).await;
        let leader = cluster.leader().unwrap();
        let replicated = Replicated::new(cluster.running[&leader].node.clone());
        for count in 0..10 {
            replicated.put("a", count.to_string()).await.unwrap();
        }
        cluster.kill(leader).await;
        cluster.start(leader, 3).await;
        let again = Replicated::new(cluster.running[&leader].node.clone());
        let found = again.get("a").await.unwrap().expect("it is not lost");
        assert_eq!(found.value, b"9", "seed {seed}");
    }
}

/// A program may still have a handle to a member that has ended: whatever it asks ends, too.
#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_member_that_has_ended_ends() {
    let mut cluster = Cluster::new(9, true);
    cluster.start(0, 1).await;
    cluster.settled(Duration::from_secs(20)).await;
    let replicated = Replicated::new(cluster.running[&0].node.clone());
    cluster.kill(0).await;
    let asked = async { (replicated.get("a").await, replicated.list("").await, replicated.put("a", "1").await) };
    let (got, listed, put) = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("all of them end");
    assert!(got.is_err() && listed.is_err() && put.is_err(), "{got:?} {listed:?} {put:?}");
}
