//! Nobody gives more rights than they have. In: a role or binding as it is about to be stored, and who writes it. Out: nothing,
//! or the refusal. Members of `system:masters`, and users who may `escalate` the role or `bind` it, may write any.

use serde::de::DeserializeOwned;
use serde_json::Value;

use konverge_core::{Status, from_stored_value};
use konverge_schema::go_quote;

use crate::authorize::{Attributes, Authorizer, Decision, ResourceAttributes};
use crate::meta;
use crate::user::MASTERS;
use crate::work::over_budget;
use crate::write::WriteRequest;

use super::GROUP;
use super::rule::{self, Rule};
use super::stored::{RoleRef, StoredBinding, StoredRole};

/// Refuses a role or binding that gives rights which its writer does not have. `old` is the object before an update, `name` is
/// empty while a new object has none.
pub(crate) async fn check(
    write: &WriteRequest<'_>,
    name: &str,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), Status> {
    let resource = write.resource;
    let user = &write.context.user;
    if &*resource.group != GROUP || user.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    if old.is_some_and(|old| changes_only_ownership(old, object)) {
        return Ok(());
    }
    match &*resource.plural {
        "roles" | "clusterroles" => {
            let url_name = if old.is_some() { name } else { "" };
            if allowed(write, "escalate", GROUP, &resource.plural, url_name).await {
                return Ok(());
            }
            let role: StoredRole = read(object);
            confirm(write, name, &role.rules)?;
            let before = old.map(read::<StoredRole>);
            let aggregates = |role: &StoredRole| role.aggregates.as_ref().is_some_and(|list| !list.is_empty());
            // Who sets what a role collects can collect anything, and who takes it away keeps what was collected.
            if (aggregates(&role) || before.as_ref().is_some_and(aggregates))
                && confirm(write, name, &Rule::everything()).is_err()
            {
                write.budget.check().map_err(over_budget)?;
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Status::forbidden(GROUP, &resource.plural, name, why));
            }
            Ok(())
        }
        _ => {
            let RoleRef { api_group, kind, name: role } = read::<StoredBinding>(object).role_ref;
            let (plural, namespace) = match &*kind {
                "ClusterRole" => ("clusterroles", ""),
                "Role" => ("roles", write.namespace.unwrap_or_default()),
                // Validation refuses it.
                _ => return Ok(()),
            };
            if allowed(write, "bind", &api_group, plural, &role).await {
                return Ok(());
            }
            let rules = {
                let index = write.server.rbac.index.read();
                index.role(namespace, &role).map(|found| found.rules.clone())
            };
            // The answer names the resource of the request, as in kube-apiserver.
            let absent = || Status::not_found(GROUP, &resource.plural, &role);
            confirm(write, name, &rules.ok_or_else(absent)?)
        }
    }
}

/// Whether an update changes only what garbage collection needs.
fn changes_only_ownership(old: &Value, new: &Value) -> bool {
    let mut new = new.clone();
    for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
        match meta::of(old).get(field) {
            Some(value) => meta::of_mut(&mut new).insert(field.into(), value.clone()),
            None => meta::of_mut(&mut new).remove(field),
        };
    }
    new == *old
}

/// Whether the writer has an explicit right, in the namespace of the request.
async fn allowed(write: &WriteRequest<'_>, verb: &str, group: &str, plural: &str, name: &str) -> bool {
    let namespace = write.namespace.unwrap_or_default();
    let resource = ResourceAttributes { group, version: "*", resource: plural, namespace, name, ..Default::default() };
    let attributes = Attributes { user: &write.context.user, verb, path: "", resource: Some(resource) };
    matches!(write.server.authorizer.authorize(attributes).await, Decision::Allow { .. })
}

/// Refuses rules that the writer does not have.
fn confirm(write: &WriteRequest<'_>, name: &str, rules: &[Rule]) -> Result<(), Status> {
    let user = &write.context.user;
    let (held, errors) = write.server.rbac.rules_of(user, write.namespace.unwrap_or_default());
    let missing = rule::missing_within(&held, rules, write.budget).map_err(over_budget)?;
    if missing.rights.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go_quote(&user.name),
        rule::quoted(&user.groups),
        rule::describe(&missing.rights).join("\n")
    );
    if missing.left_out > 0 {
        why.push_str(&format!("\nand up to {} more", missing.left_out));
    }
    if let Some(errors) = errors {
        why.push_str(&format!("; resolution errors: [{errors}]"));
    }
    Err(Status::forbidden(GROUP, &write.resource.plural, name, &why))
}

/// The part of an object that counts here. An object of wrong types gives nothing, and validation refuses it.
fn read<T: Default + DeserializeOwned>(object: &Value) -> T {
    from_stored_value(object).unwrap_or_default()
}
