//! An operator that nobody kills: it starts, gets its samples, is restarted, loses children, is scaled, and its samples are deleted. In: a subject. Out: what it
//! did each time.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::progress;
use crate::manifests::called;
use crate::scorecard::drift::drift;
use crate::scorecard::end_state::EndState;
use crate::scorecard::observations::{Again, Deleted, Disturbance, Healed, Life, Rest, Scaled, Undisturbed};
use crate::scorecard::operator_process::LOOK;
use crate::scorecard::session::{Patience, Session};
use crate::scorecard::subject::{Subject, other_replicas};

/// How many children are disturbed; more of them show nothing new.
const MOST_CHILDREN: usize = 12;

/// Kinds that are not deleted to see whether they come back: they have data, or everything else is in them.
const KEPT: [&str; 4] = ["PersistentVolumeClaim", "PersistentVolume", "Namespace", "CustomResourceDefinition"];

/// The counter of reconciles.
const RECONCILES: &str = "controller_runtime_reconcile_total";

pub(super) async fn observe(subject: &Subject, patience: Patience) -> Result<Undisturbed, String> {
    progress("starting the operator");
    let (mut session, bad_definitions) = Session::open(subject, patience).await?;
    let started = session.start(subject).await?;
    let life = if started.runs() { Some(live(&mut session, subject).await?) } else { None };
    session.close().await;
    Ok(Undisturbed { bad_definitions, started, life })
}

async fn live(session: &mut Session, subject: &Subject) -> Result<Life, String> {
    progress("applying the samples");
    let (since, from) = (Timestamp::now(), session.cluster.record.count());
    let refused_samples = Session::apply_samples(&session.cluster, subject, session.patience).await;
    let rest = session.rest().await;
    let samples = session.all_now(&subject.distinct_samples()).await?;
    let writes = session.cluster.record.since(from);
    let children = session.children(&writes, &samples, since).await?;
    let mut life = Life {
        refused_samples,
        samples,
        end_state: EndState::default(),
        events: session.cluster.list("/api/v1/events").await?,
        metrics: session.metrics().await,
        log: session.log(),
        refusals: session.cluster.record.refused(),
        writes,
        children,
        rest,
        again: None,
        healed: Vec::new(),
        scaled: Vec::new(),
        deleted: None,
        rights: None,
    };
    life.end_state = EndState::of(&life.samples, &life.children);
    if life.rest == Rest::Quiet && !life.samples.is_empty() {
        progress("reconciling everything again");
        life.again = again(session, subject, &life.samples).await?;
        progress("changing and deleting what the operator made");
        for child in life.children.iter().take(MOST_CHILDREN) {
            life.healed.extend(heal(session, child, &life.children).await?);
        }
        progress("scaling the samples");
        for sample in &life.samples {
            life.scaled.extend(scale(session, subject, sample, &life.children).await?);
        }
        progress("deleting the samples");
        life.deleted = Some(delete(session, &life.samples, &life.children).await?);
    }
    life.refusals = session.cluster.record.refused();
    life.rights = Some(session.cluster.rights(&session.account));
    Ok(life)
}

/// A restart reconciles all objects, and so does a touch.
async fn again(session: &mut Session, subject: &Subject, samples: &[Value]) -> Result<Option<Again>, String> {
    session.stop_operator().await;
    let from = session.cluster.record.count();
    if !session.start(subject).await?.runs() || session.rest().await != Rest::Quiet {
        // Who did not rest before the time was up has written.
        let after_restart = session.cluster.record.since(from);
        let reconciles = session.metric(RECONCILES).await;
        return Ok((!after_restart.is_empty()).then(|| Again { after_restart, reconciles, ..Again::default() }));
    }
    let after_restart = session.cluster.record.since(from);
    let from = session.cluster.record.count();
    for sample in samples {
        session.touch(sample, "again").await?;
    }
    session.rest().await;
    let after_touch = session.cluster.record.since(from);
    Ok(Some(Again { after_restart, after_touch, reconciles: session.metric(RECONCILES).await }))
}

/// Changes a child, and deletes it, and waits each time until it is as before.
async fn heal(session: &mut Session, child: &Value, children: &[Value]) -> Result<Vec<Healed>, String> {
    let (name, path) = (called(child), session.path(child).await?);
    let mut healed = Vec::new();
    if let Some(patch) = drift(child, children) {
        // A server that refuses the change protects the child better than an operator could.
        if session.cluster.objects.merge(&path, &patch).await.is_ok() {
            let left = until_as_before(session, child, None).await?;
            healed.push(Healed { child: name.clone(), how: Disturbance::Changed, left });
        }
    }
    if !KEPT.iter().any(|kind| child["kind"] == *kind) {
        let deleted = session.cluster.objects.delete_in_background(&path).await;
        deleted.map_err(|error| error.to_string())?;
        let left = until_as_before(session, child, child["metadata"]["uid"].as_str()).await?;
        healed.push(Healed { child: name, how: Disturbance::Deleted, left });
    }
    Ok(healed)
}

/// Waits until a child is as it was, with another uid than `old`; what differs when the time is up.
async fn until_as_before(session: &mut Session, child: &Value, old: Option<&str>) -> Result<Option<String>, String> {
    let expect = EndState::of(&[], std::slice::from_ref(child));
    let deadline = Instant::now() + session.patience.timeout;
    loop {
        let left = match session.now(child).await? {
            None => Some("it does not come back".to_owned()),
            Some(now) if old.is_some() && now["metadata"]["uid"].as_str() == old => Some("it does not go".to_owned()),
            Some(now) => expect.differences(&EndState::of(&[], &[now])).into_iter().next(),
        };
        if left.is_none() || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Changes the number of replicas of a sample, and waits until a child and the status have followed.
async fn scale(
    session: &mut Session,
    subject: &Subject,
    sample: &Value,
    children: &[Value],
) -> Result<Option<Scaled>, String> {
    let Some((pointer, replicas)) = other_replicas(sample, &subject.definitions) else { return Ok(None) };
    let patch = pointer
        .rsplit('/')
        .filter(|field| !field.is_empty())
        .fold(json!(replicas), |inner, field| json!({field: inner}));
    let path = session.path(sample).await?;
    let children = may_follow(&session.all_now(children).await?, sample, replicas);
    let refused = |error: crate::remote_cluster::RemoteError| error.to_string();
    let changed = session.cluster.objects.merge(&path, &patch).await.map_err(refused)?;
    let generation = &changed["metadata"]["generation"];
    let deadline = Instant::now() + session.patience.timeout;
    loop {
        let status = session.now(sample).await?.unwrap_or_default()["status"].take();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let is_told = |value: &Value| value["observedGeneration"] == *generation;
        let observed = is_told(&status) || (!conditions.is_empty() && conditions.iter().all(is_told));
        let now = session.all_now(&children).await?;
        let followed = now.iter().any(|child| child["spec"]["replicas"] == replicas);
        if (observed && followed) || Instant::now() > deadline {
            return Ok(Some(Scaled { sample: called(sample), replicas, followed, observed }));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The children that show whether a sample was scaled: its own, or if it owns none those that have another number now.
fn may_follow(children: &[Value], sample: &Value, replicas: i64) -> Vec<Value> {
    let is_owned = |child: &&Value| {
        let mut owners = child["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["uid"] == sample["metadata"]["uid"])
    };
    let own: Vec<Value> = children.iter().filter(is_owned).cloned().collect();
    match own.is_empty() {
        true => children.iter().filter(|child| child["spec"]["replicas"] != replicas).cloned().collect(),
        false => own,
    }
}

/// Deletes the samples, and waits until they and their children are gone.
async fn delete(session: &mut Session, samples: &[Value], children: &[Value]) -> Result<Deleted, String> {
    // Children that were deleted before have other uids now, and the same names.
    for sample in samples {
        let path = session.path(sample).await?;
        session.cluster.objects.delete_in_background(&path).await.map_err(|error| error.to_string())?;
    }
    let deadline = Instant::now() + session.patience.timeout;
    loop {
        let (stuck, left) = (session.all_now(samples).await?, session.all_now(children).await?);
        if (stuck.is_empty() && left.is_empty()) || Instant::now() > deadline {
            let with_finalizers = |sample: &Value| format!("{} {}", called(sample), sample["metadata"]["finalizers"]);
            return Ok(Deleted {
                stuck: stuck.iter().map(with_finalizers).collect(),
                left: left.iter().map(called).collect(),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_replicas_are_looked_at() {
        let child = |name: &str, owner: &str, replicas: i64| json!({"metadata": {"name": name, "ownerReferences": [{"uid": owner}]}, "spec": {"replicas": replicas}});
        let children = [child("own", "1", 4), child("other", "2", 4), child("third", "3", 3)];
        for (uid, expect) in [("1", &["own"][..]), ("9", &["third"])] {
            let found = may_follow(&children, &json!({"metadata": {"uid": uid}}), 4);
            let names: Vec<&str> = found.iter().filter_map(|child| child["metadata"]["name"].as_str()).collect();
            assert_eq!(names, expect);
        }
    }
}
