//! Which kind a path names. In: group, version and plural, or kind. Out: what discovery says, asked once for each
//! version of a group and again for what was not there yet. Never records or reacts: it asks the server itself.

use std::collections::HashMap;

use http::Method;
use konverge_apiserver::ApiServer;
use parking_lot::Mutex;
use serde_json::Value;

use crate::machine::ask;

/// A kind as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
}

/// What discovery said so far.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Mutex<HashMap<(String, String), Vec<Served>>>);

impl Kinds {
    /// The first kind of a group's version that `which` takes.
    pub(crate) async fn find(
        &self,
        server: &ApiServer,
        group: &str,
        version: &str,
        which: impl Fn(&Served) -> bool,
    ) -> Option<Served> {
        let id = (group.to_owned(), version.to_owned());
        let known = self.0.lock().get(&id).and_then(|all| all.iter().find(|one| which(one)).cloned());
        if known.is_some() {
            return known;
        }
        let all = discover(server, group, version).await;
        let found = all.iter().find(|one| which(one)).cloned();
        self.0.lock().insert(id, all);
        found
    }
}

async fn discover(server: &ApiServer, group: &str, version: &str) -> Vec<Served> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let document = ask(server, Method::GET, &path, None).await.unwrap_or_default();
    let served = |row: &Value| {
        let (plural, kind) = (row["name"].as_str()?, row["kind"].as_str()?);
        // `deployments/status` is a part, not a kind.
        (!plural.contains('/')).then(|| Served {
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced: row["namespaced"].as_bool().unwrap_or_default(),
        })
    };
    document["resources"].as_array().into_iter().flatten().filter_map(served).collect()
}
