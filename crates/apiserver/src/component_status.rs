//! The health of the control plane's parts, as `kubectl get componentstatuses` asks for it. In: the health of the store. Out: one
//! ComponentStatus for it, under the name that etcd has. There is no separate scheduler or controller manager to ask, so there
//! are none of these. Nothing is stored, and objects have no resource version.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use konverge_core::Status;
use konverge_store::Health;

use crate::request::Query;

/// The one component.
const STORE: &str = "etcd-0";

/// The component of this name.
pub(crate) fn get(name: &str, health: &Health) -> Result<Value, Status> {
    if name != STORE {
        return Err(Status::not_found("", "componentstatus", name));
    }
    Ok(of_store(health))
}

/// The components that the selectors of a query pass.
pub(crate) fn list(query: &Query, health: &Health) -> Result<Vec<Value>, Status> {
    let name = |field: &str| Cow::Borrowed(if field == "metadata.name" { STORE } else { "" });
    let passes = query.labels()?.matches(&BTreeMap::new()) && query.fields()?.matches(name);
    Ok(if passes { vec![of_store(health)] } else { Vec::new() })
}

fn of_store(health: &Health) -> Value {
    let condition = match health.problem() {
        None => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Some(problem) => json!({"type": "Healthy", "status": "False", "message": &**problem}),
    };
    let metadata = json!({"name": STORE});
    json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": metadata, "conditions": [condition]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_the_only_component() {
        let condition = |health: &Health| get(STORE, health).unwrap()["conditions"][0].clone();
        let failing = Health::Failing("the disk is full".into());
        assert_eq!(condition(&Health::Fine), json!({"type": "Healthy", "status": "True", "message": "ok"}));
        assert_eq!(condition(&failing), json!({"type": "Healthy", "status": "False", "message": "the disk is full"}));
        let missing = get("scheduler", &Health::Fine).unwrap_err();
        assert_eq!(missing.message, "componentstatus \"scheduler\" not found");
        for (query, expect) in [
            ("", 1),
            ("fieldSelector=metadata.name%3Detcd-0", 1),
            ("fieldSelector=metadata.name%3Dscheduler", 0),
            ("labelSelector=a", 0),
            ("labelSelector=!a", 1),
        ] {
            let listed = list(&Query::parse(Some(query)), &Health::Fine).unwrap();
            assert_eq!(listed.len(), expect, "{query}");
        }
    }
}
