//! Level 2: does this version take over from the previous one?

use crate::counted::counted;
use crate::scorecard::check::{Judged, Verdict, seen};
use crate::scorecard::observations::{Observations, Upgrade};

/// The upgrade, if there is a previous version.
fn upgraded(all: &Observations) -> Result<&Upgrade, Verdict> {
    if all.upgrade.is_none() {
        return Err(Verdict::not_measured(
            "there is no previous version to upgrade from",
            "name it with --previous: a git revision such as v1.2.0, or the path of its executable",
        ));
    }
    seen(&all.upgrade)
}

/// What went wrong; not measured, if nothing did as far as one could see, and not all could be seen.
fn unless_unseen(found: Vec<String>, unseen: Option<&String>) -> Result<Vec<String>, Verdict> {
    match unseen {
        Some(why) if found.is_empty() => Err(Verdict::not_measured(
            why.clone(),
            "both versions must serve their metrics: metrics.enabled and metrics.bindAddress",
        )),
        _ => Ok(found),
    }
}

pub(in crate::scorecard) fn crd_compatible(all: &Observations) -> Judged {
    Ok(Verdict::of(
        upgraded(all)?.breaking.clone(),
        "the CRDs break nothing that the previous version served",
        "add a version instead of changing one (`konverge create api --version`), or undo the change; `konverge crd diff` explains each",
    ))
}

pub(in crate::scorecard) fn upgrade(all: &Observations) -> Judged {
    let upgrade = upgraded(all)?;
    let found = upgrade.problems.iter().chain(&upgrade.lost).cloned().collect();
    Ok(Verdict::of(
        unless_unseen(found, upgrade.problems_unseen.as_ref())?,
        format!("kept: {}", counted(upgrade.kept, "object")),
        "keep the names and selectors of children between versions, and convert what users wrote",
    ))
}

pub(in crate::scorecard) fn version_skew(all: &Observations) -> Judged {
    let upgrade = upgraded(all)?;
    Ok(Verdict::of(
        unless_unseen(upgrade.skew.clone(), upgrade.skew_unseen.as_ref())?,
        "the previous operator goes on under the new CRDs",
        "during a rollout both versions run, and the CRDs are replaced first: keep serving the version that the previous operator uses",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::judges;
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};

    #[test]
    fn from_the_previous_version() {
        let seen = |upgrade: Upgrade| Observations { upgrade: Some(Ok(upgrade)), ..Observations::default() };
        let good = Upgrade { kept: 3, ..Upgrade::default() };
        let bad = |text: &str| vec![text.to_owned()];
        for name in ["crd-compatible", "upgrade", "version-skew"] {
            judges(name, &seen(good.clone()), Passed, "");
            judges(name, &Observations::default(), NotMeasured, "--previous");
            judges(
                name,
                &Observations { upgrade: Some(Err("it ended".into())), ..Observations::default() },
                NotMeasured,
                "it ended",
            );
        }
        judges("crd-compatible", &seen(Upgrade { breaking: bad("spec.a is gone"), ..good.clone() }), Failed, "spec.a");
        judges("upgrade", &seen(Upgrade { lost: bad("Shop a is gone"), ..good.clone() }), Failed, "Shop a");
        judges("upgrade", &seen(Upgrade { problems: bad("it ended"), ..good.clone() }), Failed, "it ended");
        judges("version-skew", &seen(Upgrade { skew: bad("it failed"), ..good.clone() }), Failed, "it failed");
        // What could not be seen is not good, and does not hide what is bad.
        let unseen = Upgrade { skew_unseen: Some("no page".into()), problems_unseen: Some("no page".into()), ..good };
        judges("crd-compatible", &seen(unseen.clone()), Passed, "");
        judges("upgrade", &seen(unseen.clone()), NotMeasured, "no page");
        judges("version-skew", &seen(unseen.clone()), NotMeasured, "no page");
        judges("upgrade", &seen(Upgrade { lost: bad("Shop a is gone"), ..unseen.clone() }), Failed, "Shop a");
        judges("version-skew", &seen(Upgrade { skew: bad("it failed"), ..unseen }), Failed, "it failed");
    }
}
