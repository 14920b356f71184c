//! What the real thing was measured to need: kube-apiserver with etcd on a machine like this one (2 cores, 24 GiB), run
//! earlier with the same objects. Never measured here and never together with ours, so the ratios are orders of
//! magnitude, not results.

use serde::Serialize;

/// A range that was measured earlier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Anchor {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

const fn anchor(low: f64, high: f64) -> Anchor {
    Anchor { low, high }
}

/// From the start to `/readyz`, in ms.
pub const READY_MS: Anchor = anchor(3400.0, 4600.0);
/// CPU until then, of both processes, in ms.
pub const READY_CPU_MS: Anchor = anchor(2200.0, 2900.0);
/// Resident memory of both processes without objects, in MB.
pub const IDLE_MB: Anchor = anchor(318.0, 334.0);
/// Resident memory of both with 10,000 custom resources, in MB (at its peak).
pub const LOADED_10K_MB: Anchor = anchor(617.0, 617.0);
/// Growth of kube-apiserver alone for each of them, in bytes (at its peak).
pub const BYTES_PER_OBJECT: Anchor = anchor(26_000.0, 26_000.0);
/// CPU for a create with 64 clients, of both processes, in µs.
pub const CREATE_CPU_US: Anchor = anchor(1620.0, 1810.0);
/// CPU for a create with one client, of both processes, in µs.
pub const CREATE_CPU_ONE_US: Anchor = anchor(3300.0, 3300.0);
/// Creates a second with fsync, by clients.
pub const CREATE_RATE: [(usize, Anchor); 3] =
    [(1, anchor(124.0, 328.0)), (16, anchor(614.0, 614.0)), (64, anchor(499.0, 727.0))];
/// Median latency of a create with fsync and one client, in ms.
pub const CREATE_P50_MS: Anchor = anchor(2.6, 4.0);
/// The whole list of 10,000, in ms.
pub const LIST_MS: Anchor = anchor(465.0, 681.0);
/// CPU for each listed object, in µs.
pub const LIST_CPU_US: Anchor = anchor(36.0, 42.0);
/// CPU for each delivery to one of 100 watchers, with its share of the patch, in µs.
pub const DELIVERY_CPU_US: Anchor = anchor(34.0, 35.0);
/// From the patch to its delivery to 100 watchers (closed loop, so loaded harder than here), in ms.
pub const DELIVERY_P50_MS: Anchor = anchor(36.0, 50.0);
/// The same, 99th percentile.
pub const DELIVERY_P99_MS: Anchor = anchor(130.0, 192.0);
