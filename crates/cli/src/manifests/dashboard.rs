//! A dashboard for Grafana. In: a description. Out: its JSON, the same for the same operator. Panels are rows of a table; `monitoring` checks that all metrics
//! exist.

use serde_json::{Map, Value, json};

use super::monitoring::job;
use crate::description::Description;
use crate::generated_files::MARK;

/// The version of Grafana's own format.
const SCHEMA_VERSION: u32 = 39;

/// The grid is 24 wide; two panels are side by side.
const WIDTH: usize = 12;
const HEIGHT: usize = 8;

/// A row of panels with a heading.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
    /// Which operators it is for.
    for_whom: fn(&Description) -> bool,
}

struct Panel {
    title: &'static str,
    /// As Grafana calls it.
    unit: &'static str,
    /// Expressions and the names of their lines. `JOB` stands for the operator.
    lines: &'static [(&'static str, &'static str)],
}

const ROWS: [Row; 6] = [
    Row {
        title: "Reconciles",
        panels: &[
            Panel {
                title: "Reconciles by result",
                unit: "ops",
                lines: &[(
                    "sum by (controller, result) (rate(controller_runtime_reconcile_total{JOB}[$__rate_interval]))",
                    "{{controller}} {{result}}",
                )],
            },
            Panel {
                title: "How long reconciles take",
                unit: "s",
                lines: &[
                    (
                        "histogram_quantile(0.5, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket{JOB}[$__rate_interval])))",
                        "{{controller}} p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket{JOB}[$__rate_interval])))",
                        "{{controller}} p99",
                    ),
                ],
            },
            Panel {
                title: "Failures",
                unit: "ops",
                lines: &[
                    (
                        "sum by (controller) (rate(controller_runtime_reconcile_errors_total{JOB}[$__rate_interval]))",
                        "{{controller}} errors",
                    ),
                    (
                        "sum by (controller) (rate(controller_runtime_reconcile_panics_total{JOB}[$__rate_interval]))",
                        "{{controller}} panics",
                    ),
                    (
                        "sum by (controller) (rate(controller_runtime_reconcile_timeouts_total{JOB}[$__rate_interval]))",
                        "{{controller}} timeouts",
                    ),
                    (
                        "sum by (controller) (rate(konverge_reconcile_gave_up_total{JOB}[$__rate_interval]))",
                        "{{controller}} gave up",
                    ),
                ],
            },
            Panel {
                title: "Workers at work, and their limit",
                unit: "short",
                lines: &[
                    ("sum by (controller) (controller_runtime_active_workers{JOB})", "{{controller}}"),
                    ("max by (controller) (controller_runtime_max_concurrent_reconciles{JOB})", "{{controller}} limit"),
                ],
            },
        ],
        for_whom: |_| true,
    },
    Row {
        title: "Workqueue",
        panels: &[
            Panel {
                title: "Objects that wait",
                unit: "short",
                lines: &[(
                    "sum by (controller, priority) (workqueue_depth{JOB})",
                    "{{controller}} priority {{priority}}",
                )],
            },
            Panel {
                title: "How long objects wait",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.99, sum by (le, controller) (rate(workqueue_queue_duration_seconds_bucket{JOB}[$__rate_interval])))",
                    "{{controller}} p99",
                )],
            },
            Panel {
                title: "Added and retried",
                unit: "ops",
                lines: &[
                    ("sum by (controller) (rate(workqueue_adds_total{JOB}[$__rate_interval]))", "{{controller}} added"),
                    (
                        "sum by (controller) (rate(workqueue_retries_total{JOB}[$__rate_interval]))",
                        "{{controller}} retried",
                    ),
                ],
            },
            Panel {
                title: "The longest reconcile that runs",
                unit: "s",
                lines: &[("max by (controller) (workqueue_longest_running_processor_seconds{JOB})", "{{controller}}")],
            },
        ],
        for_whom: |_| true,
    },
    Row {
        title: "API server and caches",
        panels: &[
            Panel {
                title: "Requests by status code",
                unit: "reqps",
                lines: &[(
                    "sum by (method, code) (rate(rest_client_requests_total{JOB}[$__rate_interval]))",
                    "{{method}} {{code}}",
                )],
            },
            Panel {
                title: "How long requests take",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.99, sum by (le, verb) (rate(rest_client_request_duration_seconds_bucket{JOB}[$__rate_interval])))",
                    "{{verb}} p99",
                )],
            },
            Panel {
                title: "Objects in caches",
                unit: "short",
                lines: &[("max by (kind, group) (konverge_cache_objects{JOB})", "{{kind}} {{group}}")],
            },
            Panel {
                title: "Watches that were restarted",
                unit: "ops",
                lines: &[("sum by (kind) (rate(konverge_watch_restarts_total{JOB}[$__rate_interval]))", "{{kind}}")],
            },
        ],
        for_whom: |_| true,
    },
    Row {
        title: "Instances",
        panels: &[
            Panel {
                title: "Which instance leads",
                unit: "short",
                lines: &[("max by (pod, name) (leader_election_master_status{JOB})", "{{pod}} {{name}}")],
            },
            Panel {
                title: "Events that were recorded",
                unit: "ops",
                lines: &[("sum by (type) (rate(event_total{JOB}[$__rate_interval]))", "{{type}}")],
            },
            Panel { title: "Memory", unit: "bytes", lines: &[("process_resident_memory_bytes{JOB}", "{{pod}}")] },
            Panel {
                title: "CPU",
                unit: "short",
                lines: &[("rate(process_cpu_seconds_total{JOB}[$__rate_interval])", "{{pod}}")],
            },
        ],
        for_whom: |_| true,
    },
    Row {
        title: "Webhooks",
        panels: &[
            Panel {
                title: "Requests to webhooks",
                unit: "reqps",
                lines: &[(
                    "sum by (webhook, code) (rate(controller_runtime_webhook_requests_total{JOB}[$__rate_interval]))",
                    "{{webhook}} {{code}}",
                )],
            },
            Panel {
                title: "How long webhooks take",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.99, sum by (le, webhook) (rate(controller_runtime_webhook_latency_seconds_bucket{JOB}[$__rate_interval])))",
                    "{{webhook}} p99",
                )],
            },
        ],
        for_whom: |operator| operator.webhook_port().is_some(),
    },
    Row {
        title: "Raft",
        panels: &[
            Panel {
                title: "Members",
                unit: "short",
                lines: &[("max by (role) (konverge_raft_members{JOB})", "{{role}}")],
            },
            Panel {
                title: "Term, which grows with every election",
                unit: "short",
                lines: &[("konverge_raft_term{JOB}", "{{pod}}")],
            },
            Panel {
                title: "What members have applied",
                unit: "short",
                lines: &[("konverge_raft_index{JOB,of=\"applied\"}", "{{pod}}")],
            },
            Panel { title: "Replicated state", unit: "bytes", lines: &[("konverge_raft_state_bytes{JOB}", "{{pod}}")] },
        ],
        for_whom: |operator| operator.raft.is_some(),
    },
];

/// The dashboard as JSON. Its second line says whose file it is.
pub(super) fn text(operator: &Description) -> String {
    let dashboard = dashboard(operator);
    let text = serde_json::to_string_pretty(&dashboard).expect("a value is JSON");
    let about = format!(
        "{MARK}; `konverge generate monitoring` replaces this file. Remove these words to keep changes of yours."
    );
    // Keys are sorted, and the mark has to be in front.
    format!("{{\n  \"description\": {},\n{}\n", Value::from(about), text.trim_start_matches("{\n"))
}

fn dashboard(operator: &Description) -> Value {
    let job = job(operator);
    let mut panels = Vec::new();
    let mut top = 0;
    for row in ROWS.iter().filter(|row| (row.for_whom)(operator)) {
        let place = |height: usize, width: usize, left: usize, top: usize| json!({"h": height, "w": width, "x": left, "y": top});
        let id = panels.len() + 1;
        panels.push(json!({
            "collapsed": false, "gridPos": place(1, 2 * WIDTH, 0, top), "id": id, "panels": [], "title": row.title, "type": "row",
        }));
        top += 1;
        for pair in row.panels.chunks(2) {
            for (at, one) in pair.iter().enumerate() {
                let mut panel = panel(one, &job);
                panel["gridPos"] = place(HEIGHT, WIDTH, at * WIDTH, top);
                panel["id"] = (panels.len() + 1).into();
                panels.push(panel);
            }
            top += HEIGHT;
        }
    }
    json!({
        "annotations": {"list": []},
        "editable": true,
        "graphTooltip": 1,
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["konverge", "operator"],
        "templating": {"list": [{"label": "Data source", "name": "datasource", "query": "prometheus", "type": "datasource"}]},
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": format!("Operator {}", operator.name),
        "uid": format!("konverge-{}", operator.name.chars().take(30).collect::<String>()),
    })
}

fn panel(panel: &Panel, job: &str) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let target = |(at, (expr, legend)): (usize, &(&str, &str))| {
        let letter = char::from(b'A' + at as u8);
        json!({"datasource": source, "expr": expr.replace("JOB", job), "legendFormat": legend, "refId": letter.to_string()})
    };
    let targets: Vec<Value> = panel.lines.iter().enumerate().map(target).collect();
    let defaults = Map::from_iter([("unit".to_owned(), json!(panel.unit)), ("min".to_owned(), json!(0))]);
    json!({
        "datasource": source, "title": panel.title, "type": "timeseries", "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::{example, raft_example};

    #[test]
    fn panels_do_not_overlap() {
        for operator in [example(), raft_example()] {
            let dashboard = dashboard(&operator);
            let panels = dashboard["panels"].as_array().unwrap();
            let number = |panel: &Value, field: &str| panel["gridPos"][field].as_u64().unwrap();
            for (at, one) in panels.iter().enumerate() {
                assert_eq!(one["id"], at + 1);
                for other in &panels[at + 1..] {
                    let apart = |start: &str, length: &str| {
                        number(one, start) + number(one, length) <= number(other, start)
                            || number(other, start) + number(other, length) <= number(one, start)
                    };
                    assert!(apart("x", "w") || apart("y", "h"), "{} and {}", one["title"], other["title"]);
                }
            }
        }
    }

    #[test]
    fn the_mark_is_in_front() {
        let text = text(&example());
        assert!(text.lines().nth(1).is_some_and(|line| line.contains(MARK)), "{text}");
        let parsed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&parsed["uid"], &parsed["title"]), (&json!("konverge-shop"), &json!("Operator shop")));
    }
}
