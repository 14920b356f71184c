//! How fast an autoscaler goes. In: how many replicas metrics ask for, what was asked for and done lately, the time. Out: how
//! many there are to be now, and what held it back. Pure.

use jiff::{SignedDuration, Timestamp};

use super::kind::{Autoscaler, Policy, Rules};

/// How long a lower recommend waits, if nothing is said.
const DOWN_WINDOW: i64 = 300;

/// What was asked for and done lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScalingHistory {
    /// What metrics asked for.
    pub recommendations: Vec<(Timestamp, i32)>,
    /// By how much it grew and shrank.
    pub ups: Vec<(Timestamp, i32)>,
    pub downs: Vec<(Timestamp, i32)>,
}

/// How many there are to be, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stabilized {
    pub replicas: i32,
    /// The reason and the words of `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Whether something held it back, the reason and the words of `ScalingLimited`.
    pub limited: (bool, &'static str, &'static str),
}

impl ScalingHistory {
    /// Notes what metrics ask for, and forgets what nobody will ask for.
    pub(super) fn recommend(&mut self, autoscaler: &Autoscaler, replicas: i32, now: Timestamp) {
        let longest = up(autoscaler).window(0).max(down(autoscaler).window(DOWN_WINDOW));
        self.recommendations.retain(|(at, _)| is_within(*at, longest, now));
        self.recommendations.push((now, replicas));
    }

    /// Notes that the size was changed.
    pub(super) fn changed(&mut self, autoscaler: &Autoscaler, from: i32, to: i32, now: Timestamp) {
        let (list, rules) = match to > from {
            true => (&mut self.ups, up(autoscaler)),
            false => (&mut self.downs, down(autoscaler)),
        };
        let longest = rules.policies().iter().map(|policy| policy.period_seconds).max().unwrap_or_default();
        list.retain(|(at, _)| is_within(*at, longest, now));
        list.push((now, (to - from).abs()));
    }
}

/// How many replicas there are to be when there are `current` and metrics ask for `wanted`.
pub(super) fn pace(
    autoscaler: &Autoscaler,
    history: &ScalingHistory,
    current: i32,
    wanted: i32,
    now: Timestamp,
) -> Stabilized {
    let lately = |window: i64| {
        history
            .recommendations
            .iter()
            .filter(move |(at, _)| is_within(*at, window, now))
            .map(|(_, recommend)| *recommend)
    };
    let lowest = lately(up(autoscaler).window(0)).min().unwrap_or(wanted).min(wanted);
    let highest = lately(down(autoscaler).window(DOWN_WINDOW)).max().unwrap_or(wanted).max(wanted);
    let steady = current.max(lowest).min(highest);
    let able = match steady == wanted {
        true => ("ReadyForNewScale", "recommended size matches current size"),
        false if wanted >= current => (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        false => (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
    };
    let (replicas, limited) = limited(autoscaler, history, current, steady, now);
    Stabilized { replicas, able, limited }
}

fn limited(
    autoscaler: &Autoscaler,
    history: &ScalingHistory,
    current: i32,
    wanted: i32,
    now: Timestamp,
) -> (i32, (bool, &'static str, &'static str)) {
    let (min, max) = (autoscaler.min(), autoscaler.spec.max_replicas);
    // Nobody who says nothing about the pace more than doubles, from four on.
    let fastest = match autoscaler.spec.behavior {
        None => current.saturating_mul(2).max(4),
        Some(_) => up(autoscaler).farthest(current, Way::Up, history, now).max(current),
    };
    let slowest = match autoscaler.spec.behavior {
        None => min,
        Some(_) => down(autoscaler).farthest(current, Way::Down, history, now).min(current),
    };
    match () {
        () if wanted > current && wanted > max.min(fastest) && fastest < max => {
            let why = "the desired replica count is increasing faster than the maximum scale rate";
            (fastest, (true, "ScaleUpLimit", why))
        }
        () if wanted > max => {
            (max, (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count"))
        }
        () if wanted < current && wanted < slowest && slowest > min => {
            let why = "the desired replica count is decreasing faster than the maximum scale rate";
            (slowest, (true, "ScaleDownLimit", why))
        }
        () if wanted < min => {
            (min, (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count"))
        }
        () => (wanted, (false, "DesiredWithinRange", "the desired count is within the acceptable range")),
    }
}

/// Which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Rules as they are, or as they are assumed.
struct Assumed {
    rules: Rules,
    otherwise: Vec<Policy>,
}

impl Assumed {
    fn window(&self, otherwise: i64) -> i64 {
        self.rules.stabilization_window_seconds.unwrap_or(otherwise)
    }

    fn policies(&self) -> &[Policy] {
        self.rules.policies.as_deref().filter(|policies| !policies.is_empty()).unwrap_or(&self.otherwise)
    }

    /// How far the policies let it go.
    fn farthest(&self, current: i32, way: Way, history: &ScalingHistory, now: Timestamp) -> i32 {
        let select = self.rules.select_policy.as_deref().unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let limit = |policy: &Policy| {
            let lately = |list: &[(Timestamp, i32)]| -> i32 {
                let recent = list.iter().filter(|(at, _)| is_within(*at, policy.period_seconds, now));
                recent.map(|(_, change)| change).sum()
            };
            let start = current - lately(&history.ups) + lately(&history.downs);
            let share = f64::from(policy.value) / 100.0;
            match (policy.type_.as_str(), way) {
                ("Pods", Way::Up) => start.saturating_add(policy.value),
                ("Pods", Way::Down) => start - policy.value,
                (_, Way::Up) => (f64::from(start) * (1.0 + share)).ceil() as i32,
                (_, Way::Down) => (f64::from(start) * (1.0 - share)) as i32,
            }
        };
        let limits = self.policies().iter().map(limit);
        // The policy that lets it go farthest, or the one that lets it go least far.
        let farthest = if (way == Way::Up) == (select == "Max") { limits.max() } else { limits.min() };
        farthest.unwrap_or(current)
    }
}

fn up(autoscaler: &Autoscaler) -> Assumed {
    let rules = autoscaler.spec.behavior.clone().and_then(|behavior| behavior.scale_up).unwrap_or_default();
    Assumed { rules, otherwise: vec![policy("Percent", 100), policy("Pods", 4)] }
}

fn down(autoscaler: &Autoscaler) -> Assumed {
    let rules = autoscaler.spec.behavior.clone().and_then(|behavior| behavior.scale_down).unwrap_or_default();
    Assumed { rules, otherwise: vec![policy("Percent", 100)] }
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
    fn check(behavior: Value, history: [&[(i64, i32)]; 3], from: i32, wanted: i32, expect: (i32, &str, &str)) {
        let list = |list: &[(i64, i32)]| list.iter().map(|(ago, what)| (at(NOW - ago), *what)).collect();
        let history =
            ScalingHistory { recommendations: list(history[0]), ups: list(history[1]), downs: list(history[2]) };
        let got = pace(&autoscaler(behavior.clone()), &history, from, wanted, at(NOW));
        let limited = if got.limited.0 { got.limited.1 } else { "" };
        assert_eq!((got.replicas, got.able.0, limited), expect, "{behavior} from {from} to {wanted}");
    }

    #[test]
    fn without_a_word_it_doubles_and_waits_to_shrink() {
        let check = |recommendations: &[(i64, i32)], from: i32, wanted: i32, expect: (i32, &str, &str)| {
            check(Value::Null, [recommendations, &[], &[]], from, wanted, expect);
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
        assert_eq!((history.ups, history.downs), (vec![(at(NOW), 4)], vec![(at(NOW), 1)]));
    }
}
