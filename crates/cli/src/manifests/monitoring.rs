//! How an operator is watched over. In: a description. Out: a ServiceMonitor, so that Prometheus reads its metrics, a PrometheusRule with `alerts`, and a
//! ConfigMap with a `dashboard` for Grafana; nothing of it if metrics are not served.

use serde_json::{Value, json};

use super::{
    COMPONENT_LABEL, METRICS, Manifest, NAME_LABEL, Part, alerts, dashboard, manifest, metrics_service, object,
};
use crate::description::Description;

/// The label by which Grafana's sidecar finds dashboards, as its chart has it.
const DASHBOARD_LABEL: &str = "grafana_dashboard";

pub(super) fn manifests(operator: &Description) -> Vec<Manifest> {
    if operator.metrics_port().is_none() {
        return Vec::new();
    }
    vec![
        manifest(Part::Prometheus, "service_monitor.yaml", service_monitor(operator)),
        manifest(Part::Prometheus, "prometheus_rule.yaml", prometheus_rule(operator)),
        manifest(Part::Grafana, "dashboard.yaml", dashboard_config_map(operator)),
    ]
}

/// What the samples of the operator have in common. Objects have fixed names, so a cluster has one job of this name.
pub(super) fn job(operator: &Description) -> String {
    format!("job=\"{}\"", metrics_service(operator))
}

fn service_monitor(operator: &Description) -> Value {
    let mut monitor = object("monitoring.coreos.com/v1", "ServiceMonitor", &operator.name, operator);
    monitor["spec"] = json!({
        "endpoints": [{"interval": "30s", "path": operator.settings.metrics.path, "port": METRICS}],
        "selector": {"matchLabels": {NAME_LABEL: operator.name, COMPONENT_LABEL: METRICS}},
    });
    monitor
}

fn prometheus_rule(operator: &Description) -> Value {
    let mut rule = object("monitoring.coreos.com/v1", "PrometheusRule", &operator.name, operator);
    rule["spec"] = json!({"groups": [{"name": operator.name, "rules": alerts::alerts(operator)}]});
    rule
}

fn dashboard_config_map(operator: &Description) -> Value {
    let mut config_map = object("v1", "ConfigMap", &format!("{}-dashboard", operator.name), operator);
    config_map["metadata"]["labels"][DASHBOARD_LABEL] = "1".into();
    config_map["data"][format!("{}.json", operator.name)] = dashboard::text(operator).into();
    config_map
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use konverge_core::MetricKind;

    use super::*;
    use crate::description::tests::{example, raft_example};

    /// Words of PromQL that stand without brackets.
    const WORDS: [&str; 13] =
        ["and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset", "sum", "max", "min", "count"];

    /// The metrics that an expression names.
    fn named(expression: &str) -> Vec<String> {
        let (mut names, mut word, mut depth) = (Vec::new(), String::new(), 0_i32);
        let mut is_grouping = false;
        for character in expression.chars().chain([' ']) {
            if depth == 0 && (character.is_alphanumeric() || "_:$".contains(character)) {
                word.push(character);
                continue;
            }
            let is_name = word.starts_with(|first: char| first.is_ascii_lowercase()) && !WORDS.contains(&word.as_str());
            if ["by", "without", "on", "ignoring"].contains(&word.as_str()) {
                is_grouping = true;
            } else if is_name && character != '(' {
                names.push(word.clone());
            }
            word.clear();
            match character {
                // Labels and ranges are within brackets.
                '{' | '[' => depth += 1,
                '(' if is_grouping => depth += 1,
                '}' | ']' => depth -= 1,
                ')' if depth > 0 => {
                    depth -= 1;
                    is_grouping = false;
                }
                _ => {}
            }
        }
        names
    }

    /// The expressions anywhere in a value.
    fn expressions(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(text) if key == "expr" => found.push(text.clone()),
                        value => expressions(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
            _ => {}
        }
    }

    #[test]
    fn names_in_an_expression() {
        for (expression, expect) in [
            ("sum by (controller) (rate(a_total{x=\"b\"}[5m])) / c > 0.1", vec!["a_total", "c"]),
            ("absent(up{job=\"x\"} == 1)", vec!["up"]),
            ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[$__rate_interval])))", vec!["a_bucket"]),
            ("a and on (b) c - time() < 1e5", vec!["a", "c"]),
        ] {
            assert_eq!(named(expression), expect, "{expression}");
        }
    }

    #[test]
    fn every_metric_is_one_that_operators_have() {
        let registry: BTreeMap<&str, MetricKind> = konverge::__private::metric_families().collect();
        let is_known = |name: &str| {
            let part_of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let in_histogram = |family| registry.get(family).is_some_and(|kind| *kind == MetricKind::Histogram);
            name == "up"
                || registry.get(name).is_some_and(|kind| *kind != MetricKind::Histogram)
                || part_of_histogram.is_some_and(in_histogram)
        };
        for operator in [example(), raft_example()] {
            let dashboard: Value = serde_json::from_str(&dashboard::text(&operator)).unwrap();
            for (what, value) in [("alerts", prometheus_rule(&operator)), ("dashboard", dashboard)] {
                let mut found = Vec::new();
                expressions(&value, &mut found);
                assert!(found.len() >= 10, "{what}");
                for expression in found {
                    let names = named(&expression);
                    assert!(!names.is_empty(), "{expression}");
                    assert!(expression.contains("job=\"shop-metrics\""), "it is about this operator: {expression}");
                    for name in names {
                        assert!(is_known(&name), "{what}: no operator has {name}: {expression}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_is_watched_without_metrics() {
        let mut shop = example();
        assert_eq!(manifests(&shop).len(), 3);
        shop.settings.metrics.enabled = false;
        assert_eq!(manifests(&shop), []);
    }
}
