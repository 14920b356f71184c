//! The same no-op controller in three implementations: a reconcile reads its object, counts it, and may pause. In: a client and
//! a counter. Out: a controller that runs until the process ends, and a function that wakes all of its objects.

mod engine;
mod framework;
mod stock;

use std::sync::Arc;
use std::time::Duration;

use konverge_core::ObjectKey;
use kube::Client;

use super::job::Implementation;
use super::reconcile_counter::ReconcileCounter;
use crate::invalid_run::InvalidRun;
use crate::widget;

pub(crate) use framework::settings;

/// The work of a controller.
#[derive(Clone)]
pub(super) struct Work {
    /// The number of widgets.
    pub objects: usize,
    /// How long a reconcile pauses, as if it waited for a response.
    pub pause: Option<Duration>,
    /// The resync period.
    pub resync: Option<Duration>,
    /// Whether changes carry the time at which they were due.
    pub stamped: bool,
    /// Counts the reconciles.
    pub counter: Arc<ReconcileCounter>,
}

/// A function that wakes every object once.
pub(super) type WakeAll = Box<dyn Fn() + Send + Sync>;

/// Starts the controller of an implementation.
pub(super) fn start(implementation: Implementation, client: Client, work: Work) -> Result<WakeAll, InvalidRun> {
    match implementation {
        Implementation::Engine => Ok(engine::start(client, work)),
        Implementation::Operator => Ok(framework::start(client, work)),
        Implementation::Kube => Ok(stock::start(client, work)),
        Implementation::Bare => Err(InvalidRun::new("the bare writes have no controller")),
    }
}

impl Work {
    /// The keys of all widgets.
    fn keys(&self) -> Vec<ObjectKey> {
        (0..self.objects).map(|number| ObjectKey::new(Some("default"), &widget::name(number))).collect()
    }

    /// The pause at the end of a reconcile.
    async fn pause(&self) {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
    }
}
