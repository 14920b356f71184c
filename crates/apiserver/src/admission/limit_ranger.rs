//! LimitRanger: containers get the requests and limits that a LimitRange has for them, and pods and claims outside its bounds
//! are refused.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::{Quantity, ResourceList, Status, pod_limits, pod_requests, resource_list};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, items_mut, lookup};
use crate::meta;
use crate::subresource::Subresource;

const RANGES: lookup::Kind = ("", "limitranges");

/// The annotation that says what the plugin has set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Deserialize)]
struct LimitRange {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    limits: Vec<Limit>,
}

/// The limits of one type: `Container`, `Pod` or `PersistentVolumeClaim`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limit {
    #[serde(rename = "type")]
    type_: String,
    min: ResourceList,
    max: ResourceList,
    default: Value,
    default_request: Value,
    max_limit_request_ratio: ResourceList,
}

pub(super) struct LimitRanger;

impl Plugin for LimitRanger {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => attributes.is_about("", "pods") || attributes.is_about("", "persistentvolumeclaims"),
            // What the containers of a pod may use changes through one endpoint only.
            Operation::Update => {
                let deleted = attributes.old.is_some_and(meta::is_terminating);
                let resized = attributes.subresource == Subresource::Resize;
                (resized || attributes.is_about("", "persistentvolumeclaims")) && !deleted
            }
            Operation::Delete | Operation::Connect => false,
        }
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(match *attributes.resource.plural == *"pods" {
            true => ranges(attributes).and_then(|ranges| {
                ranges.iter().try_for_each(|range| {
                    spend(attributes, range, object)?;
                    complete(range, object);
                    Ok(())
                })
            }),
            false => Ok(()),
        })
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(ranges(attributes).and_then(|ranges| {
            ranges.iter().try_for_each(|range| {
                spend(attributes, range, object)?;
                let errors = match *attributes.resource.plural == *"pods" {
                    true => check_pod(range, &object["spec"]),
                    false => check_claim(range, &object["spec"]),
                };
                aggregate(errors).map_or(Ok(()), |why| Err(attributes.forbidden(why)))
            })
        }))
    }
}

fn ranges(attributes: &Attributes<'_>) -> Result<Vec<LimitRange>, Status> {
    let ranges = lookup::list::<LimitRange>(attributes, RANGES, attributes.namespace)?;
    Ok(ranges.into_iter().map(|(_, range)| range).collect())
}

/// Spends a step for every bound of a range in every container of a pod.
fn spend(attributes: &Attributes<'_>, range: &LimitRange, object: &Value) -> Result<(), Status> {
    let bounds: usize = range.spec.limits.iter().map(Limit::bounds).sum();
    let containers = |field: &str| object["spec"][field].as_array().map_or(0, Vec::len);
    attributes.spend(bounds * (1 + containers("containers") + containers("initContainers")))
}

/// All errors in one text, each once.
fn aggregate(errors: Vec<String>) -> Option<String> {
    // A pod can have thousands of containers, and each can have an error of every limit.
    let mut seen = HashSet::new();
    let texts: Vec<&String> = errors.iter().filter(|error| seen.insert(error.as_str())).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some((*one).clone()),
        several => Some(format!("[{}]", several.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(", "))),
    }
}

/// Gives the containers of a pod the defaults of a range.
fn complete(range: &LimitRange, pod: &mut Value) {
    let (mut requests, mut limits) = (json!({}), json!({}));
    for limit in range.spec.limits.iter().filter(|limit| limit.type_ == "Container") {
        for (into, from) in [(&mut requests, &limit.default_request), (&mut limits, &limit.default)] {
            for (name, amount) in from.as_object().into_iter().flatten() {
                into[name] = amount.clone();
            }
        }
    }
    let mut notes = Vec::new();
    for (field, words) in [("containers", "container"), ("initContainers", "init container")] {
        for container in items_mut(&mut pod["spec"], field) {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            let limited = fill(&mut container["resources"], "limits", &limits);
            let requested = fill(&mut container["resources"], "requests", &requests);
            for (what, set) in [("request", requested), ("limit", limited)] {
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {words} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
    }
}

/// Sets what is missing, and names it.
fn fill(resources: &mut Value, field: &str, defaults: &Value) -> Vec<String> {
    let defaults = defaults.as_object().into_iter().flatten();
    let missing: Vec<(String, Value)> = defaults
        .filter(|(name, _)| resources[field].get(name.as_str()).is_none())
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    let mut names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    for (name, amount) in missing {
        resources[field][name] = amount;
    }
    names
}

fn check_pod(range: &LimitRange, spec: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in &range.spec.limits {
        match limit.type_.as_str() {
            "Container" => {
                for field in ["containers", "initContainers"] {
                    for container in spec[field].as_array().into_iter().flatten() {
                        let resources = &container["resources"];
                        let (requests, limits) =
                            (resource_list(&resources["requests"]), resource_list(&resources["limits"]));
                        errors.extend(limit.check(&requests, &limits));
                    }
                }
            }
            "Pod" => {
                let pod = json!({"spec": spec});
                errors.extend(limit.check(&pod_requests(&pod), &pod_limits(&pod)));
            }
            _ => {}
        }
    }
    errors
}

fn check_claim(range: &LimitRange, spec: &Value) -> Vec<String> {
    let requests = resource_list(&spec["resources"]["requests"]);
    let limits = range.spec.limits.iter().filter(|limit| limit.type_ == "PersistentVolumeClaim");
    limits
        .flat_map(|limit| {
            let min = limit
                .min
                .iter()
                .filter_map(|(name, min)| limit.below_min(name, *min, requests.get(name).copied(), None));
            let max = limit.max.iter().filter_map(|(name, max)| {
                let asked = requests.get(name).copied();
                limit.above_max(name, *max, asked, asked, "request")
            });
            min.chain(max).collect::<Vec<_>>()
        })
        .collect()
}

/// Numbers that can be compared with each other: thousandths where all of them are small enough.
fn comparable<const N: usize>(amounts: [Quantity; N]) -> [i128; N] {
    match amounts.iter().all(Quantity::fits_milli) {
        true => amounts.map(|amount| amount.milli_value()),
        false => amounts.map(|amount| amount.value()),
    }
}

impl Limit {
    /// How many amounts there are.
    fn bounds(&self) -> usize {
        let defaults = [&self.default, &self.default_request].map(|list| list.as_object().map_or(0, |list| list.len()));
        self.min.len() + self.max.len() + self.max_limit_request_ratio.len() + defaults.iter().sum::<usize>()
    }

    fn check(&self, requests: &ResourceList, limits: &ResourceList) -> Vec<String> {
        let of = |list: &ResourceList, name: &str| list.get(name).copied();
        let min =
            self.min.iter().filter_map(|(name, min)| self.below_min(name, *min, of(requests, name), of(limits, name)));
        let max = self
            .max
            .iter()
            .filter_map(|(name, max)| self.above_max(name, *max, of(limits, name), of(requests, name), "limit"));
        let ratio = self
            .max_limit_request_ratio
            .iter()
            .filter_map(|(name, ratio)| self.above_ratio(name, *ratio, of(requests, name), of(limits, name)));
        min.chain(max).chain(ratio).collect()
    }

    fn below_min(
        &self,
        name: &str,
        min: Quantity,
        request: Option<Quantity>,
        limit: Option<Quantity>,
    ) -> Option<String> {
        let start = format!("minimum {name} usage per {} is {min}", self.type_);
        let Some(request) = request else { return Some(format!("{start}.  No request is specified")) };
        let [asked, limited, least] = comparable([request, limit.unwrap_or_default(), min]);
        if asked < least {
            return Some(format!("{start}, but request is {request}"));
        }
        limit.filter(|_| limited < least).map(|limit| format!("{start}, but limit is {limit}"))
    }

    /// `first` is what has to be there, and is called `what`.
    fn above_max(
        &self,
        name: &str,
        max: Quantity,
        first: Option<Quantity>,
        request: Option<Quantity>,
        what: &str,
    ) -> Option<String> {
        let start = format!("maximum {name} usage per {} is {max}", self.type_);
        let Some(first) = first else { return Some(format!("{start}.  No {what} is specified")) };
        let [asked, limited, most] = comparable([request.unwrap_or_default(), first, max]);
        if limited > most {
            return Some(format!("{start}, but {what} is {first}"));
        }
        request.filter(|_| asked > most).map(|request| format!("{start}, but request is {request}"))
    }

    fn above_ratio(
        &self,
        name: &str,
        ratio: Quantity,
        request: Option<Quantity>,
        limit: Option<Quantity>,
    ) -> Option<String> {
        let start = format!("{name} max limit to request ratio per {} is {ratio}", self.type_);
        let [asked, limited, _] = comparable([request.unwrap_or_default(), limit.unwrap_or_default(), ratio]);
        if asked == 0 {
            return Some(format!("{start}, but no request is specified or request is 0"));
        }
        if limited == 0 {
            return Some(format!("{start}, but no limit is specified or limit is 0"));
        }
        let observed = limited as f64 / asked as f64;
        let (compared, allowed) = match ratio.fits_milli() {
            true => (observed * 1000.0, ratio.milli_value() as f64),
            false => (observed, ratio.value() as f64),
        };
        (compared > allowed).then(|| format!("{start}, but provided ratio is {observed:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> LimitRange {
        serde_json::from_value(json!({"spec": {"limits": limits}})).unwrap()
    }

    #[test]
    fn containers_get_defaults() {
        let range = range(json!([
            {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}},
            {"type": "Pod", "default": {"cpu": "9"}},
        ]));
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}, {"name": "b", "resources": {
                "limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1"},
            }}],
            "initContainers": [{"name": "i"}],
        }});
        complete(&range, &mut pod);
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; memory limit for container a; cpu request for init \
             container i; cpu, memory limit for init container i"
        );
        let resources = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": "500m"}});
        assert_eq!(pod["spec"]["containers"][0]["resources"], resources("2"));
        assert_eq!(pod["spec"]["initContainers"][0]["resources"], resources("1"));
    }

    #[test]
    fn bounds_are_kept() {
        #[track_caller]
        fn check(limit: Value, spec: Value, expect: Option<&str>) {
            assert_eq!(aggregate(check_pod(&range(json!([limit])), &spec)).as_deref(), expect);
        }
        let containers = |resources: &[Value]| {
            let each: Vec<Value> = resources.iter().map(|resources| json!({"resources": resources})).collect();
            json!({"containers": each})
        };
        let asks = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        let min = json!({"type": "Container", "min": {"cpu": "100m"}});
        check(min.clone(), containers(&[asks("100m", "1")]), None);
        check(
            min.clone(),
            containers(&[json!({})]),
            Some("minimum cpu usage per Container is 100m.  No request is specified"),
        );
        check(
            min.clone(),
            containers(&[asks("50m", "1"), asks("50m", "1")]),
            Some("minimum cpu usage per Container is 100m, but request is 50m"),
        );
        check(
            min,
            containers(&[asks("100m", "50m")]),
            Some("minimum cpu usage per Container is 100m, but limit is 50m"),
        );
        let max = json!({"type": "Container", "max": {"cpu": "1"}});
        check(
            max.clone(),
            containers(&[json!({})]),
            Some("maximum cpu usage per Container is 1.  No limit is specified"),
        );
        check(max.clone(), containers(&[asks("1", "2")]), Some("maximum cpu usage per Container is 1, but limit is 2"));
        check(max, containers(&[asks("2", "1")]), Some("maximum cpu usage per Container is 1, but request is 2"));
        let ratio = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}});
        check(ratio.clone(), containers(&[asks("1", "1500m")]), None);
        check(
            ratio.clone(),
            containers(&[asks("1", "2")]),
            Some("cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"),
        );
        check(
            ratio,
            containers(&[json!({"limits": {"cpu": "1"}})]),
            Some("cpu max limit to request ratio per Container is 1500m, but no request is specified or request is 0"),
        );
        let pod = json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "300m"}});
        check(pod.clone(), containers(&[asks("200m", "500m"), asks("200m", "500m")]), None);
        check(
            pod,
            containers(&[asks("100m", "1"), asks("100m", "1")]),
            Some(
                "[minimum cpu usage per Pod is 300m, but request is 200m, maximum cpu usage per Pod is 1, but limit is 2]",
            ),
        );
        let claim = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        for (storage, expect) in [
            (json!("1Gi"), None),
            (json!("3Gi"), Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")),
            (json!("1Mi"), Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")),
        ] {
            let errors = check_claim(&range(json!([claim])), &json!({"resources": {"requests": {"storage": storage}}}));
            assert_eq!(aggregate(errors).as_deref(), expect);
        }
    }
}
