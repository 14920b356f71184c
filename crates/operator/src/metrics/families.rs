//! The table of the metric families that every operator exports. In: the counters of the engine. Out: one row per family with
//! its name, its type, its help text, and a function that writes its samples. There is no other list of names.
//!
//! The names of controller-runtime are here so that its dashboards work unchanged. Two other sets of names are in use as
//! well; their families show the same counters and cost nothing until the page is rendered. Where two sets have a name in
//! common (`workqueue_depth`, `workqueue_adds_total`, `workqueue_retries_total`) there is one family, with the labels of
//! controller-runtime.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime};

use super::controller::{self, ERROR, RESULTS};
use super::kind::{self, CacheMetrics};
use super::latency::{COMMON, QUEUE, RECONCILE, REQUEST};
use super::{Engine, SEVERITIES, consensus, webhook};
use konverge_core::{MetricKind, MetricSamples};
use konverge_runtime::Shards;

/// A family of the engine.
pub(super) struct Family {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    pub write: fn(&Engine, Instant, &mut MetricSamples<'_>),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    write: fn(&Engine, Instant, &mut MetricSamples<'_>),
) -> Family {
    Family { name, kind: MetricKind::Counter, help, write }
}

const fn gauge(name: &'static str, help: &'static str, write: fn(&Engine, Instant, &mut MetricSamples<'_>)) -> Family {
    Family { name, kind: MetricKind::Gauge, help, write }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    write: fn(&Engine, Instant, &mut MetricSamples<'_>),
) -> Family {
    Family { name, kind: MetricKind::Histogram, help, write }
}

/// Every family of the engine, in the order of the page.
pub(super) static TABLE: &[Family] = &[
    // Reconciles, with controller-runtime's names.
    counter("controller_runtime_reconcile_total", "Reconciles, by controller and result.", |engine, _, out| {
        results(engine, out);
    }),
    counter("controller_runtime_reconcile_errors_total", "Reconciles that failed.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.results[ERROR])));
    }),
    counter(
        "controller_runtime_terminal_reconcile_errors_total",
        "Reconciles that failed with an error that is not retried.",
        |engine, _, out| controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.terminal))),
    ),
    counter("controller_runtime_reconcile_panics_total", "Reconciles that ended in a panic.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.panics)));
    }),
    counter("controller_runtime_reconcile_timeouts_total", "Reconciles that took too long.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.timeouts)));
    }),
    histogram("controller_runtime_reconcile_time_seconds", "How long reconciles take.", |engine, _, out| {
        controllers(engine, |name, state| state.took.write(&RECONCILE, &[("controller", name)], out));
    }),
    gauge(
        "controller_runtime_max_concurrent_reconciles",
        "Reconciles that may run at the same time.",
        |engine, _, out| {
            controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.max_concurrent)));
        },
    ),
    gauge("controller_runtime_active_workers", "Reconciles that are currently running.", |engine, now, out| {
        controllers(engine, |name, state| out.value(&[("controller", name)], state.running(now).workers as f64));
    }),
    // Reconciles, with the other two sets of names.
    counter("controller_reconcile_total", "Reconciles, by controller and result.", |engine, _, out| {
        results(engine, out);
    }),
    counter("controller_reconcile_errors_total", "Reconciles that failed.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.results[ERROR])));
    }),
    histogram("controller_reconcile_duration_seconds", "How long reconciles take.", |engine, _, out| {
        controllers(engine, |name, state| state.took.write(&COMMON, &[("controller", name)], out));
    }),
    counter("controller_reconciliations_total", "Reconciles, by success or error.", |engine, _, out| {
        controllers(engine, |name, state| {
            let failed = load(&state.results[ERROR]);
            let succeeded: f64 = state.results[..ERROR].iter().map(load).sum();
            out.value(&[("controller", name), ("result", "success")], succeeded);
            out.value(&[("controller", name), ("result", "error")], failed);
        });
    }),
    histogram("controller_reconciliation_duration_seconds", "How long reconciles take.", |engine, _, out| {
        controllers(engine, |name, state| state.took.write(&COMMON, &[("controller", name)], out));
    }),
    // The workqueue, with the names of controller-runtime and client-go.
    gauge("workqueue_depth", "Keys that are due and wait for a worker, by priority.", |engine, _, out| {
        controllers(engine, |name, state| {
            for (priority, depth) in state.depths() {
                let labels = [("name", name), ("controller", name), ("priority", priority.as_str())];
                out.value(&labels, depth as f64);
            }
        });
    }),
    counter("workqueue_adds_total", "Keys that became due, by a wakeup or after a delay.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("name", name), ("controller", name)], state.adds()));
    }),
    counter("workqueue_retries_total", "Keys that were put back after a failure.", |engine, _, out| {
        controllers(engine, |name, state| out.value(&[("name", name), ("controller", name)], state.retries()));
    }),
    histogram(
        "workqueue_queue_duration_seconds",
        "How long keys wait for a worker after they became due.",
        |engine, _, out| {
            controllers(engine, |name, state| state.waited.write(&QUEUE, &[("name", name), ("controller", name)], out));
        },
    ),
    histogram("workqueue_work_duration_seconds", "How long workers process a key.", |engine, _, out| {
        controllers(engine, |name, state| state.took.write(&QUEUE, &[("name", name), ("controller", name)], out));
    }),
    gauge(
        "workqueue_unfinished_work_seconds",
        "The sum of the times for which the currently running reconciles have run.",
        |engine, now, out| {
            controllers(engine, |name, state| {
                out.value(&[("name", name), ("controller", name)], state.running(now).total.as_secs_f64());
            });
        },
    ),
    gauge(
        "workqueue_longest_running_processor_seconds",
        "How long the longest of the currently running reconciles has run.",
        |engine, now, out| {
            controllers(engine, |name, state| {
                out.value(&[("name", name), ("controller", name)], state.running(now).longest.as_secs_f64());
            });
        },
    ),
    // Requests to the API server, with client-go's names.
    counter(
        "rest_client_requests_total",
        "Requests to the API server, by status code, method and host.",
        |engine, _, out| {
            engine.requests.codes(|host, method, code, count| {
                out.value(&[("code", code), ("method", method), ("host", host)], count as f64);
            });
        },
    ),
    histogram("rest_client_request_duration_seconds", "How long requests to the API server take.", |engine, _, out| {
        engine.requests.times(|host, method, took| took.write(&REQUEST, &[("verb", method), ("host", host)], out));
    }),
    // Webhooks, with controller-runtime's names and with the other ones.
    counter(
        "controller_runtime_webhook_requests_total",
        "Requests to webhooks, by path and HTTP status code.",
        |engine, _, out| {
            webhooks(engine, |path, state| {
                state.codes(|code, count| out.value(&[("webhook", path), ("code", code)], count));
            });
        },
    ),
    histogram("controller_runtime_webhook_latency_seconds", "How long requests to webhooks take.", |engine, _, out| {
        webhooks(engine, |path, state| state.took.write(&QUEUE, &[("webhook", path)], out));
    }),
    gauge(
        "controller_runtime_webhook_requests_in_flight",
        "Requests to webhooks that are being answered.",
        |engine, _, out| webhooks(engine, |path, state| out.value(&[("webhook", path)], state.in_flight())),
    ),
    counter("webhook_requests_total", "Reviews, by path, operation and verdict.", |engine, _, out| {
        webhooks(engine, |path, state| {
            state.verdicts(|operation, verdict, count| {
                out.value(&[("webhook", path), ("operation", operation), ("verdict", verdict)], count);
            });
        });
    }),
    histogram("webhook_duration_seconds", "How long requests to webhooks take.", |engine, _, out| {
        webhooks(engine, |path, state| state.took.write(&COMMON, &[("webhook", path)], out));
    }),
    gauge(
        "konverge_webhook_certificate_expiry_timestamp_seconds",
        "When the certificate that webhooks serve, and its CA, end.",
        |engine, _, out| {
            for (certificate, ends) in ["serving", "ca"].into_iter().zip(*engine.certificates.read()) {
                let ends = ends.and_then(|ends| ends.duration_since(SystemTime::UNIX_EPOCH).ok());
                if let Some(ends) = ends {
                    out.value(&[("certificate", certificate)], ends.as_secs_f64());
                }
            }
        },
    ),
    // Objects.
    gauge("resource_count", "Objects, by kind and namespace.", |engine, _, out| {
        kinds(engine, |kind, group, state| {
            let mut namespaces: Vec<(String, u64)> = Vec::new();
            state.counts(|namespace, _, count| match namespaces.last_mut() {
                Some((last, sum)) if last == namespace => *sum += count,
                _ => namespaces.push((namespace.into(), count)),
            });
            for (namespace, count) in namespaces {
                let labels = [("kind", kind), ("group", group), ("namespace", namespace.as_str())];
                out.value(&labels, count as f64);
            }
        });
    }),
    gauge("resource_phase_count", "Objects that have a phase, by kind, namespace and phase.", |engine, _, out| {
        kinds(engine, |kind, group, state| {
            state.counts(|namespace, phase, count| {
                if !phase.is_empty() {
                    let labels = [("kind", kind), ("group", group), ("namespace", namespace), ("phase", phase)];
                    out.value(&labels, count as f64);
                }
            });
        });
    }),
    counter("event_total", "Kubernetes Events that were recorded, by type and severity.", |engine, _, out| {
        for ((_, r#type, severity), count) in SEVERITIES.into_iter().zip(&engine.events) {
            out.value(&[("type", r#type), ("severity", severity)], load(count));
        }
    }),
    // Leader election, with client-go's name and with the other set's.
    gauge(
        "leader_election_master_status",
        "Whether this instance leads, by the name of the Lease.",
        |engine, _, out| {
            elections(engine, |name, leads| out.value(&[("name", name)], f64::from(leads)));
        },
    ),
    gauge("leader_election_status", "Whether this instance leads (1) or follows (0).", |engine, _, out| {
        elections(engine, |name, leads| out.value(&[("name", name)], f64::from(leads)));
    }),
    gauge("konverge_leader_election_term", "The number of the term in which this instance leads.", |engine, _, out| {
        for (name, leadership) in engine.elections.read().iter() {
            if let Some(term) = leadership.term() {
                out.value(&[("name", name)], term.number as f64);
            }
        }
    }),
    // Raft, where the leader is elected by it.
    gauge("konverge_raft_term", "Raft's own term, which grows with every election.", |engine, _, out| {
        consensus::term(engine, out);
    }),
    gauge("konverge_raft_members", "Members of the Raft cluster, by role.", |engine, _, out| {
        consensus::members(engine, out);
    }),
    gauge(
        "konverge_raft_index",
        "Indices of the Raft log: its end, what is applied, what a snapshot has, what is purged.",
        |engine, _, out| consensus::indices(engine, out),
    ),
    gauge("konverge_raft_state_bytes", "Bytes of the replicated keys and values.", |engine, _, out| {
        consensus::bytes(engine, out);
    }),
    // Families without an established name.
    gauge("konverge_shards", "Shards that objects are divided into.", |engine, _, out| {
        shards(engine, |shards| out.value(&[], shards.count() as f64));
    }),
    gauge("konverge_shards_held", "Shards that this instance holds.", |engine, _, out| {
        shards(engine, |shards| out.value(&[], shards.held().len() as f64));
    }),
    gauge("konverge_shard_term", "The number of the term of each shard that this instance holds.", |engine, _, out| {
        shards(engine, |shards| {
            for held in shards.held() {
                out.value(&[("shard", &held.shard.to_string())], held.term as f64);
            }
        });
    }),
    gauge("konverge_shard_instances", "Instances that objects are divided among.", |engine, _, out| {
        shards(engine, |shards| out.value(&[], shards.status().replicas as f64));
    }),
    gauge("konverge_cache_objects", "Objects in the cache.", |engine, _, out| {
        caches(engine, |labels, cached| out.value(labels, cached.objects as f64));
    }),
    gauge("konverge_cache_bytes", "Memory that the objects in the cache take.", |engine, _, out| {
        caches(engine, |labels, cached| out.value(labels, cached.bytes as f64));
    }),
    counter("konverge_watch_restarts_total", "Watches that failed and were restarted.", |engine, _, out| {
        caches(engine, |labels, cached| out.value(labels, cached.restarts as f64));
    }),
    counter(
        "konverge_reconcile_gave_up_total",
        "Objects whose retries are used up; they wait for a change.",
        |engine, _, out| controllers(engine, |name, state| out.value(&[("controller", name)], load(&state.gave_up))),
    ),
    // The process, with the names that all Prometheus clients use.
    counter("process_cpu_seconds_total", "User and system CPU time.", |engine, _, out| {
        write_if_known(engine.process.cpu_seconds(), out);
    }),
    gauge("process_resident_memory_bytes", "Resident memory.", |engine, _, out| {
        write_if_known(engine.process.resident_bytes(), out);
    }),
    gauge("process_virtual_memory_bytes", "Virtual memory.", |engine, _, out| {
        write_if_known(engine.process.virtual_bytes(), out);
    }),
    gauge(
        "process_start_time_seconds",
        "Start time of the process, in seconds since the Unix epoch.",
        |engine, _, out| {
            write_if_known(engine.process.started(), out);
        },
    ),
    gauge("process_open_fds", "Open file descriptors.", |engine, _, out| {
        write_if_known(engine.process.open_files(), out)
    }),
    gauge("process_max_fds", "The limit of open file descriptors.", |engine, _, out| {
        write_if_known(engine.process.max_files(), out);
    }),
];

fn results(engine: &Engine, out: &mut MetricSamples<'_>) {
    controllers(engine, |name, state| {
        for (result, count) in RESULTS.into_iter().zip(&state.results) {
            out.value(&[("controller", name), ("result", result)], load(count));
        }
    });
}

fn controllers(engine: &Engine, mut each: impl FnMut(&str, &controller::State)) {
    engine.controllers.read().iter().for_each(|(name, state)| each(name, state));
}

fn webhooks(engine: &Engine, mut each: impl FnMut(&str, &webhook::State)) {
    engine.webhooks.read().iter().for_each(|(path, state)| each(path, state));
}

fn kinds(engine: &Engine, mut each: impl FnMut(&str, &str, &kind::State)) {
    engine.kinds.read().iter().for_each(|((kind, group), state)| each(kind, group, state));
}

/// Calls `each` with the sum of all caches of a kind: an operator with several namespaces has one cache for each.
fn caches(engine: &Engine, mut each: impl FnMut(&[(&str, &str)], CacheMetrics)) {
    let mut sums: BTreeMap<(String, String), CacheMetrics> = BTreeMap::new();
    for source in engine.caches.read().iter() {
        source(&mut |kind, group, cached| {
            let sum = sums.entry((kind.to_owned(), group.to_owned())).or_default();
            sum.objects += cached.objects;
            sum.bytes += cached.bytes;
            sum.restarts += cached.restarts;
        });
    }
    for ((kind, group), sum) in &sums {
        each(&[("kind", kind), ("group", group)], *sum);
    }
}

/// Each election that this instance takes part in, and whether it leads.
fn elections(engine: &Engine, mut each: impl FnMut(&str, bool)) {
    for (name, leadership) in engine.elections.read().iter() {
        each(name, leadership.term().is_some());
    }
}

/// The shards of this instance, if objects are divided.
fn shards(engine: &Engine, write: impl FnOnce(&Shards)) {
    if let Some(shards) = &*engine.shards.read() {
        write(shards);
    }
}

fn write_if_known(value: Option<f64>, out: &mut MetricSamples<'_>) {
    if let Some(value) = value {
        out.value(&[], value);
    }
}

fn load(count: &AtomicU64) -> f64 {
    count.load(Relaxed) as f64
}
