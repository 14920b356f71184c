//! How conversion webhooks were called, for Prometheus, under the names of kube-apiserver. In: the end of each conversion. Out: families
//! of a page.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use konverge_core::{MetricKind, MetricsPage};

use super::ConversionFailure;
use crate::metrics::{Durations, count, series};

/// The bounds of the durations of calls, in seconds.
const CALL_BOUNDS: [f64; 15] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// The bounds of the durations by definition, in seconds: each is twice the one before.
const DEFINITION_BOUNDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

#[derive(Default)]
pub(crate) struct ConversionMetrics(Mutex<Families>);

#[derive(Default)]
struct Families {
    /// By result and type of failure.
    calls: BTreeMap<(&'static str, &'static str), Durations>,
    requests: BTreeMap<(&'static str, &'static str), u64>,
    /// By the name of the definition, the version before, the version after, and whether it succeeded.
    definitions: BTreeMap<(String, String, String, bool), Durations>,
}

impl ConversionMetrics {
    /// Objects of a definition were converted, or not.
    pub(super) fn converted(
        &self,
        definition: &str,
        (from, to): (&str, &str),
        took: Duration,
        failure: Option<ConversionFailure>,
    ) {
        let outcome = match failure {
            None => ("success", ""),
            Some(failure) => ("failure", failure.word()),
        };
        let mut families = self.0.lock();
        count(&mut families.requests, outcome);
        if let Some(durations) = series(&mut families.calls, outcome) {
            durations.add(&CALL_BOUNDS, took);
        }
        let key = (definition.to_owned(), from.to_owned(), to.to_owned(), failure.is_none());
        if let Some(durations) = series(&mut families.definitions, key) {
            durations.add(&DEFINITION_BOUNDS, took);
        }
    }

    /// Adds the families to a page, in their order by name.
    pub(crate) fn write(&self, page: &mut MetricsPage) {
        let families = self.0.lock();
        let mut calls = page.family(
            "apiserver_conversion_webhook_duration_seconds",
            "[ALPHA] Conversion webhook request latency",
            MetricKind::Histogram,
        );
        for ((result, failure), durations) in &families.calls {
            durations.write(&mut calls, &[("failure_type", failure), ("result", result)], &CALL_BOUNDS);
        }
        let mut requests = page.family(
            "apiserver_conversion_webhook_request_total",
            "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
            MetricKind::Counter,
        );
        for ((result, failure), count) in &families.requests {
            requests.value(&[("failure_type", failure), ("result", result)], *count as f64);
        }
        let mut definitions = page.family(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "[ALPHA] CRD webhook conversion duration in seconds",
            MetricKind::Histogram,
        );
        for ((name, from, to, succeeded), durations) in &families.definitions {
            let succeeded = succeeded.to_string();
            let labels = [("crd_name", &**name), ("from_version", from), ("succeeded", &succeeded), ("to_version", to)];
            durations.write(&mut definitions, &labels, &DEFINITION_BOUNDS);
        }
    }
}
