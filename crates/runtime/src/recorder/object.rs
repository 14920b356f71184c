//! The Event object. In: a recorded event. Out: the object as `events.k8s.io/v1` takes it, within its limits. Pure.

use jiff::Timestamp;
use konverge_core::ObjectKey;
use serde_json::{Value, json};

use super::journal::{Recorded, Severity};

/// The longest text that the API takes for reasons and actions.
const MOST_WORD_BYTES: usize = 128;
/// The longest note.
const MOST_NOTE_BYTES: usize = 1024;
/// The longest name, less what follows the name of the object: two dots and two numbers.
const MOST_NAME_BYTES: usize = 253 - 34;

/// Tells more than the two types of Kubernetes can.
const SEVERITY_ANNOTATION: &str = "konverge.dev/severity";

/// Where the Event is: with the object, or in `default` if that is in no namespace. The name does not depend on the
/// count: repetitions are of the same Event.
pub(super) fn event_key(recorded: &Recorded) -> ObjectKey {
    let subject = recorded.subject.key.name();
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut name: String = if subject.chars().all(|c| is_fine(c) || matches!(c, '-' | '.')) {
        subject.chars().take(MOST_NAME_BYTES).collect()
    } else {
        // Some kinds allow more in names than Events do.
        subject.chars().map(|c| if is_fine(c) { c } else { 'x' }).take(MOST_NAME_BYTES).collect()
    };
    name.truncate(name.trim_end_matches(['-', '.']).len());
    let name = format!("{name}.{:x}.{:x}", recorded.first.as_nanosecond(), recorded.id);
    ObjectKey::new(Some(recorded.subject.key.namespace().unwrap_or("default")), &name)
}

/// The Event as it is created.
pub(super) fn event_object(recorded: &Recorded, controller: &str, instance: &str) -> Value {
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
    let word = |text: &str, other: &str| cut(if text.is_empty() { other } else { text }, MOST_WORD_BYTES).to_owned();
    let mut object = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": key.name(), "namespace": key.namespace()},
        "eventTime": micro_time(recorded.first),
        "type": event.severity.event_type(),
        "reason": word(&event.reason, "Unknown"),
        "action": word(&event.action, "Reconcile"),
        "note": cut(&event.message, MOST_NOTE_BYTES),
        "regarding": regarding,
        "reportingController": controller,
        "reportingInstance": cut(instance, MOST_WORD_BYTES),
    });
    if matches!(event.severity, Severity::Error | Severity::Critical) {
        object["metadata"]["annotations"] = json!({SEVERITY_ANNOTATION: event.severity.as_str()});
    }
    if recorded.count > 1 {
        object["series"] = series(recorded);
    }
    object
}

/// How often it happened, and when last.
pub(super) fn series(recorded: &Recorded) -> Value {
    json!({"count": recorded.count, "lastObservedTime": micro_time(recorded.last)})
}

/// A name as the API takes it for who reports: what does not fit becomes a dash.
pub(super) fn reporter(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let fine: String = name.chars().map(|c| if is_fine(c) { c } else { '-' }).collect();
    // One slash may part a domain from a name.
    let (prefix, name) = match fine.split_once('/') {
        Some((prefix, name)) => (Some(prefix.to_ascii_lowercase()), name.replace('/', "-")),
        None => (None, fine),
    };
    let edge = |c: char| !c.is_ascii_alphanumeric();
    let name = cut(name.trim_matches(edge), 63).trim_matches(edge).to_owned();
    let name = if name.is_empty() { "operator".to_owned() } else { name };
    match prefix.map(|prefix| prefix.trim_matches(edge).replace('_', "-")) {
        Some(prefix) if !prefix.is_empty() => format!("{prefix}/{name}"),
        _ => name,
    }
}

fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The text, cut between two characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests;
