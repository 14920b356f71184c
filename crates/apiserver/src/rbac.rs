//! Role-based access control. In: the roles and bindings in the store. Out: decisions for `authorize`, the rules of a user, and
//! the refusal to write a role or binding that gives more than its writer has.
//!
//! ```text
//! store ─▶ follow ─▶ index ─▶ decisions
//!             │         └───▶ escalation: may this role or binding be written?
//!             └▶ aggregate: rules of cluster roles that collect those of others ─▶ store
//! bootstrap ─▶ store: the roles and bindings that every cluster has
//! ```

mod aggregate;
mod bootstrap;
mod escalation;
mod follow;
mod index;
mod rule;
mod stored;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use konverge_store::Watch;

use crate::authorize::{Attributes, Authorizer, Decision};
use crate::resource::Resource;
use crate::server::Server;
use crate::user::UserInfo;

use index::Index;

pub(crate) use aggregate::run;
pub(crate) use bootstrap::{create_initial, initial_rules};
pub(crate) use escalation::check;
pub(crate) use follow::{catch_up, load};
pub(crate) use index::Grant;
pub(crate) use rule::Rule;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Where all roles and bindings are stored.
const PREFIX: &str = "/registry/rbac.authorization.k8s.io/";

/// What the server knows of roles and bindings. Every write of one is known before its answer is sent.
#[derive(Default)]
pub(crate) struct Rbac {
    index: RwLock<Index>,
    /// The changes since the last time; none before the first.
    changes: Mutex<Option<Watch>>,
}

impl Rbac {
    /// All rules of a user in a namespace, and the text about roles that are bound but do not exist.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        self.index.read().rules_of(user, namespace)
    }

    /// The roles that are bound to a user by name.
    pub(crate) fn grants_to(&self, user: &UserInfo) -> Vec<Grant> {
        self.index.read().grants_to(user)
    }
}

/// Allows what roles and bindings allow.
pub(crate) struct RbacAuthorizer(pub Arc<Rbac>);

impl Authorizer for RbacAuthorizer {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        Box::pin(ready(self.0.index.read().decide(&attributes)))
    }
}

/// Brings the index up to date after a role or binding was committed.
pub(crate) fn committed(server: &Server, resource: &Resource) {
    if &*resource.group == GROUP {
        catch_up(server);
    }
}
