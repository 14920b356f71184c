//! Counts that may be percentages: `maxSurge`, `maxUnavailable`, `minAvailable`. In: a number or a percentage. Out: the count
//! for a total. Pure.

use serde::Deserialize;

/// A number, or a percentage as text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum IntOrPercent {
    /// A number.
    Count(i32),
    /// A percentage: `25%`.
    Text(String),
}

/// How fractions are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To the next number above.
    Up,
    /// To the next number below.
    Down,
}

/// The parameters of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub max_surge: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
}

impl IntOrPercent {
    /// The count for a total. A text that is not a percentage counts as zero; the API server accepts only percentages.
    pub(crate) fn of(&self, total: i32, round: Round) -> i32 {
        match self {
            Self::Count(count) => *count,
            Self::Text(text) => {
                let percent =
                    text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()).unwrap_or_default();
                let hundredths = i64::from(total) * percent;
                let rounded = match round {
                    Round::Up => (hundredths + 99).div_euclid(100),
                    Round::Down => hundredths.div_euclid(100),
                };
                i32::try_from(rounded).unwrap_or(i32::MAX)
            }
        }
    }
}

/// Whether a count is zero, so that it is left out of a status as in Kubernetes.
pub(crate) fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_as_asked() {
        let check = |share: &str, total: i32, up: i32, down: i32| {
            let share: IntOrPercent = serde_json::from_str(share).unwrap();
            assert_eq!((share.of(total, Round::Up), share.of(total, Round::Down)), (up, down), "{share:?} of {total}");
        };
        check("3", 10, 3, 3);
        check("\"25%\"", 10, 3, 2);
        check("\"25%\"", 1, 1, 0);
        check("\"100%\"", 7, 7, 7);
        check("\"0%\"", 7, 0, 0);
        check("\"150%\"", 3, 5, 4);
        check("\"x\"", 3, 0, 0);
    }
}
