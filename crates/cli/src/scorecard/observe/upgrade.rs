//! An upgrade as a cluster sees it: the previous operator has made its objects; the CRDs are replaced while it still runs; then this version takes over. In: two
//! subjects. Out: what broke, what was lost, and what was kept.

use jiff::Timestamp;
use serde_json::Value;

use crate::crd;
use crate::manifests::called;
use crate::scorecard::declarations::Until;
use crate::scorecard::end_state::missing;
use crate::scorecard::observations::{Procedure, Rest, Upgrade};
use crate::scorecard::session::{Patience, Session};
use crate::scorecard::subject::Subject;

use super::procedures::wait_for;

/// The counter of reconciles that failed.
const ERRORS: &str = "controller_runtime_reconcile_errors_total";

pub(super) async fn observe(
    previous: &Subject,
    subject: &Subject,
    until: Option<&Until>,
    patience: Patience,
) -> Result<(Upgrade, Option<Procedure>), String> {
    let (mut session, bad) = Session::open(previous, patience).await?;
    let of_previous = |why: &str| format!("the previous version does not work here: {why}");
    if let Some(why) = bad.first() {
        return Err(of_previous(why));
    }
    if let Some(why) = session.start(previous).await?.problem() {
        return Err(of_previous(&why));
    }
    let (since, from) = (Timestamp::now(), session.cluster.record.count());
    if let Some((source, why)) = Session::apply_samples(&session.cluster, previous, patience).await.first() {
        return Err(of_previous(&format!(
            "it refuses {source}: {why}; samples that both versions take are named with --samples"
        )));
    }
    if session.rest().await != Rest::Quiet {
        return Err(of_previous("it does not come to rest"));
    }
    let samples = session.all_now(&previous.distinct_samples()).await?;
    let children = session.children(&session.cluster.record.since(from), &samples, since).await?;
    let mut seen =
        Upgrade { breaking: crd::breaking(&previous.definitions, &subject.definitions), ..Upgrade::default() };

    // A rollout replaces the CRDs first, while the previous operator runs.
    let errors = session.counter(ERRORS).await;
    if converts_anew(&previous.definitions, &subject.definitions) {
        // Nobody serves the new conversions but this version, which waits to take over.
        let (bad, started) = session.stand_by(subject).await?;
        seen.problems.extend(bad);
        seen.problems.extend(started.problem());
    } else {
        seen.problems.extend(session.install(subject).await?);
    }
    for sample in &samples {
        if let Err(why) = session.touch(sample, "skew").await {
            seen.skew.push(format!("{} cannot be written: {why}", called(sample)));
        }
    }
    match session.rest().await {
        Rest::Quiet => {}
        Rest::Restless(writes) => seen.skew.push(format!("it does not stop writing: {}", writes.join(", "))),
        Rest::Ended(how) => seen.skew.push(format!("it ended ({how})")),
    }
    match failures(errors, session.counter(ERRORS).await) {
        Ok(0.0) => {}
        Ok(failed) => seen.skew.push(format!("{failed} reconciles failed under the new CRDs")),
        Err(why) => seen.skew_unseen = Some(format!("of the previous operator, {why}")),
    }

    session.stop_operator().await;
    session.dismiss().await;
    session.entitle(subject).await?;
    match session.start(subject).await?.problem() {
        Some(problem) => seen.problems.push(problem),
        None => match session.rest().await {
            Rest::Quiet => {}
            Rest::Restless(writes) => seen.problems.push(format!("it does not stop writing: {}", writes.join(", "))),
            Rest::Ended(how) => seen.problems.push(format!("the operator ended ({how})")),
        },
    }
    match failures(Some(0.0), session.counter(ERRORS).await) {
        Ok(0.0) => {}
        Ok(failed) => seen.problems.push(format!("{failed} reconciles failed after the upgrade")),
        Err(why) => seen.problems_unseen = Some(why),
    }
    for (before, is_sample) in samples.iter().map(|one| (one, true)).chain(children.iter().map(|one| (one, false))) {
        match lost(before, session.now(before).await, is_sample) {
            Some(why) => seen.lost.push(why),
            None => seen.kept += 1,
        }
    }
    let procedure = match until {
        Some(until) => Some(wait_for(&session, until).await),
        None => None,
    };
    session.close().await;
    Ok((seen, procedure))
}

/// Whether a kind is converted by a webhook that the previous version does not serve.
fn converts_anew(previous: &[Value], now: &[Value]) -> bool {
    let converts = |definition: &&Value| definition["spec"]["conversion"]["strategy"] == "Webhook";
    let name = |definition: &Value| definition["metadata"]["name"].clone();
    now.iter().filter(converts).any(|new| !previous.iter().filter(converts).any(|old| name(old) == name(new)))
}

/// How many reconciles failed between two looks at the metrics; why nobody knows, if one of the pages could not be read.
fn failures(before: Option<f64>, after: Option<f64>) -> Result<f64, String> {
    let difference = before.zip(after).map(|(before, after)| (after - before).max(0.0));
    difference.ok_or_else(|| "the page of metrics, which counts failed reconciles, could not be read".to_owned())
}

/// What an upgrade did to an object that it should have kept; nothing if it is kept.
fn lost(before: &Value, now: Result<Option<Value>, String>, is_sample: bool) -> Option<String> {
    let name = called(before);
    let now = match now {
        Ok(Some(now)) => now,
        Ok(None) => return Some(format!("{name} is gone")),
        Err(why) => return Some(format!("{name} cannot be read: {why}")),
    };
    if now["metadata"]["uid"] != before["metadata"]["uid"] {
        return Some(format!("{name} was deleted and made anew"));
    }
    // The spec of a child is the operator's to change.
    let field = is_sample.then(|| missing(&before["spec"], &now["spec"])).flatten();
    field.map(|field| format!("{name}: spec{field}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_serves_conversions() {
        let definition = |name: &str, strategy: &str| json!({"metadata": {"name": name}, "spec": {"conversion": {"strategy": strategy}}});
        let (shop, till) = (|strategy| definition("shops", strategy), |strategy| definition("tills", strategy));
        for (previous, now, expect) in [
            (vec![shop("None")], vec![shop("None")], false),
            (vec![shop("None")], vec![shop("Webhook")], true),
            (vec![shop("Webhook")], vec![shop("Webhook")], false),
            (vec![shop("Webhook")], vec![shop("Webhook"), till("Webhook")], true),
            (vec![shop("Webhook")], vec![shop("None")], false),
        ] {
            assert_eq!(converts_anew(&previous, &now), expect, "{previous:?} {now:?}");
        }
    }

    #[test]
    fn failures_are_counted_if_they_can_be_seen() {
        for (before, after, expect) in [
            (Some(0.0), Some(0.0), Some(0.0)),
            (Some(2.0), Some(5.0), Some(3.0)),
            (None, Some(5.0), None),
            (Some(2.0), None, None),
            (None, None, None),
        ] {
            assert_eq!(failures(before, after).ok(), expect, "{before:?} {after:?}");
        }
    }

    #[test]
    fn what_an_upgrade_keeps() {
        let object =
            |uid: &str, spec: Value| json!({"kind": "Shop", "metadata": {"name": "a", "uid": uid}, "spec": spec});
        let before = object("1", json!({"size": 1}));
        for (now, is_sample, expect) in [
            (Ok(Some(object("1", json!({"size": 1, "more": 2})))), true, None),
            (Ok(Some(object("1", json!({"size": 2})))), true, Some("Shop a: spec.size was 1 and is 2")),
            (Ok(Some(object("1", json!({"size": 2})))), false, None),
            (Ok(Some(object("2", json!({"size": 1})))), false, Some("Shop a was deleted and made anew")),
            (Ok(None), true, Some("Shop a is gone")),
            (Err("no".to_owned()), true, Some("Shop a cannot be read: no")),
        ] {
            assert_eq!(lost(&before, now, is_sample).as_deref(), expect);
        }
    }
}
