//! The policies of one kind, as they are in the store. In: committed changes of policies and bindings. Out: compiled policies with
//! their bindings. A policy is compiled again only when its spec changes. Every request asks, so that a policy is in effect as
//! soon as its write was answered; kube-apiserver takes up to a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use konverge_store::{Entry, Range, ReadError, Watch};

use super::{Binding, GROUP, Hook, Kind, Policy};
use crate::record;
use crate::server::Server;

/// How many changes are processed at once.
const BATCH: usize = 256;

pub(super) struct Source<K>(Mutex<State<K>>);

struct State<K> {
    policies: Followed<Arc<Policy<K>>>,
    bindings: Followed<Arc<Binding>>,
    hooks: Arc<[Hook<K>]>,
}

/// The objects under one prefix of the store.
struct Followed<T> {
    /// The changes since the last time; none before the first.
    changes: Option<Watch>,
    objects: BTreeMap<String, T>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self { changes: None, objects: BTreeMap::new() }
    }
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
        let compiled = policies.follow(server, K::POLICIES, |name, spec, before: Option<Arc<Policy<K>>>| {
            before.filter(|before| before.spec == *spec).unwrap_or_else(|| Arc::new(Policy::compile(name, spec)))
        });
        let bound = bindings.follow(server, K::BINDINGS, |name, spec, _| Arc::new(Binding::read(name, spec)));
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

impl<T: Clone> Followed<T> {
    /// Brings the objects up to what is committed. Says whether any has changed.
    fn follow(&mut self, server: &Server, plural: &str, read: impl Fn(&str, &Value, Option<T>) -> T) -> bool {
        let mut changed = false;
        loop {
            let Some(changes) = &mut self.changes else {
                self.load(server, plural, &read);
                changed = true;
                continue;
            };
            match changes.take(BATCH) {
                Ok(batch) if batch.is_empty() => return changed,
                Ok(batch) => {
                    changed = true;
                    for change in batch {
                        let name = name_of(&change.key).to_owned();
                        match &change.after {
                            Some(after) => self.put(name, after, &read),
                            None => drop(self.objects.remove(&name)),
                        }
                    }
                }
                Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => self.changes = None,
            }
        }
    }

    fn load(&mut self, server: &Server, plural: &str, read: &impl Fn(&str, &Value, Option<T>) -> T) {
        let resource = server.registry.find(GROUP, "v1", plural).expect("policies are built in");
        let prefix = &*resource.storage.prefix;
        let page = server.store.range(Range { prefix, ..Range::default() });
        let page = page.expect("the newest revision is never compacted");
        let present = |name: &String| page.entries.iter().any(|entry| name_of(&entry.key) == name);
        self.objects.retain(|name, _| present(name));
        for entry in &page.entries {
            self.put(name_of(&entry.key).to_owned(), entry, read);
        }
        // None if more was written and compacted in between: then everything is read again.
        self.changes = server.store.watch(prefix, page.revision).ok();
    }

    fn put(&mut self, name: String, entry: &Entry, read: impl Fn(&str, &Value, Option<T>) -> T) {
        let object = record::decode(entry);
        let made = read(&name, &object["spec"], self.objects.remove(&name));
        self.objects.insert(name, made);
    }
}

fn name_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}
