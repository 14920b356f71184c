//! Aggregated cluster roles: their rules are those of the cluster roles that their selectors find. In: changes of roles. Out:
//! server-side applies of rules, by the name of the controller that does this in a cluster.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use konverge_store::Watch;

use crate::decode::Decoded;
use crate::server::{Aggregation, Server};
use crate::user::SystemUser;

use super::index::{Index, Role};
use super::rule::Rule;
use super::{GROUP, PREFIX, catch_up};

/// How many changes are processed at once.
const BATCH: usize = 256;

const MANAGER: &str = "clusterrole-aggregation-controller";

/// Follows roles and bindings, and keeps the rules of aggregated cluster roles right, until the server closes.
pub(crate) async fn run(server: Weak<Server>, mut closing: Receiver<bool>, aggregation: Aggregation) {
    let Some(strong) = server.upgrade() else { return };
    let mut changes = begin(&strong, aggregation).await;
    drop(strong);
    loop {
        tokio::select! {
            batch = changes.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                match batch {
                    Ok(_) => process(&server, aggregation).await,
                    // The changes were compacted: everything is looked at again.
                    Err(_) => changes = begin(&server, aggregation).await,
                }
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

async fn begin(server: &Arc<Server>, aggregation: Aggregation) -> Watch {
    loop {
        let from = server.store.revision();
        process(server, aggregation).await;
        // Fails only if everything up to here was compacted in the meantime.
        if let Ok(changes) = server.store.watch(PREFIX, from) {
            return changes;
        }
    }
}

async fn process(server: &Arc<Server>, aggregation: Aggregation) {
    catch_up(server);
    if aggregation == Aggregation::Elsewhere {
        return;
    }
    let outdated = outdated(&server.rbac.index.read());
    for (name, rules) in outdated {
        apply(server, &name, &rules).await;
    }
}

/// The aggregated cluster roles whose rules are not what they should be, with the rules they should have.
fn outdated(index: &Index) -> Vec<(Box<str>, Vec<Rule>)> {
    let mut roles: Vec<&Role> = index.cluster_roles().collect();
    if roles.iter().all(|role| role.aggregates.is_none()) {
        return Vec::new();
    }
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    let outdated = roles.iter().filter_map(|role| {
        let rules = aggregated(role, &roles)?;
        (rules != role.rules).then(|| (role.name.clone(), rules))
    });
    outdated.collect()
}

/// The rules of aggregated cluster roles when there is nothing left to collect: one may collect what another has collected.
pub(super) fn settled(mut index: Index) -> HashMap<Box<str>, Vec<Rule>> {
    let mut settled = HashMap::new();
    loop {
        let outdated = outdated(&index);
        // Roles that collect each other's rules settle, too: rules are only added.
        if outdated.is_empty() {
            return settled;
        }
        for (name, rules) in outdated {
            index.set_rules("", &name, rules.clone());
            settled.insert(name, rules);
        }
    }
}

/// The rules that an aggregated cluster role gets of others, which are in the order of their names.
fn aggregated(role: &Role, all: &[&Role]) -> Option<Vec<Rule>> {
    let mut rules: Vec<Rule> = Vec::new();
    for selector in role.aggregates.as_ref()? {
        let selected = all.iter().filter(|other| other.name != role.name && selector.matches(&other.labels));
        for rule in selected.flat_map(|other| &other.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

async fn apply(server: &Arc<Server>, name: &str, rules: &[Rule]) {
    let resource = server.registry.find(GROUP, "v1", "clusterroles").expect("cluster roles are built in");
    let context = server.task_context(SystemUser::AggregationController);
    let mut write = server.internal_write(&context, &resource);
    write.manager = MANAGER.to_owned();
    let value: Value = json!({
        "apiVersion": resource.api_version(), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let sent = Decoded { value, duplicates: Vec::new() };
    if let Err(status) = write.apply(name, true, sent, &mut Vec::new()).await {
        // The next change of a role tries again.
        tracing::warn!(name, error = status.message, "the rules of an aggregated cluster role cannot be written");
    }
}
