//! Level 4: can somebody see what it does?

use std::collections::BTreeSet;

use serde_json::Value;

use super::{life, life_with_samples};
use crate::counted::counted;
use crate::manifests::called;
use crate::scorecard::check::{Judged, Verdict};
use crate::scorecard::metrics_page::{MetricsPage, metrics_in};
use crate::scorecard::observations::{Life, Observations};

/// Metrics that every operator of this framework has begin with one of these.
const FRAMEWORK: [&str; 10] = [
    "controller_",
    "event_total",
    "konverge_",
    "leader_election_",
    "process_",
    "resource_count",
    "resource_phase_count",
    "rest_client_",
    "webhook_",
    "workqueue_",
];

/// What histograms append to their names.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Metrics of others that alerts may use beside those of the operator.
const OF_OTHERS: [&str; 5] = ["up", "ALERTS", "kube_", "container_", "kubelet_"];

/// Metrics that the framework has only with an election, which is off while the operator is measured.
const OF_ELECTIONS: [&str; 3] = ["leader_election_", "konverge_raft_", "konverge_shard"];

fn page(life: &Life) -> Result<MetricsPage<'_>, Verdict> {
    life.metrics.as_deref().map(MetricsPage::of).ok_or_else(|| {
        Verdict::failed(
            vec!["it serves no metrics".to_owned()],
            "switch them on: metrics.enabled and metrics.bindAddress",
        )
    })
}

pub(in crate::scorecard) fn metrics(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let page = page(life)?;
    let reconciles = page.sum("controller_runtime_reconcile_total");
    Ok(match reconciles {
        Some(count) if count > 0.0 => {
            Verdict::passed(format!("{}; {count} reconciles are counted", counted(page.names().len(), "metric")))
        }
        _ => Verdict::failed(
            vec!["no reconcile is counted in controller_runtime_reconcile_total".to_owned()],
            "serve the metrics of the operator itself: `.metrics(metrics)` with the registry that its code fills",
        ),
    })
}

pub(in crate::scorecard) fn alerts(all: &Observations) -> Judged {
    let life = life(all)?;
    if all.alerts.is_empty() {
        return Ok(Verdict::failed(
            vec!["the project has no PrometheusRule below config".to_owned()],
            "`konverge generate monitoring` writes alerts, a ServiceMonitor and a dashboard",
        ));
    }
    let page = page(life)?;
    let names = page.names();
    let is_known = |metric: &str| {
        OF_OTHERS.iter().any(|other| metric == *other || (other.ends_with('_') && metric.starts_with(other)))
            || OF_ELECTIONS.iter().any(|beginning| metric.starts_with(beginning))
            || names.contains(metric)
            || ["_bucket", "_count", "_sum"]
                .iter()
                .any(|end| metric.strip_suffix(end).is_some_and(|base| names.contains(base)))
    };
    let mut found = BTreeSet::new();
    for (alert, expression) in &all.alerts {
        for metric in metrics_in(expression).into_iter().filter(|metric| !is_known(metric)) {
            found.insert(format!("the alert {alert} is about {metric}, which the operator does not have"));
        }
    }
    Ok(Verdict::of(
        found.into_iter().collect(),
        format!("{}, about metrics that there are", counted(all.alerts.len(), "alert")),
        "an alert about a metric that is not there never fires: mend its expression, or register the metric at the start",
    ))
}

pub(in crate::scorecard) fn events(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let is_about = |event: &Value, sample: &Value| {
        ["involvedObject", "regarding"]
            .iter()
            .any(|field| event[*field]["kind"] == sample["kind"] && event[*field]["name"] == sample["metadata"]["name"])
    };
    let told: Vec<&Value> =
        life.samples.iter().filter(|sample| life.events.iter().any(|event| is_about(event, sample))).collect();
    Ok(match told.is_empty() {
        true => Verdict::failed(
            vec!["there is no event about any sample".to_owned()],
            "tell what happened when it happens: `ctx.event(\"Ready\", \"…\").await?` when a state is reached, `ctx.warning` when it is lost",
        ),
        false => {
            let names: Vec<String> = told.into_iter().map(called).collect();
            Verdict::passed(format!("there are events about {}", names.join(", ")))
        }
    })
}

pub(in crate::scorecard) fn usage(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let page = page(life)?;
    let names = page.names();
    let is_part =
        |name: &str| OF_HISTOGRAMS.iter().any(|end| name.strip_suffix(end).is_some_and(|base| names.contains(base)));
    let own: Vec<String> = names
        .iter()
        .filter(|name| !is_part(name))
        .filter(|name| !FRAMEWORK.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| (*name).to_owned())
        .collect();
    Ok(match own.is_empty() {
        true => Verdict::failed(
            vec!["all its metrics are those of the framework, and tell nothing about what its objects use".to_owned()],
            "register metrics of your own: `metrics.gauge_by(\"shop_replicas\", …)` and `.metrics(metrics)` of the operator",
        ),
        false => Verdict::passed(format!("metrics of its own: {}", own.join(", "))),
    })
}

pub(in crate::scorecard) fn logs(all: &Observations) -> Judged {
    let life = life(all)?;
    if life.log.is_empty() {
        return Err(Verdict::not_measured("the operator logged nothing", "log what a reconcile did: `tracing::info!`"));
    }
    let is_record = |line: &&String| {
        serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object() && !line["level"].is_null())
    };
    let plain: Vec<String> =
        life.log.iter().filter(|line| !is_record(line)).map(|line| format!("not JSON: {line}")).take(5).collect();
    Ok(Verdict::of(
        plain,
        format!("{} of JSON with a level", counted(life.log.len(), "line")),
        "log with tracing instead of println!, so that logging.format=json holds for every line",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};

    fn seen(change: impl Fn(&mut Life)) -> Observations {
        let mut life = good_life();
        change(&mut life);
        lived(life)
    }

    #[test]
    fn metrics_tell_something() {
        let own = "shop_sales_total 1\n";
        let without = |life: &mut Life| life.metrics = None;
        judges("metrics", &seen(|_| {}), Passed, "3 reconciles");
        judges("metrics", &seen(without), Failed, "metrics.enabled");
        judges("metrics", &seen(|life| life.metrics = Some(own.into())), Failed, "no reconcile is counted");
        judges("usage", &seen(|_| {}), Passed, "shop_sales_total");
        judges("usage", &seen(|life| life.metrics = Some("workqueue_depth 1\n".into())), Failed, "register metrics");
        judges("usage", &seen(without), Failed, "metrics.enabled");
    }

    #[test]
    fn alerts_are_about_metrics_that_there_are() {
        let with = |expression: &str| Observations { alerts: vec![("Slow".into(), expression.into())], ..seen(|_| {}) };
        judges("alerts", &seen(|_| {}), Failed, "konverge generate monitoring");
        judges(
            "alerts",
            &with("rate(shop_sales_total{job=\"a\"}[5m]) > 1 and absent(up{job=\"a\"})"),
            Passed,
            "1 alert,",
        );
        judges("alerts", &with("sum(leader_election_master_status{job=\"a\"}) == 0"), Passed, "1 alert,");
        judges("alerts", &with("shop_lost_total{job=\"a\"} > 0"), Failed, "shop_lost_total");
    }

    #[test]
    fn events_and_logs() {
        judges("events", &seen(|_| {}), Passed, "Shop default/web");
        judges("events", &seen(|life| life.events.clear()), Failed, "ctx.event");
        judges("events", &seen(|life| life.samples.clear()), NotMeasured, "no samples");
        judges("logs", &seen(|_| {}), Passed, "1 line of");
        judges("logs", &seen(|life| life.log.push("hello".into())), Failed, "not JSON: hello");
        judges("logs", &seen(|life| life.log.clear()), NotMeasured, "");
    }

    #[test]
    fn metrics_of_the_framework_are_known() {
        let page = konverge::Metrics::new().page();
        let page = MetricsPage::of(&page);
        let own: Vec<&str> =
            page.names().into_iter().filter(|name| !FRAMEWORK.iter().any(|prefix| name.starts_with(prefix))).collect();
        assert_eq!(own, Vec::<&str>::new());
    }
}
