//! Whether this instance leads. In: terms that an election begins, extends and ends ([`Seat`]). Out: the current term for everybody
//! who asks ([`Leadership`]), and which term a task works for. A term also ends by itself, at its deadline, so an election that hangs
//! extends nothing.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;
use crate::term::Term;

/// Whether this instance leads, and who does if it does not. Cheap to clone; all clones are the same.
///
/// ```
/// use konverge_leadership::Leadership;
/// let always = Leadership::always("laptop");
/// assert_eq!(always.term().map(|term| term.number), Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct Leadership(Arc<watch::Sender<Standing>>);

tokio::task_local! {
    /// The term that a task works for, and the leadership that the term is of: an instance may take part in several elections.
    static WORKS_FOR: (Leadership, Arc<Term>);
}

/// Who leads, as one instance knows it.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The identity of the leader, if there is one that is known.
    pub leader: Option<Arc<str>>,
    /// The term of this instance, if it leads.
    pub term: Option<Arc<Term>>,
    /// When the term ends unless it is extended; none is never.
    deadline: Option<Instant>,
}

impl Standing {
    /// Whether the term is over by now: nobody extended it in time.
    fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Leadership {
    /// An instance that leads for as long as it runs, because there is no other.
    pub fn always(identity: &str) -> Self {
        let term = Term { number: 1, holder: identity.into(), fence: None };
        let standing = Standing { leader: Some(term.holder.clone()), term: Some(Arc::new(term)), deadline: None };
        Self(Arc::new(watch::Sender::new(standing)))
    }

    /// Nobody leads yet. The seat is for the election.
    pub fn vacant() -> (Self, Seat) {
        let shared = Arc::new(watch::Sender::new(Standing::default()));
        (Self(shared.clone()), Seat(shared))
    }

    /// The term of this instance, if it leads now.
    pub fn term(&self) -> Option<Arc<Term>> {
        let standing = self.0.borrow();
        standing.term.clone().filter(|_| !standing.is_overdue(clock::now()))
    }

    /// The identity of the leader, if one is known: this instance or another.
    pub fn leader(&self) -> Option<Arc<str>> {
        self.0.borrow().leader.clone()
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether a term was begun that nobody has ended, be it overdue or not.
    pub(crate) fn has_term(&self) -> bool {
        self.0.borrow().term.is_some()
    }

    /// Waits until this instance leads.
    pub async fn begun(&self) -> Arc<Term> {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(term) = self.term() {
                return term;
            }
            // The sender is in `self`, so it is never gone.
            let _ = changes.changed().await;
        }
    }

    /// Waits until this term is over: lost, given up, or not extended in time.
    pub fn ended(&self, term: &Term) -> impl Future<Output = ()> + Send + use<> {
        let (number, mut changes) = (term.number, self.0.subscribe());
        async move {
            loop {
                let deadline = {
                    let standing = changes.borrow_and_update();
                    let is_current = standing.term.as_ref().is_some_and(|current| current.number == number);
                    if !is_current || standing.is_overdue(clock::now()) {
                        return;
                    }
                    standing.deadline
                };
                let due = async {
                    match deadline {
                        Some(deadline) => tokio::time::sleep(deadline.saturating_duration_since(clock::now())).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = changes.changed() => {
                        if changed.is_err() {
                            return;
                        }
                    }
                    () = due => {}
                }
            }
        }
    }

    /// Runs work that belongs to a term of this leadership. [`Leadership::of_this_task`] finds both within it, so that a write which was
    /// begun for an ended term is known, also if this instance leads again by then. Tasks that the work spawns do not inherit it.
    pub fn scope<F: Future>(&self, term: Arc<Term>, work: F) -> impl Future<Output = F::Output> + use<F> {
        WORKS_FOR.scope((self.clone(), term), work)
    }

    /// Runs a function that belongs to a term of this leadership, as [`Leadership::scope`] does for a future.
    pub fn sync_scope<T>(&self, term: Arc<Term>, work: impl FnOnce() -> T) -> T {
        WORKS_FOR.sync_scope((self.clone(), term), work)
    }

    /// The term that the current task works for, and the leadership that the term is of, if the task was begun within one.
    pub fn of_this_task() -> Option<(Self, Arc<Term>)> {
        WORKS_FOR.try_with(Clone::clone).ok()
    }

    /// Every change of who leads, the current state first.
    pub fn changes(&self) -> watch::Receiver<Standing> {
        let mut changes = self.0.subscribe();
        changes.mark_changed();
        changes
    }
}

/// Where an election says who leads. There is one for each [`Leadership`]; when it is dropped, the term is over.
#[derive(Debug)]
pub struct Seat(Arc<watch::Sender<Standing>>);

impl Seat {
    /// This instance leads in this term until the deadline. A term that goes on is extended; one that has passed its deadline is
    /// over, because work that was begun in it has been cut off, and the next one has to have another number.
    pub fn lead(&self, term: Term, deadline: Instant) {
        let now = clock::now();
        self.0.send_if_modified(|standing| {
            if standing.term.as_ref().is_some_and(|known| known.number == term.number) {
                let goes_on = !standing.is_overdue(now);
                if goes_on {
                    standing.deadline = Some(deadline);
                }
                return goes_on;
            }
            let leader = Some(term.holder.clone());
            *standing = Standing { leader, term: Some(Arc::new(term)), deadline: Some(deadline) };
            true
        });
    }

    /// This instance does not lead; perhaps another one does.
    pub fn follow(&self, leader: Option<Arc<str>>) {
        self.0.send_if_modified(|standing| {
            let changed = standing.term.is_some() || standing.leader != leader;
            *standing = Standing { leader, term: None, deadline: None };
            changed
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.follow(None);
    }
}
