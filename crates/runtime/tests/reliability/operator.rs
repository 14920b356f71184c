//! A small operator: each ConfigMap wants a Secret with the same data, and one that is gone wants none. And the ways to
//! run any reconciler against a server with faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Applied, ApplyOptions, BoxFuture, Cache, Caches, Controller, ControllerOptions, Deleted, Error,
    FieldManager, Owner, Reconciler, Run, Target, Trigger, WatchSettings, Writer, WriterOptions,
};
use kube::api::{Api, ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::faults::Faults;

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("default"), name)
}

pub(crate) fn parents() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

pub(crate) fn children() -> ApiResource {
    ApiResource::erase::<Secret>(&())
}

/// Everything a reconcile works with. Clones are the same.
#[derive(Clone)]
pub(crate) struct Small {
    pub caches: Caches,
    pub writer: Writer,
    pub controller: Arc<Controller>,
    pub children: Cache,
}

impl Small {
    pub(crate) fn new(faults: &Faults, options: ControllerOptions) -> Self {
        let caches = faults.caches(WatchSettings::default());
        let writer = Writer::new(faults.faulty_client(), FieldManager::new("small"), WriterOptions::default());
        let controller = Controller::new("parents", Target::of::<ConfigMap>(), caches.clone(), options);
        let children = controller.watch(Target::of::<Secret>(), Trigger::owner("Secret", "", "ConfigMap", true));
        Self { caches, writer, controller, children }
    }

    /// Runs until the answer is told to stop.
    pub(crate) fn run(&self, reconciler: impl Reconciler) -> Running {
        Running::of(&self.controller, reconciler)
    }

    /// What an operator does for each parent.
    pub(crate) fn mirror(&self) -> impl Reconciler + use<> {
        let small = self.clone();
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let small = small.clone();
            Box::pin(async move { small.mirrored(&run.key).await })
        }
    }

    async fn mirrored(&self, key: &ObjectKey) -> Result<Action, Error> {
        let live = self.children.get(key);
        match self.controller.primary().get(key) {
            Some(parent) => {
                let parent = parent.value();
                let owner = Owner::of(&parents(), &parent)?;
                let config = json!({
                    "metadata": {"name": key.name(), "namespace": "default"},
                    "stringData": {"value": parent["data"]["value"]},
                });
                let options = ApplyOptions { owner: Some(&owner), ..ApplyOptions::default() };
                if let Applied::Created(object) | Applied::Updated(object) =
                    self.writer.apply(&children(), live.as_deref(), &config, options).await?
                {
                    self.wrote(&object.value())?;
                }
            }
            None => {
                if let Some(live) = live
                    && self.writer.delete(&children(), &live.value()).await? == Deleted::Gone
                {
                    self.caches.removed(&children(), key, live.uid());
                }
            }
        }
        Ok(Action::await_change())
    }

    pub(crate) fn wrote(&self, object: &Value) -> Result<(), Error> {
        Ok(self.caches.wrote(&children(), &object.to_string())?)
    }
}

/// A controller at work.
pub(crate) struct Running {
    stop: tokio::sync::oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn of(controller: &Arc<Controller>, reconciler: impl Reconciler) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let controller = controller.clone();
        let task = tokio::spawn(async move {
            controller.run(Arc::new(reconciler), async { drop(stopped.await) }).await;
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("a controller does not panic");
    }
}

/// Somebody who writes parents, past all faults.
pub(crate) struct Hand {
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
}

impl Hand {
    pub(crate) fn new(client: &Client) -> Self {
        Self { maps: Api::default_namespaced(client.clone()), secrets: Api::default_namespaced(client.clone()) }
    }

    /// Creates a parent or changes it.
    pub(crate) async fn set(&self, name: &str, value: &str) -> String {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value},
        });
        let params = PatchParams::apply("hand").force();
        let map = self.maps.patch(name, &params, &Patch::Apply(&map)).await.unwrap();
        map.resource_version().unwrap()
    }

    pub(crate) async fn create_child(&self, name: &str, owner: Option<&ConfigMap>) {
        let owner = owner.map(|owner| {
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
                "controller": true}])
        });
        let secret = json!({"metadata": {"name": name, "ownerReferences": owner}});
        self.secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Option<ConfigMap> {
        self.maps.get_opt(name).await.unwrap()
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.maps.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn delete_child(&self, name: &str) {
        self.secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The values of the parents by name.
    pub(crate) async fn wanted(&self) -> BTreeMap<String, String> {
        let maps = self.maps.list(&ListParams::default()).await.unwrap();
        maps.into_iter().map(|map| (map.name_any(), map.data.unwrap_or_default()["value"].clone())).collect()
    }

    /// The values of the children by name.
    pub(crate) async fn there(&self) -> BTreeMap<String, String> {
        let secrets = self.secrets.list(&ListParams::default()).await.unwrap();
        let value = |secret: &Secret| String::from_utf8(secret.data.as_ref().unwrap()["value"].0.clone()).unwrap();
        secrets.into_iter().map(|secret| (secret.name_any(), value(&secret))).collect()
    }

    pub(crate) async fn secrets(&self) -> Vec<Secret> {
        self.secrets.list(&ListParams::default()).await.unwrap().items
    }
}

/// Waits until it is so. Far longer than it takes: who waits in vain is told what for.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what} did not happen"));
}
