//! A cluster in which nothing happens: nothing is written but the signs of life of its nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use konverge_controllers::Options;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::*;

#[tokio::test(start_paused = true)]
async fn at_rest_only_the_leases_of_nodes_are_written() {
    let (begin, born) = (Instant::now(), Timestamp::now());
    let clock = Arc::new(move || born.checked_add(begin.elapsed()).unwrap());
    let server = server().await;
    let stage = Stage::on(server.clone(), Options { clock, ..Options::default() });
    stage.create(DEPLOYMENTS, deployment("web", 3, "web:1", json!({}))).await;
    let selector = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    stage.create(BUDGETS, json!({"metadata": {"name": "web"}, "spec": selector})).await;
    stage
        .create(
            SERVICES,
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        )
        .await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3)).await;
    // Events are written a little later.
    sleep(Duration::from_secs(120)).await;

    let store = server.store();
    let mut watch = store.watch("/registry/", store.revision()).unwrap();
    let mut written = BTreeSet::new();
    let mut writes = 0;
    for _ in 0..180 {
        sleep(Duration::from_secs(10)).await;
        let changes = watch.take(10_000).unwrap();
        writes += changes.len();
        let keys = changes.into_iter().filter_map(|change| change.after.or(change.before)).map(|entry| entry.key);
        written.extend(keys.map(|key| key.to_string()));
    }
    assert_eq!(
        written,
        ["/registry/coordination.k8s.io/leases/kube-node-lease/konverge-node-1".to_owned()].into(),
        "{writes} writes"
    );
    stage.stop().await;
}
