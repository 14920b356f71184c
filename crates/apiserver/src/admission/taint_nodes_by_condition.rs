//! TaintNodesByCondition: a new node takes no pods until something says that it is ready.

use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "", "nodes")
    }

    fn admit<'a>(&'a self, _: &'a Attributes<'a>, node: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        taint(node);
        decided(Ok(()))
    }
}

fn taint(node: &mut Value) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        node["spec"]["taints"] = taints.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_has_the_taint_once() {
        let ours = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let other = json!({"key": NOT_READY, "effect": "NoExecute"});
        for (given, expect) in
            [(json!(null), json!([ours])), (json!([other]), json!([other, ours])), (json!([ours]), json!([ours]))]
        {
            let mut node = json!({"spec": {"taints": given}});
            taint(&mut node);
            assert_eq!(node["spec"]["taints"], expect);
        }
    }
}
