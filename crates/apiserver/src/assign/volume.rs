//! Persistent volumes: since when one is in its phase. In: the volume before and after a write. Out: the same with that time.

use serde_json::Value;

pub(super) fn assign(old: Option<&Value>, new: &mut Value, now: &str) {
    let time = |volume: &Value| volume["status"]["lastPhaseTransitionTime"].clone();
    let changed = old.is_none_or(|old| old["status"]["phase"] != new["status"]["phase"]);
    let is_stale = time(new).is_null() || old.is_some_and(|old| time(old) == time(new));
    if changed && is_stale {
        new["status"]["lastPhaseTransitionTime"] = now.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_phase_has_its_time() {
        let volume = |phase: &str, time: Value| json!({"status": {"phase": phase, "lastPhaseTransitionTime": time}});
        for (old, new, expect) in [
            (None, volume("Pending", Value::Null), json!("now")),
            (Some(volume("Pending", json!("then"))), volume("Pending", json!("then")), json!("then")),
            (Some(volume("Pending", json!("then"))), volume("Bound", json!("then")), json!("now")),
            (Some(volume("Pending", json!("then"))), volume("Bound", json!("later")), json!("later")),
        ] {
            let mut new = new;
            assign(old.as_ref(), &mut new, "now");
            assert_eq!(new["status"]["lastPhaseTransitionTime"], expect);
        }
    }
}
