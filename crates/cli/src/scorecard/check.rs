//! The checks of the scorecard, and the level that follows from their verdicts. In: observations. Out: verdicts and a level. Pure.
//!
//! A level is reached when all its required checks pass, and those of the levels below it. What was not measured has not passed.

use super::observations::{Looked, Observations};
use super::verdicts::{auto_pilot, insights, install, lifecycle, olm, practices, upgrades};

/// What a check counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Level(u8),
    /// Good practice, for no level.
    Practice,
}

impl Group {
    /// All of them, in the order of reports.
    pub(super) const ALL: [Self; 6] =
        [Self::Level(1), Self::Level(2), Self::Level(3), Self::Level(4), Self::Level(5), Self::Practice];

    /// `Level 1: basic install`
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Level(1) => "Level 1: basic install",
            Self::Level(2) => "Level 2: seamless upgrades",
            Self::Level(3) => "Level 3: full lifecycle",
            Self::Level(4) => "Level 4: deep insights",
            Self::Level(_) => "Level 5: auto pilot",
            Self::Practice => "Best practices",
        }
    }
}

/// The highest level.
pub(super) const HIGHEST: u8 = 5;

/// What has to be looked at for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// What the operator prints, and the files of the project.
    Description,
    /// The bundle.
    Bundle,
    /// The manifests in a cluster.
    Deployment,
    /// The operator with its samples.
    Undisturbed,
    /// The operator, killed at each write.
    Interrupted,
    /// A server that refuses writes.
    Refused,
    /// The previous version, and then this one.
    Upgrade,
    /// What the project declares.
    Procedures,
}

/// A check.
pub(super) struct Check {
    pub name: &'static str,
    pub group: Group,
    /// Whether its level needs it.
    pub required: bool,
    /// What is done to measure it.
    pub about: &'static str,
    pub needs: &'static [Phase],
    judge: fn(&Observations) -> Judged,
}

/// A verdict, on either way: `?` gives up with one.
pub(super) type Judged = Result<Verdict, Verdict>;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// It cannot be told from what was seen.
    NotMeasured,
    /// Somebody wanted it left out.
    Skipped,
}

impl Outcome {
    /// For programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotMeasured => "notMeasured",
            Self::Skipped => "skipped",
        }
    }
}

/// What is said about a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub outcome: Outcome,
    /// What was seen.
    pub found: Vec<String>,
    /// What to do about it; empty if nothing.
    pub advice: String,
}

impl Verdict {
    pub(super) fn passed(found: impl Into<String>) -> Self {
        Self { outcome: Outcome::Passed, found: vec![found.into()], advice: String::new() }
    }

    pub(super) fn failed(found: Vec<String>, advice: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, found, advice: advice.into() }
    }

    pub(super) fn not_measured(why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { outcome: Outcome::NotMeasured, found: vec![why.into()], advice: advice.into() }
    }

    /// Passed if nothing was found.
    pub(super) fn of(found: Vec<String>, passed: impl Into<String>, advice: impl Into<String>) -> Self {
        if found.is_empty() { Self::passed(passed) } else { Self::failed(found, advice) }
    }
}

/// What was looked at; otherwise why there is nothing to judge.
pub(super) fn seen<T>(looked: &Looked<T>) -> Result<&T, Verdict> {
    match looked {
        Some(Ok(seen)) => Ok(seen),
        Some(Err(why)) => Err(Verdict::not_measured(why.clone(), "")),
        None => Err(Verdict::not_measured("this was not looked at", "")),
    }
}

use Group::{Level, Practice};
use Phase::{Bundle, Deployment, Description, Interrupted, Procedures, Refused, Undisturbed, Upgrade};

/// A required check of a level.
const fn level(
    level: u8,
    name: &'static str,
    about: &'static str,
    needs: &'static [Phase],
    judge: fn(&Observations) -> Judged,
) -> Check {
    Check { name, group: Level(level), required: true, about, needs, judge }
}

const fn practice(
    name: &'static str,
    about: &'static str,
    needs: &'static [Phase],
    judge: fn(&Observations) -> Judged,
) -> Check {
    Check { name, group: Practice, required: false, about, needs, judge }
}

/// All checks, in the order of reports.
pub(super) const CHECKS: [Check; 37] = [
    level(
        1,
        "install",
        "applies the generated manifests, and waits for the operator's Pods",
        &[Deployment],
        install::install,
    ),
    level(1, "start", "starts the operator under the rights that it declares", &[Undisturbed], install::start),
    level(
        1,
        "samples",
        "applies the samples, and waits until the operator has done its work",
        &[Undisturbed],
        install::samples,
    ),
    level(1, "basic-check-spec", "every sample has a spec (operator-sdk)", &[Description], olm::basic_check_spec),
    level(
        2,
        "crd-compatible",
        "compares the CRDs with those of the previous version",
        &[Upgrade],
        upgrades::crd_compatible,
    ),
    level(
        2,
        "upgrade",
        "lets this version take over from the previous one; nothing is lost or made anew",
        &[Upgrade],
        upgrades::upgrade,
    ),
    level(2, "version-skew", "runs the previous operator under the new CRDs", &[Upgrade], upgrades::version_skew),
    level(
        3,
        "update",
        "changes the replicas of samples, and looks whether the operator follows",
        &[Undisturbed],
        lifecycle::update,
    ),
    level(3, "cleanup", "deletes the samples, and looks what is left", &[Undisturbed], lifecycle::cleanup),
    level(
        3,
        "failure-recovery",
        "kills the operator at each write, and refuses its writes once; compares the end with an undisturbed run",
        &[Undisturbed, Interrupted, Refused],
        lifecycle::failure_recovery,
    ),
    level(3, "backup", "asks for a backup as scorecard.yaml says", &[Procedures], lifecycle::backup),
    level(3, "restore", "asks for a restore as scorecard.yaml says", &[Procedures], lifecycle::restore),
    level(
        3,
        "backup-before-upgrade",
        "looks for the backup of scorecard.yaml after an upgrade",
        &[Upgrade, Procedures],
        lifecycle::backup_before_upgrade,
    ),
    level(4, "metrics", "reads the metrics of the running operator", &[Undisturbed], insights::metrics),
    level(
        4,
        "alerts",
        "looks for alerts in the project whose metrics the operator has",
        &[Undisturbed],
        insights::alerts,
    ),
    level(4, "events", "looks for events about the samples", &[Undisturbed], insights::events),
    level(4, "usage", "looks for metrics of the operator's own", &[Undisturbed], insights::usage),
    level(4, "logs", "reads the log as a collector does: one JSON object a line", &[Undisturbed], insights::logs),
    level(
        5,
        "healing",
        "deletes and changes what the operator made, and waits until it is back",
        &[Undisturbed],
        auto_pilot::healing,
    ),
    level(
        5,
        "autoscaling",
        "looks for a HorizontalPodAutoscaler, or does what scorecard.yaml says",
        &[Undisturbed, Procedures],
        auto_pilot::autoscaling,
    ),
    Check {
        name: "predictive-scaling",
        group: Level(5),
        required: false,
        about: "does what scorecard.yaml says",
        needs: &[Procedures],
        judge: auto_pilot::predictive_scaling,
    },
    Check {
        name: "cost-optimization",
        group: Level(5),
        required: false,
        about: "does what scorecard.yaml says",
        needs: &[Procedures],
        judge: auto_pilot::cost_optimization,
    },
    practice(
        "idempotent",
        "restarts the operator and touches its objects; it writes nothing",
        &[Undisturbed],
        practices::idempotent,
    ),
    practice(
        "status-conditions",
        "samples have conditions, and a status that tells its generation",
        &[Undisturbed],
        practices::status_conditions,
    ),
    practice("owner-references", "what the operator makes has an owner", &[Undisturbed], practices::owner_references),
    practice("finalizers", "finalizers have qualified names, and are removed", &[Undisturbed], practices::finalizers),
    practice(
        "least-privilege",
        "compares the rights that it declares with those that it used",
        &[Undisturbed],
        practices::least_privilege,
    ),
    practice(
        "resource-limits",
        "containers of the operator and of what it makes have requests and limits",
        &[Undisturbed],
        practices::resource_limits,
    ),
    practice(
        "security-context",
        "the same containers give up what they do not need",
        &[Undisturbed],
        practices::security_context,
    ),
    practice(
        "crd-structural",
        "the server finds the schemas of the CRDs structural",
        &[Undisturbed],
        practices::crd_structural,
    ),
    practice("crd-documented", "every field of the CRDs is described", &[Description], practices::crd_documented),
    practice(
        "survives-restart",
        "kills the operator at each write; the end is that of an undisturbed run",
        &[Undisturbed, Interrupted],
        practices::survives_restart,
    ),
    practice("olm-bundle-validation", "makes a bundle and judges it (operator-sdk)", &[Bundle], olm::bundle_validation),
    practice(
        "olm-crds-have-validation",
        "the fields of samples are in the schemas (operator-sdk)",
        &[Undisturbed],
        olm::crds_have_validation,
    ),
    practice(
        "olm-crds-have-resources",
        "the bundle lists what the operator makes (operator-sdk)",
        &[Bundle],
        olm::crds_have_resources,
    ),
    practice(
        "olm-spec-descriptors",
        "the bundle describes the fields of specs (operator-sdk)",
        &[Bundle],
        olm::spec_descriptors,
    ),
    practice(
        "olm-status-descriptors",
        "the bundle describes the fields of statuses (operator-sdk)",
        &[Bundle, Undisturbed],
        olm::status_descriptors,
    ),
];

impl Check {
    /// The check of a name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        static ALL: [Check; CHECKS.len()] = CHECKS;
        ALL.iter().find(|check| check.name == name)
    }

    /// What is to be said about it.
    pub(super) fn judge(&self, seen: &Observations) -> Verdict {
        (self.judge)(seen).unwrap_or_else(|verdict| verdict)
    }
}

/// A check and its verdict.
pub(super) struct Scored {
    pub check: &'static Check,
    pub verdict: Verdict,
}

/// The level that follows from verdicts: 0 if not even the first is reached.
pub(super) fn level_of(scored: &[Scored]) -> u8 {
    let reached = |level: u8| {
        let mut required = scored.iter().filter(|one| one.check.group == Level(level) && one.check.required).peekable();
        required.peek().is_some() && required.all(|one| one.verdict.outcome == Outcome::Passed)
    };
    (1..=HIGHEST).take_while(|level| reached(*level)).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level if all required checks pass, except for these.
    #[track_caller]
    fn check(others: &[(&str, Outcome)], expect: u8) {
        let outcome = |name: &str| {
            others.iter().find(|(other, _)| *other == name).map_or(Outcome::Passed, |(_, outcome)| *outcome)
        };
        let score = |check: &Check| Scored {
            check: Check::named(check.name).expect("it is one"),
            verdict: Verdict { outcome: outcome(check.name), found: Vec::new(), advice: String::new() },
        };
        let scored: Vec<Scored> = CHECKS.iter().map(score).collect();
        assert_eq!(level_of(&scored), expect, "{others:?}");
    }

    #[test]
    fn a_level_needs_all_below_it() {
        check(&[], 5);
        check(&[("start", Outcome::Failed)], 0);
        check(&[("upgrade", Outcome::NotMeasured)], 1);
        check(&[("upgrade", Outcome::Skipped)], 1);
        check(&[("cleanup", Outcome::Failed), ("metrics", Outcome::Failed)], 2);
        check(&[("healing", Outcome::Failed)], 4);
        // Not required, and good practice for no level.
        check(&[("cost-optimization", Outcome::NotMeasured), ("idempotent", Outcome::Failed)], 5);
        assert_eq!(level_of(&[]), 0);
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        for name in [
            "basic-check-spec",
            "olm-bundle-validation",
            "olm-crds-have-validation",
            "olm-crds-have-resources",
            "olm-spec-descriptors",
            "olm-status-descriptors",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
