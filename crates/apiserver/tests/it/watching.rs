//! Watches: where they begin, which events they send, in which order, and how they end. Where time matters it is paused, so that
//! an hour takes no time and nothing depends on timing.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{
    AS_METADATA, AS_TABLE, CONFIG_MAPS, CRDS, Cluster, JSON_PATCH, MERGE, PODS, WIDGETS, brief, config_map, pod,
    version, widget, widgets,
};

fn map(name: &str, labels: Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = labels;
    object
}

async fn touch(cluster: &Cluster, name: &str, value: u64) -> Value {
    cluster.patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &json!({"data": {"k": value.to_string()}})).await.expect(200)
}

#[tokio::test]
async fn where_a_watch_begins() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let between = cluster.revision();
    cluster.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    for (query, expect) in [
        ("", vec!["ADDED a", "ADDED b"]),
        ("&resourceVersion=", vec!["ADDED a", "ADDED b"]),
        ("&resourceVersion=0", vec!["ADDED a", "ADDED b"]),
        (&format!("&resourceVersion={between}"), vec!["ADDED b"]),
        (&format!("&resourceVersion={}", between - 1), vec!["ADDED a", "ADDED b"]),
        (&format!("&resourceVersion={}", cluster.revision()), vec![]),
        ("&fieldSelector=metadata.name%3Da", vec!["ADDED a"]),
        ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", vec![]),
        ("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", vec!["ADDED a", "ADDED b"]),
    ] {
        let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true{query}")).await;
        assert_eq!(lines.next_briefs(expect.len()).await, expect, "{query}");
        touch(&cluster, "a", cluster.revision()).await;
        assert_eq!(lines.next_brief().await, "MODIFIED a", "{query}");
    }
}

#[tokio::test]
async fn a_list_and_a_watch_from_it_leave_no_gap() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let listed = cluster.get(CONFIG_MAPS).await.version();
    cluster.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={listed}")).await;
    assert_eq!(lines.next_briefs(2).await, ["ADDED b", "DELETED a"]);
}

#[tokio::test]
async fn options_that_make_no_sense() {
    let cluster = Cluster::new().await;
    let options = "ListOptions.meta.k8s.io \"\" is invalid: ";
    for (query, message) in [
        (
            "sendInitialEvents=true",
            format!(
                "{options}resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                 NotOlderThan"
            ),
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                 sendInitialEvents is provided"
            ),
        ),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            format!(
                "{options}[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                 NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"
            ),
        ),
        (
            "continue=x",
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
            ),
        ),
        (
            "resourceVersion=0&continue=x",
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
            ),
        ),
    ] {
        let answer = cluster.get(&format!("{CONFIG_MAPS}?watch=true&{query}")).await;
        assert_eq!(answer.fails(422, "Invalid"), message, "{query}");
    }
    cluster.get(&format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=soon")).await.fails(400, "BadRequest");
    cluster.get(&format!("{CONFIG_MAPS}?watch=true&limit=few")).await.fails(400, "BadRequest");
    let unreadable = cluster.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=abc")).await.expect(500);
    assert_eq!(
        unreadable["message"],
        "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
    );
    cluster.get(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=data%3Dx")).await.fails(400, "BadRequest");
    let future = format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion=9000000000000000&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    cluster.get(&future).await.fails(504, "Timeout");
}

#[tokio::test]
async fn what_is_too_old_is_said_inside_the_stream() {
    let cluster = Cluster::new().await;
    let old = cluster.post(CONFIG_MAPS, &config_map("a")).await.version();
    let mut running = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={old}")).await;
    for value in 0..10 {
        touch(&cluster, "a", value).await;
    }
    cluster.compact();
    let newest = cluster.revision();
    let mut late = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={old}")).await;
    for lines in [&mut running, &mut late] {
        let event = lines.next().await;
        assert_eq!(
            event,
            json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
                "message": format!("too old resource version: {old} ({newest})"), "code": 410,
            }})
        );
        assert_eq!(lines.next_ever().await, None, "and that is the end of it");
    }
    // A compaction does not affect a watch that starts after it.
    cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={newest}")).await;
    let mut unknown = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", newest + 7)).await;
    let event = unknown.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_mark() {
    let cluster = Cluster::new().await;
    for name in ["a", "b"] {
        cluster.post(CONFIG_MAPS, &map(name, json!({"app": name}))).await.expect(201);
    }
    let now = cluster.revision();
    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?{initial}&allowWatchBookmarks=true")).await;
    assert_eq!(lines.next_briefs(2).await, ["ADDED a", "ADDED b"]);
    assert_eq!(
        lines.next().await,
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": now.to_string(), "creationTimestamp": null,
            "annotations": {"k8s.io/initial-events-end": "true"},
        }}})
    );
    let selected = format!("{CONFIG_MAPS}?{initial}&allowWatchBookmarks=true&labelSelector=app%3Db");
    let mut lines = cluster.watch(&selected).await;
    assert_eq!(lines.next_briefs(2).await, ["ADDED b", "BOOKMARK "]);
    let mut nothing = cluster.watch(&format!("{PODS}?{initial}&allowWatchBookmarks=true")).await;
    assert_eq!(nothing.next().await["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    // A client that does not accept bookmarks gets none.
    let mut unmarked = cluster.watch(&format!("{CONFIG_MAPS}?{initial}&timeoutSeconds=5")).await;
    assert_eq!(unmarked.next_briefs(2).await, ["ADDED a", "ADDED b"]);
    assert_eq!(unmarked.next_ever().await, None);
}

#[tokio::test(start_paused = true)]
async fn quiet_watches_tell_how_far_they_are() {
    let cluster = Cluster::new().await;
    let query = format!("resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=150", cluster.revision());
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&{query}")).await;
    cluster.post(PODS, &pod("elsewhere")).await.expect(201);
    let begin = Instant::now();
    let mut seen = Vec::new();
    while let Some(event) = lines.next_ever().await {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(version(&event["object"]), cluster.revision(), "it moves on with what does not concern it");
        seen.push(begin.elapsed().as_secs());
    }
    assert_eq!(seen, [60, 120, 148], "every minute, and two seconds before the end");
    assert_eq!(begin.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn how_long_a_watch_lasts() {
    let cluster = Cluster::new().await;
    for (query, seconds) in
        [("&timeoutSeconds=7", 7), ("&timeoutSeconds=1", 1), ("", 45 * 60), ("&timeoutSeconds=0", 45 * 60)]
    {
        let begin = Instant::now();
        let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true{query}")).await;
        assert_eq!(lines.next_ever().await, None, "{query}");
        assert_eq!(begin.elapsed().as_secs(), seconds, "{query}");
    }
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let begin = Instant::now();
    cluster.server.shutdown();
    assert_eq!(lines.next_ever().await, None);
    assert!(begin.elapsed() < Duration::from_secs(1), "a closing server ends its watches");
}

#[tokio::test]
async fn a_selection_is_a_world_of_its_own() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &map("a", json!({"in": "yes"}))).await.expect(201);
    cluster.post(CONFIG_MAPS, &map("b", json!({"in": "no"}))).await.expect(201);
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=in%3Dyes")).await;
    assert_eq!(lines.next_brief().await, "ADDED a");
    let relabel = async |name: &str, value: Value| {
        cluster
            .patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &json!({"metadata": {"labels": {"in": value}}}))
            .await
            .version()
    };
    let entered = relabel("b", json!("yes")).await;
    let event = lines.next().await;
    assert_eq!((brief(&event).as_str(), version(&event["object"])), ("ADDED b", entered));
    let left = relabel("b", json!("no")).await;
    let event = lines.next().await;
    assert_eq!((brief(&event).as_str(), version(&event["object"])), ("DELETED b", left));
    assert_eq!(event["object"]["metadata"]["labels"]["in"], "yes", "as it was when it was last in the selection");
    touch(&cluster, "b", 1).await;
    cluster.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    touch(&cluster, "a", 1).await;
    assert_eq!(lines.next_brief().await, "MODIFIED a", "what is outside is not heard of");
}

#[tokio::test]
async fn field_selectors_follow_values() {
    let cluster = Cluster::with_widgets().await;
    let mut pods = cluster.watch(&format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3Dn1")).await;
    let mut widgets = cluster.watch(&format!("{WIDGETS}?watch=true&fieldSelector=spec.color%3Dblue")).await;
    cluster.post(PODS, &pod("p")).await.expect(201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    cluster.post(&format!("{PODS}/p/binding"), &binding).await.expect(201);
    assert_eq!(pods.next_brief().await, "ADDED p");
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    for (color, expect) in [("blue", "ADDED w"), ("green", "DELETED w"), ("blue", "ADDED w")] {
        cluster.patch(&format!("{WIDGETS}/w"), MERGE, &json!({"spec": {"color": color}})).await.expect(200);
        assert_eq!(widgets.next_brief().await, expect);
    }
}

#[tokio::test]
async fn a_deletion_has_a_version_of_its_own() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.version();
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={made}")).await;
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    let event = lines.next().await;
    assert_eq!((brief(&event).as_str(), version(&event["object"])), ("DELETED a", cluster.revision()));
    assert_eq!(event["object"]["data"]["k"], "v");
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(lines.next_brief().await, "ADDED a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_sees_the_same_order() {
    let cluster = std::sync::Arc::new(Cluster::new().await);
    let begin = cluster.revision();
    let mut watchers = Vec::new();
    for query in ["", "&labelSelector=all", "&fieldSelector=metadata.name!%3Dnobody", "&timeoutSeconds=60"] {
        watchers.push(cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={begin}{query}")).await);
    }
    let writing = (0..4).map(|writer| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            for at in 0..25 {
                cluster.post(CONFIG_MAPS, &map(&format!("m{writer}-{at}"), json!({"all": ""}))).await.expect(201);
            }
        })
    });
    for writer in writing.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let mut orders = Vec::new();
    for lines in &mut watchers {
        let mut order = Vec::new();
        for _ in 0..100 {
            let event = lines.next().await;
            order.push((version(&event["object"]), brief(&event)));
        }
        orders.push(order);
    }
    assert!(orders[0].is_sorted_by(|a, b| a.0 < b.0));
    for order in &orders[1..] {
        assert_eq!(order, &orders[0]);
    }
}

#[tokio::test]
async fn watches_of_tables() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    let mut lines = cluster.watch_as(&format!("{WIDGETS}?watch=true"), AS_TABLE).await;
    let first = lines.next().await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    let headings = first["object"]["columnDefinitions"].as_array().unwrap();
    assert_eq!(headings.len(), 4, "the first event has the columns");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert_eq!(first["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    cluster.post(WIDGETS, &widget("b")).await.expect(201);
    let second = lines.next().await;
    assert!(second["object"]["columnDefinitions"].as_array().is_none_or(Vec::is_empty), "later ones leave them out");
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    cluster.delete(&format!("{WIDGETS}/a")).await.expect(200);
    let gone = lines.next().await;
    assert_eq!((&gone["type"], &gone["object"]["rows"][0]["cells"][0]), (&json!("DELETED"), &json!("a")));
}

#[tokio::test]
async fn watches_of_metadata() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = cluster.watch_as(&format!("{CONFIG_MAPS}?{query}"), AS_METADATA).await;
    for expect in ["ADDED a", "BOOKMARK "] {
        let event = lines.next().await;
        assert_eq!(brief(&event), expect);
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(event["object"]["apiVersion"], "meta.k8s.io/v1");
        assert!(event["object"].get("data").is_none());
    }
}

#[tokio::test]
async fn watches_of_one_object_and_of_all_namespaces() {
    let cluster = Cluster::new().await;
    cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let mut one = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Da")).await;
    let mut all = cluster.watch("/api/v1/configmaps?watch=true").await;
    for (namespace, name) in [("default", "ab"), ("team", "a"), ("default", "a")] {
        cluster.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &config_map(name)).await.expect(201);
    }
    let event = one.next().await;
    assert_eq!((brief(&event).as_str(), &event["object"]["metadata"]["namespace"]), ("ADDED a", &json!("default")));
    assert_eq!(all.next_briefs(3).await, ["ADDED ab", "ADDED a", "ADDED a"]);
}

/// A watch that nobody reads delays no other, and loses no event that is still in the history.
#[tokio::test]
async fn a_watch_that_nobody_reads() {
    let cluster = Cluster::new().await;
    let mut stalled = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", cluster.revision())).await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for value in 0..1_000 {
        touch(&cluster, "a", value).await;
    }
    assert_eq!(stalled.next_brief().await, "ADDED a");
    for value in 0..1_000 {
        assert_eq!(stalled.next().await["object"]["data"]["k"], value.to_string());
    }
}

/// A watch ends when the definition of its kind changes; the next request shows the new kind, or 404.
#[tokio::test]
async fn watches_end_when_their_kind_is_another() {
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    let other = [("widget", "gadget"), ("Widget", "Gadget"), ("wg", "gg")];
    let other = other.iter().fold(widgets().to_string(), |text, (from, to)| text.replace(from, to));
    let other: Value = serde_json::from_str(&other).unwrap();
    let definition = format!("{CRDS}/widgets.example.com");
    let version = "/spec/versions/0";
    for (patch, ends, code) in [
        (json!([]), false, 200),
        (json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]), false, 200),
        (json!([{"op": "replace", "path": "/spec/names/shortNames", "value": ["w"]}]), true, 200),
        (json!([{"op": "remove", "path": format!("{version}/selectableFields")}]), true, 200),
        (json!([{"op": "replace", "path": format!("{version}/served"), "value": false}]), true, 404),
    ] {
        let cluster = Cluster::with_widgets().await;
        cluster.post(CRDS, &other).await.expect(201);
        let watch = async |path: &str| cluster.watch(&format!("{path}?watch=true")).await;
        let (mut lines, mut of_gadgets, mut of_maps) =
            (watch(WIDGETS).await, watch(&gadgets).await, watch(CONFIG_MAPS).await);
        cluster.post(WIDGETS, &widget("a")).await.expect(201);
        cluster.patch(&definition, JSON_PATCH, &patch).await.expect(200);
        assert_eq!(lines.next_brief().await, "ADDED a", "{patch}");
        if ends {
            lines.end().await;
        } else {
            cluster.post(WIDGETS, &widget("b")).await.expect(201);
            assert_eq!(lines.next_brief().await, "ADDED b", "{patch}");
        }
        assert_eq!(cluster.get(WIDGETS).await.code, code, "{patch}");
        // Watches of other kinds go on.
        let mut gadget = widget("g");
        gadget["kind"] = "Gadget".into();
        cluster.post(&gadgets, &gadget).await.expect(201);
        cluster.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
        assert_eq!((of_gadgets.next_brief().await, of_maps.next_brief().await), ("ADDED g".into(), "ADDED m".into()));
    }
}

/// However late the client reads, it sees every change of the objects, and none of those of another definition of the same
/// name.
#[tokio::test]
async fn watches_end_with_their_kind() {
    let cluster = Cluster::with_widgets().await;
    // More changes than are read at a time.
    let count = 300;
    for at in 0..count {
        cluster.post(WIDGETS, &widget(&format!("w{at:03}"))).await.expect(201);
    }
    let mut waiting = cluster.watch(&format!("{WIDGETS}?watch=true&resourceVersion={}", cluster.revision())).await;
    let mut late = cluster.watch(&format!("{WIDGETS}?watch=true")).await;
    let mut selecting = cluster.watch(&format!("{WIDGETS}?watch=true&fieldSelector=metadata.name%3Dw007")).await;
    assert_eq!(selecting.next_brief().await, "ADDED w007");
    let definition = format!("{CRDS}/widgets.example.com");
    let ends = async {
        for _ in 0..count {
            assert!(waiting.next_brief().await.starts_with("DELETED w"));
        }
        waiting.end().await;
        assert_eq!(cluster.get(&format!("{WIDGETS}?watch=true")).await.code, 404);
    };
    tokio::join!(ends, async { cluster.delete(&definition).await.expect(200) });

    cluster.post(CRDS, &widgets()).await.expect(201);
    cluster.post(WIDGETS, &widget("w007")).await.expect(201);
    assert_eq!(selecting.next_brief().await, "DELETED w007");
    selecting.end().await;
    for kind in ["ADDED", "DELETED"] {
        let mut told = late.next_briefs(count).await;
        told.sort_unstable();
        assert_eq!(told, (0..count).map(|at| format!("{kind} w{at:03}")).collect::<Vec<_>>());
    }
    late.end().await;
}

#[tokio::test]
async fn a_watch_over_a_websocket_sends_one_event_in_each_message() {
    let cluster = Cluster::new().await;
    for name in ["a", "b", "c"] {
        cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
    }
    let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    // The requested subprotocols, the code, and the subprotocol in the answer.
    for (asked, code, told) in [
        (&[][..], 101, ""),
        (&[("sec-websocket-protocol", "base64.binary.k8s.io")], 101, "base64.binary.k8s.io"),
        (&[("sec-websocket-protocol", "a, b")], 400, ""),
        (&[("sec-websocket-protocol", "a"), ("sec-websocket-protocol", "b")], 400, ""),
    ] {
        let mut request = http::Request::get(&path);
        for (name, value) in upgrade.iter().chain(asked) {
            request = request.header(*name, *value);
        }
        let response = cluster.send(request.body(http_body_util::Full::new(bytes::Bytes::new())).unwrap()).await;
        assert_eq!(response.status().as_u16(), code, "{asked:?}");
        let given = response.headers().get("sec-websocket-protocol").map_or("", |given| given.to_str().unwrap());
        assert_eq!(given, told);
        if code != 101 {
            continue;
        }
        let mut body = Box::pin(response.into_body());
        for name in ["a", "b", "c"] {
            let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
            let message = frame.into_data().unwrap();
            // A slice of a larger buffer would hold the whole buffer for a client that does not read.
            assert!(message.is_unique(), "{name}");
            let event: Value = serde_json::from_slice(&message).unwrap();
            assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        }
    }
    // Without `watch` it is a list, and with another upgrade a watch as ever.
    let list = cluster.ask("GET", CONFIG_MAPS, &upgrade, "").await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
    let other = [("connection", "Upgrade"), ("upgrade", "h2c")];
    assert_eq!(cluster.ask("GET", &path, &other, "").await.code, 200);
}

/// Paths that ask for a watch themselves, as clients did before there was a parameter.
#[tokio::test]
async fn old_paths_of_watches() {
    let cluster = Cluster::with_widgets().await;
    for name in ["a", "b"] {
        cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
    }
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    for (path, expect) in [
        ("/api/v1/watch/namespaces/default/configmaps", "ADDED a"),
        ("/api/v1/watch/configmaps?fieldSelector=metadata.name=b", "ADDED b"),
        ("/api/v1/watch/namespaces/default/configmaps/b", "ADDED b"),
        ("/api/v1/watch/namespaces/default", "ADDED default"),
        ("/apis/example.com/v1/watch/namespaces/default/widgets/w", "ADDED w"),
    ] {
        assert_eq!(cluster.watch(path).await.next_brief().await, expect, "{path}");
    }
    let other = "/api/v1/watch/namespaces/default/configmaps/b?fieldSelector=metadata.name%3Da";
    assert_eq!(
        cluster.get(other).await.fails(400, "BadRequest"),
        "fieldSelector metadata.name doesn't match requested name"
    );
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0";
    assert_eq!(
        cluster.get(&format!("/api/v1/watch/configmaps?{initial}")).await.fails(422, "Invalid"),
        "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    );
    let asked_twice = cluster.watch(&format!("/api/v1/watch/configmaps?watch=true&{initial}")).await.next_brief().await;
    assert_eq!(asked_twice, "ADDED a");
    cluster.post("/api/v1/watch/namespaces/default/configmaps", &config_map("c")).await.fails(405, "MethodNotAllowed");
    assert_eq!(cluster.get("/api/v1/watch/namespaces/default/configmaps/b/status").await.code, 404);
}
