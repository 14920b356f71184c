//! A life as a pod's status, and back. In: where a pod is in its life, and its status so far. Out: its status now. What others
//! wrote into it stays. What is not real says so: container ids begin with `konverge-sim://`. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::kind::Pod;
use super::life::{Container, Ended, Life, Part, Phase, Script, State, backoff};
use super::settings::Role;
use crate::meta::stamp;

/// What the ids of containers and images begin with.
const ID: &str = "konverge-sim://";

/// The conditions that are ours to set.
const PREPARED: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
pub(super) const SCHEDULED: &str = "PodScheduled";

/// Where a pod is on a network that is not there.
pub(super) struct Place<'a> {
    pub host_ip: &'a str,
    pub pod_ip: &'a str,
    /// Whether the node answers.
    pub reachable: bool,
}

/// The status of a pod.
pub(super) fn status(pod: &Pod, life: &Life, script: &Script, place: &Place<'_>, now: Timestamp) -> Value {
    let mut status = pod.status.as_object().cloned().unwrap_or_default();
    let phase = life.phase(script);
    let word = match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    };
    status.insert("phase".into(), word.into());
    status.insert("startTime".into(), stamp(life.began).into());
    let mut address = |one: &str, all: &str, ip: &str| {
        if !ip.is_empty() {
            status.insert(one.into(), ip.into());
            status.insert(all.into(), json!([{"ip": ip}]));
        }
    };
    address("hostIP", "hostIPs", place.host_ip);
    // The address comes with the first container.
    if life.containers.iter().any(|container| !matches!(container.state, State::Waiting)) {
        address("podIP", "podIPs", place.pod_ip);
    }
    let initialized = life.is_initialized(script);
    let parts = || life.containers.iter().zip(&script.containers);
    let list = |wanted: fn(Role) -> bool| -> Vec<Value> {
        let some = parts().filter(|(_, part)| wanted(part.role));
        some.map(|(container, part)| container_status(pod, container, part, script, initialized)).collect()
    };
    let inits = list(|role| role != Role::Main);
    if !inits.is_empty() {
        status.insert("initContainerStatuses".into(), inits.into());
    }
    status.insert("containerStatuses".into(), list(|role| role == Role::Main).into());
    if pod.metadata.generation > 0 {
        status.insert("observedGeneration".into(), pod.metadata.generation.into());
    }

    let names = |test: &dyn Fn(&Container, &Part) -> bool| -> String {
        let found: Vec<&str> = parts().filter(|(c, p)| test(c, p)).map(|(_, part)| part.name.as_str()).collect();
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
            let waiting = names(&|c, p| p.role != Role::Main && !matches!(&c.state, State::Ended(e) if e.code == 0));
            let message = format!("containers with incomplete status: [{waiting}]");
            set(INITIALIZED, false, "ContainersNotInitialized", message);
        }
    }
    let unready = names(&|container, part| part.role == Role::Main && !container.ready);
    let (reason, message) = match phase {
        _ if unready.is_empty() && place.reachable => ("", String::new()),
        _ if !place.reachable => ("NodeNotReady", "the node does not answer".to_owned()),
        Phase::Succeeded => ("PodCompleted", String::new()),
        Phase::Failed => ("PodFailed", String::new()),
        _ => ("ContainersNotReady", format!("containers with unready status: [{unready}]")),
    };
    let ready = unready.is_empty() && place.reachable && !finished;
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

/// Where a pod was in its life when its status was written; none if it had not begun.
pub(super) fn restored(pod: &Pod, script: &Script) -> Option<Life> {
    let began = time(&pod.status["startTime"])?;
    let find = |part: &Part| {
        let list = if part.role == Role::Main { "containerStatuses" } else { "initContainerStatuses" };
        let statuses = pod.status[list].as_array().into_iter().flatten();
        statuses.into_iter().find(|status| status["name"] == part.name.as_str())
    };
    let container = |part: &Part| {
        let status = find(part)?;
        let last = ended(&status["lastState"]["terminated"]);
        let state = if let Some(since) = time(&status["state"]["running"]["startedAt"]) {
            State::Running { since }
        } else if let Some(ended) = ended(&status["state"]["terminated"]) {
            State::Ended(ended)
        } else {
            match status["state"]["waiting"]["reason"].as_str() {
                Some("ImagePullBackOff") => State::NoImage,
                Some("CrashLoopBackOff") => State::BackOff,
                _ => State::Waiting,
            }
        };
        let restarts = status["restartCount"].as_i64().and_then(|many| i32::try_from(many).ok()).unwrap_or_default();
        // What has prepared the pod is called ready, but it is not what anybody waits for.
        let ready = status["ready"] == true && part.role != Role::Init;
        Some(Container { state, last, restarts, ready })
    };
    let containers = script.containers.iter().map(container).collect::<Option<Vec<Container>>>()?;
    Some(Life { began, containers, asked_to_go: None })
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

fn is_true(status: &Value, type_: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

fn container_status(pod: &Pod, container: &Container, part: &Part, script: &Script, initialized: bool) -> Value {
    let id = |restarts: i32| format!("{ID}{}/{}/{restarts}", pod.metadata.uid, part.name);
    let has_begun = !matches!(container.state, State::Waiting | State::NoImage);
    let running = matches!(container.state, State::Running { .. });
    let mut status = json!({
        "name": part.name,
        "image": part.image,
        "imageID": if has_begun { format!("{ID}{}", part.image) } else { String::new() },
        "ready": container.ready || (part.role == Role::Init && matches!(&container.state, State::Ended(e) if e.code == 0)),
        "started": running,
        "restartCount": container.restarts,
        "state": state(pod, container, part, script, initialized, &id(container.restarts)),
        "lastState": {},
    });
    if has_begun {
        status["containerID"] = id(container.restarts).into();
    }
    if let Some(last) = &container.last {
        let which = if container.state == State::BackOff { container.restarts } else { container.restarts - 1 };
        status["lastState"] = json!({"terminated": terminated(last, &id(which))});
    }
    status
}

fn state(pod: &Pod, container: &Container, part: &Part, script: &Script, initialized: bool, id: &str) -> Value {
    match &container.state {
        State::Waiting => {
            let prepares = script.containers.iter().any(|part| part.role != Role::Main);
            let reason = if prepares && (part.role != Role::Main || !initialized) {
                "PodInitializing"
            } else {
                "ContainerCreating"
            };
            json!({"waiting": {"reason": reason}})
        }
        State::NoImage => {
            let message = format!("Back-off pulling image \"{}\": simulated failure", part.image);
            json!({"waiting": {"reason": "ImagePullBackOff", "message": message}})
        }
        State::BackOff => {
            let wait = backoff(script.backoff, container.restarts);
            let meta = &pod.metadata;
            let (name, namespace, uid) = (&meta.name, &meta.namespace, &meta.uid);
            let message =
                format!("back-off {wait:?} restarting failed container={} pod={name}_{namespace}({uid})", part.name);
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
        State::Running { since } => json!({"running": {"startedAt": stamp(*since)}}),
        State::Ended(ended) => json!({"terminated": terminated(ended, id)}),
    }
}

fn terminated(ended: &Ended, id: &str) -> Value {
    json!({
        "exitCode": ended.code,
        "reason": if ended.code == 0 { "Completed" } else { "Error" },
        "startedAt": stamp(ended.began),
        "finishedAt": stamp(ended.at),
        "containerID": id,
    })
}

fn ended(value: &Value) -> Option<Ended> {
    let code = value["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok())?;
    let at = time(&value["finishedAt"])?;
    Some(Ended { code, began: time(&value["startedAt"]).unwrap_or(at), at })
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulate::settings::SimulationSettings;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn script(pod: &Pod) -> Script {
        let settings = SimulationSettings::default();
        let part = |container: &crate::simulate::kind::Container, role| Part {
            name: container.name.clone(),
            image: container.image.clone(),
            role,
            behaviour: settings.behaviour(pod, container, role),
        };
        let inits = pod.spec.init_containers.iter().map(|container| part(container, Role::Init));
        let mains = pod.spec.containers.iter().map(|container| part(container, Role::Main));
        let containers = inits.chain(mains).collect();
        Script { containers, restart: pod.spec.restart_policy, backoff: Duration::from_secs(10) }
    }

    /// A pod after some seconds of life: its words, and that the same life comes out of its status.
    fn check(pod: Value, seconds: i64, expect: &str) {
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        let script = script(&pod);
        let mut life = Life::begin(script.containers.len(), at(0));
        let place = Place { host_ip: "10.240.0.1", pod_ip: "10.244.0.1", reachable: true };
        for second in 0..=seconds {
            life.step(&script, None, at(second));
            pod.status = status(&pod, &life, &script, &place, at(second));
        }
        let conditions = pod.status["conditions"].as_array().unwrap().iter();
        let conditions = conditions.filter(|condition| condition["status"] == "True");
        let types: Vec<&str> = conditions.map(|condition| condition["type"].as_str().unwrap()).collect();
        let state = &pod.status["containerStatuses"][0]["state"];
        let state = state.as_object().unwrap().keys().next().unwrap();
        let reason = pod.status["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default();
        let words = format!("{} {state} {reason}: {}", pod.phase(), types.join(" "));
        assert_eq!(words, expect);
        assert_eq!(restored(&pod, &script), Some(life.clone()), "{}", pod.status);
        assert_eq!(status(&pod, &life, &script, &place, at(seconds + 5)), pod.status, "nothing new is said");
    }

    #[test]
    fn a_life_is_told_and_read_again() {
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
    fn what_others_wrote_stays() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "main", "image": "app:1"}], "readinessGates": [{"conditionType": "example.com/open"}]},
            "status": {"qosClass": "BestEffort", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
        }))
        .unwrap();
        let script = script(&pod);
        let mut life = Life::begin(1, at(0));
        life.step(&script, None, at(0));
        let place = Place { host_ip: "", pod_ip: "", reachable: true };
        let status = status(&pod, &life, &script, &place, at(0));
        assert_eq!(
            (&status["qosClass"], &status["conditions"][0]["type"]),
            (&json!("BestEffort"), &json!("DisruptionTarget"))
        );
        let ready =
            status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == READY).unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    }
}
