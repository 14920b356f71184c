//! Protection of storage that is in use. In: PersistentVolumeClaims and the pods that use them, PersistentVolumes and whether
//! they are bound. Out: a finalizer on each of them, which is removed once the object is being deleted and nobody uses it.

use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{Action, CacheOf, Result, Run, Trigger};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::json;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::meta::Meta;
use crate::persistent_volume_claims;
use crate::persistent_volumes;
use crate::pods::{self, Pods};

/// The name in kube-controller-manager.
pub(crate) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";
pub(crate) const VOLUMES: &str = "persistentvolume-protection-controller";

/// The finalizer of claims.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Starts the controller that protects claims from deletion while pods use them.
pub(crate) fn start_claims(manager: &Manager) -> Task {
    let ctx = manager.context(CLAIMS);
    let controller = ctx.controller(persistent_volume_claims::target());
    let pods = Pods::new(&ctx);
    persistent_volume_claims::index(pods.cache());
    controller.watch(pods::target(), Trigger::mapped("Pod", persistent_volume_claims::used_by));
    // A pod without a node does not count: the scheduler never places a pod whose claim is being deleted.
    let is_used = move |claim: &Protected, key: &ObjectKey| {
        let users = pods.decoded(&persistent_volume_claims::users(pods.cache(), key));
        claim.metadata.is_terminating() && users.iter().any(|pod| !pod.spec.node_name.is_empty())
    };
    let this = Protection {
        objects: CacheOf::new(controller.primary().clone()),
        api: persistent_volume_claims::api(),
        finalizer: CLAIM_FINALIZER,
        is_used: Box::new(is_used),
        ctx: ctx.clone(),
    };
    let this = Arc::new(this);
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

/// Starts the controller that protects volumes from deletion while they are bound.
pub(crate) fn start_volumes(manager: &Manager) -> Task {
    let ctx = manager.context(VOLUMES);
    let controller = ctx.controller(persistent_volumes::volume_target());
    let this = Protection {
        objects: CacheOf::new(controller.primary().clone()),
        api: persistent_volumes::volume_api(),
        finalizer: VOLUME_FINALIZER,
        is_used: Box::new(|volume: &Protected, _: &ObjectKey| volume.status.phase == "Bound"),
        ctx: ctx.clone(),
    };
    let this = Arc::new(this);
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

/// A claim or a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Protected {
    metadata: Meta,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// Whether an object is in use.
type IsUsed = Box<dyn Fn(&Protected, &ObjectKey) -> bool + Send + Sync>;

struct Protection {
    ctx: ControllerContext,
    objects: CacheOf<Protected>,
    api: ApiResource,
    finalizer: &'static str,
    is_used: IsUsed,
}

impl Protection {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(object) = self.objects.get(&run.key)? else { return Ok(Action::Wait) };
        let is_used = (self.is_used)(&object, &run.key);
        let Some(finalizers) = finalizers(&object.metadata, self.finalizer, is_used) else { return Ok(Action::Wait) };
        let patch = json!({"metadata": {"finalizers": finalizers}});
        self.ctx.merge_patch(&self.api, &object.metadata, "", patch).await?;
        Ok(Action::Wait)
    }
}

/// The finalizers that an object should have; `None` if it has them.
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
