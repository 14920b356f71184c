//! What the Pods of an operator tell over HTTP: probes and metrics. In: pages, read through the API server's proxy. Out: findings, by pure functions.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::checks::{METRICS, PROBES};
use super::finding::{Finding, Outcome};
use super::operator::{Workload, is_ready};
use super::own_project::OwnProject;
use crate::description::text;
use crate::observer::{Observer, Page, Unread};

/// The largest page.
const MOST_BYTES: usize = 4 << 20;

/// More objects than these in a queue are more than an operator works off.
const LONG_QUEUE: f64 = 100.0;

/// A reconcile that runs longer than this hangs.
const LONG_RECONCILE: f64 = 300.0;

/// More failed reconciles than one in ten are too many.
const MANY_ERRORS: f64 = 0.1;

/// Certificates of webhooks that end sooner should have been renewed.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Annotations by which a simulated Pod answers as it is told to.
const SIMULATED_HTTP: &str = "simulate.konverge.dev/http";

/// Reads probes and metrics of a Pod that is ready, or else of any.
pub(super) async fn examine(
    observer: &Observer,
    project: &OwnProject,
    workload: &Workload,
    now: Timestamp,
) -> Vec<Finding> {
    let Some(pod) = workload.pods.iter().find(|pod| is_ready(pod)).or(workload.pods.first()) else { return Vec::new() };
    let operator = match &project.operator {
        Ok(operator) => operator,
        Err(why) => return vec![PROBES.not_checked(why.clone()), METRICS.not_checked(why.clone())],
    };
    let annotations = pod["metadata"]["annotations"].as_object();
    let is_told = annotations.into_iter().flatten().any(|(name, _)| name.starts_with(SIMULATED_HTTP));
    if workload.is_simulated && !is_told {
        let why = "Pods are simulated in this cluster, so nobody answers in them";
        return vec![PROBES.not_checked(why), METRICS.not_checked(why)];
    }
    let probes = match operator.health_port() {
        None => PROBES.not_checked("its probes are off"),
        Some(port) => {
            let settings = &operator.settings.health;
            let (live, ready) = (settings.liveness_path.clone(), settings.readiness_path.clone());
            let mut pages = Vec::new();
            for path in [live, ready] {
                pages.push((
                    path.clone(),
                    observer.page(&format!("{}?verbose", proxy(pod, port, &path)), MOST_BYTES).await,
                ));
            }
            probes(&pages)
        }
    };
    let metrics = match operator.metrics_port() {
        None => METRICS.not_checked("its metrics are off"),
        Some(port) => {
            metrics(&observer.page(&proxy(pod, port, &operator.settings.metrics.path), MOST_BYTES).await, now)
        }
    };
    vec![probes, metrics]
}

/// A page of a Pod, by way of the API server.
pub(crate) fn proxy(pod: &Value, port: u16, path: &str) -> String {
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/{}", path.trim_start_matches('/'))
}

fn probes(pages: &[(String, Result<Page, Unread>)]) -> Finding {
    let mut failing = Vec::new();
    for (path, page) in pages {
        match page {
            Ok(page) if page.code == 200 => {}
            Ok(page) if page.code == 403 || page.code == 401 => {
                return PROBES.not_checked("you may not ask Pods by way of the API server (pods/proxy)");
            }
            // The server could not reach the Pod.
            Ok(page) if page.code == 502 || page.code == 503 || page.text.starts_with('{') => {
                return PROBES.not_checked(format!("the API server does not reach {path}: {}", page.code));
            }
            Ok(page) => {
                let lines: Vec<&str> = page.text.lines().filter(|line| line.starts_with("[-]")).collect();
                failing.push(format!(
                    "{path}: {}",
                    if lines.is_empty() { page.code.to_string() } else { lines.join("; ") }
                ));
            }
            Err(error) => return PROBES.not_checked(error.to_string()),
        }
    }
    match failing.is_empty() {
        true => PROBES.ok("they pass"),
        false => PROBES.problem("a probe fails", &["konverge logs"]).with(failing),
    }
}

/// The samples of a family, by their labels.
fn samples<'a>(page: &'a str, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> + 'a {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.split(' ').next()?.parse().ok()?))
    })
}

fn metrics(page: &Result<Page, Unread>, now: Timestamp) -> Finding {
    let page = match page {
        Ok(page) if page.code == 200 => &page.text,
        Ok(page) => return METRICS.not_checked(format!("its metrics cannot be read: {}", page.code)),
        Err(error) => return METRICS.not_checked(error.to_string()),
    };
    if samples(page, "workqueue_depth").next().is_none() {
        return METRICS.not_checked("its metrics have no work queue; are they those of this operator?");
    }
    let sum = |family: &str| samples(page, family).map(|(_, value)| value).sum::<f64>();
    let mut details = Vec::new();
    for (labels, depth) in samples(page, "workqueue_depth").filter(|(_, depth)| *depth > LONG_QUEUE) {
        details.push(format!("{depth} objects wait in the queue {labels}"));
    }
    for (labels, seconds) in
        samples(page, "workqueue_longest_running_processor_seconds").filter(|(_, seconds)| *seconds > LONG_RECONCILE)
    {
        details.push(format!("a reconcile runs for {seconds} s already, in {labels}"));
    }
    let (total, errors) = (sum("controller_runtime_reconcile_total"), sum("controller_runtime_reconcile_errors_total"));
    if total > 0.0 && errors / total > MANY_ERRORS {
        details.push(format!("{errors} of {total} reconciles failed"));
    }
    let panics = sum("controller_runtime_reconcile_panics_total");
    if panics > 0.0 {
        details.push(format!("{panics} reconciles panicked"));
    }
    let mut expired = false;
    for (labels, end) in
        samples(page, "konverge_webhook_certificate_expiry_timestamp_seconds").filter(|(_, end)| *end > 0.0)
    {
        let Ok(end) = Timestamp::from_second(end as i64) else { continue };
        if end.duration_since(now) < SOON {
            expired |= end <= now;
            details.push(format!("the certificate {labels} ends at {end}"));
        }
    }
    match details.is_empty() {
        true => METRICS.ok(format!("{} wait, {total} reconciles, {errors} failed", sum("workqueue_depth"))),
        false => {
            let outcome = if expired { Outcome::Problem } else { Outcome::Warning };
            METRICS
                .found(
                    outcome,
                    "some need a look",
                    &["`konverge logs`; `konverge generate monitoring` has alerts for these"],
                )
                .with(details)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(format!("{} {}", found.what, found.details.join(" ")).contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Outcome::Ok | Outcome::NotChecked), "{found:?}");
    }

    fn page(code: u16, text: &str) -> Result<Page, Unread> {
        Ok(Page { code, date: None, text: text.to_owned(), is_cut: false })
    }

    #[test]
    fn pages_of_probes() {
        let both = |live: Result<Page, Unread>, ready: Result<Page, Unread>| {
            probes(&[("/healthz".into(), live), ("/readyz".into(), ready)])
        };
        check(both(page(200, "ok"), page(200, "ok")), Outcome::Ok, "pass");
        check(
            both(page(200, "ok"), page(500, "[+]a ok\n[-]cache failed: listing")),
            Outcome::Problem,
            "/readyz: [-]cache failed: listing",
        );
        check(both(page(403, ""), page(403, "")), Outcome::NotChecked, "pods/proxy");
        check(both(page(503, ""), page(503, "")), Outcome::NotChecked, "does not reach");
        check(both(Err(Unread::Failed("slow".into())), page(200, "")), Outcome::NotChecked, "slow");
    }

    #[test]
    fn pages_of_metrics() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let found = |text: &str| metrics(&page(200, text), now);
        let quiet = "# HELP workqueue_depth\nworkqueue_depth{controller=\"a\"} 1\ncontroller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 10\n\
                     controller_runtime_reconcile_errors_total{controller=\"a\"} 1\nkonverge_webhook_certificate_expiry_timestamp_seconds{certificate=\"x\"} 0\n";
        check(found(quiet), Outcome::Ok, "1 wait, 10 reconciles, 1 failed");
        check(found("hello"), Outcome::NotChecked, "no work queue");
        check(
            found(&quiet.replace(
                "\"a\"} 1\ncontroller_runtime_reconcile_total",
                "\"a\"} 500\ncontroller_runtime_reconcile_total",
            )),
            Outcome::Warning,
            "500 objects wait in the queue controller=\"a\"",
        );
        check(
            found(&quiet.replace("errors_total{controller=\"a\"} 1", "errors_total{controller=\"a\"} 9")),
            Outcome::Warning,
            "9 of 10 reconciles failed",
        );
        check(
            found(&format!("{quiet}controller_runtime_reconcile_panics_total 2\n")),
            Outcome::Warning,
            "2 reconciles panicked",
        );
        check(
            found(&format!("{quiet}workqueue_longest_running_processor_seconds{{name=\"a\"}} 400\n")),
            Outcome::Warning,
            "runs for 400 s",
        );
        let certificate = |at: i64| {
            format!("{quiet}konverge_webhook_certificate_expiry_timestamp_seconds{{certificate=\"y\"}} {at}\n")
        };
        check(found(&certificate(9_000_000)), Outcome::Ok, "");
        check(found(&certificate(1_000_060)), Outcome::Warning, "certificate=\"y\" ends at");
        check(found(&certificate(999_000)), Outcome::Problem, "ends at");
        check(metrics(&page(404, ""), now), Outcome::NotChecked, "404");
    }
}
