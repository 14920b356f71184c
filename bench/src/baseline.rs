//! Figures of kube-apiserver with etcd, measured earlier with the same objects on a machine like this one (2 cores, 24 GiB).
//! They are not measured in the same run as ours, so the ratios are orders of magnitude, not results.

use serde::Serialize;

/// A range that was measured earlier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Baseline {
    /// The lowest figure.
    pub low: f64,
    /// The highest figure.
    pub high: f64,
}

const fn baseline(low: f64, high: f64) -> Baseline {
    Baseline { low, high }
}

/// From the start to `/readyz`, in ms.
pub(crate) const READY_MS: Baseline = baseline(3400.0, 4600.0);
/// CPU until then, of both processes, in ms.
pub(crate) const READY_CPU_MS: Baseline = baseline(2200.0, 2900.0);
/// Resident memory of both processes without objects, in MB.
pub(crate) const IDLE_MB: Baseline = baseline(318.0, 334.0);
/// Resident memory of both with 10,000 custom resources, in MB (at its peak).
pub(crate) const LOADED_10K_MB: Baseline = baseline(617.0, 617.0);
/// Growth of kube-apiserver alone for each of them, in bytes (at its peak).
pub(crate) const BYTES_PER_OBJECT: Baseline = baseline(26_000.0, 26_000.0);
/// CPU for a create with 64 clients, of both processes, in µs.
pub(crate) const CREATE_CPU_US: Baseline = baseline(1620.0, 1810.0);
/// CPU for a create with one client, of both processes, in µs.
pub(crate) const CREATE_CPU_ONE_US: Baseline = baseline(3300.0, 3300.0);
/// Creates a second with fsync, by clients.
pub(crate) const CREATE_RATE: [(usize, Baseline); 3] =
    [(1, baseline(124.0, 328.0)), (16, baseline(614.0, 614.0)), (64, baseline(499.0, 727.0))];
/// Median latency of a create with fsync and one client, in ms.
pub(crate) const CREATE_P50_MS: Baseline = baseline(2.6, 4.0);
/// The whole list of 10,000, in ms.
pub(crate) const LIST_MS: Baseline = baseline(465.0, 681.0);
/// CPU for each listed object, in µs.
pub(crate) const LIST_CPU_US: Baseline = baseline(36.0, 42.0);
/// CPU for each delivery to one of 100 watchers, with its share of the patch, in µs.
pub(crate) const DELIVERY_CPU_US: Baseline = baseline(34.0, 35.0);
/// From the patch to its delivery to 100 watchers (closed loop, so loaded harder than here), in ms.
pub(crate) const DELIVERY_P50_MS: Baseline = baseline(36.0, 50.0);
/// The same, 99th percentile.
pub(crate) const DELIVERY_P99_MS: Baseline = baseline(130.0, 192.0);
