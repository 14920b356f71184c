//! ResourceQuotas: what is used of them. In: quotas, and the objects that they limit. Out: a status with the limits in force
//! and what is used. The API server adds what new objects use when it creates them; this controller measures a new quota, and
//! again when objects are deleted or end. `plan` decides; this file reads and writes.
//!
//! The usage is exact although objects are created meanwhile: the quota is read first, then the objects, and the status is
//! written only if the quota is as it was. A server that charged a new object meanwhile has changed the quota.

mod plan;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1 as core;
use konverge_core::{LabelSelector, ObjectKey, QuotaKind, ResourceQuota};
use konverge_runtime::{
    Action, Cache, Cause, Change, Controller, ControllerOptions, Mode, Patch, Predicate, Result, Run, Subscription,
    Target, What,
};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::discovery::Kinds;
use crate::requests;

use plan::Usage;

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "resourcequota-controller";

/// How often all quotas are measured again, as in kube-controller-manager: objects may have been written past the server.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// How long a quota waits for the watches of the kinds that it limits. A deletion before a watch has begun is heard by nobody, so
/// a usage that was measured earlier may stay too high.
const WATCHES_BEGIN: Duration = Duration::from_secs(10);

/// When a quota is measured again that did not wait for all of its watches.
const WITHOUT_WATCHES: Duration = Duration::from_secs(30);

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    // The status changes whenever the server charges an object, which needs no measuring.
    let options =
        ControllerOptions { predicate: Predicate::spec_changed(), resync: Some(RESYNC), ..Default::default() };
    let controller = ctx.controller_with(Target::of::<core::ResourceQuota>(), options);
    let this = Arc::new(Quotas {
        quotas: controller.primary().clone(),
        kinds: manager.kinds.clone(),
        api: ApiResource::erase::<core::ResourceQuota>(&()),
        watched: Mutex::default(),
        controller: Arc::downgrade(&controller),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Quotas {
    ctx: ControllerContext,
    quotas: Cache,
    kinds: Kinds,
    api: ApiResource,
    /// The kinds that quotas limit, by group and plural name. Kinds that no quota limits are not watched.
    watched: Mutex<HashMap<(String, String), (Cache, Subscription)>>,
    controller: Weak<Controller>,
}

/// A list, of which only the length counts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CountedList {
    metadata: ListMetadata,
    items: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    remaining_item_count: i64,
}

#[derive(Deserialize)]
struct ObjectList {
    #[serde(default)]
    items: Vec<Value>,
}

impl Quotas {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        // A key without a name stands for all quotas of a namespace.
        if run.key.name().is_empty() {
            self.wake_all(&run.key);
            return Ok(Action::Wait);
        }
        self.watch_limited().await?;
        let cached = self.quotas.get(&run.key).filter(|quota| !quota.is_terminating());
        let Some(cached) = cached else { return Ok(Action::Wait) };
        let limited = self.limited(&ResourceQuota::read(&cached.value())).await?;
        let is_watched = tokio::time::timeout(WATCHES_BEGIN, self.watches_begun(&limited)).await.is_ok();
        // Read from the server: the cache may not have seen the newest charge.
        let Some(object) = self.ctx.writer.get(&self.api, &run.key).await? else { return Ok(Action::Wait) };
        let quota = ResourceQuota::read(&object);
        let mut usage = Usage::default();
        for (api, kind) in self.limited(&quota).await? {
            self.measure(&quota, run.key.namespace(), &api, &kind, &mut usage).await?;
        }
        if let Some(status) = usage.status(&quota, &object) {
            let metadata = &object["metadata"];
            let patch = json!([
                {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
                {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
                {"op": "add", "path": "/status", "value": status},
            ]);
            self.ctx.patch_if_exists(&self.api, &run.key, "status", Patch::Json(patch)).await?;
        }
        Ok(if is_watched { Action::Wait } else { Action::Requeue(WITHOUT_WATCHES) })
    }

    /// Wakes the quotas of a namespace.
    fn wake_all(&self, because: &ObjectKey) {
        let Some(controller) = self.controller.upgrade() else { return };
        for quota in self.quotas.list(because.namespace(), &LabelSelector::default()) {
            controller.wake(&quota.key(), cause(&self.api.kind, because.clone()));
        }
    }

    /// The kinds that a quota limits.
    async fn limited(&self, quota: &ResourceQuota) -> Result<Vec<(ApiResource, QuotaKind)>> {
        let kinds = self.kinds.get(&self.ctx.caches).await?;
        let namespaced = kinds.iter().filter(|kind| kind.namespaced);
        let known = namespaced.filter_map(|kind| Some((&kind.api, QuotaKind::of(&kind.api.group, &kind.api.plural)?)));
        let limited = known.filter(|(_, kind)| quota.wanted.keys().any(|name| kind.tracks(name)));
        Ok(limited.map(|(api, kind)| (api.clone(), kind)).collect())
    }

    /// Adds what the objects of a kind use.
    async fn measure(
        &self,
        quota: &ResourceQuota,
        namespace: Option<&str>,
        api: &ApiResource,
        kind: &QuotaKind,
        usage: &mut Usage,
    ) -> Result<()> {
        usage.track(quota, kind);
        if quota.excludes(kind) {
            return Ok(());
        }
        let path = requests::path(api, namespace, "");
        if kind.is_only_counted() {
            let answer = requests::metadata(&self.ctx.client, &format!("{path}?limit=1")).await?;
            let list: CountedList = serde_json::from_str(&answer)?;
            usage.count(quota, kind, list.items.len() as i64 + list.metadata.remaining_item_count);
            return Ok(());
        }
        let answer = requests::send(&self.ctx.client, Method::GET, &path, None).await?;
        let list: ObjectList = serde_json::from_str(&answer)?;
        let now = self.ctx.now();
        list.items.iter().for_each(|object| usage.add(quota, kind, object, now));
        Ok(())
    }

    /// Watches the kinds that any quota limits, and no others.
    async fn watch_limited(&self) -> Result<()> {
        let mut wanted = HashMap::new();
        for quota in self.quotas.list(None, &LabelSelector::default()) {
            for (api, kind) in self.limited(&ResourceQuota::read(&quota.value())).await? {
                wanted.insert((api.group.clone(), api.plural.clone()), (api, kind));
            }
        }
        let mut watched = self.watched.lock();
        watched.retain(|id, _| wanted.contains_key(id));
        for (id, (api, kind)) in wanted {
            watched.entry(id).or_insert_with(|| self.watch(api, kind));
        }
        Ok(())
    }

    /// Waits until deletions of these kinds are heard of. For ever, if a kind cannot be watched.
    async fn watches_begun(&self, limited: &[(ApiResource, QuotaKind)]) {
        for (api, _) in limited {
            let id = (api.group.clone(), api.plural.clone());
            let cache = self.watched.lock().get(&id).map(|(cache, _)| cache.clone());
            if let Some(cache) = cache {
                cache.synced().await;
            }
        }
    }

    /// Measures the quotas of a namespace again when an object in it gives something back.
    fn watch(&self, api: ApiResource, kind: QuotaKind) -> (Cache, Subscription) {
        let whole = Target::all(api.clone());
        let target = if kind.is_only_counted() { whole.mode(Mode::Metadata) } else { whole };
        let cache = self.ctx.cache(target);
        let controller = self.controller.clone();
        let subscription = cache.subscribe(move |change: Change| {
            let gives_back = match (change.before(), change.after()) {
                (Some(_), None) => true,
                (Some(before), Some(after)) if !kind.is_only_counted() => {
                    plan::gives_back(&kind, &before.value(), &after.value())
                }
                _ => false,
            };
            if let (true, Some(controller), Some(namespace)) =
                (gives_back, controller.upgrade(), change.object().namespace())
            {
                controller.wake(&ObjectKey::new(Some(namespace), ""), cause(&api.kind, change.key()));
            }
        });
        (cache, subscription)
    }
}

fn cause(kind: &str, key: ObjectKey) -> Cause {
    Cause { kind: kind.into(), key, what: What::Resync, resource_version: String::new() }
}
