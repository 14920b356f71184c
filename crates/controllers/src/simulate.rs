//! A simulator in place of kubelet and scheduler: pods get a node, start, become ready, end and go, and nothing runs. In:
//! pods and nodes. Out: where a pod is, its status, its end, and events. `schedule` and `life` decide; here is only who
//! asks and who acts. What it does it marks: the nodes carry the label `konverge.dev/simulated`, the events its name.
//!
//! ```text
//! settings   how pods behave: settings, rules, annotations
//! schedule   where a pod goes
//! life       how its containers live
//! render     a life as a status
//! node       nodes that run nothing
//! ```

mod addresses;
mod kind;
mod life;
mod node;
mod nodes;
mod render;
mod schedule;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Action, CacheOf, Cause, Controller, ControllerOptions, Patch, Predicate, Result, Run, Subject, Target, Trigger,
    What,
};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::desk::Desk;
use crate::plane::{Plane, Task};
use crate::pods;
use crate::requests::{self, DeleteOptions};

use addresses::Addresses;
use kind::Pod;
use life::{Life, Part, Script, Told};
use render::Place;
use settings::Role;

pub(crate) use kind::{Affinity, Node, PodSpec, SIMULATED, Taint, Toleration};
pub(crate) use schedule::{is_selected, tolerated};
pub use settings::{Rule, SimulationSettings};

/// What its events are reported by.
pub(crate) const NAME: &str = "konverge-simulator";

/// How many pods are worked on at once: each waits for its own requests most of the time.
const CONCURRENCY: usize = 64;

/// How many pods are kept decoded.
const KEPT: usize = 8192;

/// The index of pods by the node they are on; those on none are under the empty name.
const BY_NODE: &str = "node";

/// When a pod that fits nowhere is looked at again although no node changed: room comes from other pods, too.
const FITS_NOWHERE: Duration = Duration::from_secs(15);

/// Starts the simulator: its nodes, and its pods.
pub(crate) fn start(plane: &Plane) -> Task {
    let desk = plane.desk(NAME);
    let nodes = nodes::start(&desk, &plane.options.simulation);
    let options = ControllerOptions { concurrency: CONCURRENCY, ..ControllerOptions::default() };
    let controller = desk.controller_with(pods::target(), options);
    let pods = controller.primary().clone();
    pods.add_index(BY_NODE, |pod| {
        let node = pod.pointer("/spec/nodeName").and_then(|node| serde_json::from_str(node).ok());
        vec![node.unwrap_or_default()]
    });
    // What is not in a namespace is a node: it wakes the pods that it concerns.
    let changed = Predicate::spec_changed().or(Predicate::labels_changed()).or(Predicate::annotations_changed());
    let wakes = Trigger::mapped("Node", |node| vec![ObjectKey::new(None, node.name())]).when(changed);
    let seen_nodes = controller.watch(Target::of::<core::Node>(), wakes);
    let this = Arc::new(Simulator {
        settings: plane.options.simulation.clone(),
        pods: CacheOf::keeping(pods, KEPT),
        nodes: CacheOf::new(seen_nodes),
        api: pods::api(),
        lives: Mutex::default(),
        addresses: Mutex::default(),
        binds: OnceCell::new(),
        controller: controller.clone(),
        desk: desk.clone(),
    });
    let pods = desk.work(controller, move |run| this.clone().reconcile(run));
    Box::pin(async move {
        tokio::join!(nodes, pods);
    })
}

struct Simulator {
    desk: Desk,
    settings: SimulationSettings,
    pods: CacheOf<Pod>,
    nodes: CacheOf<Node>,
    api: ApiResource,
    /// Where pods are in their lives, more precisely than a status tells.
    lives: Mutex<HashMap<ObjectKey, (String, Life)>>,
    addresses: Mutex<Addresses>,
    /// Whether the server knows how to bind a pod.
    binds: OnceCell<bool>,
    controller: Arc<Controller>,
}

impl Simulator {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if run.key.namespace().is_none() {
            self.node_changed(&run.key);
            return Ok(Action::Wait);
        }
        let Some(pod) = self.pods.get(&run.key)? else {
            self.forget(&run.key);
            return Ok(Action::Wait);
        };
        if !pod.spec.node_name.is_empty() {
            return self.live(&pod).await;
        }
        if pod.metadata.is_terminating() {
            return self.end(&pod).await;
        }
        if !pod.wants_a_node() || pod.is_finished() {
            return Ok(Action::Wait);
        }
        match self.place(&pod).await? {
            Some(pod) => self.live(&pod).await,
            None => Ok(Action::requeue(FITS_NOWHERE)),
        }
    }

    /// Gives a pod a node. Answers with the pod as it is then; without one if none fits, or if the watch has to bring it.
    async fn place(&self, pod: &Pod) -> Result<Option<Arc<Pod>>> {
        let key = pod.metadata.key();
        let nodes = self.nodes.list(None, &LabelSelector::default()).into_iter().flatten();
        let nodes: Vec<Arc<Node>> = nodes.filter(|node| node.is_simulated()).collect();
        let used = |node: &str| self.pods.cache().by_index(BY_NODE, node).len();
        let subject = Arc::new(pod.metadata.subject(&self.api));
        let node = match schedule::schedule(pod, &nodes, used) {
            Ok(node) => node.metadata.name.clone(),
            Err(why) => {
                self.fits_nowhere(pod, &subject, &why).await?;
                return Ok(None);
            }
        };
        if self.bind(pod, &node).await? {
            let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
            self.desk.event(&subject, "Scheduled", format!("Successfully assigned {namespace}/{name} to {node}"));
        }
        Ok(self.pods.get(&key)?.filter(|pod| !pod.spec.node_name.is_empty()))
    }

    /// Binds a pod to a node: as a scheduler does if the server knows how, else by a patch. Says whether it was done.
    async fn bind(&self, pod: &Pod, node: &str) -> Result<bool> {
        let key = pod.metadata.key();
        if !*self.binds.get_or_try_init(|| self.server_binds()).await? {
            let ops = json!([pod.metadata.is_still_it(), {"op": "add", "path": "/spec/nodeName", "value": node}]);
            return self.desk.patch_if_there(&self.api, &key, "", Patch::Json(ops)).await;
        }
        let path = format!("{}/binding", requests::path(&self.api, key.namespace(), key.name()));
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match requests::send(&self.desk.client, Method::POST, &path, Some(&binding)).await {
            Ok(_) => Ok(true),
            // It is gone, or it has a node: the watch brings it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn server_binds(&self) -> Result<bool> {
        let list = requests::send(&self.desk.client, Method::GET, "/api/v1", None).await?;
        let list: Value = serde_json::from_str(&list)?;
        Ok(list["resources"].as_array().into_iter().flatten().any(|resource| resource["name"] == "pods/binding"))
    }

    /// Says that a pod fits nowhere, once for each reason.
    async fn fits_nowhere(&self, pod: &Pod, subject: &Arc<Subject>, why: &str) -> Result<()> {
        let mut status = pod.status.clone();
        if !status.is_object() {
            status = json!({"phase": "Pending"});
        }
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let now = self.desk.now();
        render::set_condition(&mut status["conditions"], render::SCHEDULED, "False", "Unschedulable", why, now);
        if status == pod.status {
            return Ok(());
        }
        self.desk.warning(subject, "FailedScheduling", why);
        self.write_status(pod, status).await
    }

    /// A pod on a node: what is due happens, and its status says so.
    async fn live(&self, pod: &Pod) -> Result<Action> {
        let Some(node) = self.nodes.get(&ObjectKey::new(None, &pod.spec.node_name))? else {
            return self.homeless(pod).await;
        };
        if !node.is_simulated() {
            return Ok(Action::Wait);
        }
        let reachable = !node.spec.taints.iter().any(|taint| taint.key == schedule::UNREACHABLE);
        let terminating = pod.metadata.is_terminating();
        if pod.is_finished() && (reachable || !terminating) {
            return if terminating { self.end(pod).await } else { Ok(Action::Wait) };
        }
        let now = self.desk.now();
        let script = self.script(pod);
        let (life, step) = self.step(pod, &script, reachable, now);
        let pod_ip = match pod.spec.host_network {
            true => node.address().to_owned(),
            false => self.addresses.lock().of(&pod.metadata.uid, self.pods.cache()),
        };
        let place = Place { host_ip: node.address(), pod_ip: &pod_ip, reachable };
        let status = render::status(pod, &life, &script, &place, now);
        let subject = Arc::new(pod.metadata.subject(&self.api));
        if status != pod.status {
            self.write_status(pod, status).await?;
        }
        // Only what was written has happened.
        self.lives.lock().insert(pod.metadata.key(), (pod.metadata.uid.clone(), life));
        step.told.iter().for_each(|told| self.tell(pod, &subject, told));
        if terminating {
            return if step.over && reachable { self.end(pod).await } else { Ok(at(step.due, now)) };
        }
        match schedule::may_stay(pod, &node, self.settings.eviction_delay, now) {
            Some(Duration::ZERO) => self.evict(pod, &subject).await,
            Some(left) => Ok(sooner(at(step.due, now), left)),
            None => Ok(at(step.due, now)),
        }
    }

    /// The next step of a pod's life. On a node that does not answer nothing happens.
    fn step(&self, pod: &Pod, script: &Script, reachable: bool, now: Timestamp) -> (Life, life::Step) {
        let known = self.lives.lock().get(&pod.metadata.key()).cloned();
        let known = known.filter(|(uid, _)| *uid == pod.metadata.uid).map(|(_, life)| life);
        let mut life = known
            .or_else(|| render::restored(pod, script))
            .filter(|life| life.containers.len() == script.containers.len())
            .unwrap_or_else(|| Life::begin(script.containers.len(), now));
        if !reachable {
            return (life, life::Step::default());
        }
        let grace = pod.metadata.is_terminating().then(|| {
            let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        });
        let step = life.step(script, grace, now);
        (life, step)
    }

    /// What the containers of a pod are to do.
    fn script(&self, pod: &Pod) -> Script {
        let inits = pod.spec.init_containers.iter();
        let inits = inits.map(|container| (container, if container.is_sidecar() { Role::Sidecar } else { Role::Init }));
        let mains = pod.spec.containers.iter().map(|container| (container, Role::Main));
        let part = |(container, role): (&kind::Container, Role)| Part {
            name: container.name.clone(),
            image: container.image.clone(),
            role,
            behaviour: self.settings.behaviour(pod, container, role),
        };
        let containers = inits.chain(mains).map(part).collect();
        Script { containers, restart: pod.spec.restart_policy, backoff: self.settings.restart_backoff }
    }

    fn tell(&self, pod: &Pod, subject: &Arc<Subject>, told: &Told) {
        let desk = &self.desk;
        match told {
            Told::Pulled { image } => {
                desk.event(subject, "Pulled", format!("Container image \"{image}\" already present on machine"));
            }
            Told::Created { name } => desk.event(subject, "Created", format!("Created container: {name}")),
            Told::Started { name } => desk.event(subject, "Started", format!("Started container {name}")),
            Told::Stopping { name } => desk.event(subject, "Killing", format!("Stopping container {name}")),
            Told::NoImage { image } => {
                desk.warning(subject, "Failed", format!("Failed to pull image \"{image}\": simulated failure"));
                desk.event(subject, "BackOff", format!("Back-off pulling image \"{image}\""));
            }
            Told::BackOff { name } => {
                let (pod, namespace, uid) = (&pod.metadata.name, &pod.metadata.namespace, &pod.metadata.uid);
                let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
                desk.warning(subject, "BackOff", message);
            }
        }
    }

    /// Writes a status, if the pod is as it was: what others wrote meanwhile is not lost.
    async fn write_status(&self, pod: &Pod, status: Value) -> Result<()> {
        let (key, resource_version) = (pod.metadata.key(), pod.metadata.resource_version.clone());
        let patch = Patch::Merge { patch: json!({"status": status}), resource_version };
        self.desk.patch_if_there(&self.api, &key, "status", patch).await.map(drop)
    }

    /// The end of a pod that has nothing running any more.
    async fn end(&self, pod: &Pod) -> Result<Action> {
        let options = DeleteOptions { uid: &pod.metadata.uid, grace: Some(0), ..DeleteOptions::default() };
        self.desk.delete(&self.api, &pod.metadata.key(), &options).await?;
        Ok(Action::Wait)
    }

    /// A pod whose node is gone goes, too.
    async fn homeless(&self, pod: &Pod) -> Result<Action> {
        // The node may be younger than the pod's binding, or not ours; somebody who knows it will say what becomes of it.
        let ours = self.lives.lock().contains_key(&pod.metadata.key());
        if ours || pod.metadata.is_terminating() { self.end(pod).await } else { Ok(Action::Wait) }
    }

    async fn evict(&self, pod: &Pod, subject: &Arc<Subject>) -> Result<Action> {
        let key = pod.metadata.key();
        self.desk.event(subject, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        let options = DeleteOptions { uid: &pod.metadata.uid, ..DeleteOptions::default() };
        self.desk.delete(&self.api, &key, &options).await?;
        Ok(Action::Wait)
    }

    /// Wakes the pods that a node concerns: those on it, and those that are on none.
    fn node_changed(&self, node: &ObjectKey) {
        let pods = self.pods.cache();
        for pod in pods.by_index(BY_NODE, node.name()).into_iter().chain(pods.by_index(BY_NODE, "")) {
            let resource_version = pod.resource_version().to_owned();
            let cause = Cause { kind: "Node".into(), key: node.clone(), what: What::Resync, resource_version };
            self.controller.wake(&pod.key(), cause);
        }
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some((uid, _)) = self.lives.lock().remove(key) {
            self.addresses.lock().release(&uid);
        }
    }
}

/// A look when something is due.
fn at(due: Option<Timestamp>, now: Timestamp) -> Action {
    due.map_or(Action::Wait, |due| Action::requeue(Duration::try_from(due.duration_since(now)).unwrap_or_default()))
}

/// The earlier of two looks.
fn sooner(action: Action, other: Duration) -> Action {
    match action {
        Action::Requeue(after) => Action::requeue(after.min(other)),
        Action::Wait => Action::requeue(other),
    }
}
