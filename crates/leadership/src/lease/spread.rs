//! Several elections in one process. In: whether each of them leads. Out: for how long each leaves a free Lease to other processes, so
//! that the Leases spread over them instead of all going to whoever is first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::timing::LeaseTiming;

/// Elections of one process that should not all be won by it. Cheap to clone; all clones are the same. An election that is alone has one
/// of its own.
///
/// An election leaves a free Lease to other processes for an eighth of the retry period, for each of the others that this process leads
/// or is about to win; at most for a whole retry period. If no other process wants the Lease, that is how much later it is taken.
#[derive(Clone, Debug)]
pub struct LeaseSpread(Arc<watch::Sender<usize>>);

impl Default for LeaseSpread {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl LeaseSpread {
    /// The part of one election.
    pub(super) fn join(&self) -> Engagement {
        Engagement { engaged: self.0.clone(), changes: self.0.subscribe(), is_counted: false }
    }
}

/// Whether one election of a process leads, or is about to. It does not any more when this is dropped.
pub(super) struct Engagement {
    engaged: Arc<watch::Sender<usize>>,
    changes: watch::Receiver<usize>,
    is_counted: bool,
}

impl Engagement {
    pub(super) fn set(&mut self, is_engaged: bool) {
        if self.is_counted == is_engaged {
            return;
        }
        self.is_counted = is_engaged;
        self.engaged.send_modify(|count| if is_engaged { *count += 1 } else { *count -= 1 });
    }

    /// For how long a free Lease is left to other processes.
    pub(super) fn deference(&mut self, timing: &LeaseTiming) -> Duration {
        let others = *self.changes.borrow_and_update() - usize::from(self.is_counted);
        let eighths = u32::try_from(others.min(8)).unwrap_or(8);
        timing.retry_period / 8 * eighths
    }

    /// Resolves when another election has begun or ceased to lead.
    pub(super) async fn changed(&mut self) {
        // The sender is in `self`, so it is never gone.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Engagement {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_leaves_leases_to_others_for_each_that_its_process_leads() {
        let check = |engaged: &[bool], expect: &[u64]| {
            let spread = LeaseSpread::default();
            let mut all: Vec<Engagement> = engaged.iter().map(|_| spread.join()).collect();
            all.iter_mut().zip(engaged).for_each(|(one, is_engaged)| one.set(*is_engaged));
            let waits = all.iter_mut().map(|one| one.deference(&LeaseTiming::default()).as_millis() as u64);
            assert_eq!(waits.collect::<Vec<_>>(), expect, "{engaged:?}");
        };
        check(&[false], &[0]);
        check(&[true], &[0]);
        check(&[true, false, false], &[0, 250, 250]);
        check(&[true, true, false], &[250, 250, 500]);
        check(&[true; 12], &[2000; 12]);
    }

    #[test]
    fn an_election_that_ends_is_not_counted() {
        let spread = LeaseSpread::default();
        let (mut first, mut second) = (spread.join(), spread.join());
        first.set(true);
        drop(first);
        assert_eq!(second.deference(&LeaseTiming::default()), Duration::ZERO);
    }
}
