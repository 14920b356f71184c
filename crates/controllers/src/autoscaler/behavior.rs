//! The behavior of an autoscaler: stabilization windows and scaling policies. In: the replicas that metrics recommend, recent
//! recommendations and changes, the time. Out: the number of replicas now, and what limited it. Pure.

use jiff::{SignedDuration, Timestamp};

use super::kind::{Autoscaler, Policy, Rules};

/// The default scale-down stabilization window, in seconds.
const SCALE_DOWN_WINDOW: i64 = 300;

/// Recent recommendations and changes of the size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScalingHistory {
    /// The replicas that metrics recommended.
    pub recommendations: Vec<(Timestamp, i32)>,
    /// By how much the target was scaled up, and when.
    pub scale_ups: Vec<(Timestamp, i32)>,
    /// By how much the target was scaled down, and when.
    pub scale_downs: Vec<(Timestamp, i32)>,
}

/// The number of replicas, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    pub replicas: i32,
    /// The reason and the message of the condition `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Whether the size was limited, with the reason and the message of the condition `ScalingLimited`.
    pub limited: (bool, &'static str, &'static str),
}

impl ScalingHistory {
    /// Records a recommendation, and drops those that are older than the longest window.
    pub(super) fn recommend(&mut self, autoscaler: &Autoscaler, replicas: i32, now: Timestamp) {
        let longest = up(autoscaler).window(0).max(down(autoscaler).window(SCALE_DOWN_WINDOW));
        self.recommendations.retain(|(at, _)| is_within(*at, longest, now));
        self.recommendations.push((now, replicas));
    }

    /// Records a change of the size, and drops those that no policy reads any more.
    pub(super) fn changed(&mut self, autoscaler: &Autoscaler, from: i32, to: i32, now: Timestamp) {
        let (list, rules) = match to > from {
            true => (&mut self.scale_ups, up(autoscaler)),
            false => (&mut self.scale_downs, down(autoscaler)),
        };
        let longest = rules.policies().iter().map(|policy| policy.period_seconds).max().unwrap_or_default();
        list.retain(|(at, _)| is_within(*at, longest, now));
        list.push((now, (to - from).abs()));
    }
}

/// The number of replicas if there are `current` and metrics recommend `desired`.
pub(super) fn normalize(
    autoscaler: &Autoscaler,
    history: &ScalingHistory,
    current: i32,
    desired: i32,
    now: Timestamp,
) -> Normalized {
    let recent = |window: i64| {
        history.recommendations.iter().filter(move |(at, _)| is_within(*at, window, now)).map(|(_, replicas)| *replicas)
    };
    let lowest = recent(up(autoscaler).window(0)).min().unwrap_or(desired).min(desired);
    let highest = recent(down(autoscaler).window(SCALE_DOWN_WINDOW)).max().unwrap_or(desired).max(desired);
    let stabilized = current.max(lowest).min(highest);
    let able = match stabilized == desired {
        true => ("ReadyForNewScale", "recommended size matches current size"),
        false if desired >= current => (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        false => (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
    };
    let (replicas, limited) = limited(autoscaler, history, current, stabilized, now);
    Normalized { replicas, able, limited }
}

fn limited(
    autoscaler: &Autoscaler,
    history: &ScalingHistory,
    current: i32,
    desired: i32,
    now: Timestamp,
) -> (i32, (bool, &'static str, &'static str)) {
    let (min, max) = (autoscaler.min(), autoscaler.spec.max_replicas);
    // Without a behavior the size at most doubles, but four replicas are always allowed.
    let scale_up_limit = match autoscaler.spec.behavior {
        None => current.saturating_mul(2).max(4),
        Some(_) => up(autoscaler).limit(current, Direction::Up, history, now).max(current),
    };
    let scale_down_limit = match autoscaler.spec.behavior {
        None => min,
        Some(_) => down(autoscaler).limit(current, Direction::Down, history, now).min(current),
    };
    match () {
        () if desired > current && desired > max.min(scale_up_limit) && scale_up_limit < max => {
            let why = "the desired replica count is increasing faster than the maximum scale rate";
            (scale_up_limit, (true, "ScaleUpLimit", why))
        }
        () if desired > max => {
            (max, (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count"))
        }
        () if desired < current && desired < scale_down_limit && scale_down_limit > min => {
            let why = "the desired replica count is decreasing faster than the maximum scale rate";
            (scale_down_limit, (true, "ScaleDownLimit", why))
        }
        () if desired < min => {
            (min, (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count"))
        }
        () => (desired, (false, "DesiredWithinRange", "the desired count is within the acceptable range")),
    }
}

/// Whether the target is scaled up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The rules of an autoscaler, with their defaults.
struct EffectiveRules {
    rules: Rules,
    defaults: Vec<Policy>,
}

impl EffectiveRules {
    fn window(&self, defaults: i64) -> i64 {
        self.rules.stabilization_window_seconds.unwrap_or(defaults)
    }

    fn policies(&self) -> &[Policy] {
        self.rules.policies.as_deref().filter(|policies| !policies.is_empty()).unwrap_or(&self.defaults)
    }

    /// The size that the policies allow.
    fn limit(&self, current: i32, direction: Direction, history: &ScalingHistory, now: Timestamp) -> i32 {
        let select = self.rules.select_policy.as_deref().unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let limit = |policy: &Policy| {
            let recent = |list: &[(Timestamp, i32)]| -> i32 {
                let recent = list.iter().filter(|(at, _)| is_within(*at, policy.period_seconds, now));
                recent.map(|(_, change)| change).sum()
            };
            let start = current - recent(&history.scale_ups) + recent(&history.scale_downs);
            let share = f64::from(policy.value) / 100.0;
            match (policy.type_.as_str(), direction) {
                ("Pods", Direction::Up) => start.saturating_add(policy.value),
                ("Pods", Direction::Down) => start - policy.value,
                (_, Direction::Up) => (f64::from(start) * (1.0 + share)).ceil() as i32,
                (_, Direction::Down) => (f64::from(start) * (1.0 - share)) as i32,
            }
        };
        let limits = self.policies().iter().map(limit);
        // `Max` selects the policy that allows the largest change, `Min` the one that allows the smallest.
        let limit = if (direction == Direction::Up) == (select == "Max") { limits.max() } else { limits.min() };
        limit.unwrap_or(current)
    }
}

fn up(autoscaler: &Autoscaler) -> EffectiveRules {
    let rules = autoscaler.spec.behavior.clone().and_then(|behavior| behavior.scale_up).unwrap_or_default();
    EffectiveRules { rules, defaults: vec![policy("Percent", 100), policy("Pods", 4)] }
}

fn down(autoscaler: &Autoscaler) -> EffectiveRules {
    let rules = autoscaler.spec.behavior.clone().and_then(|behavior| behavior.scale_down).unwrap_or_default();
    EffectiveRules { rules, defaults: vec![policy("Percent", 100)] }
}

fn policy(type_: &str, value: i32) -> Policy {
    Policy { type_: type_.into(), value, period_seconds: 15 }
}

fn is_within(at: Timestamp, window: i64, now: Timestamp) -> bool {
    now.duration_since(at) < SignedDuration::from_secs(window)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 100_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn autoscaler(behavior: Value) -> Autoscaler {
        let spec = json!({"minReplicas": 2, "maxReplicas": 20, "behavior": behavior});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    /// Lists of how long ago, and what.
    fn check(behavior: Value, history: [&[(i64, i32)]; 3], from: i32, desired: i32, expect: (i32, &str, &str)) {
        let list = |list: &[(i64, i32)]| list.iter().map(|(ago, what)| (at(NOW - ago), *what)).collect();
        let history = ScalingHistory {
            recommendations: list(history[0]),
            scale_ups: list(history[1]),
            scale_downs: list(history[2]),
        };
        let got = normalize(&autoscaler(behavior.clone()), &history, from, desired, at(NOW));
        let limited = if got.limited.0 { got.limited.1 } else { "" };
        assert_eq!((got.replicas, got.able.0, limited), expect, "{behavior} from {from} to {desired}");
    }

    #[test]
    fn without_a_word_it_doubles_and_waits_to_shrink() {
        let check = |recommendations: &[(i64, i32)], from: i32, desired: i32, expect: (i32, &str, &str)| {
            check(Value::Null, [recommendations, &[], &[]], from, desired, expect);
        };
        let ready = "ReadyForNewScale";
        check(&[], 3, 3, (3, ready, ""));
        check(&[], 3, 5, (5, ready, ""));
        check(&[], 3, 9, (6, ready, "ScaleUpLimit"));
        check(&[], 2, 9, (4, ready, "ScaleUpLimit"));
        check(&[], 15, 40, (20, ready, "TooManyReplicas"));
        check(&[(400, 9)], 8, 3, (3, ready, ""));
        check(&[(200, 7), (100, 5)], 8, 3, (7, "ScaleDownStabilized", ""));
        check(&[(200, 9)], 8, 3, (8, "ScaleDownStabilized", ""));
        check(&[], 8, 1, (2, ready, "TooFewReplicas"));
    }

    #[test]
    fn behaviour_says_how_fast() {
        let ready = "ReadyForNewScale";
        let up = |rules: Value| json!({"scaleUp": rules});
        let pods = |value: i32, period: i64| json!({"type": "Pods", "value": value, "periodSeconds": period});
        let percent = |value: i32, period: i64| json!({"type": "Percent", "value": value, "periodSeconds": period});
        check(json!({}), [&[], &[], &[]], 3, 20, (7, ready, "ScaleUpLimit"));
        check(up(json!({"policies": [pods(2, 60)]})), [&[], &[], &[]], 3, 9, (5, ready, "ScaleUpLimit"));
        check(up(json!({"policies": [pods(2, 60)]})), [&[], &[(30, 2)], &[]], 5, 9, (5, ready, "ScaleUpLimit"));
        check(up(json!({"policies": [pods(2, 60)]})), [&[], &[(90, 2)], &[]], 5, 9, (7, ready, "ScaleUpLimit"));
        let both = json!([pods(2, 60), percent(100, 60)]);
        check(up(json!({"policies": both})), [&[], &[], &[]], 5, 19, (10, ready, "ScaleUpLimit"));
        check(up(json!({"policies": both, "selectPolicy": "Min"})), [&[], &[], &[]], 5, 19, (7, ready, "ScaleUpLimit"));
        check(up(json!({"selectPolicy": "Disabled"})), [&[], &[], &[]], 5, 19, (5, ready, "ScaleUpLimit"));
        check(
            up(json!({"stabilizationWindowSeconds": 60})),
            [&[(30, 6)], &[], &[]],
            5,
            9,
            (6, "ScaleUpStabilized", ""),
        );
        let down = |rules: Value| json!({"scaleDown": rules});
        let now = |policies: Value| down(json!({"stabilizationWindowSeconds": 0, "policies": policies}));
        check(now(json!([pods(1, 60)])), [&[(10, 9)], &[], &[]], 9, 3, (8, ready, "ScaleDownLimit"));
        check(now(json!([percent(50, 60)])), [&[], &[], &[]], 9, 2, (4, ready, "ScaleDownLimit"));
        check(down(json!({"selectPolicy": "Disabled"})), [&[], &[], &[]], 9, 3, (9, ready, "ScaleDownLimit"));
    }

    #[test]
    fn only_what_counts_is_remembered() {
        let autoscaler = autoscaler(Value::Null);
        let mut history = ScalingHistory {
            recommendations: vec![(at(NOW - 400), 1), (at(NOW - 10), 2)],
            ..ScalingHistory::default()
        };
        history.recommend(&autoscaler, 3, at(NOW));
        assert_eq!(history.recommendations, [(at(NOW - 10), 2), (at(NOW), 3)]);
        history.changed(&autoscaler, 3, 5, at(NOW - 60));
        history.changed(&autoscaler, 5, 9, at(NOW));
        history.changed(&autoscaler, 9, 8, at(NOW));
        assert_eq!((history.scale_ups, history.scale_downs), (vec![(at(NOW), 4)], vec![(at(NOW), 1)]));
    }
}
