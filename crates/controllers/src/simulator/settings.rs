//! How simulated pods behave. In: settings, rules, and the annotations of a pod. Out: what each container does. What is
//! nearer to the pod counts: a rule more than a setting, an annotation more than a rule. Pure.
//!
//! | annotation `simulate.konverge.dev/…` | meaning |
//! |---|---|
//! | `start-delay`, `ready-delay`, `stop-delay`, `init-time` | how long it takes: `500ms`, `2s`, `1m` |
//! | `run-time` | how long a container that ends runs |
//! | `exit-code` | containers end after `run-time` with this code, whatever their pod's restart policy |
//! | `fail` | `crash-loop`, `image-pull`, `never-ready`, or `none` |
//! | `container` | all this is about the container of this name only |

use std::collections::BTreeMap;
use std::time::Duration;

use konverge_core::LabelSelector;
use konverge_core::simulate::{self, EXITED, PREFIX};

use super::kind::{Container, Pod, RestartPolicy};

/// How pods and nodes are simulated.
#[derive(Clone, Debug)]
pub struct SimulationSettings {
    /// How many nodes there are: `konverge-node-1` and so on. Other nodes are simulated as well if they carry the label
    /// `konverge.dev/simulated=true`.
    pub nodes: usize,
    /// How many pods a node takes.
    pub pods_per_node: usize,
    /// From a node to the start of the containers.
    pub start_delay: Duration,
    /// From the start of a container to its readiness.
    pub ready_delay: Duration,
    /// How long a container takes to end when it is asked to.
    pub stop_delay: Duration,
    /// How long an init container runs.
    pub init_time: Duration,
    /// How long the containers of a pod run that is not restarted for ever, before they end with 0.
    pub run_time: Duration,
    /// How long the second restart of a container waits; each further one waits twice as long, up to five minutes.
    pub restart_backoff: Duration,
    /// How long pods stay on a node that does not answer, if they do not say so themselves.
    pub eviction_delay: Duration,
    /// How often a node says that it is alive.
    pub heartbeat: Duration,
    /// What some pods do differently. Later rules count more than earlier ones.
    pub rules: Vec<Rule>,
}

/// What some pods do differently.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Containers with such an image, where `*` stands for any text; all of them, if nothing is said.
    pub image: Option<String>,
    /// Pods with such labels; all of them, if nothing is said.
    pub labels: Option<LabelSelector>,
    /// What they do: the names and values of annotations, without `simulate.konverge.dev/`.
    pub behaviour: BTreeMap<String, String>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub start_delay: Duration,
    pub ready_delay: Duration,
    pub stop_delay: Duration,
    /// When it ends by itself, and how.
    pub ends: Option<(Duration, i32)>,
    pub image: Image,
    pub readiness: Readiness,
}

/// Whether an image can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    Present,
    Missing,
}

/// Whether a container becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    InTime,
    Never,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            nodes: 1,
            pods_per_node: 1000,
            start_delay: Duration::ZERO,
            ready_delay: Duration::ZERO,
            stop_delay: Duration::ZERO,
            init_time: Duration::ZERO,
            run_time: Duration::ZERO,
            restart_backoff: Duration::from_secs(10),
            eviction_delay: Duration::from_secs(300),
            heartbeat: Duration::from_secs(10),
            rules: Vec::new(),
        }
    }
}

impl SimulationSettings {
    /// What a container of a pod does.
    pub(super) fn behaviour(&self, pod: &Pod, container: &Container, role: Role) -> Behaviour {
        let mut words: BTreeMap<&str, &str> = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| rule.is_for(pod, container)) {
            words.extend(rule.behaviour.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        let annotations = &pod.metadata.annotations;
        let only = annotations.get(&format!("{PREFIX}container"));
        // A container that was added to look at a pod does not share the pod's fate, unless it is meant by name.
        if only.map_or(role != Role::Ephemeral, |only| *only == container.name) {
            let own = annotations.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())));
            words.extend(own);
        }
        let time =
            |name: &str, other: Duration| words.get(name).and_then(|text| simulate::duration(text)).unwrap_or(other);
        let code = words.get("exit-code").and_then(|code| code.parse::<i32>().ok());
        let fail = words.get("fail").copied().unwrap_or_default();
        let run_time = time("run-time", self.run_time);
        let (ephemeral, never) = (role == Role::Ephemeral, pod.spec.restart_policy == RestartPolicy::Never);
        let policy = if never { "Never" } else { "" };
        let interactive = simulate::ends_with_its_client(container.stdin, container.stdin_once, ephemeral, policy);
        let exited = annotations.get(EXITED).and_then(|exited| simulate::exit_code(exited, &container.name));
        let ends = match (role, pod.spec.restart_policy) {
            // How a pod ends says nothing of how it begins, unless an init container is meant by name.
            (Role::Init, _) => Some((time("init-time", self.init_time), code.filter(|_| only.is_some()).unwrap_or(0))),
            (Role::Main, _) if fail == "crash-loop" => Some((run_time, code.unwrap_or(1))),
            (Role::Main, _) if code.is_some() => Some((run_time, code.unwrap_or(0))),
            (Role::Ephemeral, _) if code.is_some() => code.map(|code| (run_time, code)),
            // The API server says when the process that somebody is attached to has ended.
            (Role::Ephemeral | Role::Main, _) if interactive => exited.map(|code| (Duration::ZERO, code)),
            // The API server knows how a command ends that nobody is attached to, if simulated containers have such a program.
            (Role::Ephemeral, _) => exited.map(|code| (run_time, code)),
            (Role::Main, RestartPolicy::Always) | (Role::Sidecar, _) => None,
            (Role::Main, RestartPolicy::OnFailure | RestartPolicy::Never) => Some((run_time, 0)),
        };
        Behaviour {
            start_delay: time("start-delay", self.start_delay),
            ready_delay: time("ready-delay", self.ready_delay),
            stop_delay: time("stop-delay", self.stop_delay),
            ends,
            image: if fail == "image-pull" { Image::Missing } else { Image::Present },
            readiness: if fail == "never-ready" { Readiness::Never } else { Readiness::InTime },
        }
    }
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    Sidecar,
    Main,
    /// Added to a pod that runs, to look at it.
    Ephemeral,
}

impl Rule {
    fn is_for(&self, pod: &Pod, container: &Container) -> bool {
        self.image.as_ref().is_none_or(|pattern| simulate::is_like(pattern, &container.image))
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&pod.metadata.labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_nearer_counts() {
        let rule = |image: Option<&str>, labels: Option<&str>, name: &str, value: &str| Rule {
            image: image.map(str::to_owned),
            labels: labels.map(|labels| LabelSelector::parse(labels).unwrap()),
            behaviour: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        };
        let settings = SimulationSettings {
            ready_delay: Duration::from_secs(1),
            rules: vec![
                rule(Some("bad*"), None, "fail", "image-pull"),
                rule(None, Some("app=slow"), "ready-delay", "5s"),
                rule(None, Some("app=crash"), "fail", "crash-loop"),
            ],
            ..SimulationSettings::default()
        };
        let check = |pod: Value, image: &str, expect: (u64, Option<i32>, Image)| {
            let read: Pod = serde_json::from_value(pod.clone()).unwrap();
            let container = Container { name: "c".into(), image: image.into(), ..Container::default() };
            let got = settings.behaviour(&read, &container, Role::Main);
            assert_eq!((got.ready_delay.as_secs(), got.ends.map(|(_, code)| code), got.image), expect, "{pod} {image}");
        };
        let labelled = |app: &str| json!({"metadata": {"labels": {"app": app}}});
        let annotated = |name: &str, value: &str| json!({"metadata": {"labels": {"app": "slow"}, "annotations": {format!("{PREFIX}{name}"): value}}});
        check(json!({}), "good", (1, None, Image::Present));
        check(json!({}), "bad:1", (1, None, Image::Missing));
        check(labelled("slow"), "good", (5, None, Image::Present));
        check(labelled("crash"), "good", (1, Some(1), Image::Present));
        check(annotated("ready-delay", "7s"), "good", (7, None, Image::Present));
        check(annotated("exit-code", "3"), "good", (5, Some(3), Image::Present));
        check(annotated("fail", "none"), "bad:1", (5, None, Image::Present));
        check(json!({"spec": {"restartPolicy": "Never"}}), "good", (1, Some(0), Image::Present));
        let other = json!({"metadata": {"annotations": {
            format!("{PREFIX}container"): "other", format!("{PREFIX}exit-code"): "3",
        }}});
        check(other, "good", (1, None, Image::Present));
    }

    #[test]
    fn interactive_containers_end_with_their_process() {
        let check = |restart: &str, role: Role, (stdin, once): (bool, bool), exited: &str, expect: Option<i32>| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"annotations": {EXITED: exited}},
                "spec": {"restartPolicy": restart},
            }))
            .unwrap();
            let container = Container { name: "c".into(), stdin, stdin_once: once, ..Container::default() };
            let got = SimulationSettings::default().behaviour(&pod, &container, role).ends.map(|(_, code)| code);
            assert_eq!(got, expect, "{restart} {role:?} {stdin} {once} {exited}");
        };
        check("Never", Role::Main, (true, true), "", None);
        check("Never", Role::Main, (true, true), r#"{"c": 3}"#, Some(3));
        check("Never", Role::Main, (true, true), r#"{"other": 3}"#, None);
        check("Never", Role::Main, (true, false), "", Some(0));
        check("Never", Role::Main, (false, false), r#"{"c": 3}"#, Some(0));
        check("OnFailure", Role::Main, (true, true), "", Some(0));
        check("Always", Role::Main, (true, true), r#"{"c": 3}"#, None);
        check("Always", Role::Ephemeral, (true, false), "", None);
        check("Always", Role::Ephemeral, (true, false), r#"{"c": 3}"#, Some(3));
        check("Always", Role::Ephemeral, (false, false), r#"{"c": 3}"#, Some(3));
        check("Always", Role::Ephemeral, (false, false), r#"{"other": 3}"#, None);
        check("Always", Role::Main, (false, false), r#"{"c": 3}"#, None);
    }
}
