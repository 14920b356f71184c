//! Whether a cluster can be reached at all. In: what became of each request's connection. Out: one line in the log when
//! nobody answers at its address, however many watches and writers try, and one when somebody does again.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use konverge_core::error_chain;

/// Shared by all requests of one client.
#[derive(Debug)]
pub(super) struct Reach {
    cluster: String,
    lost: AtomicBool,
}

/// No connection could be made. Who meets it need not say so: the log does.
#[derive(Debug, thiserror::Error)]
#[error("the cluster at {cluster} cannot be reached")]
pub(crate) struct Unreachable {
    cluster: String,
    source: Box<dyn Error + Send + Sync>,
}

impl Unreachable {
    /// Whether this is at the bottom of an error.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        error_chain(error).any(|error| error.is::<Self>())
    }
}

impl Reach {
    pub fn new(cluster: String) -> Self {
        Self { cluster, lost: AtomicBool::new(false) }
    }

    /// A request came back, with whatever answer.
    pub fn answered(&self) {
        // A load is cheap; most requests change nothing.
        if self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::Relaxed) {
            tracing::info!(cluster = self.cluster, "the cluster can be reached again");
        }
    }

    /// No connection could be made for a request.
    pub fn failed(&self, source: Box<dyn Error + Send + Sync>) -> Unreachable {
        if !self.lost.swap(true, Ordering::Relaxed) {
            let why = error_chain(&*source).last().map(ToString::to_string);
            tracing::warn!(cluster = self.cluster, why, "the cluster cannot be reached; it is asked until it answers");
        }
        Unreachable { cluster: self.cluster.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::captured_log::CapturedLog;

    #[tokio::test]
    async fn a_cluster_that_nobody_reaches_is_named_once_by_its_address() {
        let log = CapturedLog::at(Level::INFO);
        let _log = tracing::subscriber::set_default(log.clone());
        // Nobody listens there: the port is reserved for a service that no system runs any more.
        let client = crate::connect(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        for _ in 0..3 {
            let error = client.apiserver_version().await.unwrap_err();
            assert!(Unreachable::caused(&error), "{error:?}");
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("http://127.0.0.1:1/") && lines[0].contains("refused"), "{}", lines[0]);
    }

    #[test]
    fn each_outage_has_a_beginning_and_an_end() {
        let log = CapturedLog::at(Level::INFO);
        tracing::subscriber::with_default(log.clone(), || {
            let reach = Reach::new("http://cluster".to_owned());
            for answered in [true, false, false, true, true, false, true] {
                match answered {
                    true => reach.answered(),
                    false => drop(reach.failed("gone".into())),
                }
            }
        });
        let lines = log.lines();
        let again = lines.iter().filter(|line| line.contains("again")).count();
        assert_eq!((lines.len(), again), (4, 2), "{lines:#?}");
    }
}
