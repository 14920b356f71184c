//! Admission plugins, through requests: what they change and what they refuse, in the words of kube-apiserver.

mod classes;
mod policies;
mod quotas;
mod security;
mod webhooks;

use serde_json::{Value, json};

use konverge_apiserver::AdmissionPlugins;

use crate::cluster::{Answer, Cluster, MERGE, NAMESPACES, PODS, pod};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

/// A server with all plugins that kube-apiserver enables, without some.
async fn cluster(disable: &[&str]) -> Cluster {
    let admission = AdmissionPlugins::kubernetes().with(&[], disable).unwrap();
    Cluster::with(|options| konverge_apiserver::Options { admission, ..options }).await
}

/// A pod with this spec beside its container.
fn pod_with(name: &str, spec: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn pods_have_the_zone_of_their_node() {
    let cluster = Cluster::new().await;
    let labels = json!({"topology.kubernetes.io/zone": "a", "kubernetes.io/hostname": "n"});
    cluster.post("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": labels}})).await.expect(201);
    let created = cluster.post(PODS, &pod_with("created", json!({"nodeName": "n"}))).await.expect(201);
    assert_eq!(created["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "a"}));
    cluster.post(PODS, &pod_with("lost", json!({"nodeName": "nowhere"}))).await.expect(201);

    let bare = cluster.post(PODS, &pod("bound")).await.expect(201);
    assert_eq!(bare["metadata"]["labels"], Value::Null);
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    cluster.post(&format!("{PODS}/bound/binding"), &binding).await.expect(201);
    let bound = cluster.get(&format!("{PODS}/bound")).await.expect(200);
    assert_eq!(bound["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "a"}));
}

#[tokio::test]
async fn plugins_that_are_off_by_default() {
    let names = ["LimitPodHardAntiAffinityTopology", "NamespaceExists", "ExtendedResourceToleration"];
    let admission = AdmissionPlugins::default().with(&names, &["NamespaceLifecycle"]).unwrap();
    let cluster = Cluster::with(|options| konverge_apiserver::Options { admission, ..options }).await;
    let spread = |key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {}});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    cluster.post(PODS, &pod_with("node", spread("kubernetes.io/hostname"))).await.expect(201);
    assert_eq!(
        cluster.post(PODS, &pod_with("zone", spread("zone"))).await.fails(403, "Forbidden"),
        "pods \"zone\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key \
         kubernetes.io/hostname is allowed"
    );
    let elsewhere = cluster.post("/api/v1/namespaces/nowhere/configmaps", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(elsewhere.fails(404, "NotFound"), "namespaces \"nowhere\" not found");

    let mut demanding = pod("gpu");
    demanding["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "1"}});
    let made = cluster.post(PODS, &demanding).await.expect(201);
    let tolerated = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert!(made["spec"]["tolerations"].as_array().unwrap().contains(&tolerated), "{made}");
}

#[tokio::test]
async fn priorities_come_from_classes() {
    let cluster = Cluster::new().await;
    let class = |name: &str, value: i64, more: Value| {
        let mut class = json!({"metadata": {"name": name}, "value": value});
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        class
    };
    let priority = |answer: &Answer| {
        let spec = answer.expect(201)["spec"].clone();
        (spec["priorityClassName"].clone(), spec["priority"].clone(), spec["preemptionPolicy"].clone())
    };
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        let found = cluster.get(&format!("{CLASSES}/{name}")).await.expect(200);
        assert_eq!((&found["value"], &found["metadata"]["generation"]), (&json!(value), &json!(1)));
    }
    let none = cluster.post(PODS, &pod("none")).await;
    assert_eq!(priority(&none), (json!(null), json!(0), json!("PreemptLowerPriority")));

    cluster.post(CLASSES, &class("high", 1000, json!({"preemptionPolicy": "Never"}))).await.expect(201);
    let high = cluster.post(PODS, &pod_with("high", json!({"priorityClassName": "high"}))).await;
    assert_eq!(priority(&high), (json!("high"), json!(1000), json!("Never")));
    let refused = cluster.post(PODS, &pod_with("x", json!({"priorityClassName": "nothing"}))).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "pods \"x\" is forbidden: no PriorityClass with name nothing was found"
    );
    let refused = cluster.post(PODS, &pod_with("x", json!({"priorityClassName": "high", "priority": 5}))).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "pods \"x\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission \
         controller computed 1000 from the given PriorityClass name"
    );
    let preempting = json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"});
    assert_eq!(
        cluster.post(PODS, &pod_with("x", preempting)).await.fails(403, "Forbidden"),
        "pods \"x\" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod \
         spec; priority admission controller computed Never from the given PriorityClass name"
    );

    // One class may be the default. While its name is generated, a pod is called by its prefix.
    cluster.post(CLASSES, &class("usual", 7, json!({"globalDefault": true}))).await.expect(201);
    assert_eq!(
        cluster.post(CLASSES, &class("other", 8, json!({"globalDefault": true}))).await.fails(403, "Forbidden"),
        "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as default. Only \
         one default can exist"
    );
    let usual = cluster.post(PODS, &pod("usual")).await;
    assert_eq!(priority(&usual), (json!("usual"), json!(7), json!("PreemptLowerPriority")));
    cluster.patch(&format!("{CLASSES}/usual"), MERGE, &json!({"description": "x"})).await.expect(200);
    let mut generated = pod_with("", json!({"priorityClassName": "nothing"}));
    generated["metadata"] = json!({"generateName": "web-"});
    assert_eq!(
        cluster.post(PODS, &generated).await.fails(403, "Forbidden"),
        "pods \"web-\" is forbidden: no PriorityClass with name nothing was found"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_run_as_accounts_that_exist() {
    let cluster = cluster(&[]).await;
    assert_eq!(
        cluster.post(PODS, &pod("a")).await.fails(403, "Forbidden"),
        "pods \"a\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found"
    );
    cluster.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await.expect(201);
    cluster.world.load([0, 0, 0, 0, 0, 0]);
    let made = cluster.post(PODS, &pod("a")).await.expect(201);
    assert_eq!(
        (&made["spec"]["serviceAccountName"], &made["spec"]["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    let volume = &made["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    assert_eq!(
        volume["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]})
    );
    assert_eq!(
        made["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert!(made["spec"].get("initContainers").is_none(), "nothing else is added");
    let managed = made["metadata"]["managedFields"].to_string();
    assert!(!managed.contains("serviceAccountName"), "nobody manages what the plugin sets: {managed}");

    let unmounted =
        cluster.post(PODS, &pod_with("b", json!({"automountServiceAccountToken": false}))).await.expect(201);
    assert!(unmounted["spec"].get("volumes").is_none());
    let account = json!({"metadata": {"name": "robot"}, "automountServiceAccountToken": false,
                         "imagePullSecrets": [{"name": "key"}]});
    cluster.post(ACCOUNTS, &account).await.expect(201);
    let robot = cluster.post(PODS, &pod_with("c", json!({"serviceAccountName": "robot"}))).await.expect(201);
    assert_eq!(robot["spec"]["imagePullSecrets"], json!([{"name": "key"}]));
    assert!(robot["spec"].get("volumes").is_none());
    assert_eq!(
        cluster.post(PODS, &pod_with("d", json!({"serviceAccountName": "nobody"}))).await.fails(403, "Forbidden"),
        "pods \"d\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found"
    );
}

#[tokio::test]
async fn accounts_can_limit_the_secrets_of_their_pods() {
    let cluster = cluster(&[]).await;
    let annotations = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    let account = json!({"metadata": {"name": "strict", "annotations": annotations}, "secrets": [{"name": "own"}]});
    cluster.post(ACCOUNTS, &account).await.expect(201);
    let with = |spec: Value| {
        let mut pod = pod_with("a", json!({"serviceAccountName": "strict"}));
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    let env = |secret: &str| {
        json!({"containers": [{"name": "c", "image": "i", "env": [
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}},
        ]}]})
    };
    for (spec, expect) in [
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "other"}}]}),
            "volume with secret.secretName=\"other\" is not allowed because service account strict does not reference that \
             secret",
        ),
        (
            env("other"),
            "container c with envVar KEY referencing secret.secretName=\"other\" is not allowed because service account \
             strict does not reference that secret",
        ),
        (
            json!({"imagePullSecrets": [{"name": "own"}]}),
            "imagePullSecrets[0].name=\"own\" is not allowed because service account strict does not reference that \
             imagePullSecret",
        ),
    ] {
        let refused = cluster.post(PODS, &with(spec)).await.fails(403, "Forbidden");
        assert_eq!(refused, format!("pods \"a\" is forbidden: {expect}"));
    }
    cluster.post(PODS, &with(env("own"))).await.expect(201);
    // The same for containers that are added later.
    let later = |secret: &str| {
        let mut container = env(secret)["containers"][0].clone();
        container["name"] = "debugger".into();
        json!({"spec": {"ephemeralContainers": [container]}})
    };
    let path = format!("{PODS}/a/ephemeralcontainers");
    assert_eq!(
        cluster.patch(&path, MERGE, &later("other")).await.fails(403, "Forbidden"),
        "pods \"a\" is forbidden: ephemeral container debugger with envVar KEY referencing secret.secretName=\"other\" is not \
         allowed because service account strict does not reference that secret"
    );
    cluster.patch(&path, MERGE, &later("own")).await.expect(200);
    let mut mirror = pod_with("m", json!({"nodeName": "n"}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    cluster.post(PODS, &mirror).await.expect(201);
    mirror["spec"]["serviceAccountName"] = "strict".into();
    assert_eq!(
        cluster.post(PODS, &mirror).await.fails(403, "Forbidden"),
        "pods \"m\" is forbidden: a mirror pod may not reference service accounts"
    );
}

#[tokio::test]
async fn limit_ranges_complete_and_refuse() {
    let cluster = Cluster::new().await;
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "250m"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}},
    ]);
    cluster.post(RANGES, &json!({"metadata": {"name": "r"}, "spec": {"limits": limits}})).await.expect(201);
    let made = cluster.post(PODS, &pod("a")).await.expect(201);
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "250m"}})
    );
    let name = made["spec"]["containers"][0]["name"].as_str().unwrap();
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        format!("LimitRanger plugin set: cpu request for container {name}; cpu limit for container {name}")
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let mut large = pod("b");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    assert_eq!(
        cluster.post(PODS, &large).await.fails(403, "Forbidden"),
        "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
    let claim = |storage: &str| {
        json!({"metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}},
        }})
    };
    assert_eq!(
        cluster.post(CLAIMS, &claim("3Gi")).await.fails(403, "Forbidden"),
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request \
         is 3Gi"
    );
    cluster.post(CLAIMS, &claim("2Gi")).await.expect(201);
    // Other namespaces have other limits.
    cluster.post(NAMESPACES, &json!({"metadata": {"name": "free"}})).await.expect(201);
    let free = cluster.post("/api/v1/namespaces/free/pods", &pod("a")).await.expect(201);
    assert_eq!(free["spec"]["containers"][0]["resources"], json!({}));
}

#[tokio::test]
async fn plugins_can_be_switched() {
    let denying = AdmissionPlugins::default().with(&["AlwaysDeny"], &["NamespaceLifecycle"]).unwrap();
    let cluster = Cluster::with(|options| konverge_apiserver::Options { admission: denying, ..options }).await;
    assert_eq!(
        cluster.post(PODS, &pod("a")).await.fails(403, "Forbidden"),
        "pods \"a\" is forbidden: admission control is denying all modifications"
    );
    cluster.get(NAMESPACES).await.expect(200);
    let pulling = AdmissionPlugins::default()
        .with(&["AlwaysPullImages", "DenyServiceExternalIPs"], &["NamespaceLifecycle", "Priority"])
        .unwrap();
    let cluster = Cluster::with(|options| konverge_apiserver::Options { admission: pulling, ..options }).await;
    let made = cluster.post("/api/v1/namespaces/nowhere/pods", &pod("a")).await;
    // PodSecurity has to know the namespace.
    assert_eq!(made.fails(500, "InternalError"), "Internal error occurred: failed to lookup namespace \"nowhere\"");
    let made = cluster.post(PODS, &pod("a")).await.expect(201);
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert!(made["spec"].get("priority").is_none());
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["192.0.2.1"]}});
    assert_eq!(
        cluster.post("/api/v1/namespaces/default/services", &service).await.fails(403, "Forbidden"),
        "services \"s\" is forbidden: Use of external IPs is denied by admission control"
    );
}

#[tokio::test]
async fn objects_without_effect_are_warned_about() {
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": []}});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    let class = |name: &str, policy: &str| json!({"metadata": {"name": name}, "value": 1, "preemptionPolicy": policy});
    let webhooks = json!({"metadata": {"name": "w"}});
    let quotas = RANGES.replace("limitranges", "resourcequotas");
    let writes = [
        (RANGES, limits, "\"the admission plugin LimitRanger is off: this limit range has no effect\""),
        (
            &*quotas,
            quota,
            "\"no resource quota controller runs beside this server: this quota limits nothing until one writes its \
             status\"",
        ),
        (
            CLASSES,
            class("a", "PreemptLowerPriority"),
            "\"no pod is preempted here: pods of this class get their priority, but make no room for themselves\"",
        ),
        (WEBHOOKS, webhooks, "\"the admission plugin for these webhooks is off: this configuration has no effect\""),
    ];
    let without = cluster(&["LimitRanger", "ValidatingAdmissionWebhook"]).await;
    let complete = Cluster::with(|options| konverge_apiserver::Options { absent: Vec::new(), ..options }).await;
    for (path, object, warning) in writes {
        let made = without.post(path, &object).await;
        made.expect(201);
        assert_eq!(made.warnings(), [warning]);
        let made = complete.post(path, &object).await;
        made.expect(201);
        assert!(made.warnings().is_empty(), "{path}");
    }
    assert!(without.post(CLASSES, &class("b", "Never")).await.warnings().is_empty());
}

/// A list that is null is an empty one, as in Go.
#[tokio::test]
async fn a_limit_range_without_limits_limits_nothing() {
    let cluster = Cluster::new().await;
    let made = cluster.post(RANGES, &json!({"metadata": {"name": "empty"}, "spec": {}})).await.expect(201);
    assert_eq!(made["spec"], json!({"limits": null}));
    cluster.post(PODS, &pod_with("a", json!({}))).await.expect(201);
}
