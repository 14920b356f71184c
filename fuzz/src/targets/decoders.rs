//! Decoders and parsers that are functions of their input.

use std::borrow::Cow;

use konverge_apiserver::check_object;
use konverge_core::{FieldSelector, LabelSelector, Quantity};
use konverge_schema::{Budget, Pattern, ProtobufObject, canonical_quantity};
use serde_json::{Value, json};

use crate::target::Runner;

/// What one request may use.
pub(super) fn budget() -> Budget {
    Budget::new(2_000_000, 4 * 1024 * 1024)
}

/// One seed a line.
pub(super) fn lines(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
}

pub(super) fn protobuf() -> Runner {
    Box::new(|input| {
        let object = match ProtobufObject::read(input) {
            Ok(object) => object,
            Err(error) => return error.to_string(),
        };
        match object.decode(&budget()) {
            Ok(value) => {
                // What was decoded is JSON that can be written and read again.
                let text = serde_json::to_string(&value).expect("a value is JSON");
                assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON can be read"), value);
                format!(
                    "{} {:?}",
                    object.kind,
                    value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>())
                )
            }
            Err(error) => error.to_string(),
        }
    })
}

/// A field of a message: its number and its bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// A message as a client sends it.
fn envelope(api_version: &str, kind: &str, message: &[Vec<u8>]) -> Vec<u8> {
    let names = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &names), field(2, &message.concat())].concat()
}

pub(super) fn protobuf_seeds() -> Vec<Vec<u8>> {
    let entry = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    let metadata = field(
        1,
        &[field(1, b"name"), field(3, b"default"), field(11, &entry("app", "web")), field(12, &entry("note", "x"))]
            .concat(),
    );
    let container = [
        field(1, b"main"),
        field(2, b"nginx:1"),
        field(6, &[field(1, b"http"), vec![0x18, 80], field(4, b"TCP")].concat()),
        field(7, &entry("KEY", "value")),
        field(8, &field(1, &[field(1, b"cpu"), field(2, &field(1, b"100m"))].concat())),
    ];
    let spec = [field(2, &container.concat()), field(3, b"Always"), vec![0x20, 30]].concat();
    let template = [metadata.clone(), field(2, &spec)].concat();
    let deployment = [vec![0x08, 3], field(2, &field(1, &entry("app", "web"))), field(3, &template)].concat();
    vec![
        envelope("v1", "Namespace", std::slice::from_ref(&metadata)),
        envelope("v1", "ConfigMap", &[metadata.clone(), field(2, &entry("k", "v")), field(3, &entry("b", "\u{1}"))]),
        envelope("v1", "Secret", &[metadata.clone(), field(2, &entry("k", "v")), field(3, b"Opaque")]),
        envelope("v1", "Pod", &[metadata.clone(), field(2, &spec)]),
        envelope("apps/v1", "Deployment", &[metadata.clone(), field(2, &deployment)]),
        envelope("v1", "DeleteOptions", &[vec![0x08, 5], field(2, &field(1, b"uid")), field(4, b"Foreground")]),
        envelope("coordination.k8s.io/v1", "Lease", &[metadata, field(2, &field(3, &[0x08, 1, 0x10, 2]))]),
    ]
}

pub(super) fn labels() -> Runner {
    let labels = [("a", "b"), ("h", "i"), ("l", "4")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Box::new(move |input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        match LabelSelector::parse(text) {
            Ok(selector) => format!("matches: {}, everything: {}", selector.matches(&labels), selector.is_everything()),
            Err(error) => error.to_string(),
        }
    })
}

pub(super) fn fields() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        match FieldSelector::parse(text) {
            Ok(selector) => {
                let matches = selector.matches(|field| Cow::Owned(field.to_owned()));
                format!(
                    "{} fields, matches: {matches}, {:?}",
                    selector.fields().count(),
                    selector.exact("metadata.name").is_some()
                )
            }
            Err(error) => error.to_string(),
        }
    })
}

pub(super) fn quantity() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        let amount = match text.parse::<Quantity>() {
            Ok(amount) => amount,
            Err(error) => return error.to_string(),
        };
        let shown = amount.to_string();
        let again: Quantity = shown.parse().expect("what is written can be read");
        assert_eq!(again.to_string(), shown, "{text:?} has one canonical form");
        let mut sum = amount;
        sum.add(&again);
        sum.subtract(&amount);
        sum.subtract(&again);
        let canonical = canonical_quantity(&text.into());
        format!("{} {} {} {}", amount.is_negative(), amount.fits_milli(), sum.is_zero(), canonical.is_some())
    })
}

pub(super) fn cron() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        let (schedule, zone) = text.split_once('\n').unwrap_or((text, ""));
        let mut object = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "default"},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}}}},
        });
        if !zone.is_empty() {
            object["spec"]["timeZone"] = zone.into();
        }
        outcome(&object)
    })
}

pub(super) fn pattern() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        match Pattern::new(text) {
            Ok(pattern) => format!("matches: {}", pattern.matches("some text, with 42 and Greek λ", &budget())),
            Err(error) => error,
        }
    })
}

pub(super) fn objects() -> Runner {
    Box::new(|input| match serde_json::from_slice::<Value>(input) {
        Ok(object) => outcome(&object),
        Err(error) => error.to_string(),
    })
}

/// What a cluster says about an object: the first two errors.
fn outcome(object: &Value) -> String {
    match check_object(object, None) {
        Ok(errors) => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("{}: {}", texts.len(), texts.into_iter().take(2).collect::<Vec<_>>().join("; "))
        }
        Err(error) => error.to_string(),
    }
}

pub(super) fn object_seeds() -> Vec<Vec<u8>> {
    let pod = json!({
        "containers": [{
            "name": "main", "image": "nginx", "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}], "securityContext": {"runAsNonRoot": true},
        }],
        "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}],
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "t"}}]}}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
        ]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "restartPolicy": "Always",
    });
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let selector = json!({"matchLabels": {"a": "b"}});
    let object = |api_version: &str, kind: &str, rest: Value| {
        let mut object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}});
        if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
            object.extend(rest);
        }
        object.to_string().into_bytes()
    };
    vec![
        object("v1", "Pod", json!({"spec": pod})),
        object(
            "apps/v1",
            "Deployment",
            json!({"spec": {"selector": selector, "template": template, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"serviceName": "s", "selector": selector, "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        object(
            "batch/v1",
            "Job",
            json!({"spec": {"completions": 3, "completionMode": "Indexed", "template": template,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}}}),
        ),
        object(
            "v1",
            "Service",
            json!({"spec": {"type": "NodePort", "selector": {"a": "b"}, "clusterIP": "10.96.0.9",
            "ports": [{"port": 80, "nodePort": 30080, "targetPort": "http"}], "sessionAffinity": "ClientIP"}}),
        ),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "*.a.b", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
        ),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "egress": [{"to": [
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 1, "endPort": 2}]}]}}),
        ),
        object(
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "3", "requests.cpu": "1"}, "scopes": ["BestEffort"]}}),
        ),
        object(
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "1m"}}]}}),
        ),
        object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
                "averageUtilization": 50}}}]}}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        object(
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}}}}),
        ),
    ]
}
