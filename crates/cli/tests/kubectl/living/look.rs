//! What a person sees of what lives: descriptions, logs, endpoints, and that pods are simulated.

use super::deployment;
use crate::cluster::Cluster;

#[test]
fn all_of_it_can_be_looked_at() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("wait --for=create sa/default --timeout=60s").succeeds();
    let service = "---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 8080, targetPort: 80}]}
";
    cluster.create(&(deployment("web", 2, "") + service));
    cluster.rolled_out("deploy/web");
    cluster.until("get events", |said| said.matches("Started container main").count() == 2);

    cluster.kubectl("describe deploy web").mentions(&[
        "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable",
        "Available True MinimumReplicasAvailable",
        "Progressing True NewReplicaSetAvailable",
        "deployment-controller Scaled up replica set web-",
    ]);
    cluster.kubectl("describe pod -l app=web").mentions(&[
        "Node: konverge-node-1/",
        "Status: Running",
        "Controlled By: ReplicaSet/web-",
        "Container ID: konverge-sim://",
        "Ready True",
        "konverge-simulator Successfully assigned default/web-",
        "konverge-simulator Started container main",
    ]);
    cluster.kubectl("describe node konverge-node-1").mentions(&[
        "konverge.dev/simulated=true",
        "OS Image: Konverge simulator",
        "Non-terminated Pods: (2 in total)",
        "cpu 2 (3%) 0 (0%)",
    ]);
    let (said, aside) = cluster.kubectl("logs deploy/web").says(0);
    assert!(said.contains("is simulated: none of its containers runs"), "{said}");
    assert!(aside.starts_with("Found 2 pods, using pod/web-"), "{aside}");

    let ready = |said: &str| said.lines().filter(|line| *line == "true").count();
    let slices = "get endpointslices -l kubernetes.io/service-name=web";
    let conditions = r#"-o jsonpath='{range .items[*].endpoints[*]}{.conditions.ready}{"\n"}{end}'"#;
    cluster.until(&format!("{slices} {conditions}"), |said| ready(said) == 2);
    cluster.kubectl(slices).prints("NAME ADDRESSTYPE PORTS ENDPOINTS AGE\nweb-* IPv4 80 10.*,10.* *s");
    cluster.kubectl("describe service web").mentions(&["TargetPort: 80/TCP", "Endpoints: 10."]);
    cluster.kubectl("scale deploy web --replicas=0").succeeds();
    cluster.until(&format!("{slices} {conditions}"), |said| ready(said) == 0);
}

#[test]
fn the_operator_that_comes_with_it() {
    let Some(cluster) = Cluster::develop(&[]) else { return };
    cluster.create(
        "---
apiVersion: cloudnative.elide.dev/v1
kind: Application
metadata: {name: my-app}
spec: {replicas: 3, image: 'nginx:latest', strategy: RollingUpdate}
",
    );
    cluster
        .kubectl("wait --for=condition=Ready application/my-app --timeout=60s")
        .prints("application.cloudnative.elide.dev/my-app condition met");
    cluster.kubectl("wait --for=jsonpath={.status.readyReplicas}=3 application/my-app --timeout=60s").succeeds();
    // Somebody else's hand is taken back.
    cluster.kubectl("scale deploy my-app --replicas=1").succeeds();
    cluster.kubectl("wait --for=jsonpath={.spec.replicas}=3 deploy/my-app --timeout=60s").succeeds();
    cluster.kubectl("delete application my-app --timeout=60s").succeeds();
    cluster.until("get deploy,rs,pods -o name", str::is_empty);
}

#[test]
fn pods_know_the_server_by_its_ca() {
    let Some(cluster) = Cluster::develop(&["--operator", "none", "--bind", "0.0.0.0"]) else { return };
    cluster.kubectl("wait --for=create cm/kube-root-ca.crt -n kube-system --timeout=60s").succeeds();
    let published = cluster.object("cm kube-root-ca.crt -n kube-system")["data"]["ca.crt"].clone();
    let ours = cluster.kubectl("config view --raw -o json").json();
    let ours = ours["clusters"][0]["cluster"]["certificate-authority-data"].as_str().expect("a CA").to_owned();
    let decoded = cluster
        .kubectl("create -f - --dry-run=client -o 'go-template={{index .data \"ca\" | base64decode}}'")
        .input(&format!("{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"ca\":\"{ours}\"}}}}"))
        .text();
    assert_eq!(published, decoded);
}
