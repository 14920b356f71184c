//! Claims and volumes that are in use stay until they are not. In: PersistentVolumeClaims and the pods that use them,
//! PersistentVolumes and whether they are bound. Out: a finalizer, put there while they live and taken away when nobody
//! needs them any more.

use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{Action, CacheOf, Result, Run, Trigger};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::json;

use crate::claims;
use crate::desk::Desk;
use crate::meta::Meta;
use crate::plane::{Plane, Task};
use crate::pods::{self, Pods};
use crate::volumes;

/// As kube-controller-manager calls them.
pub(crate) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";
pub(crate) const VOLUMES: &str = "persistentvolume-protection-controller";

/// What keeps a claim.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// What keeps a volume.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Starts the controller that keeps claims for the pods that use them.
pub(crate) fn start_claims(plane: &Plane) -> Task {
    let desk = plane.desk(CLAIMS);
    let controller = desk.controller(claims::target());
    let pods = Pods::new(&desk);
    claims::index(pods.cache());
    controller.watch(pods::target(), Trigger::mapped("Pod", claims::used_by));
    // A pod without a node never gets one with a claim that goes.
    let is_used = move |claim: &Guarded, key: &ObjectKey| {
        let users = pods.decoded(&claims::users(pods.cache(), key));
        claim.metadata.is_terminating() && users.iter().any(|pod| !pod.spec.node_name.is_empty())
    };
    let guard = Guard {
        objects: CacheOf::new(controller.primary().clone()),
        api: claims::api(),
        finalizer: CLAIM_FINALIZER,
        is_used: Box::new(is_used),
        desk: desk.clone(),
    };
    let guard = Arc::new(guard);
    desk.work(controller, move |run| guard.clone().reconcile(run))
}

/// Starts the controller that keeps volumes for their claims.
pub(crate) fn start_volumes(plane: &Plane) -> Task {
    let desk = plane.desk(VOLUMES);
    let controller = desk.controller(volumes::volume_target());
    let guard = Guard {
        objects: CacheOf::new(controller.primary().clone()),
        api: volumes::volume_api(),
        finalizer: VOLUME_FINALIZER,
        is_used: Box::new(|volume: &Guarded, _: &ObjectKey| volume.status.phase == "Bound"),
        desk: desk.clone(),
    };
    let guard = Arc::new(guard);
    desk.work(controller, move |run| guard.clone().reconcile(run))
}

/// A claim or a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Guarded {
    metadata: Meta,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// Whether somebody needs an object.
type IsUsed = Box<dyn Fn(&Guarded, &ObjectKey) -> bool + Send + Sync>;

struct Guard {
    desk: Desk,
    objects: CacheOf<Guarded>,
    api: ApiResource,
    finalizer: &'static str,
    is_used: IsUsed,
}

impl Guard {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(object) = self.objects.get(&run.key)? else { return Ok(Action::Wait) };
        let is_used = (self.is_used)(&object, &run.key);
        let Some(finalizers) = finalizers(&object.metadata, self.finalizer, is_used) else { return Ok(Action::Wait) };
        let patch = json!({"metadata": {"finalizers": finalizers}});
        self.desk.merge(&self.api, &object.metadata, "", patch).await?;
        Ok(Action::Wait)
    }
}

/// The finalizers that an object should have, if they are others than it has.
fn finalizers(object: &Meta, finalizer: &str, is_used: bool) -> Option<Vec<String>> {
    let has = object.finalizers.iter().any(|other| other == finalizer);
    let others = object.finalizers.iter().filter(|other| *other != finalizer).cloned();
    match (object.is_terminating(), has) {
        (false, false) => Some(others.chain([finalizer.to_owned()]).collect()),
        (true, true) if !is_used => Some(others.collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_used_stays() {
        let check = |going: bool, finalizers: &[&str], is_used: bool, expect: Option<&[&str]>| {
            let when = if going { json!("2026-01-01T00:00:00Z") } else { Value::Null };
            let object: Meta =
                serde_json::from_value(json!({"deletionTimestamp": when, "finalizers": finalizers})).unwrap();
            let got = super::finalizers(&object, "ours", is_used);
            let expect = expect.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(got, expect, "{going} {finalizers:?} {is_used}");
        };
        check(false, &[], false, Some(&["ours"]));
        check(false, &["other"], false, Some(&["other", "ours"]));
        check(false, &["ours"], true, None);
        check(true, &["ours"], true, None);
        check(true, &["ours", "other"], false, Some(&["other"]));
        check(true, &["other"], false, None);
    }
}
