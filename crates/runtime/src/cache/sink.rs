//! What a watch brings, on its way into a cache. In: lists and changes. Out: the state of the cache, and whether its watch is alive.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use super::state::State;
use crate::object::Object;
use crate::watch::{Sink, WatchState};

impl Sink for Core {
    fn list_sent(&self) {
        self.state.write().list_sent();
    }

    fn rewound(&self) {
        self.state.write().rewound();
    }

    fn list_began(&self) {
        self.state.write().list_began();
    }

    fn listed(&self, object: Object) {
        // A list goes through as a whole or not at all: one that panics in the middle every time is not well.
        self.take(object, State::listed);
    }

    fn list_done(&self, version: Option<u64>) {
        self.change(|state, changes| state.list_done(version, changes));
        self.liveness.worked();
    }

    fn applied(&self, object: Object) {
        self.take(object, State::applied);
        self.liveness.worked();
    }

    fn deleted(&self, object: Object) {
        self.change(|state, changes| state.deleted(&object, Instant::now(), changes));
        self.liveness.worked();
    }

    fn unreadable(&self, _: &str) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self, state: WatchState) {
        self.watch.send_if_modified(|now| {
            let differs = *now != state;
            *now = state;
            differs
        });
    }

    fn users(&self) -> Vec<String> {
        self.users.lock().iter().cloned().collect()
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        let pause = self.liveness.panicked(panic);
        self.restarted();
        self.state(WatchState::Failing(self.liveness.check().err().unwrap_or_default()));
        pause
    }
}
