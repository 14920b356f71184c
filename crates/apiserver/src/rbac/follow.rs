//! The index follows roles and bindings in the store. In: committed changes, each once and in order. Out: an index that is
//! current. Who has committed a change calls [`catch_up`]; the task in `aggregate` does, too, because the client of a write
//! may be gone when the write is committed.

use serde::de::DeserializeOwned;

use konverge_core::from_stored;
use konverge_store::{Entry, Range, Watch};

use crate::server::Server;

use super::index::Index;
use super::{PREFIX, Rbac};

/// How many changes are processed at once.
const BATCH: usize = 256;

/// Reads the stored roles and bindings.
pub(crate) fn load(server: &Server) {
    catch_up(server);
}

/// Brings the index up to what is committed.
pub(crate) fn catch_up(server: &Server) {
    let mut changes = server.rbac.changes.lock();
    loop {
        let Some(watch) = &mut *changes else {
            *changes = read_all(server, &server.rbac);
            continue;
        };
        match watch.take(BATCH) {
            Ok(batch) if batch.is_empty() => return,
            Ok(batch) => {
                let mut index = server.rbac.index.write();
                for change in batch {
                    take(&mut index, &change.key, change.after.as_ref());
                }
            }
            // More was written and compacted in between: everything is read again.
            Err(_) => *changes = None,
        }
    }
}

/// Makes a new index of everything that is stored. Gives what comes after it, unless that was compacted already.
fn read_all(server: &Server, rbac: &Rbac) -> Option<Watch> {
    let page = server.store.range(Range { prefix: PREFIX, ..Range::default() });
    let page = page.expect("the newest revision is never compacted");
    let mut index = Index::default();
    for entry in &page.entries {
        take(&mut index, &entry.key, Some(entry));
    }
    *rbac.index.write() = index;
    server.store.watch(PREFIX, page.revision).ok()
}

/// Takes one object as it is now, or that it is gone.
fn take(index: &mut Index, key: &str, now: Option<&Entry>) {
    let Some((plural, place)) = key.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/')) else { return };
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    match (plural, now) {
        ("clusterroles" | "roles", Some(entry)) => index.set_role(namespace, name, decode(entry)),
        ("clusterroles" | "roles", None) => index.remove_role(namespace, name),
        ("clusterrolebindings" | "rolebindings", Some(entry)) => index.set_binding(namespace, name, decode(entry)),
        ("clusterrolebindings" | "rolebindings", None) => index.remove_binding(namespace, name),
        _ => {}
    }
}

/// An object that cannot be read gives no rights.
fn decode<T: DeserializeOwned + Default>(entry: &Entry) -> T {
    from_stored(&entry.value).unwrap_or_else(|error| {
        tracing::error!(key = %entry.key, %error, "a stored role or binding cannot be read and gives no rights");
        T::default()
    })
}
