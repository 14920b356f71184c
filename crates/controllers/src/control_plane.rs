//! The control plane: the table of controllers and their lifecycle. In: a client and options. Out: controllers that run until
//! they are told to stop. This is the only file that starts and stops tasks.
//!
//! ```text
//! start      caches → recorders → controllers
//! shutdown   controllers finish their reconciles → caches stop → recorders write the remaining events
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use konverge_runtime::{BoxFuture, Caches, Clock, Meter, Recorder, WatchSettings};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::certificates::CertificateSigner;
use crate::context::ControllerContext;
use crate::discovery::Kinds;
use crate::health::Health;
use crate::simulator::SimulationSettings;
use crate::{
    autoscaler, certificates, cronjob, daemonset, deployment, disruption, endpoints, endpointslice, garbage_collector,
    job, namespace, persistent_volumes, replicaset, resource_quota, root_ca, service_account, simulator, statefulset,
    storage_protection, ttl_after_finished,
};

/// A running controller; the future resolves after the control plane is told to stop.
pub(crate) type Task = BoxFuture<()>;

/// One row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    start: fn(&Manager) -> Task,
}

/// Every controller, by its name in kube-controller-manager. The simulator has a name of its own.
const TABLE: &[Row] = &[
    Row { name: replicaset::NAME, start: replicaset::start },
    Row { name: deployment::NAME, start: deployment::start },
    Row { name: namespace::NAME, start: namespace::start },
    Row { name: service_account::NAME, start: service_account::start },
    Row { name: root_ca::NAME, start: root_ca::start },
    Row { name: daemonset::NAME, start: daemonset::start },
    Row { name: statefulset::NAME, start: statefulset::start },
    Row { name: persistent_volumes::NAME, start: persistent_volumes::start },
    Row { name: storage_protection::CLAIMS, start: storage_protection::start_claims },
    Row { name: storage_protection::VOLUMES, start: storage_protection::start_volumes },
    Row { name: job::NAME, start: job::start },
    Row { name: cronjob::NAME, start: cronjob::start },
    Row { name: ttl_after_finished::NAME, start: ttl_after_finished::start },
    Row { name: endpointslice::NAME, start: endpointslice::start },
    Row { name: endpoints::NAME, start: endpoints::start },
    Row { name: disruption::NAME, start: disruption::start },
    Row { name: autoscaler::NAME, start: autoscaler::start },
    Row { name: resource_quota::NAME, start: resource_quota::start },
    Row { name: certificates::APPROVING, start: certificates::start_approving },
    Row { name: certificates::SIGNING, start: certificates::start_signing },
    Row { name: simulator::NAME, start: simulator::start },
    // The last row, so that the garbage collector shares the caches that the other controllers have opened.
    Row { name: garbage_collector::NAME, start: garbage_collector::start },
];

/// How long the recorders may take to write the remaining events at shutdown.
const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay before a controller that ended by itself is restarted, so that one that fails at once does not spin.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Makes the meter (the sink of metrics) for the controller of a name.
pub type Meters = Arc<dyn Fn(&str) -> Arc<dyn Meter> + Send + Sync>;

/// The options of a control plane.
#[derive(Clone)]
pub struct Options {
    /// Controllers that are switched off, by name.
    pub off: BTreeSet<String>,
    /// How pods and nodes are simulated.
    pub simulation: SimulationSettings,
    /// The certificate authority of the API server as PEM, for the ConfigMap `kube-root-ca.crt` of every namespace. Without
    /// it there is no such ConfigMap.
    pub root_ca: Option<String>,
    /// Signs approved CertificateSigningRequests for the signers of Kubernetes. Without it nobody does.
    pub signer: Option<Arc<dyn CertificateSigner>>,
    /// The backoff of a Job after its first failed pod; it doubles with each further failure in a row.
    pub pod_failure_backoff: Duration,
    /// Makes the meter of each controller.
    pub meter: Meters,
    /// The clock of all controllers.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            off: BTreeSet::new(),
            simulation: SimulationSettings::default(),
            root_ca: None,
            signer: None,
            pod_failure_backoff: Duration::from_secs(10),
            meter: Arc::new(|_| Arc::new(())),
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// The options name a controller that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {name:?}; the controllers are {}", known.join(", "))]
pub struct UnknownController {
    /// The unknown name.
    pub name: String,
    /// The names of all controllers.
    pub known: Vec<&'static str>,
}

/// The controllers of a control plane: what kube-controller-manager runs, and the simulator of nodes and pods.
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
pub(crate) struct Manager {
    pub client: Client,
    pub caches: Caches,
    pub kinds: Kinds,
    pub options: Options,
    pub stop: watch::Receiver<bool>,
    pub health: Health,
    recorders: Mutex<Recorders>,
}

/// The recorder of each controller, and the tasks that write their events.
#[derive(Default)]
struct Recorders {
    by_controller: BTreeMap<&'static str, Recorder>,
    tasks: JoinSet<()>,
}

impl ControlPlane {
    /// A control plane for the cluster of a client. Fails if the options name an unknown controller.
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

    /// The health of the controllers. The returned value stays up to date while the control plane runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs the controllers until `stop` resolves, then waits for running reconciles to finish. A controller that panics or
    /// ends early is restarted.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) {
        self.run(TABLE, stop).await;
    }

    fn manager(self, stop: watch::Receiver<bool>) -> Manager {
        Manager {
            caches: Caches::new(self.client.clone(), WatchSettings::default()),
            kinds: Kinds::new(self.client.clone()),
            client: self.client,
            options: self.options,
            stop,
            health: self.health,
            recorders: Mutex::default(),
        }
    }

    async fn run(self, rows: &[Row], stop: impl Future<Output = ()> + Send) {
        let (stopping, stopped) = watch::channel(false);
        let manager = self.manager(stopped);
        let caches = manager.caches.clone();
        manager.health.add_check("watches", move || caches.liveness());
        let mut running = JoinSet::new();
        for row in rows.iter().filter(|row| !manager.options.off.contains(row.name)) {
            running.spawn(manager.start(*row));
        }
        let mut stop = pin!(stop);
        loop {
            let ended = tokio::select! {
                () = &mut stop => break,
                Some(ended) = running.join_next() => ended,
            };
            if let Ok(row) = ended {
                running.spawn(manager.start(row));
            }
        }
        stopping.send_replace(true);
        while running.join_next().await.is_some() {}
        manager.caches.shutdown().await;
        let Recorders { by_controller, mut tasks } = manager.recorders.into_inner();
        by_controller.values().for_each(Recorder::close);
        // A recorder that panicked has been reported; the others still have events to write.
        let written = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(EVENT_FLUSH_TIMEOUT, written).await.is_err() {
            tracing::warn!("some events were not written before the shutdown timeout");
        }
    }
}

impl Manager {
    /// Starts a controller. The future resolves with the controller's row when the controller has to be restarted.
    fn start(&self, row: Row) -> impl Future<Output = Row> + Send + 'static {
        self.health.started(row.name);
        // A controller may also panic before its task exists.
        let started = catch_unwind(AssertUnwindSafe(|| (row.start)(self)));
        let (health, mut stop) = (self.health.clone(), self.stop.clone());
        async move {
            let ended = match started {
                Ok(task) => AssertUnwindSafe(task).catch_unwind().await,
                Err(panic) => Err(panic),
            };
            if !*stop.borrow() {
                let why = if ended.is_err() { "it panicked" } else { "it ended by itself" };
                tracing::error!(controller = row.name, why, "a controller has stopped; restarting it");
                health.stopped(row.name, why.to_owned());
                // A shutdown does not wait for the delay.
                let _ = tokio::time::timeout(RESTART_DELAY, stop.wait_for(|stop| *stop)).await;
            }
            row
        }
    }

    /// The context of the controller of this name. If the controller is restarted, its old recorder writes the events that it
    /// has and ends.
    pub(crate) fn context(&self, name: &'static str) -> ControllerContext {
        let (ctx, recording) = ControllerContext::new(self, name);
        let recorder = ctx.recorder().clone();
        self.health.add_check(name, move || recorder.liveness());
        let mut recorders = self.recorders.lock();
        if let Some(old) = recorders.by_controller.insert(name, ctx.recorder().clone()) {
            old.close();
        }
        // Tasks of old recorders that have ended are forgotten.
        while recorders.tasks.try_join_next().is_some() {}
        recorders.tasks.spawn(recording.run());
        drop(recorders);
        ctx
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// One controller panics, then ends by itself, then runs, while another one runs all the time.
    #[tokio::test(start_paused = true)]
    async fn a_controller_that_ends_is_reported_and_restarted() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        fn failing(manager: &Manager) -> Task {
            let mut stop = manager.stop.clone();
            Box::pin(async move {
                match STARTS.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("on purpose"),
                    1 => {}
                    _ => drop(stop.wait_for(|stop| *stop).await),
                }
            })
        }
        fn steady(manager: &Manager) -> Task {
            let mut stop = manager.stop.clone();
            Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) })
        }
        let manager = control_plane();
        let health = manager.health();
        let (stop, mut stopped) = watch::channel(false);
        let rows = [Row { name: "failing", start: failing }, Row { name: "steady", start: steady }];
        let running =
            tokio::spawn(async move { manager.run(&rows, async { drop(stopped.wait_for(|stop| *stop).await) }).await });
        let within = |share: f64| tokio::time::sleep(RESTART_DELAY.mul_f64(share));
        within(0.5).await;
        assert_eq!(health.failing(), ["[-]failing failed: it panicked"]);
        within(1.0).await;
        assert_eq!(health.failing(), ["[-]failing failed: it ended by itself"]);
        within(1.0).await;
        assert_eq!((health.failing(), STARTS.load(Ordering::SeqCst)), (vec![], 3));
        stop.send_replace(true);
        running.await.unwrap();
    }

    fn control_plane() -> ControlPlane {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        ControlPlane::new(client, Options::default()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_panics_before_its_task_exists_is_restarted() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        fn failing(manager: &Manager) -> Task {
            let mut stop = manager.stop.clone();
            assert!(STARTS.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
            Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) })
        }
        let manager = control_plane();
        let health = manager.health();
        let (stop, mut stopped) = watch::channel(false);
        let rows = [Row { name: "failing", start: failing }];
        let running =
            tokio::spawn(async move { manager.run(&rows, async { drop(stopped.wait_for(|stop| *stop).await) }).await });
        tokio::time::sleep(RESTART_DELAY / 2).await;
        assert_eq!(health.failing(), ["[-]failing failed: it panicked"]);
        tokio::time::sleep(RESTART_DELAY).await;
        assert_eq!((health.failing(), STARTS.load(Ordering::SeqCst)), (vec![], 2));
        stop.send_replace(true);
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_controller_leaves_no_recorder_behind() {
        let (_stopping, stop) = watch::channel(false);
        let manager = control_plane().manager(stop);
        for _ in 0..5 {
            drop(manager.context("a"));
            // The clock is paused: this returns once every task has nothing to do.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut recorders = manager.recorders.lock();
        while recorders.tasks.try_join_next().is_some() {}
        assert_eq!((recorders.by_controller.len(), recorders.tasks.len()), (1, 1));
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
            "resourcequota-controller",
            "root-ca-certificate-publisher-controller",
            "serviceaccount-controller",
            "statefulset-controller",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }
}
