//! What the server did, for Prometheus. In: how each request ended. Out: a page under the names that kube-apiserver has. A request
//! costs one look into a table; all else happens when the page is made.

mod series;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};
use http::request::Parts;
use http::{Method, header};
use parking_lot::Mutex;

use konverge_core::{MetricKind, MetricLabels, MetricsPage, metric_number};

use crate::body_memory::BodyMemory;
use crate::in_flight::InFlight;
use crate::request::{ObjectPath, Query};

pub(crate) use series::{Durations, count, series};

/// The bounds of request durations, in seconds.
const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// How many series there may be: some thousand kinds with all their verbs. Requests for kinds beyond that are not counted, so
/// that a client which creates definitions without end does not fill the memory with their names.
const MAX_SERIES: usize = 20_000;

/// What a request was, as the labels of its series have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestLabels<'a> {
    group: &'a str,
    resource: &'a str,
    scope: &'static str,
    subresource: &'a str,
    verb: &'static str,
    version: &'a str,
    dry_run: &'static str,
}

impl<'a> RequestLabels<'a> {
    /// The labels of a request about objects that the registry knows.
    pub(crate) fn of(parts: &Parts, target: &'a ObjectPath, query: &Query) -> Self {
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let scope = match (&target.name, &target.namespace) {
            _ if parts.method == Method::POST => "resource",
            (Some(_), _) => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        };
        let content_type = || parts.headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        let verb = match parts.method {
            _ if matches!(subresource, "attach" | "exec" | "log" | "portforward" | "proxy") => "CONNECT",
            Method::GET | Method::HEAD if target.watch || query.flag("watch") => "WATCH",
            Method::GET | Method::HEAD if scope == "resource" => "GET",
            Method::GET | Method::HEAD => "LIST",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH if content_type() == Some(b"application/apply-patch+yaml") => "APPLY",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let dry_run = if query.dry_run() { "All" } else { "" };
        let (group, version, resource) = (&target.group, &target.version, &target.resource);
        Self { group, resource, scope, subresource, verb, version, dry_run }
    }

    /// The labels of a probe such as `/readyz`.
    pub(crate) fn of_probe(path: &'static str) -> Self {
        Self { group: "", resource: "", scope: "", subresource: path, verb: "GET", version: "", dry_run: "" }
    }
}

/// The same, kept.
#[derive(Debug)]
struct KeptLabels {
    texts: [Box<str>; 4],
    scope: &'static str,
    verb: &'static str,
    dry_run: &'static str,
}

impl KeptLabels {
    fn of(labels: RequestLabels<'_>) -> Self {
        let RequestLabels { group, resource, scope, subresource, verb, version, dry_run } = labels;
        Self { texts: [group, resource, subresource, version].map(Box::from), scope, verb, dry_run }
    }

    fn labels(&self) -> RequestLabels<'_> {
        let [group, resource, subresource, version] = self.texts.each_ref().map(|text| &**text);
        RequestLabels {
            group,
            resource,
            scope: self.scope,
            subresource,
            verb: self.verb,
            version,
            dry_run: self.dry_run,
        }
    }
}

/// The requests of the same labels.
#[derive(Debug)]
struct Series {
    labels: KeptLabels,
    /// By their codes, which are few.
    codes: Vec<(u16, u64)>,
    /// How many took at most as long as each bound, and longer than the one before; the last is for all others.
    took: [u64; BOUNDS.len() + 1],
    seconds: f64,
    /// Those that the server refused to protect itself.
    refused: u64,
    running: Arc<AtomicI64>,
}

/// The requests of a server.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    hasher: DefaultHashBuilder,
    series: Mutex<HashTable<Series>>,
}

impl RequestMetrics {
    /// A request was answered.
    pub(crate) fn answered(&self, labels: RequestLabels<'_>, code: u16, took: Duration) {
        self.with(labels, |series| {
            match series.codes.iter_mut().find(|(known, _)| *known == code) {
                Some((_, count)) => *count += 1,
                None => series.codes.push((code, 1)),
            }
            let seconds = took.as_secs_f64();
            series.took[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
            series.seconds += seconds;
            if code == 429 {
                series.refused += 1;
            }
        });
    }

    /// Counts a request that runs long until the guard is dropped, which also counts it as answered.
    pub(crate) fn running(self: &Arc<Self>, labels: RequestLabels<'_>, code: u16, began: Instant) -> Running {
        let running = self.with(labels, |series| series.running.clone()).unwrap_or_default();
        running.fetch_add(1, Relaxed);
        Running { metrics: self.clone(), labels: KeptLabels::of(labels), code, began, running }
    }

    /// Finds or adds the series of these labels.
    fn with<T>(&self, labels: RequestLabels<'_>, act: impl FnOnce(&mut Series) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(labels);
        let mut table = self.series.lock();
        if let Some(series) = table.find_mut(hash, |series| series.labels.labels() == labels) {
            return Some(act(series));
        }
        if table.len() >= MAX_SERIES {
            return None;
        }
        let series = Series {
            labels: KeptLabels::of(labels),
            codes: Vec::new(),
            took: [0; BOUNDS.len() + 1],
            seconds: 0.0,
            refused: 0,
            running: Arc::default(),
        };
        let mut added = table.insert_unique(hash, series, |series| self.hasher.hash_one(series.labels.labels()));
        Some(act(added.get_mut()))
    }

    /// The page, in the order of kube-apiserver: families and their samples by name.
    pub(crate) fn page(
        &self,
        in_flight: &InFlight,
        bodies: &BodyMemory,
        now: Instant,
        webhooks: impl FnOnce(&mut MetricsPage),
    ) -> String {
        let mut page = MetricsPage::default();
        webhooks(&mut page);
        let mut peaks = page.family(
            "apiserver_current_inflight_requests",
            "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in \
             last second.",
            MetricKind::Gauge,
        );
        for (kind, peak) in in_flight.peaks(now) {
            peaks.value(&[("request_kind", kind)], peak as f64);
        }
        let table = self.series.lock();
        let mut series: Vec<&Series> = table.iter().collect();
        series.sort_by_key(|series| series.labels.labels());
        let mut running = page.family(
            "apiserver_longrunning_requests",
            "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
             scope and component. Not all requests are tracked this way.",
            MetricKind::Gauge,
        );
        for series in &series {
            let labels = series.labels.labels();
            if matches!(labels.verb, "WATCH" | "CONNECT") {
                labelled(labels, None, false, |labels| {
                    running.value(labels, series.running.load(Relaxed) as f64);
                });
            }
        }
        let mut durations = page.family(
            "apiserver_request_duration_seconds",
            "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
             subresource, scope and component.",
            MetricKind::Histogram,
        );
        for series in series.iter().filter(|series| !series.codes.is_empty()) {
            let mut up_to = 0;
            let buckets: Vec<(String, u64)> = BOUNDS
                .iter()
                .zip(series.took)
                .map(|(bound, took)| {
                    up_to += took;
                    (metric_number(*bound), up_to)
                })
                .collect();
            let count = series.took.iter().sum();
            labelled(series.labels.labels(), None, true, |labels| {
                durations.histogram(labels, &buckets, count, series.seconds);
            });
        }
        let mut refused = page.family(
            "apiserver_request_terminations_total",
            "[ALPHA] Number of requests which apiserver terminated in self-defense.",
            MetricKind::Counter,
        );
        for series in series.iter().filter(|series| series.refused > 0) {
            labelled(series.labels.labels(), Some("429"), false, |labels| refused.value(labels, series.refused as f64));
        }
        let mut total = page.family(
            "apiserver_request_total",
            "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
             scope, component, and HTTP response code.",
            MetricKind::Counter,
        );
        for series in &series {
            for (code, count) in &series.codes {
                let code = code.to_string();
                labelled(series.labels.labels(), Some(&code), true, |labels| total.value(labels, *count as f64));
            }
        }
        page.family(
            "konverge_request_bodies_refused_total",
            "Request bodies that were refused because others took all memory that there is for them.",
            MetricKind::Counter,
        )
        .value(&[], bodies.refused() as f64);
        page.family(
            "konverge_request_body_bytes",
            "Bytes of request bodies in memory, from their arrival until their requests are answered.",
            MetricKind::Gauge,
        )
        .value(&[], bodies.used() as f64);
        let mut waiting = page.family(
            "konverge_requests_lent_to_webhooks",
            "Requests that have asked a webhook and are not answered yet. They take no place among the inflight requests.",
            MetricKind::Gauge,
        );
        for (kind, lent) in in_flight.lent() {
            waiting.value(&[("request_kind", kind)], lent as f64);
        }
        page.finish()
    }
}

/// Calls `write` with the labels of a sample, in their order by name.
fn labelled(labels: RequestLabels<'_>, code: Option<&str>, dry_run: bool, write: impl FnOnce(MetricLabels<'_>)) {
    let RequestLabels { group, resource, scope, subresource, verb, version, dry_run: value } = labels;
    let mut all = Vec::with_capacity(9);
    all.extend(code.map(|code| ("code", code)));
    all.push(("component", "apiserver"));
    all.extend(dry_run.then_some(("dry_run", value)));
    all.extend([("group", group), ("resource", resource), ("scope", scope), ("subresource", subresource)]);
    all.extend([("verb", verb), ("version", version)]);
    write(&all);
}

/// A request that runs long.
#[derive(Debug)]
pub(crate) struct Running {
    metrics: Arc<RequestMetrics>,
    labels: KeptLabels,
    code: u16,
    began: Instant,
    running: Arc<AtomicI64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Relaxed);
        self.metrics.answered(self.labels.labels(), self.code, self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::InFlightLimits;
    use crate::request::{Endpoint, endpoint};

    /// The verb, scope and subresource of a request.
    fn check(request: &str, expect: (&str, &str, &str)) {
        let mut words = request.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let builder = http::Request::builder().method(next()).uri(next());
        let builder = match next() {
            "" => builder,
            content_type => builder.header("content-type", content_type),
        };
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        let Endpoint::Objects(target) = endpoint(parts.uri.path()) else { panic!("{request} is about objects") };
        let labels = RequestLabels::of(&parts, &target, &Query::parse(parts.uri.query()));
        assert_eq!((labels.verb, labels.scope, labels.subresource), expect, "{request}");
    }

    #[test]
    fn labels() {
        check("GET /api/v1/pods", ("LIST", "cluster", ""));
        check("GET /api/v1/namespaces/a/pods", ("LIST", "namespace", ""));
        check("GET /api/v1/namespaces/a/pods?watch=1", ("WATCH", "namespace", ""));
        check("GET /api/v1/namespaces/a/pods/p", ("GET", "resource", ""));
        check("HEAD /api/v1/namespaces/a/pods/p/status", ("GET", "resource", "status"));
        check("POST /api/v1/namespaces/a/pods", ("POST", "resource", ""));
        check("PATCH /api/v1/namespaces/a/pods/p application/merge-patch+json", ("PATCH", "resource", ""));
        check("PATCH /api/v1/namespaces/a/pods/p application/apply-patch+yaml", ("APPLY", "resource", ""));
        check("DELETE /api/v1/namespaces/a/pods", ("DELETE", "namespace", ""));
        check("GET /api/v1/namespaces/a/pods/p/log?follow=true", ("CONNECT", "resource", "log"));
        check("BREW /api/v1/namespaces/a/pods/p", ("other", "resource", ""));
    }

    #[test]
    fn the_page() {
        let now = Instant::now();
        let metrics: Arc<RequestMetrics> = Arc::default();
        let target = ObjectPath {
            version: "v1".into(),
            resource: "pods".into(),
            namespace: Some("a".into()),
            ..ObjectPath::default()
        };
        let (parts, ()) = http::Request::get("/").body(()).unwrap().into_parts();
        let listed = RequestLabels::of(&parts, &target, &Query::default());
        metrics.answered(listed, 200, Duration::from_millis(10));
        metrics.answered(listed, 200, Duration::from_secs(100));
        metrics.answered(listed, 429, Duration::ZERO);
        metrics.answered(RequestLabels::of_probe("/readyz"), 200, Duration::ZERO);
        let watched = RequestLabels { verb: "WATCH", ..listed };
        let (one, other) = (metrics.running(watched, 200, now), metrics.running(watched, 200, now));
        drop(other);
        let page = || metrics.page(&InFlight::new(InFlightLimits::default(), now), &BodyMemory::default(), now, |_| {});
        let all = page();
        let listed = "group=\"\",resource=\"pods\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"";
        let watched = listed.replace("LIST", "WATCH");
        for line in [
            "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0".to_owned(),
            format!("apiserver_longrunning_requests{{component=\"apiserver\",{watched}}} 1"),
            format!("apiserver_request_total{{code=\"200\",component=\"apiserver\",dry_run=\"\",{listed}}} 2"),
            format!("apiserver_request_total{{code=\"429\",component=\"apiserver\",dry_run=\"\",{listed}}} 1"),
            format!("apiserver_request_total{{code=\"200\",component=\"apiserver\",dry_run=\"\",{watched}}} 1"),
            format!("apiserver_request_terminations_total{{code=\"429\",component=\"apiserver\",{listed}}} 1"),
            format!(
                "apiserver_request_duration_seconds_bucket{{component=\"apiserver\",dry_run=\"\",{listed},le=\"0.025\"}} 2"
            ),
            format!(
                "apiserver_request_duration_seconds_bucket{{component=\"apiserver\",dry_run=\"\",{listed},le=\"60\"}} 2"
            ),
            format!(
                "apiserver_request_duration_seconds_bucket{{component=\"apiserver\",dry_run=\"\",{listed},le=\"+Inf\"}} 3"
            ),
            "konverge_request_body_bytes 0".to_owned(),
        ] {
            assert!(all.lines().any(|known| known == line), "{line} in\n{all}");
        }
        drop(one);
        assert!(page().contains(&format!("apiserver_longrunning_requests{{component=\"apiserver\",{watched}}} 0")));
    }
}
