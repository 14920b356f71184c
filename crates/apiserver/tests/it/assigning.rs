//! Values that only the server can give: addresses, ports, selectors, QoS classes.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::cluster::{APPLY, Cluster, MERGE, PODS, pod};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

#[tokio::test]
async fn no_address_and_no_port_is_given_twice() {
    let cluster = Cluster::new().await;
    // All requests get the same random number, at the same time.
    cluster.world.load(std::iter::repeat_n(7, 1000));
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let asked = (0..40).map(|at| {
        let (cluster, spec) = (&cluster, spec.clone());
        async move { cluster.post(SERVICES, &service(&format!("s{at}"), spec)).await.expect(201) }
    });
    let made = join_all(asked).await;
    let addresses: HashSet<String> = made.iter().map(|service| text(&service["spec"]["clusterIP"])).collect();
    let ports: HashSet<u64> =
        made.iter().map(|service| service["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).collect();
    assert_eq!((addresses.len(), ports.len()), (40, 40));
    // An address that became free can be allocated again.
    let first = text(&made[0]["spec"]["clusterIP"]);
    let wanted = service("wanted", json!({"clusterIP": first, "ports": [{"port": 80}]}));
    let refused = cluster.post(SERVICES, &wanted).await;
    assert_eq!(
        refused.fails(422, "Invalid"),
        format!(
            "Service \"wanted\" is invalid: spec.clusterIPs: Invalid value: [\"{first}\"]: \
             failed to allocate IP {first}: provided IP is already allocated"
        )
    );
    cluster.delete(&format!("{SERVICES}/s0")).await.expect(200);
    assert_eq!(cluster.post(SERVICES, &wanted).await.expect(201)["spec"]["clusterIPs"], json!([first]));
}

#[tokio::test]
async fn an_ip_address_comes_and_goes_with_its_service() {
    const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
    let cluster = Cluster::new().await;
    let plain = |name: &str, address: &str| service(name, json!({"clusterIP": address, "ports": [{"port": 80}]}));
    let made = cluster.post(SERVICES, &plain("a", "10.96.3.3")).await.expect(201);
    let object = cluster.get(&format!("{ADDRESSES}/10.96.3.3")).await.expect(200);
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    assert_eq!(object["spec"]["parentRef"], parent);
    assert_eq!(object["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"], "ipallocator.k8s.io");
    // Both are written in one commit.
    assert_eq!(object["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    // One that somebody else has created takes its address, and stays when a service goes.
    let other = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": "10.96.3.4"},
        "spec": {"parentRef": {"resource": "widgets", "name": "w"}},
    });
    cluster.post(ADDRESSES, &other).await.expect(201);
    let refused = cluster.post(SERVICES, &plain("b", "10.96.3.4")).await;
    assert!(refused.fails(422, "Invalid").ends_with("provided IP is already allocated"));
    // A service without an address has no object; one that loses its address loses the object, too.
    cluster.post(SERVICES, &plain("headless", "None")).await.expect(201);
    let gone =
        json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null}});
    cluster.patch(&format!("{SERVICES}/a"), MERGE, &gone).await.expect(200);
    cluster.get(&format!("{ADDRESSES}/10.96.3.3")).await.fails(404, "NotFound");
    cluster.post(SERVICES, &plain("c", "10.96.3.3")).await.expect(201);
    cluster.delete(&format!("{SERVICES}/c")).await.expect(200);
    cluster.get(&format!("{ADDRESSES}/10.96.3.3")).await.fails(404, "NotFound");
    let left = cluster.get(ADDRESSES).await.expect(200);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
}

#[tokio::test]
async fn a_service_keeps_what_it_was_given() {
    let cluster = Cluster::new().await;
    let spec = json!({"selector": {"a": "b"}, "ports": [{"port": 80}]});
    let path = format!("{SERVICES}/a");
    let made = cluster.post(&format!("{SERVICES}?fieldManager=me"), &service("a", spec.clone())).await.expect(201);
    let address = text(&made["spec"]["clusterIP"]);
    let owned = made["metadata"]["managedFields"].to_string();
    assert!(owned.contains("f:internalTrafficPolicy") && !owned.contains("f:clusterIP"), "{owned}");
    assert_eq!(
        made["spec"],
        json!({
            "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        })
    );
    let replaced = cluster.put(&format!("{path}?fieldManager=me"), &service("a", spec)).await;
    assert_eq!(replaced.expect(200), made);
    let wider = cluster.patch(&path, MERGE, &json!({"spec": {"type": "NodePort"}})).await.expect(200);
    let port = wider["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30000..32768).contains(&port));
    assert_eq!(wider["spec"]["clusterIP"], address.as_str());
    let back = cluster.patch(&path, MERGE, &json!({"spec": {"type": "ClusterIP"}})).await.expect(200);
    assert_eq!(back["spec"], made["spec"]);
    let moved = cluster.patch(&path, MERGE, &json!({"spec": {"clusterIP": "10.96.9.9"}})).await;
    assert!(moved.fails(422, "Invalid").ends_with("may not change once set"));

    let applied = service("b", json!({"clusterIP": "None", "selector": {"a": "b"}}));
    let applied = cluster.patch(&format!("{SERVICES}/b?fieldManager=me"), APPLY, &applied).await.expect(201);
    assert_eq!(applied["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test]
async fn a_dry_run_takes_no_address() {
    let cluster = Cluster::new().await;
    let wanted = service("a", json!({"clusterIP": "10.96.5.5", "ports": [{"port": 80}]}));
    for _ in 0..2 {
        let dry = cluster.post(&format!("{SERVICES}?dryRun=All"), &wanted).await;
        assert_eq!(dry.expect(201)["spec"]["clusterIP"], "10.96.5.5");
    }
    cluster.post(SERVICES, &wanted).await.expect(201);
}

#[tokio::test]
async fn a_job_gets_its_selector_and_keeps_it() {
    let cluster = Cluster::new().await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template},
    });
    let made = cluster.post(&format!("{JOBS}?fieldManager=me"), &job).await.expect(201);
    let uid = text(&made["metadata"]["uid"]);
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a", "controller-uid": uid, "job-name": "a",
    });
    assert_eq!((&made["spec"]["template"]["metadata"]["labels"], &made["metadata"]["labels"]), (&labels, &labels));
    assert!(!made["metadata"]["managedFields"].to_string().contains("f:selector"));
    let path = format!("{JOBS}/a");
    let refused = cluster.patch(&path, MERGE, &json!({"spec": {"selector": null}})).await;
    assert!(refused.fails(422, "Invalid").contains("spec.selector: Invalid value"));

    let path = format!("{JOBS}/b?fieldManager=me");
    let mut other = job.clone();
    other["metadata"]["name"] = "b".into();
    let applied = cluster.patch(&path, APPLY, &other).await.expect(201);
    assert_eq!(cluster.patch(&path, APPLY, &other).await.expect(200), applied);
}

#[tokio::test]
async fn a_pod_has_a_class_and_bears_nodes_that_are_gone() {
    let cluster = Cluster::new().await;
    let made = cluster.post(PODS, &pod("a")).await.expect(201);
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 2);
    let path = format!("{PODS}/a");
    let status = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
    let running = cluster.put(&format!("{path}/status"), &status).await.expect(200);
    assert_eq!(running["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
    let same = cluster.put(&path, &pod("a")).await;
    assert_eq!(same.expect(200)["metadata"]["resourceVersion"], running["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn pods_and_their_addresses() {
    let cluster = Cluster::new().await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let made = cluster.post(PODS, &gated).await.expect(201);
    let condition = &made["status"]["conditions"][0];
    let shown = ["type", "status", "reason", "message"].map(|field| condition[field].as_str().unwrap());
    let message = "Scheduling is blocked due to non-empty scheduling gates";
    assert_eq!(shown, ["PodScheduled", "False", "SchedulingGated", message]);
    let mut whole = pod("whole");
    whole["spec"]["resources"] = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let made = cluster.post(PODS, &whole).await.expect(201);
    assert_eq!(made["spec"]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(made["status"]["qosClass"], "Guaranteed");
    let status = format!("{PODS}/whole/status");
    for (patch, expect) in [
        (json!({"podIP": "10.0.0.1"}), ("10.0.0.1", json!([{"ip": "10.0.0.1"}]))),
        (json!({"podIP": "10.0.0.2"}), ("10.0.0.2", json!([{"ip": "10.0.0.2"}]))),
        (json!({"podIP": null, "podIPs": [{"ip": "10.0.0.3"}]}), ("10.0.0.3", json!([{"ip": "10.0.0.3"}]))),
    ] {
        let changed = cluster.patch(&status, MERGE, &json!({"status": patch})).await.expect(200);
        assert_eq!((changed["status"]["podIP"].as_str().unwrap(), changed["status"]["podIPs"].clone()), expect);
    }
    cluster.patch(&status, MERGE, &json!({"status": {"podIP": "bogus"}})).await.fails(422, "Invalid");
}

#[tokio::test]
async fn addresses_that_a_service_cannot_have() {
    let cluster = Cluster::new().await;
    let named =
        service("a", json!({"type": "ExternalName", "externalName": "x.example.com", "clusterIP": "10.96.0.9"}));
    let message = cluster.post(SERVICES, &named).await.fails(422, "Invalid");
    assert!(message.contains("spec.clusterIPs: Forbidden: may not be set for ExternalName services"), "{message}");
    let local = |port: u16| json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port, "ports": [{"port": 80}]});
    let message = cluster.post(SERVICES, &service("b", local(80))).await.fails(500, "InternalError");
    assert!(
        message.contains("failed to allocate requested HealthCheck NodePort 80: provided port is not in"),
        "{message}"
    );
    cluster.post(SERVICES, &service("c", local(30_500))).await.expect(201);
    let message = cluster.post(SERVICES, &service("d", local(30_500))).await.fails(500, "InternalError");
    assert!(message.ends_with("NodePort 30500: provided port is already allocated"), "{message}");
}
