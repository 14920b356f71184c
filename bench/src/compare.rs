//! Two subjects measured in turn. In: a figure of each for every round. Out: how many times better the first is, with
//! the interval that a bootstrap over the rounds gives. No round is dropped.

use serde::Serialize;

use crate::widget::Random;

/// How often the rounds are drawn anew.
const DRAWS: usize = 2_000;

/// A value and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median.
    pub middle: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The median; zero of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// The median of `above / below`, round by round.
pub fn ratio(above: &[f64], below: &[f64]) -> Interval {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    let mut random = Random::new(ratios.len() as u64);
    let mut medians: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn: Vec<f64> = ratios.iter().map(|_| ratios[random.roll() as usize % ratios.len()]).collect();
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((DRAWS - 1) as f64 * share).round() as usize];
    Interval { middle: median(&ratios), low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, expect) in [(&[][..], 0.0), (&[3.0], 3.0), (&[3.0, 1.0], 2.0), (&[9.0, 1.0, 2.0], 2.0)] {
            assert_eq!(median(values), expect, "{values:?}");
        }
    }

    #[test]
    fn ratios_lie_within_their_rounds() {
        for (above, below, middle) in [
            (&[2.0, 2.0, 2.0][..], &[1.0, 1.0, 1.0][..], 2.0),
            (&[2.0, 4.0, 3.0], &[1.0, 1.0, 1.0], 3.0),
            (&[5.0], &[2.0], 2.5),
        ] {
            let found = ratio(above, below);
            let of = above.iter().zip(below).map(|(above, below)| above / below);
            let (least, most) = of.fold((f64::MAX, f64::MIN), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
            assert_eq!(found.middle, middle);
            assert!(least <= found.low && found.low <= middle && middle <= found.high && found.high <= most);
        }
    }
}
