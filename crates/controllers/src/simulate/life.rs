//! The life of a pod on a simulated node. In: what its containers are to do, whether it has to go, and the time. Out: what
//! state each container is in, what to tell about it, and when the next thing is due. Pure: everything that is due happens
//! at once, so that a pod without delays is ready in one step.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::kind::RestartPolicy;
use super::settings::{Behaviour, Image, Readiness, Role};

/// The longest wait for a restart.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// How a container that was killed ends.
const KILLED: i32 = 137;

/// What a pod is to do.
pub(super) struct Script {
    pub containers: Vec<Part>,
    pub restart: RestartPolicy,
    pub backoff: Duration,
}

/// What a container is to do.
pub(super) struct Part {
    pub name: String,
    pub image: String,
    pub role: Role,
    pub behaviour: Behaviour,
}

/// Where a pod is in its life. The containers are those of the script, in its order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Life {
    /// When the node took it.
    pub began: Timestamp,
    pub containers: Vec<Container>,
    /// When it was asked to go.
    pub asked_to_go: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    pub state: State,
    pub last: Option<Ended>,
    pub restarts: i32,
    pub ready: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// It has not begun: its time has not come, or the containers before it are not done.
    Waiting,
    /// Its image cannot be had.
    NoImage,
    /// It ended and waits to be started again.
    BackOff,
    Running {
        since: Timestamp,
    },
    Ended(Ended),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub code: i32,
    pub began: Timestamp,
    pub at: Timestamp,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Pulled { image: String },
    Created { name: String },
    Started { name: String },
    Stopping { name: String },
    NoImage { image: String },
    BackOff { name: String },
}

/// How far the pod is, in the words of its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// What came of a step.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub told: Vec<Told>,
    /// When the next thing is due.
    pub due: Option<Timestamp>,
    /// Whether nothing runs and nothing will.
    pub over: bool,
}

/// When a container may begin.
enum Turn {
    /// From this time on.
    From(Timestamp),
    /// Not before those before it are done.
    Later,
}

impl Life {
    /// A pod that a node takes now.
    pub fn begin(containers: usize, now: Timestamp) -> Self {
        let fresh = Container { state: State::Waiting, last: None, restarts: 0, ready: false };
        Self { began: now, containers: vec![fresh; containers], asked_to_go: None }
    }

    /// Lets everything happen that is due. `grace` is how long it has to end once it is to go.
    pub fn step(&mut self, script: &Script, grace: Option<Duration>, now: Timestamp) -> Step {
        let mut step = Step::default();
        match grace {
            Some(grace) => self.go(script, grace, now, &mut step),
            None => self.live(script, now, &mut step),
        }
        step
    }

    /// How far the pod is.
    pub fn phase(&self, script: &Script) -> Phase {
        let ended_for_good = |(container, part): (&Container, &Part)| match &container.state {
            State::Ended(ended) if !restarts(script, part, ended.code) || self.asked_to_go.is_some() => {
                Some(ended.code)
            }
            _ => None,
        };
        let parts = || self.containers.iter().zip(&script.containers);
        let failed_init =
            parts().filter(|(_, part)| part.role == Role::Init).filter_map(ended_for_good).any(|code| code != 0);
        if failed_init {
            return Phase::Failed;
        }
        let mains = || parts().filter(|(_, part)| part.role == Role::Main);
        let codes: Vec<i32> = mains().filter_map(ended_for_good).collect();
        let waits = |(container, _): (&Container, &Part)| {
            matches!(container.state, State::Waiting | State::NoImage) && container.last.is_none()
        };
        match codes.len() == mains().count() {
            true if codes.iter().any(|code| *code != 0) => Phase::Failed,
            true => Phase::Succeeded,
            false if mains().all(waits) => Phase::Pending,
            false => Phase::Running,
        }
    }

    /// Whether the containers that prepare the pod are done.
    pub fn is_initialized(&self, script: &Script) -> bool {
        self.containers.iter().zip(&script.containers).all(|(container, part)| is_prepared(container, part.role))
    }

    fn live(&mut self, script: &Script, now: Timestamp, step: &mut Step) {
        for at in 0..self.containers.len() {
            // Each container goes as far as it can; those after it see how far that was.
            while self.advance(at, script, now, step) {}
        }
        step.over = matches!(self.phase(script), Phase::Succeeded | Phase::Failed);
        if step.over {
            step.due = None;
        }
    }

    /// One thing that happens to a container, if one is due.
    fn advance(&mut self, at: usize, script: &Script, now: Timestamp, step: &mut Step) -> bool {
        let part = &script.containers[at];
        let turn = self.turn(at, script);
        let container = &mut self.containers[at];
        let is_due = |time: Timestamp, step: &mut Step| {
            if time > now {
                step.due = Some(step.due.map_or(time, |due| due.min(time)));
            }
            time <= now
        };
        match container.state.clone() {
            State::Waiting | State::NoImage => {
                let Turn::From(time) = turn else { return false };
                if !is_due(time, step) {
                    return false;
                }
                match part.behaviour.image {
                    Image::Missing if container.state == State::NoImage => return false,
                    Image::Missing => {
                        container.state = State::NoImage;
                        step.told.push(Told::NoImage { image: part.image.clone() });
                        return false;
                    }
                    Image::Present => container.start(part, now, step),
                }
                true
            }
            State::Running { since } => {
                if let Some((after, code)) = part.behaviour.ends
                    && is_due(later(since, after), step)
                {
                    container.ready = false;
                    container.state = State::Ended(Ended { code, began: since, at: now });
                    return true;
                }
                let becomes_ready = part.behaviour.readiness == Readiness::InTime && part.role != Role::Init;
                let ready = becomes_ready && is_due(later(since, part.behaviour.ready_delay), step);
                container.ready = ready;
                false
            }
            State::Ended(ended) => {
                if !restarts(script, part, ended.code) {
                    return false;
                }
                container.last = Some(ended);
                container.state = State::BackOff;
                if container.restarts > 0 {
                    step.told.push(Told::BackOff { name: part.name.clone() });
                }
                true
            }
            State::BackOff => {
                let since = container.last.as_ref().map_or(now, |last| last.at);
                let wait = backoff(script.backoff, container.restarts);
                if !is_due(later(since, wait), step) {
                    return false;
                }
                container.restarts += 1;
                container.start(part, now, step);
                true
            }
        }
    }

    /// When a container may begin: those that prepare the pod one after the other, then all others together.
    fn turn(&self, at: usize, script: &Script) -> Turn {
        let mut from = later(self.began, script.containers[at].behaviour.start_delay);
        for (before, part) in self.containers.iter().zip(&script.containers).take(at) {
            if part.role == Role::Main {
                continue;
            }
            if !is_prepared(before, part.role) {
                return Turn::Later;
            }
            if let State::Ended(ended) = &before.state {
                from = from.max(ended.at);
            }
        }
        Turn::From(from)
    }

    /// Everything ends, each in its time but within the grace.
    fn go(&mut self, script: &Script, grace: Duration, now: Timestamp, step: &mut Step) {
        let told = self.asked_to_go.is_some();
        let asked = *self.asked_to_go.get_or_insert(now);
        step.over = true;
        for (container, part) in self.containers.iter_mut().zip(&script.containers) {
            container.ready = false;
            let State::Running { since } = container.state else { continue };
            if !told {
                step.told.push(Told::Stopping { name: part.name.clone() });
            }
            let takes = part.behaviour.stop_delay.min(grace);
            let at = later(asked, takes);
            if at > now {
                step.over = false;
                step.due = Some(step.due.map_or(at, |due| due.min(at)));
                continue;
            }
            let code = if part.behaviour.stop_delay > grace { KILLED } else { 0 };
            container.state = State::Ended(Ended { code, began: since, at: now });
        }
    }
}

impl Container {
    fn start(&mut self, part: &Part, now: Timestamp, step: &mut Step) {
        self.state = State::Running { since: now };
        step.told.push(Told::Pulled { image: part.image.clone() });
        step.told.push(Told::Created { name: part.name.clone() });
        step.told.push(Told::Started { name: part.name.clone() });
    }
}

/// Whether a container does not hold back those after it.
fn is_prepared(container: &Container, role: Role) -> bool {
    match role {
        Role::Init => matches!(&container.state, State::Ended(ended) if ended.code == 0),
        Role::Sidecar => matches!(container.state, State::Running { .. }),
        Role::Main => true,
    }
}

/// Whether a container that ended so is started again.
fn restarts(script: &Script, part: &Part, code: i32) -> bool {
    match (part.role, script.restart) {
        (Role::Sidecar, _) => true,
        (Role::Init, RestartPolicy::Never) | (_, RestartPolicy::Never) => false,
        (Role::Init, _) | (_, RestartPolicy::OnFailure) => code != 0,
        (Role::Main, RestartPolicy::Always) => true,
    }
}

/// How long a restart waits: the first not at all.
pub(super) fn backoff(first: Duration, restarts: i32) -> Duration {
    let Ok(doublings) = u32::try_from(restarts - 1) else { return Duration::ZERO };
    2u32.checked_pow(doublings)
        .and_then(|factor| first.checked_mul(factor))
        .unwrap_or(LONGEST_BACKOFF)
        .min(LONGEST_BACKOFF)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
