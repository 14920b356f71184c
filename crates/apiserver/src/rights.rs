//! Which rights users make use of, and which they lack. In: every decision about a request. Out: for a user, the rights that
//! were used, those that roles give and nobody used, those that were asked for in vain, and the roles that would have been
//! enough (`report`). Kept in memory since the start, within bounds; members of `system:masters` and who has no credential are not noted.

mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::authorize::Attributes;
use crate::rbac::Rbac;
use crate::server::ApiServer;
use crate::user::{MASTERS, UNAUTHENTICATED, UserInfo};

pub use report::{PermissionReport, ScopedRule};

/// How many users are noted: far more than the operators of a test cluster. Later ones are not, and their report says so.
const MAX_USERS: usize = 256;

/// How many bytes of names are noted for one user: an operator's rights take some thousand. All users together take some 30 MB at
/// the most.
const MAX_BYTES: usize = 128 * 1024;

/// How many names of objects are told apart for one right. With more of them, no rule can name them.
const MAX_NAMES: usize = 16;

/// The longest path, and the longest name of a kind, a namespace or an object, that is noted. No object has a longer one.
const MAX_LENGTH: usize = 253;

/// What all users did and tried.
#[derive(Default)]
pub(crate) struct Rights(Mutex<HashMap<String, UserRights>>);

/// What one user did and tried.
#[derive(Clone, Default)]
struct UserRights {
    asked: BTreeMap<Right, Outcome>,
    /// How many bytes the texts take.
    bytes: usize,
    /// Whether there was more than is noted.
    incomplete: bool,
}

/// What a request asks for, without the name of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    namespace: String,
    group: String,
    /// With its subresource; empty for a path.
    resource: String,
    /// Only for requests that are about no resource.
    path: String,
    verb: String,
}

/// The names of the objects that requests for a right were about, up to a number; a request about a collection has an empty name. What was
/// denied and later allowed is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    allowed: BTreeSet<String>,
    denied: BTreeSet<String>,
}

impl Rights {
    /// Notes a decision about a request. The server has what the request is about: a client can name things without end.
    pub(crate) fn note(&self, attributes: &Attributes<'_>, allowed: bool) {
        let user = attributes.user;
        if user.groups.iter().any(|group| group == MASTERS || group == UNAUTHENTICATED) {
            return;
        }
        let mut users = self.0.lock();
        if !users.contains_key(&user.name) {
            if users.len() >= MAX_USERS {
                return;
            }
            users.insert(user.name.clone(), UserRights::default());
        }
        let rights = users.get_mut(&user.name).expect("it was just inserted");
        rights.note(Right::of(attributes), attributes.resource.map_or("", |resource| resource.name), allowed);
    }

    /// What a user may do, beside what the user did. `groups` are those that the user is in.
    fn report(&self, rbac: &Rbac, user: &UserInfo) -> PermissionReport {
        let noted = self.0.lock();
        let is_full = noted.len() >= MAX_USERS && !noted.contains_key(&user.name);
        let rights = noted.get(&user.name).cloned().unwrap_or_default();
        drop(noted);
        report::report(user, &rbac.grants_to(user), &rights, is_full || rights.incomplete)
    }

    /// The users that made requests, in the order of their names.
    fn users(&self) -> Vec<String> {
        let mut users: Vec<String> = self.0.lock().keys().cloned().collect();
        users.sort();
        users
    }
}

impl UserRights {
    fn note(&mut self, right: Right, name: &str, allowed: bool) {
        let known = self.asked.get_mut(&right).map(|outcome| {
            if allowed && outcome.denied.remove(name) {
                self.bytes -= name.len();
            }
            outcome.names(allowed)
        });
        if known.is_some_and(|names| names.contains(name) || names.len() > MAX_NAMES) {
            return;
        }
        let bytes = name.len() + if self.asked.contains_key(&right) { 0 } else { right.bytes() };
        if right.longest().max(name.len()) > MAX_LENGTH || self.bytes + bytes > MAX_BYTES {
            self.incomplete = true;
            return;
        }
        self.bytes += bytes;
        let outcome = self.asked.entry(right).or_default();
        let names = if allowed { &mut outcome.allowed } else { &mut outcome.denied };
        names.insert(name.to_owned());
    }
}

impl Outcome {
    fn names(&self, allowed: bool) -> &BTreeSet<String> {
        if allowed { &self.allowed } else { &self.denied }
    }
}

impl Right {
    fn texts(&self) -> [&str; 5] {
        [&self.namespace, &self.group, &self.resource, &self.path, &self.verb]
    }

    /// What it takes to keep it, roughly.
    fn bytes(&self) -> usize {
        size_of::<(Right, Outcome)>() + self.texts().map(str::len).iter().sum::<usize>()
    }

    fn longest(&self) -> usize {
        self.texts().map(str::len).into_iter().max().unwrap_or_default()
    }

    fn of(attributes: &Attributes<'_>) -> Self {
        let verb = attributes.verb.to_owned();
        let Some(asked) = &attributes.resource else {
            let path = attributes.path.to_owned();
            return Self { namespace: String::new(), group: String::new(), resource: String::new(), path, verb };
        };
        let resource = match asked.subresource {
            "" => asked.resource.to_owned(),
            sub => format!("{}/{sub}", asked.resource),
        };
        let (namespace, group) = (asked.namespace.to_owned(), asked.group.to_owned());
        Self { namespace, group, resource, path: String::new(), verb }
    }
}

impl ApiServer {
    /// What roles and bindings let a user do, beside what the user did since the server started: for finding the least role
    /// that is enough. Rights by groups that every user is in are left out.
    pub fn permissions(&self, user: &UserInfo) -> PermissionReport {
        self.0.rights.report(&self.0.rbac, user)
    }

    /// The users that made requests since the server started, without members of `system:masters`.
    pub fn users_seen(&self) -> Vec<String> {
        self.0.rights.users()
    }
}
