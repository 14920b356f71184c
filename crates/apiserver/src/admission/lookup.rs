//! What plugins read of other objects. In: a built-in kind and a name or a namespace. Out: the objects as they are in the
//! store now, decoded into what the plugin needs of them.

use serde::de::DeserializeOwned;

use konverge_core::{Status, from_stored};
use konverge_store::{Entry, Range};

use crate::server::Server;

use super::Attributes;

/// Reading this many bytes takes as long as one step of other work.
const BYTES_PER_STEP: usize = 8;

/// A built-in kind that plugins read: group and plural name. All of them are stored as `v1`.
pub(super) type Kind = (&'static str, &'static str);

/// One object, and its record.
pub(super) fn get<T: DeserializeOwned>(
    server: &Server,
    (group, plural): Kind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<(Entry, T)>, Status> {
    let resource = server.registry.find(group, "v1", plural).expect("plugins read built-in kinds only");
    let found = server.store.get(&resource.key(namespace, name), None).map_err(Status::internal)?;
    found.map(|entry| Ok((entry.clone(), decode(&entry)?))).transpose()
}

/// All objects of a kind, or those in a namespace, by name. Reading them is paid for by the request: whoever stores thousands of
/// large ones makes the writes that they concern slow, and no others.
pub(super) fn list<T: DeserializeOwned>(
    attributes: &Attributes<'_>,
    (group, plural): Kind,
    namespace: Option<&str>,
) -> Result<Vec<(Entry, T)>, Status> {
    Ok(first(attributes, (group, plural), namespace, None)?.0)
}

/// The same, but at most so many of them, and how many there are.
pub(super) fn first<T: DeserializeOwned>(
    attributes: &Attributes<'_>,
    (group, plural): Kind,
    namespace: Option<&str>,
    most: Option<usize>,
) -> Result<(Vec<(Entry, T)>, usize), Status> {
    let store = &attributes.server.store;
    let resource = attributes.server.registry.find(group, "v1", plural).expect("plugins read built-in kinds only");
    let range = Range { prefix: &resource.prefix(namespace), limit: most, ..Range::default() };
    let page = store.range(range).map_err(Status::internal)?;
    let total = if page.more { store.count(range).map_err(Status::internal)? } else { page.entries.len() };
    let read = |entry: Entry| {
        attributes.spend(entry.value.len() / BYTES_PER_STEP)?;
        let object = decode(&entry)?;
        Ok((entry, object))
    };
    let objects = page.entries.into_iter().map(read).collect::<Result<_, Status>>()?;
    Ok((objects, total))
}

/// Whether a namespace has no objects of a kind.
pub(super) fn is_empty(server: &Server, (group, plural): Kind, namespace: Option<&str>) -> Result<bool, Status> {
    let resource = server.registry.find(group, "v1", plural).expect("plugins read built-in kinds only");
    let range = Range { prefix: &resource.prefix(namespace), limit: Some(1), ..Range::default() };
    Ok(server.store.range(range).map_err(Status::internal)?.entries.is_empty())
}

fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T, Status> {
    from_stored(&entry.value)
        .map_err(|error| Status::internal(format!("the stored object {} cannot be read: {error}", entry.key)))
}
