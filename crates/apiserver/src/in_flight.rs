//! How many requests are worked on at the same time. In: what a request does, who makes it, and the time. Out: a slot, held until
//! the answer begins, or nothing: then the client gets 429 and tries again later. Requests that run long have no slot.
//!
//! A slot is taken after the body has arrived and is given back before the answer is read, so that a client which sends or
//! reads slowly holds none: what slow clients cost is bounded by `body_memory` and by the listener. A request that asks a webhook
//! gives its slot to others for good and counts among those of the webhook (`waiting`): a webhook that hangs costs only those whose
//! requests it is asked about. kube-apiserver keeps the slot, and so one such webhook stops every write there.

mod waiting;

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Response, header};
use parking_lot::Mutex;

use crate::body::Body;
use crate::request::{self, Endpoint, Query};
use crate::response::typed;
use crate::user::UserInfo;
use crate::verb::Verb;
use waiting::Waiting;

/// How many requests are worked on at the same time; more get 429. 0 is no bound.
///
/// The default has no bounds, for servers whose clients are in the same process.
///
/// ```
/// use konverge_apiserver::{InFlightLimits, Options};
/// let options = Options { in_flight: InFlightLimits::KUBERNETES, ..Options::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlightLimits {
    /// Gets and lists.
    pub reading: usize,
    /// Everything else but watches and other requests that run long.
    pub writing: usize,
}

impl InFlightLimits {
    /// Those of kube-apiserver.
    pub const KUBERNETES: Self = Self { reading: 400, writing: 200 };
}

/// Members always get an answer: they are the administrators who end an overload.
const UNLIMITED_GROUP: &str = "system:masters";

/// What bounds a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Reading,
    Writing,
    /// Watches and streams: they go on after their answer has begun.
    LongRunning,
    /// Questions about the server itself, which are answered whatever else happens.
    Probe,
}

impl RequestKind {
    pub(crate) fn of(method: &Method, endpoint: &Endpoint, query: &Query) -> Self {
        const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
        match endpoint {
            Endpoint::Health { .. } | Endpoint::Metrics => Self::Probe,
            Endpoint::Objects(target) if target.subresource.as_deref().is_some_and(|name| STREAMS.contains(&name)) => {
                Self::LongRunning
            }
            Endpoint::Objects(target) => match request::verb(method, target, query) {
                Some(Verb::Watch) => Self::LongRunning,
                Some(Verb::Get | Verb::List) => Self::Reading,
                _ => Self::Writing,
            },
            _ if matches!(*method, Method::GET | Method::HEAD) => Self::Reading,
            _ => Self::Writing,
        }
    }
}

/// The requests that are worked on.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Seconds are counted from here.
    epoch: Instant,
    reading: Arc<Lane>,
    writing: Arc<Lane>,
}

#[derive(Debug)]
struct Lane {
    limit: usize,
    usage: Mutex<Usage>,
    waiting: Mutex<Waiting>,
}

/// How many requests there are, and how many there were at most in this second and in the one before.
#[derive(Debug, Default)]
struct Usage {
    current: usize,
    second: u64,
    peak: usize,
    peak_before: usize,
}

/// Held while a request is worked on.
#[derive(Debug)]
pub(crate) struct Slot {
    /// None for requests that are not bounded.
    lane: Option<Arc<Lane>>,
    /// The size of the body, which stays in memory as long as the request does.
    body: usize,
    master: bool,
    /// Whether it was given to others because the request has asked a webhook.
    lent: Mutex<bool>,
}

/// Held while a request waits for a webhook.
#[derive(Debug)]
pub(crate) struct WaitingFor {
    slot: Arc<Slot>,
    webhook: String,
}

tokio::task_local! {
    /// The slot of the request that this task works on.
    static SLOT: Arc<Slot>;
}

/// Works on a request that has a slot.
pub(crate) async fn with_slot<T>(slot: Option<Arc<Slot>>, work: impl Future<Output = T>) -> T {
    match slot {
        Some(slot) => SLOT.scope(slot, work).await,
        None => work.await,
    }
}

/// The slot of the request that this task works on.
pub(crate) fn slot() -> Option<Arc<Slot>> {
    SLOT.try_with(Clone::clone).ok()
}

/// Notes that the request which this task works on waits for a webhook, and gives its slot to others. An error is what the client
/// is told if too many wait already. Watches and the server's own tasks have no slot: each waits for one webhook at a time.
pub(crate) fn wait_for(webhook: &str) -> Result<Option<WaitingFor>, String> {
    let Some((slot, lane)) = slot().and_then(|slot| slot.lane.clone().map(|lane| (slot, lane))) else {
        return Ok(None);
    };
    // Administrators get an answer, however many wait.
    let limit = (lane.limit > 0 && !slot.master).then_some(lane.limit);
    {
        let mut lent = slot.lent.lock();
        lane.waiting.lock().begin(webhook, slot.body, !*lent, limit)?;
        if !std::mem::replace(&mut *lent, true) {
            lane.usage.lock().current -= 1;
        }
    }
    Ok(Some(WaitingFor { slot, webhook: webhook.to_owned() }))
}

impl InFlight {
    pub(crate) fn new(limits: InFlightLimits, now: Instant) -> Self {
        let lane = |limit| Arc::new(Lane { limit, usage: Mutex::default(), waiting: Mutex::default() });
        Self { epoch: now, reading: lane(limits.reading), writing: lane(limits.writing) }
    }

    /// A slot for a request with a body of so many bytes, unless all are taken.
    pub(crate) fn enter(&self, kind: RequestKind, user: &UserInfo, body: usize, now: Instant) -> Option<Slot> {
        let master = user.groups.iter().any(|group| group == UNLIMITED_GROUP);
        let slot = |lane: Option<&Arc<Lane>>| Slot { lane: lane.cloned(), body, master, lent: Mutex::new(false) };
        let lane = match kind {
            RequestKind::Reading => &self.reading,
            RequestKind::Writing => &self.writing,
            RequestKind::LongRunning | RequestKind::Probe => return Some(slot(None)),
        };
        if lane.usage.lock().enter(lane.limit, self.second(now)) {
            return Some(slot(Some(lane)));
        }
        master.then(|| slot(None))
    }

    /// The most requests of the last second that read and that wrote, under their names in metrics.
    pub(crate) fn peaks(&self, now: Instant) -> [(&'static str, usize); 2] {
        let peak = |lane: &Lane| lane.usage.lock().peak_of_the_last_second(self.second(now));
        [("mutating", peak(&self.writing)), ("readOnly", peak(&self.reading))]
    }

    /// How many requests that write and that read have asked a webhook and are not answered yet, under their names in metrics.
    pub(crate) fn lent(&self) -> [(&'static str, usize); 2] {
        let lent = |lane: &Lane| lane.waiting.lock().lent();
        [("mutating", lent(&self.writing)), ("readOnly", lent(&self.reading))]
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_secs()
    }
}

impl Usage {
    fn enter(&mut self, limit: usize, second: u64) -> bool {
        self.advance(second);
        if limit > 0 && self.current >= limit {
            return false;
        }
        self.current += 1;
        self.peak = self.peak.max(self.current);
        true
    }

    fn peak_of_the_last_second(&mut self, second: u64) -> usize {
        self.advance(second);
        self.peak.max(self.peak_before)
    }

    fn advance(&mut self, second: u64) {
        if second > self.second {
            self.peak_before = if second == self.second + 1 { self.peak } else { self.current };
            (self.peak, self.second) = (self.current, second);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(lane) = &self.lane else { return };
        match *self.lent.get_mut() {
            true => lane.waiting.lock().answered(self.body),
            false => lane.usage.lock().current -= 1,
        }
    }
}

impl Drop for WaitingFor {
    fn drop(&mut self) {
        if let Some(lane) = &self.slot.lane {
            lane.waiting.lock().end(&self.webhook, self.slot.body);
        }
    }
}

/// 429 as kube-apiserver has it: a text, not a `Status`.
pub(crate) fn too_many_requests() -> Response<Body> {
    let text = Body::full("Too many requests, please try again later.\n");
    let mut response = typed(429, "text/plain; charset=utf-8", text);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_bounds_a_request() {
        use RequestKind::{LongRunning, Probe, Reading, Writing};
        for (method, path, expect) in [
            ("GET", "/api/v1/pods", Reading),
            ("HEAD", "/api/v1/pods", Reading),
            ("GET", "/api/v1/namespaces/a/pods/p", Reading),
            ("GET", "/api/v1/pods?watch=true", LongRunning),
            ("GET", "/api/v1/pods?watch=false", Reading),
            ("GET", "/api/v1/namespaces/a/pods/p/log", LongRunning),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", LongRunning),
            ("GET", "/api/v1/namespaces/a/services/s/proxy", LongRunning),
            ("GET", "/api/v1/namespaces/a/pods/p/status", Reading),
            ("POST", "/api/v1/namespaces/a/pods", Writing),
            ("PATCH", "/api/v1/namespaces/a/pods/p", Writing),
            ("DELETE", "/api/v1/namespaces/a/pods", Writing),
            ("OPTIONS", "/api/v1/pods", Writing),
            ("GET", "/apis", Reading),
            ("POST", "/version", Writing),
            ("GET", "/readyz/ping", Probe),
            ("GET", "/metrics", Probe),
        ] {
            let uri: http::Uri = path.parse().unwrap();
            let method: Method = method.parse().unwrap();
            let got = RequestKind::of(&method, &request::endpoint(uri.path()), &Query::parse(uri.query()));
            assert_eq!(got, expect, "{method} {path}");
        }
    }

    #[test]
    fn slots_are_bounded_by_what_requests_do() {
        use RequestKind::{LongRunning, Reading, Writing};
        let now = Instant::now();
        let in_flight = InFlight::new(InFlightLimits { reading: 2, writing: 1 }, now);
        let (someone, master) = (
            UserInfo::named("someone"),
            UserInfo { groups: vec!["system:masters".into()], ..UserInfo::named("master") },
        );
        let mut held = Vec::new();
        for (kind, user, expect) in [
            (Reading, &someone, true),
            (Writing, &someone, true),
            (Writing, &someone, false),
            (Reading, &someone, true),
            (Reading, &someone, false),
            (LongRunning, &someone, true),
            (Writing, &master, true),
        ] {
            let slot = in_flight.enter(kind, user, 0, now);
            assert_eq!(slot.is_some(), expect, "{kind:?} by {}", user.name);
            held.extend(slot);
        }
        assert_eq!(in_flight.peaks(now), [("mutating", 1), ("readOnly", 2)]);
        held.clear();
        assert!(in_flight.enter(Writing, &someone, 0, now).is_some());
        let unbounded = InFlight::new(InFlightLimits::default(), now);
        let all: Vec<_> = (0..1000).map(|_| unbounded.enter(Writing, &someone, 0, now)).collect();
        assert!(all.iter().all(Option::is_some));
    }

    /// Who asks a webhook gives the slot to others, once and for good; the webhook has room for as many as there are slots.
    #[tokio::test]
    async fn requests_that_wait_for_a_webhook_have_no_slot() {
        let now = Instant::now();
        let in_flight = InFlight::new(InFlightLimits { reading: 0, writing: 2 }, now);
        let (someone, master) = (
            UserInfo::named("someone"),
            UserInfo { groups: vec!["system:masters".into()], ..UserInfo::named("master") },
        );
        let enter = |user| in_flight.enter(RequestKind::Writing, user, 10, now).map(Arc::new);
        let ask =
            async |slot: &Arc<Slot>, webhook: &str| with_slot(Some(slot.clone()), async { wait_for(webhook) }).await;
        let (first, second) = (enter(&someone).unwrap(), enter(&someone).unwrap());
        assert!(enter(&someone).is_none(), "there are two slots");
        let waits =
            (ask(&first, "a").await.unwrap(), ask(&first, "b").await.unwrap(), ask(&second, "a").await.unwrap());
        let (third, other) = (enter(&someone).unwrap(), enter(&someone).unwrap());
        assert!(enter(&someone).is_none(), "two slots were lent, not three");
        assert!(ask(&third, "a").await.unwrap_err().contains("2 requests"));
        assert_eq!(in_flight.lent(), [("mutating", 2), ("readOnly", 0)]);
        drop(third);
        assert!(ask(&enter(&master).unwrap(), "a").await.is_ok(), "an administrator waits, too");
        assert!(ask(&other, "b").await.is_ok(), "another webhook has room");
        drop(waits);
        assert_eq!(in_flight.lent(), [("mutating", 3), ("readOnly", 0)], "until they are answered");
        drop((first, second, other));
        assert_eq!(in_flight.lent(), [("mutating", 0), ("readOnly", 0)]);
        let all = (enter(&someone), enter(&someone), enter(&someone));
        assert!(all.0.is_some() && all.1.is_some() && all.2.is_none());
    }

    #[test]
    fn the_peak_is_that_of_the_last_second() {
        let now = Instant::now();
        let in_flight = InFlight::new(InFlightLimits::default(), now);
        let enter = || in_flight.enter(RequestKind::Reading, &UserInfo::default(), 0, now);
        let held = (enter(), enter(), enter());
        drop((held.0, held.1));
        for (seconds, expect) in [(0, 3), (1, 3), (2, 1), (9, 1)] {
            assert_eq!(in_flight.peaks(now + Duration::from_secs(seconds))[1], ("readOnly", expect), "{seconds} s");
        }
    }

    #[test]
    fn the_answer_is_that_of_kubernetes() {
        let answer = too_many_requests();
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.headers()["retry-after"], "1");
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
    }
}
