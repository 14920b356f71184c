//! Verdicts: what observations mean for each check. In: observations. Out: passed, failed with what to do, or not measured with what is missing. Pure;
//! each file has the checks of one group.

pub(super) mod auto_pilot;
pub(super) mod insights;
pub(super) mod install;
pub(super) mod lifecycle;
pub(super) mod olm;
pub(super) mod practices;
pub(super) mod upgrades;
mod workloads;

use super::check::{Judged, Verdict, seen};
use super::declarations::FILE;
use super::observations::{Life, Observations, Undisturbed};

/// The undisturbed run.
fn undisturbed(seen_all: &Observations) -> Result<&Undisturbed, Verdict> {
    seen(&seen_all.undisturbed)
}

/// What a started operator did.
fn life(seen_all: &Observations) -> Result<&Life, Verdict> {
    undisturbed(seen_all)?
        .life
        .as_ref()
        .ok_or_else(|| Verdict::not_measured("the operator did not start", "see the check start"))
}

/// The same, if it had samples to work on.
fn life_with_samples(seen_all: &Observations) -> Result<&Life, Verdict> {
    let life = life(seen_all)?;
    match life.samples.is_empty() {
        true => Err(Verdict::not_measured("there are no samples to look at", "see the check samples")),
        false => Ok(life),
    }
}

/// A procedure of `scorecard.yaml`.
fn procedure(seen_all: &Observations, name: &'static str) -> Judged {
    let undeclared = || {
        let advice = format!(
            "declare in {FILE} how it is asked for and what tells success: {name}: {{apply: [OBJECTS], until: {{object: {{apiVersion, kind, name, namespace}}, condition: TYPE}}}}"
        );
        Verdict::not_measured("nobody can tell from outside how this operator does it", advice)
    };
    let declared = seen_all.procedures.get(name).ok_or_else(undeclared)?;
    let procedure = seen(declared)?;
    Ok(match &procedure.missing {
        None => Verdict::passed(format!("{} came true", procedure.until)),
        Some(why) => Verdict::failed(
            vec![format!("{} did not come true: {why}", procedure.until)],
            format!("mend the operator, or what {FILE} says about {name}"),
        ),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scorecard::check::{Check, Outcome};
    use crate::scorecard::end_state::EndState;
    use crate::scorecard::observations::{Rest, Started};
    use serde_json::{Value, json};

    /// A run in which everything went well, for a sample with a Deployment.
    pub(crate) fn good_life() -> Life {
        let status = json!({
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        let metadata = json!({"name": "web", "namespace": "default", "generation": 1, "uid": "1"});
        Life {
            refused_samples: Vec::new(),
            rest: Rest::Quiet,
            samples: vec![
                json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": {"replicas": 1}, "status": status}),
            ],
            children: vec![good_child()],
            writes: Vec::new(),
            refusals: Vec::new(),
            events: vec![json!({"reason": "Ready", "involvedObject": {"kind": "Shop", "name": "web"}})],
            metrics: Some(
                "controller_runtime_reconcile_total{controller=\"shop\",result=\"success\"} 3\nshop_sales_total 1\n"
                    .to_owned(),
            ),
            log: vec!["{\"level\":\"INFO\"}".to_owned()],
            end_state: EndState::default(),
            again: None,
            healed: Vec::new(),
            scaled: Vec::new(),
            deleted: None,
            rights: None,
        }
    }

    pub(crate) fn good_child() -> Value {
        let context = json!({"runAsNonRoot": true, "allowPrivilegeEscalation": false, "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}});
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let container =
            json!({"name": "app", "resources": {"requests": amounts, "limits": amounts}, "securityContext": context});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default", "ownerReferences": [{"kind": "Shop", "name": "web", "uid": "1", "controller": true}]},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        })
    }

    /// What was seen if this was the life of the operator.
    pub(crate) fn lived(life: Life) -> Observations {
        let run = Undisturbed { bad_definitions: Vec::new(), started: Started::Ready, life: Some(life) };
        Observations {
            undisturbed: Some(Ok(run)),
            samples: vec![("shop.yaml".into(), json!({"kind": "Shop", "spec": {}}))],
            ..Observations::default()
        }
    }

    /// Judges a check, and compares the outcome and a part of what is said.
    #[track_caller]
    pub(crate) fn judges(name: &str, seen: &Observations, outcome: Outcome, expect: &str) {
        let verdict = Check::named(name).expect("a check").judge(seen);
        let said = format!("{}\n{}", verdict.found.join("\n"), verdict.advice);
        assert!(verdict.outcome == outcome && said.contains(expect), "{name}: {:?} {said}", verdict.outcome);
        assert!(
            verdict.outcome != Outcome::Failed || !verdict.advice.is_empty(),
            "{name}: a miss comes with what to do"
        );
    }

    #[test]
    fn what_was_not_looked_at_has_not_passed() {
        for check in &crate::scorecard::check::CHECKS {
            // Only what needs no run can be told from nothing.
            let verdict = check.judge(&Observations::default());
            assert_ne!(verdict.outcome, Outcome::Passed, "{}: {verdict:?}", check.name);
        }
    }
}
