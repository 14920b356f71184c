//! Media types of requests and answers: JSON and YAML, tables, metadata alone; and the documents that describe the API.

use serde_json::{Value, json};

use crate::cluster::{
    AS_METADATA, AS_METADATA_LIST, AS_TABLE, CONFIG_MAPS, CRDS, Cluster, PODS, PROTOBUF, WIDGETS, config_map, pod,
    widget,
};

#[tokio::test]
async fn what_can_be_accepted() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let one = format!("{CONFIG_MAPS}/a");
    for (path, accept, code, content_type) in [
        (&*one, "", 200, "application/json"),
        (&one, "*/*", 200, "application/json"),
        (&one, "application/json", 200, "application/json"),
        (&one, "application/yaml", 200, "application/yaml"),
        (&one, "application/vnd.kubernetes.protobuf, application/json", 200, PROTOBUF),
        (&one, "text/html, application/yaml;q=0.1", 200, "application/yaml"),
        (&one, "text/html", 406, "application/json"),
        (&one, "application/vnd.kubernetes.protobuf", 200, PROTOBUF),
        (&one, AS_METADATA, 200, "application/json"),
        (&one, AS_METADATA_LIST, 406, "application/json"),
        (CONFIG_MAPS, AS_METADATA, 406, "application/json"),
        (CONFIG_MAPS, AS_METADATA_LIST, 200, "application/json"),
        (CONFIG_MAPS, AS_TABLE, 200, "application/json"),
        (CONFIG_MAPS, "application/yaml", 200, "application/yaml"),
        (CONFIG_MAPS, "application/json;as=Chart;v=v1;g=meta.k8s.io", 406, "application/json"),
        ("/api/v1/namespaces/default/configmaps?watch=true", "application/yaml", 406, "application/yaml"),
        ("/version", "text/html", 406, "application/json"),
    ] {
        let headers: &[(&str, &str)] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
        let answer = cluster.ask("GET", path, headers, "").await;
        assert_eq!((answer.code, answer.header("content-type")), (code, content_type), "{path} {accept}");
        if code == 406 {
            answer.fails(406, "NotAcceptable");
        }
    }
    let refused = cluster.accept(&one, "text/html").await;
    assert_eq!(
        refused.fails(406, "NotAcceptable"),
        "only the following media types are accepted: \
         application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
}

#[tokio::test]
async fn what_can_be_sent() {
    let cluster = Cluster::new().await;
    let json = config_map("NAME").to_string();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NAME\ndata:\n  k: v\n";
    for (at, (content_type, body, code)) in [
        ("application/json", json.as_str(), 201),
        ("application/json; charset=utf-8", &json, 201),
        ("", &json, 201),
        ("application/yaml", yaml, 201),
        ("application/yaml", &json, 201),
        ("application/json", yaml, 400),
        ("text/plain", &json, 415),
        ("application/cbor", &json, 415),
        ("application/merge-patch+json", &json, 415),
        ("garbage", &json, 415),
    ]
    .into_iter()
    .enumerate()
    {
        let headers: &[(&str, &str)] = if content_type.is_empty() { &[] } else { &[("content-type", content_type)] };
        let body = body.replace("NAME", &format!("m{at}"));
        let answer = cluster.ask("POST", CONFIG_MAPS, headers, body).await;
        assert_eq!(answer.code, code, "{content_type}: {}", String::from_utf8_lossy(&answer.body));
        if code == 201 {
            assert_eq!(answer.json()["data"], json!({"k": "v"}));
        } else {
            answer.check_failure();
        }
    }
}

#[tokio::test]
async fn yaml_goes_round() {
    let cluster = Cluster::new().await;
    let data = json!({"a": "two\nlines\n", "b": "yes", "c": "1", "d": " spaces ", "e": "a: b # c", "f": "é\u{1F600}", "g": ""});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    cluster.post(CONFIG_MAPS, &object).await.expect(201);
    let yaml = cluster.accept(&format!("{CONFIG_MAPS}/a"), "application/yaml").await;
    let text = String::from_utf8(yaml.body.to_vec()).unwrap();
    assert!(text.contains("kind: ConfigMap"), "{text}");
    let headers = [("content-type", "application/yaml")];
    let same = cluster.ask("PUT", &format!("{CONFIG_MAPS}/a"), &headers, text).await.expect(200);
    assert_eq!(same["data"], data);
    assert_eq!(same["metadata"]["resourceVersion"], cluster.revision().to_string(), "nothing was changed on the way");
}

#[tokio::test]
async fn tables() {
    let cluster = Cluster::with_widgets().await;
    for name in ["a", "b"] {
        cluster.post(PODS, &pod(name)).await.expect(201);
        cluster.post(WIDGETS, &widget(name)).await.expect(201);
    }
    let headings = |table: &Value| -> Vec<String> {
        table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let pods = cluster.accept(PODS, AS_TABLE).await.expect(200);
    assert_eq!((&pods["kind"], &pods["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(headings(&pods)[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    assert_eq!(pods["rows"].as_array().unwrap().len(), 2);
    assert_eq!(pods["metadata"]["resourceVersion"], cluster.revision().to_string());

    let widgets = cluster.accept(WIDGETS, AS_TABLE).await.expect(200);
    assert_eq!(headings(&widgets), ["Name", "Size", "Color", "Age"]);
    assert_eq!(widgets["columnDefinitions"][2]["priority"], 1);
    assert_eq!(widgets["rows"][0]["cells"].as_array().unwrap()[..3], [json!("a"), json!(1), json!("red")]);
    for (include, expect) in [
        ("", json!("PartialObjectMetadata")),
        ("?includeObject=Metadata", json!("PartialObjectMetadata")),
        ("?includeObject=Object", json!("Widget")),
        ("?includeObject=None", Value::Null),
    ] {
        let table = cluster.accept(&format!("{WIDGETS}{include}"), AS_TABLE).await.expect(200);
        assert_eq!(table["rows"][0]["object"]["kind"], expect, "{include}");
    }
    assert!((400..=422).contains(&cluster.accept(&format!("{WIDGETS}?includeObject=All"), AS_TABLE).await.code));
    let one = cluster.accept(&format!("{WIDGETS}/a"), AS_TABLE).await.expect(200);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let page = cluster.accept(&format!("{WIDGETS}?limit=1"), AS_TABLE).await.expect(200);
    assert!(page["metadata"]["continue"].is_string() && page["metadata"]["remainingItemCount"] == 1);
    let made = cluster.ask("POST", WIDGETS, &[("accept", AS_TABLE)], widget("c").to_string()).await.expect(201);
    assert_eq!(made["kind"], "Table");
}

#[tokio::test]
async fn discovery() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let cluster = Cluster::new().await;
    let groups = cluster.get("/apis").await.expect(200);
    assert_eq!(groups["kind"], "APIGroupList");
    assert_eq!(cluster.get("/api").await.expect(200)["versions"], json!(["v1"]));
    let before = cluster.accept("/apis", AGGREGATED).await;
    assert_eq!(before.header("content-type"), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    assert_eq!(before.header("vary"), "Accept");
    let tag = before.header("etag").to_owned();
    let known =
        async |tag: &str| cluster.ask("GET", "/apis", &[("accept", AGGREGATED), ("if-none-match", tag)], "").await;
    let unchanged = known(&tag).await;
    assert_eq!((unchanged.code, unchanged.body.len(), unchanged.header("etag")), (304, 0, tag.as_str()));

    cluster.post(CRDS, &crate::cluster::widgets()).await.expect(201);
    let after = known(&tag).await;
    assert_eq!(after.code, 200, "a definition changes what there is");
    let items = after.json()["items"].as_array().unwrap().clone();
    let group = items.iter().find(|item| item["metadata"]["name"] == "example.com").expect("the group is there");
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!((&resource["resource"], &resource["scope"]), (&json!("widgets"), &json!("Namespaced")));
    assert_eq!(resource["shortNames"], json!(["wg"]));
    assert_eq!(resource["subresources"].as_array().unwrap().len(), 2);
    assert_eq!(group["versions"][0]["freshness"], "Current");

    let legacy = cluster.get("/apis/example.com/v1").await.expect(200);
    let mut listed: Vec<&str> =
        legacy["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["widgets", "widgets/scale", "widgets/status"]);
    assert_eq!(
        cluster.get("/apis/example.com").await.expect(200)["preferredVersion"]["groupVersion"],
        "example.com/v1"
    );
    cluster.delete(&format!("{CRDS}/widgets.example.com")).await.expect(200);
    assert_eq!(cluster.get("/apis/example.com").await.code, 404);
    assert_eq!(cluster.accept("/apis", AGGREGATED).await.header("etag"), tag, "and without it all is as it was");
}

/// Whatever discovery lists can be used as it says.
#[tokio::test]
async fn discovery_tells_the_truth() {
    let cluster = Cluster::with_widgets().await;
    let mut places = vec!["/api/v1".to_owned()];
    for group in cluster.get("/apis").await.expect(200)["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            places.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut looked_at = 0;
    for place in places {
        for resource in cluster.get(&place).await.expect(200)["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs: Vec<&str> =
                resource["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap()).collect();
            if name.contains('/') {
                continue;
            }
            looked_at += 1;
            if verbs.contains(&"list") {
                let list = cluster.get(&format!("{place}/{name}")).await.expect(200);
                assert_eq!(list["kind"], format!("{}List", resource["kind"].as_str().unwrap()), "{place}/{name}");
                assert!(list["items"].is_array(), "{place}/{name}");
                cluster.accept(&format!("{place}/{name}"), AS_TABLE).await.expect(200);
            }
        }
    }
    assert!(looked_at > 50, "{looked_at}");
}

#[tokio::test]
async fn small_documents() {
    let cluster = Cluster::new().await;
    let version = cluster.get("/version").await.expect(200);
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        let answer = cluster.get(path).await;
        assert_eq!((answer.code, &answer.body[..]), (200, &b"ok"[..]), "{path}");
    }
    let verbose = cluster.get("/readyz?verbose").await;
    assert!(String::from_utf8_lossy(&verbose.body).ends_with("readyz check passed\n"));
    assert!(cluster.get("/").await.expect(200)["paths"].as_array().unwrap().contains(&json!("/api/v1")));
    let index = cluster.get("/openapi/v3").await.expect(200);
    let address = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = cluster.get(&address).await;
    assert_eq!(document.expect(200)["openapi"], "3.0.0");
    assert!(document.header("cache-control").contains("immutable"), "{:?}", document.headers);
    assert!(!document.header("etag").is_empty());
}

#[tokio::test]
async fn answers_carry_what_every_answer_carries() {
    let cluster = Cluster::new().await;
    for path in [CONFIG_MAPS, "/version", "/nowhere", "/api/v1/unicorns"] {
        let answer = cluster.get(path).await;
        assert_eq!(answer.header("audit-id").len(), 36, "{path}");
        assert_eq!(answer.header("cache-control"), "no-cache, private", "{path}");
    }
}
