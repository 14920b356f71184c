//! A namespace that goes: everything in it goes first. In: its name. Out: deletions, and when nothing is left, the namespace
//! without the finalizer that stands for its content. Finalizers of others stay.

use std::sync::Arc;

use serde_json::Value;

use konverge_core::{NAMESPACE_CONTENT_FINALIZER, Propagation, Status};
use konverge_store::Range;

use super::{gone_is_fine, graph};
use crate::change::Write;
use crate::context::RequestContext;
use crate::delete::{DeleteOptions, delete};
use crate::meta;
use crate::part::Part;
use crate::resource::Resource;
use crate::server::Server;
use crate::tasks::{Step, together};

/// Deletes everything in a namespace that is going.
pub(super) async fn empty(server: &Arc<Server>, context: &RequestContext, namespace: &str) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let options = &DeleteOptions::propagated(Propagation::Background);
    let mut outcome = Ok(());
    for row in kinds.stored().filter(|row| row.namespaced) {
        let page = server.store.range(Range { prefix: &row.prefix(Some(namespace)), ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        let mut deletions: Vec<Step<'_, _>> = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            deletions.push(Box::pin(async move {
                let (namespace, name) = row.identity(&entry.key);
                gone_is_fine(delete(server, context, row, namespace, name, options).await)
            }));
        }
        for deleted in together(deletions).await {
            outcome = outcome.and(deleted);
        }
    }
    outcome?;
    finish(server, context, namespace).await
}

/// Lets a namespace go that is going and empty.
pub(super) async fn finish(server: &Arc<Server>, context: &RequestContext, namespace: &str) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let namespaces = &server.kinds.find("", "v1", "namespaces").expect("namespaces are built in");
    let Some((_, entry)) = graph::read(server, &namespaces.key(None, namespace)) else { return Ok(()) };
    let holds = |row: &Arc<Resource>| {
        let page =
            server.store.range(Range { prefix: &row.prefix(Some(namespace)), limit: Some(1), ..Range::default() });
        page.is_ok_and(|page| !page.entries.is_empty())
    };
    let going = meta::is_terminating(&namespaces.read_object(&entry).await?);
    if !going || kinds.stored().filter(|row| row.namespaced).any(holds) {
        return Ok(());
    }
    let write = Write { part: Part::Finalize, ..server.internal_write(context, namespaces) };
    let emptied = |object: &Value| {
        let mut object = object.clone();
        if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != NAMESPACE_CONTENT_FINALIZER);
        }
        Ok(object)
    };
    gone_is_fine(write.patch(namespace, &mut Vec::new(), emptied).await)
}
