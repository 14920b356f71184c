//! What each word of a builder stands for, as tables of JSON; an API server with strict fields takes all of it.

mod container;
mod limits;

use std::fmt::Debug;

use konverge::prelude::*;
use konverge::serde_json::{Value, from_value, json, to_value};

use crate::cluster::{apply, apply_value, client};

/// What a builder stands for at `path`, and that an API server takes it.
async fn check<K: Kind>(builder: K, path: &str, expected: Value) {
    let value = to_value(&builder).unwrap();
    assert_eq!(value.pointer(path), Some(&expected), "{path} of {value:#}");
    apply(&client().await, &builder).await.unwrap_or_else(|refused| panic!("{value:#} was refused: {refused}"));
}

fn app() -> Container {
    Container::new("app")
}

#[tokio::test]
async fn strict_fields_are_strict() {
    let client = client().await;
    let wrong = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "dada": {} });
    let refused = crate::cluster::apply_value::<ConfigMap>(&client, wrong).await.unwrap_err();
    assert!(refused.contains("dada"), "{refused}");
}

/// Every kind that runs pods runs them the same way, wherever it keeps them.
#[tokio::test]
async fn pods_of_every_workload() {
    let expected = json!({
        "affinity": {},
        "automountServiceAccountToken": false,
        "containers": [{ "name": "app", "image": "new" }],
        "hostNetwork": true,
        "imagePullSecrets": [{ "name": "registry" }],
        "initContainers": [
            { "name": "init", "image": "busybox" },
            { "name": "proxy", "image": "envoy", "restartPolicy": "Always" }
        ],
        "nodeSelector": { "disk": "ssd" },
        "priorityClassName": "high",
        "restartPolicy": "Always",
        "runtimeClassName": "gvisor",
        "securityContext": { "fsGroup": 2000, "runAsUser": 1000 },
        "serviceAccountName": "robot",
        "terminationGracePeriodSeconds": 60,
        "tolerations": [
            { "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" },
            { "key": "spot", "operator": "Exists" }
        ],
        "topologySpreadConstraints": [{
            "labelSelector": { "matchLabels": { "app": "web" } },
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway"
        }]
    });
    macro_rules! case {
        ($kind:ident, $pods:literal, $restart:literal $(, $method:ident($value:literal))?) => {{
            use konverge::k8s_openapi::api::core::v1::{Affinity, PodSecurityContext};
            use konverge::k8s_openapi::api::node::v1::RuntimeClass;
            use konverge::k8s_openapi::api::scheduling::v1::PriorityClass;
            let mut expected = expected.clone();
            expected["restartPolicy"] = $restart.into();
            let workload = $kind::new("web")
                .container(app().image("old"))
                .container(app().image("new"))
                .init_container(Container::new("init").image("busybox"))
                .sidecar(Container::new("proxy").image("envoy"))
                .service_account("robot")
                .automount_service_account_token(false)
                .image_pull_secret("registry")
                .node_selector([("disk", "ssd")])
                .toleration("gpu", "yes", "NoSchedule")
                .tolerates("spot")
                .spread_over("zone")
                .affinity(Affinity::default())
                .priority_class("high")
                .termination_grace_period(60)
                .restart_policy($restart)
                .host_network(true)
                .pod_security_context(PodSecurityContext { run_as_user: Some(1000), ..Default::default() })
                .fs_group(2000)
                .pod_labels([("tier", "front")])
                .pod_annotation("team", "web")
                .pod_spec(|spec| spec.runtime_class_name = Some("gvisor".to_owned()))
                $(.$method($value))?;
            let pods = to_value(&workload).unwrap().pointer($pods).unwrap().clone();
            assert_eq!(pods["spec"], expected, stringify!($kind));
            assert_eq!(pods["metadata"]["labels"], json!({ "app": "web", "tier": "front" }));
            assert_eq!(pods["metadata"]["annotations"], json!({ "team": "web" }));
            let client = client().await;
            // The server refuses pods of classes that do not exist.
            let priority = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 1000});
            apply_value::<PriorityClass>(&client, priority).await.unwrap();
            let runtime = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
                "metadata": {"name": "gvisor"}, "handler": "runsc"});
            apply_value::<RuntimeClass>(&client, runtime).await.unwrap();
            apply(&client, &workload).await
        }};
    }
    case!(Deployment, "/spec/template", "Always").unwrap();
    case!(StatefulSet, "/spec/template", "Always").unwrap();
    case!(DaemonSet, "/spec/template", "Always").unwrap();
    case!(Job, "/spec/template", "OnFailure").unwrap();
    case!(CronJob, "/spec/jobTemplate/spec/template", "OnFailure", schedule("0 4 * * *")).unwrap();
    case!(Pod, "", "Always").unwrap();
}

#[test]
fn labels_reach_the_pods_and_the_selector_follows() {
    let selected = |deployment: Deployment| {
        let spec = to_value(deployment).unwrap()["spec"].clone();
        (spec["selector"]["matchLabels"].clone(), spec["template"]["metadata"]["labels"].clone())
    };
    let web = || Deployment::new("web");
    assert_eq!(
        selected(web().labels([("tier", "front")])),
        (json!({ "app": "web" }), json!({ "app": "web", "tier": "front" }))
    );
    assert_eq!(
        selected(web().labels(Labels::new().insert("app", "shop").insert("v", "1"))),
        (json!({ "app": "shop" }), json!({ "app": "shop", "v": "1" }))
    );
    assert_eq!(
        selected(web().label("v", "1").selector(Selector::new().insert("name", "web"))),
        (json!({ "name": "web" }), json!({ "name": "web", "v": "1" }))
    );
    assert_eq!(selected(web().pod_labels([("app", "x")])), (json!({ "app": "x" }), json!({ "app": "x" })));
    let labels = to_value(web().label("v", "1").annotation("a", "b")).unwrap()["metadata"].clone();
    assert_eq!(labels, json!({ "name": "web", "labels": { "v": "1" }, "annotations": { "a": "b" } }));
}

#[test]
fn numbers_beyond_the_api_are_its_limits() {
    let replicas = |deployment: Deployment| deployment.desired_replicas();
    assert_eq!(replicas(Deployment::new("web").replicas(u32::MAX)), i32::MAX);
    assert_eq!(replicas(Deployment::new("web").replicas(i64::MIN)), i32::MIN);
    assert_eq!(replicas(Deployment::new("web").replicas(7u8)), 7);
}

#[tokio::test]
async fn workloads() {
    let web = || Deployment::new("web").container(app().image("nginx"));
    check(
        web().rolling_update("25%", 0),
        "/spec/strategy",
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } }),
    )
    .await;
    check(web().recreate(), "/spec/strategy", json!({ "type": "Recreate" })).await;
    let patient = web().min_ready_seconds(5).progress_deadline(30).revision_history_limit(2).paused(true);
    let spec = to_value(&patient).unwrap()["spec"].clone();
    assert_eq!(
        (&spec["minReadySeconds"], &spec["progressDeadlineSeconds"], &spec["revisionHistoryLimit"], &spec["paused"]),
        (&json!(5), &json!(30), &json!(2), &json!(true))
    );
    apply(&client().await, &patient).await.unwrap();
    let db = || StatefulSet::new("db").container(app().image("redis"));
    check(db().parallel(), "/spec/podManagementPolicy", json!("Parallel")).await;
    check(
        db().partition(2),
        "/spec/updateStrategy",
        json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } }),
    )
    .await;
    check(db().update_on_delete(), "/spec/updateStrategy", json!({ "type": "OnDelete" })).await;
    check(
        DaemonSet::new("agent").container(app().image("agent")).max_unavailable("10%"),
        "/spec/updateStrategy",
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } }),
    )
    .await;
    check(web().spec(|spec| spec.paused = Some(true)), "/spec/paused", json!(true)).await;
    check(web().namespace("default"), "/metadata/namespace", json!("default")).await;
}

#[tokio::test]
async fn jobs() {
    let run = || Job::new("run").container(app().image("busybox"));
    let job = run().completions(3).parallelism(2).indexed().active_deadline(60).ttl_after_finished(10).suspend(true);
    let mut spec = to_value(&job).unwrap()["spec"].clone();
    spec.as_object_mut().unwrap().remove("template");
    assert_eq!(
        spec,
        json!({
            "activeDeadlineSeconds": 60,
            "completionMode": "Indexed",
            "completions": 3,
            "parallelism": 2,
            "suspend": true,
            "ttlSecondsAfterFinished": 10
        })
    );
    apply(&client().await, &job).await.unwrap();
    let cron = CronJob::new("tick")
        .schedule("0 3 * * *")
        .time_zone("Europe/Zurich")
        .suspend(false)
        .concurrency_policy("Forbid")
        .history(1, 2)
        .starting_deadline(100)
        .backoff_limit(1)
        .container(app().image("busybox"));
    let mut spec = to_value(&cron).unwrap()["spec"].clone();
    assert_eq!(spec["jobTemplate"]["spec"]["backoffLimit"], 1);
    spec.as_object_mut().unwrap().remove("jobTemplate");
    assert_eq!(
        spec,
        json!({
            "concurrencyPolicy": "Forbid",
            "failedJobsHistoryLimit": 2,
            "schedule": "0 3 * * *",
            "startingDeadlineSeconds": 100,
            "successfulJobsHistoryLimit": 1,
            "suspend": false,
            "timeZone": "Europe/Zurich"
        })
    );
    apply(&client().await, &cron).await.unwrap();
}

#[tokio::test]
async fn services() {
    let service = || Service::new("web").selector([("app", "web")]);
    let cases = [
        (service().port(80, "http"), json!({ "ports": [{ "port": 80, "targetPort": "http" }] })),
        (
            service().port(53, 53).udp_port(53, 53),
            json!({
                "ports": [
                    { "name": "tcp-53", "port": 53, "targetPort": 53 },
                    { "name": "udp-53", "port": 53, "targetPort": 53, "protocol": "UDP" }
                ]
            }),
        ),
        (
            service().node_port(80, 8080, 30080),
            json!({ "type": "NodePort", "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }] }),
        ),
        (
            service().headless().load_balancer().node_port(80, 8080, 30080),
            json!({ "type": "LoadBalancer", "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }] }),
        ),
        (
            service().node_port(80, 8080, 30080).cluster_ip(),
            json!({ "type": "ClusterIP", "ports": [{ "port": 80, "targetPort": 8080 }] }),
        ),
        (
            service().headless().port(80, 80).publish_not_ready_addresses(true),
            json!({
                "type": "ClusterIP",
                "clusterIP": "None",
                "ports": [{ "port": 80, "targetPort": 80 }],
                "publishNotReadyAddresses": true
            }),
        ),
        (
            service().external_name("db.example.com"),
            json!({ "type": "ExternalName", "externalName": "db.example.com" }),
        ),
    ];
    for (service, mut expected) in cases {
        expected["selector"] = json!({ "app": "web" });
        check(service, "/spec", expected).await;
    }
}

#[tokio::test]
async fn config() {
    check(
        ConfigMap::new("a").data("k", "v").binary_data("b", [0xff]).immutable(),
        "",
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "a" },
            "data": { "k": "v" },
            "binaryData": { "b": "/w==" },
            "immutable": true
        }),
    )
    .await;
    let tls = Secret::tls("tls", "CERT", b"KEY".to_vec()).immutable();
    assert_eq!(tls.get("tls.key"), Some(b"KEY".as_slice()));
    check(
        tls,
        "",
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "tls" },
            "type": "kubernetes.io/tls",
            "data": { "tls.crt": "Q0VSVA==", "tls.key": "S0VZ" },
            "immutable": true
        }),
    )
    .await;
    let registry = Secret::registry("pull", "ghcr.io", "me", "secret");
    let config: Value = konverge::serde_json::from_slice(registry.get(".dockerconfigjson").unwrap()).unwrap();
    let login = json!({ "username": "me", "password": "secret", "auth": "bWU6c2VjcmV0" });
    assert_eq!(config, json!({ "auths": { "ghcr.io": login } }));
    check(registry, "/type", json!("kubernetes.io/dockerconfigjson")).await;
}

#[tokio::test]
async fn network() {
    check(
        Ingress::new("web").default_backend("fallback", "http").rule(IngressRule::new().exact_path("/a", "a", "web")),
        "/spec",
        json!({
            "defaultBackend": { "service": { "name": "fallback", "port": { "name": "http" } } },
            "rules": [{
                "http": {
                    "paths": [{
                        "path": "/a",
                        "pathType": "Exact",
                        "backend": { "service": { "name": "a", "port": { "name": "web" } } }
                    }]
                }
            }]
        }),
    )
    .await;
    check(
        NetworkPolicy::new("p")
            .deny_all_ingress()
            .allow_egress(
                NetworkPolicyEgress::new()
                    .to_pod_selector(Selector::new().insert("app", "db"))
                    .to_pods_in(Selector::new().insert("env", "prod"), Selector::new().insert("app", "db"))
                    .to_cidr("10.0.0.0/8")
                    .to_cidr_except("10.0.0.0/8", ["10.1.0.0/16"])
                    .tcp_ports(8000, 8999),
            )
            .allow_egress(NetworkPolicyEgress::new().udp_port(53).tcp_port("dns")),
        "/spec",
        json!({
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {
                    "to": [
                        { "podSelector": { "matchLabels": { "app": "db" } } },
                        {
                            "namespaceSelector": { "matchLabels": { "env": "prod" } },
                            "podSelector": { "matchLabels": { "app": "db" } }
                        },
                        { "ipBlock": { "cidr": "10.0.0.0/8" } },
                        { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }
                    ],
                    "ports": [{ "port": 8000, "endPort": 8999, "protocol": "TCP" }]
                },
                { "ports": [{ "port": 53, "protocol": "UDP" }, { "port": "dns", "protocol": "TCP" }] }
            ]
        }),
    )
    .await;
}

#[tokio::test]
async fn access() {
    check(
        ServiceAccount::new("robot").image_pull_secret("pull").automount_service_account_token(false),
        "",
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": "robot" },
            "imagePullSecrets": [{ "name": "pull" }],
            "automountServiceAccountToken": false
        }),
    )
    .await;
    check(
        Role::new("r")
            .rule(PolicyRule::new().api_groups([""]).resources(["secrets"]).resource_names(["one"]).verbs(["get"])),
        "/rules",
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"] }]),
    )
    .await;
    check(
        ClusterRole::new("r").rule(PolicyRule::new().non_resource_urls(["/metrics"]).verbs(["get"])),
        "/rules",
        json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]),
    )
    .await;
    let group = "rbac.authorization.k8s.io";
    check(
        RoleBinding::new("b").cluster_role("view").user("ann").group("staff"),
        "/subjects",
        json!([
            { "apiGroup": group, "kind": "User", "name": "ann" },
            { "apiGroup": group, "kind": "Group", "name": "staff" }
        ]),
    )
    .await;
}

/// A builder reads back what the API says of its kind.
#[track_caller]
fn reads<K: Kind, T: PartialEq + Debug>(status: Value, look: impl Fn(&K) -> T, expected: T) {
    let mut object = json!({
        "apiVersion": K::group_version_kind().api_version(),
        "kind": K::group_version_kind().kind,
        "metadata": { "name": "a", "namespace": "default", "generation": 2, "labels": { "a": "b" } },
        "spec": { "replicas": 2, "selector": {}, "template": {}, "schedule": "", "jobTemplate": {} }
    });
    object["status"] = status;
    assert_eq!(look(&from_value(object).unwrap()), expected);
}

#[test]
fn what_became_of_it() {
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "", "message": ""
        })
    };
    let rolled_out =
        json!({ "observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2 });
    reads(rolled_out.clone(), Deployment::is_rolled_out, true);
    reads(rolled_out.clone(), StatefulSet::is_rolled_out, true);
    reads(rolled_out.clone(), StatefulSet::is_available, true);
    reads(rolled_out.clone(), Deployment::ready_replicas, 2);
    reads(
        json!({ "observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2 }),
        Deployment::is_rolled_out,
        false,
    );
    reads(
        json!({ "observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2 }),
        Deployment::is_rolled_out,
        false,
    );
    for (observed, status, expected) in [(2, "True", true), (1, "True", false), (2, "False", false)] {
        let status = json!({ "observedGeneration": observed, "conditions": [condition("Available", status)] });
        reads(status, Deployment::is_available, expected);
    }
    let nodes = json!({
        "observedGeneration": 2, "desiredNumberScheduled": 3, "numberReady": 2, "numberAvailable": 2,
        "currentNumberScheduled": 3, "numberMisscheduled": 0
    });
    reads(nodes.clone(), |set: &DaemonSet| (set.desired_nodes(), set.ready_nodes(), set.is_available()), (3, 2, false));
    let ended = |condition: Value| json!({ "succeeded": 1, "conditions": [condition] });
    let look = |job: &Job| (job.succeeded(), job.is_complete(), job.is_failed());
    reads(ended(condition("Complete", "True")), look, (1, true, false));
    reads(ended(condition("Failed", "True")), look, (1, false, true));
    let pod: Pod = from_value(json!({
        "metadata": { "name": "a" },
        "status": { "phase": "Running", "podIP": "10.0.0.1", "conditions": [condition("Ready", "True")] }
    }))
    .unwrap();
    assert_eq!((pod.phase(), pod.ip(), pod.is_ready()), (Some("Running"), Some("10.0.0.1"), true));
    let service: Service = from_value(json!({
        "metadata": { "name": "a" },
        "spec": { "clusterIP": "10.0.0.2" },
        "status": { "loadBalancer": { "ingress": [{ "hostname": "a.example.com" }] } }
    }))
    .unwrap();
    assert_eq!((service.address(), service.external_address()), (Some("10.0.0.2"), Some("a.example.com")));
    let claim: PersistentVolumeClaim =
        from_value(json!({ "metadata": { "name": "a" }, "status": { "phase": "Bound" } })).unwrap();
    assert!(claim.is_bound());
    reads(json!({}), |web: &Deployment| web.key().to_string(), "default/a".to_owned());
    reads(json!({}), |web: &Deployment| web.get_label("a").map(str::to_owned), Some("b".to_owned()));
}

#[test]
fn builders_are_the_objects_they_wrap() {
    use konverge::k8s_openapi::api::apps::v1;
    let raw: v1::Deployment = Deployment::new("web").into();
    assert_eq!(Deployment::from(raw.clone()), Deployment::new("web"));
    assert_eq!(to_value(raw).unwrap(), to_value(Deployment::new("web")).unwrap());
    assert_eq!(Deployment::group_version_kind(), v1::Deployment::group_version_kind());
    let scopes = [
        (Deployment::scope(), Deployment::resource().plural, konverge::Scope::Namespaced, "deployments"),
        (ClusterRole::scope(), ClusterRole::resource().plural, konverge::Scope::Cluster, "clusterroles"),
        (Ingress::scope(), Ingress::resource().plural, konverge::Scope::Namespaced, "ingresses"),
        (NetworkPolicy::scope(), NetworkPolicy::resource().plural, konverge::Scope::Namespaced, "networkpolicies"),
    ];
    for (scope, plural, expected_scope, expected_plural) in scopes {
        assert_eq!((scope, plural.as_str()), (expected_scope, expected_plural));
    }
}
