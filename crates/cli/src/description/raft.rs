//! How an operator runs whose leader is elected by Raft. In: what it prints for `--print-statefulset`. Out: what its Pods need for Raft; the rest of them is
//! as for every operator.

use konverge::{BindAddress, MetricsSettings, Settings};
use serde_json::Value;

use super::text;

/// What the Pods of an operator need to elect a leader among themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RaftPods {
    /// The headless Service by which members find each other.
    pub service: String,
    /// The port on which members talk to each other.
    pub port: u16,
    /// How many members the operator asks for.
    pub replicas: u64,
    /// Where each member keeps its log; none if it is in memory.
    pub data: Option<RaftVolume>,
    /// Where each member finds its certificate; none if they talk in the clear.
    pub tls: Option<RaftVolume>,
}

/// A volume of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RaftVolume {
    pub name: String,
    /// Where it is mounted.
    pub path: String,
    /// How large it is, or the Secret that fills it.
    pub source: String,
}

impl RaftPods {
    /// What a StatefulSet among the manifests says; none if there is none.
    pub(super) fn of(manifests: &[Value]) -> Option<Self> {
        let set = &manifests.iter().find(|manifest| manifest["kind"] == "StatefulSet")?["spec"];
        let pod = &set["template"]["spec"];
        let container = &pod["containers"][0];
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let port = items(&container["ports"]).into_iter().find(|port| port["name"] == "raft")?;
        let volume = |name: &Value, source: &Value| {
            let mount = items(&container["volumeMounts"]).into_iter().find(|mount| mount["name"] == *name)?;
            Some(RaftVolume { name: text(name), path: text(&mount["mountPath"]), source: text(source) })
        };
        let claims = items(&set["volumeClaimTemplates"]);
        let secrets = items(&pod["volumes"]);
        let claimed =
            |claim: &Value| volume(&claim["metadata"]["name"], &claim["spec"]["resources"]["requests"]["storage"]);
        Some(Self {
            service: text(&set["serviceName"]),
            port: port["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok())?,
            replicas: set["replicas"].as_u64().unwrap_or(3),
            data: claims.first().and_then(claimed),
            tls: secrets.iter().find_map(|one| volume(&one["name"], &one["secret"]["secretName"])),
        })
    }

    /// The settings as the operator changes them when it starts: Raft has the usual port of metrics, and these move to the probes.
    pub(super) fn adjust(&self, settings: &mut Settings) {
        let usual = MetricsSettings::default().address;
        if settings.metrics.address == usual && usual == BindAddress::All(self.port) {
            settings.metrics.address = settings.health.address;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// What an operator prints that keeps its log and has certificates.
    pub(crate) fn printed() -> Vec<Value> {
        let mounts = json!([
            {"name": "raft-data", "mountPath": "/data/raft"}, {"name": "raft-tls", "mountPath": "/tls", "readOnly": true},
        ]);
        vec![
            json!({"kind": "Service", "metadata": {"name": "shop-headless"}}),
            json!({"kind": "StatefulSet", "spec": {
                "serviceName": "shop-headless", "replicas": 3,
                "template": {"spec": {
                    "containers": [{"ports": [{"name": "raft", "containerPort": 8080}], "volumeMounts": mounts}],
                    "volumes": [{"name": "raft-tls", "secret": {"secretName": "shop-raft-tls"}}],
                }},
                "volumeClaimTemplates": [
                    {"metadata": {"name": "raft-data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}},
                ],
            }}),
        ]
    }

    #[test]
    fn what_a_stateful_set_says() {
        let volume = |name: &str, path: &str, source: &str| {
            Some(RaftVolume { name: name.into(), path: path.into(), source: source.into() })
        };
        let raft = RaftPods::of(&printed()).unwrap();
        assert_eq!(
            raft,
            RaftPods {
                service: "shop-headless".into(),
                port: 8080,
                replicas: 3,
                data: volume("raft-data", "/data/raft", "1Gi"),
                tls: volume("raft-tls", "/tls", "shop-raft-tls"),
            }
        );
        assert_eq!(RaftPods::of(&[]), None);
        let mut settings = Settings::default();
        raft.adjust(&mut settings);
        assert_eq!(settings.metrics.address, settings.health.address);
    }
}
