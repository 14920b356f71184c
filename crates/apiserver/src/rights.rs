//! Which rights users make use of, and which they lack. In: every decision about a request. Out: for a user, the rights that
//! were used, those that roles give and nobody used, those that were asked for in vain, and the roles that would have been
//! enough (`report`). Kept in memory since the start, within bounds; members of `system:masters` are not noted.

mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::authorize::Attributes;
use crate::rbac::Rbac;
use crate::server::ApiServer;
use crate::user::{MASTERS, UserInfo};

pub use report::{PermissionReport, ScopedRule};

/// How many users are noted: far more than the operators of a test cluster. Later ones are not, and their report says so.
const MAX_USERS: usize = 256;

/// How many different rights of one user are noted. An operator has a few dozen.
const MAX_RIGHTS: usize = 2_000;

/// How many names of objects are told apart for one right. With more of them, no rule can name them.
const MAX_NAMES: usize = 16;

/// What all users did and tried.
#[derive(Default)]
pub(crate) struct Rights(Mutex<HashMap<String, UserRights>>);

/// What one user did and tried.
#[derive(Clone, Default)]
struct UserRights {
    asked: BTreeMap<Right, Outcome>,
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

/// How requests for a right ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    allowed: bool,
    denied: bool,
    /// The names of the objects, up to a number; without a name for requests about a collection.
    names: BTreeSet<String>,
}

impl Rights {
    /// Notes a decision about a request.
    pub(crate) fn note(&self, attributes: &Attributes<'_>, allowed: bool) {
        let user = attributes.user;
        if user.groups.iter().any(|group| group == MASTERS) {
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
        let right = Right::of(attributes);
        if rights.asked.len() >= MAX_RIGHTS && !rights.asked.contains_key(&right) {
            rights.incomplete = true;
            return;
        }
        let outcome = rights.asked.entry(right).or_default();
        outcome.allowed |= allowed;
        outcome.denied |= !allowed;
        let name = attributes.resource.map_or("", |resource| resource.name);
        if outcome.names.len() <= MAX_NAMES && !outcome.names.contains(name) {
            outcome.names.insert(name.to_owned());
        }
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

impl Right {
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
