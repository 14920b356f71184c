//! One request about objects, verb by verb. In: the request and the resource that its path names. Out: its answer, or the
//! `Status` that says why not. Decides which stages a verb takes; what each stage does is in a file of its own.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, header};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use konverge_core::{FieldSelector, Status, StatusDetails};
use konverge_schema::Budget;

use crate::admission::RequestOptions;
use crate::authorize::{authorize_verb, resource_attributes};
use crate::behaviour::StorageRule;
use crate::body::Body;
use crate::context::RequestContext;
use crate::decode::{self, Decoded};
use crate::delete::{self, DeleteOptions, Deletion};
use crate::filter::Filter;
use crate::negotiate::{BodyEncoding, ConvertTo, Encoding, MediaTypeOptions, PatchKind, ResponseKind};
use crate::patch::Patch;
use crate::pod::PodRequest;
use crate::protobuf::ProtobufForm;
use crate::read::{self, ListOptions};
use crate::render::Representation;
use crate::request::{self, ObjectPath, Query};
use crate::resource::Resource;
use crate::response::{encode, failure, no_such_resource, typed, warn};
use crate::server::Server;
use crate::subresource::Subresource;
use crate::table::{IncludeObject, TablePrinter};
use crate::verb::Verb;
use crate::watch::{self, WatchOptions};
use crate::work::{INLINE_STEPS, over_budget};
use crate::write::{WriteOutcome, WriteRequest};
use crate::{component_status, crd, meta, pod, review, scale, token_request, websocket};

/// After deleting this many objects of a collection the request yields, so that others are served.
const DELETED_AT_ONCE: usize = 16;

/// A request about objects, as it came in.
pub(crate) struct ObjectRequest {
    pub context: RequestContext,
    pub parts: Arc<Parts>,
    pub target: Arc<ObjectPath>,
    pub query: Arc<Query>,
    pub body: Bytes,
}

/// Handles one request through one resource.
pub(crate) struct Handler {
    server: Arc<Server>,
    resource: Arc<Resource>,
    request: Arc<ObjectRequest>,
}

impl Handler {
    pub(crate) fn new(server: &Arc<Server>, resource: &Arc<Resource>, request: &Arc<ObjectRequest>) -> Self {
        Self { server: server.clone(), resource: resource.clone(), request: request.clone() }
    }

    /// Handles the request within a budget. Over the budget it fails before anything is committed.
    pub(crate) async fn handle(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let subresource = self.subresource()?;
        let verb = self.verb()?;
        let allowed = match self.request.target.subresource.as_deref().and_then(|name| self.resource.subresource(name))
        {
            Some(subresource) => subresource.verbs,
            None => self.resource.verbs,
        };
        if !allowed.contains(verb) {
            let terminating = self.resource.custom && verb == Verb::Create && self.request.target.subresource.is_none();
            let Resource { group, plural, custom, .. } = &*self.resource;
            return Err(match custom {
                _ if terminating => crd::terminating(&self.resource),
                true => Status::method_not_supported(group, plural, verb.as_str()),
                false => Status::method_not_allowed(),
            });
        }
        let answer = match (verb, subresource) {
            (Verb::Get, Subresource::Log) => self.log().await,
            (_, Subresource::Proxy) => self.proxy(budget).await,
            (_, Subresource::Exec | Subresource::Attach | Subresource::PortForward) => {
                self.connect(verb, subresource, budget).await
            }
            (Verb::Create, Subresource::Binding | Subresource::Eviction) => {
                self.create_subresource(subresource, budget).await
            }
            (Verb::Create, Subresource::Token) => self.create_token(budget).await,
            (Verb::Create, _) if self.is("bindings") => self.create_binding(budget).await,
            (Verb::Get | Verb::List, _) if self.is("componentstatuses") => self.component_status(verb).await,
            (Verb::Create, _) if self.resource.behaviour.storage == StorageRule::Nowhere => self.review(budget).await,
            (Verb::Get, _) => self.get(subresource).await,
            (Verb::List, _) => self.list().await,
            (Verb::Watch, _) => self.watch(),
            (Verb::Create, _) => self.create(budget).await,
            (Verb::Update, _) => self.update(subresource, budget).await,
            (Verb::Patch, _) => self.patch(subresource, budget).await,
            (Verb::Delete, _) => self.delete(budget).await,
            (Verb::DeleteCollection, _) => self.delete_collection(budget).await,
        };
        if request::writes(&self.request.parts.method) {
            let one = (verb != Verb::DeleteCollection).then(|| self.name());
            crd::settle(&self.server, &self.resource, one).await;
        }
        answer
    }

    fn subresource(&self) -> Result<Subresource, Status> {
        let Some(name) = &self.request.target.subresource else { return Ok(Subresource::Main) };
        let known = self.resource.subresource(name).and_then(|sub| Subresource::named(&sub.name));
        known.ok_or_else(|| match self.resource.custom {
            true => Status::not_found(&self.resource.group, &self.resource.plural, self.name()),
            false => no_such_resource(),
        })
    }

    /// The verb, if the path names what that verb needs.
    fn verb(&self) -> Result<Verb, Status> {
        let ObjectRequest { parts, target, query, .. } = &*self.request;
        let verb = request::verb(&parts.method, target, query).ok_or_else(Status::method_not_allowed)?;
        // One object is in a namespace exactly if its kind is; a list may be of all namespaces.
        let placed = self.resource.namespaced == target.namespace.is_some();
        let fits = match verb {
            Verb::List | Verb::Watch => true,
            Verb::Create => placed && (target.name.is_none() || target.subresource.is_some()),
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => placed && target.name.is_some(),
            Verb::DeleteCollection => placed,
        };
        if fits { Ok(verb) } else { Err(Status::method_not_allowed()) }
    }

    async fn get(&self, subresource: Subresource) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        accepted.check_list(false)?;
        let entry =
            read::get(&*self.server.store, &self.resource, self.namespace(), self.name(), &self.request.query).await?;
        let room = self.text_room(&accepted, entry.value.len()).await;
        let bytes = match (&self.resource.scale, subresource) {
            (Some(paths), Subresource::Scale) => {
                self.scale_representation(&accepted)?.object(&scale::of(&self.resource.object(&entry), paths))
            }
            _ => self.representation(&accepted)?.entry(&self.resource, &entry),
        };
        let response = self.respond(200, &accepted, bytes, &[]).await?;
        Ok(response.map(|body| body.holding(room)))
    }

    async fn list(&self) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        accepted.check_list(true)?;
        let options = ListOptions::parse(&self.request.query)?;
        let filter = self.filter()?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &options, &self.request.query).await?;
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        let representation = self.representation(&accepted)?;
        if accepted.encoding == Encoding::Protobuf {
            let form = self.protobuf_form(&representation)?;
            let body = form.list(self.resource.clone(), listed, &self.server.workers).await?;
            return Ok(typed(200, accepted.encoding.content_type(), body));
        }
        let pieces = representation.list(self.resource.clone(), listed);
        if accepted.encoding == Encoding::Yaml {
            let room = self.text_room(&accepted, bytes).await;
            let response = self.respond(200, &accepted, pieces.into_bytes().await, &[]).await?;
            return Ok(response.map(|body| body.holding(room)));
        }
        Ok(typed(200, accepted.encoding.content_type(), Body::stream(pieces.into_stream())))
    }

    fn watch(&self) -> Result<Response<Body>, Status> {
        let mut accepted = self.accepted(ResponseKind::Watch)?;
        let mut options = WatchOptions::parse(&self.request.query, &self.resource)?;
        let as_websocket = websocket::is_requested(&self.request.parts.headers);
        if as_websocket {
            options = options.event_by_event();
            // Messages of a watch are texts.
            accepted.encoding = Encoding::Json;
        }
        options.encoding = accepted.encoding;
        let filter = self.filter()?;
        let events = watch::watch(
            &self.server,
            &self.request.context,
            self.resource.clone(),
            self.namespace(),
            filter,
            self.representation(&accepted)?,
            &options,
        )?;
        if as_websocket {
            return websocket::answer(&self.request.parts.headers, events);
        }
        Ok(typed(200, accepted.encoding.content_type_of_watch(), Body::stream(events)))
    }

    async fn create(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let mut warnings = Vec::new();
        let done = self.write_request(Subresource::Main, budget).create(self.decode(budget)?, &mut warnings).await;
        let done = match done {
            Ok(done) => done,
            Err(status) => return refused(status, &warnings, budget),
        };
        self.respond_with(201, &accepted, Subresource::Main, done, &warnings).await
    }

    /// Handles a create that acts on a pod instead of storing an object: a binding or an eviction.
    async fn create_subresource(&self, subresource: Subresource, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let (write, sent) = (self.write_request(subresource, budget), self.decode(budget)?);
        let mut warnings = Vec::new();
        let done = match subresource {
            Subresource::Binding => pod::bind(&write, self.name(), sent, &mut warnings).await,
            _ => pod::evict(&write, self.name(), sent, &self.request.query, &mut warnings).await,
        };
        if let Err(status) = done {
            return refused(status, &warnings, budget);
        }
        let bytes = serde_json::to_vec(&Status::done(201)).expect("writing to memory does not fail");
        self.respond(201, &accepted, bytes, &warnings).await
    }

    /// Binds the pod that the body names: the oldest way, which old schedulers use.
    async fn create_binding(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let pods = self.server.registry.find("", "v1", "pods").ok_or_else(no_such_resource)?;
        let write = self.write_request(Subresource::Binding, budget);
        let sent = self.decode(budget)?;
        // The body may be anything.
        let name = sent.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let mut warnings = Vec::new();
        let write = WriteRequest { resource: &pods, ..write };
        if let Err(status) = pod::bind(&write, &name, sent, &mut warnings).await {
            return refused(status, &warnings, budget);
        }
        let bytes = serde_json::to_vec(&Status::done(201)).expect("writing to memory does not fail");
        self.respond(201, &accepted, bytes, &warnings).await
    }

    /// Answers how the parts of the control plane are.
    async fn component_status(&self, verb: Verb) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        accepted.check_list(verb == Verb::List)?;
        let representation = self.representation(&accepted)?;
        let health = self.server.store.health().borrow().clone();
        let bytes = match verb {
            Verb::Get => representation.object(&component_status::get(self.name(), &health)?),
            _ => representation.objects(&self.resource, &component_status::list(&self.request.query, &health)?),
        };
        self.respond(200, &accepted, bytes, &[]).await
    }

    /// Whether the request is about this resource of the core group.
    fn is(&self, plural: &str) -> bool {
        self.resource.group.is_empty() && *self.resource.plural == *plural
    }

    /// Connects the client to a pod.
    async fn connect(&self, verb: Verb, subresource: Subresource, budget: &Budget) -> Result<Response<Body>, Status> {
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
    async fn proxy(&self, budget: &Budget) -> Result<Response<Body>, Status> {
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

    /// Gives out a token of a service account.
    async fn create_token(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let (write, mut warnings) = (self.write_request(Subresource::Token, budget), Vec::new());
        let token = match token_request::create(&write, self.name(), self.decode(budget)?, &mut warnings).await {
            Ok(token) => token,
            Err(status) => return refused(status, &warnings, budget),
        };
        let bytes = self.representation(&accepted)?.object(&token);
        self.respond(201, &accepted, bytes, &warnings).await
    }

    /// Answers a review, which is not stored.
    async fn review(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let (write, mut warnings) = (self.write_request(Subresource::Main, budget), Vec::new());
        let sent = write.receive_unstored(self.decode(budget)?, &mut warnings)?;
        let sent = match write.admit_unstored(sent, &mut warnings).await {
            Ok(sent) => sent,
            Err(status) => return refused(status, &warnings, budget),
        };
        let answered = review::answer(&write, sent).await?;
        let bytes = self.representation(&accepted)?.object(&answered);
        self.respond(201, &accepted, bytes, &warnings).await
    }

    async fn log(&self) -> Result<Response<Body>, Status> {
        let log = pod::log(&self.pod_request()).await?;
        let code = if log.is_some() { 200 } else { 204 };
        Ok(typed(code, "text/plain", log.unwrap_or_else(Body::empty)))
    }

    async fn update(&self, subresource: Subresource, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("UpdateOptions", false)?;
        let mut warnings = Vec::new();
        let write = self.write_request(subresource, budget);
        let sent = self.decode(budget)?;
        let before = self.server.store.revision();
        let done = match (&self.resource.scale, subresource) {
            (Some(paths), Subresource::Scale) => {
                let set = |object: &Value| scale::set(object, &sent.value, &self.resource, paths);
                write.modify(self.name(), &mut warnings, set).await
            }
            _ => write.replace(self.name(), sent, &mut warnings).await,
        };
        let done = match done {
            Ok(done) => done,
            Err(status) => return refused(status, &warnings, budget),
        };
        self.respond_to_update(before, &accepted, subresource, done, &warnings).await
    }

    async fn patch(&self, subresource: Subresource, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        let kind = PatchKind::of_body(self.header(header::CONTENT_TYPE), self.resource.custom)?;
        self.request.query.check_write("PatchOptions", kind == PatchKind::Apply)?;
        let mut warnings = Vec::new();
        let write = self.write_request(subresource, budget);
        let before = self.server.store.revision();
        let patch = match kind {
            PatchKind::Json => Patch::json(&self.request.body, budget)?,
            PatchKind::Merge => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic if subresource == Subresource::Scale => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic => Patch::strategic(&self.request.body, budget)?,
            PatchKind::Apply => {
                let sent = decode::yaml(&self.request.body, budget)?;
                let force = self.request.query.flag("force");
                let done = match (&self.resource.scale, subresource) {
                    (Some(paths), Subresource::Scale) => {
                        write.apply_scale(self.name(), force, &sent, paths, &mut warnings).await
                    }
                    _ => write.apply(self.name(), force, sent, &mut warnings).await,
                };
                return match done {
                    Ok(done) => self.respond_to_update(before, &accepted, subresource, done, &warnings).await,
                    Err(status) => refused(status, &warnings, budget),
                };
            }
        };
        let done = match (&self.resource.scale, subresource) {
            (Some(paths), Subresource::Scale) => {
                let set = |object: &Value| {
                    let patched = patch.apply(&self.resource, &scale::of(object, paths), budget)?;
                    scale::set(object, &patched, &self.resource, paths)
                };
                write.modify(self.name(), &mut warnings, set).await
            }
            _ => {
                let patched = |object: &Value| patch.apply(&self.resource, object, budget);
                write.patch_with(self.name(), &mut warnings, patch.shown_in_errors(), patched).await
            }
        };
        let done = match done {
            Ok(done) => done,
            Err(status) => return refused(status, &warnings, budget),
        };
        self.respond_to_update(before, &accepted, subresource, done, &warnings).await
    }

    async fn delete(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        let (options, context) = self.delete_options()?;
        let warnings = Mutex::new(self.warn_of_orphans(&options));
        let deletion = Deletion {
            server: &self.server,
            context: &context,
            resource: &self.resource,
            options: &options,
            admitted: false,
            collection: false,
            warnings: Some(&warnings),
        };
        let done = deletion.run(self.namespace(), self.name(), budget).await;
        let warnings = &*std::mem::take(&mut *warnings.lock());
        let done = match done {
            Ok(done) => done,
            Err(status) => return refused(status, warnings, budget),
        };
        match done {
            WriteOutcome::Deleted(object) => {
                if self.resource.behaviour.returns_deleted {
                    let bytes = self.representation(&accepted)?.object(&object);
                    return self.respond(200, &accepted, bytes, warnings).await;
                }
                let status = Status::success(StatusDetails {
                    name: self.name().to_owned(),
                    group: self.resource.group.to_string(),
                    kind: self.resource.plural.to_string(),
                    uid: meta::text(&object, "uid").to_owned(),
                    ..StatusDetails::default()
                });
                let bytes = serde_json::to_vec(&status).expect("writing to memory does not fail");
                self.respond(200, &accepted, bytes, warnings).await
            }
            done => self.respond_with(200, &accepted, Subresource::Main, done, warnings).await,
        }
    }

    async fn delete_collection(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        let (options, context) = self.delete_options()?;
        let filter = self.filter()?;
        let range = ListOptions::parse(&self.request.query)?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &range, &self.request.query).await?;
        if self.server.policies.are_there(&self.server) || self.server.webhooks.have_conditions(&self.server) {
            // Policies and match conditions may compute for long, so that the request moves to a thread of its own before it deletes anything.
            budget.spend(INLINE_STEPS);
            budget.check().map_err(over_budget)?;
        }
        let warnings = Mutex::new(self.warn_of_orphans(&options));
        let deletion = Deletion {
            server: &self.server,
            context: &context,
            resource: &self.resource,
            options: &options,
            admitted: false,
            collection: true,
            warnings: Some(&warnings),
        };
        for (at, entry) in listed.entries.iter().enumerate() {
            // A store in memory never waits, so nothing else would run on this thread.
            if at > 0 && at.is_multiple_of(DELETED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let (namespace, name) = self.resource.identity(&entry.key);
            let limits = self.server.workers.limits();
            match deletion.run(namespace, name, &Budget::new(limits.steps, limits.bytes)).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        let pieces = self.representation(&accepted)?.list(self.resource.clone(), listed);
        let warnings = std::mem::take(&mut *warnings.lock());
        self.respond(200, &accepted, pieces.into_bytes().await, &warnings).await
    }

    /// Says that pods of a job stay, if its deletion does not say what becomes of them.
    fn warn_of_orphans(&self, options: &DeleteOptions) -> Vec<String> {
        const STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                            remove them or set propagationPolicy=Orphan to suppress this warning";
        let stay = *self.resource.group == *"batch" && *self.resource.plural == *"jobs" && options.is_unsaid();
        if stay { vec![STAY.to_owned()] } else { Vec::new() }
    }

    /// The answer to an update: 201 if it created the object.
    async fn respond_to_update(
        &self,
        before: konverge_store::Revision,
        accepted: &MediaTypeOptions,
        subresource: Subresource,
        done: WriteOutcome,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let code = match &done {
            WriteOutcome::Stored(entry) if entry.created == entry.revision && entry.created > before => 201,
            // A dry run that would create the object has no resourceVersion yet.
            WriteOutcome::DryRun(object) if meta::text(object, "resourceVersion").is_empty() => 201,
            _ => 200,
        };
        self.respond_with(code, accepted, subresource, done, warnings).await
    }

    async fn respond_with(
        &self,
        code: u16,
        accepted: &MediaTypeOptions,
        subresource: Subresource,
        done: WriteOutcome,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let bytes = match (&self.resource.scale, subresource, done) {
            (Some(paths), Subresource::Scale, done) => {
                let object = match done {
                    WriteOutcome::Stored(entry) => self.resource.read_object(&entry).await?,
                    WriteOutcome::DryRun(object) | WriteOutcome::Deleted(object) => object,
                };
                self.scale_representation(accepted)?.object(&scale::of(&object, paths))
            }
            (_, _, WriteOutcome::Stored(entry)) => {
                self.representation(accepted)?.entry(&self.resource, &self.resource.read(entry).await?)
            }
            (_, _, WriteOutcome::DryRun(object) | WriteOutcome::Deleted(object)) => {
                self.representation(accepted)?.object(&object)
            }
        };
        self.respond(code, accepted, bytes, warnings).await
    }

    /// Reserves memory for an answer of about this many bytes, if it is not the JSON that is stored.
    async fn text_room(&self, accepted: &MediaTypeOptions, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let plain = accepted.encoding == Encoding::Json && !self.is_pretty(accepted);
        if plain { None } else { self.server.workers.text_room(bytes).await }
    }

    fn is_pretty(&self, accepted: &MediaTypeOptions) -> bool {
        accepted.pretty || self.request.query.flag("pretty")
    }

    async fn respond(
        &self,
        code: u16,
        accepted: &MediaTypeOptions,
        json: Vec<u8>,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let (encoding, pretty) = (accepted.encoding, self.is_pretty(accepted));
        let bytes = match encoding {
            Encoding::Json if !pretty => json,
            encoding => self.server.workers.write_text(json, move |json| encode(encoding, pretty, json)).await?,
        };
        let mut response = typed(code, accepted.encoding.content_type(), Body::full(bytes));
        warn(&mut response, warnings.iter().map(String::as_str));
        Ok(response)
    }

    /// The delete options, from the body or, without one, from the query.
    fn delete_options(&self) -> Result<(DeleteOptions, RequestContext), Status> {
        let sent = if self.request.body.is_empty() { Value::Null } else { self.decode_delete_options()?.value };
        DeleteOptions::read(sent, &self.request.query, &self.request.context)
    }

    /// Delete options are of a built-in kind whatever they delete.
    fn decode_delete_options(&self) -> Result<Decoded, Status> {
        let (body, budget) = (&self.request.body, Budget::new(delete::OPTIONS_STEPS, delete::OPTIONS_BYTES));
        match BodyEncoding::of(self.header(header::CONTENT_TYPE), false)? {
            BodyEncoding::Json => decode::json(body, &budget),
            BodyEncoding::Yaml => decode::yaml(body, &budget),
            BodyEncoding::Protobuf => decode::protobuf_delete_options(body, &budget),
        }
    }

    /// The object in the body, which is of the kind that the endpoint expects, or says that it is of another one.
    fn decode(&self, budget: &Budget) -> Result<Decoded, Status> {
        let subresource = self.request.target.subresource.as_deref().and_then(|name| self.resource.subresource(name));
        let expect = subresource.map_or_else(|| self.resource.gvk(), |subresource| subresource.gvk.clone());
        // The scale of a custom resource is of a built-in kind.
        let custom = self.resource.custom && expect.group == *self.resource.group;
        let body = &self.request.body;
        match BodyEncoding::of(self.header(header::CONTENT_TYPE), custom)? {
            BodyEncoding::Json => decode::json(body, budget),
            BodyEncoding::Yaml => decode::yaml(body, budget),
            BodyEncoding::Protobuf => decode::protobuf(body, &expect, budget),
        }
    }

    fn write_request<'a>(&'a self, subresource: Subresource, budget: &'a Budget) -> WriteRequest<'a> {
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let agent = agent.split('/').next().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        WriteRequest {
            server: &self.server,
            context: &self.request.context,
            resource: &self.resource,
            namespace: self.namespace(),
            subresource,
            validation: self.request.query.field_validation(),
            manager: self.request.query.get("fieldManager").unwrap_or(agent).chars().take(128).collect(),
            api_version: self.resource.api_version(),
            options: RequestOptions::Write(&self.request.query),
            budget,
            admitted: false,
        }
    }

    fn filter(&self) -> Result<Filter, Status> {
        let mut fields = self.request.query.fields()?;
        if let Some(name) = self.request.target.name.as_deref().filter(|_| self.request.target.watch) {
            if !fields.is_everything() && fields.exact("metadata.name") != Some(name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
            fields = FieldSelector::of_name(name);
        }
        Filter::new(&self.resource, self.request.query.labels()?, fields)
    }

    fn accepted(&self, kind: ResponseKind) -> Result<MediaTypeOptions, Status> {
        MediaTypeOptions::accept(self.header(header::ACCEPT), kind, self.resource.custom)
    }

    fn protobuf_form(&self, representation: &Representation) -> Result<ProtobufForm, Status> {
        let form = ProtobufForm::of(&self.resource, representation);
        form.ok_or_else(|| Status::internal("this kind has no protobuf messages; ask for application/json"))
    }

    fn representation(&self, accepted: &MediaTypeOptions) -> Result<Representation, Status> {
        self.representation_of(accepted, || TablePrinter::of(&self.resource))
    }

    fn scale_representation(&self, accepted: &MediaTypeOptions) -> Result<Representation, Status> {
        self.representation_of(accepted, || TablePrinter::builtin("autoscaling", "Scale"))
    }

    fn representation_of(
        &self,
        accepted: &MediaTypeOptions,
        printer: impl FnOnce() -> TablePrinter,
    ) -> Result<Representation, Status> {
        Ok(match accepted.convert_to {
            ConvertTo::Object => Representation::Object,
            ConvertTo::PartialMetadata(version) | ConvertTo::PartialMetadataList(version) => {
                Representation::Metadata(version)
            }
            ConvertTo::Table(version) => Representation::Table {
                printer: Arc::new(printer()),
                version,
                include: IncludeObject::parse(self.request.query.get("includeObject"))?,
                env: self.server.env.clone(),
            },
        })
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.request.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn namespace(&self) -> Option<&str> {
        self.request.target.namespace.as_deref()
    }

    fn name(&self) -> &str {
        self.request.target.name.as_deref().unwrap_or_default()
    }
}

/// The answer to a write that is refused. It has its warnings, too: they may explain the refusal.
fn refused(status: Status, warnings: &[String], budget: &Budget) -> Result<Response<Body>, Status> {
    // A request that is over its small budget runs again, and so does one whose definition has changed.
    if warnings.is_empty() || budget.check().is_err() || crd::is_outdated(&status) {
        return Err(status);
    }
    let mut response = failure(&status);
    warn(&mut response, warnings.iter().map(String::as_str));
    Ok(response)
}
