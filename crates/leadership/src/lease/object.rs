//! A Lease as the server has it, and what it says. In: JSON. Out: who holds the Lease, in which term and for how long. Whoever may write
//! the Lease may write any time and any number into it, so everything is read that can be, and nothing of it fails the whole. Pure.
//!
//! Times are kept as they are written: a renewal is known by a time that is another one, and no time is compared with a clock here.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::timing::LeaseTiming;

/// For how long a Lease is believed to be held without a renewal at most, whatever it says. No elector asks for as much, and a number that
/// somebody wrote by mistake must not leave an operator without a leader for years.
const LONGEST: Duration = Duration::from_secs(3600);

/// The largest count of terms that a Lease can say.
const LARGEST: u64 = i32::MAX as u64;

/// The first second of 2020, from which a count that begins anew is taken: far above every count of real terms, and far below the largest.
const NEW_COUNT_SINCE: i64 = 1_577_836_800;

/// A Lease.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::coordination::v1::Lease)]
pub(crate) struct Lease {
    #[serde(default, deserialize_with = "without_managed_fields")]
    pub metadata: ObjectMeta,
    pub spec: Option<LeaseSpec>,
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    #[serde(deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    #[serde(deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    #[serde(deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<LeaseTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<LeaseTime>,
    /// Strategy, preferred holder, and what later versions of Kubernetes add. It stays as others wrote it.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// A time as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct LeaseTime(Value);

impl LeaseTime {
    /// The time, if it is one that can be read.
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.0.as_str()?.parse().ok()
    }
}

impl From<Timestamp> for LeaseTime {
    fn from(time: Timestamp) -> Self {
        Self(serde_json::to_value(MicroTime(time)).unwrap_or_default())
    }
}

impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: &'a ObjectMeta,
            #[serde(skip_serializing_if = "Option::is_none")]
            spec: Option<&'a LeaseSpec>,
        }
        let (api_version, kind) = ("coordination.k8s.io/v1", "Lease");
        Whole { api_version, kind, metadata: &self.metadata, spec: self.spec.as_ref() }.serialize(serializer)
    }
}

/// What cannot be read counts as absent.
fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Nobody here needs to know who manages which field, and the times in there are others', too. A server keeps what is not sent.
fn without_managed_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = BTreeMap::<String, Value>::deserialize(deserializer)?;
    metadata.remove("managedFields");
    serde_json::from_value(metadata.into_iter().collect()).map_err(serde::de::Error::custom)
}

/// Who holds the Lease; an empty name is nobody.
pub(crate) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Which term the Lease is in.
pub(crate) fn number(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    u64::try_from(transitions.unwrap_or_default()).unwrap_or_default()
}

/// For how long the holder has it after each renewal.
pub(crate) fn duration(lease: &Lease, timing: &LeaseTiming) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let stated = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    stated.map_or(timing.duration, |seconds| Duration::from_secs(seconds).min(LONGEST.max(timing.duration)))
}

/// Resource versions of one kind are ordered numbers. What is no number is taken as it comes.
pub(crate) fn version(lease: &Lease) -> u64 {
    lease.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The number of the term after one with this number, for a candidate whose own newest term was `led`.
///
/// After the largest number that a Lease can have, which only somebody's mistake can bring, the count begins anew with the seconds since
/// 2020. So the number is greater than that of every term that was counted, and another one each time that this happens. (client-go's count
/// becomes negative then, which the server refuses: its electors have no leader until somebody mends the Lease.)
pub(crate) fn next_number(number: u64, led: Option<u64>, wall: Timestamp) -> i32 {
    let next = match is_last(number) {
        false => number + 1,
        true => {
            let seconds = u64::try_from(wall.as_second() - NEW_COUNT_SINCE).unwrap_or_default();
            let after_own = led.filter(|led| !is_last(*led)).map_or(1, |led| led + 1);
            seconds.max(after_own)
        }
    };
    i32::try_from(next).unwrap_or(1)
}

/// Whether no number comes after this one.
pub(crate) fn is_last(number: u64) -> bool {
    number >= LARGEST
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> Lease {
        let metadata =
            json!({"name": "l", "resourceVersion": "7", "managedFields": [{"time": "9999-12-31T23:59:59Z"}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("every Lease is read")
    }

    #[test]
    fn what_can_be_read_is_read() {
        let check = |spec: Value, who: Option<&str>, term: u64, seconds: u64| {
            let lease = read(spec.clone());
            let stated = duration(&lease, &LeaseTiming::default()).as_secs();
            assert_eq!((holder(&lease), number(&lease), stated), (who, term, seconds), "{spec}");
            assert_eq!((lease.metadata.name.as_deref(), version(&lease)), (Some("l"), 7));
        };
        check(json!({"holderIdentity": "a", "leaseTransitions": 3, "leaseDurationSeconds": 20}), Some("a"), 3, 20);
        check(json!({"holderIdentity": ""}), None, 0, 15);
        check(json!({"holderIdentity": "a", "acquireTime": "9999-12-31T23:59:59.000000Z"}), Some("a"), 0, 15);
        check(json!({"holderIdentity": "a", "renewTime": "yesterday", "acquireTime": 5}), Some("a"), 0, 15);
        check(json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}), None, 0, 15);
        check(json!({"leaseDurationSeconds": -5, "leaseTransitions": null}), None, 0, 15);
        check(json!({"leaseDurationSeconds": i32::MAX, "leaseTransitions": i32::MAX}), None, LARGEST, 3600);
        check(json!({"leaseDurationSeconds": i64::MAX, "leaseTransitions": i64::MAX}), None, 0, 15);
        check(Value::Null, None, 0, 15);
    }

    #[test]
    fn what_is_not_changed_is_written_as_it_was_read() {
        let spec = json!({
            "holderIdentity": "a", "leaseDurationSeconds": 20, "leaseTransitions": 3, "acquireTime": "9999-12-31T23:59:59.000000Z",
            "renewTime": "2026-01-02T03:04:05.000006Z", "strategy": "Oldest", "preferredHolder": "b", "later": {"x": 1},
        });
        let written = serde_json::to_value(read(spec.clone())).expect("JSON");
        assert_eq!((&written["spec"], &written["kind"]), (&spec, &json!("Lease")));
        assert_eq!(written["apiVersion"], "coordination.k8s.io/v1");
        assert_eq!(written["metadata"], json!({"name": "l", "resourceVersion": "7"}));
        let time = LeaseTime::from(Timestamp::from_microsecond(1_767_323_045_000_006).expect("a time"));
        assert_eq!((&time.0, time.timestamp().is_some()), (&spec["renewTime"], true));
        assert_eq!(read(spec).spec.and_then(|spec| spec.acquire_time).and_then(|time| time.timestamp()), None);
    }

    #[test]
    fn numbers_grow_and_begin_anew_after_the_largest() {
        let check = |number: u64, led: Option<u64>, seconds: i64, expect: i32| {
            let wall = Timestamp::from_second(NEW_COUNT_SINCE + seconds).expect("a time");
            assert_eq!(next_number(number, led, wall), expect, "{number} {led:?} {seconds}");
        };
        check(0, None, 500, 1);
        check(7, Some(3), 500, 8);
        check(LARGEST - 1, None, 500, i32::MAX);
        check(LARGEST, None, 500, 500);
        check(LARGEST, Some(LARGEST), 500, 500);
        check(LARGEST, Some(500), 500, 501);
        check(LARGEST, Some(700), 500, 701);
        // A clock that shows nonsense.
        check(LARGEST, None, -500, 1);
        check(LARGEST, None, i64::from(i32::MAX) + 1, 1);
    }
}
