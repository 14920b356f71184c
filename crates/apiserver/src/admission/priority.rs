//! Priority: a pod gets the number and the preemption policy of its PriorityClass, and only one class can be the default. The
//! two classes of system pods exist from the start.

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::Status;
use konverge_store::CommitError;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::commit::create_missing;
use crate::meta;
use crate::resource::Resource;
use crate::server::Server;

const CLASSES: lookup::Kind = ("scheduling.k8s.io", "priorityclasses");

/// The classes that every cluster has: name, value, description.
const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// The priority of a pod without a class, if there is no default class.
const NO_CLASS: PriorityClass = PriorityClass { name: String::new(), value: 0, policy: None };

/// What pods do to others if their class does not say.
const PREEMPTS: &str = "PreemptLowerPriority";

/// Refuses to delete the class of system pods. kube-apiserver lets the deletion of a whole collection pass.
pub(crate) fn check_deletion(resource: &Resource, name: &str) -> Result<(), Status> {
    let (group, plural) = CLASSES;
    let is_class = *resource.group == *group && *resource.plural == *plural;
    if is_class && SYSTEM_CLASSES.iter().any(|(known, ..)| *known == name) {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(group, plural, name, why));
    }
    Ok(())
}

/// Creates the classes of system pods.
pub(crate) async fn create_initial(server: &Server) -> Result<(), CommitError> {
    let (group, plural) = CLASSES;
    let resource = &server.registry.find(group, "v1", plural).expect("priority classes are built in");
    let objects = SYSTEM_CLASSES.map(|(name, value, description)| {
        json!({
            "apiVersion": resource.api_version(), "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": PREEMPTS,
        })
    });
    create_missing(server, resource, objects).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredClass {
    metadata: Metadata,
    #[serde(default)]
    value: i64,
    #[serde(default)]
    global_default: bool,
    preemption_policy: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// What a pod gets of its class.
struct PriorityClass {
    name: String,
    value: i64,
    policy: Option<String>,
}

impl From<StoredClass> for PriorityClass {
    fn from(stored: StoredClass) -> Self {
        Self { name: stored.metadata.name, value: stored.value, policy: stored.preemption_policy }
    }
}

pub(super) struct Priority;

impl Plugin for Priority {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let about = attributes.is_about("", "pods") || attributes.is_about(CLASSES.0, CLASSES.1);
        about && attributes.operation != Operation::Delete
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(match (attributes.is_about("", "pods"), attributes.old) {
            (false, _) => Ok(()),
            (true, Some(old)) => {
                keep(old, object);
                Ok(())
            }
            (true, None) => prioritize(attributes, object),
        })
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        let about_class = attributes.is_about(CLASSES.0, CLASSES.1);
        decided(if about_class { only_default(attributes, object) } else { Ok(()) })
    }
}

/// An update that leaves out the priority keeps it.
fn keep(old: &Value, pod: &mut Value) {
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}

fn prioritize(attributes: &Attributes<'_>, pod: &mut Value) -> Result<(), Status> {
    let spec = &mut pod["spec"];
    let class = match spec["priorityClassName"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => match lookup::get::<StoredClass>(attributes.server, CLASSES, None, name)? {
            Some((_, class)) => class.into(),
            None => return Err(attributes.forbidden(format!("no PriorityClass with name {name} was found"))),
        },
        None => {
            let default = default_class(attributes)?;
            default.map_or(PriorityClass { policy: Some(PREEMPTS.into()), ..NO_CLASS }, PriorityClass::from)
        }
    };
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != class.value) {
        let computed = class.value;
        return Err(attributes.forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {computed} from the given PriorityClass name"
        )));
    }
    if !class.name.is_empty() {
        spec["priorityClassName"] = class.name.into();
    }
    spec["priority"] = class.value.into();
    if let Some(policy) = class.policy {
        if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
            return Err(attributes.forbidden(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            )));
        }
        spec["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// The default class. If writes at the same time have made several, the one with the lowest value counts.
fn default_class(attributes: &Attributes<'_>) -> Result<Option<StoredClass>, Status> {
    let classes = lookup::list::<StoredClass>(attributes, CLASSES, None)?;
    Ok(classes.into_iter().map(|(_, class)| class).filter(|class| class.global_default).min_by_key(|class| class.value))
}

fn only_default(attributes: &Attributes<'_>, class: &Value) -> Result<(), Status> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    match default_class(attributes)? {
        Some(other) if attributes.old.is_none() || other.metadata.name != meta::text(class, "name") => {
            let name = other.metadata.name;
            let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
            Err(attributes.forbidden(why))
        }
        _ => Ok(()),
    }
}
