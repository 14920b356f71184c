//! Eviction: a deletion that respects the pod's disruption budget. In: an `Eviction`. Out: a pod that is being deleted, and one
//! disruption less in the budget; 429 when the budget has none left.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::{LabelSelector, Status};
use konverge_store::Range;

use super::{SentKind, admit, read, receive};
use crate::conditions;
use crate::context::RequestContext;
use crate::decode::Decoded;
use crate::delete::{DeleteOptions, Deletion};
use crate::env::rfc3339;
use crate::meta;
use crate::subresource::Subresource;
use crate::write::{WriteOutcome, WriteRequest};

/// How often an eviction is tried again after a conflict.
const ATTEMPTS: usize = 20;

/// How many evictions may be approved that the disruption controller has not confirmed yet.
const MAX_DISRUPTED_PODS: usize = 2000;

/// How long a client should wait for a budget that is not up to date.
const RETRY_SECONDS: u32 = 10;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Eviction {
    delete_options: Value,
}

impl SentKind for Eviction {
    const TYPE: &str = "io.k8s.api.policy.v1.Eviction";
}

/// Evicts a pod.
pub(crate) async fn evict(
    write: &WriteRequest<'_>,
    name: &str,
    sent: Decoded,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let object = receive::<Eviction>(write, name, sent, warnings)?;
    let value = admit(write, name, object, warnings).await?;
    let eviction = read::<Eviction>(write, name, value)?.rest;
    let (options, context) = &DeleteOptions::read(eviction.delete_options, write.context)?;
    let mut attempts = 0;
    let pod = loop {
        let pod = current(write, name).await?;
        if !is_beyond_budgets(&pod) {
            break pod;
        }
        // A pending pod may become healthy, and count for its budget, before it is deleted.
        let terminating = meta::is_terminating(&pod) || pod["status"]["phase"] != "Pending";
        let exact = if terminating || options.is_pinned() { options.clone() } else { pinned(options, &pod) };
        attempts += 1;
        match remove(write, context, name, &exact).await {
            Err(status) if status.reason == "Conflict" && !options.is_pinned() && attempts < ATTEMPTS => {}
            done => return done,
        }
    };
    let budgets = budgets_of(write, &pod).await?;
    let Some(budget) = budgets.first() else { return remove(write, context, name, options).await };
    if budgets.len() > 1 {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::failure(500, "", why));
    }
    if !is_ready(&pod) && spares_unhealthy(budget) {
        // An unhealthy pod does not count for the budget, so it is deleted only if it has not changed since.
        return match remove(write, context, name, &pinned(options, &pod)).await {
            Err(status) if status.reason == "Conflict" && !options.is_pinned() => {
                Err(still_processed(meta::text(budget, "name")))
            }
            done => done,
        };
    }
    charge(write, context, meta::text(budget, "name"), name).await?;
    remove(write, context, name, options).await
}

async fn current(write: &WriteRequest<'_>, name: &str) -> Result<Value, Status> {
    let found = write.server.store.get(&write.resource.key(write.namespace, name), None).map_err(Status::internal)?;
    let entry = found.ok_or_else(|| Status::not_found("", "pods", name))?;
    write.resource.read_object(&entry).await
}

fn pinned(options: &DeleteOptions, pod: &Value) -> DeleteOptions {
    options.pinned(meta::text(pod, "resourceVersion"))
}

/// Marks a pod as disrupted, and deletes it.
async fn remove(
    write: &WriteRequest<'_>,
    context: &RequestContext,
    name: &str,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let WriteRequest { server, resource, namespace, .. } = *write;
    let mut options = options.clone();
    if !context.dry_run {
        let now = rfc3339(server.env.now());
        let marking =
            WriteRequest { subresource: Subresource::Status, namespace, ..server.internal_write(context, resource) };
        let marked = marking.modify_unmanaged(name, |pod| {
            options.check(resource, pod)?;
            let mut pod = pod.clone();
            let target = json!({
                "type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            });
            conditions::set(&mut pod["status"]["conditions"], target, &now);
            Ok(pod)
        });
        // Setting the condition has changed the resourceVersion of the pod.
        if let (WriteOutcome::Stored(entry), true) = (marked.await?, options.is_pinned()) {
            options = options.pinned(&entry.revision.0.to_string());
        }
    }
    // Admission has judged the eviction.
    let deletion =
        Deletion { server, context, resource, options: &options, admitted: true, collection: false, warnings: None };
    deletion.run(namespace, name, write.budget).await?;
    Ok(())
}

/// Whether budgets do not apply to a pod: it has ended, has not started, or is being deleted.
fn is_beyond_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || meta::is_terminating(pod)
}

fn is_ready(pod: &Value) -> bool {
    conditions::find(&pod["status"]["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

/// Whether the budget allows to evict unhealthy pods without counting them.
fn spares_unhealthy(budget: &Value) -> bool {
    let desired = number(budget, "desiredHealthy");
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number(budget, "currentHealthy") >= desired && desired > 0)
}

/// The disruption budgets that a pod falls under.
async fn budgets_of(write: &WriteRequest<'_>, pod: &Value) -> Result<Vec<Value>, Status> {
    let budgets =
        write.server.registry.find("policy", "v1", "poddisruptionbudgets").expect("disruption budgets are built in");
    let range = Range { prefix: &budgets.prefix(write.namespace), ..Range::default() };
    let page = write.server.store.range(range).map_err(Status::internal)?;
    let labels = meta::of(pod).get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels: BTreeMap<String, String> =
        labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    let covers = |budget: &Value| {
        let selector = &budget["spec"]["selector"];
        // An invalid selector selects nothing, like an absent one.
        selector.is_object() && LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(&labels))
    };
    let records = budgets.read_all(page.entries).await?;
    Ok(records.iter().map(|record| budgets.object(record)).filter(covers).collect())
}

/// Takes one disruption from the budget, for this pod.
async fn charge(write: &WriteRequest<'_>, context: &RequestContext, budget: &str, pod: &str) -> Result<(), Status> {
    let budgets =
        write.server.registry.find("policy", "v1", "poddisruptionbudgets").expect("disruption budgets are built in");
    let now = rfc3339(write.server.env.now());
    let internal = write.server.internal_write(context, &budgets);
    let charging = WriteRequest { subresource: Subresource::Status, namespace: write.namespace, ..internal };
    charging.modify(budget, &mut Vec::new(), |budget| charged(budget, pod, &now)).await?;
    Ok(())
}

/// The budget with one disruption less, or why it has none to give.
fn charged(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let name = meta::text(budget, "name");
    let forbidden = |why: &str| Err(Status::forbidden("policy", "poddisruptionbudget", name, why));
    let generation = meta::of(budget).get("generation").and_then(Value::as_i64).unwrap_or_default();
    let allowed = number(budget, "disruptionsAllowed");
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, |pods| pods.len());
    if number(budget, "observedGeneration") < generation {
        return Err(still_processed(name));
    }
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if disrupted > MAX_DISRUPTED_PODS {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(violated(&why_none(budget)));
    }
    let mut budget = budget.clone();
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": status["observedGeneration"],
        });
        conditions::set(&mut status["conditions"], condition, now);
    }
    status["disruptedPods"][pod] = now.into();
    Ok(budget)
}

fn why_none(budget: &Value) -> String {
    let name = meta::text(budget, "name");
    let (desired, current) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    let condition = conditions::find(&budget["status"]["conditions"], "DisruptionAllowed");
    let text = |field: &str| condition.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let refused = text("status") == "False" && !text("message").is_empty();
    let now = format!("The disruption budget {name} does not allow evicting pods currently");
    match text("reason") {
        // The numbers are not valid then.
        "SyncFailed" if refused => format!("{now} because it failed sync: {}", text("message")),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        reason if refused => format!("{now} ({reason}): {}", text("message")),
        _ => now,
    }
}

fn violated(why: &str) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(429, "TooManyRequests", message).with_cause("DisruptionBudget", why, "")
}

fn still_processed(budget: &str) -> Status {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    violated(&why).retry_after(RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_say_why_they_refuse() {
        let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "m"}]);
        let odd = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "Odd", "message": "m"}]);
        let none = "The disruption budget b does not allow evicting pods currently";
        for (status, code, expect) in [
            (json!({"observedGeneration": 1}), 429, "The disruption budget b is still being processed by the server."),
            (
                json!({"observedGeneration": 2, "desiredHealthy": 3, "currentHealthy": 2}),
                429,
                "The disruption budget b needs 3 healthy pods and has 2 currently",
            ),
            (
                json!({"observedGeneration": 2, "desiredHealthy": 3, "currentHealthy": 2, "conditions": failed}),
                429,
                &*format!("{none} because it failed sync: m"),
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 2, "conditions": odd}),
                429,
                &*format!("{none} (Odd): m"),
            ),
            (json!({"observedGeneration": 2, "currentHealthy": 2}), 429, none),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
                403,
                "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative",
            ),
        ] {
            let budget = json!({"metadata": {"name": "b", "generation": 2}, "status": status});
            let refused = charged(&budget, "p", "now").unwrap_err();
            assert_eq!(refused.code, code, "{status}");
            let message = match code {
                429 => &refused.details.as_ref().unwrap().causes[0].message,
                _ => &refused.message,
            };
            assert_eq!(message, expect);
        }
    }

    #[test]
    fn the_last_disruption_closes_the_budget() {
        for (allowed, closed) in [(2, false), (1, true)] {
            let budget = json!({"metadata": {"name": "b"}, "status": {"disruptionsAllowed": allowed}});
            let charged = charged(&budget, "p", "now").unwrap();
            assert_eq!(charged["status"]["disruptionsAllowed"], allowed - 1);
            assert_eq!(charged["status"]["disruptedPods"], json!({"p": "now"}));
            assert_eq!(conditions::find(&charged["status"]["conditions"], "DisruptionAllowed").is_some(), closed);
        }
    }
}
