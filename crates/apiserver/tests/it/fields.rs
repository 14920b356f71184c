//! Unknown fields, duplicate fields, and dry runs.

use serde_json::{Value, json};

use crate::cluster::{
    APPLY, CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, WIDGETS, config_map, deployment, pod,
    widget,
};

#[tokio::test]
async fn strictness() {
    let cluster = Cluster::with_widgets().await;
    let map = r#"{"metadata":{"name":"NAME"},"data":{"k":"1","k":"2"},"date":{},"metadatas":1}"#;
    let pod =
        r#"{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i","imagee":"x"}],"nodename":"n"}}"#;
    let widget = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"NAME","color":"x"},
        "spec":{"size":1,"size":2,"weight":3,"free":{"any":{"thing":1}}},"extra":1}"#;
    for (path, body, kind, found) in [
        (
            CONFIG_MAPS,
            map,
            "ConfigMap",
            vec!["duplicate field \"data.k\"", "unknown field \"date\"", "unknown field \"metadatas\""],
        ),
        (PODS, pod, "Pod", vec!["unknown field \"spec.containers[0].imagee\"", "unknown field \"spec.nodename\""]),
        (
            WIDGETS,
            widget,
            "Widget",
            vec![
                "duplicate field \"spec.size\"",
                "unknown field \"extra\"",
                "unknown field \"metadata.color\"",
                "unknown field \"spec.weight\"",
            ],
        ),
    ] {
        let ask = async |name: &str, query: &str| {
            let body = body.replace("NAME", name);
            cluster.ask("POST", &format!("{path}{query}"), &[("content-type", "application/json")], body).await
        };
        let strict = ask("strict", "?fieldValidation=Strict").await;
        let message = strict.fails(400, "BadRequest");
        let prefix = format!("{kind} in version \"v1\" cannot be handled as a {kind}: strict decoding error: ");
        let mut told: Vec<&str> =
            message.strip_prefix(&prefix).unwrap_or_else(|| panic!("{message}")).split(", ").collect();
        told.sort_unstable();
        assert_eq!(told, found, "{path}");
        cluster.get(&format!("{path}/strict")).await.fails(404, "NotFound");

        for query in ["", "?fieldValidation=Warn"] {
            let warned = ask(&format!("warn{}", query.len()), query).await;
            warned.expect(201);
            let mut told = warned.warnings();
            told.sort_unstable();
            let expect: Vec<String> = found.iter().map(|text| format!("\"{}\"", text.replace('"', "\\\""))).collect();
            assert_eq!(told, expect, "{path}{query}");
        }
        let ignored = ask("ignore", "?fieldValidation=Ignore").await;
        let made = ignored.expect(201);
        assert!(ignored.warnings().is_empty(), "{path}");
        for unknown in ["date", "metadatas", "extra"] {
            assert_eq!(made.get(unknown), None, "{path}");
        }
        match path {
            CONFIG_MAPS => assert_eq!(made["data"]["k"], "2", "the last one counts"),
            WIDGETS => assert_eq!(made["spec"], json!({"size": 2, "color": "red", "free": {"any": {"thing": 1}}})),
            _ => {}
        }
    }
    let wrong = cluster.post(&format!("{CONFIG_MAPS}?fieldValidation=strict"), &config_map("x")).await;
    assert_eq!(
        wrong.fails(422, "Invalid"),
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \
         \"\", \"Ignore\", \"Strict\", \"Warn\""
    );
}

#[tokio::test]
async fn strictness_of_what_is_acted_on_instead_of_stored() {
    let cluster = Cluster::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "a"}})).await.expect(201);
    for name in ["bound", "oldest", "evicted"] {
        cluster.post(PODS, &pod(name)).await.expect(201);
    }
    let binding = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"target":{{"kind":"Node","name":"m","name":"n","zone":"z"}},"zzz":1}}"#
        )
    };
    let eviction = r#"{"metadata":{"name":"evicted","name":"evicted","zone":"z"},"deleteOptions":{"grace":1}}"#;
    let token = r#"{"spec":{"audiences":["a"],"audiences":["b"],"seconds":5}}"#;
    for (path, body, kind, found) in [
        (
            format!("{PODS}/bound/binding"),
            binding("bound"),
            "Binding",
            vec!["duplicate field \"target.name\"", "unknown field \"target.zone\"", "unknown field \"zzz\""],
        ),
        (
            "/api/v1/namespaces/default/bindings".to_owned(),
            binding("oldest"),
            "Binding",
            vec!["duplicate field \"target.name\"", "unknown field \"target.zone\"", "unknown field \"zzz\""],
        ),
        (
            format!("{PODS}/evicted/eviction"),
            eviction.to_owned(),
            "Eviction",
            vec![
                "duplicate field \"metadata.name\"",
                "unknown field \"deleteOptions.grace\"",
                "unknown field \"metadata.zone\"",
            ],
        ),
        (
            format!("{accounts}/a/token"),
            token.to_owned(),
            "TokenRequest",
            vec!["duplicate field \"spec.audiences\"", "unknown field \"spec.seconds\""],
        ),
    ] {
        let ask = async |query: &str| {
            let headers = [("content-type", "application/json")];
            cluster.ask("POST", &format!("{path}{query}"), &headers, body.clone()).await
        };
        let message = ask("?fieldValidation=Strict").await.fails(400, "BadRequest");
        let prefix = format!("{kind} in version \"v1\" cannot be handled as a {kind}: strict decoding error: ");
        let told = message.strip_prefix(&prefix).unwrap_or_else(|| panic!("{message}"));
        let mut told: Vec<&str> = told.split(", ").collect();
        told.sort_unstable();
        assert_eq!(told, found, "{path}");
        let ignored = ask("?fieldValidation=Ignore&dryRun=All").await;
        ignored.expect(201);
        assert!(ignored.warnings().is_empty(), "{path}");
        let warned = ask("").await;
        warned.expect(201);
        let mut told = warned.warnings();
        told.sort_unstable();
        let expect: Vec<String> = found.iter().map(|text| format!("\"{}\"", text.replace('"', "\\\""))).collect();
        assert_eq!(told, expect, "{path}");
    }
    let bound = cluster.get(&format!("{PODS}/bound")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n", "the last one counts");
}

#[tokio::test]
async fn keys_given_twice_in_yaml() {
    let cluster = Cluster::new().await;
    let yaml = "metadata:\n  name: NAME\ndata:\n  k: \"1\"\n  k: \"2\"\n";
    for (query, code) in
        [("?fieldValidation=Strict", 400), ("?fieldValidation=Warn", 201), ("?fieldValidation=Ignore", 201)]
    {
        let body = yaml.replace("NAME", &format!("a{}", query.len()));
        let answer =
            cluster.ask("POST", &format!("{CONFIG_MAPS}{query}"), &[("content-type", "application/yaml")], body).await;
        assert_eq!(answer.code, code, "{query}: {}", String::from_utf8_lossy(&answer.body));
    }
}

#[tokio::test]
async fn warnings_fit_into_headers() {
    let cluster = Cluster::new().await;
    let mut object = config_map("a");
    for at in 0..2_000 {
        object[format!("unknown-field-{at}")] = at.into();
    }
    object["with \"quotes\" and \\ and \n and é"] = 1.into();
    let answer = cluster.post(CONFIG_MAPS, &object).await;
    answer.expect(201);
    // What is around each text does not count, in kube-apiserver neither.
    let total: usize = answer.headers.get_all("warning").iter().map(|value| value.len() - "299 - \"\"".len()).sum();
    assert!(total > 100 && total <= 4096 + 256, "{total}");
}

#[tokio::test]
async fn types_that_do_not_fit() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in [
        (CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"k": 1}})),
        (CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": []})),
        (CONFIG_MAPS, json!({"metadata": {"name": "a", "labels": {"k": 1}}})),
        (CONFIG_MAPS, json!({"metadata": {"name": 5}})),
        (CONFIG_MAPS, json!({"metadata": "a"})),
        (CONFIG_MAPS, json!({"metadata": {"name": "a"}, "immutable": "yes"})),
        (CONFIG_MAPS, json!({"metadata": {"name": "a"}, "binaryData": {"k": "not base64!"}})),
        (PODS, json!({"metadata": {"name": "a"}, "spec": {"containers": {}}})),
        (DEPLOYMENTS, json!({"metadata": {"name": "a"}, "spec": {"replicas": "two"}})),
        (DEPLOYMENTS, json!({"metadata": {"name": "a"}, "spec": {"replicas": 1.5}})),
        (DEPLOYMENTS, json!({"metadata": {"name": "a"}, "spec": {"replicas": 4294967296_i64}})),
        (DEPLOYMENTS, json!({"metadata": {"name": "a", "creationTimestamp": "yesterday"}})),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "labels": []}})),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": []})),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": 5, "metadata": {"name": "a"}})),
    ] {
        let message = cluster.post(path, &object).await.fails(400, "BadRequest");
        assert!(!message.contains("panic"), "{message}");
    }
    let text = cluster.post(DEPLOYMENTS, &json!({"metadata": {"name": "a"}, "spec": {"replicas": "two"}})).await;
    assert_eq!(
        text.fails(400, "BadRequest"),
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct \
         field DeploymentSpec.spec.replicas of type int32"
    );
    // A custom resource's own fields are a matter of its schema.
    let wrong =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": "big"}});
    assert_eq!(
        cluster.post(WIDGETS, &wrong).await.fails(422, "Invalid"),
        "Widget.example.com \"a\" is invalid: [spec.size: Invalid value: \"string\": spec.size in body must be of type \
         integer: \"string\", .spec.size: Invalid value: 0: .spec.size accessor error: big is of the type string, expected \
         int64]"
    );
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in
        [(CONFIG_MAPS, config_map("a")), (DEPLOYMENTS, deployment("a")), (WIDGETS, widget("a")), (PODS, pod("a"))]
    {
        let before = cluster.revision();
        let dry = cluster.post(&format!("{path}?dryRun=All"), &object).await.expect(201);
        assert!(dry["metadata"]["uid"].is_string() && dry["metadata"]["creationTimestamp"].is_string());
        assert_eq!(cluster.revision(), before);
        cluster.get(&format!("{path}/a")).await.fails(404, "NotFound");

        let made = cluster.post(path, &object).await.expect(201);
        let before = cluster.revision();
        cluster.post(&format!("{path}?dryRun=All"), &object).await.fails(409, "AlreadyExists");
        let one = format!("{path}/a?dryRun=All");
        let labels = json!({"metadata": {"labels": {"x": "y"}}});
        let patched = cluster.patch(&one, MERGE, &labels).await.expect(200);
        assert_eq!(patched["metadata"]["labels"]["x"], "y");
        let ops = json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "z"}}]);
        cluster.patch(&one, JSON_PATCH, &ops).await.expect(200);
        let mut sent = made.clone();
        sent["metadata"]["annotations"] = json!({"x": "y"});
        cluster.put(&one, &sent).await.expect(200);
        let mut config = object.clone();
        config["metadata"]["annotations"] = json!({"a": "b"});
        cluster.patch(&format!("{one}&fieldManager=me"), APPLY, &config).await.expect(200);
        cluster.patch(&format!("{path}/b?dryRun=All&fieldManager=me"), APPLY, &renamed(&object, "b")).await.expect(201);
        cluster.patch(&one, MERGE, &json!({"metadata": {"labels": {"x": "not ok"}}})).await.fails(422, "Invalid");
        cluster.delete(&one).await.expect(200);
        cluster.delete_with(&format!("{path}/a"), &json!({"dryRun": ["All"]})).await.expect(200);
        let going = cluster.delete(&format!("{one}&propagationPolicy=Foreground")).await.expect(200);
        assert!(going["metadata"]["deletionTimestamp"].is_string(), "{path}");
        cluster.delete(&format!("{path}?dryRun=All")).await.expect(200);
        assert_eq!(cluster.revision(), before, "{path}");
        assert_eq!(cluster.get(&format!("{path}/a")).await.expect(200), made);
    }
    let mut definition = crate::cluster::widgets();
    definition["metadata"]["name"] = "gadgets.example.com".into();
    definition["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    cluster.post(&format!("{CRDS}?dryRun=All"), &definition).await.expect(201);
    assert_eq!(cluster.get(&WIDGETS.replace("widgets", "gadgets")).await.code, 404);
    cluster.delete(&format!("{CRDS}/widgets.example.com?dryRun=All")).await.expect(200);
    cluster.get(&format!("{WIDGETS}/a")).await.expect(200);
    cluster.post(WIDGETS, &widget("still")).await.expect(201);
}

fn renamed(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    object
}
