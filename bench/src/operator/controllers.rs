//! The same empty controller, three times: its reconcile reads its object, counts it, and may pause. In: a client and
//! what to count with. Out: a controller that runs until the process ends, and a way to wake all of its objects.

mod engine;
mod framework;
mod stock;

use std::sync::Arc;
use std::time::Duration;

use konverge_core::ObjectKey;
use kube::Client;

use super::job::Who;
use super::tally::Tally;
use crate::void::Void;
use crate::widget;

pub use framework::settings;

/// What a controller is to do.
#[derive(Clone)]
pub struct Work {
    /// How many widgets there are.
    pub objects: usize,
    /// How long a reconcile waits, as for an answer.
    pub pause: Option<Duration>,
    /// How often all are looked at again.
    pub resync: Option<Duration>,
    /// Whether changes are stamped with when they were due.
    pub stamped: bool,
    /// Who counts.
    pub tally: Arc<Tally>,
}

/// Wakes every object once.
pub type WakeAll = Box<dyn Fn() + Send + Sync>;

/// Starts a controller of this kind.
pub fn start(who: Who, client: Client, work: Work) -> Result<WakeAll, Void> {
    match who {
        Who::Engine => Ok(engine::start(client, work)),
        Who::Operator => Ok(framework::start(client, work)),
        Who::Kube => Ok(stock::start(client, work)),
        Who::Bare => Err(Void::new("without a controller nothing is reconciled")),
    }
}

impl Work {
    /// The keys of all widgets.
    fn keys(&self) -> Vec<ObjectKey> {
        (0..self.objects).map(|number| ObjectKey::new(Some("default"), &widget::name(number))).collect()
    }

    /// What is left of a reconcile once the object was read.
    async fn rest(&self) {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
    }
}
