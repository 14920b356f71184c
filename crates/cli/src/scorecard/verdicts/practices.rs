//! Good practice, whatever the level.

use serde_json::Value;

use super::lifecycle::{ADVICE, disturbed};
use super::{life, life_with_samples, undisturbed, workloads};
use crate::counted::counted;
use crate::manifests::called;
use crate::scorecard::check::{Judged, Verdict, seen};
use crate::scorecard::observations::Observations;
use crate::scorecard::subject::definition_of;

/// How deep the fields of a schema are looked at. Deeper ones are mostly types of Kubernetes, which describe themselves.
const DEPTH: usize = 6;

pub(in crate::scorecard) fn idempotent(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let Some(again) = &life.again else {
        return Err(Verdict::not_measured(
            "the operator did not come to rest, so there was no second reconcile",
            "see the check samples",
        ));
    };
    if again.reconciles.is_none_or(|count| count < 1.0) {
        return Err(Verdict::not_measured("its metrics tell of no second reconcile", "see the check metrics"));
    }
    let tell = |when: &'static str| move |write: &_| format!("{when}: {write}");
    let found = again.after_restart.iter().map(tell("after a restart"));
    let found = found.chain(again.after_touch.iter().map(tell("after a touch"))).collect();
    Ok(Verdict::of(
        found,
        format!("{} more reconciles wrote nothing", again.reconciles.unwrap_or_default()),
        "write only what differs: `ctx.apply` and `ctx.set_status` compare first; tell events only when a state changes, and keep times and counters out of objects",
    ))
}

pub(in crate::scorecard) fn status_conditions(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let mut found = Vec::new();
    let judged: Vec<&Value> = life.samples.iter().filter(|sample| may_have_status(sample, &all.definitions)).collect();
    for sample in &judged {
        found.extend(bad_status(sample).map(|why| format!("{}: {why}", called(sample))));
    }
    Ok(Verdict::of(
        found,
        format!("{} with a state that tells its generation", counted(judged.len(), "sample")),
        "`ctx.set_status_with(status, [Condition::yes(READY, \"AllReady\", \"…\")])`, with observed_generation in the status",
    ))
}

/// Whether a sample has a status to write: kinds without one are data that others read. A kind of others is taken to have one.
fn may_have_status(sample: &Value, definitions: &[Value]) -> bool {
    let version = sample["apiVersion"].as_str().and_then(|version| version.rsplit('/').next()).unwrap_or_default();
    let Some(definition) = definition_of(sample, definitions) else { return true };
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(|one| one["name"] == version && one["subresources"]["status"].is_object())
}

fn bad_status(sample: &Value) -> Option<String> {
    let status = &sample["status"];
    if status.is_null() {
        return Some("it has no status".to_owned());
    }
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    if conditions.is_empty() {
        return Some("its status has no conditions".to_owned());
    }
    for condition in &conditions {
        for field in ["type", "status", "reason", "lastTransitionTime"] {
            if condition[field].as_str().is_none_or(str::is_empty) {
                return Some(format!("a condition has no {field}: {condition}"));
            }
        }
    }
    let generation = &sample["metadata"]["generation"];
    let observed = |value: &Value| value["observedGeneration"] == *generation;
    (!observed(status) && !conditions.iter().all(observed))
        .then(|| format!("neither the status nor all conditions have observedGeneration {generation}"))
}

pub(in crate::scorecard) fn owner_references(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    if life.children.is_empty() {
        return Err(Verdict::not_measured(
            "the operator made nothing for its samples",
            "write a sample for which it makes something",
        ));
    }
    let is_owned =
        |child: &&Value| child["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    let found: Vec<String> = life
        .children
        .iter()
        .filter(|child| !is_owned(child))
        .map(|child| format!("{} has no owner", called(child)))
        .collect();
    Ok(Verdict::of(
        found,
        format!("all {} objects that it made have an owner", life.children.len()),
        "`ctx.apply` sets the owner; an object in another namespace cannot have one, and is deleted in `.on_delete`",
    ))
}

pub(in crate::scorecard) fn finalizers(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let Some(deleted) = &life.deleted else {
        return Err(Verdict::not_measured("the samples were not deleted", "see the check samples"));
    };
    let mut found: Vec<String> = deleted.stuck.iter().map(|one| format!("{one} keeps its finalizers")).collect();
    let mut count = 0;
    for sample in &life.samples {
        for finalizer in sample["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            count += 1;
            if !finalizer.contains('/') {
                found.push(format!("{}: the finalizer {finalizer} has no domain", called(sample)));
            }
        }
    }
    let passed = match count {
        0 => "there are none, and nothing is left behind without them".to_owned(),
        count => format!("{}, qualified by a domain, and removed after the cleanup", counted(count, "finalizer")),
    };
    if count == 0 && !deleted.left.is_empty() {
        found.extend(
            deleted.left.iter().map(|one| format!("{one} is left behind, and there is no finalizer to delete it")),
        );
    }
    Ok(Verdict::of(
        found,
        passed,
        "`.on_delete(cleanup)` adds a finalizer with the operator's domain, and removes it after the cleanup",
    ))
}

pub(in crate::scorecard) fn least_privilege(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let Some(rights) = &life.rights else {
        return Err(Verdict::not_measured("its rights were not looked at", ""));
    };
    if rights.incomplete {
        return Err(Verdict::not_measured("it made more different requests than are noted", "use fewer samples"));
    }
    let found = rights.lacking.iter().map(|rule| format!("lacking: {rule}"));
    let found = found.chain(rights.unused.iter().map(|rule| format!("never used: {rule}")));
    let found = found.chain(rights.risks.iter().cloned()).collect();
    Ok(Verdict::of(
        found,
        format!("all {} rights were used", rights.used.len()),
        "declare what is lacking with .owns, .watches or .needs, and take out what is never used; a right for something that the samples do not show needs a sample that does",
    ))
}

pub(in crate::scorecard) fn resource_limits(all: &Observations) -> Judged {
    of_workloads(
        all,
        workloads::without_limits,
        "have requests and limits",
        "`Container::new(…).resources(Resources::new().cpu_request(\"100m\").memory_limit(\"512Mi\"))`",
    )
}

pub(in crate::scorecard) fn security_context(all: &Observations) -> Judged {
    of_workloads(
        all,
        workloads::unrestricted,
        "keep to the standard `restricted`",
        "`Container::new(…).security_context(SecurityContext::restricted())`",
    )
}

fn of_workloads(all: &Observations, judge: fn(&Value) -> Vec<String>, passed: &str, advice: &str) -> Judged {
    let life = life(all)?;
    let objects = || all.manifests.iter().chain(&life.children);
    let count = workloads::count(objects());
    if count == 0 {
        return Err(Verdict::not_measured("there are no containers to look at", ""));
    }
    Ok(Verdict::of(objects().flat_map(judge).collect(), format!("{} {passed}", counted(count, "container")), advice))
}

pub(in crate::scorecard) fn crd_structural(all: &Observations) -> Judged {
    let run = undisturbed(all)?;
    if all.definitions.is_empty() {
        return Err(Verdict::not_measured("the operator has no CRDs", ""));
    }
    Ok(Verdict::of(
        run.bad_definitions.clone(),
        format!("established: {}", counted(all.definitions.len(), "CRD")),
        "`konverge install` shows what the server says of them",
    ))
}

pub(in crate::scorecard) fn crd_documented(all: &Observations) -> Judged {
    if all.definitions.is_empty() {
        return Err(Verdict::not_measured("the operator has no CRDs", ""));
    }
    let mut found = Vec::new();
    for definition in &all.definitions {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let place = format!("{kind} {}", version["name"].as_str().unwrap_or_default());
            for part in ["spec", "status"] {
                undescribed(&schema["properties"][part], &format!("{place}: {part}"), 1, &mut found);
            }
        }
    }
    Ok(Verdict::of(
        found,
        format!("every field of {} is described", counted(all.definitions.len(), "CRD")),
        "write a doc comment above the field; `kubectl explain` shows it",
    ))
}

fn undescribed(schema: &Value, path: &str, depth: usize, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(str::is_empty) {
            found.push(format!("{path} has no description"));
        }
        // The items of conditions are a type of Kubernetes, which everybody knows.
        if depth < DEPTH && name != "conditions" {
            undescribed(field, &path, depth + 1, found);
            undescribed(&field["items"], &format!("{path}[]"), depth + 1, found);
        }
    }
}

pub(in crate::scorecard) fn survives_restart(all: &Observations) -> Judged {
    life_with_samples(all)?;
    let killed = seen(&all.interrupted)?;
    let found = disturbed(killed, "killed");
    if killed.times == 0 && found.is_empty() {
        return Err(Verdict::not_measured(
            "the operator wrote nothing at which it could be killed",
            "see the check samples",
        ));
    }
    Ok(Verdict::of(found, format!("killed at {}, it comes to the same end", counted(killed.times, "write")), ADVICE))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_child, good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};
    use crate::scorecard::observations::{Again, Deleted, Life};
    use crate::scorecard::write_record::{Target, Write};
    use konverge_apiserver::PermissionReport;
    use serde_json::json;

    fn seen_life(change: impl Fn(&mut Life)) -> Observations {
        let mut life = good_life();
        change(&mut life);
        Observations { manifests: vec![good_child()], ..lived(life) }
    }

    #[test]
    fn a_second_reconcile_writes_nothing() {
        let write = || Write {
            method: "PATCH".into(),
            target: Target::of("/api/v1/namespaces/a/configmaps/b").expect("a path"),
            code: 200,
        };
        let again = |after_restart: Vec<Write>, after_touch: Vec<Write>, reconciles| {
            seen_life(|life| {
                life.again =
                    Some(Again { after_restart: after_restart.clone(), after_touch: after_touch.clone(), reconciles })
            })
        };
        judges("idempotent", &seen_life(|_| {}), NotMeasured, "rest");
        judges("idempotent", &again(vec![], vec![], None), NotMeasured, "metrics");
        judges("idempotent", &again(vec![], vec![], Some(0.0)), NotMeasured, "no second reconcile");
        judges("idempotent", &again(vec![], vec![], Some(2.0)), Passed, "2 more reconciles");
        judges(
            "idempotent",
            &again(vec![write()], vec![], Some(2.0)),
            Failed,
            "after a restart: PATCH configmaps /a/b",
        );
        judges("idempotent", &again(vec![], vec![write()], Some(2.0)), Failed, "after a touch: PATCH");
    }

    #[test]
    fn a_status_tells_its_generation() {
        let with = |change: fn(&mut Value)| seen_life(move |life| change(&mut life.samples[0]));
        judges("status-conditions", &with(|_| {}), Passed, "1 sample with");
        judges("status-conditions", &with(|sample| sample["status"] = Value::Null), Failed, "it has no status");
        // A kind without a status is judged by nothing.
        let definition = |subresources: Value| {
            let version = json!({"name": "v1", "subresources": subresources});
            json!({"spec": {"group": "example.com", "names": {"kind": "Shop"}, "versions": [version]}})
        };
        let bare = |subresources: Value| {
            let sample = |sample: &mut Value| {
                (sample["apiVersion"], sample["kind"]) = ("example.com/v1".into(), "Shop".into());
                sample["status"] = Value::Null;
            };
            Observations { definitions: vec![definition(subresources)], ..with(sample) }
        };
        judges("status-conditions", &bare(json!({})), Passed, "0 samples with");
        judges("status-conditions", &bare(json!({"status": {}})), Failed, "it has no status");
        judges(
            "status-conditions",
            &with(|sample| sample["status"]["conditions"] = json!([])),
            Failed,
            "no conditions",
        );
        judges(
            "status-conditions",
            &with(|sample| sample["status"]["conditions"][0]["reason"] = Value::Null),
            Failed,
            "no reason",
        );
        judges(
            "status-conditions",
            &with(|sample| sample["metadata"]["generation"] = 2.into()),
            Failed,
            "observedGeneration 2",
        );
        judges(
            "status-conditions",
            &with(|sample| {
                sample["status"]["observedGeneration"] = Value::Null;
                sample["status"]["conditions"][0]["observedGeneration"] = 1.into();
            }),
            Passed,
            "",
        );
    }

    #[test]
    fn owners_and_finalizers() {
        judges("owner-references", &seen_life(|_| {}), Passed, "all 1");
        judges("owner-references", &seen_life(|life| life.children.clear()), NotMeasured, "nothing");
        judges(
            "owner-references",
            &seen_life(|life| life.children[0]["metadata"]["ownerReferences"] = Value::Null),
            Failed,
            "Deployment default/web has no owner",
        );
        let deleted = |finalizer: &'static str, stuck: &'static [&'static str], left: &'static [&'static str]| {
            let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
            seen_life(move |life| {
                life.samples[0]["metadata"]["finalizers"] =
                    if finalizer.is_empty() { Value::Null } else { json!([finalizer]) };
                life.deleted = Some(Deleted { stuck: texts(stuck), left: texts(left) });
            })
        };
        judges("finalizers", &seen_life(|_| {}), NotMeasured, "");
        judges("finalizers", &deleted("", &[], &[]), Passed, "there are none");
        judges("finalizers", &deleted("example.com/cleanup", &[], &[]), Passed, "1 finalizer,");
        judges("finalizers", &deleted("cleanup", &[], &[]), Failed, "has no domain");
        judges("finalizers", &deleted("example.com/cleanup", &["Shop a"], &[]), Failed, "keeps its finalizers");
        judges("finalizers", &deleted("", &[], &["Secret a"]), Failed, "no finalizer to delete it");
    }

    #[test]
    fn rights_are_those_that_are_used() {
        let with = |report: Value| {
            let report: PermissionReport = serde_json::from_value(report).expect("a report");
            seen_life(move |life| life.rights = Some(report.clone()))
        };
        let report = |unused: Value, lacking: Value, incomplete: bool| json!({"user": "u", "used": [], "unused": unused, "lacking": lacking, "risks": [], "least": [], "incomplete": incomplete});
        let rule = json!([{"resource": "secrets", "verbs": ["get"]}]);
        judges("least-privilege", &seen_life(|_| {}), NotMeasured, "");
        judges("least-privilege", &with(report(json!([]), json!([]), false)), Passed, "");
        judges("least-privilege", &with(report(rule.clone(), json!([]), false)), Failed, "never used: get secrets");
        judges("least-privilege", &with(report(json!([]), rule.clone(), false)), Failed, "lacking: get secrets");
        judges("least-privilege", &with(report(rule, json!([]), true)), NotMeasured, "");
    }

    #[test]
    fn containers_of_the_operator_and_of_its_children() {
        for (name, field) in [("resource-limits", "resources"), ("security-context", "securityContext")] {
            let without = |object: &mut Value| object["spec"]["template"]["spec"]["containers"][0][field] = Value::Null;
            judges(name, &seen_life(|_| {}), Passed, "2 containers");
            judges(name, &seen_life(|life| without(&mut life.children[0])), Failed, "Deployment default/web");
            let mut own = seen_life(|_| {});
            without(&mut own.manifests[0]);
            judges(name, &own, Failed, "Deployment default/web");
        }
    }

    #[test]
    fn definitions() {
        let with = |field: Value| {
            let schema = json!({"properties": {"spec": {"properties": {"size": field}}}});
            let versions = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
            Observations {
                definitions: vec![json!({"spec": {"names": {"kind": "Shop"}, "versions": versions}})],
                ..seen_life(|_| {})
            }
        };
        judges("crd-documented", &with(json!({"description": "How many."})), Passed, "1 CRD is");
        judges("crd-documented", &with(json!({})), Failed, "Shop v1: spec.size has no description");
        judges(
            "crd-documented",
            &with(json!({"description": "Some.", "items": {"properties": {"a": {}}}})),
            Failed,
            "spec.size[].a",
        );
        judges("crd-structural", &with(json!({})), Passed, "");
        let mut bad = with(json!({}));
        if let Some(Ok(run)) = &mut bad.undisturbed {
            run.bad_definitions.push("shops.example.com is not structural".into());
        }
        judges("crd-structural", &bad, Failed, "not structural");
    }
}
