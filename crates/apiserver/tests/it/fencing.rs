//! Writes that name a term of leader election: they are committed only while the Lease confirms the term.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::cluster::{CONFIG_MAPS, Cluster, LEASES, MERGE, config_map};

/// The code and the message of a write in a term.
async fn write(cluster: &Cluster, method: &str, path: &str, term: &str, body: &Value) -> (u16, String) {
    let kind = if method == "PATCH" { MERGE } else { "application/json" };
    let request =
        Request::builder().method(method).uri(path).header("content-type", kind).header("konverge-term", term);
    let answer = cluster.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let json: Value = serde_json::from_slice(&body).unwrap();
    (code, json["message"].as_str().unwrap_or_default().to_owned())
}

fn held_by(holder: &str, transitions: u64) -> Value {
    json!({"metadata": {"name": "lock"}, "spec": {
        "holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15,
    }})
}

#[tokio::test]
async fn a_write_in_a_term_that_is_over_changes_nothing() {
    let cluster = Cluster::new().await;
    cluster.post(LEASES, &held_by("web-0/a", 3)).await.expect(201);
    let (mine, third) = (format!("{CONFIG_MAPS}/mine"), "default/lock/3/web-0/a");
    let change = json!({"data": {"a": "b"}});
    assert_eq!(write(&cluster, "POST", CONFIG_MAPS, third, &config_map("mine")).await.0, 201);
    assert_eq!(write(&cluster, "PATCH", &mine, third, &change).await.0, 200);

    let over = |term: &str| format!("the term {term} is over: its Lease does not name this holder in this term");
    for term in
        ["default/lock/2/web-0/a", "default/lock/3/web-1", "default/other/3/web-0/a", "kube-system/lock/3/web-0/a"]
    {
        for (method, path, body) in
            [("POST", CONFIG_MAPS, &config_map("other")), ("PATCH", &mine, &change), ("DELETE", &mine, &json!({}))]
        {
            // A change that is none is not written, in whatever term.
            let body = if method == "PATCH" { &json!({"data": {"term": term}}) } else { body };
            assert_eq!(write(&cluster, method, path, term, body).await, (409, over(term)), "{method} {term}");
        }
    }
    for term in ["", "default", "default/lock/3/", "default//3/web-0"] {
        let (code, message) = write(&cluster, "DELETE", &mine, term, &json!({})).await;
        assert_eq!(code, 400, "{term:?}: {message}");
        assert!(message.ends_with("it takes NAMESPACE/LEASE/TERM/HOLDER"), "{message}");
    }

    // A renewal does not end the term, another holder does.
    let renewed = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
    cluster.patch(&format!("{LEASES}/lock"), MERGE, &renewed).await.expect(200);
    assert_eq!(write(&cluster, "PATCH", &mine, third, &json!({"data": {"a": "c"}})).await.0, 200);
    let taken = json!({"spec": {"holderIdentity": "web-1", "leaseTransitions": 4}});
    cluster.patch(&format!("{LEASES}/lock"), MERGE, &taken).await.expect(200);
    assert_eq!(write(&cluster, "DELETE", &mine, third, &json!({})).await, (409, over(third)));
    assert_eq!(cluster.get(&mine).await.expect(200)["data"]["a"], "c");
    assert_eq!(write(&cluster, "DELETE", &mine, "default/lock/4/web-1", &json!({})).await.0, 200);
}
