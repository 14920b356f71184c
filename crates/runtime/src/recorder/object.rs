//! The Event object. In: a recorded event. Out: the object as `events.k8s.io/v1` takes it, within its limits. Pure.

use jiff::Timestamp;
use konverge_core::ObjectKey;
use serde_json::{Value, json};

use super::journal::{RecordedEvent, Severity};

/// The longest reason or action that the API accepts.
const MOST_WORD_BYTES: usize = 128;
/// The longest note.
const MOST_NOTE_BYTES: usize = 1024;
/// The longest name, less what follows the name of the object: two dots and two numbers.
const MOST_NAME_BYTES: usize = 253 - 34;

/// Holds the severity, because Kubernetes has only two types of events.
const SEVERITY_ANNOTATION: &str = "konverge.dev/severity";

/// The key of the Event: in the namespace of the object, or in `default` if the object is cluster-scoped. The name does not
/// depend on the count, because repetitions update the same Event.
pub(super) fn event_key(recorded: &RecordedEvent) -> ObjectKey {
    let subject = recorded.subject.key.name();
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut name: String = if subject.chars().all(|c| is_allowed(c) || matches!(c, '-' | '.')) {
        subject.chars().take(MOST_NAME_BYTES).collect()
    } else {
        // Some kinds allow characters in names that Events do not allow.
        subject.chars().map(|c| if is_allowed(c) { c } else { 'x' }).take(MOST_NAME_BYTES).collect()
    };
    name.truncate(name.trim_end_matches(['-', '.']).len());
    let name = format!("{name}.{:x}.{:x}", recorded.first.as_nanosecond(), recorded.id);
    ObjectKey::new(Some(recorded.subject.key.namespace().unwrap_or("default")), &name)
}

/// The Event as it is created.
pub(super) fn event_object(recorded: &RecordedEvent, controller: &str, instance: &str) -> Value {
    let (subject, event) = (&*recorded.subject, &*recorded.event);
    let key = event_key(recorded);
    let mut regarding = json!({
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "name": subject.key.name(),
    });
    if let Some(namespace) = subject.key.namespace() {
        regarding["namespace"] = json!(namespace);
    }
    if !subject.uid.is_empty() {
        regarding["uid"] = json!(subject.uid);
    }
    let word =
        |text: &str, other: &str| truncate(if text.is_empty() { other } else { text }, MOST_WORD_BYTES).to_owned();
    let mut object = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": key.name(), "namespace": key.namespace()},
        "eventTime": micro_time(recorded.first),
        "type": event.severity.event_type(),
        "reason": word(&event.reason, "Unknown"),
        "action": word(&event.action, "Reconcile"),
        "note": truncate(&event.message, MOST_NOTE_BYTES),
        "regarding": regarding,
        "reportingController": controller,
        "reportingInstance": truncate(instance, MOST_WORD_BYTES),
    });
    if matches!(event.severity, Severity::Error | Severity::Critical) {
        object["metadata"]["annotations"] = json!({SEVERITY_ANNOTATION: event.severity.as_str()});
    }
    if recorded.count > 1 {
        object["series"] = series(recorded);
    }
    object
}

/// The series of the Event: how often it happened, and when last.
pub(super) fn series(recorded: &RecordedEvent) -> Value {
    json!({"count": recorded.count, "lastObservedTime": micro_time(recorded.last)})
}

/// A valid `reportingController`: characters that are not allowed become dashes.
pub(super) fn reporter(name: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let allowed: String = name.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
    // One slash may separate a domain from a name.
    let (prefix, name) = match allowed.split_once('/') {
        Some((prefix, name)) => (Some(prefix.to_ascii_lowercase()), name.replace('/', "-")),
        None => (None, allowed),
    };
    let edge = |c: char| !c.is_ascii_alphanumeric();
    let name = truncate(name.trim_matches(edge), 63).trim_matches(edge).to_owned();
    let name = if name.is_empty() { "operator".to_owned() } else { name };
    match prefix.map(|prefix| prefix.trim_matches(edge).replace('_', "-")) {
        Some(prefix) if !prefix.is_empty() => format!("{prefix}/{name}"),
        _ => name,
    }
}

fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The text, truncated at a character boundary.
fn truncate(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests;
