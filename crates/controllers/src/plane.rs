//! The control plane: which controllers there are, and their life. In: a client and options. Out: controllers that work
//! until they are told to stop. This is the only place that starts and stops things.
//!
//! ```text
//! start   caches → recorders → controllers
//! stop    controllers finish → caches → recorders write what is left
//! ```

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use konverge_runtime::{BoxFuture, Caches, Clock, Meter, Recorder, WatchSettings};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::desk::Desk;
use crate::health::Health;
use crate::kinds::Kinds;
use crate::simulate::SimulationSettings;
use crate::{
    autoscaler, collect, cronjob, daemonset, deployment, disruption, endpoints, endpointslice, job, namespace,
    protection, replicaset, root_ca, service_account, simulate, statefulset, ttl, volumes,
};

/// A controller that works until it is told to stop.
pub(crate) type Task = BoxFuture<()>;

/// One row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    start: fn(&Plane) -> Task,
}

/// Every controller, by the name kube-controller-manager gives it. The simulator has one of its own.
const TABLE: &[Row] = &[
    Row { name: replicaset::NAME, start: replicaset::start },
    Row { name: deployment::NAME, start: deployment::start },
    Row { name: namespace::NAME, start: namespace::start },
    Row { name: service_account::NAME, start: service_account::start },
    Row { name: root_ca::NAME, start: root_ca::start },
    Row { name: daemonset::NAME, start: daemonset::start },
    Row { name: statefulset::NAME, start: statefulset::start },
    Row { name: volumes::NAME, start: volumes::start },
    Row { name: protection::CLAIMS, start: protection::start_claims },
    Row { name: protection::VOLUMES, start: protection::start_volumes },
    Row { name: job::NAME, start: job::start },
    Row { name: cronjob::NAME, start: cronjob::start },
    Row { name: ttl::NAME, start: ttl::start },
    Row { name: endpointslice::NAME, start: endpointslice::start },
    Row { name: endpoints::NAME, start: endpoints::start },
    Row { name: disruption::NAME, start: disruption::start },
    Row { name: autoscaler::NAME, start: autoscaler::start },
    Row { name: simulate::NAME, start: simulate::start },
    // The last: it shares the caches that others have opened.
    Row { name: collect::NAME, start: collect::start },
];

/// How long events that are left may take to be written after everything has stopped.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long a controller that ended by itself waits until it begins anew: one that ends at once must not spin.
const BEGIN_ANEW: Duration = Duration::from_secs(1);

/// Gives the controller of a name somebody who is told about its work.
pub type Meters = Arc<dyn Fn(&str) -> Arc<dyn Meter> + Send + Sync>;

/// How a control plane works.
#[derive(Clone)]
pub struct Options {
    /// Controllers that do not run, by name: somebody else does their part.
    pub off: BTreeSet<String>,
    /// How pods and nodes are simulated.
    pub simulation: SimulationSettings,
    /// The certificate authority by which pods know the API server, as PEM; without one nothing is published.
    pub root_ca: Option<String>,
    /// How long a Job waits after its first failed pod; each further failure in a row makes it wait twice as long.
    pub pod_failure_backoff: Duration,
    /// Who is told about the work of the controller of a name.
    pub meter: Meters,
    /// The time.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            off: BTreeSet::new(),
            simulation: SimulationSettings::default(),
            root_ca: None,
            pod_failure_backoff: Duration::from_secs(10),
            meter: Arc::new(|_| Arc::new(())),
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// There is no controller of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {name:?}; there are {}", known.join(", "))]
pub struct UnknownController {
    /// The name that was given.
    pub name: String,
    /// The names there are.
    pub known: Vec<&'static str>,
}

/// The controllers of a control plane.
///
/// ```no_run
/// # async fn example(client: kube::Client, stop: impl Future<Output = ()> + Send) -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_controllers::{ControlPlane, Options};
/// ControlPlane::new(client, Options::default())?.run_until(stop).await;
/// # Ok(()) }
/// ```
#[must_use = "a control plane does nothing until it is run"]
pub struct ControlPlane {
    client: Client,
    options: Options,
    health: Health,
}

/// What the controllers of a running control plane share.
pub(crate) struct Plane {
    pub client: Client,
    pub caches: Caches,
    pub kinds: Kinds,
    pub options: Options,
    pub stop: watch::Receiver<bool>,
    pub health: Health,
    recorders: Mutex<Vec<(Recorder, JoinHandle<()>)>>,
}

impl ControlPlane {
    /// A control plane for the cluster of a client. Refuses names that no controller has.
    pub fn new(client: Client, options: Options) -> Result<Self, UnknownController> {
        let known: Vec<&'static str> = Self::controllers().collect();
        match options.off.iter().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(UnknownController { name: name.clone(), known }),
            None => Ok(Self { client, options, health: Health::default() }),
        }
    }

    /// The names of all controllers.
    pub fn controllers() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }

    /// How its controllers are doing, also while it runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Works until `stop` resolves; then what runs is let finish. A controller that ends before is begun anew.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) {
        self.run(TABLE, stop).await;
    }

    async fn run(self, rows: &[Row], stop: impl Future<Output = ()> + Send) {
        let (stopping, told) = watch::channel(false);
        let plane = Plane {
            caches: Caches::new(self.client.clone(), WatchSettings::default()),
            kinds: Kinds::new(self.client.clone()),
            client: self.client,
            options: self.options,
            stop: told,
            health: self.health,
            recorders: Mutex::default(),
        };
        let caches = plane.caches.clone();
        plane.health.ask("watches", move || caches.liveness());
        let mut running = JoinSet::new();
        for row in rows.iter().filter(|row| !plane.options.off.contains(row.name)) {
            running.spawn(plane.begin(*row));
        }
        let mut stop = pin!(stop);
        loop {
            let due = tokio::select! {
                () = &mut stop => break,
                Some(due) = running.join_next() => due,
            };
            if let Ok(row) = due {
                running.spawn(plane.begin(row));
            }
        }
        stopping.send_replace(true);
        while running.join_next().await.is_some() {}
        plane.caches.shutdown().await;
        let recorders = plane.recorders.into_inner();
        recorders.iter().for_each(|(recorder, _)| recorder.close());
        let written = async {
            for (_, task) in recorders {
                // A task that panicked has been reported; the others still have something to say.
                let _ = task.await;
            }
        };
        if tokio::time::timeout(LAST_WORDS, written).await.is_err() {
            tracing::warn!("events that were left could not be written in time");
        }
    }
}

impl Plane {
    /// A controller at work; says which one it was when it is due to begin anew.
    fn begin(&self, row: Row) -> impl Future<Output = Row> + Send + 'static {
        self.health.began(row.name);
        let (task, health, mut stop) = ((row.start)(self), self.health.clone(), self.stop.clone());
        async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            if !*stop.borrow() {
                let why = if ended.is_err() { "it panicked" } else { "it ended by itself" };
                tracing::error!(controller = row.name, why, "a controller does not run any more; it begins anew");
                health.ended(row.name, why.to_owned());
                // Who stops meanwhile does not wait for it.
                let _ = tokio::time::timeout(BEGIN_ANEW, stop.wait_for(|stop| *stop)).await;
            }
            row
        }
    }

    /// The desk of the controller of this name.
    pub fn desk(&self, name: &'static str) -> Desk {
        let (desk, recording) = Desk::new(self, name);
        let recorder = desk.recorder().clone();
        self.health.ask(name, move || recorder.liveness());
        self.recorders.lock().push((desk.recorder().clone(), tokio::spawn(recording.run())));
        desk
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A controller that panics, then ends by itself, then works, while another one works all the time.
    #[tokio::test(start_paused = true)]
    async fn a_controller_that_ends_is_told_of_and_begins_anew() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        fn frail(plane: &Plane) -> Task {
            let mut stop = plane.stop.clone();
            Box::pin(async move {
                match BEGUN.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("on purpose"),
                    1 => {}
                    _ => drop(stop.wait_for(|stop| *stop).await),
                }
            })
        }
        fn sound(plane: &Plane) -> Task {
            let mut stop = plane.stop.clone();
            Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) })
        }
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let plane = ControlPlane::new(client, Options::default()).unwrap();
        let health = plane.health();
        let (stop, mut told) = watch::channel(false);
        let rows = [Row { name: "frail", start: frail }, Row { name: "sound", start: sound }];
        let running =
            tokio::spawn(async move { plane.run(&rows, async { drop(told.wait_for(|stop| *stop).await) }).await });
        let within = |share: f64| tokio::time::sleep(BEGIN_ANEW.mul_f64(share));
        within(0.5).await;
        assert_eq!(health.ailing(), ["[-]frail failed: it panicked"]);
        within(1.0).await;
        assert_eq!(health.ailing(), ["[-]frail failed: it ended by itself"]);
        within(1.0).await;
        assert_eq!((health.ailing(), BEGUN.load(Ordering::SeqCst)), (vec![], 3));
        stop.send_replace(true);
        running.await.unwrap();
    }

    #[test]
    fn names_are_those_of_the_table() {
        let names: BTreeSet<_> = ControlPlane::controllers().collect();
        assert_eq!(names.len(), TABLE.len(), "each name once");
        for name in [
            "daemonset-controller",
            "deployment-controller",
            "disruption-controller",
            "job-controller",
            "garbage-collector-controller",
            "namespace-controller",
            "persistentvolume-binder-controller",
            "persistentvolume-protection-controller",
            "persistentvolumeclaim-protection-controller",
            "replicaset-controller",
            "root-ca-certificate-publisher-controller",
            "serviceaccount-controller",
            "statefulset-controller",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }
}
