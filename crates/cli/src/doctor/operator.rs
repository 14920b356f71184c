//! The deployed operator: its Deployment or StatefulSet, Pods and Lease. In: what the cluster has. Out: findings, by pure functions; `observe` reads.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::checks::{DEPLOYED, LEASE, OPERATOR_RIGHTS, PODS};
use super::cluster::since;
use super::finding::{Finding, Outcome};
use super::own_project::OwnProject;
use super::{gauges, objects, rights};
use crate::counted::counted;
use crate::deploy::{complaints, pod_query, unfinished};
use crate::description::text;
use crate::observer::{Observer, Unread};

/// How many Pods are looked at.
const MOST: usize = 50;

/// A container that ended this often has a problem, even if it runs just now.
const MANY_RESTARTS: u64 = 5;

/// Selects nodes whose Pods are simulated.
const SIMULATED_NODE: &str = "&labelSelector=konverge.dev%2Fsimulated%3Dtrue";

/// What runs the operator in the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workload {
    /// The Deployment or StatefulSet.
    pub object: Option<Value>,
    pub pods: Vec<Value>,
    /// Whether `konverge dev` of this project may run it instead.
    pub runs_here: bool,
    /// Whether its Pods are simulated, so that nothing runs in them.
    pub is_simulated: bool,
}

impl Workload {
    /// Reads it.
    pub(crate) async fn observe(observer: &Observer, project: &OwnProject, runs_here: bool) -> Result<Self, Unread> {
        let (name, namespace) = (name_of(project), &project.target.namespace);
        let mut workload = Self { runs_here, ..Self::default() };
        for kind in ["deployments", "statefulsets"] {
            if let Some(found) = observer.get(&format!("/apis/apps/v1/namespaces/{namespace}/{kind}/{name}")).await? {
                let query = pod_query(&found);
                let pods = observer.list(&format!("/api/v1/namespaces/{namespace}/pods"), &query, MOST).await?;
                (workload.object, workload.pods) = (Some(found), pods.items);
                let nodes = observer.list("/api/v1/nodes", SIMULATED_NODE, 1).await;
                workload.is_simulated = nodes.is_ok_and(|nodes| !nodes.items.is_empty());
                break;
            }
        }
        Ok(workload)
    }

    /// Whether a Pod of it is ready.
    fn is_ready(&self) -> bool {
        self.pods.iter().any(is_ready)
    }
}

/// What the operator is called in the cluster.
pub(super) fn name_of(project: &OwnProject) -> String {
    project.operator.as_ref().map_or_else(|_| project.target.name.clone(), |operator| operator.name.clone())
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Looks at the operator and at its objects.
pub(super) async fn examine(
    observer: &Observer,
    project: &OwnProject,
    workload: &Result<Workload, Unread>,
    now: Timestamp,
) -> Vec<Finding> {
    let (name, namespace) = (name_of(project), &project.target.namespace);
    let workload = match workload {
        Ok(workload) => workload,
        Err(error) => return vec![DEPLOYED.not_checked(error.to_string())],
    };
    let mut findings = vec![deployed(workload, &name, namespace)];
    if workload.object.is_some() {
        findings.push(pods(&workload.pods, namespace));
        findings.push(match &project.operator {
            Ok(operator) => rights::of_operator(observer, operator).await,
            Err(why) => OPERATOR_RIGHTS.not_checked(why.clone()),
        });
        findings.push(lease_of(observer, project, workload, now).await);
        findings.extend(gauges::examine(observer, project, workload, now).await);
    }
    findings.extend(objects::examine(observer, project, workload, now).await);
    findings
}

fn deployed(workload: &Workload, name: &str, namespace: &str) -> Finding {
    let Some(object) = &workload.object else {
        let where_else = if workload.runs_here { "; `konverge dev` runs it here" } else { "" };
        return DEPLOYED.not_checked(format!(
            "there is no Deployment {name} in the namespace {namespace}{where_else}; `konverge deploy` deploys it"
        ));
    };
    let kind = text(&object["kind"]);
    match unfinished(object) {
        None if object["spec"]["replicas"] == 0 => {
            let mend = format!("kubectl -n {namespace} scale {kind}/{name} --replicas=2");
            DEPLOYED.warning(format!("{kind} {namespace}/{name} has no replicas"), &[&mend])
        }
        None => DEPLOYED.ok(format!("{kind} {namespace}/{name}, {}", image(object))),
        Some(why) => DEPLOYED.problem(
            format!("{kind} {namespace}/{name} is not rolled out: {why}"),
            &[&format!("kubectl -n {namespace} describe {kind}/{name}"), "konverge logs"],
        ),
    }
}

fn image(object: &Value) -> String {
    text(&object["spec"]["template"]["spec"]["containers"][0]["image"])
}

/// What is wrong with Pods, the reason of the last end of each container with it.
fn pods(pods: &[Value], namespace: &str) -> Finding {
    if pods.is_empty() {
        return PODS.problem("there are no Pods", &[&format!("kubectl -n {namespace} get events")]);
    }
    let (mut worst, mut details) = (Outcome::Ok, Vec::new());
    for pod in pods {
        let complaints = complaints(pod);
        let restarts = |container: &Value| container["restartCount"].as_u64().unwrap_or(0);
        let restarts = pod["status"]["containerStatuses"].as_array().into_iter().flatten().map(restarts).max();
        let (ready, restarts) = (is_ready(pod), restarts.unwrap_or(0));
        let outcome = match (ready, restarts) {
            (false, _) => Outcome::Problem,
            (true, MANY_RESTARTS..) => Outcome::Warning,
            _ => continue,
        };
        if complaints.is_empty() {
            let phase = text(&pod["status"]["phase"]);
            details.push(format!("Pod {} is {phase}, and not ready", text(&pod["metadata"]["name"])));
        }
        details.extend(complaints);
        if restarts > 0 {
            let times = counted(restarts, "time");
            details.push(format!("Pod {} was restarted {times}", text(&pod["metadata"]["name"])));
        }
        if worst != Outcome::Problem {
            worst = outcome;
        }
    }
    if worst == Outcome::Ok {
        return PODS.ok(format!("{} are ready", pods.len()));
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let words = details.join(" ");
    let mend: &[&str] = if words.contains("ImagePull") || words.contains("ErrImage") {
        &["is the image pushed, and may the cluster pull it? `konverge build --push`, imagePullSecrets"]
    } else if words.contains("CrashLoopBackOff") || words.contains("it ended with") {
        &["konverge logs --previous"]
    } else {
        &["konverge logs", "kubectl get events --all-namespaces"]
    };
    PODS.found(worst, format!("{ready} of {} are ready", pods.len()), mend).with(details)
}

async fn lease_of(observer: &Observer, project: &OwnProject, workload: &Workload, now: Timestamp) -> Finding {
    let operator = match &project.operator {
        Ok(operator) => operator,
        Err(why) => return LEASE.not_checked(why.clone()),
    };
    if operator.raft.is_some() {
        return LEASE.not_checked("its leader is elected by Raft, without a Lease");
    }
    if operator.leader_election.1.is_empty() {
        return LEASE.not_checked("it has no leader election");
    }
    let (name, namespace) = (operator.settings.lease_name(), &operator.leader_election.0);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    match observer.get(&path).await {
        Ok(found) => lease(found.as_ref(), &format!("{namespace}/{name}"), workload, now),
        Err(error) => LEASE.not_checked(error.to_string()),
    }
}

fn lease(found: Option<&Value>, name: &str, workload: &Workload, now: Timestamp) -> Finding {
    let mend = &["konverge logs", "kubectl get leases --all-namespaces"];
    if workload.is_simulated {
        let holder = found.map_or_else(String::new, |found| text(&found["spec"]["holderIdentity"]));
        let elsewhere = if holder.is_empty() { String::new() } else { format!("; {holder} holds the Lease {name}") };
        return LEASE.not_checked(format!("Pods are simulated in this cluster, so none of them leads{elsewhere}"));
    }
    let Some(found) = found else {
        return match workload.is_ready() {
            true => LEASE.warning(format!("there is no Lease {name}: no Pod has led yet"), mend),
            false => LEASE.not_checked("no Pod is ready, so none leads"),
        };
    };
    let spec = &found["spec"];
    let holder = text(&spec["holderIdentity"]);
    if holder.is_empty() {
        return LEASE.warning(format!("nobody holds the Lease {name}"), mend);
    }
    let lasts = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or(15));
    match since(&spec["renewTime"], now) {
        Some(ago) if ago > lasts => LEASE
            .problem(format!("{holder} holds the Lease {name}, and has not renewed it for {} s", ago.as_secs()), mend),
        Some(_) => {
            let is_pod = workload.pods.iter().any(|pod| holder.starts_with(&text(&pod["metadata"]["name"])));
            match is_pod {
                true => LEASE.ok(format!("{holder} leads")),
                false => LEASE.warning(
                    format!(
                        "{holder} leads, which is no Pod of this deployment; does the operator run elsewhere, too?"
                    ),
                    &["kubectl get pods --all-namespaces -o wide"],
                ),
            }
        }
        None => LEASE.warning(format!("the Lease {name} was never renewed"), mend),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(
            format!("{} {} {}", found.what, found.details.join(" "), found.mend.join(" ")).contains(part),
            "{found:?}"
        );
        assert_eq!(found.mend.is_empty(), matches!(outcome, Outcome::Ok | Outcome::NotChecked), "{found:?}");
    }

    fn pod(ready: bool, container: Value) -> Value {
        json!({"metadata": {"name": "shop-1"}, "status": {"phase": "Running", "containerStatuses": [container],
               "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
    }

    #[test]
    fn workloads() {
        let workload = |object: Option<Value>, runs_here: bool| Workload { object, runs_here, ..Workload::default() };
        check(
            deployed(&workload(None, false), "shop", "ns"),
            Outcome::NotChecked,
            "no Deployment shop in the namespace ns; `konverge deploy`",
        );
        check(deployed(&workload(None, true), "shop", "ns"), Outcome::NotChecked, "`konverge dev` runs it here");
        let with = |replicas: u64, available: u64| {
            json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": "shop:1"}]}}},
                   "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": available}})
        };
        check(deployed(&workload(Some(with(2, 2)), false), "shop", "ns"), Outcome::Ok, "Deployment ns/shop, shop:1");
        check(
            deployed(&workload(Some(with(2, 1)), false), "shop", "ns"),
            Outcome::Problem,
            "1 of 2 new Pods are available",
        );
        check(deployed(&workload(Some(with(0, 0)), false), "shop", "ns"), Outcome::Warning, "no replicas");
    }

    #[test]
    fn pods_that_run_and_do_not() {
        check(pods(&[], "ns"), Outcome::Problem, "no Pods");
        check(pods(&[pod(true, json!({"restartCount": 1, "ready": true}))], "ns"), Outcome::Ok, "1 are ready");
        check(
            pods(&[pod(true, json!({"restartCount": 9, "ready": true}))], "ns"),
            Outcome::Warning,
            "restarted 9 times",
        );
        let crash = json!({"name": "manager", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                           "lastState": {"terminated": {"exitCode": 101, "reason": "Error"}}});
        check(pods(&[pod(false, crash.clone())], "ns"), Outcome::Problem, "it ended with 101 (Error)");
        check(pods(&[pod(false, crash)], "ns"), Outcome::Problem, "konverge logs --previous");
        let pull = json!({"name": "manager", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}});
        check(pods(&[pod(false, pull)], "ns"), Outcome::Problem, "konverge build --push");
        check(pods(&[pod(false, json!({}))], "ns"), Outcome::Problem, "Pod shop-1 is Running, and not ready");
    }

    #[test]
    fn leases() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let workload = |ready: bool| Workload { pods: vec![pod(ready, json!({}))], ..Workload::default() };
        let held = |holder: &str, renewed: &str| json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}});
        check(lease(None, "a/b", &workload(false), now), Outcome::NotChecked, "no Pod is ready");
        check(lease(None, "a/b", &workload(true), now), Outcome::Warning, "no Lease a/b");
        check(
            lease(Some(&held("", "2026-01-01T00:00:55Z")), "a/b", &workload(true), now),
            Outcome::Warning,
            "nobody holds",
        );
        check(
            lease(Some(&held("shop-1_x", "2026-01-01T00:00:55Z")), "a/b", &workload(true), now),
            Outcome::Ok,
            "shop-1_x leads",
        );
        check(
            lease(Some(&held("other", "2026-01-01T00:00:55Z")), "a/b", &workload(true), now),
            Outcome::Warning,
            "no Pod of this deployment",
        );
        let simulated = Workload { is_simulated: true, ..workload(true) };
        check(lease(None, "a/b", &simulated, now), Outcome::NotChecked, "simulated");
        check(
            lease(Some(&held("laptop_1", "2026-01-01T00:00:00Z")), "a/b", &simulated, now),
            Outcome::NotChecked,
            "laptop_1 holds the Lease a/b",
        );
        check(
            lease(Some(&held("shop-1_x", "2026-01-01T00:00:00Z")), "a/b", &workload(true), now),
            Outcome::Problem,
            "not renewed it for 60 s",
        );
    }
}
