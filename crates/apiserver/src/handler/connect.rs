//! Requests that reach into a pod: a command, a port, its log. In: the request. Out: the answer of a simulated container, as a body that
//! goes on.

use std::sync::Arc;

use http::Response;

use konverge_core::Status;
use konverge_schema::Budget;

use super::{Handler, ObjectRequest};
use crate::authorize::{authorize_verb, resource_attributes};
use crate::body::Body;
use crate::pod::{self, PodRequest};
use crate::response::{typed, warn};
use crate::subresource::Subresource;
use crate::verb::Verb;

impl Handler {
    /// Connects the client to a pod.
    pub(super) async fn connect(
        &self,
        verb: Verb,
        subresource: Subresource,
        budget: &Budget,
    ) -> Result<Response<Body>, Status> {
        // A WebSocket is asked for with GET, and yet it does as much as a POST.
        if verb != Verb::Create {
            let ObjectRequest { context, parts, target, .. } = &*self.request;
            let resource = resource_attributes(target, None);
            authorize_verb(&self.server, &context.user, Verb::Create, parts.uri.path(), resource).await?;
        }
        let (write, mut warnings) = (self.write_request(subresource, budget), Vec::new());
        let query = pod::admit_connection(&write, self.name(), &self.request.query, &mut warnings).await?;
        let ObjectRequest { context, parts, target, body, .. } = &*self.request;
        let (context, parts, target, body) = (context.clone(), parts.clone(), target.clone(), body.clone());
        let request = &ObjectRequest { context, parts, target, query: Arc::new(query), body };
        let mut response = pod::connect(&PodRequest { request, ..self.pod_request() }, subresource).await?;
        warn(&mut response, warnings.iter().map(String::as_str));
        Ok(response)
    }

    /// Passes the request on to a pod, or to a pod behind a service.
    pub(super) async fn proxy(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let write = self.write_request(Subresource::Proxy, budget);
        let mut warnings = Vec::new();
        pod::admit_connection(&write, self.name(), &self.request.query, &mut warnings).await?;
        let mut response = match &*self.resource.plural {
            "pods" => pod::proxy_pod(&self.pod_request()).await,
            "services" => pod::proxy_service(&self.pod_request()).await,
            _ => pod::proxy_node(&self.pod_request()).await,
        }?;
        warn(&mut response, warnings.iter().map(String::as_str));
        Ok(response)
    }

    fn pod_request(&self) -> PodRequest<'_> {
        PodRequest {
            server: &self.server,
            resource: &self.resource,
            request: &self.request,
            namespace: self.namespace(),
            name: self.name(),
        }
    }

    /// The log of a container.
    pub(super) async fn log(&self) -> Result<Response<Body>, Status> {
        let log = pod::log(&self.pod_request()).await?;
        let code = if log.is_some() { 200 } else { 204 };
        Ok(typed(code, "text/plain", log.unwrap_or_else(Body::empty)))
    }
}
