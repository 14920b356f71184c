//! How annotations say what simulated pods do. The control plane's simulator decides by them how containers start and end, the API
//! server what they answer; both read them the same way. In: texts. Out: what they mean. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the annotations of a pod begin with.
pub const PREFIX: &str = "simulate.konverge.dev/";

/// The annotation in which the API server notes how processes have ended, those of interactive containers and the commands of ephemeral ones: a JSON
/// object of exit codes by container. It is for the simulator, and not for people.
pub const EXITED: &str = "simulate.konverge.dev/exited";

/// What the ids of simulated containers begin with.
pub const CONTAINER_ID: &str = "konverge-sim://";

/// Whether a container lives as long as the process that somebody attaches to: `kubectl run -i --restart=Never` and `kubectl debug -i`
/// make such containers.
pub fn ends_with_its_client(stdin: bool, stdin_once: bool, ephemeral: bool, restart_policy: &str) -> bool {
    stdin && (ephemeral || stdin_once && restart_policy == "Never")
}

/// How the process of a container has ended, as the annotation says.
pub fn exit_code(exited: &str, container: &str) -> Option<i32> {
    let codes: BTreeMap<String, i32> = serde_json::from_str(exited).ok()?;
    codes.get(container).copied()
}

/// The annotation with another exit code.
///
/// ```
/// use konverge_core::simulate::{exit_code, with_exit_code};
/// let exited = with_exit_code("", "debugger", 3);
/// assert_eq!(exit_code(&with_exit_code(&exited, "main", 0), "debugger"), Some(3));
/// ```
pub fn with_exit_code(exited: &str, container: &str, code: i32) -> String {
    let mut codes: BTreeMap<String, i32> = serde_json::from_str(exited).unwrap_or_default();
    codes.insert(container.to_owned(), code);
    serde_json::json!(codes).to_string()
}

/// Whether a text is like a pattern, where `*` stands for any text.
///
/// ```
/// use konverge_core::simulate::is_like;
/// assert!(is_like("*/broken:*", "example.com/broken:2"));
/// assert!(!is_like("nginx", "nginx:1"));
/// ```
pub fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

/// `500ms`, `2s`, `1.5s`, `1m`, `2h`; a plain number is seconds.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = number.parse::<f64>().ok()?
        * match unit {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_like_patterns() {
        for (pattern, text, expect) in [
            ("nginx", "nginx", true),
            ("nginx", "nginx:1", false),
            ("nginx*", "nginx:1", true),
            ("*/broken:*", "example.com/broken:2", true),
            ("*/broken:*", "example.com/fine:2", false),
            ("*", "", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(is_like(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, expect) in [
            ("500ms", Some(500)),
            ("2s", Some(2000)),
            ("1.5s", Some(1500)),
            ("3", Some(3000)),
            ("1m", Some(60_000)),
            ("soon", None),
            ("", None),
            ("-1s", None),
        ] {
            assert_eq!(duration(text), expect.map(Duration::from_millis), "{text}");
        }
    }
}
