//! The namespace controller: deletes the content of a namespace before the namespace. In: a namespace whose deletion has begun,
//! and its content. Out: deletions, pods first; conditions that say what remains; and, when nothing remains, its finalizer
//! removed.

mod conditions;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use konverge_core::{NAMESPACE_CONTENT_FINALIZER, ObjectKey};
use konverge_runtime::{Action, Cache, Object, Patch, Predicate, Result, Run, Target, Trigger};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::discovery::{Kind, Kinds};
use crate::meta::Meta;
use crate::pods;
use crate::requests::{self, DeleteOptions};

use conditions::Remaining;

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "namespace-controller";

/// The shortest and the longest delay before a namespace with remaining content is reconciled again.
const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(5);

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<core::Namespace>());
    // Pods take a while to stop; the namespace is reconciled when one is gone.
    let home = |pod: &Object| pod.namespace().map(|name| ObjectKey::new(None, name)).into_iter().collect();
    controller.watch(pods::target(), Trigger::mapped("Pod", home).when(Predicate::new(|_, _| false)));
    let this = Arc::new(Namespaces {
        namespaces: controller.primary().clone(),
        kinds: manager.kinds.clone(),
        api: ApiResource::erase::<core::Namespace>(&()),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Namespaces {
    ctx: ControllerContext,
    namespaces: Cache,
    kinds: Kinds,
    api: ApiResource,
}

/// A list, of which only the metadata is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    items: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    metadata: Meta,
}

impl Namespaces {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(namespace) = self.namespaces.get(&run.key).filter(|namespace| namespace.is_terminating()) else {
            return Ok(Action::Wait);
        };
        let namespace = namespace.value();
        if !has_content(&namespace) {
            return Ok(Action::Wait);
        }
        let name = run.key.name();
        let (remaining, failure) = match self.kinds.get(&self.ctx.caches).await {
            Ok(kinds) => {
                let kinds: Vec<&Kind> = kinds.iter().filter(|kind| kind.namespaced).collect();
                (self.empty(name, &kinds).await, None)
            }
            Err(error) => (Remaining::default(), Some(error)),
        };
        let now = self.ctx.now();
        if failure.is_none() && remaining.is_empty() {
            return self.finish(namespace).await;
        }
        let status =
            conditions::status(&namespace["status"], &remaining, failure.as_ref(), since(&namespace, now), now);
        if let Some(status) = status {
            let uid = json!({"op": "test", "path": "/metadata/uid", "value": namespace["metadata"]["uid"]});
            let ops = json!([uid, {"op": "add", "path": "/status", "value": status}]);
            self.ctx.patch(&self.api, &run.key, "status", Patch::Json(ops)).await?;
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(Action::requeue(pause(since(&namespace, now)))),
        }
    }

    /// Deletes what is there: pods first, because they may need the rest to end well.
    async fn empty(&self, namespace: &str, kinds: &[&Kind]) -> Remaining {
        let is_pods = |kind: &&&Kind| kind.api.group.is_empty() && kind.api.kind == "Pod";
        let mut remaining = Remaining::default();
        if let Some(pods) = kinds.iter().find(is_pods) {
            remaining.add(&pods.api, self.empty_of(namespace, pods).await);
        }
        if !remaining.is_empty() {
            return remaining;
        }
        let others = kinds.iter().filter(|kind| !is_pods(kind));
        let deletes = others.map(|kind| async move { (&kind.api, self.empty_of(namespace, kind).await) });
        for (api, found) in self.ctx.in_parallel(deletes).await {
            remaining.add(api, found);
        }
        remaining
    }

    /// Deletes the objects of a kind. Answers with the finalizers of those that are remaining.
    async fn empty_of(&self, namespace: &str, kind: &Kind) -> Result<Vec<Vec<String>>> {
        let there = self.list(namespace, kind).await?;
        if there.items.iter().any(|item| !item.metadata.is_terminating()) {
            self.delete_all(namespace, kind, &there).await?;
        } else if there.items.is_empty() {
            return Ok(Vec::new());
        }
        let remaining = self.list(namespace, kind).await?;
        Ok(remaining.items.into_iter().map(|item| item.metadata.finalizers).collect())
    }

    async fn delete_all(&self, namespace: &str, kind: &Kind, there: &List) -> Result<()> {
        if kind.in_bulk {
            let path = requests::path(&kind.api, Some(namespace), "");
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
            return match requests::send(&self.ctx.client, Method::DELETE, &path, Some(&options)).await {
                Err(error) if !is_absent(&error) => Err(error.into()),
                Ok(_) | Err(_) => Ok(()),
            };
        }
        let deletes = there.items.iter().map(|item| async move {
            let options =
                DeleteOptions { uid: &item.metadata.uid, propagation: Some("Background"), ..DeleteOptions::default() };
            self.ctx.delete(&kind.api, &ObjectKey::new(Some(namespace), &item.metadata.name), &options).await
        });
        for deleted in self.ctx.in_parallel(deletes).await {
            deleted?;
        }
        Ok(())
    }

    async fn list(&self, namespace: &str, kind: &Kind) -> Result<List> {
        let path = requests::path(&kind.api, Some(namespace), "");
        match requests::metadata(&self.ctx.client, &path).await {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            // The kind is gone, or does not let itself be listed: there is nothing to delete.
            Err(error) if is_absent(&error) => Ok(List::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing is remaining: the namespace may go.
    async fn finish(&self, mut namespace: Value) -> Result<Action> {
        if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != NAMESPACE_CONTENT_FINALIZER);
        }
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/finalize", requests::path(&self.api, None, name));
        match requests::send(&self.ctx.client, Method::PUT, &path, Some(&namespace)).await {
            Ok(_) => Ok(Action::Wait),
            Err(error) if is_absent(&error) => Ok(Action::Wait),
            Err(error) => Err(error.into()),
        }
    }
}

fn has_content(namespace: &Value) -> bool {
    let finalizers = namespace["spec"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == NAMESPACE_CONTENT_FINALIZER))
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 405))
}

/// How long a namespace has been going.
fn since(namespace: &Value, now: Timestamp) -> SignedDuration {
    let began = namespace["metadata"]["deletionTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    began.map_or(SignedDuration::ZERO, |began| now.duration_since(began))
}

/// The longer it takes, the longer until the next look.
fn pause(since: SignedDuration) -> Duration {
    Duration::try_from(since / 4).unwrap_or_default().clamp(SOON, LATE)
}
