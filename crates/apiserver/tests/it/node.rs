//! What nodes may do: the authorization mode `Node` with the admission plugin NodeRestriction. The texts are those of kube-apiserver.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use konverge_apiserver::{AdmissionPlugins, AuthorizationMode, Options};

use crate::cluster::{Cluster, ask_as as ask};

mod decisions;

const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ADMIN: &str = "root@system:masters";

/// A server as clusters are run: nodes are asked about first, then roles decide.
async fn cluster(modes: &[AuthorizationMode]) -> Cluster {
    let admission = AdmissionPlugins::default().with(&["NodeRestriction"], &[]).unwrap();
    Cluster::with(|options| Options { authorization: modes.to_vec(), admission, ..options }).await
}

async fn create(cluster: &Cluster, path: &str, object: Value) -> Value {
    let (code, answer) = ask(cluster, ADMIN, "POST", path, &object).await;
    assert_eq!(code, 201, "{path}: {answer}");
    answer
}

/// What a node is answered: the code, and the message of a refusal.
async fn told(cluster: &Cluster, node: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let (code, answer) = ask(cluster, &format!("system:node:{node}@system:nodes"), method, path, body).await;
    (code, answer["message"].as_str().filter(|_| code >= 300).unwrap_or_default().to_owned())
}

fn pod(name: &str, node: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"]["nodeName"] = node.into();
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn a_node_reads_what_its_pods_refer_to() {
    let cluster = cluster(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    for name in ["used", "unused"] {
        create(&cluster, SECRETS, json!({"metadata": {"name": name}})).await;
    }
    let secret = |name: &str| format!("{SECRETS}/{name}");
    let forbidden = |name: &str, node: &str| {
        format!(
            "secrets \"{name}\" is forbidden: User \"system:node:{node}\" cannot get resource \"secrets\" in API group \"\" in \
             the namespace \"default\": no relationship found between node '{node}' and this object"
        )
    };
    let get = async |node: &str, name: &str| told(&cluster, node, "GET", &secret(name), &Value::Null).await;
    assert_eq!(get("one", "used").await, (403, forbidden("used", "one")));
    create(&cluster, PODS, pod("p", "one", json!({"imagePullSecrets": [{"name": "used"}]}))).await;
    // Known at once, to this node alone.
    assert_eq!(get("one", "used").await.0, 200);
    assert_eq!(get("two", "used").await, (403, forbidden("used", "two")));
    assert_eq!(get("one", "unused").await, (403, forbidden("unused", "one")));
    let list = format!("{PODS}?fieldSelector=spec.nodeName%3Done");
    assert_eq!(told(&cluster, "one", "GET", &list, &Value::Null).await.0, 200);
    let (code, why) = told(&cluster, "two", "GET", &list, &Value::Null).await;
    assert_eq!(code, 403);
    assert!(why.ends_with(": can only list/watch pods with spec.nodeName field selector"), "{why}");
    ask(&cluster, ADMIN, "DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), &Value::Null).await;
    assert_eq!(get("one", "used").await.0, 403, "the pod is gone");

    // Roles can give nodes more.
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "secrets"}, "rules": rules});
    create(&cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({
        "metadata": {"name": "secrets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "secrets"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:node:two"}],
    });
    create(&cluster, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    assert_eq!(get("two", "unused").await.0, 200);
}

#[tokio::test]
async fn a_restart_knows_the_pods_of_nodes() {
    let home = tempfile::tempdir().unwrap();
    let world = Cluster::new().await.world;
    let open = || {
        let storage = konverge_apiserver::Storage::Disk(home.path().join("data"));
        let env = world.clone() as std::sync::Arc<dyn konverge_apiserver::Environment>;
        Cluster::with(move |options| Options { authorization: vec![AuthorizationMode::Node], storage, env, ..options })
    };
    let first = open().await;
    create(&first, SECRETS, json!({"metadata": {"name": "used"}})).await;
    create(&first, PODS, pod("p", "one", json!({"imagePullSecrets": [{"name": "used"}]}))).await;
    first.stop().await;
    let second = open().await;
    assert_eq!(told(&second, "one", "GET", &format!("{SECRETS}/used"), &Value::Null).await.0, 200);
}

#[tokio::test]
async fn rules_of_nodes_are_not_complete() {
    let cluster = cluster(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let asked = json!({"spec": {"namespace": "default"}});
    for (who, incomplete, error) in [
        ("system:node:one@system:nodes", true, json!("node authorizer does not support user rule resolution")),
        ("alice@dev", false, Value::Null),
    ] {
        // Everybody who has shown a credential may ask.
        let (code, answer) = ask(&cluster, &format!("{who},system:authenticated"), "POST", path, &asked).await;
        let status = &answer["status"];
        let found = (code, &status["incomplete"], status.get("evaluationError").unwrap_or(&Value::Null));
        assert_eq!(found, (201, &json!(incomplete), &error), "{who}");
    }
}

/// One write of a node, and its refusal.
struct Write {
    method: &'static str,
    path: String,
    body: Value,
    expect: Result<u16, String>,
}

#[tokio::test]
async fn what_nodes_may_write() {
    let cluster = cluster(&[AuthorizationMode::Node]).await;
    let uid = create(&cluster, NODES, json!({"metadata": {"name": "two"}})).await["metadata"]["uid"].clone();
    create(&cluster, PODS, pod("mine", "one", json!({"serviceAccountName": "robot"}))).await;
    create(&cluster, PODS, pod("other", "two", json!({}))).await;
    create(&cluster, "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let mirror = |change: Value| {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "u", "controller": true});
        let mut pod = pod("m", "one", json!({}));
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "m"});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        json_merge(&mut pod, &change);
        pod
    };
    let of = |plural: &str, name: &str, why: &str| Err(format!("{plural} \"{name}\" is forbidden: {why}"));
    let node = |why: &str| of("nodes", "one", why);
    let write = |method, path: &str, body, expect| Write { method, path: path.to_owned(), body, expect };
    let one = format!("{NODES}/one");
    let status = |name: &str| format!("{PODS}/{name}/status");
    let token = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let mine = ask(&cluster, ADMIN, "GET", &format!("{PODS}/mine"), &Value::Null).await.1["metadata"]["uid"].clone();
    let bound = |uid: &Value, audiences: Value| {
        let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": uid});
        json!({"spec": {"boundObjectRef": reference, "audiences": audiences}})
    };
    for Write { method, path, body, expect } in [
        write(
            "POST",
            NODES,
            json!({"metadata": {"name": "one", "labels": {"node-role.kubernetes.io/x": "", "k8s.io/a": ""}}}),
            node("node \"one\" is not allowed to set the following labels: k8s.io/a, node-role.kubernetes.io/x"),
        ),
        write(
            "POST",
            NODES,
            json!({"metadata": {"name": "three"}}),
            of("nodes", "three", "node \"one\" is not allowed to modify node \"three\""),
        ),
        write("POST", NODES, json!({"metadata": {"name": "one", "labels": {"kubernetes.io/os": "linux"}}}), Ok(201)),
        write(
            "PATCH",
            &one,
            json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}),
            node("is not allowed to modify labels: node-restriction.kubernetes.io/a"),
        ),
        write("PATCH", &one, json!({"spec": {"taints": null}}), node("node \"one\" is not allowed to modify taints")),
        write(
            "PATCH",
            &one,
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}}),
            node("node \"one\" is not allowed to modify ownerReferences"),
        ),
        write("PATCH", &one, json!({"metadata": {"labels": {"example.com/a": "b"}}}), Ok(200)),
        write("PATCH", &format!("{one}/status"), json!({"status": {"phase": "Running"}}), Ok(200)),
        write(
            "PATCH",
            &format!("{NODES}/two/status"),
            json!({"status": {"phase": "Running"}}),
            of("nodes", "two", "node \"one\" is not allowed to modify node \"two\""),
        ),
        write("PATCH", &status("mine"), json!({"status": {"phase": "Running"}}), Ok(200)),
        write(
            "PATCH",
            &status("other"),
            json!({"status": {"phase": "Running"}}),
            of("pods", "other", "node \"one\" can only update pod status for pods with spec.nodeName set to itself"),
        ),
        write(
            "PATCH",
            &status("mine"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            of("pods", "mine", "node \"one\" cannot update labels through pod status"),
        ),
        write(
            "POST",
            PODS,
            pod("plain", "one", json!({})),
            of(
                "pods",
                "plain",
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"one\" can only create mirror pods",
            ),
        ),
        write(
            "POST",
            PODS,
            mirror(json!({"spec": {"nodeName": "two"}})),
            of("pods", "m", "node \"one\" can only create pods with spec.nodeName set to itself"),
        ),
        write(
            "POST",
            PODS,
            mirror(json!({"metadata": {"ownerReferences": null}})),
            of("pods", "m", "node \"one\" can only create pods with an owner reference set to itself"),
        ),
        write("POST", PODS, mirror(json!({})), of("pods", "m", "node one UID mismatch: expected u got ")),
        write(
            "DELETE",
            &format!("{PODS}/other"),
            Value::Null,
            of("pods", "other", "node \"one\" can only delete pods with spec.nodeName set to itself"),
        ),
        write(
            "POST",
            &format!("{PODS}/other/eviction"),
            json!({"metadata": {"name": "other"}}),
            of("pods", "other", "node one can only evict pods with spec.nodeName set to itself"),
        ),
        write(
            "POST",
            token,
            json!({"spec": {}}),
            of("serviceaccounts", "robot", "node requested token not bound to a pod"),
        ),
        write(
            "POST",
            token,
            bound(&json!("x"), json!([])),
            of(
                "serviceaccounts",
                "robot",
                "the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted \
                 and then recreated",
            ),
        ),
        write(
            "POST",
            token,
            bound(&mine, json!(["vault"])),
            of(
                "serviceaccounts",
                "robot",
                "audience \"vault\" not found in pod spec volume, system:node:one is not authorized to request tokens for this \
                 audience",
            ),
        ),
        write(
            "POST",
            token,
            bound(&mine, json!(["a", "b"])),
            of("serviceaccounts", "robot", "node may only request 0 or 1 audiences"),
        ),
        write("POST", &format!("{leases}/kube-node-lease/leases"), json!({"metadata": {"name": "one"}}), Ok(201)),
        write(
            "POST",
            &format!("{leases}/kube-node-lease/leases"),
            json!({"metadata": {"name": "two"}}),
            of(
                "leases.coordination.k8s.io",
                "two",
                "can only access node lease with the same name as the requesting node",
            ),
        ),
        write(
            "POST",
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"metadata": {"name": "two"}, "spec": {"drivers": []}}),
            of("csinodes.storage.k8s.io", "two", "can only access CSINode with the same name as the requesting node"),
        ),
        write(
            "POST",
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({"metadata": {"name": "s"}, "spec": {
                "driver": "d.example.com", "nodeName": "two", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
            of(
                "resourceslices.resource.k8s.io",
                "s",
                "can only create ResourceSlice with the same NodeName as the requesting node",
            ),
        ),
    ] {
        let (code, message) = told(&cluster, "one", method, &path, &body).await;
        match expect {
            Ok(expect) => assert_eq!((code, message.as_str()), (expect, ""), "{method} {path}"),
            // A uid that the server made is at the end of one.
            Err(expect) => {
                assert!(code == 403 && message.starts_with(&expect), "{method} {path}: {code} {message}");
            }
        }
    }
    let node_uid = ask(&cluster, ADMIN, "GET", &one, &Value::Null).await.1["metadata"]["uid"].clone();
    assert_ne!(node_uid, uid);
    let own = json!([{"apiVersion": "v1", "kind": "Node", "name": "one", "uid": node_uid, "controller": true}]);
    let with = |spec: Value| mirror(json!({"metadata": {"ownerReferences": own}, "spec": spec}));
    let secret = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    let (code, message) = told(&cluster, "one", "POST", PODS, &with(secret)).await;
    let expect = "pods \"m\" is forbidden: node \"one\" can not create pods that reference secrets";
    assert_eq!((code, &*message), (403, expect));
    assert_eq!(told(&cluster, "one", "POST", PODS, &with(json!({}))).await, (201, String::new()));
    assert_eq!(told(&cluster, "one", "DELETE", &format!("{PODS}/m?gracePeriodSeconds=0"), &Value::Null).await.0, 200);
}

#[tokio::test]
async fn claims_and_certificates_of_nodes() {
    let cluster = cluster(&[AuthorizationMode::Node]).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    create(&cluster, claims, json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    create(&cluster, PODS, pod("p", "one", volumes)).await;
    let status = format!("{claims}/data/status");
    let other = "persistentvolumeclaims \"data\" is forbidden: node \"one\" is not allowed to update fields other than \
                 status.quantity and status.conditions: ";
    for (change, expect) in [
        (json!({"status": {"capacity": {"storage": "2Gi"}}}), None),
        (json!({"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}), None),
        (json!({"metadata": {"labels": {"a": "b"}}}), Some("metadata.labels")),
        (json!({"status": {"phase": "Lost"}}), Some("status.phase")),
    ] {
        let found = told(&cluster, "one", "PATCH", &status, &change).await;
        let expect = expect.map_or((200, String::new()), |fields| (403, format!("{other}{fields}")));
        assert_eq!(found, expect, "{change}");
    }
    assert_eq!(told(&cluster, "two", "PATCH", &status, &json!({})).await.0, 403, "no pod of this node uses it");

    let request = |name: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let (signer, usages) = ("kubernetes.io/kube-apiserver-client-kubelet", ["digital signature", "client auth"]);
        let spec = json!({"request": BASE64_STANDARD.encode(pem), "signerName": signer, "usages": usages});
        json!({"metadata": {"name": "c"}, "spec": spec})
    };
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (code, message) = told(&cluster, "one", "POST", requests, &request("system:node:two")).await;
    let expect = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: can only create a node CSR with \
                  CN=system:node:one";
    assert_eq!((code, &*message), (403, expect));
    assert_eq!(told(&cluster, "one", "POST", requests, &request("system:node:one")).await, (201, String::new()));
}

#[tokio::test]
async fn a_watch_by_name_keeps_the_selector_that_a_node_was_allowed_by() {
    let cluster = cluster(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    create(&cluster, PODS, pod("mine", "one", json!({}))).await;
    create(&cluster, PODS, pod("other", "two", json!({}))).await;
    let seen = async |name: &str, selector: &str| {
        let path = format!("/api/v1/watch/namespaces/default/pods/{name}?timeoutSeconds=1&fieldSelector={selector}");
        let (code, event) = ask(&cluster, "system:node:one@system:nodes", "GET", &path, &Value::Null).await;
        (code, event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    };
    let own = "spec.nodeName%3Done,metadata.name%3D";
    assert_eq!(seen("mine", &format!("{own}mine")).await, (200, "mine".to_owned()));
    assert_eq!(seen("other", &format!("{own}other")).await, (200, String::new()));
    assert_eq!(seen("other", &format!("{own}mine")).await.0, 400);
    assert_eq!(seen("other", "").await.0, 403);
}

#[tokio::test]
async fn a_generated_name_is_not_that_of_the_node() {
    let cluster = cluster(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    let generated = |prefix: &str| json!({"metadata": {"generateName": prefix}});
    let expect = "nodes \"one\" is forbidden: node \"one\" is not allowed to modify node \"\"";
    assert_eq!(told(&cluster, "one", "POST", NODES, &generated("one")).await, (403, expect.to_owned()));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(told(&cluster, "one", "POST", leases, &generated("one")).await.0, 403);
    assert_eq!(told(&cluster, "one", "POST", NODES, &json!({"metadata": {"name": "one"}})).await.0, 201);
}

fn json_merge(target: &mut Value, change: &Value) {
    let Some(change) = change.as_object() else { return *target = change.clone() };
    for (name, value) in change {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
            Value::Object(_) => json_merge(&mut target[name.as_str()], value),
            other => target[name.as_str()] = other.clone(),
        }
    }
}
