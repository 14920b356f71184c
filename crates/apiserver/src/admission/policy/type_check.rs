//! What the types of the matched kinds say about the expressions of a policy. In: a policy. Out: warnings for its status, in the
//! words of kube-apiserver. They never change what the policy does: an expression that warns for one kind may be right for
//! another.
//!
//! In a cluster a controller of kube-controller-manager writes this status. Here the server does, so that it is there without
//! controllers, too.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use konverge_cel::{Composer, Declared};
use konverge_core::{GroupVersionKind, Status};
use konverge_store::{Range, Watch};

use super::GROUP;
use super::params::ParamKind;
use crate::decode::Decoded;
use crate::record;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::user::SystemUser;
use crate::write::WriteRequest;

/// How many kinds are looked at.
const MAX_TYPES: usize = 10;

/// How many changes are processed at once.
const BATCH: usize = 64;

/// The field manager of the status: the name of the controller in kube-controller-manager.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// Checks policies when they are created or changed, until the server closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: Receiver<bool>) {
    let Some(strong) = server.upgrade() else { return };
    let mut changes = begin(&strong).await;
    drop(strong);
    loop {
        tokio::select! {
            batch = changes.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                match batch {
                    Ok(batch) => {
                        let names: BTreeSet<String> = batch.iter().map(|change| name_of(&change.key)).collect();
                        for name in names {
                            check(&server, &name).await;
                        }
                    }
                    // The changes were compacted: everything is read again.
                    Err(_) => changes = begin(&server).await,
                }
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

fn policies(server: &Server) -> Arc<Resource> {
    server.registry.find(GROUP, "v1", "validatingadmissionpolicies").expect("policies are built in")
}

fn name_of(key: &str) -> String {
    key.rsplit_once('/').map_or(key, |(_, name)| name).to_owned()
}

/// Checks all policies, and follows what changes after that.
async fn begin(server: &Arc<Server>) -> Watch {
    let policies = policies(server);
    loop {
        let range = Range { prefix: &policies.storage.prefix, ..Range::default() };
        let page = server.store.range(range).expect("the newest revision is never compacted");
        for entry in &page.entries {
            check(server, &name_of(&entry.key)).await;
        }
        // An error if more was written and compacted in between: then everything is read again.
        if let Ok(changes) = server.store.watch(&policies.storage.prefix, page.revision) {
            return changes;
        }
    }
}

/// Writes the status of a policy, unless it has the status of this generation.
async fn check(server: &Arc<Server>, name: &str) {
    let resource = policies(server);
    let Ok(Some(entry)) = server.store.get(&resource.key(None, name), None) else { return };
    let policy = record::decode(&entry);
    let generation = policy["metadata"]["generation"].as_i64().unwrap_or_default();
    if generation <= policy["status"]["observedGeneration"].as_i64().unwrap_or_default() {
        return;
    }
    let asking = server.clone();
    // Expressions can be long, and threads that serve must not wait for them.
    let checking = tokio::task::spawn_blocking(move || warnings(&asking, &policy["spec"]));
    let warnings = checking.await.expect("checking types does not panic");
    let mut status = json!({"observedGeneration": generation, "typeChecking": {}});
    if !warnings.is_empty() {
        status["typeChecking"]["expressionWarnings"] = warnings.into();
    }
    let config = json!({
        "apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": {"name": name}, "status": status,
    });
    if let Err(status) = apply(server, &resource, name, config).await
        && status.code != 404
    {
        tracing::warn!(policy = name, why = status.message, "the status of a policy could not be written");
    }
}

async fn apply(server: &Server, resource: &Arc<Resource>, name: &str, config: Value) -> Result<(), Status> {
    let context = server.task_context(SystemUser::ApiServer);
    let write = WriteRequest {
        subresource: Subresource::Status,
        manager: MANAGER.to_owned(),
        ..server.internal_write(&context, resource)
    };
    let config = Decoded { value: config, duplicates: Vec::new() };
    write.apply(name, true, config, &mut Vec::new()).await.map(|_| ())
}

/// The warnings about the expressions of a policy.
fn warnings(server: &Server, spec: &Value) -> Vec<Value> {
    let kind = ParamKind::read(&spec["paramKind"]);
    let declared = Declared { params: kind.is_some(), authorizer: true, patches: false };
    let params = kind.and_then(|kind| kind.resource(server).ok());
    let typed = |resource: &Arc<Resource>| {
        let types = |of: &'_ Resource| (of.schema.arena.clone(), of.schema.root);
        let (object, params) = (types(resource), params.as_deref().map(types));
        let params = params.as_ref().map(|(arena, root)| (&**arena, *root));
        let mut composer = Composer::typed((&*object.0, object.1), params);
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            // One that does not fit has a type that fits everything.
            let _ = composer.define(text("name"), text("expression"), declared);
        }
        (resource.gvk(), composer)
    };
    let composers: Vec<(GroupVersionKind, Composer)> = matched(server, spec).iter().map(typed).collect();
    let mut warnings = Vec::new();
    for (at, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation[field].as_str().unwrap_or_default();
            if expression.is_empty() {
                continue;
            }
            let found: Vec<String> = composers
                .iter()
                .filter_map(|(gvk, composer)| {
                    let issues = composer.check(expression, declared).err()?;
                    Some(format!("{}/{}, Kind={}: {issues}\n", gvk.group, gvk.version, gvk.kind))
                })
                .collect();
            if !found.is_empty() {
                let place = format!("spec.validations[{at}].{field}");
                warnings.push(json!({"fieldRef": place, "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// The kinds that the rules of a policy name, by group, version and kind. Rules with wildcards name none.
fn matched(server: &Server, spec: &Value) -> Vec<Arc<Resource>> {
    let snapshot = server.registry.snapshot();
    let mut found: Vec<Arc<Resource>> = Vec::new();
    'rules: for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let texts = |field: &str| -> Vec<&str> {
            let mut texts: Vec<&str> = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for plural in texts("resources").iter().filter(|plural| !plural.contains(['*', '/'])) {
                    // The core group is as good as none: it stands for every group.
                    let named = |resource: &&Arc<Resource>| {
                        (group.is_empty() || *resource.group == **group)
                            && *resource.version == **version
                            && *resource.plural == **plural
                    };
                    for resource in snapshot.resources().iter().filter(named) {
                        if !found.iter().any(|known| known.gvk() == resource.gvk()) {
                            found.push(resource.clone());
                        }
                        count += 1;
                        if count == MAX_TYPES {
                            break 'rules;
                        }
                    }
                }
            }
        }
    }
    found.sort_by_key(|resource| (resource.group.clone(), resource.version.clone(), resource.kind.clone()));
    found
}
