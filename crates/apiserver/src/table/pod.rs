//! The cells of a Pod. Its status is no field: it is what the phase, the conditions and every container say
//! together. In: a Pod. Out: `1/2`, `CrashLoopBackOff`, `3 (5m ago)`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cell::{at, deleting, int, is_true, list, text};

/// `ready/all` containers.
pub(super) fn ready(pod: &Value, _: Timestamp) -> Value {
    let summary = Summary::of(pod);
    format!("{}/{}", summary.ready, summary.containers).into()
}

/// One word for the state of the pod.
pub(super) fn status(pod: &Value, _: Timestamp) -> Value {
    Summary::of(pod).reason.into()
}

/// How often containers have been restarted, and when last.
pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let summary = Summary::of(pod);
    match summary.restarts.last {
        Some(last) if summary.restarts.count != 0 => {
            format!("{} ({} ago)", summary.restarts.count, age::since(last, now)).into()
        }
        _ => summary.restarts.count.to_string().into(),
    }
}

/// The first address.
pub(super) fn ip(pod: &Value, _: Timestamp) -> Value {
    let ip = list(pod, "status.podIPs").first().map_or("", |first| text(first, "ip"));
    if ip.is_empty() { "<none>".into() } else { ip.into() }
}

/// `true/all` readiness gates.
pub(super) fn gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, "conditionType"))).count();
    format!("{passed}/{}", gates.len()).into()
}

/// The row condition that lets clients hide finished pods.
pub(super) fn finished(pod: &Value) -> Option<Value> {
    let message = match text(pod, "status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": text(pod, "status.phase"), "message": message}]))
}

struct Summary {
    containers: usize,
    ready: usize,
    reason: String,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += int(container, "restartCount");
        let finished = text(container, "lastState.terminated.finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let inits = list(pod, "spec.initContainers");
        let sidecars = inits.iter().filter(|init| is_sidecar(init)).count();
        let phase = text(pod, "status.phase");
        let own = text(pod, "status.reason");
        let mut summary = Self {
            containers: list(pod, "spec.containers").len() + sidecars,
            ready: 0,
            reason: if own.is_empty() { phase } else { own }.to_owned(),
            restarts: Restarts::default(),
        };
        let gated = |condition: &Value| {
            text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
        };
        if list(pod, "status.conditions").iter().any(gated) {
            summary.reason = "SchedulingGated".into();
        }
        let (initializing, sidecar_restarts) = summary.init_containers(pod, inits);
        if !initializing || is_true(pod, "Initialized") {
            // Restarts of finished init containers are history once the pod runs.
            summary.restarts = sidecar_restarts;
            summary.main_containers(pod);
        }
        if deleting(pod) {
            if own == "NodeLost" {
                summary.reason = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.reason = "Terminating".into();
            }
        }
        summary
    }

    /// Whether some init container is not done yet, and the restarts of those that stay.
    fn init_containers(&mut self, pod: &Value, inits: &[Value]) -> (bool, Restarts) {
        let mut sidecars = Restarts::default();
        for (at_index, container) in list(pod, "status.initContainerStatuses").iter().enumerate() {
            self.restarts.add(container);
            let name = text(container, "name");
            let sidecar = inits.iter().any(|init| text(init, "name") == name && is_sidecar(init));
            if sidecar {
                sidecars.add(container);
            }
            let terminated = at(container, "state.terminated");
            if terminated.is_some_and(|terminated| int(terminated, "exitCode") == 0) {
                continue;
            }
            if sidecar && flag(container, "started") {
                self.ready += usize::from(flag(container, "ready"));
                continue;
            }
            let waiting = text(container, "state.waiting.reason");
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", ending(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{at_index}/{}", inits.len()),
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn main_containers(&mut self, pod: &Value) {
        let (mut running, mut failure) = (false, None);
        // Backwards, so that the first container has the last word.
        for container in list(pod, "status.containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = at(container, "state.terminated") {
                self.reason = ending(terminated);
                if int(terminated, "exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if flag(container, "ready") && at(container, "state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            // One container is done; the pod is not while another runs.
            match failure {
                _ if running && is_true(pod, "Ready") => self.reason = "Running".into(),
                Some(failure) => self.reason = failure,
                None if running => self.reason = "NotReady".into(),
                None => {}
            }
        }
    }
}

fn ending(terminated: &Value) -> String {
    match (text(terminated, "reason"), int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(init: &Value) -> bool {
    text(init, "restartPolicy") == "Always"
}

fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one list of containers to the spec for each list of statuses.
    fn pod(mut status: Value, init: &[Value], main: &[Value]) -> Value {
        let named = |prefix: &str, statuses: &[Value]| -> Vec<Value> {
            let of = |(at, _): (usize, &Value)| json!({"name": format!("{prefix}{at}")});
            statuses.iter().enumerate().map(of).collect()
        };
        status["initContainerStatuses"] = init.into();
        status["containerStatuses"] = main.into();
        json!({"spec": {"initContainers": named("i", init), "containers": named("c", main)}, "status": status})
    }

    #[track_caller]
    fn check(pod: &Value, expect: [&str; 3]) {
        let now = "2024-05-01T00:00:00Z".parse().unwrap();
        assert_eq!([ready(pod, now), status(pod, now), restarts(pod, now)], expect);
    }

    fn running() -> Value {
        json!({"ready": true, "restartCount": 0, "state": {"running": {}}})
    }

    fn done(exit: i64) -> Value {
        json!({"restartCount": 0, "state": {"terminated": {"exitCode": exit, "reason": if exit == 0 {"Completed"} else {"Error"}}}})
    }

    #[test]
    fn main_containers_decide() {
        let phase = |phase: &str| json!({"phase": phase});
        check(&pod(phase("Pending"), &[], &[json!({})]), ["0/1", "Pending", "0"]);
        check(&pod(phase("Running"), &[], &[running(), running()]), ["2/2", "Running", "0"]);
        let waiting = json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2024-04-30T23:55:00Z"}}});
        check(&pod(phase("Running"), &[], &[waiting, running()]), ["1/2", "CrashLoopBackOff", "3 (5m ago)"]);
        check(&pod(phase("Succeeded"), &[], &[done(0)]), ["0/1", "Completed", "0"]);
        check(&pod(phase("Failed"), &[], &[done(1)]), ["0/1", "Error", "0"]);
        check(&pod(phase("Running"), &[], &[done(0), running()]), ["1/2", "NotReady", "0"]);
        check(&pod(phase("Running"), &[], &[done(0), done(2)]), ["0/2", "Error", "0"]);
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        check(&pod(ready, &[], &[done(0), running()]), ["1/2", "Running", "0"]);
        let signal = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
        check(&pod(phase("Running"), &[], &[signal]), ["0/1", "Signal:9", "0"]);
        check(&pod(json!({"phase": "Failed", "reason": "Evicted"}), &[], &[]), ["0/0", "Evicted", "0"]);
        let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
        check(&pod(gated, &[], &[]), ["0/0", "SchedulingGated", "0"]);
    }

    #[test]
    fn init_containers_come_first() {
        let pending = || json!({"phase": "Pending"});
        check(&pod(pending(), &[done(0), json!({})], &[json!({})]), ["0/1", "Init:1/2", "0"]);
        let failed = json!({"restartCount": 2, "state": {"terminated": {"exitCode": 3}}});
        check(&pod(pending(), &[failed], &[json!({})]), ["0/1", "Init:ExitCode:3", "2"]);
        check(&pod(pending(), &[done(1)], &[json!({})]), ["0/1", "Init:Error", "0"]);
        let backoff = json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}});
        check(&pod(pending(), &[backoff], &[json!({})]), ["0/1", "Init:ImagePullBackOff", "0"]);
        let initializing = json!({"state": {"waiting": {"reason": "PodInitializing"}}});
        check(&pod(pending(), &[initializing], &[json!({})]), ["0/1", "Init:0/1", "0"]);
        let restarted = json!({"restartCount": 2, "state": {"terminated": {"exitCode": 0}}});
        check(&pod(json!({"phase": "Running"}), &[restarted], &[running()]), ["1/1", "Running", "0"]);

        let sidecar = json!({"name": "i0", "started": true, "ready": true, "restartCount": 4});
        let mut with_sidecar = pod(json!({"phase": "Running"}), &[sidecar], &[running()]);
        with_sidecar["spec"]["initContainers"][0]["restartPolicy"] = "Always".into();
        check(&with_sidecar, ["2/2", "Running", "4"]);
    }

    #[test]
    fn deletion_has_the_last_word() {
        let deleted = |status: Value| {
            let mut pod = pod(status, &[], &[running()]);
            pod["metadata"]["deletionTimestamp"] = "2024-05-01T00:00:00Z".into();
            pod
        };
        check(&deleted(json!({"phase": "Running"})), ["1/1", "Terminating", "0"]);
        check(&deleted(json!({"phase": "Running", "reason": "NodeLost"})), ["1/1", "Unknown", "0"]);
        check(&deleted(json!({"phase": "Failed"})), ["1/1", "Failed", "0"]);
    }

    #[test]
    fn shows_address_and_gates() {
        let now = Timestamp::UNIX_EPOCH;
        let pod = json!({
            "spec": {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]},
        });
        assert_eq!([ip(&pod, now), gates(&pod, now)], ["10.0.0.1", "1/2"]);
        assert_eq!([ip(&json!({}), now), gates(&json!({}), now)], ["<none>", "<none>"]);
        assert_eq!(finished(&pod), None);
        assert_eq!(finished(&json!({"status": {"phase": "Failed"}})).unwrap()[0]["reason"], "Failed");
    }
}
