//! What somebody should be told about an operator. In: a description. Out: alerting rules for Prometheus. Every rule says what is wrong and where to look;
//! `monitoring` checks that all metrics exist.

use serde_json::{Value, json};

use super::monitoring::job;
use crate::description::Description;

/// A rule. `JOB` in an expression stands for the operator.
struct Alert {
    /// Behind the name of the operator.
    name: &'static str,
    expr: &'static str,
    /// How long it has to be so.
    wait: &'static str,
    severity: Severity,
    summary: &'static str,
    description: &'static str,
    /// Which operators it is for.
    for_whom: fn(&Description) -> bool,
}

#[derive(Clone, Copy)]
enum Severity {
    /// Nothing works: somebody has to act at once.
    Critical,
    /// Something works badly: somebody should look on the next day.
    Warning,
}

impl Severity {
    fn label(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }
}

fn everybody(_: &Description) -> bool {
    true
}

fn has_webhooks(operator: &Description) -> bool {
    operator.webhook_port().is_some()
}

const ALERTS: [Alert; 13] = [
    Alert {
        name: "Down",
        expr: "absent(up{JOB} == 1)",
        wait: "5m",
        severity: Severity::Critical,
        summary: "No instance of NAME answers",
        description: "Prometheus reaches the metrics of no instance, so nothing is reconciled. `konverge logs` shows why it ended; `kubectl describe pod` shows why it does not start.",
        for_whom: everybody,
    },
    Alert {
        name: "WithoutLeader",
        expr: "max by (name) (leader_election_master_status{JOB}) == 0",
        wait: "3m",
        severity: Severity::Critical,
        summary: "NAME has no leader",
        description: "Instances run, and none of them leads, so nothing is reconciled. Their logs say why the election fails: rights to the Lease, the API server, or the network between members.",
        for_whom: everybody,
    },
    Alert {
        name: "ReconcileErrors",
        expr: "sum by (controller) (rate(controller_runtime_reconcile_errors_total{JOB}[10m])) / sum by (controller) (rate(controller_runtime_reconcile_total{JOB}[10m])) > 0.1",
        wait: "15m",
        severity: Severity::Warning,
        summary: "{{ $value | humanizePercentage }} of the reconciles of {{ $labels.controller }} fail",
        description: "Events and the status of the objects say which of them fail; the log has the errors.",
        for_whom: everybody,
    },
    Alert {
        name: "ReconcilePanics",
        expr: "sum by (controller) (increase(controller_runtime_reconcile_panics_total{JOB}[15m])) > 0",
        wait: "0m",
        severity: Severity::Warning,
        summary: "Reconciles of {{ $labels.controller }} panic",
        description: "A panic is a defect of the operator. The log has the place in its code.",
        for_whom: everybody,
    },
    Alert {
        name: "GaveUp",
        expr: "sum by (controller) (increase(konverge_reconcile_gave_up_total{JOB}[15m])) > 0",
        wait: "0m",
        severity: Severity::Warning,
        summary: "{{ $labels.controller }} gave up on objects",
        description: "Their retries are used up, and they wait for a change. Events of the objects say why.",
        for_whom: everybody,
    },
    Alert {
        name: "ReconcileStuck",
        expr: "max by (controller) (workqueue_longest_running_processor_seconds{JOB}) > 900",
        wait: "5m",
        severity: Severity::Warning,
        summary: "A reconcile of {{ $labels.controller }} has run for {{ $value | humanizeDuration }}",
        description: "Its worker does nothing else meanwhile. Something that it waits for does not answer; a time limit for reconciles would end it.",
        for_whom: everybody,
    },
    Alert {
        name: "QueueSlow",
        expr: "histogram_quantile(0.95, sum by (le, controller) (rate(workqueue_queue_duration_seconds_bucket{JOB}[10m]))) > 60",
        wait: "15m",
        severity: Severity::Warning,
        summary: "Objects of {{ $labels.controller }} wait {{ $value | humanizeDuration }} for a worker",
        description: "More objects become due than are reconciled: let more reconciles run at the same time, or make them faster.",
        for_whom: everybody,
    },
    Alert {
        name: "ApiServerErrors",
        expr: "sum(rate(rest_client_requests_total{JOB,code=~\"5..|<error>\"}[10m])) / sum(rate(rest_client_requests_total{JOB}[10m])) > 0.05",
        wait: "15m",
        severity: Severity::Warning,
        summary: "{{ $value | humanizePercentage }} of the requests to the API server fail",
        description: "The API server is in trouble, or not reached.",
        for_whom: everybody,
    },
    Alert {
        name: "WatchesRestart",
        expr: "sum by (kind) (increase(konverge_watch_restarts_total{JOB}[15m])) > 15",
        wait: "15m",
        severity: Severity::Warning,
        summary: "Watches of {{ $labels.kind }} fail again and again",
        description: "The cache may be behind, so reconciles come late. The log says why watches end: rights that were taken away, or an API server that restarts.",
        for_whom: everybody,
    },
    Alert {
        name: "FilesUsedUp",
        expr: "process_open_fds{JOB} / process_max_fds{JOB} > 0.8",
        wait: "10m",
        severity: Severity::Warning,
        summary: "{{ $labels.pod }} has {{ $value | humanizePercentage }} of its file descriptors open",
        description: "Without descriptors it cannot connect any more. Connections that are never closed are the usual cause.",
        for_whom: everybody,
    },
    Alert {
        name: "WebhookErrors",
        expr: "sum by (webhook) (rate(controller_runtime_webhook_requests_total{JOB,code=~\"5..\"}[10m])) > 0",
        wait: "10m",
        severity: Severity::Warning,
        summary: "The webhook {{ $labels.webhook }} fails",
        description: "Depending on its failure policy, writes of users are refused or not checked. The log has the errors.",
        for_whom: has_webhooks,
    },
    Alert {
        name: "WebhookCertificateEnds",
        expr: "min by (certificate) (konverge_webhook_certificate_expiry_timestamp_seconds{JOB}) - time() < 7 * 86400",
        wait: "1h",
        severity: Severity::Critical,
        summary: "The certificate of the webhooks ends in {{ $value | humanizeDuration }}",
        description: "It is renewed a month before its end, so something prevents that: rights to the Secret, or whoever issues it. When it ends, writes of users are refused.",
        for_whom: has_webhooks,
    },
    Alert {
        name: "RaftMemberMissing",
        expr: "max(konverge_raft_members{JOB,role=\"voter\"}) > count(up{JOB} == 1)",
        wait: "10m",
        severity: Severity::Warning,
        summary: "Members of the Raft cluster of NAME are missing",
        description: "With a majority missing there is no leader. `kubectl get pods` shows which instances do not run; a member that was scaled away is removed by itself after some minutes.",
        for_whom: |operator| operator.raft.is_some(),
    },
];

/// The rules of an operator.
pub(super) fn alerts(operator: &Description) -> Vec<Value> {
    let (prefix, job) = (camel_case(&operator.name), job(operator));
    let rule = |alert: &Alert| {
        let words = |text: &str| text.replace("NAME", &operator.name);
        json!({
            "alert": format!("{prefix}{}", alert.name),
            "expr": alert.expr.replace("JOB", &job),
            "for": alert.wait,
            "labels": {"severity": alert.severity.label()},
            "annotations": {"summary": words(alert.summary), "description": words(alert.description)},
        })
    };
    ALERTS.iter().filter(|alert| (alert.for_whom)(operator)).map(rule).collect()
}

/// `memcached-operator` as alerts are called: `MemcachedOperator`.
fn camel_case(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
    };
    name.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::{example, raft_example};

    #[test]
    fn who_has_which_alerts() {
        let names = |operator: &Description| -> Vec<String> {
            alerts(operator).iter().map(|alert| alert["alert"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let without = Description { webhooks: None, ..example() };
        assert_eq!(names(&example()).len(), names(&without).len() + 2);
        assert!(names(&example()).contains(&"ShopWebhookErrors".to_owned()));
        assert!(names(&raft_example()).contains(&"ShopRaftMemberMissing".to_owned()));
        assert_eq!(camel_case("memcached-operator"), "MemcachedOperator");
    }
}
