//! The replicas that metrics recommend. In: an autoscaler, its pods, and the values that annotations set. Out: for each metric
//! the recommended replicas and its current value, or why it is unknown. Nothing is measured: pods run nothing. Pure.
//!
//! | annotation `simulate.konverge.dev/…` | on | meaning |
//! |---|---|---|
//! | `cpu`, `memory`, any name | a pod | what the pod has or uses: `250m`, `64Mi`, `17` |
//! | `cpu.main` | a pod | what its container `main` uses |
//! | `cpu`, any name | the autoscaler | the same for each pod without a value; for an object, its value |
//! | `total-cpu`, `total-` any name | the autoscaler | what all pods together use, each its share |

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use konverge_core::simulate::PREFIX;

use super::kind::{Autoscaler, Goal, Metric, Named, Resource};
use crate::pods::Pod;
use crate::quantity::{milli, milli_of, milli_text};
use crate::scale::Scale;

/// How far a ratio may be from one without a change of the size.
const TOLERANCE: f64 = 0.1;

/// The recommendation of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proposal {
    pub replicas: i32,
    /// The name of the metric in events.
    pub name: String,
    /// Its current value, as the status shows it.
    pub status: Value,
}

/// Why the recommendation of a metric is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    pub reason: &'static str,
    pub message: String,
}

/// What the planner reads.
pub(super) struct Measured<'a> {
    pub autoscaler: &'a Autoscaler,
    pub scale: &'a Scale,
    pub pods: &'a [Arc<Pod>],
}

/// What pods use, by name.
struct Usage {
    used: BTreeMap<String, i64>,
    /// Pods that are not ready.
    unready: Vec<String>,
    /// Pods without a value.
    missing: Vec<String>,
}

impl Measured<'_> {
    /// The recommendation of one metric.
    pub(super) fn propose(&self, metric: &Metric) -> Result<Proposal, Unknown> {
        let absent = |reason| Unknown { reason, message: format!("metric source {:?} is not set", metric.type_) };
        match metric.type_.as_str() {
            "Resource" => {
                let reason = "FailedGetResourceMetric";
                let resource = metric.resource.as_ref().ok_or_else(|| absent(reason))?;
                let proposal = self.resource(resource, "").map_err(|message| Unknown { reason, message })?;
                let status = json!({"name": resource.name, "current": proposal.status});
                Ok(Proposal { status: json!({"type": "Resource", "resource": status}), ..proposal })
            }
            "ContainerResource" => {
                let reason = "FailedGetContainerResourceMetric";
                let resource = metric.container_resource.as_ref().ok_or_else(|| absent(reason))?;
                let proposal =
                    self.resource(resource, &resource.container).map_err(|message| Unknown { reason, message })?;
                let status =
                    json!({"name": resource.name, "container": resource.container, "current": proposal.status});
                Ok(Proposal { status: json!({"type": "ContainerResource", "containerResource": status}), ..proposal })
            }
            "Pods" => {
                let reason = "FailedGetPodsMetric";
                let pods = metric.pods.as_ref().ok_or_else(|| absent(reason))?;
                self.each(pods).map_err(|message| Unknown { reason, message })
            }
            "Object" => {
                let reason = "FailedGetObjectMetric";
                let object = metric.object.as_ref().ok_or_else(|| absent(reason))?;
                self.one(object, "Object").map_err(|message| Unknown { reason, message })
            }
            "External" => {
                let reason = "FailedGetExternalMetric";
                let external = metric.external.as_ref().ok_or_else(|| absent(reason))?;
                self.one(external, "External").map_err(|message| Unknown { reason, message })
            }
            other => Err(Unknown {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type {other:?}"),
            }),
        }
    }

    /// What pods use, as an amount or as a share of what they asked for.
    fn resource(&self, resource: &Resource, container: &str) -> Result<Proposal, String> {
        let name = &resource.name;
        let usage = self.usage(name, container);
        if let Some(goal) = resource.target.average_value.as_ref().and_then(milli_of) {
            let fail = |error: String| format!("failed to get {name} usage: {error}");
            let (replicas, average) = self.by_average(usage, goal).map_err(fail)?;
            let status = json!({"averageValue": milli_text(average)});
            return Ok(Proposal { replicas, name: format!("{name} resource"), status });
        }
        let Some(goal) = resource.target.average_utilization else {
            let needs = "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {needs}"));
        };
        let fail = |error: String| format!("failed to get {name} utilization: {error}");
        let requests = self.requests(name, container).map_err(fail)?;
        let (replicas, utilization, average) = self.by_utilization(usage, &requests, goal).map_err(fail)?;
        let status = json!({"averageUtilization": utilization, "averageValue": milli_text(average)});
        let of = if container.is_empty() { "" } else { "container " };
        let name = format!("{name} {of}resource utilization (percentage of request)");
        Ok(Proposal { replicas, name, status })
    }

    /// Something each pod has.
    fn each(&self, pods: &Named) -> Result<Proposal, String> {
        let name = pods.metric["name"].as_str().unwrap_or_default();
        let goal = pods.target.average_value.as_ref().and_then(milli_of);
        let goal = goal.ok_or("invalid pods metric source: no average value target was set")?;
        let (replicas, average) = self.by_average(self.usage(name, ""), goal)?;
        let status =
            json!({"type": "Pods", "pods": {"metric": pods.metric, "current": {"averageValue": milli_text(average)}}});
        Ok(Proposal { replicas, name: format!("pods metric {name}"), status })
    }

    /// Something one object has, or something elsewhere.
    fn one(&self, object: &Named, type_: &str) -> Result<Proposal, String> {
        let name = object.metric["name"].as_str().unwrap_or_default();
        let value = self.said(&self.autoscaler.metadata.annotations, name);
        let value = value.ok_or_else(|| format!("unable to get metric {name}: nobody has set {PREFIX}{name}"))?;
        let (replicas, current) = self.by_value(&object.target, value)?;
        let (field, name) = match type_ {
            "Object" => {
                ("object", format!("{} metric {name}", object.described_object["kind"].as_str().unwrap_or_default()))
            }
            _ => ("external", format!("external metric {name}")),
        };
        let mut status = json!({"type": type_, field: {"metric": object.metric, "current": current}});
        if type_ == "Object" {
            status[field]["describedObject"] = object.described_object.clone();
        }
        Ok(Proposal { replicas, name, status })
    }

    fn by_value(&self, goal: &Goal, value: i64) -> Result<(i32, Value), String> {
        let (asked, there) = (self.scale.spec.replicas, self.scale.status.replicas);
        if let Some(goal) = goal.average_value.as_ref().and_then(milli_of) {
            let ratio = value as f64 / (goal as f64 * f64::from(there));
            let replicas = if self.is_within(ratio) { there } else { ceil(value as f64 / goal as f64) };
            let share = (value as f64 / f64::from(there.max(1))).ceil() as i64;
            return Ok((replicas, json!({"averageValue": milli_text(share)})));
        }
        let goal = goal.value.as_ref().and_then(milli_of);
        let goal = goal.ok_or("invalid metric source: neither a value target nor an average value target was set")?;
        let ratio = value as f64 / goal as f64;
        let ready = self.pods.iter().filter(|pod| pod.status.phase == "Running" && pod.is_ready()).count();
        let replicas = match asked {
            0 => ceil(ratio),
            _ if self.is_within(ratio) => asked,
            _ => ceil(ratio * ready as f64),
        };
        Ok((replicas, json!({"value": milli_text(value)})))
    }

    /// Replicas and the average, for what should be so much on average.
    fn by_average(&self, usage: Usage, goal: i64) -> Result<(i32, i64), String> {
        let average = |used: &BTreeMap<String, i64>| used.values().sum::<i64>() / as_i64(used.len()).max(1);
        let ratio = |used: &BTreeMap<String, i64>| average(used) as f64 / goal as f64;
        self.known(&usage)?;
        let now = average(&usage.used);
        Ok((self.replicas(usage, ratio, |_| goal), now))
    }

    /// Replicas, the share in percent, and the average, for what should be such a share of what was asked for.
    fn by_utilization(
        &self,
        usage: Usage,
        requests: &BTreeMap<String, i64>,
        goal: i64,
    ) -> Result<(i32, i64, i64), String> {
        let share = |used: &BTreeMap<String, i64>| {
            let asked: i64 = used.keys().filter_map(|pod| requests.get(pod)).sum();
            let all: i64 = used.iter().filter(|(pod, _)| requests.contains_key(*pod)).map(|(_, used)| used).sum();
            if asked == 0 { 0 } else { all * 100 / asked }
        };
        self.known(&usage)?;
        let utilization = share(&usage.used);
        let average = usage.used.values().sum::<i64>() / as_i64(usage.used.len()).max(1);
        let ratio = |used: &BTreeMap<String, i64>| share(used) as f64 / goal as f64;
        let all_of_it = |pod: &str| requests.get(pod).copied().unwrap_or_default() * goal.max(100) / 100;
        Ok((self.replicas(usage, ratio, all_of_it), utilization, average))
    }

    fn known(&self, usage: &Usage) -> Result<(), String> {
        match () {
            () if self.pods.is_empty() => Err("no pods returned by selector while calculating replica count".into()),
            () if usage.used.is_empty() => {
                Err("did not receive metrics for targeted pods (pods might be unready)".into())
            }
            () => Ok(()),
        }
    }

    /// How many replicas bring the ratio to one. Pods without a value make the change smaller, never larger.
    fn replicas(
        &self,
        usage: Usage,
        ratio: impl Fn(&BTreeMap<String, i64>) -> f64,
        at_most: impl Fn(&str) -> i64,
    ) -> i32 {
        let asked = self.scale.spec.replicas;
        let Usage { mut used, unready, missing } = usage;
        let first = ratio(&used);
        let grows_with_unready = !unready.is_empty() && first > 1.0;
        if !grows_with_unready && missing.is_empty() {
            return if self.is_within(first) { asked } else { ceil(first * used.len() as f64) };
        }
        if first < 1.0 {
            used.extend(missing.into_iter().map(|pod| (pod.clone(), at_most(&pod))));
        } else if first > 1.0 {
            used.extend(missing.into_iter().map(|pod| (pod, 0)));
        }
        if grows_with_unready {
            used.extend(unready.into_iter().map(|pod| (pod, 0)));
        }
        let second = ratio(&used);
        let turned = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
        let replicas = ceil(second * used.len() as f64);
        let wrong_way = (second < 1.0 && replicas > asked) || (second > 1.0 && replicas < asked);
        if self.is_within(second) || turned || wrong_way { asked } else { replicas }
    }

    fn is_within(&self, ratio: f64) -> bool {
        let behavior = self.autoscaler.spec.behavior.clone().unwrap_or_default();
        let rules = if ratio < 1.0 { behavior.scale_down } else { behavior.scale_up };
        let said = rules.and_then(|rules| milli_of(&rules.tolerance?)).map(|milli| milli as f64 / 1000.0);
        // What a division makes a little too large is still within.
        (ratio - 1.0).abs() <= said.unwrap_or(TOLERANCE) + f64::EPSILON
    }

    /// What pods use. Those that are going or have failed are left out.
    fn usage(&self, name: &str, container: &str) -> Usage {
        let live = self.pods.iter().filter(|pod| pod.is_active());
        let mut usage = Usage { used: BTreeMap::new(), unready: Vec::new(), missing: Vec::new() };
        let live: Vec<&Arc<Pod>> = live.collect();
        let own = &self.autoscaler.metadata.annotations;
        let total = self.said(own, &format!("total-{name}"));
        let ready = live.iter().filter(|pod| pod.is_ready()).count();
        let share = total.map(|total| total / as_i64(ready).max(1));
        let word = if container.is_empty() { name.to_owned() } else { format!("{name}.{container}") };
        for pod in live {
            let pod_name = pod.metadata.name.clone();
            let said = self.said(&pod.metadata.annotations, &word).or(share).or_else(|| self.said(own, &word));
            match said {
                _ if pod.status.phase == "Pending" || (name == "cpu" && !pod.is_ready()) => {
                    usage.unready.push(pod_name)
                }
                Some(used) => {
                    usage.used.insert(pod_name, used);
                }
                None => usage.missing.push(pod_name),
            }
        }
        usage
    }

    fn said(&self, annotations: &BTreeMap<String, String>, name: &str) -> Option<i64> {
        milli(annotations.get(&format!("{PREFIX}{name}"))?)
    }

    /// What pods have asked for.
    fn requests(&self, name: &str, container: &str) -> Result<BTreeMap<String, i64>, String> {
        let mut all = BTreeMap::new();
        for pod in self.pods {
            let mut sum = 0;
            let of = |one: &&crate::pods::Container| container.is_empty() || one.name == container;
            for one in pod.spec.containers.iter().filter(of) {
                let request = one.resources.requests.get(name).and_then(milli_of);
                sum += request.ok_or_else(|| {
                    let pod = &pod.metadata.name;
                    format!("missing request for {name} in container {} of Pod {pod}", one.name)
                })?;
            }
            all.insert(pod.metadata.name.clone(), sum);
        }
        Ok(all)
    }
}

fn as_i64(many: usize) -> i64 {
    i64::try_from(many).unwrap_or(i64::MAX)
}

fn ceil(replicas: f64) -> i32 {
    // A cast of floats saturates; what is a hair above a whole number is that number.
    (replicas - 1e-9).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods by what they use: a number of thousandths of a core, `?` if it is unknown, `!` if it is not ready.
    fn pods(how: &str) -> Vec<Arc<Pod>> {
        let pod = |(at, how): (usize, &str)| {
            let annotations = match how.parse::<i64>() {
                Ok(used) => {
                    json!({"simulate.konverge.dev/cpu": format!("{used}m"), "simulate.konverge.dev/cpu.main": format!("{}m", used / 2), "simulate.konverge.dev/queue": used.to_string()})
                }
                Err(_) => json!({}),
            };
            let ready = if how == "!" { "False" } else { "True" };
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": format!("p{at}"), "annotations": annotations},
                    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
                }))
                .unwrap(),
            )
        };
        how.split_whitespace().enumerate().map(pod).collect()
    }

    fn proposed(metric: Value, how: &str, annotations: Value) -> Result<Proposal, Unknown> {
        let autoscaler: Autoscaler = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        let pods = pods(how);
        let many = i32::try_from(pods.len()).unwrap();
        let scale: Scale =
            serde_json::from_value(json!({"spec": {"replicas": many}, "status": {"replicas": many}})).unwrap();
        let metric: Metric = serde_json::from_value(metric).unwrap();
        Measured { autoscaler: &autoscaler, scale: &scale, pods: &pods }.propose(&metric)
    }

    #[test]
    fn replicas_bring_the_average_to_what_it_should_be() {
        let check = |goal: Value, how: &str, annotations: Value, expect: (i32, Value)| {
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": goal}});
            let got = proposed(metric, how, annotations).unwrap();
            assert_eq!((got.replicas, got.status["resource"]["current"].clone()), expect, "{goal} {how}");
        };
        let half = || json!({"type": "Utilization", "averageUtilization": 50});
        let now = |percent: i64, average: &str| json!({"averageUtilization": percent, "averageValue": average});
        check(half(), "500 500", json!({}), (2, now(50, "500m")));
        check(half(), "1000 1000", json!({}), (4, now(100, "1")));
        check(half(), "540 540", json!({}), (2, now(54, "540m")));
        check(half(), "560 560", json!({}), (3, now(56, "560m")));
        check(half(), "100 100 100", json!({}), (1, now(10, "100m")));
        // Pods without a value, and pods that are not ready.
        check(half(), "1000 ?", json!({}), (2, now(100, "1")));
        check(half(), "2000 ?", json!({}), (4, now(200, "2")));
        check(half(), "100 100 ?", json!({}), (3, now(10, "100m")));
        check(half(), "1000 1000 !", json!({}), (4, now(100, "1")));
        // What the autoscaler says counts where pods say nothing.
        check(half(), "? ?", json!({"simulate.konverge.dev/cpu": "1"}), (4, now(100, "1")));
        check(half(), "? ?", json!({"simulate.konverge.dev/total-cpu": "3"}), (6, now(150, "1500m")));
        let amount = json!({"type": "AverageValue", "averageValue": "250m"});
        check(amount, "500 500", json!({}), (4, json!({"averageValue": "500m"})));
    }

    #[test]
    fn other_metrics() {
        let check = |metric: Value, how: &str, expect: (i32, &str)| {
            let got = proposed(metric.clone(), how, json!({"simulate.konverge.dev/hits": "90"})).unwrap();
            assert_eq!((got.replicas, &*got.name), expect, "{metric}");
        };
        let goal =
            |goal: Value| json!({"metric": {"name": "hits"}, "describedObject": {"kind": "Ingress"}, "target": goal});
        check(
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": {"averageUtilization": 25}}}),
            "1000 1000",
            (4, "cpu container resource utilization (percentage of request)"),
        );
        check(
            json!({"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": {"averageValue": "10"}}}),
            "30 10",
            (4, "pods metric queue"),
        );
        check(json!({"type": "Object", "object": goal(json!({"value": "30"}))}), "1 1", (6, "Ingress metric hits"));
        check(
            json!({"type": "Object", "object": goal(json!({"averageValue": "10"}))}),
            "1 1",
            (9, "Ingress metric hits"),
        );
        check(
            json!({"type": "External", "external": goal(json!({"averageValue": "45"}))}),
            "1 1",
            (2, "external metric hits"),
        );
    }

    #[test]
    fn what_nobody_knows_is_said() {
        let check = |metric: Value, how: &str, expect: (&str, &str)| {
            let got = proposed(metric.clone(), how, json!({})).unwrap_err();
            assert_eq!((got.reason, &*got.message), expect, "{metric} {how}");
        };
        let cpu = || json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}});
        let reason = "FailedGetResourceMetric";
        let none = "did not receive metrics for targeted pods (pods might be unready)";
        check(cpu(), "? ?", (reason, &format!("failed to get cpu utilization: {none}")));
        let empty = "failed to get cpu utilization: no pods returned by selector while calculating replica count";
        check(cpu(), "", (reason, empty));
        check(
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": 50}}}),
            "1",
            (reason, "failed to get memory utilization: missing request for memory in container main of Pod p0"),
        );
        check(
            json!({"type": "Object", "object": {"metric": {"name": "x"}, "target": {"value": "1"}}}),
            "1",
            ("FailedGetObjectMetric", "unable to get metric x: nobody has set simulate.konverge.dev/x"),
        );
    }
}
