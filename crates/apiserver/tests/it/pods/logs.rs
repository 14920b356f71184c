//! Logs of containers.

use serde_json::json;

use super::{bind, binding, with_states};
use crate::cluster::{Cluster, MERGE, PODS, pod};

#[tokio::test]
async fn logs_say_that_they_are_simulated() {
    let cluster = Cluster::new().await;
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    with_states(&cluster, "a", &json!({"waiting": {"reason": "CrashLoopBackOff"}}), &ended).await;
    let simulated =
        "konverge: pod default/a is simulated: none of its containers runs, so there is no output of theirs to show\n";
    let main = "konverge: pod is Running on node node-1\n\
                konverge: container main has image web:1\n\
                konverge: container main runs since 2026-01-02T03:04:05Z, ready, 0 restarts\n";
    for (query, expect) in [
        ("container=main", format!("{simulated}{main}")),
        ("container=main&follow=false&sinceSeconds=3", format!("{simulated}{main}")),
        ("container=main&tailLines=3", main.to_owned()),
        ("container=main&tailLines=0", String::new()),
        ("container=main&limitBytes=9&follow=true", "konverge:".to_owned()),
        (
            "container=main&tailLines=1&timestamps=true",
            format!("2026-01-02T03:04:05.000000000Z {}\n", main.lines().last().unwrap()),
        ),
        ("container=side&tailLines=1", "konverge: container side waits: CrashLoopBackOff, 1 restarts\n".to_owned()),
        (
            "container=side&tailLines=1&previous=true",
            "konverge: before, it ended with exit code 3 (Error)\n".to_owned(),
        ),
    ] {
        let answer = cluster.get(&format!("{PODS}/a/log?{query}")).await;
        assert_eq!((answer.code, answer.header("content-type")), (200, "text/plain"), "{query}");
        assert_eq!(String::from_utf8_lossy(&answer.body), expect, "{query}");
    }
}

#[tokio::test]
async fn logs_that_are_not_there() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("unplaced")).await.expect(201);
    cluster.post(PODS, &pod("placed")).await.expect(201);
    bind(&cluster, "placed", &binding("placed", "node-1")).await.expect(201);
    with_states(&cluster, "a", &json!({"waiting": {"reason": "ImagePullBackOff"}}), &json!({})).await;
    let empty = cluster.get(&format!("{PODS}/unplaced/log")).await;
    assert_eq!((empty.code, empty.body.len()), (204, 0));
    for (path, code, reason, expect) in [
        ("absent/log", 404, "NotFound", "pods \"absent\" not found"),
        ("unplaced/log?container=x", 400, "BadRequest", "container x is not valid for pod unplaced"),
        ("a/log", 400, "BadRequest", "a container name must be specified for pod a, choose one of: [main side]"),
        ("placed/log", 400, "BadRequest", "container \"main\" in pod \"placed\" is not available"),
        (
            "a/log?container=side",
            400,
            "BadRequest",
            "container \"side\" in pod \"a\" is waiting to start: trying and failing to pull image",
        ),
        (
            "a/log?container=main&previous=true",
            400,
            "BadRequest",
            "previous terminated container \"main\" in pod \"a\" not found",
        ),
        (
            "a/log?container=main&tailLines=-1",
            422,
            "Invalid",
            "PodLogOptions \"a\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        assert_eq!(cluster.get(&format!("{PODS}/{path}")).await.fails(code, reason), expect);
    }
}

#[tokio::test]
async fn a_followed_log_ends_with_its_container() {
    let cluster = Cluster::new().await;
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}}), &json!({})).await;
    let path = format!("{PODS}/a/log?container=side&follow=true&tailLines=1");
    let (followed, ()) = tokio::join!(cluster.get(&path), async {
        // The log was asked for before, for both are one task and it was first.
        let status = json!({"status": {"containerStatuses": [
            {"name": "side", "image": "log:1", "restartCount": 1, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        ]}});
        cluster
            .patch(&format!("{PODS}/a/status"), MERGE, &json!({"metadata": {"annotations": {"a": "b"}}}))
            .await
            .expect(200);
        cluster.patch(&format!("{PODS}/a/status"), MERGE, &status).await.expect(200);
    });
    assert_eq!(
        String::from_utf8_lossy(&followed.body),
        "konverge: container side runs since 2026-01-02T03:04:05Z, not ready, 1 restarts\n\
         konverge: container side ended with exit code 0 (Completed), 1 restarts\n"
    );
}

/// Prescribed lines are printed at their times after the start of the container, which is the time of the server here.
#[tokio::test]
async fn prescribed_logs() {
    let cluster = Cluster::new().await;
    let ended = json!({"terminated": {"exitCode": 1, "startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:00:02Z"}});
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:00Z"}}), &ended).await;
    let logs = "one\n+2s two\n+4s three\n+1h never";
    let annotations = json!({"metadata": {"annotations": {"simulate.konverge.dev/logs": logs}}});
    cluster.patch(&format!("{PODS}/a"), MERGE, &annotations).await.expect(200);
    for (query, expect) in [
        ("", "one\ntwo\nthree\n"),
        ("&tailLines=2", "two\nthree\n"),
        ("&sinceSeconds=2", "three\n"),
        ("&sinceTime=2026-01-02T03:04:02Z", "two\nthree\n"),
        ("&sinceTime=2026-01-02T03:04:02Z&tailLines=1", "three\n"),
        ("&sinceTime=2026-01-03T00:00:00Z", ""),
        ("&limitBytes=6", "one\ntw"),
        ("&limitBytes=6&follow=true", "one\ntw"),
        ("&timestamps=true&tailLines=1", "2026-01-02T03:04:04.000000000Z three\n"),
        ("&previous=true", "one\ntwo\n"),
    ] {
        let answer = cluster.get(&format!("{PODS}/a/log?container=side{query}")).await;
        assert_eq!(String::from_utf8_lossy(&answer.body), expect, "{query}");
    }
    for (query, code, expect) in [
        ("sinceTime=noon", 400, "unable to parse sinceTime \"noon\": it must be a time of RFC 3339"),
        (
            "sinceTime=2026-01-02T03:04:02Z&sinceSeconds=1",
            422,
            "PodLogOptions \"a\" is invalid: <nil>: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
    ] {
        let reason = if code == 400 { "BadRequest" } else { "Invalid" };
        assert_eq!(cluster.get(&format!("{PODS}/a/log?container=side&{query}")).await.fails(code, reason), expect);
    }
}

#[tokio::test]
async fn a_followed_prescribed_log_ends_with_its_container() {
    let cluster = Cluster::new().await;
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:00Z"}}), &json!({})).await;
    let annotations = json!({"metadata": {"annotations": {"simulate.konverge.dev/logs": "one\n+8s last\n+1h never"}}});
    cluster.patch(&format!("{PODS}/a"), MERGE, &annotations).await.expect(200);
    let path = format!("{PODS}/a/log?container=side&follow=true");
    let (followed, ()) = tokio::join!(cluster.get(&path), async {
        let state = json!({"terminated": {"exitCode": 0, "startedAt": "2026-01-02T03:04:00Z", "finishedAt": "2026-01-02T03:04:08Z"}});
        let status = json!({"status": {"containerStatuses": [{"name": "side", "image": "log:1", "restartCount": 1, "state": state}]}});
        cluster.patch(&format!("{PODS}/a/status"), MERGE, &status).await.expect(200);
    });
    assert_eq!(String::from_utf8_lossy(&followed.body), "one\nlast\n");
}
