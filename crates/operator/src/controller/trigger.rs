//! Triggers outside of the cluster. In: streams of keys. Out: reconciles of the objects that have these keys.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use konverge_core::ObjectKey;
use konverge_runtime::{Cause, Controller, Error, Result, What};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// How many keys a channel holds: enough for a burst. The reader only merges keys into a queue, so a full channel means
/// that the operator has not started to read yet; senders wait until it does.
const CHANNEL_CAPACITY: usize = 1024;

/// A named stream of keys.
pub(super) struct Source {
    name: String,
    /// Behind a lock only so that a controller can be shared between threads before it starts.
    keys: Mutex<BoxStream<'static, ObjectKey>>,
}

impl Source {
    pub(super) fn new(name: String, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        Self { name, keys: Mutex::new(keys.boxed()) }
    }

    /// Reconciles what the stream yields, from when the caches are filled until the stream ends.
    pub(super) async fn feed(self, controller: Arc<Controller>) {
        let Self { name, keys } = self;
        let kind: Arc<str> = controller.primary().target().resource.kind.as_str().into();
        let source: Arc<str> = name.into();
        for cache in controller.primaries() {
            cache.synced().await;
        }
        let mut keys = pin!(keys.into_inner());
        while let Some(key) = keys.next().await {
            // The queue holds a key for each object that there is, and so it stays bounded.
            let Some(object) = controller.primary_of(&key).get(&key) else {
                tracing::debug!(controller = controller.name(), source = &*source, %key, "a trigger names no object");
                continue;
            };
            let cause = Cause {
                kind: kind.clone(),
                key: key.clone(),
                what: What::Triggered { source: source.clone() },
                resource_version: object.resource_version().to_owned(),
            };
            controller.wake(&key, cause);
            // A stream that is always ready must not keep the thread from others.
            tokio::task::consume_budget().await;
        }
        tracing::info!(
            controller = controller.name(),
            source = &*source,
            "a trigger stream ended; nothing comes from it any more"
        );
    }
}

/// A channel for keys: the sender goes to whatever notices that an object has to be reconciled, the stream to
/// [`Controller::triggered_by`](crate::Controller::triggered_by).
///
/// The channel holds 1024 keys. When it is full, which happens only before the operator has filled its caches, senders
/// wait.
pub fn key_channel() -> (KeySender, KeyStream) {
    let (sender, keys) = mpsc::channel(CHANNEL_CAPACITY);
    (KeySender(sender), KeyStream(keys))
}

/// Sends keys of objects that are to be reconciled. Clones send to the same stream.
#[derive(Clone, Debug)]
pub struct KeySender(mpsc::Sender<ObjectKey>);

impl KeySender {
    /// Sends a key, and waits while the channel is full. It is an error if nothing reads the keys any more, because the
    /// operator has stopped.
    pub async fn send(&self, key: ObjectKey) -> Result<()> {
        self.0.send(key).await.map_err(|unsent| {
            Error::new(format!("{} cannot be triggered: the operator that reconciles it has stopped", unsent.0))
        })
    }
}

/// Keys from [`KeySender`]s, as a stream. It ends when all senders are dropped.
#[derive(Debug)]
pub struct KeyStream(mpsc::Receiver<ObjectKey>);

impl Stream for KeyStream {
    type Item = ObjectKey;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ObjectKey>> {
        self.0.poll_recv(cx)
    }
}
