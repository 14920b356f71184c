//! The lines of a log. In: a pod and one of its containers. Out: the run of the container that is meant, and its lines with their
//! times. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use konverge_core::Status;

use crate::meta;
use crate::pod::container::status_of;
use crate::simulation::LogLine;

/// A line, and when it was printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub time: Timestamp,
    pub text: String,
}

/// A container from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    started: Timestamp,
    ended: Option<Timestamp>,
}

impl Run {
    /// The run whose log a kubelet shows, or its error if there is none.
    pub(super) fn of(pod: &Value, container: &str, previous: bool) -> Result<Self, Status> {
        let name = meta::text(pod, "name");
        let refuse = |why: String| Status::bad_request(why);
        let Some(status) = status_of(pod, container) else {
            return Err(refuse(format!("container {container:?} in pod {name:?} is not available")));
        };
        let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
        if previous && !last.is_object() {
            return Err(refuse(format!("previous terminated container {container:?} in pod {name:?} not found")));
        }
        let time = |of: &Value, field: &str| of[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let over = |of: &Value| {
            let ended = time(of, "finishedAt").unwrap_or_default();
            // A status has whole seconds: what was printed within the last one was printed before the end.
            let last = ended.checked_add(SignedDuration::from_millis(999)).unwrap_or(ended);
            Self { started: time(of, "startedAt").unwrap_or(ended), ended: Some(last) }
        };
        if previous {
            return Ok(over(last));
        }
        if state["running"].is_object() {
            return Ok(Self { started: time(&state["running"], "startedAt").unwrap_or_default(), ended: None });
        }
        if state["terminated"].is_object() {
            return Ok(over(&state["terminated"]));
        }
        if last.is_object() {
            return Ok(over(last));
        }
        Err(refuse(match state["waiting"]["reason"].as_str() {
            Some("ErrImagePull") => {
                format!("container {container:?} in pod {name:?} is waiting to start: image can't be pulled")
            }
            Some("ImagePullBackOff") => {
                format!("container {container:?} in pod {name:?} is waiting to start: trying and failing to pull image")
            }
            Some(reason) => format!("container {container:?} in pod {name:?} is waiting to start: {reason}"),
            None => format!("container {container:?} in pod {name:?} is waiting to start - no logs yet"),
        }))
    }

    /// When the container ended.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.ended
    }

    /// The lines of a prescribed log, with their times.
    pub(super) fn prescribed(&self, log: Vec<LogLine>) -> Vec<Line> {
        let line = |LogLine { after, text }| {
            let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
            Line { time: self.started.checked_add(after).unwrap_or(Timestamp::MAX), text }
        };
        log.into_iter().map(line).collect()
    }
}

/// The lines about a container whose log is not prescribed.
pub(super) fn described(pod: &Value, container: &str, previous: bool, now: Timestamp) -> Vec<Line> {
    let Some(status) = status_of(pod, container) else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let simulated = format!(
        "konverge: pod {}/{} is simulated: none of its containers runs, so there is no output of theirs to show",
        meta::text(pod, "namespace"),
        meta::text(pod, "name")
    );
    let placed =
        format!("konverge: pod is {} on node {}", text(&pod["status"]["phase"]), text(&pod["spec"]["nodeName"]));
    let image = format!("konverge: container {container} has image {}", text(&status["image"]));
    let state = match previous {
        true => format!("konverge: before, it {}", ended(&status["lastState"]["terminated"])),
        false => state_line(container, status),
    };
    [simulated, placed, image, state].into_iter().map(|text| Line { time: now, text }).collect()
}

/// The state of a container in one line.
pub(super) fn state_line(container: &str, status: &Value) -> String {
    let state = &status["state"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = if let Some(running) = state.get("running").filter(|running| running.is_object()) {
        let ready = if status["ready"] == true { "ready" } else { "not ready" };
        format!("runs since {}, {ready}", text(&running["startedAt"]))
    } else if state["terminated"].is_object() {
        ended(&state["terminated"])
    } else {
        format!("waits: {}", text(&state["waiting"]["reason"]))
    };
    let restarts = status["restartCount"].as_i64().unwrap_or_default();
    format!("konverge: container {container} {now}, {restarts} restarts")
}

fn ended(terminated: &Value) -> String {
    let code = terminated["exitCode"].as_i64().unwrap_or_default();
    let reason = terminated["reason"].as_str().unwrap_or("Unknown");
    format!("ended with exit code {code} ({reason})")
}
