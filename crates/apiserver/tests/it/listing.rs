//! Lists: which version they show, which combinations of parameters are refused, pages, continue tokens that are too old.

use serde_json::{Value, json};

use crate::cluster::{Answer, CONFIG_MAPS, Cluster, PODS, WIDGETS, config_map, names, pod, version, widget};

async fn with_maps(count: usize) -> Cluster {
    let cluster = Cluster::new().await;
    for at in 0..count {
        cluster.post(CONFIG_MAPS, &config_map(&format!("m{at}"))).await.expect(201);
    }
    cluster
}

async fn list(cluster: &Cluster, query: &str) -> Answer {
    cluster.get(&format!("{CONFIG_MAPS}?{query}")).await
}

fn token(list: &Value) -> String {
    list["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

/// A token as part of a query.
fn escaped(token: &str) -> String {
    token.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn which_version_a_list_shows() {
    let cluster = with_maps(3).await;
    let newest = cluster.revision();
    let second = newest - 1;
    cluster.post(PODS, &pod("elsewhere")).await.expect(201);
    let now = cluster.revision();
    // The query, the revision the answer must tell, and how many objects it shows.
    for (query, revision, count) in [
        (String::new(), now, 3),
        ("resourceVersion=".into(), now, 3),
        ("resourceVersion=0".into(), now, 3),
        (format!("resourceVersion={second}"), now, 3),
        (format!("resourceVersion={now}"), now, 3),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".into(), now, 3),
        (format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"), now, 3),
        (format!("resourceVersion={second}&resourceVersionMatch=Exact"), second, 2),
        (format!("resourceVersion={now}&resourceVersionMatch=Exact"), now, 3),
        // Without a rule, a version and a limit together mean exactly that version.
        (format!("resourceVersion={second}&limit=10"), second, 2),
        (format!("resourceVersion={second}&limit=0"), now, 3),
        (format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=10"), now, 3),
        ("resourceVersion=0&limit=10".into(), now, 3),
        ("limit=-1".into(), now, 3),
        // From its cache, kube-apiserver gives no pages.
        ("resourceVersion=0&limit=1".into(), now, 3),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1".into(), now, 3),
    ] {
        let answer = list(&cluster, &query).await.expect(200);
        assert_eq!((version(&answer), names(&answer).len()), (revision, count), "{query}");
        assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    }
}

#[tokio::test]
async fn combinations_that_make_no_sense() {
    let cluster = with_maps(3).await;
    let token = token(&list(&cluster, "limit=1").await.expect(200));
    let next = format!("continue={}", escaped(&token));
    let options = "ListOptions.meta.k8s.io \"\" is invalid: ";
    for (query, code, message) in [
        (
            "resourceVersionMatch=Exact".to_owned(),
            422,
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is \
                 provided"
            ),
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0".into(),
            422,
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
                 resourceVersion \"0\""
            ),
        ),
        (
            "resourceVersionMatch=Newest&resourceVersion=1".into(),
            422,
            format!(
                "{options}resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \
                 \"NotOlderThan\", \"\""
            ),
        ),
        (
            format!("{next}&resourceVersion=1&resourceVersionMatch=Exact"),
            422,
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
            ),
        ),
        (
            format!("{next}&resourceVersionMatch=Exact"),
            422,
            format!(
                "{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is \
                 provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]"
            ),
        ),
        (
            "sendInitialEvents=true".into(),
            422,
            format!("{options}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            format!("{next}&resourceVersion=1"),
            400,
            "specifying resource version is not allowed when using continue".into(),
        ),
        (
            "resourceVersion=abc".into(),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
             invalid syntax"
                .into(),
        ),
        (
            "resourceVersion=-1".into(),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": \
             invalid syntax"
                .into(),
        ),
        (
            "resourceVersion=99999999999999999999".into(),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"99999999999999999999\": strconv.ParseUint: \
             parsing \"99999999999999999999\": value out of range"
                .into(),
        ),
    ] {
        let reason = if code == 422 { "Invalid" } else { "BadRequest" };
        assert_eq!(list(&cluster, &query).await.fails(code, reason), message, "{query}");
    }
    for query in [
        "limit=abc",
        "continue=abc",
        "continue=%2e%2e%2f",
        "continue=x%2Fm1",
        "labelSelector=a%3D%3D%3Db",
        "fieldSelector=%21",
    ] {
        list(&cluster, query).await.fails(400, "BadRequest");
    }
    let exact_with_token = format!("{next}&resourceVersion=0");
    assert_eq!(names(&list(&cluster, &exact_with_token).await.expect(200)), ["m1", "m2"]);
}

#[tokio::test]
async fn versions_of_the_future() {
    let cluster = with_maps(1).await;
    let next = cluster.revision() + 1;
    for query in [
        format!("resourceVersion={next}"),
        format!("resourceVersion={next}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={next}&resourceVersionMatch=Exact"),
        format!("resourceVersion={next}&limit=5"),
    ] {
        let answer = list(&cluster, &query).await;
        let message = format!("Timeout: Too large resource version: {next}, current: {}", next - 1);
        assert_eq!(answer.fails(504, "Timeout"), message, "{query}");
        assert_eq!(answer.header("retry-after"), "1", "{query}");
    }
    let one = cluster.get(&format!("{CONFIG_MAPS}/m0?resourceVersion={next}")).await;
    one.fails(504, "Timeout");
    cluster.get(&format!("{CONFIG_MAPS}/m0?resourceVersion={}", next - 1)).await.expect(200);
}

#[tokio::test]
async fn pages_show_one_moment() {
    let cluster = with_maps(5).await;
    let first = list(&cluster, "limit=2").await.expect(200);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["m0", "m1"], &json!(3)));
    cluster.delete(&format!("{CONFIG_MAPS}/m2")).await.expect(200);
    cluster.post(CONFIG_MAPS, &config_map("m3a")).await.expect(201);
    let second = list(&cluster, &format!("limit=2&continue={}", escaped(&token(&first)))).await.expect(200);
    assert_eq!((names(&second), &second["metadata"]["remainingItemCount"]), (vec!["m2", "m3"], &json!(1)));
    assert_eq!(version(&second), version(&first));
    let third = list(&cluster, &format!("limit=2&continue={}", escaped(&token(&second)))).await.expect(200);
    assert_eq!((names(&third), token(&third).as_str()), (vec!["m4"], ""));
    assert_eq!(third["metadata"].get("remainingItemCount"), None);
    // Exactly as many as there are leaves nothing to continue with.
    let whole = list(&cluster, "limit=5").await.expect(200);
    assert_eq!(token(&whole), "");
}

#[tokio::test]
async fn pages_of_a_selection() {
    let cluster = Cluster::new().await;
    for at in 0..9 {
        let mut map = config_map(&format!("m{at}"));
        map["metadata"]["labels"] = json!({"third": (at % 3 == 0).to_string()});
        cluster.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let first = list(&cluster, "limit=2&labelSelector=third%3Dtrue").await.expect(200);
    assert_eq!(names(&first), ["m0", "m3"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None, "nobody counted");
    let next = format!("limit=2&labelSelector=third%3Dtrue&continue={}", escaped(&token(&first)));
    let second = list(&cluster, &next).await.expect(200);
    assert_eq!((names(&second), token(&second).as_str()), (vec!["m6"], ""));
}

#[tokio::test]
async fn tokens_that_are_too_old() {
    let cluster = with_maps(4).await;
    let first = list(&cluster, "limit=2").await.expect(200);
    cluster.delete(&format!("{CONFIG_MAPS}/m2")).await.expect(200);
    cluster.post(CONFIG_MAPS, &config_map("m9")).await.expect(201);
    cluster.compact();
    let expired = list(&cluster, &format!("limit=2&continue={}", escaped(&token(&first)))).await;
    assert_eq!(
        expired.fails(410, "Expired"),
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list."
    );
    let fresh = token(&expired.json());
    assert!(!fresh.is_empty());
    let rest = list(&cluster, &format!("limit=1&continue={}", escaped(&fresh))).await.expect(200);
    assert_eq!(names(&rest), ["m3"], "where the first page ended, as it is now");
    let last = list(&cluster, &format!("continue={}", escaped(&token(&rest)))).await.expect(200);
    assert_eq!(names(&last), ["m9"]);

    let exact = list(&cluster, &format!("resourceVersion={}&resourceVersionMatch=Exact", version(&first))).await;
    assert_eq!(exact.fails(410, "Expired"), "The resourceVersion for the provided list is too old.");
    let newer = list(&cluster, &format!("resourceVersion={}", version(&first))).await;
    newer.expect(200);
}

#[tokio::test]
async fn selectors() {
    let cluster = Cluster::with_widgets().await;
    for (name, labels, phase, node) in [
        ("a", json!({"app": "x", "tier": "web"}), "Running", "n1"),
        ("b", json!({"app": "y"}), "Pending", "n1"),
        ("c", json!({"tier": "db"}), "Failed", ""),
    ] {
        let mut object = pod(name);
        object["metadata"]["labels"] = labels;
        if !node.is_empty() {
            object["spec"]["nodeName"] = node.into();
        }
        cluster.post(PODS, &object).await.expect(201);
        let status = json!({"status": {"phase": phase}});
        cluster.patch(&format!("{PODS}/{name}/status"), crate::cluster::MERGE, &status).await.expect(200);
    }
    for (query, expect) in [
        ("labelSelector=app", "a b"),
        ("labelSelector=!app", "c"),
        ("labelSelector=app%3Dx", "a"),
        ("labelSelector=app%3D%3Dx", "a"),
        ("labelSelector=app!%3Dx", "b c"),
        ("labelSelector=app+in+(x,y)", "a b"),
        ("labelSelector=app+notin+(x)", "b c"),
        ("labelSelector=tier+in+(web),app%3Dx", "a"),
        ("labelSelector=app+in+()", ""),
        ("labelSelector=a%20b", "400"),
        ("fieldSelector=metadata.name%3Db", "b"),
        ("fieldSelector=metadata.name!%3Db", "a c"),
        ("fieldSelector=metadata.namespace%3Ddefault", "a b c"),
        ("fieldSelector=metadata.namespace%3Dother", ""),
        ("fieldSelector=status.phase%3DRunning", "a"),
        ("fieldSelector=status.phase!%3DRunning,status.phase!%3DFailed", "b"),
        ("fieldSelector=spec.nodeName%3D", "c"),
        ("fieldSelector=spec.nodeName%3Dn1,metadata.name%3Da", "a"),
        ("fieldSelector=spec.hostNetwork%3Dfalse", "a b c"),
        ("fieldSelector=metadata.name%3Da,metadata.name%3Db", ""),
        ("fieldSelector=metadata.labels%3Dx", "400"),
    ] {
        let answer = cluster.get(&format!("{PODS}?{query}")).await;
        let got = if answer.code == 200 { names(&answer.json()).join(" ") } else { answer.code.to_string() };
        assert_eq!(got, expect, "{query}");
        let everywhere = cluster.get(&format!("/api/v1/pods?{query}")).await;
        let got =
            if everywhere.code == 200 { names(&everywhere.json()).join(" ") } else { everywhere.code.to_string() };
        assert_eq!(got, expect, "everywhere {query}");
    }
    for (name, color) in [("r", "red"), ("g", "green")] {
        let mut object = widget(name);
        object["spec"]["color"] = color.into();
        cluster.post(WIDGETS, &object).await.expect(201);
    }
    let red = cluster.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(names(&red), ["r"]);
    let size = cluster.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await;
    assert_eq!(size.fails(400, "BadRequest"), "field label not supported: spec.size");
}

#[tokio::test]
async fn names_that_begin_alike_are_told_apart() {
    let cluster = Cluster::new().await;
    for name in ["web", "web-1", "web.x"] {
        cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
    }
    let one = list(&cluster, "fieldSelector=metadata.name%3Dweb").await.expect(200);
    assert_eq!(names(&one), ["web"]);
    for namespace in ["team", "team-a"] {
        cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
        cluster.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &config_map(namespace)).await.expect(201);
    }
    assert_eq!(names(&cluster.get("/api/v1/namespaces/team/configmaps").await.expect(200)), ["team"]);
    assert_eq!(cluster.get("/api/v1/configmaps").await.expect(200)["items"].as_array().unwrap().len(), 5);
}
