//! Level 3: does it carry its objects from the first change to the last?

use super::{life_with_samples, procedure};
use crate::counted::counted;
use crate::scorecard::check::{Judged, Verdict, seen};
use crate::scorecard::observations::{Disturbed, Observations};

pub(in crate::scorecard) fn update(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    if life.scaled.is_empty() {
        return Err(Verdict::not_measured(
            "no sample has a number of replicas to change",
            "give the kind the subresource scale, or a field replicas or size in its spec, and set it in a sample",
        ));
    }
    let mut found = Vec::new();
    for scaled in &life.scaled {
        if !scaled.followed {
            found.push(format!("{}: nothing that it made has {} replicas", scaled.sample, scaled.replicas));
        }
        if !scaled.observed {
            found.push(format!("{}: its status does not tell the generation of the change", scaled.sample));
        }
    }
    Ok(Verdict::of(
        found,
        format!("{} scaled, and what belongs to it followed", counted(life.scaled.len(), "sample")),
        "apply children from the spec in every reconcile, and set observedGeneration in the status",
    ))
}

pub(in crate::scorecard) fn cleanup(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let Some(deleted) = &life.deleted else {
        return Err(Verdict::not_measured("the samples were not deleted", "see the check samples"));
    };
    let found = deleted.stuck.iter().map(|one| format!("{one} does not go"));
    let found = found.chain(deleted.left.iter().map(|one| format!("{one} is left behind"))).collect();
    Ok(Verdict::of(
        found,
        "samples go when they are deleted, and what belongs to them goes, too",
        "`ctx.apply` sets the owner of children in the same namespace; what has no owner is deleted in `.on_delete`",
    ))
}

pub(in crate::scorecard) fn failure_recovery(all: &Observations) -> Judged {
    life_with_samples(all)?;
    let (killed, refused) = (seen(&all.interrupted)?, seen(&all.refused)?);
    let mut found = disturbed(killed, "killed");
    found.extend(disturbed(refused, "after refused writes"));
    if killed.times == 0 && refused.times == 0 && found.is_empty() {
        return Err(Verdict::not_measured(
            "the operator wrote nothing that could be disturbed",
            "see the check samples",
        ));
    }
    Ok(Verdict::of(
        found,
        format!(
            "killed at {} and refused {}, it comes to the same end",
            counted(killed.times, "write"),
            counted(refused.times, "write")
        ),
        ADVICE,
    ))
}

/// What to do about an end that is not the same.
pub(super) const ADVICE: &str = "each step of a reconcile must be safe to repeat: read what is there, apply what is missing, return errors instead of keeping them";

/// What is wrong with the end of a disturbed run.
pub(super) fn disturbed(run: &Disturbed, how: &str) -> Vec<String> {
    run.problem.iter().chain(&run.differences).map(|one| format!("{how}: {one}")).collect()
}

pub(in crate::scorecard) fn backup(all: &Observations) -> Judged {
    procedure(all, "backup")
}

pub(in crate::scorecard) fn restore(all: &Observations) -> Judged {
    procedure(all, "restore")
}

pub(in crate::scorecard) fn backup_before_upgrade(all: &Observations) -> Judged {
    if all.upgrade.is_none() && all.procedures.contains_key("backup-before-upgrade") {
        return Err(Verdict::not_measured("there is no previous version to upgrade from", "name it with --previous"));
    }
    procedure(all, "backup-before-upgrade")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};
    use crate::scorecard::observations::{Deleted, Life, Procedure, Scaled};

    #[test]
    fn changes_are_followed() {
        let scaled = |followed, observed| Scaled { sample: "Shop a/b".into(), replicas: 2, followed, observed };
        let seen = |scaled: Vec<Scaled>| lived(Life { scaled, ..good_life() });
        judges("update", &seen(vec![]), NotMeasured, "replicas");
        judges("update", &seen(vec![scaled(true, true)]), Passed, "1 sample scaled");
        judges("update", &seen(vec![scaled(false, true)]), Failed, "has 2 replicas");
        judges("update", &seen(vec![scaled(true, false)]), Failed, "generation");
    }

    #[test]
    fn what_is_deleted_goes() {
        let seen = |deleted: Option<Deleted>| lived(Life { deleted, ..good_life() });
        judges("cleanup", &seen(None), NotMeasured, "");
        judges("cleanup", &seen(Some(Deleted::default())), Passed, "");
        judges(
            "cleanup",
            &seen(Some(Deleted { stuck: vec!["Shop a".into()], left: vec![] })),
            Failed,
            "Shop a does not go",
        );
        judges(
            "cleanup",
            &seen(Some(Deleted { stuck: vec![], left: vec!["Secret a".into()] })),
            Failed,
            "Secret a is left",
        );
    }

    #[test]
    fn failures_are_survived() {
        let run = |times, problem: Option<&str>, differences: &[&str]| Disturbed {
            times,
            problem: problem.map(str::to_owned),
            differences: differences.iter().map(|one| (*one).to_owned()).collect(),
        };
        let seen = |killed: Disturbed, refused: Disturbed| Observations {
            interrupted: Some(Ok(killed)),
            refused: Some(Ok(refused)),
            ..lived(good_life())
        };
        judges(
            "failure-recovery",
            &seen(run(3, None, &[]), run(4, None, &[])),
            Passed,
            "killed at 3 writes and refused 4 writes",
        );
        judges("failure-recovery", &seen(run(3, None, &["a is b"]), run(4, None, &[])), Failed, "killed: a is b");
        judges(
            "failure-recovery",
            &seen(run(3, None, &[]), run(4, Some("it ended"), &[])),
            Failed,
            "after refused writes: it ended",
        );
        judges("failure-recovery", &seen(run(0, None, &[]), run(0, None, &[])), NotMeasured, "");
        judges("survives-restart", &seen(run(3, None, &[]), run(0, None, &[])), Passed, "3");
        judges("survives-restart", &seen(run(3, None, &["a is b"]), run(0, None, &[])), Failed, "a is b");
    }

    #[test]
    fn procedures_are_declared() {
        let seen = |name: &'static str, missing: Option<&str>| {
            let procedure = Procedure { until: "Job a: Complete".into(), missing: missing.map(str::to_owned) };
            Observations {
                procedures: [(name, Some(Ok(procedure)))].into(),
                upgrade: Some(Ok(Default::default())),
                ..Observations::default()
            }
        };
        for name in ["backup", "restore", "backup-before-upgrade"] {
            judges(name, &Observations::default(), NotMeasured, "declare in scorecard.yaml");
            judges(name, &seen(name, None), Passed, "Job a: Complete came true");
            judges(name, &seen(name, Some("there is no Job a")), Failed, "there is no Job a");
        }
        let without = Observations { upgrade: None, ..seen("backup-before-upgrade", None) };
        judges("backup-before-upgrade", &without, NotMeasured, "--previous");
    }
}
