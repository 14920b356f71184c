//! The registry follows the definitions in the store. In: committed changes of definitions, each once and in order. Out:
//! resources that are added, replaced or removed. Code that needs a current registry calls [`catch_up`]: after a definition
//! was written, before names are accepted, and in the task that follows all definitions. So nothing depends on the client of
//! a write, which may be gone when the write is committed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use konverge_schema::CompileError;
use konverge_store::{Entry, Range, ReadError, Revision, Watch};

use crate::digest::Digest;
use crate::meta;
use crate::record;
use crate::server::{OpenError, Server};

use super::{condition, definitions, resources};

/// How many changes are processed at once.
const BATCH: usize = 256;

/// How far the registry has followed the store.
#[derive(Default)]
pub(crate) struct Follower {
    /// The changes since the last time; none before the first.
    changes: Option<Watch>,
    /// The newest change of a definition that is in the registry.
    shown: Revision,
    /// The definitions whose names other definitions have, by group.
    waiting: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the stored definitions.
pub(crate) fn load(server: &Server) -> Result<(), OpenError> {
    let mut follower = server.definitions.follower.lock();
    follower.load(server, |name, source| Err(OpenError::Definition { name: name.to_owned(), source }))
}

/// Brings the registry up to what is committed. Gives the revision of the newest change in it.
pub(crate) fn catch_up(server: &Server) -> Revision {
    let mut follower = server.definitions.follower.lock();
    follower.catch_up(server);
    follower.shown
}

/// The definitions of a group that wait for names.
pub(super) fn waiting(server: &Server, group: &str) -> Vec<String> {
    let follower = server.definitions.follower.lock();
    follower.waiting.get(group).into_iter().flatten().cloned().collect()
}

/// Every group in which a definition waits for names.
pub(super) fn waiting_groups(server: &Server) -> BTreeSet<String> {
    server.definitions.follower.lock().waiting.keys().cloned().collect()
}

impl Follower {
    fn load(
        &mut self,
        server: &Server,
        failed: impl Fn(&str, CompileError) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let definitions = definitions(server);
        while self.changes.is_none() {
            let range = Range { prefix: &definitions.storage.prefix, ..Range::default() };
            let page = server.store.range(range).expect("the newest revision is never compacted");
            let mut gone = server.registry.definitions();
            for entry in &page.entries {
                let name = definitions.identity(&entry.key).1;
                gone.remove(name);
                self.changed(server, name, entry).or_else(|source| failed(name, source))?;
            }
            for name in gone {
                self.removed(server, &name, page.revision);
            }
            self.shown = page.revision;
            // None if more was written and compacted in between: then everything is read again.
            self.changes = server.store.watch(&definitions.storage.prefix, page.revision).ok();
        }
        Ok(())
    }

    fn catch_up(&mut self, server: &Server) {
        let report = |name: &str, error: CompileError| {
            tracing::error!(name, %error, "a custom resource definition that was checked does not compile");
            Ok(())
        };
        loop {
            let Some(changes) = &mut self.changes else {
                self.load(server, report).expect("failures are reported");
                return;
            };
            let batch = match changes.take(BATCH) {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => batch,
                Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => {
                    self.changes = None;
                    continue;
                }
            };
            let definitions = definitions(server);
            for change in batch {
                let name = definitions.identity(&change.key).1;
                match &change.after {
                    Some(after) => {
                        self.changed(server, name, after)
                            .or_else(|error| report(name, error))
                            .expect("failures are reported");
                    }
                    None => self.removed(server, name, change.revision),
                }
                self.shown = change.revision;
            }
        }
    }

    /// Adds the resources of a definition to the registry, or removes them if its names are not accepted.
    fn changed(&mut self, server: &Server, name: &str, entry: &Entry) -> Result<(), CompileError> {
        let definition = record::decode(entry);
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        self.wait(group, name, condition(&definition, "NamesAccepted") == Some("False"));
        if condition(&definition, "Established") == Some("True") {
            install(server, name, &definition, entry.revision)
        } else {
            server.registry.remove(name, entry.revision);
            Ok(())
        }
    }

    fn removed(&mut self, server: &Server, name: &str, revision: Revision) {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        self.wait(group, name, false);
        server.registry.remove(name, revision);
    }

    fn wait(&mut self, group: &str, name: &str, waits: bool) {
        if waits {
            self.waiting.entry(group.to_owned()).or_default().insert(name.to_owned());
        } else if let Some(names) = self.waiting.get_mut(group) {
            names.remove(name);
            if names.is_empty() {
                self.waiting.remove(group);
            }
        }
    }
}

fn install(server: &Server, name: &str, definition: &Value, revision: Revision) -> Result<(), CompileError> {
    let registry = &server.registry;
    let spec = Digest::of(json!([definition["spec"], resources::names(definition)]).to_string().as_bytes());
    let terminating = meta::is_terminating(definition);
    // Only labels, managed fields or conditions have changed.
    if registry.confirm(name, revision, spec, terminating) {
        return Ok(());
    }
    let stored_as = resources::stored_as(definition);
    let since = registry.stored_since(name, stored_as).unwrap_or(revision);
    match resources::resources(definition, since, &*server.converters) {
        Ok(resources) => {
            // Now, for these resources alone, so that no request has to go through all of them later.
            for resource in &resources {
                server.documents.openapi.digest(resource);
            }
            registry.install(name, revision, spec, stored_as, terminating, resources);
            Ok(())
        }
        Err(error) => {
            registry.remove(name, revision);
            Err(error)
        }
    }
}
