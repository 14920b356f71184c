//! Level 1: does it install, start, and do something with its samples?

use serde_json::Value;

use super::{life, undisturbed};
use crate::counted::counted;
use crate::manifests::called;
use crate::scorecard::check::{Judged, Verdict, seen};
use crate::scorecard::observations::{Observations, Rest, Started};

pub(in crate::scorecard) fn install(all: &Observations) -> Judged {
    let deployment = seen(&all.deployment)?;
    let mut found = deployment.refused.clone();
    found.extend(deployment.not_ready.clone());
    Ok(Verdict::of(
        found,
        format!("the server takes all {} manifests, and the Pods of the operator are ready", all.manifests.len()),
        "`konverge generate manifests` writes the same manifests below config; what the server says of them is above",
    ))
}

pub(in crate::scorecard) fn start(all: &Observations) -> Judged {
    let run = undisturbed(all)?;
    let mut found = run.bad_definitions.clone();
    if run.started == Started::NoProbe {
        return Err(Verdict::not_measured(
            "the operator serves no readiness, so nobody knows when it has started",
            "serve probes: health.enabled and health.bindAddress of its settings",
        ));
    }
    found.extend(run.started.problem());
    Ok(Verdict::of(
        found,
        "it is ready, under the rights that it declares",
        "`konverge dev` in this project shows its whole log",
    ))
}

pub(in crate::scorecard) fn samples(all: &Observations) -> Judged {
    let life = life(all)?;
    if all.samples.is_empty() {
        return Ok(Verdict::failed(
            vec!["there are no samples".to_owned()],
            "write an object of each kind to config/samples, or name files with --samples",
        ));
    }
    let mut found: Vec<String> =
        life.refused_samples.iter().map(|(source, why)| format!("{source} is refused: {why}")).collect();
    match &life.rest {
        Rest::Quiet => {}
        Rest::Restless(writes) => {
            found.push(format!("it did not stop writing; its last writes are {}", writes.join(", ")));
        }
        Rest::Ended(how) => found.push(format!("the operator ended ({how})")),
    }
    for refusal in life.refusals.iter().filter(|write| write.code == 403) {
        found.push(format!("it may not {refusal}"));
    }
    if found.is_empty() && life.writes.is_empty() {
        found.push("the operator wrote nothing about its samples".to_owned());
    }
    for sample in &life.samples {
        found.extend(not_ready(sample).map(|why| format!("{} is not ready: {why}", called(sample))));
    }
    found.dedup();
    Ok(Verdict::of(
        found,
        format!("{}, {}, then rest", counted(life.samples.len(), "sample"), counted(life.writes.len(), "write")),
        "`konverge dev` and `kubectl apply -f config/samples` show the same; pods are simulated and become ready at once",
    ))
}

/// What a sample says of itself, if that is bad.
fn not_ready(sample: &Value) -> Option<String> {
    let conditions = sample["status"]["conditions"].as_array().into_iter().flatten();
    let bad = |condition: &&Value| {
        ["Ready", "Available"].iter().any(|name| condition["type"] == *name) && condition["status"] == "False"
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.clone().find(bad).map(|condition| {
        format!(
            "{} is False ({}: {})",
            text(&condition["type"]),
            text(&condition["reason"]),
            text(&condition["message"])
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};
    use crate::scorecard::observations::{Deployment, Life, Undisturbed};
    use crate::scorecard::write_record::{Target, Write};

    fn write(code: u16) -> Write {
        Write {
            method: "PATCH".into(),
            target: Target::of("/apis/apps/v1/namespaces/a/deployments/b").expect("a path"),
            code,
        }
    }

    #[test]
    fn manifests_in_a_cluster() {
        let seen = |refused: &[&str], not_ready: Option<&str>| {
            let refused = refused.iter().map(|text| (*text).to_owned()).collect();
            let deployment = Deployment { refused, not_ready: not_ready.map(str::to_owned) };
            Observations { deployment: Some(Ok(deployment)), ..Observations::default() }
        };
        judges("install", &seen(&[], None), Passed, "takes all");
        judges("install", &seen(&["Deployment a/b: no"], None), Failed, "Deployment a/b: no");
        judges("install", &seen(&[], Some("0 of 2 are ready")), Failed, "0 of 2");
        let broken = Observations { deployment: Some(Err("no port".into())), ..Observations::default() };
        judges("install", &broken, NotMeasured, "no port");
    }

    #[test]
    fn starts() {
        let seen = |started: Started| {
            let run = Undisturbed { bad_definitions: Vec::new(), started, life: None };
            Observations { undisturbed: Some(Ok(run)), ..Observations::default() }
        };
        judges("start", &seen(Started::Ready), Passed, "ready");
        judges("start", &seen(Started::NoProbe), NotMeasured, "health.enabled");
        let ended = Started::Ended { how: "exit status: 1".into(), last_words: vec!["no luck".into()] };
        judges("start", &seen(ended.clone()), Failed, "no luck");
        judges("samples", &seen(ended), NotMeasured, "did not start");
        let slow = Started::NotReady { why: "/readyz answers 500".into(), last_words: Vec::new() };
        judges("start", &seen(slow), Failed, "it said nothing");
    }

    #[test]
    fn samples_are_worked_on() {
        let seen = |change: fn(&mut Life)| {
            let mut life = Life { writes: vec![write(200)], ..good_life() };
            change(&mut life);
            lived(life)
        };
        judges("samples", &seen(|_| {}), Passed, "1 sample, 1 write");
        judges("samples", &seen(|life| life.writes.clear()), Failed, "wrote nothing");
        judges("samples", &seen(|life| life.rest = Rest::Restless(vec!["PATCH a".into()])), Failed, "PATCH a");
        judges("samples", &seen(|life| life.rest = Rest::Ended("killed".into())), Failed, "ended (killed)");
        judges("samples", &seen(|life| life.refusals.push(write(403))), Failed, "it may not PATCH deployments");
        judges("samples", &seen(|life| life.refusals.push(write(409))), Passed, "");
        judges(
            "samples",
            &seen(|life| life.refused_samples.push(("a.yaml".into(), "bad".into()))),
            Failed,
            "a.yaml is refused: bad",
        );
        judges(
            "samples",
            &seen(|life| life.samples[0]["status"]["conditions"][0]["status"] = "False".into()),
            Failed,
            "Ready is False",
        );
        let none = Observations { samples: Vec::new(), ..seen(|_| {}) };
        judges("samples", &none, Failed, "config/samples");
    }
}
