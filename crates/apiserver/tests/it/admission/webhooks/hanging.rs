//! Webhooks that do not answer. They cost those whose requests they are asked about, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use serde_json::{Value, json};

use konverge_apiserver::{InFlightLimits, LocalWebhook, Options};

use crate::cluster::{AT_MOST, Answer, CONFIG_MAPS, Cluster, config_map};

use super::{MUTATING, VALIDATING, configuration, hook};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// As many slots as there are for writes. The tests need few.
const SLOTS: usize = 3;

/// A cluster whose webhook about secrets never answers, and how often it was asked.
async fn hanging(kind: &str, more: &Value) -> (Cluster, Arc<AtomicUsize>) {
    let in_flight = InFlightLimits { reading: 0, writing: SLOTS };
    let cluster = Cluster::with(|options| Options { in_flight, ..options }).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let handler: LocalWebhook = Arc::new(move |_: Request<Bytes>| {
        count.fetch_add(1, SeqCst);
        Box::pin(std::future::pending())
    });
    cluster.server.register_webhooks("h", Some(handler));
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]});
    let mut only = hook("h", more);
    only["rules"] = json!([rule]);
    cluster.post(kind, &configuration("c", &[only])).await.expect(201);
    (cluster, asked)
}

async fn secret(cluster: &Cluster, name: usize) -> Answer {
    cluster.post(SECRETS, &json!({"metadata": {"name": format!("s{name}")}})).await
}

/// Runs `meanwhile` when so many requests wait for the webhook.
async fn while_waiting<T>(
    cluster: &Cluster,
    asked: &AtomicUsize,
    count: usize,
    meanwhile: impl Future<Output = T>,
) -> T {
    let hang = join_all((0..count).map(|name| secret(cluster, name)));
    let rest = async {
        while asked.load(SeqCst) < count {
            tokio::task::yield_now().await;
        }
        meanwhile.await
    };
    tokio::select! {
        answers = hang => panic!("the webhook answers nobody, but there are answers: {}", answers.len()),
        done = tokio::time::timeout(AT_MOST, rest) => done.expect("nobody else waits"),
    }
}

#[tokio::test]
async fn others_have_all_slots_for_writes() {
    for kind in [VALIDATING, MUTATING] {
        let (cluster, asked) = hanging(kind, &json!({})).await;
        let others = async {
            let made = join_all((0..SLOTS).map(|name| {
                let cluster = &cluster;
                async move { cluster.post(CONFIG_MAPS, &config_map(&format!("c{name}"))).await }
            }));
            for answer in made.await {
                answer.expect(201);
            }
        };
        while_waiting(&cluster, &asked, SLOTS, others).await;
        cluster.delete(&format!("{kind}/c")).await.expect(200);
        secret(&cluster, 0).await.expect(201);
    }
}

/// A webhook whose failures are ignored must not be passed by who makes it slow.
#[tokio::test]
async fn more_than_there_is_room_for_are_told() {
    for policy in ["Fail", "Ignore"] {
        let (cluster, asked) = hanging(VALIDATING, &json!({"failurePolicy": policy})).await;
        let refused = while_waiting(&cluster, &asked, SLOTS, secret(&cluster, SLOTS)).await;
        let bytes = refused.fails(429, "TooManyRequests");
        let expect = format!("too many requests wait for the webhook https://h/check ({SLOTS} requests with ");
        assert!(bytes.starts_with(&expect), "{policy}: {bytes}");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(asked.load(SeqCst), SLOTS, "it was not asked");
        let page = String::from_utf8_lossy(&cluster.get("/metrics").await.body).into_owned();
        let none = "konverge_requests_lent_to_webhooks{request_kind=\"mutating\"} 0\n";
        assert!(page.contains(none), "those whose clients are gone count no more:\n{page}");
    }
}
