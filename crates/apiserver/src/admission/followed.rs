//! Objects that admission follows in the store: policies, their bindings, webhook configurations. In: committed changes. Out: what
//! was made of each object, by name. Every request asks, so an object is in effect as soon as its write was answered.

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_store::{Entry, Range, ReadError, Watch};

use super::GROUP;
use crate::record;
use crate::server::Server;

/// How many changes are processed at once.
const BATCH: usize = 256;

/// The objects under one prefix of the store.
pub(crate) struct Followed<T> {
    /// The changes since the last time; none before the first.
    changes: Option<Watch>,
    pub objects: BTreeMap<String, T>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self { changes: None, objects: BTreeMap::new() }
    }
}

impl<T: Clone> Followed<T> {
    /// Brings the objects up to what is committed. Says whether any has changed.
    pub(crate) fn follow(
        &mut self,
        server: &Server,
        plural: &str,
        read: impl Fn(&str, &Value, Option<T>) -> T,
    ) -> bool {
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
        let resource = server.registry.find(GROUP, "v1", plural).expect("the kinds of admission are built in");
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
        let made = read(&name, &object, self.objects.remove(&name));
        self.objects.insert(name, made);
    }
}

fn name_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}
