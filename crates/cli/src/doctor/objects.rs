//! The objects of the operator's kinds, and events about them. In: lists. Out: findings about deletions that wait, conditions that are not met, and warnings. Pure,
//! but for `read`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::checks::{CONDITIONS, DELETIONS, EVENTS};
use super::cluster::since;
use super::finding::{Finding, Outcome};
use super::operator::Workload;
use super::own_project::OwnProject;
use crate::counted::{counted, counted_as};
use crate::description::text;
use crate::manifests::called;
use crate::observer::{Observer, Unread};

/// How many objects of each kind, and how many events, are looked at.
const MOST: usize = 500;

/// An operator may take this long to remove its finalizer.
const DELETING_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Older warnings are history.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// Conditions that are good when they are true, and bad when they are true.
const GOOD: [&str; 3] = ["Ready", "Available", "Synced"];
const BAD: [&str; 3] = ["Degraded", "Stalled", "Failed"];

/// Looks at objects and events.
pub(super) async fn examine(
    observer: &Observer,
    project: &OwnProject,
    workload: &Workload,
    now: Timestamp,
) -> Vec<Finding> {
    let groups: Vec<String> = kinds(project).into_iter().map(|kind| kind.group).collect();
    let warnings = observer.list("/api/v1/events", "&fieldSelector=type%3DWarning", MOST).await;
    let warnings = match warnings {
        // Whoever may not read all events may read those beside the operator.
        Err(Unread::Forbidden(_)) => {
            let path = format!("/api/v1/namespaces/{}/events", project.target.namespace);
            observer.list(&path, "&fieldSelector=type%3DWarning", MOST).await
        }
        found => found,
    };
    let mut findings = vec![events(&warnings.map(|found| found.items), &project.target.namespace, &groups, now)];
    if groups.is_empty() {
        return findings;
    }
    match read(observer, project).await {
        Ok(objects) => {
            findings.push(deletions(&objects, Runs::of(workload), now));
            let objects: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
            findings.push(conditions(&objects));
        }
        Err(error) => {
            findings.push(DELETIONS.not_checked(error.to_string()));
            findings.push(CONDITIONS.not_checked(error.to_string()));
        }
    }
    findings
}

/// Whether the operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Yes,
    /// It is deployed, and none of its Pods is ready.
    No,
    /// It is not where the project deploys it; it may be elsewhere.
    Unknown,
}

impl Runs {
    fn of(workload: &Workload) -> Self {
        match workload.pods.iter().any(super::operator::is_ready) || workload.runs_here {
            true => Self::Yes,
            false if workload.object.is_some() => Self::No,
            false => Self::Unknown,
        }
    }
}

/// A kind that objects are listed of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedKind {
    pub group: String,
    pub plural: String,
    /// A version that is served; none if only the cluster knows.
    pub version: Option<String>,
}

/// The kinds of the operator: of its CRDs, or of its `PROJECT` file.
pub(crate) fn kinds(project: &OwnProject) -> Vec<ListedKind> {
    let of_definition = |definition: &Value| {
        let spec = &definition["spec"];
        let served = || spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
        let version = served().find(|version| version["storage"] == true).or_else(|| served().next());
        ListedKind {
            group: text(&spec["group"]),
            plural: text(&spec["names"]["plural"]),
            version: version.map(|version| text(&version["name"])),
        }
    };
    match project.definitions.is_empty() {
        false => project.definitions.iter().map(of_definition).collect(),
        true => {
            let kinds = project.kinds.iter();
            kinds
                .map(|kind| ListedKind { group: kind.group.clone(), plural: kind.plural.clone(), version: None })
                .collect()
        }
    }
}

/// The path of the list of a kind's objects in all namespaces; none if it is not installed.
pub(crate) async fn list_path(observer: &Observer, kind: &ListedKind) -> Result<Option<String>, Unread> {
    let ListedKind { group, plural, version } = kind;
    let version = match version {
        Some(version) => version.clone(),
        None => {
            let Some(found) = observer.get(&format!("{}/{plural}.{group}", super::cluster::CRDS)).await? else {
                return Ok(None);
            };
            let versions = found["spec"]["versions"].as_array().cloned().unwrap_or_default();
            versions
                .iter()
                .find(|version| version["storage"] == true)
                .map(|version| text(&version["name"]))
                .unwrap_or_default()
        }
    };
    Ok(Some(format!("/apis/{group}/{version}/{plural}")))
}

/// The objects of the operator's kinds, each with what kubectl calls its kind (`shops.example.com`). A kind that is not installed has none.
async fn read(observer: &Observer, project: &OwnProject) -> Result<Vec<(String, Value)>, Unread> {
    let mut objects = Vec::new();
    for kind in kinds(project) {
        let Some(path) = list_path(observer, &kind).await? else { continue };
        match observer.list(&path, "", MOST).await {
            Ok(found) => {
                let resource = format!("{}.{}", kind.plural, kind.group);
                objects.extend(found.items.into_iter().map(|object| (resource.clone(), object)));
            }
            Err(Unread::Absent(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(objects)
}

fn deletions(objects: &[(String, Value)], runs: Runs, now: Timestamp) -> Finding {
    let waits = |(_, object): &&(String, Value)| {
        let metadata = &object["metadata"];
        let has_finalizers = metadata["finalizers"].as_array().is_some_and(|found| !found.is_empty());
        has_finalizers && since(&metadata["deletionTimestamp"], now).is_some_and(|by| by > DELETING_FOR)
    };
    let waiting: Vec<&(String, Value)> = objects.iter().filter(waits).collect();
    let Some((resource, first)) = waiting.first() else { return DELETIONS.ok("none waits") };
    let details: Vec<String> = waiting
        .iter()
        .map(|(_, object)| format!("{} waits for {}", called(object), finalizers(object).join(", ")))
        .collect();
    let count = counted_as(details.len(), "object waits", "objects wait");
    match runs {
        Runs::Yes => DELETIONS.warning(
            format!("{count} to be deleted although the operator runs; its cleanup may fail"),
            &["`konverge logs` and the events of the object say why", &give_up(resource, first)],
        ),
        Runs::No => DELETIONS.problem(
            format!("{count} to be deleted, and the operator that would let them go does not run"),
            &["start it: `konverge deploy`, `konverge run` or `konverge dev`", &give_up(resource, first)],
        ),
        Runs::Unknown => DELETIONS.warning(
            format!(
                "{count} to be deleted; it is not known whether the operator that would let them go runs elsewhere (by OLM, by Helm, in another namespace)"
            ),
            &[
                "look for it: kubectl get deployments,statefulsets --all-namespaces",
                "if it runs nowhere, start it: `konverge deploy`, `konverge run` or `konverge dev`",
            ],
        ),
    }
    .with(details)
}

fn finalizers(object: &Value) -> Vec<String> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().map(text).collect()
}

/// How to give the cleanup of an object up: by removing the operator's own finalizer alone. That is the one of its group, or the only one that is not Kubernetes'.
fn give_up(resource: &str, object: &Value) -> String {
    let group = resource.split_once('.').map_or("", |(_, group)| group);
    let domain = |finalizer: &str| finalizer.split_once('/').map_or("", |(domain, _)| domain).to_owned();
    let is_of_group = |finalizer: &str| {
        let domain = domain(finalizer);
        domain == group
            || domain.ends_with(&format!(".{group}"))
            || domain.contains('.') && group.ends_with(&format!(".{domain}"))
    };
    let is_of_kubernetes = |finalizer: &str| {
        let domain = domain(finalizer);
        domain.is_empty()
            || ["kubernetes.io", "k8s.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
    };
    let found: Vec<(usize, String)> = finalizers(object).into_iter().enumerate().collect();
    let only = |is_meant: &dyn Fn(&str) -> bool| {
        let mut meant = found.iter().filter(|(_, finalizer)| is_meant(finalizer));
        meant.next().filter(|_| meant.next().is_none())
    };
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    let name = text(&metadata["name"]);
    match only(&is_of_group).or_else(|| only(&|finalizer| !is_of_kubernetes(finalizer))) {
        // The test makes it fail if the finalizers have changed since.
        Some((at, finalizer)) => {
            let path = format!("/metadata/finalizers/{at}");
            let patch = serde_json::json!([
                {"op": "test", "path": path, "value": finalizer},
                {"op": "remove", "path": path},
            ]);
            format!("or give its cleanup up: kubectl patch {resource} {name}{namespace} --type=json -p '{patch}'")
        }
        None => format!(
            "or give its cleanup up: kubectl edit {resource} {name}{namespace}, and remove the operator's own finalizer from metadata.finalizers, no other"
        ),
    }
}

fn conditions(objects: &[Value]) -> Finding {
    if objects.is_empty() {
        return CONDITIONS.ok("there are no objects of its kinds");
    }
    let unmet: Vec<String> =
        objects.iter().filter_map(|object| unmet(object).map(|why| format!("{} {why}", called(object)))).collect();
    match unmet.is_empty() {
        true => CONDITIONS.ok(format!("none of {} says that something is wrong", counted(objects.len(), "object"))),
        false => CONDITIONS
            .warning(
                format!(
                    "{} of {} not as they should be",
                    unmet.len(),
                    counted_as(objects.len(), "object is", "objects are")
                ),
                &["kubectl describe KIND NAME", "konverge logs"],
            )
            .with(unmet),
    }
}

/// What is wrong with an object, as it says itself.
fn unmet(object: &Value) -> Option<String> {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_bad = |condition: &&Value| {
        let kind = text(&condition["type"]);
        GOOD.contains(&kind.as_str()) && condition["status"] != "True"
            || BAD.contains(&kind.as_str()) && condition["status"] == "True"
    };
    if let Some(condition) = conditions.iter().find(is_bad) {
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        return Some(
            format!("is {kind}={status}: {} {}", text(&condition["reason"]), text(&condition["message"]))
                .trim_end()
                .to_owned(),
        );
    }
    let generation = object["metadata"]["generation"].as_i64()?;
    let observed = object["status"]["observedGeneration"].as_i64()?;
    (observed < generation)
        .then(|| format!("was not reconciled since its last change (generation {generation}, seen {observed})"))
}

/// Warnings about the operator, or about objects of its groups.
fn events(found: &Result<Vec<Value>, Unread>, namespace: &str, groups: &[String], now: Timestamp) -> Finding {
    let found = match found {
        Ok(found) => found,
        Err(error) => return EVENTS.not_checked(error.to_string()),
    };
    let mut by_reason: BTreeMap<(String, String), (u64, String)> = BTreeMap::new();
    for event in found {
        let about = &event["involvedObject"];
        let group = text(&about["apiVersion"]).split_once('/').map(|(group, _)| group.to_owned());
        let is_ours = about["namespace"] == namespace || group.is_some_and(|group| groups.contains(&group));
        let seen = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
            &event["metadata"]["creationTimestamp"],
        ];
        let ago = seen.into_iter().find_map(|time| since(time, now));
        if !is_ours || ago.is_none_or(|ago| ago > RECENT) {
            continue;
        }
        let place = about["namespace"].as_str().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let object = format!("{} {place}{}", text(&about["kind"]), text(&about["name"]));
        let times = event["count"].as_u64().or_else(|| event["series"]["count"].as_u64()).unwrap_or(1);
        let entry = by_reason.entry((object, text(&event["reason"]))).or_default();
        *entry = (entry.0 + times, text(&event["message"]));
    }
    if by_reason.is_empty() {
        return EVENTS.ok("none");
    }
    let mut lines: Vec<(u64, String)> = by_reason
        .into_iter()
        .map(|((object, reason), (times, message))| {
            (times, format!("{object}: {reason}, {}: {message}", counted(times, "time")))
        })
        .collect();
    lines.sort_by_key(|(times, _)| std::cmp::Reverse(*times));
    EVENTS
        .found(
            Outcome::Warning,
            counted_as(lines.len(), "kind of warning", "kinds of warnings"),
            &["kubectl get events --all-namespaces --field-selector type=Warning"],
        )
        .with(lines.into_iter().map(|(_, line)| line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(
            format!("{} {} {}", found.what, found.details.join(" "), found.mend.join(" ")).contains(part),
            "{found:?}"
        );
        assert_eq!(found.mend.is_empty(), matches!(outcome, Outcome::Ok | Outcome::NotChecked), "{found:?}");
    }

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    #[test]
    fn deletions_that_wait() {
        let shop = |deleted: Option<&str>, finalizers: &[&str]| {
            let metadata =
                json!({"name": "a", "namespace": "n", "deletionTimestamp": deleted, "finalizers": finalizers});
            vec![("shops.example.com".to_owned(), json!({"kind": "Shop", "metadata": metadata}))]
        };
        let long_ago = Some("2026-01-01T00:00:00Z");
        check(deletions(&shop(None, &["x/y"]), Runs::No, now()), Outcome::Ok, "none");
        check(deletions(&shop(Some("2026-01-01T00:59:50Z"), &["x/y"]), Runs::No, now()), Outcome::Ok, "none");
        check(deletions(&shop(long_ago, &[]), Runs::No, now()), Outcome::Ok, "none");
        let waiting = shop(long_ago, &["x/y"]);
        check(deletions(&waiting, Runs::No, now()), Outcome::Problem, "Shop n/a waits for x/y");
        check(deletions(&waiting, Runs::Yes, now()), Outcome::Warning, "although the operator runs");
        let unknown = deletions(&waiting, Runs::Unknown, now());
        assert!(!unknown.mend.join(" ").contains("finalizers"), "{unknown:?}");
        check(unknown, Outcome::Warning, "it is not known whether");
        // Only the operator's own finalizer is removed.
        for (finalizers, expect) in [
            (
                &["x/y"][..],
                r#"kubectl patch shops.example.com a -n n --type=json -p '[{"op":"test","path":"/metadata/finalizers/0","value":"x/y"},"#,
            ),
            (&["foregroundDeletion", "x/y"], r#"{"op":"remove","path":"/metadata/finalizers/1"}]'"#),
            (&["x/y", "example.com/cleanup"], r#""path":"/metadata/finalizers/1","value":"example.com/cleanup"}"#),
            (&["x/y", "shops.example.com/cleanup"], r#""value":"shops.example.com/cleanup"}"#),
            (&["x/y", "z/y"], "kubectl edit shops.example.com a -n n"),
            (&["foregroundDeletion"], "kubectl edit shops.example.com a -n n"),
        ] {
            check(deletions(&shop(long_ago, finalizers), Runs::No, now()), Outcome::Problem, expect);
        }
        let workload = |object: Option<Value>, runs_here| Workload { object, runs_here, ..Workload::default() };
        assert_eq!(Runs::of(&workload(None, false)), Runs::Unknown);
        assert_eq!(Runs::of(&workload(None, true)), Runs::Yes);
        assert_eq!(Runs::of(&workload(Some(json!({})), false)), Runs::No);
    }

    #[test]
    fn conditions_that_are_not_met() {
        let shop = |kind: &str, status: &str| {
            json!({"kind": "Shop", "metadata": {"name": "a", "generation": 2}, "status": {"observedGeneration": 2,
                   "conditions": [{"type": kind, "status": status, "reason": "Why", "message": "because"}]}})
        };
        check(conditions(&[]), Outcome::Ok, "no objects");
        check(conditions(&[shop("Ready", "True")]), Outcome::Ok, "none of 1");
        check(
            conditions(&[shop("Ready", "False"), shop("Ready", "True")]),
            Outcome::Warning,
            "Shop a is Ready=False: Why because",
        );
        check(conditions(&[shop("Degraded", "True")]), Outcome::Warning, "Degraded=True");
        check(conditions(&[shop("Degraded", "False")]), Outcome::Ok, "");
        let mut old = shop("Ready", "True");
        old["status"]["observedGeneration"] = json!(1);
        check(conditions(&[old.clone()]), Outcome::Warning, "not reconciled since its last change");
        old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(conditions(&[old]), Outcome::Ok, "");
    }

    #[test]
    fn recent_warnings_about_the_operator() {
        let event = |namespace: &str, api: &str, at: &str| {
            json!({"involvedObject": {"kind": "Shop", "name": "a", "namespace": namespace, "apiVersion": api},
                   "reason": "Failed", "message": "no", "count": 3, "lastTimestamp": at})
        };
        let found = |events: Vec<Value>| self::events(&Ok(events), "shop-system", &["example.com".to_owned()], now());
        let recent = "2026-01-01T00:50:00Z";
        check(found(Vec::new()), Outcome::Ok, "none");
        check(found(vec![event("other", "apps/v1", recent)]), Outcome::Ok, "none");
        check(found(vec![event("shop-system", "v1", "2025-01-01T00:00:00Z")]), Outcome::Ok, "none");
        check(
            found(vec![event("shop-system", "v1", recent)]),
            Outcome::Warning,
            "Shop shop-system/a: Failed, 3 times: no",
        );
        check(
            found(vec![event("other", "example.com/v1", recent), event("other", "example.com/v1", recent)]),
            Outcome::Warning,
            "6 times",
        );
        check(events(&Err(Unread::Failed("slow".into())), "a", &[], now()), Outcome::NotChecked, "slow");
    }
}
