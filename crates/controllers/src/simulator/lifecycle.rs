//! The lifecycle of a pod on a simulated node. In: what its containers do, whether the pod is being deleted, and the time.
//! Out: the state of each container, the events to record, and when the next step is due. Pure. One step does everything
//! that is due, so that a pod without delays becomes ready in one step.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kind::RestartPolicy;
use super::settings::{Behaviour, Image, Readiness, Role};

/// The longest backoff before a restart.
const MAX_RESTART_BACKOFF: Duration = Duration::from_secs(300);

/// The exit code of a container that was killed because it did not stop in time.
const SIGKILL_EXIT_CODE: i32 = 137;

/// What a pod does, from its spec and the simulation settings.
pub(super) struct PodPlan {
    pub containers: Vec<ContainerPlan>,
    pub restart: RestartPolicy,
    pub backoff: Duration,
}

/// What a container does.
pub(super) struct ContainerPlan {
    pub name: String,
    pub image: String,
    pub role: Role,
    pub behaviour: Behaviour,
    /// What it has on its node; null for containers that cannot have anything.
    pub resources: Value,
}

/// The state of a pod. Its containers are those of the plan, in the same order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodState {
    /// When the node accepted the pod.
    pub started: Timestamp,
    pub containers: Vec<Container>,
    /// When the deletion of the pod reached the node.
    pub stop_requested: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    pub state: State,
    pub last: Option<Exit>,
    pub restarts: i32,
    pub ready: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Not started: its delay runs, or it waits for init containers.
    Waiting,
    /// The image cannot be pulled.
    ImageMissing,
    /// It exited and waits for its restart.
    BackOff,
    Running {
        since: Timestamp,
    },
    Terminated(Exit),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exit {
    pub code: i32,
    pub started: Timestamp,
    pub finished: Timestamp,
}

/// Something that happened to a container, to be recorded as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerEvent {
    Pulled { image: String },
    Created { name: String },
    Started { name: String },
    Stopping { name: String },
    Resizing { name: String },
    ImageMissing { image: String },
    BackOff { name: String },
}

/// The phase of a pod, as in its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// The outcome of a step.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub events: Vec<ContainerEvent>,
    /// When the next step is due.
    pub due: Option<Timestamp>,
    /// Whether all containers have exited and none will be restarted.
    pub finished: bool,
}

/// When a container may start.
enum StartTime {
    /// Not before this time.
    At(Timestamp),
    /// Not before an earlier init container has finished.
    Blocked,
}

impl PodState {
    /// The state of a pod that a node accepts now.
    pub(super) fn new(containers: usize, now: Timestamp) -> Self {
        let fresh = Container { state: State::Waiting, last: None, restarts: 0, ready: false };
        Self { started: now, containers: vec![fresh; containers], stop_requested: None }
    }

    /// Adds the containers that the plan has beyond those of the state: they are added to pods that run.
    pub(super) fn add_containers(&mut self, plan: &PodPlan) {
        let fresh = Container { state: State::Waiting, last: None, restarts: 0, ready: false };
        if self.containers.len() < plan.containers.len() {
            self.containers.resize(plan.containers.len(), fresh);
        }
    }

    /// Restarts containers that run, because a resize wants it so.
    pub(super) fn restart(&mut self, plan: &PodPlan, names: &[String], now: Timestamp) -> Vec<ContainerEvent> {
        let mut events = Vec::new();
        for (container, container_plan) in self.containers.iter_mut().zip(&plan.containers) {
            let State::Running { since } = container.state else { continue };
            if names.contains(&container_plan.name) {
                container.last = Some(Exit { code: 0, started: since, finished: now });
                container.state = State::Running { since: now };
                container.restarts += 1;
                container.ready = false;
                events.push(ContainerEvent::Resizing { name: container_plan.name.clone() });
                events.push(ContainerEvent::Started { name: container_plan.name.clone() });
            }
        }
        events
    }

    /// Does everything that is due. `grace` is the grace period of a pod that is being deleted.
    pub(super) fn step(&mut self, plan: &PodPlan, grace: Option<Duration>, now: Timestamp) -> Step {
        let mut step = Step::default();
        match grace {
            Some(grace) => self.stop(plan, grace, now, &mut step),
            None => self.run(plan, now, &mut step),
        }
        step
    }

    /// The phase of the pod.
    pub(super) fn phase(&self, plan: &PodPlan) -> Phase {
        let ended_for_good = |(container, container_plan): (&Container, &ContainerPlan)| match &container.state {
            State::Terminated(ended)
                if !restarts(plan, container_plan, ended.code) || self.stop_requested.is_some() =>
            {
                Some(ended.code)
            }
            _ => None,
        };
        let parts = || self.containers.iter().zip(&plan.containers);
        let failed_init = parts()
            .filter(|(_, container_plan)| container_plan.role == Role::Init)
            .filter_map(ended_for_good)
            .any(|code| code != 0);
        if failed_init {
            return Phase::Failed;
        }
        let mains = || parts().filter(|(_, container_plan)| container_plan.role == Role::Main);
        let codes: Vec<i32> = mains().filter_map(ended_for_good).collect();
        let waits = |(container, _): (&Container, &ContainerPlan)| {
            matches!(container.state, State::Waiting | State::ImageMissing) && container.last.is_none()
        };
        match codes.len() == mains().count() {
            true if codes.iter().any(|code| *code != 0) => Phase::Failed,
            true => Phase::Succeeded,
            false if mains().all(waits) => Phase::Pending,
            false => Phase::Running,
        }
    }

    /// Whether all init containers have succeeded and all sidecars run.
    pub(super) fn is_initialized(&self, plan: &PodPlan) -> bool {
        self.containers
            .iter()
            .zip(&plan.containers)
            .all(|(container, container_plan)| is_initialized(container, container_plan.role))
    }

    fn run(&mut self, plan: &PodPlan, now: Timestamp, step: &mut Step) {
        for at in 0..self.containers.len() {
            // Each container advances as far as it can, because later containers may wait for it.
            while self.advance(at, plan, now, step) {}
        }
        step.finished = matches!(self.phase(plan), Phase::Succeeded | Phase::Failed);
        if step.finished {
            step.due = None;
        }
    }

    /// Changes the state of a container once if that is due. Returns whether it should be called again.
    fn advance(&mut self, at: usize, plan: &PodPlan, now: Timestamp, step: &mut Step) -> bool {
        let container_plan = &plan.containers[at];
        let start_time = self.start_time(at, plan);
        let container = &mut self.containers[at];
        let is_due = |time: Timestamp, step: &mut Step| {
            if time > now {
                step.due = Some(step.due.map_or(time, |due| due.min(time)));
            }
            time <= now
        };
        match container.state.clone() {
            State::Waiting | State::ImageMissing => {
                let StartTime::At(time) = start_time else { return false };
                if !is_due(time, step) {
                    return false;
                }
                match container_plan.behaviour.image {
                    Image::Missing if container.state == State::ImageMissing => return false,
                    Image::Missing => {
                        container.state = State::ImageMissing;
                        step.events.push(ContainerEvent::ImageMissing { image: container_plan.image.clone() });
                        return false;
                    }
                    Image::Present => container.start(container_plan, now, step),
                }
                true
            }
            State::Running { since } => {
                if let Some((after, code)) = container_plan.behaviour.ends
                    && is_due(later(since, after), step)
                {
                    container.ready = false;
                    container.state = State::Terminated(Exit { code, started: since, finished: now });
                    return true;
                }
                let becomes_ready = container_plan.behaviour.readiness == Readiness::InTime
                    && matches!(container_plan.role, Role::Main | Role::Sidecar);
                let ready = becomes_ready && is_due(later(since, container_plan.behaviour.ready_delay), step);
                container.ready = ready;
                false
            }
            State::Terminated(ended) => {
                if !restarts(plan, container_plan, ended.code) {
                    return false;
                }
                container.last = Some(ended);
                container.state = State::BackOff;
                if container.restarts > 0 {
                    step.events.push(ContainerEvent::BackOff { name: container_plan.name.clone() });
                }
                true
            }
            State::BackOff => {
                let since = container.last.as_ref().map_or(now, |last| last.finished);
                let wait = backoff(plan.backoff, container.restarts);
                if !is_due(later(since, wait), step) {
                    return false;
                }
                container.restarts += 1;
                container.start(container_plan, now, step);
                true
            }
        }
    }

    /// When a container may start: init containers start one after the other, then all main containers together.
    fn start_time(&self, at: usize, plan: &PodPlan) -> StartTime {
        let mut from = later(self.started, plan.containers[at].behaviour.start_delay);
        // Whoever looks at a pod that does not become ready must not have to wait for that.
        if plan.containers[at].role == Role::Ephemeral {
            return StartTime::At(from);
        }
        for (before, container_plan) in self.containers.iter().zip(&plan.containers).take(at) {
            if container_plan.role == Role::Main {
                continue;
            }
            if !is_initialized(before, container_plan.role) {
                return StartTime::Blocked;
            }
            if let State::Terminated(ended) = &before.state {
                from = from.max(ended.finished);
            }
        }
        StartTime::At(from)
    }

    /// Stops all containers, each after its stop delay but within the grace period.
    fn stop(&mut self, plan: &PodPlan, grace: Duration, now: Timestamp, step: &mut Step) {
        let requested_before = self.stop_requested.is_some();
        let requested = *self.stop_requested.get_or_insert(now);
        step.finished = true;
        for (container, container_plan) in self.containers.iter_mut().zip(&plan.containers) {
            container.ready = false;
            let State::Running { since } = container.state else { continue };
            if !requested_before {
                step.events.push(ContainerEvent::Stopping { name: container_plan.name.clone() });
            }
            let takes = container_plan.behaviour.stop_delay.min(grace);
            let at = later(requested, takes);
            if at > now {
                step.finished = false;
                step.due = Some(step.due.map_or(at, |due| due.min(at)));
                continue;
            }
            let code = if container_plan.behaviour.stop_delay > grace { SIGKILL_EXIT_CODE } else { 0 };
            container.state = State::Terminated(Exit { code, started: since, finished: now });
        }
    }
}

impl Container {
    fn start(&mut self, container_plan: &ContainerPlan, now: Timestamp, step: &mut Step) {
        self.state = State::Running { since: now };
        step.events.push(ContainerEvent::Pulled { image: container_plan.image.clone() });
        step.events.push(ContainerEvent::Created { name: container_plan.name.clone() });
        step.events.push(ContainerEvent::Started { name: container_plan.name.clone() });
    }
}

/// Whether later containers may start.
fn is_initialized(container: &Container, role: Role) -> bool {
    match role {
        Role::Init => matches!(&container.state, State::Terminated(ended) if ended.code == 0),
        Role::Sidecar => matches!(container.state, State::Running { .. }),
        Role::Main | Role::Ephemeral => true,
    }
}

/// Whether a container that exited with this code is restarted.
fn restarts(plan: &PodPlan, container_plan: &ContainerPlan, code: i32) -> bool {
    match (container_plan.role, plan.restart) {
        (Role::Sidecar, _) => true,
        (Role::Ephemeral, _) => false,
        (Role::Init, RestartPolicy::Never) | (_, RestartPolicy::Never) => false,
        (Role::Init, _) | (_, RestartPolicy::OnFailure) => code != 0,
        (Role::Main, RestartPolicy::Always) => true,
    }
}

/// The backoff before a restart; the first restart has none.
pub(super) fn backoff(first: Duration, restarts: i32) -> Duration {
    let Ok(doublings) = u32::try_from(restarts - 1) else { return Duration::ZERO };
    2u32.checked_pow(doublings)
        .and_then(|factor| first.checked_mul(factor))
        .unwrap_or(MAX_RESTART_BACKOFF)
        .min(MAX_RESTART_BACKOFF)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
