//! Scripted failures. In: which calls, how often, and what happens to them. Out: what happens to each call, decided by the
//! first rule that fits and is not used up; a delay adds to what the next rule does.

use std::io;
use std::time::Duration;

use konverge::{Kind, RequestInfo};
use konverge_apiserver::Body;
use serde_json::json;

use crate::call::Verb;
use crate::machine::Machine;

/// A scripted failure: some calls, and what happens to them instead of the server's answer. Made by
/// [`Cluster::when`](crate::Cluster::when); nothing happens before one of the methods that end the sentence is called
/// ([`fail`](When::fail), [`conflict`](When::conflict), [`throttle`](When::throttle), [`unreachable`](When::unreachable),
/// [`lose_answer`](When::lose_answer), [`delay`](When::delay)).
///
/// The first rule that fits a call decides. A rule with a number ([`When::once`], [`When::times`]) is used up after that
/// many calls. The methods of [`Cluster`](crate::Cluster) with which a test itself reads and writes are never concerned.
///
/// ```
/// use konverge::prelude::*;
/// use konverge_testkit::{Fake, Verb};
///
/// let fake = Fake::new();
/// fake.when::<Deployment>(Verb::Apply).named("web").once().conflict();
/// fake.when::<Secret>(Verb::READS).fail(403);
/// fake.whenever(Verb::WRITES).times(3).lose_answer();
/// ```
#[must_use = "nothing happens before the sentence is ended, for instance with .fail(503)"]
pub struct When<'a> {
    machine: &'a Machine,
    rule: Rule,
}

/// A scripted failure and the calls it applies to.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    verbs: Vec<Verb>,
    /// Group and plural; none for every kind.
    resource: Option<(String, String)>,
    name: Option<String>,
    /// Only this part; none for all of them.
    subresource: Option<&'static str>,
    /// How often it is still to happen; none for always.
    left: Option<u32>,
    effect: Effect,
}

/// What happens to a call.
#[derive(Clone, Debug)]
enum Effect {
    /// The server is not asked.
    Answer(Refusal),
    /// No connection comes about.
    Unreachable,
    /// The server does it, but its answer gets lost.
    LoseAnswer,
    /// It takes its time.
    Delay(Duration),
}

/// An answer in place of the server's.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub code: u16,
    message: Option<String>,
    retry_after: Option<u64>,
}

/// What is to be done about one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    pub delay: Duration,
    pub end: End,
}

/// How a call ends.
#[derive(Clone, Debug, Default)]
pub(crate) enum End {
    /// As the server says.
    #[default]
    Served,
    /// Without asking the server.
    Refused(Refusal),
    /// Without a connection.
    Unreachable,
    /// As the server says, but nobody hears of it.
    Lost,
}

impl<'a> When<'a> {
    pub(crate) fn new(machine: &'a Machine, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let verbs = verbs.into_iter().collect();
        let effect = Effect::Unreachable;
        Self { machine, rule: Rule { verbs, resource: None, name: None, subresource: None, left: None, effect } }
    }

    pub(crate) fn of<T: Kind>(mut self) -> Self {
        let api = T::resource();
        self.rule.resource = Some((api.group, api.plural));
        self
    }

    /// Only the object of this name, in any namespace.
    pub fn named(mut self, name: &str) -> Self {
        self.rule.name = Some(name.to_owned());
        self
    }

    /// Only calls about the status.
    pub fn status(mut self) -> Self {
        self.rule.subresource = Some("status");
        self
    }

    /// Only the first such call.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only the first so many such calls.
    pub fn times(mut self, times: u32) -> Self {
        self.rule.left = Some(times);
        self
    }

    /// The calls fail with this HTTP code, and with the reason and message that Kubernetes has for it: 403 names the RBAC rule
    /// that is missing. The server is not asked.
    pub fn fail(self, code: u16) {
        self.refuse(Refusal { code, message: None, retry_after: None });
    }

    /// The calls fail with this HTTP code and message. The server is not asked.
    pub fn fail_with(self, code: u16, message: impl Into<String>) {
        self.refuse(Refusal { code, message: Some(message.into()), retry_after: None });
    }

    /// The calls fail with 409, as if another writer had changed (or created) the object meanwhile.
    pub fn conflict(self) {
        self.fail(409);
    }

    /// The calls fail with 404, as if the object did not exist.
    pub fn hide(self) {
        self.fail(404);
    }

    /// The calls fail with 429 and a `Retry-After` of this many whole seconds, as if the server had too much to do.
    pub fn throttle(self, pause: Duration) {
        self.refuse(Refusal { code: 429, message: None, retry_after: Some(pause.as_secs().max(1)) });
    }

    /// No connection is made: the server does nothing, and the client knows that.
    pub fn unreachable(self) {
        self.then(Effect::Unreachable);
    }

    /// The server does what it is asked, but the connection breaks before its answer arrives: the client cannot know whether
    /// it was done.
    pub fn lose_answer(self) {
        self.then(Effect::LoseAnswer);
    }

    /// The call takes this long before anything else happens. With tokio's time paused it takes no time at all.
    pub fn delay(self, time: Duration) {
        self.then(Effect::Delay(time));
    }

    fn refuse(self, refusal: Refusal) {
        self.then(Effect::Answer(refusal));
    }

    fn then(mut self, effect: Effect) {
        self.rule.effect = effect;
        self.machine.add_rule(self.rule);
    }
}

impl Rule {
    fn fits(&self, asked: &RequestInfo) -> bool {
        let resource = |(group, plural): &(String, String)| *group == asked.group && *plural == asked.resource;
        self.left != Some(0)
            && self.verbs.contains(&asked.verb)
            && self.resource.as_ref().is_none_or(resource)
            && self.name.as_deref().is_none_or(|name| asked.name.as_deref() == Some(name))
            && self.subresource.is_none_or(|part| asked.subresource.as_deref() == Some(part))
    }
}

/// What happens to a call; rules that are used count down.
pub(crate) fn fate(rules: &mut [Rule], asked: &RequestInfo) -> Fate {
    let mut fate = Fate::default();
    for rule in rules.iter_mut().filter(|rule| rule.fits(asked)) {
        if let Some(left) = &mut rule.left {
            *left -= 1;
        }
        fate.end = match &rule.effect {
            Effect::Delay(time) => {
                fate.delay += *time;
                continue;
            }
            Effect::Answer(refusal) => End::Refused(refusal.clone()),
            Effect::Unreachable => End::Unreachable,
            Effect::LoseAnswer => End::Lost,
        };
        break;
    }
    fate
}

impl Refusal {
    /// As an answer to this call.
    pub(crate) fn response(&self, asked: &RequestInfo) -> http::Response<Body> {
        let (reason, said) = reason(self.code, asked.verb);
        let name = asked.name.as_deref().unwrap_or_default();
        let about =
            if asked.group.is_empty() { asked.resource.clone() } else { format!("{}.{}", asked.resource, asked.group) };
        let message = self.message.clone().unwrap_or_else(|| match self.code {
            403 => format!("{about} \"{name}\" {said}: {}", denied(asked)),
            _ => format!("{about} \"{name}\" {said}"),
        });
        let mut details = json!({"name": name, "group": asked.group, "kind": asked.resource});
        let mut response = http::Response::builder()
            .status(http::StatusCode::from_u16(self.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR))
            .header(http::header::CONTENT_TYPE, "application/json");
        if let Some(seconds) = self.retry_after {
            details["retryAfterSeconds"] = seconds.into();
            response = response.header(http::header::RETRY_AFTER, seconds);
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "details": details, "code": self.code,
        });
        response.body(Body::full(status.to_string())).expect("a code and two plain headers make a response")
    }
}

/// What the authorizer of Kubernetes says that it does not allow.
fn denied(asked: &RequestInfo) -> String {
    let RequestInfo { group, resource, namespace, subresource, .. } = asked;
    let verb = asked.verb.as_rbac();
    let resource = subresource.iter().fold(resource.clone(), |resource, part| format!("{resource}/{part}"));
    let place = namespace.as_ref().map_or("at the cluster scope".into(), |name| format!("in the namespace \"{name}\""));
    format!("User \"test\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}")
}

/// What Kubernetes says with a code: its reason, and how the message ends.
fn reason(code: u16, verb: Verb) -> (&'static str, &'static str) {
    match code {
        400 => ("BadRequest", "was asked for in a way that makes no sense"),
        401 => ("Unauthorized", "is not for unknown users"),
        403 => ("Forbidden", "is forbidden"),
        404 => ("NotFound", "not found"),
        409 if verb == Verb::Create => ("AlreadyExists", "already exists"),
        409 => {
            ("Conflict", "the object has been modified; please apply your changes to the latest version and try again")
        }
        410 => ("Expired", "is too old a resource version"),
        422 => ("Invalid", "is invalid"),
        429 => ("TooManyRequests", "has to wait: too many requests, please try again later"),
        500 => ("InternalError", "met an internal error"),
        503 => ("ServiceUnavailable", "cannot be handled: the server is currently unable to handle the request"),
        504 => ("Timeout", "took the server too long"),
        _ => ("", "was refused by the test"),
    }
}

/// The error of a connection that does not come about.
pub(crate) fn unreachable() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "the test let no connection come about")
}

/// The error of a connection that breaks.
pub(crate) fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the test lost the answer")
}
