//! What an administrator applies for an operator with webhooks: the configurations, a Service, and the rules for certificates. In:
//! webhooks and settings. Out: manifests, as `--print-webhooks` prints them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceConversion;
use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE};
use serde_json::{Value, json};

use super::configuration::{Address, Registration, configurations};
use super::conversion::strategy;
use super::registration::{Place, Served};
use crate::settings::{BindAddress, Settings};
use crate::versions::Versions;

/// The manifests of these webhooks; none if there are none. The configurations have no CAs: the operator fills them in.
pub(crate) fn manifests(webhooks: &[Served], versions: &[Versions], settings: &Settings) -> Vec<Value> {
    if webhooks.is_empty() && versions.is_empty() {
        return Vec::new();
    }
    let place = Place::of(settings, settings.home());
    let registration =
        Registration { operator: &place.operator, home: &place.home, address: &place.address, ca_bundle: None };
    let specs: Vec<_> = webhooks.iter().map(|served| served.webhook.spec()).collect();
    let mut manifests = configurations(&specs, &registration);
    if let Address::Service { namespace, name } = &place.address {
        manifests.push(service(namespace, name, settings));
    }
    if settings.webhook.cert_dir.is_none() {
        manifests.extend(rules(&place, versions, settings));
    }
    manifests
}

/// How API servers convert objects of kinds with several versions, before the operator has filled in its CAs.
pub(crate) fn conversion(settings: &Settings) -> Option<CustomResourceConversion> {
    let place = Place::of(settings, settings.home());
    let registration =
        Registration { operator: &place.operator, home: &place.home, address: &place.address, ca_bundle: None };
    serde_json::from_value(strategy(&registration)).ok()
}

/// It selects Pods by the label that `app.kubernetes.io` recommends.
fn service(namespace: &str, name: &str, settings: &Settings) -> Value {
    let port = match settings.webhook.address {
        BindAddress::All(port) => port,
        BindAddress::At(address) => address.port(),
        BindAddress::Off => 9443,
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"app.kubernetes.io/name": settings.name},
            "ports": [{"name": "webhook", "port": 443, "targetPort": port, "protocol": "TCP"}],
        },
    })
}

/// One Secret, the operator's own configurations, and its CRDs with several versions. A role cannot limit what is created by name, so that the Secret may be
/// created is a rule of its own. Certificates are renewed after months, so the roles are marked: nobody takes these rights away because a short run
/// did not use them.
fn rules(place: &Place, versions: &[Versions], settings: &Settings) -> Vec<Value> {
    let (home, name) = (&place.home, format!("{}-webhook", place.operator));
    let account = json!([{"kind": "ServiceAccount", "name": settings.name, "namespace": home}]);
    let group = "rbac.authorization.k8s.io";
    let role = |kind: &str, metadata: &Value, rules: Value| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": metadata, "rules": rules});
    let binding = |kind: &str, metadata: &Value| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name}, "subjects": account,
        })
    };
    let secrets = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [place.secret], "verbs": ["get", "update"]},
    ]);
    let mut configurations = vec![json!({
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        // An apply that finds no configuration creates it, under its name.
        "resourceNames": [place.operator], "verbs": ["create", "get", "patch"],
    })];
    if !versions.is_empty() {
        let names: Vec<String> = versions.iter().map(Versions::definition_name).collect();
        configurations.push(json!({
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions", "customresourcedefinitions/status"],
            "resourceNames": names, "verbs": ["get", "patch"],
        }));
    }
    let (inside, outside) = (json!({"name": name, "namespace": home}), json!({"name": name}));
    let kept = |metadata: &Value| {
        let mut metadata = metadata.clone();
        metadata["annotations"] = json!({KEEP_RIGHTS: KEEP_RIGHTS_VALUE});
        metadata
    };
    vec![
        role("Role", &kept(&inside), secrets),
        binding("Role", &inside),
        role("ClusterRole", &kept(&outside), configurations.into()),
        binding("ClusterRole", &outside),
    ]
}
