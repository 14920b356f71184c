//! How webhooks were called, for Prometheus, under the names of kube-apiserver. In: the end of each call. Out: families of a page.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use konverge_core::{MetricKind, MetricsPage};

use crate::metrics::{Durations, count, series};

/// The bounds of the durations, in seconds.
const BOUNDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// Codes above this one are counted as this one.
const HIGHEST_CODE: u16 = 600;

#[derive(Default)]
pub(crate) struct WebhookMetrics(Mutex<Families>);

#[derive(Default)]
struct Families {
    /// By name, type, operation and whether the request was refused.
    durations: BTreeMap<(String, &'static str, &'static str, bool), Durations>,
    /// By name, type, operation, code and whether the request was refused.
    requests: BTreeMap<(String, &'static str, &'static str, u16, bool), u64>,
    /// By name, type, operation, error type and code.
    rejections: BTreeMap<(String, &'static str, &'static str, &'static str, u16), u64>,
    /// By name and type.
    failed_open: BTreeMap<(String, &'static str), u64>,
    /// By name, type and operation.
    excluded: BTreeMap<(String, &'static str, &'static str), u64>,
}

impl WebhookMetrics {
    /// A webhook was called. `error` is the type of error if the request is refused.
    pub(super) fn called(
        &self,
        name: &str,
        ty: &'static str,
        operation: &'static str,
        took: Duration,
        code: u16,
        error: Option<&'static str>,
    ) {
        let (rejected, code) = (error.is_some(), code.min(HIGHEST_CODE));
        let mut families = self.0.lock();
        let durations = series(&mut families.durations, (name.to_owned(), ty, operation, rejected));
        if let Some(durations) = durations {
            durations.add(&BOUNDS, took);
        }
        count(&mut families.requests, (name.to_owned(), ty, operation, code, rejected));
        if let Some(error) = error {
            count(&mut families.rejections, (name.to_owned(), ty, operation, error, code));
        }
    }

    /// A webhook could not be asked, and was ignored.
    pub(super) fn failed_open(&self, name: &str, ty: &'static str) {
        count(&mut self.0.lock().failed_open, (name.to_owned(), ty));
    }

    /// The match conditions of a webhook did not match.
    pub(super) fn excluded(&self, name: &str, ty: &'static str, operation: &'static str) {
        count(&mut self.0.lock().excluded, (name.to_owned(), ty, operation));
    }

    /// Adds the families to a page, in their order by name.
    pub(crate) fn write(&self, page: &mut MetricsPage) {
        let families = self.0.lock();
        let mut excluded = page.family(
            "apiserver_admission_match_condition_exclusions_total",
            "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the \
             match condition and broken out for each kind containing matchConditions (webhook or policy), operation and \
             admission type (validate or admit).",
            MetricKind::Counter,
        );
        for ((name, ty, operation), count) in &families.excluded {
            let labels = [("kind", "webhook"), ("name", name), ("operation", operation), ("type", ty)];
            excluded.value(&labels, *count as f64);
        }
        let mut durations = page.family(
            "apiserver_admission_webhook_admission_duration_seconds",
            "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and \
             API resource and type (validate or admit).",
            MetricKind::Histogram,
        );
        for ((name, ty, operation, rejected), series) in &families.durations {
            let rejected = rejected.to_string();
            let labels = [("name", &**name), ("operation", operation), ("rejected", &rejected), ("type", ty)];
            series.write(&mut durations, &labels, &BOUNDS);
        }
        let mut failed_open = page.family(
            "apiserver_admission_webhook_fail_open_count",
            "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating \
             or admit).",
            MetricKind::Counter,
        );
        for ((name, ty), count) in &families.failed_open {
            failed_open.value(&[("name", name), ("type", ty)], *count as f64);
        }
        let mut rejections = page.family(
            "apiserver_admission_webhook_rejection_count",
            "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating \
             or admit) and operation. Additional labels specify an error type (calling_webhook_error or \
             apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if \
             the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or \
             equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
            MetricKind::Counter,
        );
        for ((name, ty, operation, error, code), count) in &families.rejections {
            let code = code.to_string();
            let labels = [
                ("error_type", *error),
                ("name", name),
                ("operation", operation),
                ("rejection_code", &code),
                ("type", ty),
            ];
            rejections.value(&labels, *count as f64);
        }
        let mut requests = page.family(
            "apiserver_admission_webhook_request_total",
            "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or \
             admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status \
             code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
            MetricKind::Counter,
        );
        for ((name, ty, operation, code, rejected), count) in &families.requests {
            let (code, rejected) = (code.to_string(), rejected.to_string());
            let labels =
                [("code", &*code), ("name", name), ("operation", operation), ("rejected", &rejected), ("type", ty)];
            requests.value(&labels, *count as f64);
        }
    }
}
