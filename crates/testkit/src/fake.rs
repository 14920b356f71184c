//! A fake client for unit tests. In: the objects that are there. Out: a client, one reconcile at a time, and what it
//! did. The server behind it is the real one of this project; only what surrounds a test is faked.

use std::ops::Deref;

use konverge::Kind;

use crate::cluster::Cluster;
use crate::machine::Machine;
use crate::seed::{Seed, Seeded};

/// A [`Cluster`] that starts with given objects, by itself, when it is first asked for something. It has all of a
/// cluster's methods.
///
/// ```
/// use konverge::prelude::*;
/// use konverge_testkit::{Fake, Verb};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let fake = Fake::new().with(ConfigMap::new("colours").namespace("shop").data("sky", "blue"));
/// fake.when::<ConfigMap>(Verb::Get).once().fail(503);
///
/// let api: konverge::kube::Api<ConfigMap> = konverge::kube::Api::namespaced(fake.client(), "shop");
/// assert!(api.get("colours").await.is_err());
/// assert!(api.get("colours").await.is_ok());
/// assert_eq!(fake.calls().lines(), ["get ConfigMap shop/colours → 503", "get ConfigMap shop/colours"]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Fake(Cluster);

impl Fake {
    /// A cluster with nothing in it but what every cluster has.
    pub fn new() -> Self {
        Self(Cluster::over(Machine::default()))
    }

    /// Starts with this object, as it is given, with its status. Its namespace and, if its Rust type knows it, the CRD of its
    /// kind are there, too. A CRD can be given as JSON for a kind that has no Rust type. An object with a `deletionTimestamp`
    /// is being deleted; it needs a finalizer.
    ///
    /// An object that the server refuses is an error of the first call.
    ///
    /// # Panics
    ///
    /// If the fake was used already: it has begun, and [`Cluster::create`] adds objects.
    pub fn with<Origin>(self, object: impl Seed<Origin>) -> Self {
        self.0.machine.add_seed(object.seed());
        self
    }

    /// The CRD of a kind is there, without an object of it.
    ///
    /// # Panics
    ///
    /// If the fake was used already: [`Cluster::install`] adds kinds.
    pub fn knows<T: Kind>(self) -> Self {
        self.0.machine.add_seed(Seeded::kind::<T>());
        self
    }
}

impl Deref for Fake {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}
