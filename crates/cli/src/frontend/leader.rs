//! `/leader`: who leads. In: what this server is, and the Leases in it. Out: JSON in the words of a Lease. The operators in this
//! process need no election; operators beside it hold Leases, and each Lease is told with its holder.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use konverge_core::Status;

use super::{About, api_client::Reader};

/// Kubelets renew Leases in this namespace to say that they are alive. Nobody is elected by them.
const HEARTBEATS: &str = "kube-node-lease";

/// Reads the Leases, and says who leads.
pub(super) async fn page(api: &Reader, about: &About) -> Result<Value, Status> {
    let leases = api.json("/apis/coordination.k8s.io/v1/leases").await?;
    Ok(describe(about, &leases, Timestamp::now()))
}

fn describe(about: &About, leases: &Value, now: Timestamp) -> Value {
    let leases = leases["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let elections: Vec<Value> = leases
        .iter()
        .filter(|lease| lease["metadata"]["namespace"] != HEARTBEATS)
        .map(|lease| election(lease, now))
        .collect();
    json!({
        "leader": true,
        "holderIdentity": format!("konverge-dev_{}", std::process::id()),
        "acquireTime": about.since.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "leaseTransitions": 0,
        "election": !elections.is_empty(),
        "message": "the operators in this process lead without an election, because nobody else has its data open; \
                    operators beside it are elected by the Leases in `elections`",
        "operators": about.operators,
        "elections": elections,
    })
}

/// One election. Whether somebody leads is told by this machine's clock, which is the one that holders on this machine use.
fn election(lease: &Value, now: Timestamp) -> Value {
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
    let renewed = spec["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let duration = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or_default());
    let is_held = holder.is_some() && renewed.is_some_and(|renewed| now.duration_since(renewed) <= duration);
    json!({
        "namespace": lease["metadata"]["namespace"],
        "name": lease["metadata"]["name"],
        "leader": is_held,
        "holderIdentity": holder,
        "acquireTime": spec["acquireTime"],
        "renewTime": spec["renewTime"],
        "leaseDurationSeconds": spec["leaseDurationSeconds"],
        "leaseTransitions": spec["leaseTransitions"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_until_its_time_is_over() {
        let lease = |holder: Value, renewed: &str| {
            json!({"metadata": {"namespace": "shop", "name": "web-lock"},
                   "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15, "leaseTransitions": 3}})
        };
        let now: Timestamp = "2026-01-02T03:04:15Z".parse().unwrap();
        for (given, expect) in [
            (lease(json!("web-0"), "2026-01-02T03:04:05.000000Z"), true),
            (lease(json!("web-0"), "2026-01-02T03:04:00.000000Z"), true),
            (lease(json!("web-0"), "2026-01-02T03:03:59.000000Z"), false),
            (lease(json!(""), "2026-01-02T03:04:14.000000Z"), false),
            (lease(Value::Null, "2026-01-02T03:04:14.000000Z"), false),
            (lease(json!("web-0"), "never"), false),
        ] {
            assert_eq!(election(&given, now)["leader"], expect, "{given}");
        }
        assert_eq!(election(&lease(json!("web-0"), "2026-01-02T03:04:05Z"), now)["leaseTransitions"], 3);
    }
}
