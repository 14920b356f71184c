//! What writes are warned of. The texts are those of Kubernetes.

use serde_json::json;

use super::*;
use crate::builtin;

#[track_caller]
fn check(version: &str, kind: &str, old: Option<Value>, fields: Value, expect: &[&str]) {
    let served = builtin::served();
    let resource = served.iter().find(|resource| *resource.kind == *kind && resource.is_api_version(version)).unwrap();
    let object = |fields: Value| {
        let mut object = json!({"metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object
    };
    assert_eq!(of(resource, Subresource::Main, old.map(object).as_ref(), &object(fields)), expect);
}

#[test]
fn pods() {
    let pod = |spec| json!({"spec": spec});
    let cases = [
        (json!({"containers": [{"name": "a"}]}), vec![]),
        (
            json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "terminationGracePeriodSeconds": -1}),
            vec![
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ],
        ),
        (
            json!({"volumes": [{"name": "v", "gitRepo": {}}, {"name": "w", "configMap": {
                "name": "c", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y/"}]}}]}),
            vec![
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "volume \"w\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\"",
            ],
        ),
        (
            json!({"containers": [{
                "name": "a",
                "resources": {"limits": {"memory": "128m"}},
                "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "$(X)2"}, {"name": "X", "value": "3"}],
                "ports": [{"name": "p", "containerPort": 80, "protocol": "TCP"}],
            }, {"name": "b", "ports": [{"name": "p", "containerPort": 80, "protocol": "TCP"}]}]}),
            vec![
                "spec.containers[0].resources.limits[memory]: fractional byte value \"128m\" is invalid, must be an integer",
                "spec.containers[0].env[2]: hides previous definition of \"X\", which may be dropped when using apply",
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"p\" with spec.containers[0].ports[0], services and probes \
                 that select ports by name will use spec.containers[0].ports[0]",
            ],
        ),
        (
            json!({"hostAliases": [{"ip": "010.0.0.1"}, {"ip": "010.0.0.1"}], "dnsConfig": {"nameservers": ["1::0"]}}),
            vec![
                "spec.hostAliases[1].ip: duplicate ip \"010.0.0.1\"",
                "spec.dnsConfig.nameservers[0]: IPv6 address \"1::0\" should be in RFC 5952 canonical format (\"1::\")",
                "spec.hostAliases[0].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
                "spec.hostAliases[1].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
            ],
        ),
    ];
    for (spec, expect) in cases {
        check("v1", "Pod", None, pod(spec.clone()), &expect);
        check("v1", "Pod", Some(json!({})), pod(spec), &[]);
    }
    check(
        "v1",
        "Pod",
        None,
        json!({"metadata": {"name": "a.b"}}),
        &[
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
           recommended: [must not contain dots]",
        ],
    );
}

#[test]
fn templates_are_looked_at_when_they_change() {
    let deployment = |generation: i64| {
        let template = json!({"spec": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}});
        json!({"metadata": {"name": "a", "generation": generation}, "spec": {"template": template}})
    };
    let expect = ["spec.template.spec.nodeSelector[node-role.kubernetes.io/master]: \
                   use \"node-role.kubernetes.io/control-plane\" instead"];
    check("apps/v1", "Deployment", None, deployment(1), &expect);
    check("apps/v1", "Deployment", Some(deployment(1)), deployment(2), &expect);
    check("apps/v1", "Deployment", Some(deployment(1)), deployment(1), &[]);
}

#[test]
fn other_kinds() {
    check(
        "v1",
        "Service",
        None,
        json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"],
                        "loadBalancerSourceRanges": ["10.0.0.1/8"]}}),
        &[
            "spec.externalIPs is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
            "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \
             \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
        ],
    );
    check(
        "v1",
        "ResourceQuota",
        None,
        json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1"}}}),
        &["ResourceQuota cpu (2) should be less than limits.cpu (1)"],
    );
    check(
        "v1",
        "Secret",
        None,
        json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "eA==", "tls.key": "eA=="}}),
        &["tls: failed to find any PEM data in certificate input"],
    );
    check(
        "networking.k8s.io/v1",
        "Ingress",
        None,
        json!({"metadata": {"name": "a", "annotations": {INGRESS_CLASS: "nginx"}}}),
        &["annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"],
    );
    check(
        "storage.k8s.io/v1",
        "StorageClass",
        None,
        json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone"}]}]}),
        &[
            "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17; use \"topology.kubernetes.io/zone\" \
           instead",
        ],
    );
}
