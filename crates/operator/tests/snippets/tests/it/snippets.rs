//! The builder snippets of the documentation, word for word, and the JSON they stand for.

use konverge::prelude::*;
use konverge::serde_json::{Value, json, to_value};

use crate::cluster::{apply, client};

/// What a builder stands for, and that an API server takes it.
async fn check<K: Kind>(builder: K, expected: Value) {
    assert_eq!(to_value(&builder).unwrap(), expected);
    apply(&client().await, &builder).await.unwrap_or_else(|refused| panic!("{expected:#} was refused: {refused}"));
}

#[tokio::test]
async fn quick_start_children() {
    struct Ctx;
    impl Ctx {
        fn name(&self) -> &str {
            "web"
        }
    }
    let ctx = Ctx;
    let app = konverge_snippets::WebApp::new(
        ctx.name(),
        konverge_snippets::WebAppSpec { image: "nginx:1.25".to_owned(), replicas: 3 },
    );
    check(
        Deployment::new(ctx.name())
            .replicas(app.spec.replicas)
            .container(
                Container::new("app")
                    .image(&app.spec.image)
                    .port(80)
            ),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": {
                        "containers": [
                            { "name": "app", "image": "nginx:1.25", "ports": [{ "containerPort": 80 }] }
                        ]
                    }
                }
            }
        }),
    )
    .await;
    check(
        Service::new(ctx.name())
            .port(80, 80)
            .selector(Selector::new().insert("app", ctx.name())),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "web" },
            "spec": { "ports": [{ "port": 80, "targetPort": 80 }], "selector": { "app": "web" } }
        }),
    )
    .await;
}

#[tokio::test]
async fn deployment() {
    check(
        Deployment::new("my-app")
            .replicas(3)
            .labels(Labels::new().insert("app", "my-app"))
            .container(
                Container::new("main")
                    .image("nginx:1.25")
                    .port(80)
                    .env("LOG_LEVEL", "info")
                    .env_from_secret("DB_PASSWORD", "my-secret", "password")
                    .env_from_configmap("CONFIG", "my-config", "key")
                    .resources(Resources::new()
                        .cpu_request("100m")
                        .cpu_limit("500m")
                        .memory_request("128Mi")
                        .memory_limit("512Mi"))
                    .liveness_probe(Probe::http("/health", 8080).period(10))
                    .readiness_probe(Probe::http("/ready", 8080).initial_delay(5))
                    .volume_mount("data", "/data")
                    .security_context(SecurityContext::new()
                        .read_only_root_filesystem(true)
                        .run_as_non_root(true))
            )
            .volume(Volume::pvc("data", "my-pvc"))
            .service_account("my-sa"),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "my-app", "labels": { "app": "my-app" } },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "my-app" } },
                "template": {
                    "metadata": { "labels": { "app": "my-app" } },
                    "spec": {
                        "serviceAccountName": "my-sa",
                        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "my-pvc" } }],
                        "containers": [{
                            "name": "main",
                            "image": "nginx:1.25",
                            "ports": [{ "containerPort": 80 }],
                            "env": [
                                { "name": "LOG_LEVEL", "value": "info" },
                                {
                                    "name": "DB_PASSWORD",
                                    "valueFrom": { "secretKeyRef": { "name": "my-secret", "key": "password" } }
                                },
                                {
                                    "name": "CONFIG",
                                    "valueFrom": { "configMapKeyRef": { "name": "my-config", "key": "key" } }
                                }
                            ],
                            "resources": {
                                "requests": { "cpu": "100m", "memory": "128Mi" },
                                "limits": { "cpu": "500m", "memory": "512Mi" }
                            },
                            "livenessProbe": { "httpGet": { "path": "/health", "port": 8080 }, "periodSeconds": 10 },
                            "readinessProbe": {
                                "httpGet": { "path": "/ready", "port": 8080 },
                                "initialDelaySeconds": 5
                            },
                            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                            "securityContext": { "readOnlyRootFilesystem": true, "runAsNonRoot": true }
                        }]
                    }
                }
            }
        }),
    )
    .await;
}

#[tokio::test]
async fn service() {
    // The snippet lists alternatives in one chain: the last word on the type stands, and the result is valid.
    check(
        Service::new("my-service")
            .port(80, 8080)                    // port, targetPort
            .named_port("metrics", 9090, 9090)
            .selector(Selector::new().insert("app", "my-app"))
            .cluster_ip()                      // default
            .node_port(80, 8080, 30080)        // with nodePort
            .load_balancer()                   // type: LoadBalancer
            .headless(),                       // clusterIP: None
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "my-service" },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "None",
                "selector": { "app": "my-app" },
                "ports": [
                    { "name": "tcp-80", "port": 80, "targetPort": 8080 },
                    { "name": "metrics", "port": 9090, "targetPort": 9090 }
                ]
            }
        }),
    )
    .await;
}

#[tokio::test]
async fn config_map_and_secret() {
    check(
        ConfigMap::new("my-config")
            .data("config.yaml", "key: value")
            .data("settings.json", "{}"),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "my-config" },
            "data": { "config.yaml": "key: value", "settings.json": "{}" }
        }),
    )
    .await;
    check(
        Secret::new("my-secret")
            .data("password", "secret123")     // auto base64 encoded
            .data("api-key", "abc123"),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "my-secret" },
            "data": { "password": "c2VjcmV0MTIz", "api-key": "YWJjMTIz" }
        }),
    )
    .await;
}

#[tokio::test]
async fn ingress() {
    let path = |path, service| {
        json!({
            "path": path,
            "pathType": "Prefix",
            "backend": { "service": { "name": service, "port": { "number": 80 } } }
        })
    };
    check(
        Ingress::new("my-ingress")
            .ingress_class("nginx")
            .annotation("nginx.ingress.kubernetes.io/rewrite-target", "/")
            .rule(
                IngressRule::new()
                    .host("example.com")
                    .path("/api", "api-service", 80)
                    .path("/", "web-service", 80)
            )
            .tls(vec!["example.com"], "tls-secret"),
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "my-ingress",
                "annotations": { "nginx.ingress.kubernetes.io/rewrite-target": "/" }
            },
            "spec": {
                "ingressClassName": "nginx",
                "rules": [{
                    "host": "example.com",
                    "http": { "paths": [path("/api", "api-service"), path("/", "web-service")] }
                }],
                "tls": [{ "hosts": ["example.com"], "secretName": "tls-secret" }]
            }
        }),
    )
    .await;
}

#[tokio::test]
async fn stateful_set() {
    check(
        StatefulSet::new("my-stateful")
            .replicas(3)
            .service_name("my-headless")
            .container(Container::new("app").image("redis:7"))
            .volume_claim_template(
                PersistentVolumeClaim::new("data")
                    .storage("10Gi")
                    .access_mode("ReadWriteOnce")
            ),
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": { "name": "my-stateful" },
            "spec": {
                "replicas": 3,
                "serviceName": "my-headless",
                "selector": { "matchLabels": { "app": "my-stateful" } },
                "template": {
                    "metadata": { "labels": { "app": "my-stateful" } },
                    "spec": { "containers": [{ "name": "app", "image": "redis:7" }] }
                },
                "volumeClaimTemplates": [{
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": { "name": "data" },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": { "requests": { "storage": "10Gi" } }
                    }
                }]
            }
        }),
    )
    .await;
}

#[tokio::test]
async fn rbac() {
    check(
        ServiceAccount::new("my-sa"),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "my-sa" } }),
    )
    .await;
    check(
        Role::new("my-role")
            .rule(PolicyRule::new()
                .api_groups(vec![""])
                .resources(vec!["pods", "services"])
                .verbs(vec!["get", "list", "watch"])),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": { "name": "my-role" },
            "rules": [{ "apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"] }]
        }),
    )
    .await;
    let account = json!({ "kind": "ServiceAccount", "name": "my-sa", "namespace": "default" });
    check(
        RoleBinding::new("my-binding")
            .role("my-role")
            .service_account("my-sa", "default"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": { "name": "my-binding" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "my-role" },
            "subjects": [account]
        }),
    )
    .await;
    check(
        ClusterRole::new("my-cluster-role")
            .rule(PolicyRule::new()
                .api_groups(vec!["example.com"])
                .resources(vec!["myresources"])
                .verbs(vec!["*"])),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "my-cluster-role" },
            "rules": [{ "apiGroups": ["example.com"], "resources": ["myresources"], "verbs": ["*"] }]
        }),
    )
    .await;
    check(
        ClusterRoleBinding::new("my-cluster-binding")
            .cluster_role("my-cluster-role")
            .service_account("my-sa", "default"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "my-cluster-binding" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "my-cluster-role" },
            "subjects": [account]
        }),
    )
    .await;
}

#[tokio::test]
async fn other_resources() {
    let pods = |name: &str, container: Value, restart: Option<&str>| {
        let mut spec = json!({ "containers": [container] });
        if let Some(restart) = restart {
            spec["restartPolicy"] = restart.into();
        }
        json!({ "metadata": { "labels": { "app": name } }, "spec": spec })
    };
    // Jobs
    check(
        Job::new("my-job")
            .backoff_limit(3)
            .container(Container::new("job").image("busybox").command(vec!["echo", "hello"])),
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": "my-job" },
            "spec": {
                "backoffLimit": 3,
                "template": pods(
                    "my-job",
                    json!({ "name": "job", "image": "busybox", "command": ["echo", "hello"] }),
                    Some("Never"),
                )
            }
        }),
    )
    .await;
    // CronJobs
    check(
        CronJob::new("my-cronjob")
            .schedule("0 * * * *")
            .container(Container::new("cron").image("busybox")),
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": { "name": "my-cronjob" },
            "spec": {
                "schedule": "0 * * * *",
                "jobTemplate": {
                    "spec": {
                        "template":
                            pods("my-cronjob", json!({ "name": "cron", "image": "busybox" }), Some("Never"))
                    }
                }
            }
        }),
    )
    .await;
    // DaemonSets
    check(
        DaemonSet::new("my-daemon")
            .container(Container::new("agent").image("datadog/agent")),
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "my-daemon" },
            "spec": {
                "selector": { "matchLabels": { "app": "my-daemon" } },
                "template": pods("my-daemon", json!({ "name": "agent", "image": "datadog/agent" }), None)
            }
        }),
    )
    .await;
    // NetworkPolicies
    check(
        NetworkPolicy::new("my-policy")
            .pod_selector(Selector::new().insert("app", "my-app"))
            .allow_ingress(
                NetworkPolicyIngress::new()
                    .from_namespace_selector(Selector::new().insert("env", "prod"))
                    .tcp_port(80)
            )
            .deny_all_egress(),
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": { "name": "my-policy" },
            "spec": {
                "podSelector": { "matchLabels": { "app": "my-app" } },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{
                    "from": [{ "namespaceSelector": { "matchLabels": { "env": "prod" } } }],
                    "ports": [{ "port": 80, "protocol": "TCP" }]
                }]
            }
        }),
    )
    .await;
}
