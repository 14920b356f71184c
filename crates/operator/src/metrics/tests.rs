//! The page is parsed back: every test looks at what Prometheus would see.

mod exposition;

use std::time::{Duration, Instant};

use konverge_core::ObjectKey;
use konverge_runtime::{Priority, Queue, QueueOptions, Wakeup};

use super::*;
use exposition::{Read, read};
use konverge_core::metric_number;

#[test]
fn every_family_has_its_name_type_and_labels() {
    let metrics = Metrics::new();
    metrics.controller("webapp");
    let kind = metrics.kind("example.com", "WebApp");
    kind.added("shop", "Ready");
    metrics.caches_from(|each| each("WebApp", "example.com", CacheMetrics::default()));
    metrics.requested(&http::Method::GET, "10.0.0.1:443", Some(200), Duration::from_millis(1));
    metrics.webhook("/validate").reviewed("CREATE", "denied");
    metrics.webhook_certificates(Some(std::time::SystemTime::now()), None);
    metrics.leader_election("web-lock", konverge_runtime::Leadership::always("web-0"));
    metrics.consensus_from(ConsensusMetrics::default);
    let (shards, seats) = konverge_runtime::Shards::vacant(8, "web-0", 0);
    let term = konverge_runtime::Term::of_lease("shop", "web-shard-3-of-8", 5, &"web-0".into());
    seats.lead(3, term, tokio::time::Instant::now() + std::time::Duration::from_secs(10));
    metrics.shards(shards);
    let read = read(&metrics.page());
    let expected = [
        ("controller_runtime_reconcile_total", "counter", "controller result"),
        ("controller_runtime_reconcile_errors_total", "counter", "controller"),
        ("controller_runtime_terminal_reconcile_errors_total", "counter", "controller"),
        ("controller_runtime_reconcile_panics_total", "counter", "controller"),
        ("controller_runtime_reconcile_timeouts_total", "counter", "controller"),
        ("controller_runtime_reconcile_time_seconds", "histogram", "controller"),
        ("controller_runtime_max_concurrent_reconciles", "gauge", "controller"),
        ("controller_runtime_active_workers", "gauge", "controller"),
        ("controller_reconcile_total", "counter", "controller result"),
        ("controller_reconcile_errors_total", "counter", "controller"),
        ("controller_reconcile_duration_seconds", "histogram", "controller"),
        ("controller_reconciliations_total", "counter", "controller result"),
        ("controller_reconciliation_duration_seconds", "histogram", "controller"),
        ("workqueue_depth", "gauge", "controller name priority"),
        ("workqueue_adds_total", "counter", "controller name"),
        ("workqueue_retries_total", "counter", "controller name"),
        ("workqueue_queue_duration_seconds", "histogram", "controller name"),
        ("workqueue_work_duration_seconds", "histogram", "controller name"),
        ("workqueue_unfinished_work_seconds", "gauge", "controller name"),
        ("workqueue_longest_running_processor_seconds", "gauge", "controller name"),
        ("rest_client_requests_total", "counter", "code host method"),
        ("rest_client_request_duration_seconds", "histogram", "host verb"),
        ("controller_runtime_webhook_requests_total", "counter", "code webhook"),
        ("controller_runtime_webhook_latency_seconds", "histogram", "webhook"),
        ("controller_runtime_webhook_requests_in_flight", "gauge", "webhook"),
        ("webhook_requests_total", "counter", "operation verdict webhook"),
        ("webhook_duration_seconds", "histogram", "webhook"),
        ("konverge_webhook_certificate_expiry_timestamp_seconds", "gauge", "certificate"),
        ("resource_count", "gauge", "group kind namespace"),
        ("resource_phase_count", "gauge", "group kind namespace phase"),
        ("event_total", "counter", "severity type"),
        ("leader_election_master_status", "gauge", "name"),
        ("leader_election_status", "gauge", "name"),
        ("konverge_leader_election_term", "gauge", "name"),
        ("konverge_raft_term", "gauge", "cluster"),
        ("konverge_raft_members", "gauge", "cluster role"),
        ("konverge_raft_index", "gauge", "cluster of"),
        ("konverge_raft_state_bytes", "gauge", "cluster"),
        ("konverge_shards", "gauge", ""),
        ("konverge_shards_held", "gauge", ""),
        ("konverge_shard_term", "gauge", "shard"),
        ("konverge_shard_instances", "gauge", ""),
        ("konverge_cache_objects", "gauge", "group kind"),
        ("konverge_cache_bytes", "gauge", "group kind"),
        ("konverge_watch_restarts_total", "counter", "group kind"),
        ("konverge_reconcile_gave_up_total", "counter", "controller"),
        ("process_cpu_seconds_total", "counter", ""),
        ("process_resident_memory_bytes", "gauge", ""),
        ("process_virtual_memory_bytes", "gauge", ""),
        ("process_start_time_seconds", "gauge", ""),
        ("process_open_fds", "gauge", ""),
        ("process_max_fds", "gauge", ""),
    ];
    for (name, word, labels) in expected {
        if name.starts_with("process_") && !cfg!(target_os = "linux") {
            continue;
        }
        assert_eq!(read.types.get(name).map(String::as_str), Some(word), "{name}");
        assert_eq!(
            Vec::from_iter(&read.labels[name]).iter().map(|label| label.as_str()).collect::<Vec<_>>().join(" "),
            labels,
            "{name}"
        );
    }
    assert_eq!(expected.map(|(name, ..)| name).as_slice(), families::TABLE.iter().map(|f| f.name).collect::<Vec<_>>());
}

#[test]
fn a_controller_is_shown_at_zero_before_it_did_anything() {
    let metrics = Metrics::new();
    metrics.controller("webapp").set_max_concurrent(10);
    let read = read(&metrics.page());
    let zero = |series: &str| assert_eq!(read.get(series), 0.0, "{series}");
    for result in ["success", "requeue", "requeue_after", "error"] {
        zero(&format!("controller_runtime_reconcile_total{{controller=webapp,result={result}}}"));
        zero(&format!("controller_reconcile_total{{controller=webapp,result={result}}}"));
    }
    for result in ["success", "error"] {
        zero(&format!("controller_reconciliations_total{{controller=webapp,result={result}}}"));
    }
    for name in [
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "controller_runtime_reconcile_panics_total",
        "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_reconcile_time_seconds_count",
        "controller_runtime_reconcile_time_seconds_sum",
        "controller_runtime_active_workers",
        "controller_reconcile_errors_total",
        "controller_reconcile_duration_seconds_count",
        "controller_reconciliation_duration_seconds_count",
        "konverge_reconcile_gave_up_total",
    ] {
        zero(&format!("{name}{{controller=webapp}}"));
    }
    for name in [
        "workqueue_adds_total",
        "workqueue_retries_total",
        "workqueue_queue_duration_seconds_count",
        "workqueue_work_duration_seconds_count",
        "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds",
    ] {
        zero(&format!("{name}{{controller=webapp,name=webapp}}"));
    }
    zero("workqueue_depth{controller=webapp,name=webapp,priority=0}");
    for labels in [
        "severity=Info,type=Normal",
        "severity=Warning,type=Warning",
        "severity=Error,type=Warning",
        "severity=Critical,type=Warning",
    ] {
        zero(&format!("event_total{{{labels}}}"));
    }
    assert_eq!(read.get("controller_runtime_max_concurrent_reconciles{controller=webapp}"), 10.0);
}

#[test]
fn bounds_are_called_as_go_calls_them() {
    let metrics = Metrics::new();
    metrics.controller("webapp");
    let page = metrics.page();
    let check = |family: &str, expect: &[&str]| {
        let bounds: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{family}_bucket{{")))
            .map(|line| line.split_once("le=\"").unwrap().1.split_once('"').unwrap().0)
            .collect();
        assert_eq!(bounds, expect, "{family}");
    };
    let common = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
    check("controller_reconcile_duration_seconds", &common);
    check("controller_reconciliation_duration_seconds", &common);
    let queue = [
        "1e-08",
        "1e-07",
        "1e-06",
        "9.999999999999999e-06",
        "9.999999999999999e-05",
        "0.001",
        "0.01",
        "0.1",
        "1",
        "10",
        "100",
        "1000",
        "+Inf",
    ];
    check("workqueue_queue_duration_seconds", &queue);
    check("workqueue_work_duration_seconds", &queue);
    let reconcile = "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75 2 2.5 \
                     3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 +Inf";
    check("controller_runtime_reconcile_time_seconds", &reconcile.split(' ').collect::<Vec<_>>());
}

#[test]
fn reconciles_are_shown_under_all_names() {
    let metrics = Metrics::new();
    let controller = metrics.controller("webapp");
    for (outcome, times) in [
        (ReconcileResult::Success, 1),
        (ReconcileResult::RequeueAfter, 3),
        (ReconcileResult::Error, 4),
        (ReconcileResult::TerminalError, 5),
        (ReconcileResult::Panic, 6),
        (ReconcileResult::Timeout, 7),
    ] {
        // 5 ms is within the bucket of 5 ms.
        (0..times).for_each(|_| controller.reconciled(outcome, Duration::from_millis(5)));
    }
    controller.reconciled(ReconcileResult::Success, Duration::from_micros(5_001));
    let read = read(&metrics.page());
    let check = |series: &str, expect: f64| assert_eq!(read.get(series), expect, "{series}");
    for family in ["controller_runtime_reconcile_total", "controller_reconcile_total"] {
        check(&format!("{family}{{controller=webapp,result=success}}"), 2.0);
        check(&format!("{family}{{controller=webapp,result=requeue}}"), 0.0);
        check(&format!("{family}{{controller=webapp,result=requeue_after}}"), 3.0);
        check(&format!("{family}{{controller=webapp,result=error}}"), 22.0);
    }
    check("controller_reconciliations_total{controller=webapp,result=success}", 5.0);
    check("controller_reconciliations_total{controller=webapp,result=error}", 22.0);
    check("controller_runtime_reconcile_errors_total{controller=webapp}", 22.0);
    check("controller_runtime_terminal_reconcile_errors_total{controller=webapp}", 5.0);
    check("controller_runtime_reconcile_panics_total{controller=webapp}", 6.0);
    check("controller_runtime_reconcile_timeouts_total{controller=webapp}", 7.0);
    for family in [
        "controller_runtime_reconcile_time_seconds",
        "controller_reconcile_duration_seconds",
        "controller_reconciliation_duration_seconds",
    ] {
        check(&format!("{family}_bucket{{controller=webapp,le=0.005}}"), 26.0);
        check(&format!("{family}_bucket{{controller=webapp,le=0.01}}"), 27.0);
        check(&format!("{family}_sum{{controller=webapp}}"), 0.135_001);
    }
    check("workqueue_work_duration_seconds_bucket{controller=webapp,le=0.001,name=webapp}", 0.0);
    check("workqueue_work_duration_seconds_bucket{controller=webapp,le=0.01,name=webapp}", 27.0);
}

#[test]
fn the_queue_and_its_workers() {
    let metrics = Metrics::new();
    let controller = metrics.controller("webapp");
    let queue = Arc::new(Queue::<()>::new(&QueueOptions::default()));
    for name in ["a", "b", "c"] {
        let _ = queue.add(&ObjectKey::new(None, name), Wakeup::new(Priority::Change, ()));
    }
    let weak = Arc::downgrade(&queue);
    controller.queue_from(Box::new(move || weak.upgrade().map(|queue| queue.stats())));
    controller.dequeued(Duration::from_micros(50));
    let now = Instant::now();
    let workers = [controller.worker(), controller.worker(), controller.worker()];
    workers[0].busy(now);
    workers[1].busy(now + Duration::from_secs(3));
    let later = now + Duration::from_secs(5);
    let page = read(&metrics.page_at(later));
    let check = |page: &Read, series: &str, expect: f64| assert_eq!(page.get(series), expect, "{series}");
    check(&page, "workqueue_adds_total{controller=webapp,name=webapp}", 3.0);
    check(&page, "workqueue_retries_total{controller=webapp,name=webapp}", 0.0);
    check(
        &page,
        "workqueue_queue_duration_seconds_bucket{controller=webapp,le=9.999999999999999e-05,name=webapp}",
        1.0,
    );
    check(
        &page,
        "workqueue_queue_duration_seconds_bucket{controller=webapp,le=9.999999999999999e-06,name=webapp}",
        0.0,
    );
    let depths = page.series.iter().filter(|(series, _)| series.starts_with("workqueue_depth{"));
    assert_eq!(depths.map(|(_, depth)| depth).sum::<f64>(), 3.0);
    check(&page, "controller_runtime_active_workers{controller=webapp}", 2.0);
    check(&page, "workqueue_unfinished_work_seconds{controller=webapp,name=webapp}", 7.0);
    check(&page, "workqueue_longest_running_processor_seconds{controller=webapp,name=webapp}", 5.0);
    workers[0].idle();
    let page = read(&metrics.page_at(later));
    check(&page, "controller_runtime_active_workers{controller=webapp}", 1.0);
    check(&page, "workqueue_longest_running_processor_seconds{controller=webapp,name=webapp}", 2.0);
    // A worker that is dropped does not stay busy.
    drop(workers);
    check(&read(&metrics.page_at(later)), "controller_runtime_active_workers{controller=webapp}", 0.0);
    // The counter stays when the queue is dropped, and the same name is the same controller.
    drop(queue);
    check(&read(&metrics.page()), "workqueue_depth{controller=webapp,name=webapp,priority=0}", 0.0);
    metrics.controller("webapp").dequeued(Duration::from_micros(50));
    let page = read(&metrics.page());
    check(&page, "workqueue_adds_total{controller=webapp,name=webapp}", 3.0);
    check(&page, "workqueue_queue_duration_seconds_count{controller=webapp,name=webapp}", 2.0);
}

#[test]
fn kinds() {
    let metrics = Metrics::new();
    let kind = metrics.kind("example.com", "WebApp");
    kind.added("shop", "Pending");
    kind.added("shop", "");
    kind.added("shop", "Ready");
    kind.added("blog", "Ready");
    kind.moved("shop", "Pending", "Ready");
    kind.moved("shop", "Ready", "Ready");
    kind.removed("blog", "Ready");
    metrics.caches_from(|each| {
        // Two caches of one kind are shown as one.
        each("WebApp", "example.com", CacheMetrics { objects: 1, bytes: 4000, restarts: 0 });
        each("WebApp", "example.com", CacheMetrics { objects: 2, bytes: 96, restarts: 1 });
    });
    metrics.event_recorded(Severity::Error);
    let page = read(&metrics.page());
    let counts: Vec<_> = page.series.iter().filter(|(series, _)| series.starts_with("resource_")).collect();
    assert_eq!(
        counts,
        [
            (&"resource_count{group=example.com,kind=WebApp,namespace=shop}".to_string(), &3.0),
            (&"resource_phase_count{group=example.com,kind=WebApp,namespace=shop,phase=Ready}".to_string(), &2.0),
        ]
    );
    assert_eq!(page.get("konverge_cache_objects{group=example.com,kind=WebApp}"), 3.0);
    assert_eq!(page.get("konverge_cache_bytes{group=example.com,kind=WebApp}"), 4096.0);
    assert_eq!(page.get("konverge_watch_restarts_total{group=example.com,kind=WebApp}"), 1.0);
    assert_eq!(page.get("event_total{severity=Error,type=Warning}"), 1.0);
    // Phases that are sentences share a label, and leave under it.
    (0..100).for_each(|i| kind.added("shop", &format!("waiting for {i}")));
    let phases = |page: &Read| page.series.keys().filter(|series| series.starts_with("resource_phase_count")).count();
    // Of the 25 that have a label of their own one is no longer in use.
    assert_eq!(phases(&read(&metrics.page())), 25);
    (0..100).for_each(|i| kind.removed("shop", &format!("waiting for {i}")));
    assert_eq!(phases(&read(&metrics.page())), 1);
}

#[test]
fn requests() {
    let metrics = Metrics::new();
    let get = |status| metrics.requested(&http::Method::GET, "api:443", status, Duration::from_millis(30));
    get(Some(200));
    get(Some(200));
    get(Some(409));
    get(None);
    let read = read(&metrics.page());
    assert_eq!(read.get("rest_client_requests_total{code=200,host=api:443,method=GET}"), 2.0);
    assert_eq!(read.get("rest_client_requests_total{code=409,host=api:443,method=GET}"), 1.0);
    assert_eq!(read.get("rest_client_requests_total{code=<error>,host=api:443,method=GET}"), 1.0);
    assert_eq!(read.get("rest_client_request_duration_seconds_bucket{host=api:443,le=0.025,verb=GET}"), 0.0);
    assert_eq!(read.get("rest_client_request_duration_seconds_bucket{host=api:443,le=0.1,verb=GET}"), 4.0);
}

#[test]
fn requests_of_a_client() {
    let metrics = Metrics::new();
    let meter = metrics.request_meter("api:443");
    for code in [Some(200), Some(200), Some(503), None] {
        meter.requested(&http::Method::POST, code, Duration::from_millis(1));
    }
    let read = read(&metrics.page());
    for (code, count) in [("200", 2.0), ("503", 1.0), ("<error>", 1.0)] {
        assert_eq!(read.get(&format!("rest_client_requests_total{{code={code},host=api:443,method=POST}}")), count);
    }
    assert_eq!(read.get("rest_client_request_duration_seconds_count{host=api:443,verb=POST}"), 4.0);
}

#[test]
#[cfg(target_os = "linux")]
fn the_process() {
    let read = read(&Metrics::new().page());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - read.get("process_start_time_seconds{}");
    assert!((-2.0..24.0 * 3600.0).contains(&age), "{age}");
    assert!((1e6..1e11).contains(&read.get("process_resident_memory_bytes{}")));
    assert!(read.get("process_virtual_memory_bytes{}") > read.get("process_resident_memory_bytes{}"));
    assert!((0.0..1e6).contains(&read.get("process_cpu_seconds_total{}")));
    assert!((3.0..=read.get("process_max_fds{}")).contains(&read.get("process_open_fds{}")));
}

#[test]
fn metrics_of_users() {
    let metrics = Metrics::new();
    let counter = metrics.counter("app_starts_total", "Starts").unwrap();
    counter.add(2);
    let by = metrics.counter_by("app_builds_total", "Builds: \"\\\" and\nnewlines", ["app", "result"]).unwrap();
    by.with(["a\"\\\nb", "ok"]).inc();
    by.clone().with(["a\"\\\nb", "ok"]).inc();
    by.with(["gone", "ok"]).inc();
    assert!(by.remove(["gone", "ok"]));
    assert!(!by.remove(["gone", "ok"]));
    let gauge = metrics.gauge("app_temperature", "Degrees").unwrap();
    gauge.set(20.5);
    gauge.inc();
    gauge.add(-3.0);
    gauge.dec();
    metrics.gauge_by("app_floor", "Floors", ["house"]).unwrap().with(["x"]).set(f64::NEG_INFINITY);
    metrics.gauge_from("app_asked", "Asked", || 7.0).unwrap();
    metrics.gauge_from("app_broken", "Broken", || panic!("no thermometer")).unwrap();
    let sizes = metrics.histogram("app_sizes", "Sizes", Buckets::new([1.0, 10.0])).unwrap();
    [0.5, 1.0, 1.5, 100.0].into_iter().for_each(|size| sizes.observe(size));
    let times = metrics.histogram_by("app_seconds", "Seconds", Buckets::default(), ["step"]).unwrap();
    let took = times.with(["build"]).start_timer().stop();
    drop(times.with(["build"]).start_timer());
    times.with(["build"]).start_timer().discard();
    times.with(["wait"]).observe_duration(Duration::from_millis(1500));

    let read = read(&metrics.page());
    let check = |series: &str, expect: f64| assert_eq!(read.get(series), expect, "{series}");
    check("app_starts_total{}", 2.0);
    check("app_builds_total{app=a\"\\\nb,result=ok}", 2.0);
    assert_eq!(read.series.keys().filter(|series| series.starts_with("app_builds_total")).count(), 1);
    check("app_temperature{}", 17.5);
    check("app_floor{house=x}", f64::NEG_INFINITY);
    check("app_asked{}", 7.0);
    assert!(!read.types.contains_key("app_broken"));
    check("app_sizes_bucket{le=1}", 2.0);
    check("app_sizes_bucket{le=10}", 3.0);
    check("app_sizes_bucket{le=+Inf}", 4.0);
    check("app_sizes_sum{}", 103.0);
    check("app_seconds_count{step=build}", 2.0);
    assert!(read.get("app_seconds_sum{step=build}") >= took.as_secs_f64());
    check("app_seconds_bucket{le=1,step=wait}", 0.0);
    check("app_seconds_bucket{le=2.5,step=wait}", 1.0);
    assert_eq!(read.types["app_temperature"], "gauge");
}

#[test]
fn names_that_are_refused() {
    let metrics = Metrics::new();
    metrics.histogram("app_seconds", "Seconds", Buckets::default()).unwrap();
    metrics.counter("app_builds_total", "Builds").unwrap();
    let check = |refused: Result<(), MetricError>, expect: &str| {
        assert_eq!(refused.expect_err(expect).to_string(), expect);
    };
    let counter = |name: &str, expect: &str| check(metrics.counter(name, "Help").map(drop), expect);
    let gauge = |name: &str, expect: &str| check(metrics.gauge(name, "Help").map(drop), expect);
    let word = "a name has letters, digits and _, and does not begin with a digit";
    counter("", &format!("metric \"\": {word}"));
    counter("app-builds_total", &format!("metric \"app-builds_total\": {word}"));
    counter("1app_total", &format!("metric \"1app_total\": {word}"));
    counter("app:rule_total", &format!("metric \"app:rule_total\": {word}"));
    counter("__app_total", "metric \"__app_total\": names that begin with __ are Prometheus' own");
    counter("app_builds", "metric \"app_builds\": the name of a counter ends in _total: app_builds_total");
    gauge("app_total", "metric \"app_total\": only counters have names that end in _total");
    gauge("app_count", "metric \"app_count\": names that end in _count belong to histograms");
    counter("app_builds_total", "metric \"app_builds_total\" is registered already; keep the first one and clone it");
    gauge("app_seconds", "metric \"app_seconds\" is registered already; keep the first one and clone it");
    gauge("workqueue_depth", "metric \"workqueue_depth\" is one that every operator has; choose another name");
    counter(
        "controller_reconciliations_total",
        "metric \"controller_reconciliations_total\" is one that every operator has; choose another name",
    );
    let histogram = |name: &str, buckets: Buckets, expect: &str| {
        check(metrics.histogram(name, "Help", buckets).map(drop), expect);
    };
    // Its `_count` would be ours.
    histogram(
        "resource",
        Buckets::default(),
        "metric \"resource\" is one that every operator has; choose another name",
    );
    histogram("app", Buckets::new([]), "metric \"app\": a histogram has 1 to 1000 buckets");
    histogram("app", Buckets::new([1.0, 1.0]), "metric \"app\": the bounds of buckets are finite and rise");
    histogram("app", Buckets::linear(0.0, f64::NAN, 3), "metric \"app\": the bounds of buckets are finite and rise");
    let label = |label: [&str; 2], expect: &str| {
        check(metrics.histogram_by("app", "Help", Buckets::exponential(1.0, 2.0, 3), label).map(drop), expect);
    };
    label(["a", "b-c"], "metric \"app\": label \"b-c\" must have letters, digits and _, and not begin with a digit");
    label(["a", "le"], "metric \"app\": label \"le\" is Prometheus' own");
    label(["__a", "b"], "metric \"app\": label \"__a\" is Prometheus' own");
    label(["a", "a"], "metric \"app\": label \"a\" is there twice");
    // What was refused left nothing behind.
    metrics.histogram_by("app", "Help", Buckets::exponential(1.0, 2.0, 3), ["a", "b"]).unwrap();
}

#[test]
fn series_are_bounded() {
    let metrics = Metrics::new();
    let by = metrics.counter_by("app_objects_total", "Objects", ["name", "namespace"]).unwrap();
    (0..10_050).for_each(|i| by.with([&format!("object-{i}"), "shop"]).inc());
    let read = read(&metrics.page());
    let overflow = "app_objects_total{name=exceeded_cardinality_limit,namespace=exceeded_cardinality_limit}";
    assert_eq!(read.get(overflow), 50.0);
    assert_eq!(read.series.keys().filter(|series| series.starts_with("app_objects_total")).count(), 10_001);
}

#[test]
fn numbers_look_like_gos() {
    let check = |value: f64, expect: &str| assert_eq!(metric_number(value), expect);
    check(0.0, "0");
    check(1.0, "1");
    check(-2.5, "-2.5");
    check(0.0001, "0.0001");
    check(0.00001, "1e-05");
    check(1e20, "100000000000000000000");
    check(1e21, "1e+21");
    check(1.5e-10, "1.5e-10");
    check(f64::NAN, "NaN");
    check(f64::INFINITY, "+Inf");
    check(f64::NEG_INFINITY, "-Inf");
}

#[test]
fn counting_from_many_threads_loses_nothing() {
    let metrics = Metrics::new();
    let controller = metrics.controller("webapp");
    let gauge = metrics.gauge("app_gauge", "Gauge").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let worker = controller.worker();
                for _ in 0..10_000 {
                    worker.busy(Instant::now());
                    controller.reconciled(ReconcileResult::Success, Duration::from_micros(1));
                    worker.idle();
                    gauge.add(0.5);
                }
            });
        }
        (0..20).for_each(|_| drop(read(&metrics.page())));
    });
    let read = read(&metrics.page());
    assert_eq!(read.get("controller_runtime_reconcile_total{controller=webapp,result=success}"), 40_000.0);
    assert_eq!(read.get("controller_runtime_reconcile_time_seconds_sum{controller=webapp}"), 0.04);
    assert_eq!(read.get("app_gauge{}"), 20_000.0);
}
