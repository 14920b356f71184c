//! Looks at an operator by running it. In: a subject, and which phases are wanted. Out: observations. Nothing is judged here.
//!
//! ```text
//! deployment   the generated manifests in a cluster
//! undisturbed  started, samples, again, healing, scaling, deletion
//! disturbed    killed at each write; a server that refuses writes
//! upgrade      the previous version, then this one
//! procedures   what the project declares
//! ```

mod deployment;
mod disturbed;
mod procedures;
mod undisturbed;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};

use super::check::Phase;
use super::declarations::{BEFORE_UPGRADE, Declared};
use super::observations::Observations;
use super::session::Patience;
use super::subject::Subject;

/// What is looked at, and with how much patience.
pub(super) struct Plan<'a> {
    pub subject: &'a Subject,
    pub previous: Option<&'a Subject>,
    pub declared: &'a BTreeMap<&'static str, Declared>,
    pub phases: BTreeSet<Phase>,
    pub patience: Patience,
}

/// Looks at everything that is wanted, and adds it to what is known.
pub(super) async fn observe(plan: &Plan<'_>, seen: &mut Observations) {
    let Plan { subject, patience, declared, .. } = plan;
    let wants = |phase: Phase| plan.phases.contains(&phase);
    if wants(Phase::Deployment) {
        progress("installing the manifests");
        seen.deployment = Some(deployment::observe(&seen.manifests, *patience).await);
    }
    if wants(Phase::Undisturbed) {
        seen.undisturbed = Some(undisturbed::observe(subject, *patience).await);
    }
    let expect = match &seen.undisturbed {
        Some(Ok(run)) => run.life.as_ref().map(|life| life.end_state.clone()),
        _ => None,
    };
    if wants(Phase::Interrupted) {
        progress("killing the operator at each of its writes");
        seen.interrupted = Some(match &expect {
            Some(expect) => disturbed::interrupted(subject, expect, *patience).await,
            None => Err(NOTHING_TO_COMPARE.to_owned()),
        });
    }
    if wants(Phase::Refused) {
        progress("refusing the first attempt of each of its writes");
        seen.refused = Some(match &expect {
            Some(expect) => disturbed::refused(subject, expect, *patience).await,
            None => Err(NOTHING_TO_COMPARE.to_owned()),
        });
    }
    let mut before_upgrade = None;
    if let (true, Some(previous)) = (wants(Phase::Upgrade), plan.previous) {
        progress("upgrading from the previous version");
        let until = declared.get(BEFORE_UPGRADE).map(|declared| &declared.until);
        match upgrade::observe(previous, subject, until, *patience).await {
            Ok((upgrade, found)) => (seen.upgrade, before_upgrade) = (Some(Ok(upgrade)), found),
            Err(why) => seen.upgrade = Some(Err(why)),
        }
    }
    if wants(Phase::Procedures) && !declared.is_empty() {
        seen.procedures = procedures::observe(subject, declared, *patience).await;
        if let (Some(found), Some(looked)) = (before_upgrade, seen.procedures.get_mut(BEFORE_UPGRADE)) {
            *looked = Some(Ok(found));
        }
    }
}

const NOTHING_TO_COMPARE: &str = "the undisturbed run came to no end that this could be compared with";

/// Says on the terminal what is done now.
pub(super) fn progress(text: &str) {
    eprintln!("… {text}");
}
