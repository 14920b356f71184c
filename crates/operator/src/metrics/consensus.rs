//! The figures of a Raft cluster, as one member has them. In: a function that is asked when the page is made. Out: samples.

use konverge_core::MetricSamples;

use super::{Engine, Metrics};

/// How a member and its cluster are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsensusMetrics {
    pub cluster: String,
    pub term: u64,
    pub voters: usize,
    pub learners: usize,
    /// Indices of the log: its end, what was carried out, what a snapshot has, what was removed.
    pub indices: [u64; INDICES.len()],
    pub bytes: u64,
}

/// What the indices are of.
pub(super) const INDICES: [&str; 4] = ["log", "applied", "snapshot", "purged"];

pub(super) type Source = Box<dyn Fn() -> ConsensusMetrics + Send + Sync>;

impl Metrics {
    /// Shows the figures that this function tells.
    #[cfg_attr(not(any(test, feature = "ha")), allow(dead_code, reason = "without Raft there are none"))]
    pub(crate) fn consensus_from(&self, source: impl Fn() -> ConsensusMetrics + Send + Sync + 'static) {
        self.0.engine.consensus.write().push(Box::new(source));
    }
}

pub(super) fn term(engine: &Engine, out: &mut MetricSamples<'_>) {
    each(engine, |it| out.value(&[("cluster", &it.cluster)], it.term as f64));
}

pub(super) fn members(engine: &Engine, out: &mut MetricSamples<'_>) {
    each(engine, |it| {
        for (role, count) in [("voter", it.voters), ("learner", it.learners)] {
            out.value(&[("cluster", &it.cluster), ("role", role)], count as f64);
        }
    });
}

pub(super) fn indices(engine: &Engine, out: &mut MetricSamples<'_>) {
    each(engine, |it| {
        for (of, index) in INDICES.iter().zip(it.indices) {
            out.value(&[("cluster", &it.cluster), ("of", of)], index as f64);
        }
    });
}

pub(super) fn bytes(engine: &Engine, out: &mut MetricSamples<'_>) {
    each(engine, |it| out.value(&[("cluster", &it.cluster)], it.bytes as f64));
}

fn each(engine: &Engine, mut each: impl FnMut(&ConsensusMetrics)) {
    engine.consensus.read().iter().for_each(|source| each(&source()));
}
