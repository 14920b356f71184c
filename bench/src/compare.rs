//! Compares two implementations that were measured alternately. In: a figure of each for every round. Out: the ratio, with a
//! confidence interval from a bootstrap over the rounds. No round is dropped.

use serde::Serialize;

use crate::widget::Random;

/// The number of bootstrap samples.
const SAMPLES: usize = 2_000;

/// A median with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// The median.
    pub middle: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The median; zero if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// The median of `above / below` over all rounds.
pub(crate) fn ratio(above: &[f64], below: &[f64]) -> Interval {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    let mut random = Random::new(ratios.len() as u64);
    let mut medians: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let drawn: Vec<f64> = ratios.iter().map(|_| ratios[random.next_u64() as usize % ratios.len()]).collect();
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((SAMPLES - 1) as f64 * share).round() as usize];
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
