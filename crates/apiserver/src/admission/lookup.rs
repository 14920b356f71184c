//! What plugins read of other objects. In: a built-in kind and a name or a namespace. Out: the objects as they are in the
//! store now, decoded into what the plugin needs of them.

use serde::de::DeserializeOwned;

use konverge_core::Status;
use konverge_store::{Entry, Range};

use crate::server::Server;

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

/// All objects of a kind, or those in a namespace, by name.
pub(super) fn list<T: DeserializeOwned>(
    server: &Server,
    (group, plural): Kind,
    namespace: Option<&str>,
) -> Result<Vec<(Entry, T)>, Status> {
    let resource = server.registry.find(group, "v1", plural).expect("plugins read built-in kinds only");
    let range = Range { prefix: &resource.prefix(namespace), ..Range::default() };
    let page = server.store.range(range).map_err(Status::internal)?;
    page.entries.into_iter().map(|entry| Ok((entry.clone(), decode(&entry)?))).collect()
}

/// Whether a namespace has no objects of a kind.
pub(super) fn is_empty(server: &Server, (group, plural): Kind, namespace: Option<&str>) -> Result<bool, Status> {
    let resource = server.registry.find(group, "v1", plural).expect("plugins read built-in kinds only");
    let range = Range { prefix: &resource.prefix(namespace), limit: Some(1), ..Range::default() };
    Ok(server.store.range(range).map_err(Status::internal)?.entries.is_empty())
}

fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T, Status> {
    serde_json::from_slice(&entry.value)
        .map_err(|error| Status::internal(format!("the stored object {} cannot be read: {error}", entry.key)))
}
