//! The spine: from an HTTP request to its answer. In: any request. Out: always an answer; every failure is a `Status`.
//!
//! ```text
//! parse → which row → may it be done → read | watch | change → render
//! ```

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tower_service::Service;

use konverge_core::{Status, StatusDetails};
use konverge_schema::Budget;

use crate::body::{self, Body};
use crate::change::{Done, Write};
use crate::decode::{self, Decoded};
use crate::delete::{self, DeleteOptions};
use crate::documents;
use crate::negotiate::{Encoding, Endpoint as Shape, PatchKind, View, Wanted};
use crate::part::Part;
use crate::patch::Patch;
use crate::read::{self, ListOptions};
use crate::render::Form;
use crate::request::{self, Endpoint, Query, Target};
use crate::resource::{Resource, Verb};
use crate::server::{ApiServer, Server};
use crate::table::{IncludeObject, TableView};
use crate::view::Filter;
use crate::watch::{self, WatchOptions};
use crate::{crd, messages, meta, pod, scale, work};

/// The most that warnings of one answer may take, so that headers stay within what clients accept.
const MAX_WARNING_BYTES: usize = 4096;

/// How many objects of a collection are deleted before others go first.
const DELETED_AT_ONCE: usize = 16;

/// How often a request is answered anew because the definition of its kind has changed meanwhile.
const MAX_CHANGES: usize = 8;

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { Ok(serve(server, request).await) })
    }
}

/// Answers one request. A panic is this request's problem alone.
async fn serve<B>(server: Arc<Server>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let parts = Arc::new(parts);
    // A watch answers at once and then goes on; everything else has to be done in time.
    let limit = server.workers.limits().timeout;
    let answer = tokio::time::timeout(limit, answer(&server, &parts, body));
    let mut response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(Ok(response))) => response,
        Ok(Ok(Err(status))) => failure(&status),
        Ok(Err(_)) => failure(&work::timed_out()),
        Err(_) => {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request ended in a panic");
            failure(&Status::internal("the request ended in a panic; the server's log has more"))
        }
    };
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    let audit = uuid::Uuid::from_u128(server.env.random()).to_string();
    headers.insert("audit-id", HeaderValue::try_from(audit).expect("a uuid is a header value"));
    response
}

async fn answer<B>(server: &Arc<Server>, parts: &Arc<Parts>, body: B) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match request::endpoint(parts.uri.path()) {
        Endpoint::Objects(target) => {
            let Some(mut resource) = find(server, &target) else { return not_served(server, &target) };
            let body = if request::writes(&parts.method) { body::read(body).await? } else { Bytes::new() };
            let mut changes = 0;
            loop {
                let call = Arc::new(Call::new(server, parts, &resource, target.clone(), body.clone()));
                let answer = server.workers.run(move |budget| {
                    let call = call.clone();
                    async move { call.answer(&budget).await }
                });
                let answer = answer.await;
                // Nothing is committed through a row that the kind's definition has left behind.
                if changes < MAX_CHANGES && answer.as_ref().is_err_and(crd::is_outdated) {
                    changes += 1;
                    crd::catch_up(server);
                    match find(server, &target) {
                        Some(current) => resource = current,
                        None => return not_served(server, &target),
                    }
                    continue;
                }
                let mut response = answer.unwrap_or_else(|status| failure(&status));
                warn(&mut response, resource.deprecation.iter().map(|text| &**text));
                return Ok(response);
            }
        }
        Endpoint::Unknown => Ok(not_found_page()),
        document => documents::answer(server, parts, &document),
    }
}

/// The row that a path names. Who has seen a definition in the store must find its kind served.
fn find(server: &Server, target: &Target) -> Option<Arc<Resource>> {
    let find = || server.kinds.find(&target.group, &target.version, &target.resource);
    let found = find().or_else(|| {
        crd::catch_up(server);
        find()
    });
    found.filter(|row| row.namespaced || target.namespace.is_none())
}

/// Built-in groups know what they do not have; elsewhere nobody is there to say so.
fn not_served(server: &Server, target: &Target) -> Result<Response<Body>, Status> {
    let known = server.kinds.builds_in(&target.group, &target.version);
    if known { Err(no_such_resource()) } else { Ok(not_found_page()) }
}

/// One request about objects.
struct Call {
    server: Arc<Server>,
    parts: Arc<Parts>,
    resource: Arc<Resource>,
    target: Target,
    query: Query,
    body: Bytes,
}

impl Call {
    fn new(server: &Arc<Server>, parts: &Arc<Parts>, resource: &Arc<Resource>, target: Target, body: Bytes) -> Self {
        let query = Query::parse(parts.uri.query());
        Self { server: server.clone(), parts: parts.clone(), resource: resource.clone(), target, query, body }
    }

    /// Answers the request within a budget; over it, an error comes before anything is committed.
    async fn answer(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let part = self.part()?;
        let verb = self.verb()?;
        let allowed = match self.target.subresource.as_deref().and_then(|name| self.resource.subresource(name)) {
            Some(subresource) => subresource.verbs,
            None => self.resource.verbs,
        };
        if !allowed.contains(verb) {
            let going = self.resource.custom && verb == Verb::Create && self.target.subresource.is_none();
            return Err(if going { crd::going(&self.resource) } else { Status::method_not_allowed() });
        }
        let answer = match (verb, part) {
            (Verb::Get, Part::Log) => self.log(),
            (Verb::Create, Part::Binding | Part::Eviction) => self.act(part, budget).await,
            (Verb::Get, _) => self.get(part).await,
            (Verb::List, _) => self.list().await,
            (Verb::Watch, _) => self.watch(),
            (Verb::Create, _) => self.create(budget).await,
            (Verb::Update, _) => self.update(part, budget).await,
            (Verb::Patch, _) => self.patch(part, budget).await,
            (Verb::Delete, _) => self.delete().await,
            (Verb::DeleteCollection, _) => self.delete_collection().await,
        };
        if request::writes(&self.parts.method) {
            let one = (verb != Verb::DeleteCollection).then(|| self.name());
            crd::settle(&self.server, &self.resource, one).await;
        }
        answer
    }

    fn part(&self) -> Result<Part, Status> {
        let Some(name) = &self.target.subresource else { return Ok(Part::Main) };
        let known = self.resource.subresource(name).and_then(|sub| Part::named(&sub.name));
        known.ok_or_else(|| match self.resource.custom {
            true => Status::not_found(&self.resource.group, &self.resource.plural, self.name()),
            false => no_such_resource(),
        })
    }

    fn verb(&self) -> Result<Verb, Status> {
        let placed = self.resource.namespaced == self.target.namespace.is_some();
        match (&self.parts.method, &self.target.name) {
            (&Method::GET | &Method::HEAD, Some(_)) if placed => Ok(Verb::Get),
            (&Method::GET | &Method::HEAD, None) if self.query.flag("watch") => Ok(Verb::Watch),
            (&Method::GET | &Method::HEAD, None) => Ok(Verb::List),
            (&Method::POST, None) if placed => Ok(Verb::Create),
            (&Method::POST, Some(_)) if placed && self.target.subresource.is_some() => Ok(Verb::Create),
            (&Method::PUT, Some(_)) if placed => Ok(Verb::Update),
            (&Method::PATCH, Some(_)) if placed => Ok(Verb::Patch),
            (&Method::DELETE, Some(_)) if placed => Ok(Verb::Delete),
            (&Method::DELETE, None) if placed => Ok(Verb::DeleteCollection),
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn get(&self, part: Part) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        wanted.check_shape(false)?;
        let entry = read::get(&*self.server.store, &self.resource, self.namespace(), self.name(), &self.query)?;
        let room = self.text_room(&wanted, entry.value.len()).await;
        let bytes = match (&self.resource.scale, part) {
            (Some(paths), Part::Scale) => {
                self.scale_form(&wanted)?.object(&scale::of(&self.resource.view(&entry), paths))
            }
            _ => self.form(&wanted)?.entry(&self.resource, &entry),
        };
        let response = self.respond(200, &wanted, bytes, &[]).await;
        Ok(response.map(|body| body.keeping(room)))
    }

    async fn list(&self) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        wanted.check_shape(true)?;
        let options = ListOptions::parse(&self.query)?;
        let filter = self.filter()?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &options, &self.query).await?;
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        let pieces = self.form(&wanted)?.list(self.resource.clone(), listed);
        if wanted.encoding == Encoding::Yaml {
            let room = self.text_room(&wanted, bytes).await;
            let response = self.respond(200, &wanted, pieces.into_bytes().await, &[]).await;
            return Ok(response.map(|body| body.keeping(room)));
        }
        Ok(typed(200, wanted.encoding.content_type(), Body::stream(pieces.into_stream())))
    }

    fn watch(&self) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Watch)?;
        let mut options = WatchOptions::parse(&self.query, &self.resource)?;
        let as_messages = messages::wanted(&self.parts.headers);
        if as_messages {
            options = options.event_by_event();
        }
        let filter = self.filter()?;
        let events =
            watch::watch(&self.server, self.resource.clone(), self.namespace(), filter, self.form(&wanted)?, &options)?;
        if as_messages {
            return messages::answer(&self.parts.headers, events);
        }
        Ok(typed(200, wanted.encoding.content_type(), Body::stream(events)))
    }

    async fn create(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.query.check_write("CreateOptions", false)?;
        let mut warnings = Vec::new();
        let done = self.write(Part::Main, budget).create(self.decode(budget)?, &mut warnings).await?;
        self.done(201, &wanted, Part::Main, done, &warnings).await
    }

    /// Creates something that is done rather than kept.
    async fn act(&self, part: Part, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.query.check_write("CreateOptions", false)?;
        let (write, sent) = (self.write(part, budget), self.decode(budget)?);
        match part {
            Part::Binding => pod::bind(&write, self.name(), sent).await?,
            _ => pod::evict(&write, self.name(), sent, &self.query).await?,
        }
        let bytes = serde_json::to_vec(&Status::done(201)).expect("writing to memory does not fail");
        Ok(self.respond(201, &wanted, bytes, &[]).await)
    }

    fn log(&self) -> Result<Response<Body>, Status> {
        let log = pod::log(&self.server, &self.resource, self.namespace(), self.name(), &self.query)?;
        let code = if log.is_some() { 200 } else { 204 };
        Ok(typed(code, "text/plain", log.unwrap_or_else(Body::empty)))
    }

    async fn update(&self, part: Part, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.query.check_write("UpdateOptions", false)?;
        let mut warnings = Vec::new();
        let write = self.write(part, budget);
        let sent = self.decode(budget)?;
        let before = self.server.store.revision();
        let done = match (&self.resource.scale, part) {
            (Some(paths), Part::Scale) => {
                let set = |object: &Value| scale::set(object, &sent.value, &self.resource, paths);
                write.alter(self.name(), &mut warnings, set).await?
            }
            _ => write.replace(self.name(), sent, &mut warnings).await?,
        };
        self.settled(before, &wanted, part, done, &warnings).await
    }

    async fn patch(&self, part: Part, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        let kind = PatchKind::of_body(self.header(header::CONTENT_TYPE), self.resource.custom)?;
        self.query.check_write("PatchOptions", kind == PatchKind::Apply)?;
        let mut warnings = Vec::new();
        let write = self.write(part, budget);
        let before = self.server.store.revision();
        let patch = match kind {
            PatchKind::Json => Patch::json(&self.body, budget)?,
            PatchKind::Merge => Patch::merge(&self.body, budget)?,
            PatchKind::Strategic if part == Part::Scale => Patch::merge(&self.body, budget)?,
            PatchKind::Strategic => Patch::strategic(&self.body, budget)?,
            PatchKind::Apply if part == Part::Scale => {
                let accepted = "application/json-patch+json, application/merge-patch+json";
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {accepted}"
                );
                return Err(Status::failure(415, "UnsupportedMediaType", message));
            }
            PatchKind::Apply => {
                let sent = decode::yaml(&self.body, budget)?;
                let force = self.query.flag("force");
                let done = write.apply(self.name(), force, sent, &mut warnings).await?;
                return self.settled(before, &wanted, part, done, &warnings).await;
            }
        };
        let done = match (&self.resource.scale, part) {
            (Some(paths), Part::Scale) => {
                let set = |object: &Value| {
                    let patched = patch.apply(&self.resource, &scale::of(object, paths), budget)?;
                    scale::set(object, &patched, &self.resource, paths)
                };
                write.alter(self.name(), &mut warnings, set).await?
            }
            _ => {
                let patched = |object: &Value| patch.apply(&self.resource, object, budget);
                write.patch(self.name(), &mut warnings, patched).await?
            }
        };
        self.settled(before, &wanted, part, done, &warnings).await
    }

    async fn delete(&self) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        let options = self.delete_options()?;
        let done = delete::delete(&self.server, &self.resource, self.namespace(), self.name(), &options).await?;
        match done {
            Done::Gone(object) => {
                if self.resource.behaviour.returns_deleted {
                    return Ok(self.respond(200, &wanted, self.form(&wanted)?.object(&object), &[]).await);
                }
                let status = Status::success(StatusDetails {
                    name: self.name().to_owned(),
                    group: self.resource.group.to_string(),
                    kind: self.resource.plural.to_string(),
                    uid: meta::text(&object, "uid").to_owned(),
                    ..StatusDetails::default()
                });
                let bytes = serde_json::to_vec(&status).expect("writing to memory does not fail");
                Ok(self.respond(200, &wanted, bytes, &[]).await)
            }
            done => self.done(200, &wanted, Part::Main, done, &[]).await,
        }
    }

    async fn delete_collection(&self) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        let options = self.delete_options()?;
        let filter = self.filter()?;
        let range = ListOptions::parse(&self.query)?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &range, &self.query).await?;
        for (at, entry) in listed.entries.iter().enumerate() {
            // A store in memory never waits, so that nobody else would get on.
            if at > 0 && at.is_multiple_of(DELETED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let (namespace, name) = self.resource.identity(&entry.key);
            match delete::delete(&self.server, &self.resource, namespace, name, &options).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        let pieces = self.form(&wanted)?.list(self.resource.clone(), listed);
        Ok(self.respond(200, &wanted, pieces.into_bytes().await, &[]).await)
    }

    /// Answers an update: 201 if it made the object.
    async fn settled(
        &self,
        before: konverge_store::Revision,
        wanted: &Wanted,
        part: Part,
        done: Done,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let code = match &done {
            Done::Kept(entry) if entry.created == entry.revision && entry.created > before => 201,
            // What would be made has no version yet.
            Done::Dry(object) if meta::text(object, "resourceVersion").is_empty() => 201,
            _ => 200,
        };
        self.done(code, wanted, part, done, warnings).await
    }

    async fn done(
        &self,
        code: u16,
        wanted: &Wanted,
        part: Part,
        done: Done,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let bytes = match (&self.resource.scale, part, done) {
            (Some(paths), Part::Scale, done) => {
                let object = match done {
                    Done::Kept(entry) => self.resource.view(&entry),
                    Done::Dry(object) | Done::Gone(object) => object,
                };
                self.scale_form(wanted)?.object(&scale::of(&object, paths))
            }
            (_, _, Done::Kept(entry)) => self.form(wanted)?.entry(&self.resource, &entry),
            (_, _, Done::Dry(object) | Done::Gone(object)) => self.form(wanted)?.object(&object),
        };
        Ok(self.respond(code, wanted, bytes, warnings).await)
    }

    /// Room for an answer that is made from so many bytes, if it is a text that another thread writes.
    async fn text_room(&self, wanted: &Wanted, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let plain = wanted.encoding == Encoding::Json && !self.is_pretty(wanted);
        if plain { None } else { self.server.workers.text_room(bytes).await }
    }

    fn is_pretty(&self, wanted: &Wanted) -> bool {
        wanted.pretty || self.query.flag("pretty")
    }

    async fn respond(&self, code: u16, wanted: &Wanted, json: Vec<u8>, warnings: &[String]) -> Response<Body> {
        let (encoding, pretty) = (wanted.encoding, self.is_pretty(wanted));
        let bytes = match encoding {
            Encoding::Json if !pretty => json,
            encoding => self.server.workers.write_text(json, move |json| encode(encoding, pretty, json)).await,
        };
        let mut response = typed(code, wanted.encoding.content_type(), Body::full(bytes));
        warn(&mut response, warnings.iter().map(String::as_str));
        response
    }

    /// How to delete: from the body, which says what it is like any other, or from the query when there is none.
    fn delete_options(&self) -> Result<DeleteOptions, Status> {
        let sent = if self.body.is_empty() {
            Value::Null
        } else {
            self.decode(&Budget::new(delete::OPTIONS_STEPS, delete::OPTIONS_BYTES))?.value
        };
        DeleteOptions::read(sent, &self.query)
    }

    fn decode(&self, budget: &Budget) -> Result<Decoded, Status> {
        match Encoding::of_body(self.header(header::CONTENT_TYPE))? {
            Encoding::Json => decode::json(&self.body, budget),
            Encoding::Yaml => decode::yaml(&self.body, budget),
        }
    }

    fn write<'a>(&'a self, part: Part, budget: &'a Budget) -> Write<'a> {
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let agent = agent.split('/').next().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        Write {
            server: &self.server,
            resource: &self.resource,
            namespace: self.namespace(),
            part,
            validation: self.query.field_validation(),
            manager: self.query.get("fieldManager").unwrap_or(agent).chars().take(128).collect(),
            api_version: self.resource.api_version(),
            dry_run: self.query.dry_run(),
            budget,
        }
    }

    fn filter(&self) -> Result<Filter, Status> {
        Filter::new(&self.resource, self.query.labels()?, self.query.fields()?)
    }

    fn wanted(&self, shape: Shape) -> Result<Wanted, Status> {
        Wanted::accept(self.header(header::ACCEPT), shape)
    }

    fn form(&self, wanted: &Wanted) -> Result<Form, Status> {
        self.form_of(wanted, || TableView::of(&self.resource))
    }

    fn scale_form(&self, wanted: &Wanted) -> Result<Form, Status> {
        self.form_of(wanted, || TableView::builtin("autoscaling", "Scale"))
    }

    fn form_of(&self, wanted: &Wanted, view: impl FnOnce() -> TableView) -> Result<Form, Status> {
        Ok(match wanted.view {
            View::Object => Form::Whole,
            View::PartialMetadata(version) | View::PartialMetadataList(version) => Form::Metadata(version),
            View::Table(version) => Form::Table {
                view: Arc::new(view()),
                version,
                include: IncludeObject::parse(self.query.get("includeObject"))?,
                env: self.server.env.clone(),
            },
        })
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref()
    }

    fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }
}

/// JSON as the client wants to read it.
pub(crate) fn encode(encoding: Encoding, pretty: bool, json: Vec<u8>) -> Vec<u8> {
    let value = || serde_json::from_slice::<Value>(&json).unwrap_or_default();
    match encoding {
        Encoding::Json if pretty => serde_json::to_vec_pretty(&value()).unwrap_or(json),
        Encoding::Json => json,
        Encoding::Yaml => serde_saphyr::to_string(&value()).map(String::into_bytes).unwrap_or(json),
    }
}

/// Adds warnings to an answer, as many as there is room for.
fn warn<'w>(response: &mut Response<Body>, warnings: impl Iterator<Item = &'w str>) {
    let mut room = MAX_WARNING_BYTES;
    for warning in warnings {
        let text = warning.replace(|c: char| c.is_control(), " ").replace('\\', "\\\\").replace('"', "\\\"");
        let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\"")) else { continue };
        let Some(left) = room.checked_sub(value.len()) else { break };
        room = left;
        response.headers_mut().append(header::WARNING, value);
    }
}

/// An answer of this type.
pub(crate) fn typed(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let builder = Response::builder().status(code).header(header::CONTENT_TYPE, content_type);
    builder.body(body).expect("a known code and content type make a response")
}

/// What is said about paths where nothing is.
pub(crate) fn not_found_page() -> Response<Body> {
    typed(404, "text/plain; charset=utf-8", Body::full("404 page not found\n"))
}

fn no_such_resource() -> Status {
    let mut status = Status::failure(404, "NotFound", "the server could not find the requested resource");
    // Empty, but there: kubectl looks into it to tell a missing subresource from a missing object.
    status.details = Some(Box::default());
    status
}

fn failure(status: &Status) -> Response<Body> {
    let body = serde_json::to_vec(status).unwrap_or_else(|_| json!({"kind": "Status"}).to_string().into());
    let mut response = typed(status.code, "application/json", Body::full(body));
    if let Some(details) = status.details.as_ref().filter(|details| details.retry_after_seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, details.retry_after_seconds.into());
    }
    response
}
