//! The state of a simulated pod as its status, and back. In: the pod's state and its status so far. Out: its new status.
//! Fields of other writers stay. Container ids begin with `konverge-sim://`, so that nobody takes them for real. Pure.

use jiff::Timestamp;
use konverge_core::simulate::CONTAINER_ID as ID;
use serde_json::{Map, Value, json};

use super::kind::Pod;
use super::lifecycle::{Container, ContainerPlan, Exit, Phase, PodPlan, PodState, State, backoff};
use super::settings::Role;
use crate::meta::stamp;

/// The conditions that the simulator sets.
const PREPARED: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
pub(super) const SCHEDULED: &str = "PodScheduled";

/// The simulated network of a pod.
pub(super) struct PodNetwork<'a> {
    pub host_ip: &'a str,
    pub pod_ip: &'a str,
    /// Whether the node is reachable.
    pub reachable: bool,
}

/// The status of a pod.
pub(super) fn status(pod: &Pod, state: &PodState, plan: &PodPlan, network: &PodNetwork<'_>, now: Timestamp) -> Value {
    let mut status = pod.status.as_object().cloned().unwrap_or_default();
    let phase = state.phase(plan);
    let word = match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    };
    status.insert("phase".into(), word.into());
    status.insert("startTime".into(), stamp(state.started).into());
    let mut address = |one: &str, all: &str, ip: &str| {
        if !ip.is_empty() {
            status.insert(one.into(), ip.into());
            status.insert(all.into(), json!([{"ip": ip}]));
        }
    };
    address("hostIP", "hostIPs", network.host_ip);
    // A pod gets its address when its first container starts.
    if state.containers.iter().any(|container| !matches!(container.state, State::Waiting)) {
        address("podIP", "podIPs", network.pod_ip);
    }
    let initialized = state.is_initialized(plan);
    let parts = || state.containers.iter().zip(&plan.containers);
    let list = |wanted: fn(Role) -> bool| -> Vec<Value> {
        let some = parts().filter(|(_, container_plan)| wanted(container_plan.role));
        some.map(|(container, container_plan)| container_status(pod, container, container_plan, plan, initialized))
            .collect()
    };
    for (field, role) in [
        ("initContainerStatuses", (|role| matches!(role, Role::Init | Role::Sidecar)) as fn(Role) -> bool),
        ("ephemeralContainerStatuses", |role| role == Role::Ephemeral),
    ] {
        let statuses = list(role);
        if !statuses.is_empty() {
            status.insert(field.into(), statuses.into());
        }
    }
    status.insert("containerStatuses".into(), list(|role| role == Role::Main).into());
    if pod.metadata.generation > 0 {
        status.insert("observedGeneration".into(), pod.metadata.generation.into());
    }

    let names = |test: &dyn Fn(&Container, &ContainerPlan) -> bool| -> String {
        let found: Vec<&str> =
            parts().filter(|(c, p)| test(c, p)).map(|(_, container_plan)| container_plan.name.as_str()).collect();
        found.join(" ")
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let mut set = |type_: &str, is: bool, reason: &str, message: String| {
        set_condition(conditions, type_, if is { "True" } else { "False" }, reason, &message, now);
    };
    let finished = matches!(phase, Phase::Succeeded | Phase::Failed);
    let running = parts().any(|(container, _)| matches!(container.state, State::Running { .. }));
    set(PREPARED, running, "", String::new());
    match initialized {
        true if phase == Phase::Succeeded => set(INITIALIZED, true, "PodCompleted", String::new()),
        true => set(INITIALIZED, true, "", String::new()),
        false => {
            let waiting = names(&|c, p| prepares(p.role) && !matches!(&c.state, State::Terminated(e) if e.code == 0));
            let message = format!("containers with incomplete status: [{waiting}]");
            set(INITIALIZED, false, "ContainersNotInitialized", message);
        }
    }
    let unready = names(&|container, container_plan| container_plan.role == Role::Main && !container.ready);
    let (reason, message) = match phase {
        _ if unready.is_empty() && network.reachable => ("", String::new()),
        _ if !network.reachable => ("NodeNotReady", "the node is unreachable".to_owned()),
        Phase::Succeeded => ("PodCompleted", String::new()),
        Phase::Failed => ("PodFailed", String::new()),
        _ => ("ContainersNotReady", format!("containers with unready status: [{unready}]")),
    };
    let ready = unready.is_empty() && network.reachable && !finished;
    set(CONTAINERS_READY, ready, reason, message.clone());
    set(SCHEDULED, true, "", String::new());
    let open = pod.spec.readiness_gates.iter().filter(|gate| !is_true(&pod.status, &gate.condition_type));
    let open: Vec<&str> = open.map(|gate| gate.condition_type.as_str()).collect();
    match ready && !open.is_empty() {
        true => {
            let message = format!("corresponding condition of pod readiness gate \"{}\" does not exist.", open[0]);
            set_condition(conditions, READY, "False", "ReadinessGatesNotReady", &message, now);
        }
        false => {
            let is = if ready { "True" } else { "False" };
            set_condition(conditions, READY, is, reason, &message, now);
        }
    }
    Value::Object(status)
}

/// The state of a pod when its status was written; `None` if the pod had not started. Used after a restart of the simulator.
pub(super) fn restore(pod: &Pod, plan: &PodPlan) -> Option<PodState> {
    let started = time(&pod.status["startTime"])?;
    let find = |container_plan: &ContainerPlan| {
        let list = match container_plan.role {
            Role::Main => "containerStatuses",
            Role::Init | Role::Sidecar => "initContainerStatuses",
            Role::Ephemeral => "ephemeralContainerStatuses",
        };
        let statuses = pod.status[list].as_array().into_iter().flatten();
        statuses.into_iter().find(|status| status["name"] == container_plan.name.as_str())
    };
    let container = |container_plan: &ContainerPlan| {
        let status = match find(container_plan) {
            Some(status) => status,
            // It was added since.
            None if container_plan.role == Role::Ephemeral => {
                return Some(Container { state: State::Waiting, last: None, restarts: 0, ready: false });
            }
            None => return None,
        };
        let last = exit(&status["lastState"]["terminated"]);
        let state = if let Some(since) = time(&status["state"]["running"]["startedAt"]) {
            State::Running { since }
        } else if let Some(ended) = exit(&status["state"]["terminated"]) {
            State::Terminated(ended)
        } else {
            match status["state"]["waiting"]["reason"].as_str() {
                Some("ImagePullBackOff") => State::ImageMissing,
                Some("CrashLoopBackOff") => State::BackOff,
                _ => State::Waiting,
            }
        };
        let restarts = status["restartCount"].as_i64().and_then(|many| i32::try_from(many).ok()).unwrap_or_default();
        // The status calls a finished init container ready; the state does not.
        let ready = status["ready"] == true && container_plan.role != Role::Init;
        Some(Container { state, last, restarts, ready })
    };
    let containers = plan.containers.iter().map(container).collect::<Option<Vec<Container>>>()?;
    Some(PodState { started, containers, stop_requested: None })
}

/// Sets a condition; its time of transition moves with its status only.
pub(super) fn set_condition(
    conditions: &mut Value,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let Value::Array(list) = conditions else { return };
    let mut condition = Map::new();
    condition.insert("type".into(), type_.into());
    condition.insert("status".into(), status.into());
    condition.insert("lastTransitionTime".into(), stamp(now).into());
    for (name, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition.insert(name.into(), text.into());
        }
    }
    match list.iter_mut().find(|condition| condition["type"] == type_) {
        Some(there) => {
            if there["status"] == status {
                condition["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            // What servers and others add to it stays as it is.
            for name in ["observedGeneration", "lastProbeTime"] {
                if let Some(value) = there.get(name) {
                    condition.insert(name.into(), value.clone());
                }
            }
            *there = Value::Object(condition);
        }
        None => list.push(Value::Object(condition)),
    }
}

/// A condition of a list.
pub(super) fn condition_of<'c>(conditions: &'c Value, type_: &str) -> Option<&'c Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == type_)
}

pub(super) fn remove_condition(conditions: &mut Value, type_: &str) {
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != type_);
    }
}

fn is_true(status: &Value, type_: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

fn container_status(
    pod: &Pod,
    container: &Container,
    container_plan: &ContainerPlan,
    plan: &PodPlan,
    initialized: bool,
) -> Value {
    let id = |restarts: i32| format!("{ID}{}/{}/{restarts}", pod.metadata.uid, container_plan.name);
    let has_begun = !matches!(container.state, State::Waiting | State::ImageMissing);
    let running = matches!(container.state, State::Running { .. });
    let mut status = json!({
        "name": container_plan.name,
        "image": container_plan.image,
        "imageID": if has_begun { format!("{ID}{}", container_plan.image) } else { String::new() },
        "ready": container.ready || (container_plan.role == Role::Init && matches!(&container.state, State::Terminated(e) if e.code == 0)),
        "started": running,
        "restartCount": container.restarts,
        "state": state(pod, container, container_plan, plan, initialized, &id(container.restarts)),
        "lastState": {},
    });
    if has_begun {
        status["containerID"] = id(container.restarts).into();
    }
    if container_plan.resources.is_object() {
        if running {
            status["resources"] = container_plan.resources.clone();
        }
        if let Some(requests) = container_plan.resources.get("requests") {
            status["allocatedResources"] = requests.clone();
        }
    }
    if let Some(last) = &container.last {
        let which = if container.state == State::BackOff { container.restarts } else { container.restarts - 1 };
        status["lastState"] = json!({"terminated": terminated(last, &id(which))});
    }
    status
}

fn state(
    pod: &Pod,
    container: &Container,
    container_plan: &ContainerPlan,
    plan: &PodPlan,
    initialized: bool,
    id: &str,
) -> Value {
    match &container.state {
        State::Waiting => {
            let waits = plan.containers.iter().any(|container_plan| prepares(container_plan.role));
            let reason = if waits && (prepares(container_plan.role) || !initialized) {
                "PodInitializing"
            } else {
                "ContainerCreating"
            };
            json!({"waiting": {"reason": reason}})
        }
        State::ImageMissing => {
            let message = format!("Back-off pulling image \"{}\": simulated failure", container_plan.image);
            json!({"waiting": {"reason": "ImagePullBackOff", "message": message}})
        }
        State::BackOff => {
            let wait = backoff(plan.backoff, container.restarts);
            let meta = &pod.metadata;
            let (name, namespace, uid) = (&meta.name, &meta.namespace, &meta.uid);
            let message = format!(
                "back-off {wait:?} restarting failed container={} pod={name}_{namespace}({uid})",
                container_plan.name
            );
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
        State::Running { since } => json!({"running": {"startedAt": stamp(*since)}}),
        State::Terminated(ended) => json!({"terminated": terminated(ended, id)}),
    }
}

/// Whether main containers wait for it.
fn prepares(role: Role) -> bool {
    matches!(role, Role::Init | Role::Sidecar)
}

fn terminated(ended: &Exit, id: &str) -> Value {
    json!({
        "exitCode": ended.code,
        "reason": if ended.code == 0 { "Completed" } else { "Error" },
        "startedAt": stamp(ended.started),
        "finishedAt": stamp(ended.finished),
        "containerID": id,
    })
}

fn exit(value: &Value) -> Option<Exit> {
    let code = value["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok())?;
    let finished = time(&value["finishedAt"])?;
    Some(Exit { code, started: time(&value["startedAt"]).unwrap_or(finished), finished })
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulator::settings::SimulationSettings;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn plan(pod: &Pod) -> PodPlan {
        let settings = SimulationSettings::default();
        let container_plan = |container: &crate::simulator::kind::Container, role| ContainerPlan {
            name: container.name.clone(),
            image: container.image.clone(),
            role,
            behaviour: settings.behaviour(pod, container, role),
            resources: container.resources.clone(),
        };
        let inits = pod.spec.init_containers.iter().map(|container| container_plan(container, Role::Init));
        let mains = pod.spec.containers.iter().map(|container| container_plan(container, Role::Main));
        let containers = inits.chain(mains).collect();
        PodPlan { containers, restart: pod.spec.restart_policy, backoff: Duration::from_secs(10) }
    }

    /// A pod after some seconds: its status in words. The same state is restored from that status.
    fn check(pod: Value, seconds: i64, expect: &str) {
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        let plan = plan(&pod);
        let mut state = PodState::new(plan.containers.len(), at(0));
        let network = PodNetwork { host_ip: "10.240.0.1", pod_ip: "10.244.0.1", reachable: true };
        for second in 0..=seconds {
            state.step(&plan, None, at(second));
            pod.status = status(&pod, &state, &plan, &network, at(second));
        }
        let conditions = pod.status["conditions"].as_array().unwrap().iter();
        let conditions = conditions.filter(|condition| condition["status"] == "True");
        let types: Vec<&str> = conditions.map(|condition| condition["type"].as_str().unwrap()).collect();
        let container = &pod.status["containerStatuses"][0]["state"];
        let container = container.as_object().unwrap().keys().next().unwrap();
        let reason = pod.status["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default();
        let words = format!("{} {container} {reason}: {}", pod.phase(), types.join(" "));
        assert_eq!(words, expect);
        assert_eq!(restore(&pod, &plan), Some(state.clone()), "{}", pod.status);
        assert_eq!(status(&pod, &state, &plan, &network, at(seconds + 5)), pod.status, "nothing new is said");
    }

    #[test]
    fn a_state_is_rendered_and_restored() {
        let pod = |spec: Value, annotations: Value| {
            let mut spec = spec;
            if spec["containers"].is_null() {
                spec["containers"] = json!([{"name": "main", "image": "app:1"}]);
            }
            json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": annotations}, "spec": spec})
        };
        let ready = "PodReadyToStartContainers Initialized ContainersReady PodScheduled Ready";
        check(pod(json!({}), json!({})), 0, &format!("Running running : {ready}"));
        let init = json!({"initContainers": [{"name": "init", "image": "init:1"}]});
        check(pod(init.clone(), json!({})), 0, &format!("Running running : {ready}"));
        let slow = json!({"simulate.konverge.dev/init-time": "9s"});
        check(pod(init, slow), 3, "Pending waiting PodInitializing: PodReadyToStartContainers PodScheduled");
        let slow = json!({"simulate.konverge.dev/start-delay": "9s"});
        check(pod(json!({}), slow), 3, "Pending waiting ContainerCreating: Initialized PodScheduled");
        let crash = json!({"simulate.konverge.dev/fail": "crash-loop"});
        check(pod(json!({}), crash), 3, "Running waiting CrashLoopBackOff: Initialized PodScheduled");
        let pull = json!({"simulate.konverge.dev/fail": "image-pull"});
        check(pod(json!({}), pull), 3, "Pending waiting ImagePullBackOff: Initialized PodScheduled");
        let once = json!({"restartPolicy": "Never"});
        check(pod(once, json!({})), 0, "Succeeded terminated : Initialized PodScheduled");
    }

    #[test]
    fn ephemeral_containers_have_a_status_of_their_own() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {
                "containers": [{"name": "main", "image": "app:1"}],
                "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
            },
        }))
        .unwrap();
        let mut plan = plan(&pod);
        let container = &pod.spec.ephemeral_containers[0];
        let behaviour = SimulationSettings::default().behaviour(&pod, container, Role::Ephemeral);
        let (name, image) = (container.name.clone(), container.image.clone());
        plan.containers.push(ContainerPlan { name, image, role: Role::Ephemeral, behaviour, resources: Value::Null });
        let mut state = PodState::new(1, at(0));
        state.add_containers(&plan);
        state.step(&plan, None, at(0));
        let network = PodNetwork { host_ip: "", pod_ip: "10.244.0.1", reachable: true };
        let shown = status(&pod, &state, &plan, &network, at(0));
        let debug = &shown["ephemeralContainerStatuses"][0];
        assert_eq!((&debug["name"], &debug["ready"]), (&json!("debug"), &json!(false)));
        assert!(debug["state"]["running"].is_object(), "{debug}");
        assert_eq!(shown["containerStatuses"].as_array().map(Vec::len), Some(1));
        assert_eq!(shown.get("initContainerStatuses"), None);
        let restored = restore(&Pod { status: shown.clone(), ..pod.clone() }, &plan);
        assert_eq!(restored, Some(state));
        // One that was added since is not there yet, and costs the others nothing.
        let mut earlier = shown;
        earlier.as_object_mut().unwrap().remove("ephemeralContainerStatuses");
        let restored = restore(&Pod { status: earlier, ..pod }, &plan).expect("a pod that runs");
        assert!(matches!(restored.containers[0].state, State::Running { .. }));
        assert_eq!(restored.containers[1].state, State::Waiting);
    }

    #[test]
    fn what_others_wrote_stays() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "main", "image": "app:1"}], "readinessGates": [{"conditionType": "example.com/open"}]},
            "status": {"qosClass": "BestEffort", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
        }))
        .unwrap();
        let plan = plan(&pod);
        let mut state = PodState::new(1, at(0));
        state.step(&plan, None, at(0));
        let network = PodNetwork { host_ip: "", pod_ip: "", reachable: true };
        let status = status(&pod, &state, &plan, &network, at(0));
        assert_eq!(
            (&status["qosClass"], &status["conditions"][0]["type"]),
            (&json!("BestEffort"), &json!("DisruptionTarget"))
        );
        let ready =
            status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == READY).unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    }
}
