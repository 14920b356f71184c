//! A network between members of one process. In: questions. Out: answers, or none: cut in either direction, lost, late. Messages are
//! encoded as on a real one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::manager::answer;
use crate::node::Node;
use crate::random::Random;
use crate::transport::{CallError, Transport};
use crate::wire::{self, Answer, Envelope};

#[derive(Clone)]
pub(super) struct SimulatedNetwork(Arc<Mutex<Inner>>);

struct Inner {
    members: HashMap<String, Arc<Node>>,
    /// From, to.
    cut: HashSet<(String, String)>,
    /// Of a hundred messages.
    lost: u64,
    delay: Duration,
    random: Random,
}

/// The network as one member has it.
pub(super) struct Socket {
    network: SimulatedNetwork,
    address: String,
}

impl SimulatedNetwork {
    pub(super) fn new(seed: u64) -> Self {
        let (members, cut) = (HashMap::new(), HashSet::new());
        let delay = Duration::from_millis(2);
        Self(Arc::new(Mutex::new(Inner { members, cut, lost: 0, delay, random: Random::seeded(seed) })))
    }

    pub(super) fn of(&self, address: &str) -> Socket {
        Socket { network: self.clone(), address: address.to_owned() }
    }

    pub(super) fn add(&self, address: &str, node: &Arc<Node>) {
        self.0.lock().members.insert(address.to_owned(), node.clone());
    }

    pub(super) fn remove(&self, address: &str) {
        self.0.lock().members.remove(address);
    }

    /// In both directions, from everybody.
    pub(super) fn isolate(&self, address: &str) {
        let mut inner = self.0.lock();
        let others: Vec<String> = inner.members.keys().filter(|other| *other != address).cloned().collect();
        for other in others {
            inner.cut.insert((address.to_owned(), other.clone()));
            inner.cut.insert((other, address.to_owned()));
        }
    }

    /// In one direction.
    pub(super) fn cut(&self, from: &str, to: &str) {
        self.0.lock().cut.insert((from.to_owned(), to.to_owned()));
    }

    pub(super) fn set_faults(&self, lost: u64, delay: Duration) {
        let mut inner = self.0.lock();
        (inner.lost, inner.delay) = (lost, delay);
    }

    pub(super) fn heal(&self) {
        let mut inner = self.0.lock();
        inner.cut.clear();
        (inner.lost, inner.delay) = (0, Duration::from_millis(2));
    }

    /// How long a message takes; none if it does not arrive.
    fn travel(&self, from: &str, to: &str) -> Option<Duration> {
        let mut inner = self.0.lock();
        let is_lost = inner.random.next() % 100 < inner.lost;
        let delay = inner.delay;
        let delay = inner.random.up_to(delay);
        let is_cut = inner.cut.contains(&(from.to_owned(), to.to_owned()));
        (!is_lost && !is_cut).then_some(delay)
    }

    async fn deliver(&self, from: &str, to: &str, message: Vec<u8>) -> Option<Vec<u8>> {
        tokio::time::sleep(self.travel(from, to)?).await;
        let node = self.0.lock().members.get(to).cloned()?;
        // It is answered whether or not somebody still waits for it.
        let answered = tokio::spawn(async move { answer(&node, message.into()).await }).await.ok()?;
        tokio::time::sleep(self.travel(to, from)?).await;
        Some(answered)
    }
}

impl Transport for Socket {
    fn call(
        &self,
        address: &str,
        question: Envelope,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Answer, CallError>> {
        let (network, from, to) = (self.network.clone(), self.address.clone(), address.to_owned());
        Box::pin(async move {
            let question = wire::encode(&question).map_err(|error| CallError(error.to_string()))?;
            let delivered = async {
                match network.deliver(&from, &to, question).await {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            };
            let answer = tokio::time::timeout(limit, delivered).await;
            wire::decode(&answer.map_err(|_| CallError("no answer".into()))?).map_err(CallError)
        })
    }
}
