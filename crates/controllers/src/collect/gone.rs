//! Owners that are known to be gone. In: places of objects that a watch saw go, or that the server did not find. Out: whether
//! one is among them. A uid never comes back, so what is known once stays true, also when the kind of the object is gone as
//! well and nobody can be asked; and a thousand dependents of one owner do not ask a thousand times.

use std::collections::HashSet;

use konverge_core::ObjectKey;
use parking_lot::Mutex;

use super::place::Place;

/// How many are remembered. Who is forgotten is asked for again.
const REMEMBERED: usize = 10_000;

#[derive(Default)]
pub(super) struct Gone(Mutex<HashSet<ObjectKey>>);

impl Gone {
    pub fn note(&self, place: &Place) {
        let mut gone = self.0.lock();
        if gone.len() >= REMEMBERED {
            gone.clear();
        }
        gone.insert(place.key());
    }

    pub fn has(&self, place: &Place) -> bool {
        self.0.lock().contains(&place.key())
    }
}
