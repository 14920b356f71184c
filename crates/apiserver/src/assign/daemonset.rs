//! Daemon sets: how often their template has changed, in an annotation that older clients read. In: the set before and after a write. Out: the
//! same with the annotation, which nobody else can set.

use serde_json::{Value, json};

const GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn assign(old: Option<&Value>, new: &mut Value) {
    let generation = match old {
        None => 1,
        Some(old) => {
            let before = old["metadata"]["annotations"][GENERATION].as_str().and_then(|text| text.parse().ok());
            before.unwrap_or(0_i64) + i64::from(old["spec"]["template"] != new["spec"]["template"])
        }
    };
    if !new["metadata"]["annotations"].is_object() {
        new["metadata"]["annotations"] = json!({});
    }
    new["metadata"]["annotations"][GENERATION] = generation.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_counted() {
        let set = |generation: Value, image: &str| json!({"metadata": {"annotations": {GENERATION: generation}}, "spec": {"template": {"image": image}}});
        for (old, new, expect) in [
            (None, json!({"metadata": {}, "spec": {}}), "1"),
            (Some(set(json!("4"), "a")), set(json!("9"), "a"), "4"),
            (Some(set(json!("4"), "a")), set(Value::Null, "b"), "5"),
        ] {
            let mut new = new;
            assign(old.as_ref(), &mut new);
            assert_eq!(new["metadata"]["annotations"][GENERATION], expect);
        }
    }
}
