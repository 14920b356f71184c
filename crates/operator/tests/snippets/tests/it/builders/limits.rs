//! What bounds and moves workloads, and what a cluster is divided into: budgets, autoscalers, quotas, namespaces, volumes,
//! leases; and pods that restart when their configuration changes.

use konverge::prelude::*;
use konverge::serde_json::{json, to_value};

use super::check;
use crate::cluster::{apply, client};

#[tokio::test]
async fn disruption_budgets() {
    let budget = || PodDisruptionBudget::new("web");
    let of = |spec| json!({ "selector": { "matchLabels": { "app": "web" } }, "maxUnavailable": spec });
    check(budget().max_unavailable(1_u32), "/spec", of(json!(1))).await;
    check(budget().min_available(2).max_unavailable("25%"), "/spec", of(json!("25%"))).await;
    let other =
        budget().selector(Selector::new().insert("tier", "front")).min_available("50%").always_evict_unhealthy();
    let expect = json!({
        "minAvailable": "50%",
        "selector": { "matchLabels": { "tier": "front" } },
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    });
    check(other, "/spec", expect).await;
}

#[tokio::test]
async fn autoscalers() {
    let scaler = || HorizontalPodAutoscaler::new("web").scales::<Deployment>("web").replicas(2_u8, 10_i64);
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let cpu = |target| json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
    let at = |percent| cpu(json!({ "type": "Utilization", "averageUtilization": percent }));
    check(scaler(), "/spec", json!({ "maxReplicas": 10, "minReplicas": 2, "scaleTargetRef": target })).await;
    check(scaler().cpu(50).cpu(80_u32), "/spec/metrics", json!([at(80)])).await;
    let average = cpu(json!({ "type": "AverageValue", "averageValue": "500m" }));
    check(scaler().average("cpu", "500m"), "/spec/metrics", json!([average])).await;
    check(scaler().cpu(80).memory(70), "/spec/metrics/1/resource/name", json!("memory")).await;
    let window = "/spec/behavior/scaleDown/stabilizationWindowSeconds";
    check(scaler().cpu(80).scale_down_after(600), window, json!(600)).await;
}

#[tokio::test]
async fn namespaces_and_quotas() {
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    check(Namespace::new("red").pod_security("restricted"), "/metadata/labels", labels).await;
    let made = apply(&client().await, &Namespace::new("red")).await.unwrap();
    assert!(made.is_active());
    let quota = ResourceQuota::new("team")
        .cpu_requests("10")
        .cpu_limits("20")
        .memory_requests("20Gi")
        .memory_limits("40Gi")
        .storage("1Ti")
        .count("pods", 50_usize)
        .hard("count/deployments.apps", "5");
    let hard = json!({
        "count/deployments.apps": "5", "limits.cpu": "20", "limits.memory": "40Gi", "pods": "50",
        "requests.cpu": "10", "requests.memory": "20Gi", "requests.storage": "1Ti",
    });
    check(quota, "/spec/hard", hard).await;
    check(ResourceQuota::new("a").count("pods", 1).scopes(["BestEffort"]), "/spec/scopes", json!(["BestEffort"])).await;
}

#[tokio::test]
async fn persistent_volumes() {
    let volume = || PersistentVolume::new("films").storage("1Ti");
    let nfs = volume().nfs("10.0.0.7", "/films").storage_class("slow").reclaim_policy("Retain");
    let expect = json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Ti" },
        "nfs": { "path": "/films", "server": "10.0.0.7" },
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "slow",
    });
    check(nfs, "/spec", expect).await;
    let csi = volume().csi("ebs.csi.aws.com", "vol-1").access_modes(["ReadWriteOncePod"]).claimed_by("shop", "films");
    check(csi.clone(), "/spec/csi", json!({ "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1" })).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "films", "namespace": "shop" });
    check(csi, "/spec/claimRef", claim).await;
    let local = volume().local("node-1", "/disks/1");
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"] });
    let terms = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions";
    check(local, terms, json!([here])).await;
    check(volume().host_path("/disk"), "/spec/hostPath", json!({ "path": "/disk" })).await;
}

#[tokio::test]
async fn leases() {
    let at = |text: &str| text.parse().unwrap();
    let noon = "2026-01-01T12:00:00Z";
    let lease = Lease::new("backup").holder("node-1").duration(15_u64).acquired(at(noon)).renewed(at(noon));
    let expect = json!({
        "acquireTime": "2026-01-01T12:00:00.000000Z",
        "holderIdentity": "node-1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T12:00:00.000000Z",
    });
    check(lease.clone(), "/spec", expect).await;
    assert!(!lease.is_expired(at("2026-01-01T12:00:14Z")));
    assert!(lease.is_expired(at("2026-01-01T12:00:15Z")));
    assert!(lease.clone().holder("").is_expired(at(noon)));
    assert!(Lease::new("free").is_expired(at(noon)));
}

/// Pods are started anew by another sum in their template, and by nothing else.
#[tokio::test]
async fn restarts() {
    let config = |colour: &str| ConfigMap::new("web").data("colour", colour);
    let secret = |password: &str| Secret::new("login").data("password", password);
    macro_rules! case {
        ($kind:ident) => {
            let web = || $kind::new("web").container(Container::new("app").image("nginx:1"));
            let sum = |workload: &$kind| {
                let value = to_value(workload).unwrap();
                let annotations = value.pointer("/spec/template/metadata/annotations").cloned().unwrap_or_default();
                annotations["konverge.dev/config-checksum"].as_str().map(str::to_owned)
            };
            let both = |colour: &str, password: &str| {
                sum(&web().restart_when(&config(colour)).restart_when(&secret(password).into_inner()))
            };
            assert_eq!(sum(&web()), None);
            assert_eq!(both("blue", "sesame"), both("blue", "sesame"));
            assert_ne!(both("blue", "sesame"), both("red", "sesame"));
            assert_ne!(both("blue", "sesame"), both("blue", "melon"));
            assert_ne!(both("blue", "sesame"), sum(&web().restart_when(&config("blue"))));
            apply(&client().await, &web().restart_when(&config("blue"))).await.unwrap();
        };
    }
    case!(Deployment);
    case!(StatefulSet);
    case!(DaemonSet);
}

/// Numbers of whatever type a spec has are compared without a cast.
#[test]
fn ready_pods_are_compared_in_any_type() {
    let status = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
        "spec": { "selector": {}, "template": {} }, "status": { "readyReplicas": 3 } });
    let web: Deployment = konverge::serde_json::from_value(status).unwrap();
    assert!(web.has_ready(3_u32) && web.has_ready(2_i32) && web.has_ready(0_usize));
    assert!(!web.has_ready(4_u8) && !web.has_ready(u64::MAX));
}
