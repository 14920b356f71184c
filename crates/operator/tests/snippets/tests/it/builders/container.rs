//! What a container and what it uses stand for: probes, volumes.

use konverge::prelude::*;
use konverge::serde_json::{Value, json};

use super::{app, check};

/// What a part of a pod stands for, inside a pod that an API server takes.
async fn check_container(container: Container, expected: Value) {
    let name = container.inner().name.clone();
    let pod = Pod::new("pod").container(container.image("busybox")).volume(Volume::empty_dir("data"));
    let mut whole = json!({ "name": name, "image": "busybox" });
    whole.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
    check(pod, "/spec/containers/0", whole).await;
}

#[tokio::test]
async fn containers() {
    check_container(app().command(["sh", "-c"]).args(["true"]), json!({ "command": ["sh", "-c"], "args": ["true"] }))
        .await;
    check_container(
        app().working_dir("/srv").image_pull_policy("Always"),
        json!({ "workingDir": "/srv", "imagePullPolicy": "Always" }),
    )
    .await;
    check_container(
        app().port(80u16).named_port("metrics", 9090i64).udp_port(53usize).port(80),
        json!({
            "ports": [
                { "containerPort": 80 },
                { "containerPort": 9090, "name": "metrics" },
                { "containerPort": 53, "protocol": "UDP" }
            ]
        }),
    )
    .await;
    check_container(
        app().env("PORT", 8080).env("DEBUG", true).env("PORT", 9090).env_from_field("POD_NAME", "metadata.name"),
        json!({
            "env": [
                { "name": "PORT", "value": "9090" },
                { "name": "DEBUG", "value": "true" },
                { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }
            ]
        }),
    )
    .await;
    check_container(
        app().all_env_from_secret("keys").all_env_from_configmap("settings"),
        json!({ "envFrom": [{ "secretRef": { "name": "keys" } }, { "configMapRef": { "name": "settings" } }] }),
    )
    .await;
    check_container(
        app().volume_mount("data", "/data").read_only_volume_mount("data", "/etc/data").volume_mount_sub_path(
            "data",
            "/etc/app.conf",
            "app.conf",
        ),
        json!({
            "volumeMounts": [
                { "name": "data", "mountPath": "/data" },
                { "name": "data", "mountPath": "/etc/data", "readOnly": true },
                { "name": "data", "mountPath": "/etc/app.conf", "subPath": "app.conf" }
            ]
        }),
    )
    .await;
    check_container(
        app().post_start(["touch", "/started"]).pre_stop_sleep(5),
        json!({
            "lifecycle": {
                "postStart": { "exec": { "command": ["touch", "/started"] } },
                "preStop": { "sleep": { "seconds": 5 } }
            }
        }),
    )
    .await;
    check_container(
        app().pre_stop(["drain"]),
        json!({ "lifecycle": { "preStop": { "exec": { "command": ["drain"] } } } }),
    )
    .await;
    check_container(
        app().resources(Resources::new().request("ephemeral-storage", "1Gi").limit("nvidia.com/gpu", "1")),
        json!({
            "resources": { "requests": { "ephemeral-storage": "1Gi" }, "limits": { "nvidia.com/gpu": "1" } }
        }),
    )
    .await;
    check_container(
        app().security_context(SecurityContext::restricted().run_as_user(1000).run_as_group(1000)),
        json!({
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "runAsGroup": 1000,
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" }
            }
        }),
    )
    .await;
    check_container(
        app().security_context(SecurityContext::new().privileged(true).add_capabilities(["NET_ADMIN"])),
        json!({ "securityContext": { "capabilities": { "add": ["NET_ADMIN"] }, "privileged": true } }),
    )
    .await;
    check_container(app().patch(|container| container.tty = Some(true)), json!({ "tty": true })).await;
}

#[tokio::test]
async fn probes() {
    let cases = [
        (Probe::https("/", "web"), json!({ "httpGet": { "path": "/", "port": "web", "scheme": "HTTPS" } })),
        (Probe::tcp(5432).timeout(2), json!({ "tcpSocket": { "port": 5432 }, "timeoutSeconds": 2 })),
        (Probe::grpc(9000).failure_threshold(5), json!({ "grpc": { "port": 9000 }, "failureThreshold": 5 })),
        (
            Probe::exec(["cat", "/ok"]).success_threshold(1),
            json!({ "exec": { "command": ["cat", "/ok"] }, "successThreshold": 1 }),
        ),
    ];
    for (probe, expected) in cases {
        check_container(app().named_port("web", 80).startup_probe(probe), {
            json!({ "ports": [{ "name": "web", "containerPort": 80 }], "startupProbe": expected })
        })
        .await;
    }
}

#[tokio::test]
async fn volumes() {
    let cases = [
        (
            Volume::configmap("v", "settings").item("a", "a.conf").mode(0o400).optional(),
            json!({
                "configMap": {
                    "name": "settings",
                    "items": [{ "key": "a", "path": "a.conf" }],
                    "defaultMode": 0o400,
                    "optional": true
                }
            }),
        ),
        (
            Volume::secret("v", "keys").item("a", "a.key").mode(0o400).optional(),
            json!({
                "secret": {
                    "secretName": "keys",
                    "items": [{ "key": "a", "path": "a.key" }],
                    "defaultMode": 0o400,
                    "optional": true
                }
            }),
        ),
        (Volume::empty_dir("v"), json!({ "emptyDir": {} })),
        (Volume::memory("v"), json!({ "emptyDir": { "medium": "Memory" } })),
        (Volume::host_path("v", "/var/log"), json!({ "hostPath": { "path": "/var/log" } })),
    ];
    for (volume, mut expected) in cases {
        expected["name"] = "v".into();
        let pod = Pod::new("pod").container(app().image("busybox")).volume(Volume::pvc("v", "old")).volume(volume);
        check(pod, "/spec/volumes", json!([expected])).await;
    }
    check(
        PersistentVolumeClaim::new("data").storage("1Gi").storage_class("fast").access_modes(["ReadWriteMany"]).block(),
        "/spec",
        json!({
            "accessModes": ["ReadWriteMany"],
            "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": "fast",
            "volumeMode": "Block"
        }),
    )
    .await;
}
