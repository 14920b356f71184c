//! Election by a `coordination.k8s.io/v1` Lease, as client-go's electors do it: both may compete for one Lease. In: a client, and when
//! to stop. Out: terms, told to a [`Seat`]. The decisions are in `candidate`; here requests are sent and a watch is kept.
//!
//! The Lease is watched, so that a release is acted on at once and nobody polls. While the watch is away, it is read every
//! `retry_period` instead.

pub(crate) mod candidate;
pub(crate) mod object;
mod spread;
mod timing;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

pub use spread::LeaseSpread;
pub use timing::LeaseTiming;

use candidate::{Candidate, Command, Failure, Standing};
use object::Lease;

use crate::clock;
use crate::leadership::Seat;
use crate::term::Term;

/// How long the Lease may take to be released at the end, and before that the writes that are under way to be answered.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// An election by a Lease.
#[derive(Clone, Debug)]
pub struct LeaseElection {
    /// The name of the Lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Who this instance is. It has to be unique: two processes of one identity would both lead.
    pub identity: Arc<str>,
    /// How long the Lease is held, and how often it is renewed.
    pub timing: LeaseTiming,
    /// The other elections of this process.
    pub spread: LeaseSpread,
}

/// How a request ended.
enum Ended {
    Read(Result<Option<Lease>, Failure>),
    Wrote(Instant, Result<Lease, Failure>),
}

impl LeaseElection {
    /// Campaigns until `stop` resolves, and tells the seat who leads. Then a leader releases the Lease, so that another instance can
    /// take over at once. Work has to have ended by then: when `stop` resolves, the term is over.
    ///
    /// The client must not be one whose writes wait for the term that is won here.
    pub async fn campaign(self, client: Client, seat: Seat, stop: impl Future<Output = ()> + Send) {
        let api: Api<Lease> = Api::namespaced(client, &self.namespace);
        let mut candidate = Candidate::new(self.identity.clone(), self.timing);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut watched = pin!(watcher(api.clone(), only).default_backoff());
        let mut requests = FuturesUnordered::new();
        let mut stop = pin!(stop);
        let mut said = String::new();
        let mut engagement = self.spread.join();
        loop {
            let now = clock::now();
            candidate.defer(engagement.deference(&self.timing));
            while let Some(command) = candidate.step(now, Timestamp::now()) {
                requests.push(self.send(&api, command, now));
            }
            engagement.set(candidate.is_engaged());
            self.report(&seat, candidate.standing(now), &mut said);
            let next = candidate.next(now);
            tokio::select! {
                Some(ended) = requests.next() => match ended {
                    Ended::Read(answer) => candidate.read(answer, clock::now()),
                    Ended::Wrote(sent, answer) => candidate.wrote(sent, answer, clock::now()),
                },
                event = watched.try_next() => observe(&mut candidate, event),
                () = sleep_until(next) => {}
                () = engagement.changed() => {}
                () = &mut stop => break,
            }
        }
        // The seat is vacated first: nothing is written for a term whose Lease is free.
        drop(seat);
        // A write that is under way decides which version of the Lease is released, and whether there is something to release.
        let answered = async {
            while let Some(ended) = requests.next().await {
                if let Ended::Wrote(sent, answer) = ended {
                    candidate.wrote(sent, answer, clock::now());
                }
            }
        };
        let _ = tokio::time::timeout(RELEASED_WITHIN, answered).await;
        if let Some(lease) = candidate.release(Timestamp::now()) {
            self.release(&api, lease).await;
        }
    }

    async fn send(&self, api: &Api<Lease>, command: Command, sent: Instant) -> Ended {
        let post = PostParams::default();
        match command {
            Command::Read => {
                let read = self.within(self.timing.renew_deadline / 2, "read", api.get_opt(&self.name));
                Ended::Read(read.await)
            }
            Command::Create(mut lease) => {
                lease.metadata.name = Some(self.name.clone());
                Ended::Wrote(sent, self.within(self.timing.renew_deadline, "create", api.create(&post, &lease)).await)
            }
            Command::Replace(lease) => {
                let replaced = api.replace(&self.name, &post, &lease);
                Ended::Wrote(sent, self.within(self.timing.renew_deadline, "update", replaced).await)
            }
        }
    }

    /// A request with a time limit. What went wrong is logged here; what comes of it is the candidate's to decide.
    async fn within<T>(
        &self,
        limit: Duration,
        verb: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failure> {
        let (namespace, name) = (&self.namespace, &self.name);
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            // Another candidate was faster, or the Lease is gone: either is everyday life. What is not found when a Lease is created is
            // its namespace, and that has to be told.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 || (status.code == 404 && verb != "create") => {
                Err(Failure::Conflict)
            }
            Ok(Err(error)) => {
                tracing::warn!(%namespace, %name, %error, "cannot {verb} the Lease of the leader election");
                Err(Failure::Other)
            }
            Err(_) => {
                tracing::warn!(%namespace, %name, ?limit, "no answer in time: cannot {verb} the Lease of the leader election");
                Err(Failure::Other)
            }
        }
    }

    /// Tells the seat, and the log if something has changed.
    fn report(&self, seat: &Seat, standing: Standing, said: &mut String) {
        let (name, identity) = (&self.name, &self.identity);
        let sentence = match &standing {
            Standing::Leading { number, .. } => format!("leading in term {number}"),
            Standing::Following { leader: Some(leader) } => format!("following {leader}"),
            Standing::Following { leader: None } => "nobody leads".to_owned(),
        };
        let was_leading = said.starts_with("leading");
        match standing {
            Standing::Leading { number, deadline } => {
                seat.lead(Term::of_lease(&self.namespace, name, number, identity), deadline);
            }
            Standing::Following { leader } => seat.follow(leader),
        }
        if *said != sentence {
            match was_leading {
                true => {
                    tracing::warn!(lease = name, %identity, was = said.as_str(), "leader election: the term is over; {sentence}")
                }
                false => tracing::info!(lease = name, %identity, "leader election: {sentence}"),
            }
            *said = sentence;
        }
    }

    async fn release(&self, api: &Api<Lease>, lease: Lease) {
        let (post, name) = (PostParams::default(), &self.name);
        match tokio::time::timeout(RELEASED_WITHIN, api.replace(name, &post, &lease)).await {
            Ok(Ok(_)) => tracing::info!(lease = name, "leader election: the Lease is released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = name, %error, "the Lease could not be released; others wait until it expires")
            }
            Err(_) => {
                tracing::warn!(lease = name, "the Lease could not be released in time; others wait until it expires")
            }
        }
    }
}

/// What the watch says.
fn observe(candidate: &mut Candidate, event: Result<Option<Event<Lease>>, watcher::Error>) {
    let now = clock::now();
    match event {
        Ok(Some(Event::Apply(lease) | Event::InitApply(lease))) => candidate.saw(Some(lease), now),
        Ok(Some(Event::Delete(lease))) => candidate.deleted(&lease, now),
        // What the list did not show is asked for by itself: the list may be older than a write of this candidate.
        Ok(Some(Event::InitDone)) => {
            candidate.watching(true);
            candidate.refresh();
        }
        Ok(Some(Event::Init)) => {}
        // The watch tries again by itself. A watch never ends otherwise.
        Ok(None) | Err(_) => candidate.watching(false),
    }
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep(next.saturating_duration_since(clock::now())).await,
        None => std::future::pending().await,
    }
}
