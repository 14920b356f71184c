//! Keeps the initial objects, and the conditions of all FlowSchemas. In: time, and changes of both kinds. Out: writes of these
//! objects. What a user has changed of a suggested object stays.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch::Receiver;

use konverge_core::Status;
use konverge_schema::Budget;
use konverge_store::{Range, Watch};

use super::{AUTO_UPDATE, Initial, LEVELS, SCHEMAS, resource, spec_writer, status_of, status_writer, table};
use crate::decode::Decoded;
use crate::delete::{DeleteOptions, Deletion};
use crate::meta;
use crate::record;
use crate::resource::Resource;
use crate::server::Server;
use crate::user::SystemUser;

/// How often the initial objects are compared with what they should be: as often as in kube-apiserver.
const EVERY: Duration = Duration::from_secs(60);

/// How many changes are processed at once.
const BATCH: usize = 256;

/// Where the keys of both kinds begin.
const PREFIX: &str = "/registry/flowcontrol.apiserver.k8s.io/";

/// Keeps the objects until the server closes.
pub(crate) async fn run(server: Weak<Server>, mut closing: Receiver<bool>) {
    let Some(strong) = server.upgrade() else { return };
    let mut changes = follow(&strong).await;
    drop(strong);
    // The start of the server has created what did not exist, and what exists is looked at right away.
    let mut clock = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = clock.tick() => {
                let Some(server) = server.upgrade() else { return };
                for (plural, initial) in [(LEVELS, table::levels()), (SCHEMAS, table::schemas())] {
                    ensure(&server, &resource(&server, plural), &initial).await;
                }
            }
            batch = changes.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                match batch {
                    Ok(_) => set_conditions(&server).await,
                    // The changes were compacted: everything is looked at again.
                    Err(_) => changes = follow(&server).await,
                }
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

async fn follow(server: &Arc<Server>) -> Watch {
    loop {
        let from = server.store.revision();
        set_conditions(server).await;
        // Fails only if everything up to here was compacted in the meantime.
        if let Ok(changes) = server.store.watch(PREFIX, from) {
            return changes;
        }
    }
}

/// All stored objects of a kind.
fn stored(server: &Server, resource: &Resource) -> Vec<Value> {
    let range = Range { prefix: &resource.storage.prefix, ..Range::default() };
    let page = server.store.range(range).expect("the newest revision can always be read");
    page.entries.iter().map(record::decode).collect()
}

/// Says of every FlowSchema whether its priority level exists.
async fn set_conditions(server: &Arc<Server>) {
    let (levels, schemas) = (resource(server, LEVELS), resource(server, SCHEMAS));
    let mut known: HashSet<String> =
        stored(server, &levels).iter().map(|level| meta::text(level, "name").to_owned()).collect();
    // The server would work with these levels, if they were deleted, as if they were there.
    known.extend([table::EXEMPT, table::CATCH_ALL].map(str::to_owned));
    let context = server.task_context(SystemUser::ApiServer);
    for schema in stored(server, &schemas) {
        let name = meta::text(&schema, "name");
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        let value = status_of(server, &schemas, name, &schema["spec"], known.contains(level));
        if says(&schema, &value["status"]["conditions"][0]) {
            continue;
        }
        let sent = Decoded { value, duplicates: Vec::new() };
        let written = status_writer(server, &context, &schemas).apply(name, true, sent, &mut Vec::new()).await;
        report(&schemas, name, written.err());
    }
}

/// Whether an object has a condition like this one already. The time of its last transition does not count.
fn says(schema: &Value, wanted: &Value) -> bool {
    let conditions = schema["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == wanted["type"]);
    found.is_some_and(|found| ["status", "reason", "message"].iter().all(|field| found[field] == wanted[field]))
}

/// Creates, corrects and removes initial objects of a kind.
async fn ensure(server: &Arc<Server>, resource: &Arc<Resource>, initial: &[Initial]) {
    let context = server.task_context(SystemUser::ApiServer);
    let write = spec_writer(server, &context, resource);
    let stored = stored(server, resource);
    for initial in initial {
        let current = stored.iter().find(|object| meta::text(object, "name") == initial.name);
        let written = match current.map(|current| revised(current, initial)) {
            Some(None) => continue,
            Some(Some(value)) => {
                let sent = Decoded { value, duplicates: Vec::new() };
                write.replace(initial.name, sent, &mut Vec::new()).await.err()
            }
            None => {
                let sent = Decoded { value: super::object(resource, initial), duplicates: Vec::new() };
                write.create(sent, &mut Vec::new()).await.err()
            }
        };
        report(resource, initial.name, written);
    }
    for object in &stored {
        let name = meta::text(object, "name");
        // Nobody but an older server makes objects that it would update and that are no initial ones any more.
        if switch(object) != Some(true) || initial.iter().any(|initial| initial.name == name) {
            continue;
        }
        let options = &DeleteOptions::default();
        let deletion = Deletion {
            server,
            context: &context,
            resource,
            options,
            admitted: false,
            collection: false,
            warnings: None,
        };
        report(resource, name, deletion.run(None, name, Budget::unlimited()).await.err());
    }
}

/// What becomes of an initial object that exists; nothing if it is as it should be.
fn revised(current: &Value, initial: &Initial) -> Option<Value> {
    let untouched = || current["metadata"]["generation"] == 1;
    let keeps_spec = initial.mandatory || switch(current).unwrap_or_else(untouched);
    let mut revised = current.clone();
    if keeps_spec && !is_as_expected(&current["spec"], initial) {
        revised["spec"] = initial.spec.clone();
    }
    if switch(current) != Some(keeps_spec) {
        revised["metadata"]["annotations"][AUTO_UPDATE] = keeps_spec.to_string().into();
    }
    (revised != *current).then_some(revised)
}

/// Whether a spec is that of the initial object. The numbers of the level without limits are its users' to choose.
fn is_as_expected(spec: &Value, initial: &Initial) -> bool {
    let mut expected = initial.spec.clone();
    if expected["exempt"].is_object() && spec["exempt"].is_object() {
        expected["exempt"] = spec["exempt"].clone();
    }
    *spec == expected
}

/// What the annotation says, as Go reads a switch.
fn switch(object: &Value) -> Option<bool> {
    match object["metadata"]["annotations"][AUTO_UPDATE].as_str()? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Logs what went wrong. After a minute, or the next change, everything is tried again.
fn report(resource: &Resource, name: &str, error: Option<Status>) {
    let Some(error) = error else { return };
    // Somebody else was faster.
    if !matches!(error.code, 404 | 409) {
        let kind = &resource.kind;
        tracing::warn!(%kind, name, error = error.message, "an object that every cluster has cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_users_changed_stays_unless_it_is_mandatory() {
        let level = |name: &str| table::levels().into_iter().find(|level| level.name == name).unwrap();
        let object = |switch: Option<&str>, generation: u64, spec: &Value| {
            let mut object = json!({"metadata": {"generation": generation, "annotations": {}}, "spec": spec});
            if let Some(switch) = switch {
                object["metadata"]["annotations"][AUTO_UPDATE] = switch.into();
            }
            object
        };
        let (suggested, mandatory, exempt) = (level("system"), level("catch-all"), level("exempt"));
        let (new, old) = (&suggested.spec, &json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 1}}));
        let shares = &json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 9, "lendablePercent": 5}});
        for (initial, current, expect) in [
            (&suggested, object(Some("true"), 1, new), None),
            (&suggested, object(Some("true"), 7, old), Some(object(Some("true"), 7, new))),
            (&suggested, object(Some("false"), 1, old), None),
            (&suggested, object(None, 1, old), Some(object(Some("true"), 1, new))),
            (&suggested, object(None, 2, old), Some(object(Some("false"), 2, old))),
            (&suggested, object(Some("maybe"), 2, new), Some(object(Some("false"), 2, new))),
            (&mandatory, object(Some("false"), 2, old), Some(object(Some("true"), 2, &mandatory.spec))),
            (&exempt, object(Some("true"), 2, shares), None),
        ] {
            assert_eq!(revised(&current, initial), expect, "{} {current}", initial.name);
        }
    }
}
