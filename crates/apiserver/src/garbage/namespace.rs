//! Deletes the content of a namespace that is being deleted. In: its name. Out: deletions, and when nothing is left, the
//! namespace without the finalizer that stands for its content. Other finalizers stay.

use std::sync::Arc;

use serde_json::Value;

use konverge_core::{NAMESPACE_CONTENT_FINALIZER, Propagation, Status};
use konverge_store::Range;

use super::graph;
use super::step::ignore_not_found;
use crate::context::RequestContext;
use crate::delete::{DeleteOptions, delete};
use crate::meta;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::tasks::{TaskStep, run_concurrently};
use crate::write::WriteRequest;

/// Deletes everything in a namespace that is being deleted.
pub(super) async fn empty(server: &Arc<Server>, context: &RequestContext, namespace: &str) -> Result<(), Status> {
    let snapshot = server.registry.snapshot();
    let options = &DeleteOptions::propagated(Propagation::Background);
    let mut outcome = Ok(());
    for resource in snapshot.stored().filter(|resource| resource.namespaced) {
        let page = server.store.range(Range { prefix: &resource.prefix(Some(namespace)), ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        let mut deletions: Vec<TaskStep<'_, _>> = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            deletions.push(Box::pin(async move {
                let (namespace, name) = resource.identity(&entry.key);
                ignore_not_found(delete(server, context, resource, namespace, name, options).await)
            }));
        }
        for deleted in run_concurrently(deletions).await {
            outcome = outcome.and(deleted);
        }
    }
    outcome?;
    finish(server, context, namespace).await
}

/// Removes the finalizer of a namespace that is being deleted and empty.
pub(super) async fn finish(server: &Arc<Server>, context: &RequestContext, namespace: &str) -> Result<(), Status> {
    let snapshot = server.registry.snapshot();
    let namespaces = &server.registry.find("", "v1", "namespaces").expect("namespaces are built in");
    let Some((_, entry)) = graph::read(server, &namespaces.key(None, namespace)) else { return Ok(()) };
    let holds = |resource: &Arc<Resource>| {
        let page =
            server.store.range(Range { prefix: &resource.prefix(Some(namespace)), limit: Some(1), ..Range::default() });
        page.is_ok_and(|page| !page.entries.is_empty())
    };
    let terminating = meta::is_terminating(&namespaces.read_object(&entry).await?);
    if !terminating || snapshot.stored().filter(|resource| resource.namespaced).any(holds) {
        return Ok(());
    }
    let write = WriteRequest { subresource: Subresource::Finalize, ..server.internal_write(context, namespaces) };
    let emptied = |object: &Value| {
        let mut object = object.clone();
        if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != NAMESPACE_CONTENT_FINALIZER);
        }
        Ok(object)
    };
    ignore_not_found(write.patch(namespace, &mut Vec::new(), emptied).await)
}
