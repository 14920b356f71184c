//! Three instances in one process, over real sockets: one works, another takes over, no number is given twice.

use std::net::TcpListener;

use konverge::prelude::*;
use konverge::{Metrics, RaftConfig};
use konverge_testkit::Cluster;
use tickets::{Ticket, TicketSpec, operator};

/// Ports that were free a moment ago.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

fn member(ports: &[u16], ordinal: u64) -> RaftConfig {
    let peers = ports.iter().enumerate().map(|(at, port)| (at as u64, format!("127.0.0.1:{port}")));
    // The machine of a test may be busy.
    RaftConfig::new("test").node_id(ordinal).peers(peers).election_timeout(Duration::from_secs(2))
}

fn ticket(name: &str) -> Ticket {
    Ticket::new(name, TicketSpec { guest: "Ada".into() })
}

fn number(ticket: &Ticket) -> Option<u64> {
    ticket.status.as_ref()?.number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_instance_goes_on_where_the_leader_stopped() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Ticket>().await?;
    let ports = free_ports(3);
    let metrics: Vec<Metrics> = (0..3).map(|_| Metrics::new()).collect();
    let run = |ordinal: u64, metrics: &Metrics| cluster.run(operator(member(&ports, ordinal)).metrics(metrics.clone()));
    let mut running: Vec<_> = metrics.iter().zip(0..).map(|(metrics, ordinal)| Some(run(ordinal, metrics))).collect();
    // The first one founds the cluster alone; the others are of use when they have a vote.
    let all_vote =
        |metrics: &Metrics| metrics.page().contains("konverge_raft_members{cluster=\"test\",role=\"voter\"} 3");
    let joined = async {
        while !metrics.iter().all(all_vote) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), joined).await.expect("all of them vote");

    let mut given = Vec::new();
    for stopped in 0..2 {
        let name = format!("ticket-{stopped}");
        cluster.create(ticket(&name)).await?;
        let done: Ticket = cluster.wait_until(&name, |ticket: &Ticket| number(ticket).is_some()).await?;
        given.push(number(&done));
        // Two of three are a majority; after the first stop, those two go on.
        if stopped == 0
            && let Some(first) = running[0].take()
        {
            first.stop().await?;
        }
    }
    assert_eq!(given, [Some(1), Some(2)]);
    for one in running.into_iter().flatten() {
        one.stop().await?;
    }
    Ok(())
}

/// Instances that have webhooks show each other the certificate that the operator has made for those, and hear nobody without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_with_webhooks_use_their_certificate() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Ticket>().await?;
    let ports = free_ports(4);
    let metrics: Vec<Metrics> = (0..3).map(|_| Metrics::new()).collect();
    let run = |ordinal: u64, metrics: &Metrics| {
        let mut settings = konverge::Settings { name: "tickets".into(), ..Default::default() };
        settings.metrics.enabled = false;
        settings.health.enabled = false;
        settings.webhook.address = "127.0.0.1:0".parse().expect("an address");
        let operator = operator(member(&ports[..3], ordinal))
            .validate(|_: konverge::webhook::Admission<Ticket>| async { Ok(()) })
            .settings(settings)
            .client(cluster.client())
            .metrics(metrics.clone());
        tokio::spawn(operator.run_until(std::future::pending()))
    };
    let running: Vec<_> = metrics.iter().zip(0..).map(|(metrics, ordinal)| run(ordinal, metrics)).collect();
    let votes = |metrics: &Metrics, count: usize| {
        metrics.page().contains(&format!("konverge_raft_members{{cluster=\"test\",role=\"voter\"}} {count}"))
    };
    let joined = async {
        while !metrics.iter().all(|metrics| votes(metrics, 3)) {
            assert!(running.iter().all(|one| !one.is_finished()), "an instance has ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), joined).await.expect("all of them vote");
    let secret: konverge::k8s_openapi::api::core::v1::Secret = cluster.get("tickets-webhook-cert").await?;
    assert!(secret.data.is_some_and(|data| data.contains_key("ca.key")), "they share it");
    // Without a certificate nobody is heard, so this one neither joins nor founds a cluster.
    let mut peers: Vec<(u64, String)> = (0..3).map(|at| (at, format!("127.0.0.1:{}", ports[at as usize]))).collect();
    peers.push((3, format!("127.0.0.1:{}", ports[3])));
    let stranger = konverge::RaftNodeManager::new(RaftConfig::new("test").node_id(3).peers(peers)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(stranger.status().voters.is_empty() && metrics.iter().all(|metrics| votes(metrics, 3)));
    stranger.shutdown().await;
    running.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test]
async fn the_manifests_are_accepted() -> Result<()> {
    let cluster = Cluster::start().await?;
    let raft = RaftConfig::new("tickets").service_name("tickets-headless").data_dir("/data/raft").tls_dir("/tls");
    let operator = operator(raft);
    let manifests = operator.stateful_set(&konverge::Settings { name: "tickets".into(), ..Default::default() });
    let kinds: Vec<_> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"]);
    for manifest in manifests {
        let paths = [
            ("Service", "/api/v1/namespaces/default/services"),
            ("StatefulSet", "/apis/apps/v1/namespaces/default/statefulsets"),
            ("PodDisruptionBudget", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"),
            ("NetworkPolicy", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"),
        ];
        let (_, path) = paths.into_iter().find(|(kind, _)| manifest["kind"] == *kind).unwrap();
        let request = konverge::http::Request::post(format!("{path}?fieldValidation=Strict"))
            .header("content-type", "application/json")
            .body(konverge::serde_json::to_vec(&manifest)?)?;
        let created: konverge::serde_json::Value = cluster.client().request(request).await?;
        assert_eq!(created["metadata"]["name"], manifest["metadata"]["name"]);
    }
    Ok(())
}

#[tokio::test]
async fn a_leader_is_elected_in_one_way() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Ticket>().await?;
    let ports = free_ports(1);
    let both = operator(member(&ports, 0)).configure(|settings| settings.leader_election.enabled = true);
    let refused = both.in_test(cluster.client()).run_until(std::future::pending()).await.unwrap_err().to_string();
    assert!(refused.contains("by a Lease and by Raft"), "{refused}");
    Ok(())
}
