//! The simulator stands in for kubelet and scheduler: pods are scheduled, start, become ready, exit and are removed, but
//! nothing runs. In: pods and nodes. Out: bindings, statuses, deletions and events. `schedule` and `lifecycle` decide; this
//! file reads the caches and sends the writes. Everything simulated is marked: nodes carry the label
//! `konverge.dev/simulated`, and events name the simulator as their source.
//!
//! ```text
//! settings    how containers behave: settings, rules, annotations
//! schedule    on which node a pod runs, and when it is evicted; assumed: pods whose binding was not seen yet
//! resize      what its containers have, when that may change, and what has to wait
//! lifecycle   how containers start, become ready, exit and restart
//! render      the state of a pod as its status
//! node        how a simulated node looks; nodes: creates them and renews their Leases
//! ```

mod addresses;
mod assumed;
mod kind;
mod lifecycle;
mod node;
mod nodes;
mod render;
mod resize;
mod schedule;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use konverge_core::{LabelSelector, ObjectKey, ResourceList};
use konverge_runtime::{
    Action, CacheOf, Cause, Controller, ControllerOptions, Object, Patch, Predicate, Result, Run, Subject, Target,
    Trigger, What,
};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::meta::OwnerReference;
use crate::pods;
use crate::requests::{self, DeleteOptions};

use addresses::Addresses;
use assumed::AssumedPods;
use kind::Pod;
use lifecycle::{ContainerEvent, ContainerPlan, PodPlan, PodState};
use render::PodNetwork;
use resize::Allocation;
use settings::Role;

pub(crate) use kind::{Affinity, Node, PodSpec, SIMULATED, Taint, Toleration};
pub(crate) use schedule::{is_selected, tolerated};
pub use settings::{Rule, SimulationSettings};

/// The name of the controller, which is also the source of its events.
pub(crate) const NAME: &str = "konverge-simulator";

/// How many pods are reconciled at once: each waits for its own requests most of the time.
const CONCURRENCY: usize = 64;

/// How many decoded pods are cached.
const DECODED_PODS: usize = 8192;

/// The index of pods by node; pods without a node are under the empty name.
const BY_NODE: &str = "node";

/// The index of the pods that count for the scheduler, which have a node and are not finished: under the name of the node, and under
/// [`sibling_index`] of the node and the controller.
const COUNTED: &str = "counted";

/// How soon an unschedulable pod is tried again if no node changes: a node also gets free capacity when other pods leave it.
const UNSCHEDULABLE_RETRY: Duration = Duration::from_secs(15);

/// Starts the two controllers of the simulator: one for nodes, one for pods.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let nodes = nodes::start(&ctx, &manager.options.simulation);
    let options = ControllerOptions { concurrency: CONCURRENCY, ..ControllerOptions::default() };
    let controller = ctx.controller_with(pods::target(), options);
    let pods = controller.primary().clone();
    pods.add_index(BY_NODE, |pod| vec![node_of(pod).unwrap_or_default()]);
    pods.add_index(COUNTED, |pod| counted_under(pod).unwrap_or_default());
    // A key without a namespace is a node. The reconciler wakes the pods of that node.
    let changed = Predicate::spec_changed().or(Predicate::labels_changed()).or(Predicate::annotations_changed());
    let wakes = Trigger::mapped("Node", |node| vec![ObjectKey::new(None, node.name())]).when(changed);
    let seen_nodes = controller.watch(Target::of::<core::Node>(), wakes);
    let this = Arc::new(Simulator {
        settings: manager.options.simulation.clone(),
        pods: CacheOf::keeping(pods, DECODED_PODS),
        nodes: CacheOf::new(seen_nodes),
        api: pods::api(),
        pod_states: Mutex::default(),
        addresses: Mutex::default(),
        assumed: Mutex::default(),
        has_binding: OnceCell::new(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    let pods = ctx.run_controller(controller, move |run| this.clone().reconcile(run));
    Box::pin(async move {
        tokio::join!(nodes, pods);
    })
}

struct Simulator {
    ctx: ControllerContext,
    settings: SimulationSettings,
    pods: CacheOf<Pod>,
    nodes: CacheOf<Node>,
    api: ApiResource,
    /// The state of each pod by key, with its uid. It is more precise than the status, which has whole seconds.
    pod_states: Mutex<HashMap<ObjectKey, (String, PodState)>>,
    addresses: Mutex<Addresses>,
    assumed: Mutex<AssumedPods>,
    /// Whether the server serves `pods/binding`.
    has_binding: OnceCell<bool>,
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
            return self.run(&pod).await;
        }
        if pod.metadata.is_terminating() {
            return self.remove(&pod).await;
        }
        if !pod.needs_scheduling() || pod.is_finished() {
            return Ok(Action::Wait);
        }
        match self.schedule(&pod).await? {
            Some(pod) => self.run(&pod).await,
            None => Ok(Action::requeue(UNSCHEDULABLE_RETRY)),
        }
    }

    /// Binds a pod to a node. Returns the bound pod; `None` if no node fits, or if the cache does not have the binding yet.
    async fn schedule(&self, pod: &Pod) -> Result<Option<Arc<Pod>>> {
        let key = pod.metadata.key();
        let nodes = self.nodes.list(None, &LabelSelector::default()).into_iter().flatten();
        let nodes: Vec<Arc<Node>> = nodes.filter(|node| node.is_simulated()).collect();
        let subject = Arc::new(pod.metadata.subject(&self.api));
        let node = match self.choose_node(pod, &nodes) {
            Ok(node) => node,
            Err(why) => {
                self.report_unschedulable(pod, &subject, &why).await?;
                return Ok(None);
            }
        };
        let bound = self.bind(pod, &node).await;
        if !matches!(bound, Ok(true)) {
            self.assumed.lock().remove(&key);
        }
        if bound? {
            let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
            self.ctx.event(&subject, "Scheduled", format!("Successfully assigned {namespace}/{name} to {node}"));
        }
        Ok(self.pods.get(&key)?.filter(|pod| !pod.spec.node_name.is_empty()))
    }

    /// Chooses the node of a pod, and counts the pod there from now on. One pod after the other, so that each sees those before it.
    fn choose_node(&self, pod: &Pod, nodes: &[Arc<Node>]) -> Result<String, String> {
        let cache = self.pods.cache();
        let controller = pod.metadata.controller().map(|owner| owner.uid.as_str());
        let mut assumed = self.assumed.lock();
        assumed.retain_unseen(|key| cache.get(key).is_some_and(|pod| node_of(&pod).is_some()));
        let load = |node: &str| {
            let mut load = assumed.load(node, controller);
            load.pods += cache.by_index(COUNTED, node).len();
            if let Some(controller) = controller {
                load.siblings += cache.by_index(COUNTED, &sibling_index(node, controller)).len();
            }
            load
        };
        let node = schedule::schedule(pod, nodes, load)?.metadata.name.clone();
        assumed.insert(pod, &node);
        Ok(node)
    }

    /// Binds a pod to a node: with a Binding if the server serves it, else with a patch. Returns whether the pod was bound.
    async fn bind(&self, pod: &Pod, node: &str) -> Result<bool> {
        let key = pod.metadata.key();
        if !*self.has_binding.get_or_try_init(|| self.discover_binding()).await? {
            let ops = json!([pod.metadata.uid_test(), {"op": "add", "path": "/spec/nodeName", "value": node}]);
            return self.ctx.patch_if_exists(&self.api, &key, "", Patch::Json(ops)).await;
        }
        let path = format!("{}/binding", requests::path(&self.api, key.namespace(), key.name()));
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match requests::send(&self.ctx.client, Method::POST, &path, Some(&binding)).await {
            Ok(_) => Ok(true),
            // The pod is gone or has a node already. The watch will tell.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn discover_binding(&self) -> Result<bool> {
        let list = requests::send(&self.ctx.client, Method::GET, "/api/v1", None).await?;
        let list: Value = serde_json::from_str(&list)?;
        Ok(list["resources"].as_array().into_iter().flatten().any(|resource| resource["name"] == "pods/binding"))
    }

    /// Sets the condition `PodScheduled` to false and records an event, unless the condition has this reason already.
    async fn report_unschedulable(&self, pod: &Pod, subject: &Arc<Subject>, why: &str) -> Result<()> {
        let mut status = pod.status.clone();
        if !status.is_object() {
            status = json!({"phase": "Pending"});
        }
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let now = self.ctx.now();
        render::set_condition(&mut status["conditions"], render::SCHEDULED, "False", "Unschedulable", why, now);
        if status == pod.status {
            return Ok(());
        }
        self.ctx.warning(subject, "FailedScheduling", why);
        self.write_status(pod, status).await
    }

    /// Advances a pod that has a node: does what is due, and writes the new status.
    async fn run(&self, pod: &Pod) -> Result<Action> {
        let Some(node) = self.nodes.get(&ObjectKey::new(None, &pod.spec.node_name))? else {
            return self.node_gone(pod).await;
        };
        if !node.is_simulated() {
            return Ok(Action::Wait);
        }
        let reachable = !node.spec.taints.iter().any(|taint| taint.key == schedule::UNREACHABLE);
        let terminating = pod.metadata.is_terminating();
        if pod.is_finished() && (reachable || !terminating) {
            return if terminating { self.remove(pod).await } else { Ok(Action::Wait) };
        }
        let now = self.ctx.now();
        let allocation = resize::allocate(pod, &node, || self.used_by_others(pod));
        let plan = self.plan(pod, &allocation);
        let restarts = if reachable { &allocation.restarts[..] } else { &[] };
        let (state, step) = self.step(pod, &plan, restarts, reachable, now);
        let pod_ip = match pod.spec.host_network {
            true => node.address().to_owned(),
            false => self.addresses.lock().of(&pod.metadata.uid, self.pods.cache()),
        };
        let network = PodNetwork { host_ip: node.address(), pod_ip: &pod_ip, reachable };
        let mut status = render::status(pod, &state, &plan, &network, now);
        let deferred = allocation.deferred.as_deref();
        let is_news = resize::set_pending(&mut status, deferred, pod.metadata.generation, now);
        let subject = Arc::new(pod.metadata.subject(&self.api));
        if status != pod.status {
            self.write_status(pod, status).await?;
        }
        // The new state is kept only after its status was written, so that a failed write is tried again from the old state.
        self.pod_states.lock().insert(pod.metadata.key(), (pod.metadata.uid.clone(), state));
        step.events.iter().for_each(|event| self.record_event(pod, &subject, event));
        match deferred {
            Some(why) if is_news => {
                self.ctx.warning(&subject, "ResizeDeferred", resize::message(pod, "Deferred", Some(why)));
            }
            None if allocation.resized => {
                self.ctx.event(&subject, "ResizeCompleted", resize::message(pod, "completed", None));
            }
            _ => {}
        }
        // Other pods may leave the node.
        let due = requeue_at(step.due, now);
        let due = if deferred.is_some() { earlier(due, UNSCHEDULABLE_RETRY) } else { due };
        if terminating {
            return if step.finished && reachable { self.remove(pod).await } else { Ok(due) };
        }
        match schedule::time_until_eviction(pod, &node, self.settings.eviction_delay, now) {
            Some(Duration::ZERO) => self.evict(pod, &subject).await,
            Some(left) => Ok(earlier(due, left)),
            None => Ok(due),
        }
    }

    /// What the other pods on a pod's node have.
    fn used_by_others(&self, pod: &Pod) -> ResourceList {
        let mut used = ResourceList::new();
        for other in self.pods.cache().by_index(BY_NODE, &pod.spec.node_name) {
            let other = self.pods.get(&other.key()).ok().flatten();
            let Some(other) = other.filter(|other| other.metadata.uid != pod.metadata.uid && !other.is_finished())
            else {
                continue;
            };
            for (name, amount) in resize::allocated(&other) {
                used.entry(name).or_default().add(&amount);
            }
        }
        used
    }

    /// The next step of a pod, some of whose containers restart first. On an unreachable node nothing happens.
    fn step(
        &self,
        pod: &Pod,
        plan: &PodPlan,
        restarts: &[String],
        reachable: bool,
        now: Timestamp,
    ) -> (PodState, lifecycle::Step) {
        let known = self.pod_states.lock().get(&pod.metadata.key()).cloned();
        let known = known.filter(|(uid, _)| *uid == pod.metadata.uid).map(|(_, state)| state);
        let known = known.map(|mut state| {
            state.add_containers(plan);
            state
        });
        let mut state = known
            .or_else(|| render::restore(pod, plan))
            .filter(|state| state.containers.len() == plan.containers.len())
            .unwrap_or_else(|| PodState::new(plan.containers.len(), now));
        if !reachable {
            return (state, lifecycle::Step::default());
        }
        let grace = pod.metadata.is_terminating().then(|| {
            let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        });
        let mut resized = state.restart(plan, restarts, now);
        let mut step = state.step(plan, grace, now);
        resized.append(&mut step.events);
        step.events = resized;
        (state, step)
    }

    /// What the containers of a pod do.
    fn plan(&self, pod: &Pod, allocation: &Allocation) -> PodPlan {
        let inits = pod.spec.init_containers.iter();
        let inits = inits.map(|container| (container, if container.is_sidecar() { Role::Sidecar } else { Role::Init }));
        let mains = pod.spec.containers.iter().map(|container| (container, Role::Main));
        // Last, because they are added to pods that run.
        let ephemeral = pod.spec.ephemeral_containers.iter().map(|container| (container, Role::Ephemeral));
        let container_plan = |(container, role): (&kind::Container, Role)| ContainerPlan {
            name: container.name.clone(),
            image: container.image.clone(),
            role,
            behaviour: self.settings.behaviour(pod, container, role),
            resources: allocation.of(&container.name),
        };
        let containers = inits.chain(mains).chain(ephemeral).map(container_plan).collect();
        PodPlan { containers, restart: pod.spec.restart_policy, backoff: self.settings.restart_backoff }
    }

    fn record_event(&self, pod: &Pod, subject: &Arc<Subject>, event: &ContainerEvent) {
        let ctx = &self.ctx;
        match event {
            ContainerEvent::Pulled { image } => {
                ctx.event(subject, "Pulled", format!("Container image \"{image}\" already present on machine"));
            }
            ContainerEvent::Created { name } => ctx.event(subject, "Created", format!("Created container: {name}")),
            ContainerEvent::Started { name } => ctx.event(subject, "Started", format!("Started container {name}")),
            ContainerEvent::Resizing { name } => {
                ctx.event(subject, "Killing", format!("Container {name} resize requires restart"));
            }
            ContainerEvent::Stopping { name } => ctx.event(subject, "Killing", format!("Stopping container {name}")),
            ContainerEvent::ImageMissing { image } => {
                ctx.warning(subject, "Failed", format!("Failed to pull image \"{image}\": simulated failure"));
                ctx.event(subject, "BackOff", format!("Back-off pulling image \"{image}\""));
            }
            ContainerEvent::BackOff { name } => {
                let (pod, namespace, uid) = (&pod.metadata.name, &pod.metadata.namespace, &pod.metadata.uid);
                let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
                ctx.warning(subject, "BackOff", message);
            }
        }
    }

    /// Writes a status. The patch names the resource version, so that it never overwrites what others wrote meanwhile.
    async fn write_status(&self, pod: &Pod, status: Value) -> Result<()> {
        let (key, resource_version) = (pod.metadata.key(), pod.metadata.resource_version.clone());
        let patch = Patch::Merge { patch: json!({"status": status}), resource_version };
        self.ctx.patch_if_exists(&self.api, &key, "status", patch).await.map(drop)
    }

    /// Deletes a pod without a grace period: none of its containers runs.
    async fn remove(&self, pod: &Pod) -> Result<Action> {
        let options = DeleteOptions { uid: &pod.metadata.uid, grace: Some(0), ..DeleteOptions::default() };
        self.ctx.delete(&self.api, &pod.metadata.key(), &options).await?;
        Ok(Action::Wait)
    }

    /// Removes a pod whose node does not exist any more.
    async fn node_gone(&self, pod: &Pod) -> Result<Action> {
        // The node may be missing because its watch lags behind, or because it is not simulated. So only pods that ran here
        // are removed.
        let ours = self.pod_states.lock().contains_key(&pod.metadata.key());
        if ours || pod.metadata.is_terminating() { self.remove(pod).await } else { Ok(Action::Wait) }
    }

    async fn evict(&self, pod: &Pod, subject: &Arc<Subject>) -> Result<Action> {
        let key = pod.metadata.key();
        self.ctx.event(subject, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        let options = DeleteOptions { uid: &pod.metadata.uid, ..DeleteOptions::default() };
        self.ctx.delete(&self.api, &key, &options).await?;
        Ok(Action::Wait)
    }

    /// Wakes the pods on a node, and the pods that have no node yet.
    fn node_changed(&self, node: &ObjectKey) {
        let pods = self.pods.cache();
        for pod in pods.by_index(BY_NODE, node.name()).into_iter().chain(pods.by_index(BY_NODE, "")) {
            let resource_version = pod.resource_version().to_owned();
            let cause = Cause { kind: "Node".into(), key: node.clone(), what: What::Resync, resource_version };
            self.controller.wake(&pod.key(), cause);
        }
    }

    fn forget(&self, key: &ObjectKey) {
        self.assumed.lock().remove(key);
        if let Some((uid, _)) = self.pod_states.lock().remove(key) {
            self.addresses.lock().release(&uid);
        }
    }
}

/// The node of a pod, if it has one.
fn node_of(pod: &Object) -> Option<String> {
    let node: String = serde_json::from_str(pod.pointer("/spec/nodeName")?).ok()?;
    Some(node).filter(|node| !node.is_empty())
}

/// What the pods of a controller on a node are counted under. Names of nodes have no slash.
fn sibling_index(node: &str, controller: &str) -> String {
    format!("{node}/{controller}")
}

/// What a pod is counted under. Nothing for one without a node, and for one that is finished.
fn counted_under(pod: &Object) -> Option<Vec<String>> {
    let node = node_of(pod)?;
    if matches!(pod.pointer("/status/phase"), Some("\"Succeeded\"" | "\"Failed\"")) {
        return None;
    }
    let owners = pod.pointer("/metadata/ownerReferences").unwrap_or("[]");
    let owners: Vec<OwnerReference> = serde_json::from_str(owners).unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller);
    let siblings = controller.map(|owner| sibling_index(&node, &owner.uid));
    Some([node].into_iter().chain(siblings).collect())
}

/// Requeues at the time when the next step is due.
fn requeue_at(due: Option<Timestamp>, now: Timestamp) -> Action {
    due.map_or(Action::Wait, |due| Action::requeue(Duration::try_from(due.duration_since(now)).unwrap_or_default()))
}

/// The earlier of two requeues.
fn earlier(action: Action, other: Duration) -> Action {
    match action {
        Action::Requeue(after) => Action::requeue(after.min(other)),
        _ => Action::requeue(other),
    }
}
