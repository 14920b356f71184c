//! Tables: what containers do, and in which state they are at which second.

use super::*;

const READY: &str = "ready";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// What a container does by default: it runs for ever and is ready at once.
fn plain() -> Behaviour {
    Behaviour {
        start_delay: Duration::ZERO,
        ready_delay: Duration::ZERO,
        stop_delay: Duration::ZERO,
        ends: None,
        image: Image::Present,
        readiness: Readiness::InTime,
    }
}

fn ends(after: u64, code: i32) -> Behaviour {
    Behaviour { ends: Some((Duration::from_secs(after), code)), ..plain() }
}

fn plan(restart: RestartPolicy, parts: &[(Role, Behaviour)]) -> PodPlan {
    let container_plan = |(at, (role, behaviour)): (usize, &(Role, Behaviour))| ContainerPlan {
        name: format!("c{at}"),
        image: "image".into(),
        role: *role,
        behaviour: behaviour.clone(),
        resources: Value::Null,
    };
    PodPlan {
        containers: parts.iter().enumerate().map(container_plan).collect(),
        restart,
        backoff: Duration::from_secs(10),
    }
}

/// The state of each container, and the phase, in words.
fn words(state: &PodState, plan: &PodPlan) -> String {
    let word_of = |container: &Container| {
        let word = match &container.state {
            State::Waiting => "waiting".to_owned(),
            State::ImageMissing => "no image".to_owned(),
            State::BackOff => format!("back-off after {}", container.last.as_ref().unwrap().code),
            State::Running { .. } if container.ready => READY.to_owned(),
            State::Running { .. } => "running".to_owned(),
            State::Terminated(ended) => format!("ended {}", ended.code),
        };
        if container.restarts > 0 { format!("{word} x{}", container.restarts) } else { word }
    };
    let states: Vec<String> = state.containers.iter().map(word_of).collect();
    format!("{} {:?}", states.join(", "), state.phase(plan))
}

/// Steps through these seconds; each has the expected state and the time when the next step is due.
fn check(plan: &PodPlan, walk: &[(i64, &str, Option<i64>)]) {
    let mut state = PodState::new(plan.containers.len(), at(0));
    for (second, expect, due) in walk {
        let step = state.step(plan, None, at(*second));
        assert_eq!(words(&state, plan), *expect, "after {second} s");
        assert_eq!(step.due, due.map(at), "after {second} s");
        // Looking again changes nothing.
        let again = state.clone().step(plan, None, at(*second));
        assert_eq!((again.events.len(), again.due), (0, step.due), "after {second} s");
    }
}

#[test]
fn pods_without_delays_are_ready_at_once() {
    use RestartPolicy::{Always, Never, OnFailure};
    check(&plan(Always, &[(Role::Main, plain())]), &[(0, "ready Running", None)]);
    check(&plan(Never, &[(Role::Main, ends(0, 0))]), &[(0, "ended 0 Succeeded", None)]);
    check(&plan(Never, &[(Role::Main, ends(0, 3))]), &[(0, "ended 3 Failed", None)]);
    check(&plan(OnFailure, &[(Role::Main, ends(0, 0))]), &[(0, "ended 0 Succeeded", None)]);
    let all = [(Role::Init, ends(0, 0)), (Role::Sidecar, plain()), (Role::Main, plain())];
    check(&plan(Always, &all), &[(0, "ended 0, ready, ready Running", None)]);
}

#[test]
fn ephemeral_containers_are_added_to_pods_that_run() {
    let stuck = [(Role::Init, ends(60, 0)), (Role::Main, plain())];
    let before = plan(RestartPolicy::Always, &stuck);
    let mut state = PodState::new(2, at(0));
    state.step(&before, None, at(0));
    let with = |behaviour| plan(RestartPolicy::Always, &[&stuck[..], &[(Role::Ephemeral, behaviour)]].concat());
    let after = with(plain());
    state.add_containers(&after);
    state.step(&after, None, at(1));
    // It waits for nobody, and says nothing of the pod.
    assert_eq!(words(&state, &after), "running, waiting, running Pending");
    let ended = with(ends(1, 3));
    for _ in 0..2 {
        state.step(&ended, None, at(2));
        assert_eq!(words(&state, &ended), "running, waiting, ended 3 Pending", "it is never started again");
    }
    let step = state.step(&with(plain()), Some(Duration::ZERO), at(3));
    assert!(step.finished);
}

#[test]
fn delays_are_kept() {
    let slow = Behaviour { start_delay: Duration::from_secs(2), ready_delay: Duration::from_secs(3), ..plain() };
    check(
        &plan(RestartPolicy::Always, &[(Role::Main, slow)]),
        &[
            (0, "waiting Pending", Some(2)),
            (1, "waiting Pending", Some(2)),
            (2, "running Running", Some(5)),
            (5, "ready Running", None),
        ],
    );
    let inits = [(Role::Init, ends(2, 0)), (Role::Init, ends(1, 0)), (Role::Main, ends(4, 0))];
    check(
        &plan(RestartPolicy::Never, &inits),
        &[
            (0, "running, waiting, waiting Pending", Some(2)),
            (2, "ended 0, running, waiting Pending", Some(3)),
            (3, "ended 0, ended 0, ready Running", Some(7)),
            (7, "ended 0, ended 0, ended 0 Succeeded", None),
        ],
    );
}

#[test]
fn what_ends_is_restarted_as_the_policy_says() {
    // The first restart comes at once, the next ones wait longer and longer.
    check(
        &plan(RestartPolicy::Always, &[(Role::Main, ends(1, 1))]),
        &[
            (0, "ready Running", Some(1)),
            (1, "ready x1 Running", Some(2)),
            (2, "back-off after 1 x1 Running", Some(12)),
            (12, "ready x2 Running", Some(13)),
            (13, "back-off after 1 x2 Running", Some(33)),
        ],
    );
    check(
        &plan(RestartPolicy::OnFailure, &[(Role::Main, ends(0, 1))]),
        &[(0, "back-off after 1 x1 Running", Some(10))],
    );
    check(
        &plan(RestartPolicy::Never, &[(Role::Init, ends(0, 2)), (Role::Main, plain())]),
        &[(0, "ended 2, waiting Failed", None)],
    );
    check(
        &plan(RestartPolicy::Always, &[(Role::Init, ends(0, 2)), (Role::Main, plain())]),
        &[(0, "back-off after 2 x1, waiting Pending", Some(10))],
    );
    // All have to end before a pod has.
    check(
        &plan(RestartPolicy::Never, &[(Role::Main, ends(0, 0)), (Role::Main, ends(5, 1))]),
        &[(0, "ended 0, ready Running", Some(5)), (5, "ended 0, ended 1 Failed", None)],
    );
}

#[test]
fn failures_on_demand() {
    let missing = Behaviour { image: Image::Missing, ..plain() };
    let never = Behaviour { readiness: Readiness::Never, ..plain() };
    let broken = plan(RestartPolicy::Always, &[(Role::Main, missing), (Role::Main, plain())]);
    check(&broken, &[(0, "no image, ready Running", None)]);
    check(&plan(RestartPolicy::Always, &[(Role::Main, never)]), &[(0, "running Running", None)]);

    // What is mended goes on.
    let mut state = PodState::new(2, at(0));
    state.step(&broken, None, at(0));
    let mended = plan(RestartPolicy::Always, &[(Role::Main, plain()), (Role::Main, plain())]);
    state.step(&mended, None, at(5));
    assert_eq!(words(&state, &mended), "ready, ready Running");
}

#[test]
fn who_has_to_go_ends_in_time() {
    let check = |stop: u64, grace: u64, walk: &[(i64, &str, bool)]| {
        let slow = Behaviour { stop_delay: Duration::from_secs(stop), ..plain() };
        let plan = plan(RestartPolicy::Always, &[(Role::Main, slow)]);
        let mut state = PodState::new(1, at(0));
        state.step(&plan, None, at(0));
        let mut events = Vec::new();
        for (second, expect, over) in walk {
            let step = state.step(&plan, Some(Duration::from_secs(grace)), at(*second));
            events.extend(step.events);
            assert_eq!(
                (words(&state, &plan).as_str(), step.finished),
                (*expect, *over),
                "{stop} {grace} after {second} s"
            );
        }
        assert_eq!(events, [ContainerEvent::Stopping { name: "c0".into() }]);
    };
    check(0, 30, &[(5, "ended 0 Succeeded", true)]);
    check(3, 30, &[(5, "running Running", false), (7, "running Running", false), (8, "ended 0 Succeeded", true)]);
    check(60, 10, &[(5, "running Running", false), (15, "ended 137 Failed", true)]);
}

#[test]
fn restarts_wait_longer_and_longer() {
    let waits: Vec<u64> = (0..8).map(|restarts| backoff(Duration::from_secs(10), restarts).as_secs()).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn a_resize_restarts_the_containers_that_it_names() {
    let plan = plan(RestartPolicy::Always, &[(Role::Main, plain()), (Role::Main, plain())]);
    let now = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
    let mut state = PodState::new(2, now(0));
    for second in 0..5 {
        state.step(&plan, None, now(second));
    }
    let events = state.restart(&plan, &["c1".to_owned()], now(5));
    assert_eq!(events, [ContainerEvent::Resizing { name: "c1".into() }, ContainerEvent::Started { name: "c1".into() }]);
    let restarts: Vec<i32> = state.containers.iter().map(|container| container.restarts).collect();
    assert_eq!((restarts, &state.containers[1].state), (vec![0, 1], &State::Running { since: now(5) }));
    assert!(state.containers[0].ready && !state.containers[1].ready);
}
