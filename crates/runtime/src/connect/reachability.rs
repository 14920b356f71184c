//! Whether a cluster can be reached. In: whether each request found a connection. Out: one log line when the cluster
//! cannot be reached, however many watches and writers try, and one when it can be reached again.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use konverge_core::error_chain;

/// Shared by all requests of one client.
#[derive(Debug)]
pub(super) struct Reachability {
    cluster: String,
    unreachable: AtomicBool,
}

/// No connection could be made. Callers do not have to log it: [`Reachability`] has.
#[derive(Debug, thiserror::Error)]
#[error("the cluster at {cluster} cannot be reached")]
pub(crate) struct Unreachable {
    cluster: String,
    source: Box<dyn Error + Send + Sync>,
}

impl Unreachable {
    /// Whether this is among the causes of an error.
    pub(crate) fn caused(error: &(dyn Error + 'static)) -> bool {
        error_chain(error).any(|error| error.is::<Self>())
    }
}

impl Reachability {
    pub(super) fn new(cluster: String) -> Self {
        Self { cluster, unreachable: AtomicBool::new(false) }
    }

    /// A request got a response, of any status.
    pub(super) fn succeeded(&self) {
        // A load is cheaper than a swap, and most requests change nothing.
        if self.unreachable.load(Ordering::Relaxed) && self.unreachable.swap(false, Ordering::Relaxed) {
            tracing::info!(cluster = self.cluster, "the cluster can be reached again");
        }
    }

    /// No connection could be made for a request.
    pub(super) fn failed(&self, source: Box<dyn Error + Send + Sync>) -> Unreachable {
        if !self.unreachable.swap(true, Ordering::Relaxed) {
            let why = error_chain(&*source).last().map(ToString::to_string);
            tracing::warn!(
                cluster = self.cluster,
                why,
                "the cluster cannot be reached; requests are sent until it can"
            );
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
    async fn an_unreachable_cluster_is_logged_once_with_its_address() {
        let log = CapturedLog::at(Level::INFO);
        let _log = tracing::subscriber::set_default(log.clone());
        // Port 1 is reserved for a service that no system runs any more, so nothing listens there.
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
    fn each_outage_is_logged_when_it_begins_and_when_it_ends() {
        let log = CapturedLog::at(Level::INFO);
        tracing::subscriber::with_default(log.clone(), || {
            let reachability = Reachability::new("http://cluster".to_owned());
            for succeeded in [true, false, false, true, true, false, true] {
                match succeeded {
                    true => reachability.succeeded(),
                    false => drop(reachability.failed("gone".into())),
                }
            }
        });
        let lines = log.lines();
        let again = lines.iter().filter(|line| line.contains("again")).count();
        assert_eq!((lines.len(), again), (4, 2), "{lines:#?}");
    }
}
