//! What the audit log did, under the names of kube-apiserver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use konverge_core::{MetricKind, MetricsPage};
use parking_lot::Mutex;

use super::policy::Level;

/// The counters of the audit log. Without an audit log they stay at zero.
#[derive(Debug, Default)]
pub(crate) struct AuditMetrics {
    events: AtomicU64,
    levels: [AtomicU64; 4],
    lost: Mutex<BTreeMap<&'static str, u64>>,
    rejected: AtomicU64,
}

impl AuditMetrics {
    /// An event was made.
    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Relaxed);
    }

    /// The policy was asked about a request.
    pub(crate) fn level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Relaxed);
    }

    /// An event was lost, at this stage of its way.
    pub(crate) fn lost(&self, plugin: &'static str) {
        *self.lost.lock().entry(plugin).or_default() += 1;
    }

    #[cfg(test)]
    pub(crate) fn lost_by(&self, plugin: &str) -> u64 {
        self.lost.lock().get(plugin).copied().unwrap_or_default()
    }

    /// A request was refused because its event could not be written.
    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    pub(crate) fn write(&self, page: &mut MetricsPage) {
        let lost = self.lost.lock().clone();
        let help = "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.";
        let mut family = page.family("apiserver_audit_error_total", help, MetricKind::Counter);
        for (plugin, count) in lost {
            family.value(&[("plugin", plugin)], count as f64);
        }
        let help = "[ALPHA] Counter of audit events generated and sent to the audit backend.";
        let events = self.events.load(Relaxed) as f64;
        page.family("apiserver_audit_event_total", help, MetricKind::Counter).value(&[], events);
        let help = "[ALPHA] Counter of policy levels for audit events (1 per request).";
        let mut family = page.family("apiserver_audit_level_total", help, MetricKind::Counter);
        for (level, count) in Level::ALL.iter().zip(&self.levels) {
            match count.load(Relaxed) {
                0 => {}
                count => family.value(&[("level", level.name())], count as f64),
            }
        }
        let help = "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.";
        let rejected = self.rejected.load(Relaxed) as f64;
        page.family("apiserver_audit_requests_rejected_total", help, MetricKind::Counter).value(&[], rejected);
    }
}
