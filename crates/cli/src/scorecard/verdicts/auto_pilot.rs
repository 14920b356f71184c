//! Level 5: does it run by itself?

use super::{life_with_samples, procedure};
use crate::manifests::called;
use crate::scorecard::check::{Judged, Outcome, Verdict};
use crate::scorecard::observations::{Disturbance, Observations};

pub(in crate::scorecard) fn healing(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    if life.healed.is_empty() {
        return Err(Verdict::not_measured(
            "the operator made nothing for its samples that could be taken away",
            "write a sample for which it makes something",
        ));
    }
    let word = |how: Disturbance| if how == Disturbance::Deleted { "deleted" } else { "changed" };
    let mut found = Vec::new();
    for healed in &life.healed {
        if let Some(left) = &healed.left {
            found.push(format!("{} was {}: {left}", healed.child, word(healed.how)));
        }
    }
    let count = |how: Disturbance| life.healed.iter().filter(|healed| healed.how == how).count();
    Ok(Verdict::of(
        found,
        format!(
            "{} were deleted and {} changed, and all are as before",
            count(Disturbance::Deleted),
            count(Disturbance::Changed)
        ),
        "declare the kind with `.owns::<Kind>()`, so that its changes wake the owner, and apply it in every reconcile",
    ))
}

pub(in crate::scorecard) fn autoscaling(all: &Observations) -> Judged {
    let declared = procedure(all, "autoscaling").unwrap_or_else(|verdict| verdict);
    if declared.outcome != Outcome::NotMeasured {
        return Ok(declared);
    }
    let life = life_with_samples(all)?;
    let scalers: Vec<String> =
        life.children.iter().filter(|child| child["kind"] == "HorizontalPodAutoscaler").map(called).collect();
    match scalers.is_empty() {
        true => Err(Verdict::not_measured(
            "it makes no HorizontalPodAutoscaler, and nothing else tells how it scales",
            declared.advice,
        )),
        // Pods are simulated, so there is no load that would move one.
        false => Err(Verdict::not_measured(
            format!("it makes {}, and simulated pods have no load that would move it", scalers.join(", ")),
            declared.advice,
        )),
    }
}

pub(in crate::scorecard) fn predictive_scaling(all: &Observations) -> Judged {
    procedure(all, "predictive-scaling")
}

pub(in crate::scorecard) fn cost_optimization(all: &Observations) -> Judged {
    procedure(all, "cost-optimization")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};
    use crate::scorecard::observations::{Healed, Life, Procedure};
    use serde_json::json;

    #[test]
    fn children_come_back() {
        let healed =
            |how, left: Option<&str>| Healed { child: "Service a/b".into(), how, left: left.map(str::to_owned) };
        let seen = |healed: Vec<Healed>| lived(Life { healed, ..good_life() });
        judges("healing", &seen(vec![]), NotMeasured, "write a sample");
        let both = vec![healed(Disturbance::Deleted, None), healed(Disturbance::Changed, None)];
        judges("healing", &seen(both), Passed, "1 were deleted and 1 changed");
        judges(
            "healing",
            &seen(vec![healed(Disturbance::Deleted, Some("it is gone"))]),
            Failed,
            "Service a/b was deleted: it is gone",
        );
        judges("healing", &seen(vec![healed(Disturbance::Changed, Some("x"))]), Failed, ".owns");
    }

    #[test]
    fn scaling_is_shown_by_doing_it() {
        judges("autoscaling", &lived(good_life()), NotMeasured, "scorecard.yaml");
        let scaler = json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}});
        judges("autoscaling", &lived(Life { children: vec![scaler], ..good_life() }), NotMeasured, "no load");
        for (missing, outcome) in [(None, Passed), (Some("no".to_owned()), Failed)] {
            let procedure = Procedure { until: "it".into(), missing };
            let seen = Observations { procedures: [("autoscaling", Some(Ok(procedure)))].into(), ..lived(good_life()) };
            judges("autoscaling", &seen, outcome, "it");
        }
        judges("predictive-scaling", &lived(good_life()), NotMeasured, "predictive-scaling");
        judges("cost-optimization", &lived(good_life()), NotMeasured, "cost-optimization");
    }
}
