//! The conditions of a status. In: a list, a condition and the time. Out: the list with that condition.

use serde_json::{Value, json};

/// Sets one condition; its transition time moves only with its status.
pub(crate) fn set(conditions: &mut Value, mut condition: Value, now: &str) {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let list = conditions.as_array_mut().expect("it was just made a list");
    let before = list.iter().position(|before| before["type"] == condition["type"]);
    condition["lastTransitionTime"] = match before.map(|at| &list[at]) {
        Some(before) if before["status"] == condition["status"] => before["lastTransitionTime"].clone(),
        _ => now.into(),
    };
    match before {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

/// The condition of this type.
pub(crate) fn find<'c>(conditions: &'c Value, kind: &str) -> Option<&'c Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_with_the_status() {
        let mut conditions = Value::Null;
        for (status, reason, now, expect) in [
            ("True", "A", "1", json!([{"type": "X", "status": "True", "reason": "A", "lastTransitionTime": "1"}])),
            ("True", "B", "2", json!([{"type": "X", "status": "True", "reason": "B", "lastTransitionTime": "1"}])),
            ("False", "B", "3", json!([{"type": "X", "status": "False", "reason": "B", "lastTransitionTime": "3"}])),
        ] {
            set(&mut conditions, json!({"type": "X", "status": status, "reason": reason}), now);
            assert_eq!(conditions, expect);
        }
        set(&mut conditions, json!({"type": "Y", "status": "True"}), "4");
        assert_eq!(find(&conditions, "Y").unwrap()["lastTransitionTime"], "4");
        assert_eq!(find(&conditions, "Z"), None);
    }
}
