//! One request about objects, verb by verb. In: the request and the resource that its path names. Out: its answer, or the
//! `Status` that says why not. Decides which stages a verb takes; what each stage does is in a file of its own.

mod connect;
mod respond;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, header};
use parking_lot::Mutex;
use serde_json::Value;

use konverge_core::{FieldSelector, Status, StatusDetails};
use konverge_schema::Budget;

use crate::admission::{RequestOptions, check_deletion};
use crate::behaviour::StorageRule;
use crate::body::Body;
use crate::context::RequestContext;
use crate::decode::{self, Decoded};
use crate::delete::{self, DeleteOptions, Deletion};
use crate::filter::Filter;
use crate::negotiate::{BodyEncoding, Encoding, PatchKind, ResponseKind};
use crate::patch::Patch;
use crate::read::{self, ListOptions};
use crate::request::{self, ObjectPath, Query};
use crate::resource::Resource;
use crate::response::{no_such_resource, typed};
use crate::server::Server;
use crate::subresource::Subresource;
use crate::verb::Verb;
use crate::watch::{self, WatchOptions};
use crate::work::{INLINE_STEPS, over_budget};
use crate::write::{WriteOutcome, WriteRequest};
use crate::{component_status, crd, meta, pod, review, scale, token_request, websocket};
use respond::refused;

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
        let long = matches!(subresource, Subresource::Exec | Subresource::Attach | Subresource::PortForward)
            || matches!(subresource, Subresource::Log | Subresource::Proxy);
        if verb != Verb::Watch && !long {
            self.request.query.check_timeout()?;
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
                let scale = scale::read(&self.resource.object(&entry), &self.resource, paths)?;
                self.scale_representation(&accepted)?.object(&scale)
            }
            _ => self.representation(&accepted)?.entry(&self.resource, &entry),
        };
        let response = self.respond(200, &accepted, bytes, &[]).await?;
        Ok(response.map(|body| body.holding(room)))
    }

    async fn list(&self) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        accepted.check_list(true)?;
        let options = ListOptions::parse(&self.request.query, &self.resource)?;
        let filter = self.filter()?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let mut listed = read::list(store, &self.resource, namespace, &filter, &options, &self.request.query).await?;
        let representation = self.representation(&accepted)?;
        representation.sort(&self.resource, &mut listed.entries);
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        let audit = self.request.context.audit.as_ref().filter(|audit| audit.wants_response());
        if accepted.encoding == Encoding::Protobuf {
            if let Some(audit) = audit {
                let _room = self.server.workers.text_room(bytes).await;
                audit.answers(&representation.list(self.resource.clone(), listed.clone()).into_bytes().await);
            }
            let form = self.protobuf_form(&representation)?;
            let body = form.list(self.resource.clone(), listed, &self.server.workers).await?;
            return Ok(typed(200, accepted.encoding.content_type(), body));
        }
        let pieces = representation.list(self.resource.clone(), listed);
        if accepted.encoding == Encoding::Yaml || audit.is_some() {
            // The audit log gets the list whole, so that it cannot be made while it is sent.
            let room = match audit {
                Some(_) => self.server.workers.text_room(bytes).await,
                None => self.text_room(&accepted, bytes).await,
            };
            let response = self.respond(200, &accepted, pieces.into_bytes().await, &[]).await?;
            return Ok(response.map(|body| body.holding(room)));
        }
        Ok(typed(200, accepted.encoding.content_type(), Body::stream(pieces.into_stream())))
    }

    fn watch(&self) -> Result<Response<Body>, Status> {
        let mut accepted = self.accepted(ResponseKind::Watch)?;
        let mut options = WatchOptions::parse(&self.request.query)?;
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
        self.note_sent(&sent.value);
        let mut warnings = Vec::new();
        let done = match subresource {
            Subresource::Binding => pod::bind(&write, &write, self.name(), sent, &mut warnings).await,
            _ => pod::evict(&write, self.name(), sent, &mut warnings).await,
        };
        if let Err(status) = done {
            return refused(status, &warnings, budget);
        }
        self.respond_status(201, &accepted, &Status::done(201), &warnings).await
    }

    /// Binds the pod that the body names: the oldest way, which old schedulers use.
    async fn create_binding(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let pods = self.server.registry.find("", "v1", "pods").ok_or_else(no_such_resource)?;
        let asked = self.write_request(Subresource::Main, budget);
        let sent = self.decode(budget)?;
        self.note_sent(&sent.value);
        // The body may be anything.
        let name = sent.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let mut warnings = Vec::new();
        let write = WriteRequest { resource: &pods, ..self.write_request(Subresource::Binding, budget) };
        if let Err(status) = pod::bind(&write, &asked, &name, sent, &mut warnings).await {
            return refused(status, &warnings, budget);
        }
        self.respond_status(201, &accepted, &Status::done(201), &warnings).await
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

    /// Gives out a token of a service account.
    async fn create_token(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let (write, mut warnings) = (self.write_request(Subresource::Token, budget), Vec::new());
        let sent = self.decode(budget)?;
        self.note_sent(&sent.value);
        let token = match token_request::create(&write, self.name(), sent, &mut warnings).await {
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
        let answered = match review::answer(&write, sent).await {
            Ok(answered) => answered,
            Err(status) => return refused(status, &warnings, budget),
        };
        let bytes = self.representation(&accepted)?.object(&answered);
        self.respond(201, &accepted, bytes, &warnings).await
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
                self.note_sent(&sent.value);
                write.replace_scale(self.name(), &sent, paths, &mut warnings).await
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
        let audit = self.request.context.audit.as_ref();
        if let Some(audit) = audit.filter(|_| kind != PatchKind::Apply) {
            audit.sent_patch(|| self.request.body.clone());
        }
        let patch = match kind {
            PatchKind::Json => Patch::json(&self.request.body, budget)?,
            PatchKind::Merge => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic if subresource == Subresource::Scale => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic => Patch::strategic(&self.request.body, budget)?,
            PatchKind::Apply => {
                let sent = decode::yaml(&self.request.body, budget)?;
                if let Some(audit) = audit {
                    audit.sent_patch(|| sent.value.to_string().into());
                }
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
            (Some(paths), Subresource::Scale) => write.patch_scale(self.name(), &patch, paths, &mut warnings).await,
            _ => write.patch_with(self.name(), &patch, &mut warnings).await,
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
        check_deletion(&self.resource, self.name())?;
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
                self.respond_status(200, &accepted, &status, warnings).await
            }
            done => self.respond_with(200, &accepted, Subresource::Main, done, warnings).await,
        }
    }

    async fn delete_collection(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(ResponseKind::Object)?;
        let (options, context) = self.delete_options()?;
        let filter = self.filter()?;
        let range = ListOptions::parse(&self.request.query, &self.resource)?;
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

    /// The delete options, from the body or, without one, from the query.
    fn delete_options(&self) -> Result<(DeleteOptions, RequestContext), Status> {
        let ObjectRequest { context, query, body, .. } = &*self.request;
        if body.is_empty() {
            return DeleteOptions::of_query(query, context);
        }
        let sent = self.decode_delete_options()?.value;
        if let (Some(audit), Value::Object(_)) = (&self.request.context.audit, &sent) {
            audit.sent_options(&delete::shown_options(&sent));
        }
        // A body says everything, also whether the request is a dry run.
        DeleteOptions::read(sent, &context.with_dry_run(false))
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
        // The scale of a custom resource is of a built-in kind.
        let own_group = subresource.is_none_or(|subresource| subresource.gvk.group == *self.resource.group);
        let custom = self.resource.custom && own_group;
        let body = &self.request.body;
        match BodyEncoding::of(self.header(header::CONTENT_TYPE), custom)? {
            BodyEncoding::Json => decode::json(body, budget),
            BodyEncoding::Yaml => decode::yaml(body, budget),
            BodyEncoding::Protobuf => {
                let expect = subresource.map_or_else(|| self.resource.gvk(), |subresource| subresource.gvk.clone());
                decode::protobuf(body, &expect, budget)
            }
        }
    }

    /// Tells the audit log of an object that is not of the kind of the resource.
    fn note_sent(&self, object: &Value) {
        if let Some(audit) = &self.request.context.audit {
            audit.sent(object, || serde_json::to_vec(object).ok());
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
            // A selector that names the object may say more, and authorization may have counted on that: it stays as it is.
            if fields.is_everything() {
                fields = FieldSelector::of_name(name);
            } else if fields.exact("metadata.name") != Some(name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        Filter::new(&self.resource, self.request.query.labels()?, fields)
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
