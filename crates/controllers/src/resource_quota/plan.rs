//! What is used of a quota. In: the quota and the objects that count for it. Out: its status. Pure.

use jiff::{SignedDuration, Timestamp};
use konverge_core::{Quantity, QuotaKind, ResourceList, ResourceQuota};
use serde_json::{Value, json};

/// What objects use, by the names that a quota limits.
#[derive(Default)]
pub(super) struct Usage(ResourceList);

impl Usage {
    /// Begins with nothing of what the objects of a kind can use.
    pub(super) fn track(&mut self, quota: &ResourceQuota, kind: &QuotaKind) {
        for name in quota.wanted.keys().filter(|name| kind.tracks(name)) {
            self.0.entry(name.clone()).or_default();
        }
    }

    /// Adds so many objects of a kind whose number alone counts.
    pub(super) fn count(&mut self, quota: &ResourceQuota, kind: &QuotaKind, objects: i64) {
        for name in quota.wanted.keys().filter(|name| kind.tracks(name)) {
            self.0.entry(name.clone()).or_default().add(&Quantity::new(objects));
        }
    }

    /// Adds what one object uses, if it counts for the quota.
    pub(super) fn add(&mut self, quota: &ResourceQuota, kind: &QuotaKind, object: &Value, now: Timestamp) {
        if !quota.covers(kind, object) {
            return;
        }
        for (name, used) in kind.usage(object, is_expired(object, now)) {
            if let Some(sum) = self.0.get_mut(&name) {
                sum.add(&used);
            }
        }
    }

    /// The status that the quota should have; `None` if it has it.
    pub(super) fn status(&self, quota: &ResourceQuota, object: &Value) -> Option<Value> {
        // What nothing measures keeps what was known of it.
        let kept = quota.used.iter().filter(|(name, _)| quota.wanted.contains_key(*name));
        let mut used: ResourceList = kept.map(|(name, used)| (name.clone(), *used)).collect();
        used.extend(self.0.iter().map(|(name, used)| (name.clone(), *used)));
        let known = &object["status"];
        if quota.hard == quota.wanted && quota.used == used && known["hard"].is_object() && known["used"].is_object() {
            return None;
        }
        let hard = object["spec"].get("hard").cloned().unwrap_or_else(|| json!({}));
        Some(json!({"hard": hard, "used": used}))
    }
}

/// Whether a pod should be gone: its node may be lost, and others must not have to wait for it.
fn is_expired(object: &Value, now: Timestamp) -> bool {
    let metadata = &object["metadata"];
    let ends = metadata["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().map(SignedDuration::from_secs);
    let (Some(ends), Some(grace)) = (ends, grace) else { return false };
    ends.checked_add(grace).is_ok_and(|ends| now > ends)
}

/// Whether a changed object may use less than before.
pub(super) fn gives_back(kind: &QuotaKind, before: &Value, after: &Value) -> bool {
    let used = |object: &Value| kind.usage(object, false);
    used(before) != used(after) || kind.can_change(before, after) && before["spec"] != after["spec"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(plural: &str) -> QuotaKind {
        QuotaKind::of("", plural).unwrap()
    }

    fn quota(spec: Value, status: Value) -> (ResourceQuota, Value) {
        let object = json!({"metadata": {"name": "q"}, "spec": spec, "status": status});
        (ResourceQuota::read(&object), object)
    }

    #[test]
    fn the_status_is_what_objects_use() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let (quota, object) = quota(
            json!({"hard": {"pods": "10", "cpu": "4", "configmaps": "5", "count/gone.example.com": "1"}}),
            json!({}),
        );
        let pods = kind("pods");
        let mut usage = Usage::default();
        usage.track(&quota, &pods);
        let pod =
            |cpu: &str| json!({"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        usage.add(&quota, &pods, &pod("500m"), now);
        usage.add(&quota, &pods, &pod("1"), now);
        let mut ended = pod("1");
        ended["status"] = json!({"phase": "Failed"});
        usage.add(&quota, &pods, &ended, now);
        let mut lost = pod("1");
        lost["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        usage.add(&quota, &pods, &lost, now);
        usage.count(&quota, &kind("configmaps"), 3);
        let expect = json!({
            "hard": {"pods": "10", "cpu": "4", "configmaps": "5", "count/gone.example.com": "1"},
            "used": {"pods": "2", "cpu": "1500m", "configmaps": "3"},
        });
        assert_eq!(usage.status(&quota, &object), Some(expect.clone()));
        // The same again needs no write, however the numbers are written.
        let (quota, object) = self::quota(object["spec"].clone(), {
            let mut status = expect;
            status["used"]["cpu"] = "1.5".into();
            status
        });
        assert_eq!(usage.status(&quota, &object), None);
    }

    #[test]
    fn a_quota_for_nothing_that_is_there_has_a_status() {
        let (quota, object) = quota(json!({}), json!({}));
        assert_eq!(Usage::default().status(&quota, &object), Some(json!({"hard": {}, "used": {}})));
    }

    #[test]
    fn what_ends_gives_back() {
        let pod = |phase: &str| json!({"spec": {}, "status": {"phase": phase}});
        assert!(gives_back(&kind("pods"), &pod("Running"), &pod("Succeeded")));
        assert!(!gives_back(&kind("pods"), &pod("Pending"), &pod("Running")));
        let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{}]}});
        assert!(gives_back(&kind("services"), &service("NodePort"), &service("ClusterIP")));
        assert!(!gives_back(&kind("services"), &service("NodePort"), &service("NodePort")));
    }
}
