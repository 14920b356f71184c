//! The policies of one kind, as they are in the store. In: committed changes of policies and bindings. Out: compiled policies with
//! their bindings. A policy is compiled again only when its spec changes. Every request asks, so that a policy is in effect as
//! soon as its write was answered; kube-apiserver takes up to a second.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Binding, Hook, Kind, Policy};
use crate::admission::followed::Followed;
use crate::server::Server;

pub(super) struct Source<K>(Mutex<State<K>>);

struct State<K> {
    policies: Followed<Arc<Policy<K>>>,
    bindings: Followed<Arc<Binding>>,
    hooks: Arc<[Hook<K>]>,
}

impl<K> Default for Source<K> {
    fn default() -> Self {
        let hooks = Arc::new([]);
        Self(Mutex::new(State { policies: Followed::default(), bindings: Followed::default(), hooks }))
    }
}

impl<K: Kind> Source<K> {
    /// The policies that have bindings, in the order of their names.
    pub(super) fn hooks(&self, server: &Server) -> Arc<[Hook<K>]> {
        let mut state = self.0.lock();
        let State { policies, bindings, hooks } = &mut *state;
        let compiled = policies.follow(server, K::POLICIES, |name, policy, before: Option<Arc<Policy<K>>>| {
            let spec = &policy["spec"];
            before.filter(|before| before.spec == *spec).unwrap_or_else(|| Arc::new(Policy::compile(name, spec)))
        });
        let bound =
            bindings.follow(server, K::BINDINGS, |name, binding, _| Arc::new(Binding::read(name, &binding["spec"])));
        if compiled || bound {
            *hooks = policies
                .objects
                .values()
                .map(|policy| {
                    let bindings = bindings.objects.values().filter(|binding| binding.policy == policy.name);
                    Hook { policy: policy.clone(), bindings: bindings.cloned().collect() }
                })
                .filter(|hook| !hook.bindings.is_empty())
                .collect();
        }
        hooks.clone()
    }
}
