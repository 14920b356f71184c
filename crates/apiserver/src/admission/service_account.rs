//! ServiceAccount: a pod runs as an account that exists, with the account's token, pull secrets and limits.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, items_mut, lookup};
use crate::meta;
use crate::subresource::Subresource;

const ACCOUNTS: lookup::Kind = ("", "serviceaccounts");

/// The account of pods that name none.
const DEFAULT: &str = "default";

/// How often the account `default` is looked up: a controller creates it soon after its namespace. As in kube-apiserver,
/// which waits between 100 and 200 ms in between.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// What the names of token volumes begin with, and where the token is mounted.
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a token is valid. Clients renew it every hour; this long it goes on working for those that do not.
const TOKEN_SECONDS: i64 = 60 * 60 + 7;

/// The annotation of pods that a kubelet has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The lists of containers, and what messages call their items.
const CONTAINERS: [(&str, &str); 2] = [("initContainers", "init container"), ("containers", "container")];
const EPHEMERAL_CONTAINERS: [(&str, &str); 1] = [("ephemeralContainers", "ephemeral container")];

/// The annotation of accounts whose pods may only use the account's own secrets.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    metadata: AccountMetadata,
    automount_service_account_token: Option<bool>,
    #[serde(default)]
    image_pull_secrets: Vec<Reference>,
    #[serde(default)]
    secrets: Vec<Reference>,
}

#[derive(Deserialize)]
struct AccountMetadata {
    name: String,
    #[serde(default)]
    annotations: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    name: String,
}

pub(super) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "", "pods") || adds_containers(attributes)
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        if adds_containers(attributes) {
            return decided(Ok(()));
        }
        Box::pin(async move {
            // A kubelet deletes a mirror pod that differs from its file.
            if is_mirror(pod) {
                return check_mirror(attributes, pod);
            }
            if account_name(pod).is_empty() {
                pod["spec"]["serviceAccountName"] = DEFAULT.into();
                pod["spec"]["serviceAccount"] = DEFAULT.into();
            }
            let account = find(attributes, account_name(pod)).await?;
            let automount = pod["spec"]["automountServiceAccountToken"].as_bool();
            if automount.or(account.automount_service_account_token).unwrap_or(true) {
                mount_token(pod, attributes.server.env.random());
            }
            let secrets = &pod["spec"]["imagePullSecrets"];
            if secrets.as_array().is_none_or(Vec::is_empty) && !account.image_pull_secrets.is_empty() {
                let secrets = account.image_pull_secrets.iter().map(|secret| json!({"name": secret.name}));
                pod["spec"]["imagePullSecrets"] = secrets.collect();
            }
            Ok(())
        })
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        Box::pin(async move {
            let adds_containers = adds_containers(attributes);
            if is_mirror(pod) && !adds_containers {
                return check_mirror(attributes, pod);
            }
            let (namespace, name) = (attributes.namespace.unwrap_or_default(), account_name(pod));
            if name.is_empty() {
                let why = format!("no service account specified for pod {namespace}/{}", meta::text(pod, "name"));
                return Err(attributes.forbidden(why));
            }
            let account = find(attributes, name).await?;
            let foreign = match adds_containers {
                true => container_with_foreign_secret(&account, &pod["spec"], &EPHEMERAL_CONTAINERS),
                false => uses_foreign_secret(&account, &pod["spec"]),
            };
            match foreign {
                Some(why) if account.is_enforcing() => Err(attributes.forbidden(why)),
                _ => Ok(()),
            }
        })
    }
}

/// Whether an update adds containers to a pod that runs.
fn adds_containers(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource == Subresource::EphemeralContainers
        && (&*attributes.resource.group, &*attributes.resource.plural) == ("", "pods")
}

impl Account {
    fn is_enforcing(&self) -> bool {
        let value = self.metadata.annotations.get(ENFORCE).and_then(Value::as_str);
        matches!(value, Some("1" | "t" | "T" | "TRUE" | "true" | "True"))
    }

    /// The secret that a reference names, if it is none of the account's.
    fn lacks<'r>(&self, reference: &'r Value, field: &str) -> Option<&'r str> {
        let name = reference[field].as_str().unwrap_or_default();
        (reference.is_object() && self.secrets.iter().all(|secret| secret.name != name)).then_some(name)
    }

    /// Why such a secret is refused.
    fn because(&self) -> String {
        let name = &self.metadata.name;
        format!("is not allowed because service account {name} does not reference that secret")
    }
}

/// Why a container of one of these lists uses a secret that its account does not name.
fn container_with_foreign_secret(account: &Account, spec: &Value, lists: &[(&str, &str)]) -> Option<String> {
    let because = account.because();
    for (field, kind) in lists {
        for container in list(spec, field) {
            let this = container["name"].as_str().unwrap_or_default();
            for env in list(container, "env") {
                if let Some(secret) = account.lacks(&env["valueFrom"]["secretKeyRef"], "name") {
                    let variable = env["name"].as_str().unwrap_or_default();
                    return Some(format!(
                        "{kind} {this} with envVar {variable} referencing secret.secretName=\"{secret}\" {because}"
                    ));
                }
            }
            for from in list(container, "envFrom") {
                if let Some(secret) = account.lacks(&from["secretRef"], "name") {
                    return Some(format!(
                        "{kind} {this} with envFrom referencing secret.secretName=\"{secret}\" {because}"
                    ));
                }
            }
        }
    }
    None
}

fn account_name(pod: &Value) -> &str {
    pod["spec"]["serviceAccountName"].as_str().unwrap_or_default()
}

fn is_mirror(pod: &Value) -> bool {
    meta::of(pod).get("annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// The account of this name. The account `default` may be created at this moment, so it is waited for.
async fn find(attributes: &Attributes<'_>, name: &str) -> Result<Account, Status> {
    let attempts = if name == DEFAULT { ATTEMPTS } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if let Some((_, account)) = lookup::get(attributes.server, ACCOUNTS, attributes.namespace, name)? {
            return Ok(account);
        }
    }
    let namespace = attributes.namespace.unwrap_or_default();
    let missing = Status::not_found("", "serviceaccount", name).message;
    Err(attributes.forbidden(format!("error looking up service account {namespace}/{name}: {missing}")))
}

/// Mounts a token into every container that mounts nothing else there.
fn mount_token(pod: &mut Value, random: u128) {
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let there = volumes.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with(VOLUME_PREFIX));
    let (name, exists) = match there {
        Some(name) => (name.to_owned(), true),
        None => (format!("{VOLUME_PREFIX}{}", meta::suffix(random)), false),
    };
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().all(|mount| mount["mountPath"] != MOUNT_PATH) {
                let own = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
                container["volumeMounts"] = mounts.into_iter().chain([own]).collect();
                needed = true;
            }
        }
    }
    if needed && !exists {
        let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        spec["volumes"] = volumes.into_iter().chain([token_volume(&name)]).collect();
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

fn list<'s>(value: &'s Value, field: &str) -> impl Iterator<Item = &'s Value> {
    value[field].as_array().into_iter().flatten()
}

fn check_mirror(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let spec = &pod["spec"];
    if !account_name(pod).is_empty() {
        return Err(attributes.forbidden("a mirror pod may not reference service accounts"));
    }
    if uses_secrets(spec) {
        return Err(attributes.forbidden("a mirror pod may not reference secrets"));
    }
    let projected = list(spec, "volumes").flat_map(|volume| list(&volume["projected"], "sources"));
    if projected.into_iter().any(|source| source["serviceAccountToken"].is_object()) {
        return Err(attributes.forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

/// Whether a pod names a secret anywhere.
fn uses_secrets(spec: &Value) -> bool {
    let containers = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let of_container = |container: &Value| {
        list(container, "env").any(|env| env["valueFrom"]["secretKeyRef"].is_object())
            || list(container, "envFrom").any(|from| from["secretRef"].is_object())
    };
    // The kinds of volumes that have a field `secretRef`, all in one place.
    let of_volume = |volume: &Value| {
        volume["secret"].is_object()
            || volume["azureFile"]["secretName"].is_string()
            || volume["csi"]["nodePublishSecretRef"].is_object()
            || list(&volume["projected"], "sources").any(|source| source["secret"].is_object())
            || volume.as_object().into_iter().flatten().any(|(_, source)| source["secretRef"].is_object())
    };
    list(spec, "imagePullSecrets").next().is_some()
        || containers.flat_map(|field| list(spec, field)).any(of_container)
        || list(spec, "volumes").any(of_volume)
}

/// Why a pod uses a secret that its account does not name.
fn uses_foreign_secret(account: &Account, spec: &Value) -> Option<String> {
    let name = &account.metadata.name;
    for volume in list(spec, "volumes") {
        if let Some(secret) = account.lacks(&volume["secret"], "secretName") {
            return Some(format!("volume with secret.secretName=\"{secret}\" {}", account.because()));
        }
    }
    if let Some(why) = container_with_foreign_secret(account, spec, &CONTAINERS) {
        return Some(why);
    }
    let own = |secrets: &[Reference], name: &str| secrets.iter().any(|secret| secret.name == name);
    for (at, reference) in list(spec, "imagePullSecrets").enumerate() {
        let secret = reference["name"].as_str().unwrap_or_default();
        if !own(&account.image_pull_secrets, secret) {
            return Some(format!(
                "imagePullSecrets[{at}].name=\"{secret}\" is not allowed because service account {name} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    None
}
