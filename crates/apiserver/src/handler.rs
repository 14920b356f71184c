//! One request about objects, verb by verb. In: the request and the resource that its path names. Out: its answer, or the
//! `Status` that says why not. Decides which stages a verb takes; what each stage does is in a file of its own.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, header};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use konverge_core::{Status, StatusDetails};
use konverge_schema::Budget;

use crate::body::Body;
use crate::change::{Done, Write};
use crate::context::RequestContext;
use crate::decode::{self, Decoded};
use crate::delete::{self, DeleteOptions};
use crate::filter::Filter;
use crate::negotiate::{Encoding, Endpoint as Shape, PatchKind, View, Wanted};
use crate::part::Part;
use crate::patch::Patch;
use crate::read::{self, ListOptions};
use crate::render::Form;
use crate::request::{self, Query, Target};
use crate::resource::{Resource, Verb};
use crate::response::{encode, no_such_resource, typed, warn};
use crate::server::Server;
use crate::table::{IncludeObject, TableView};
use crate::watch::{self, WatchOptions};
use crate::{crd, messages, meta, pod, scale};

/// How many objects of a collection are deleted before others go first.
const DELETED_AT_ONCE: usize = 16;

/// A request about objects, as it came in.
pub(crate) struct ObjectRequest {
    pub context: RequestContext,
    pub parts: Arc<Parts>,
    pub target: Target,
    pub query: Query,
    pub body: Bytes,
}

/// Handles one request through one resource.
pub(crate) struct Handler {
    server: Arc<Server>,
    resource: Arc<Resource>,
    request: Arc<ObjectRequest>,
}

impl Handler {
    pub fn new(server: &Arc<Server>, resource: &Arc<Resource>, request: &Arc<ObjectRequest>) -> Self {
        Self { server: server.clone(), resource: resource.clone(), request: request.clone() }
    }

    /// Answers the request within a budget; over it, an error comes before anything is committed.
    pub async fn handle(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let part = self.part()?;
        let verb = self.verb()?;
        let allowed = match self.request.target.subresource.as_deref().and_then(|name| self.resource.subresource(name))
        {
            Some(subresource) => subresource.verbs,
            None => self.resource.verbs,
        };
        if !allowed.contains(verb) {
            let going = self.resource.custom && verb == Verb::Create && self.request.target.subresource.is_none();
            return Err(if going { crd::going(&self.resource) } else { Status::method_not_allowed() });
        }
        let answer = match (verb, part) {
            (Verb::Get, Part::Log) => self.log().await,
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
        if request::writes(&self.request.parts.method) {
            let one = (verb != Verb::DeleteCollection).then(|| self.name());
            crd::settle(&self.server, &self.resource, one).await;
        }
        answer
    }

    fn part(&self) -> Result<Part, Status> {
        let Some(name) = &self.request.target.subresource else { return Ok(Part::Main) };
        let known = self.resource.subresource(name).and_then(|sub| Part::named(&sub.name));
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

    async fn get(&self, part: Part) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        wanted.check_shape(false)?;
        let entry =
            read::get(&*self.server.store, &self.resource, self.namespace(), self.name(), &self.request.query).await?;
        let room = self.text_room(&wanted, entry.value.len()).await;
        let bytes = match (&self.resource.scale, part) {
            (Some(paths), Part::Scale) => {
                self.scale_form(&wanted)?.object(&scale::of(&self.resource.object(&entry), paths))
            }
            _ => self.form(&wanted)?.entry(&self.resource, &entry),
        };
        let response = self.respond(200, &wanted, bytes, &[]).await;
        Ok(response.map(|body| body.keeping(room)))
    }

    async fn list(&self) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        wanted.check_shape(true)?;
        let options = ListOptions::parse(&self.request.query)?;
        let filter = self.filter()?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &options, &self.request.query).await?;
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
        let mut options = WatchOptions::parse(&self.request.query, &self.resource)?;
        let as_messages = messages::wanted(&self.request.parts.headers);
        if as_messages {
            options = options.event_by_event();
        }
        let filter = self.filter()?;
        let events = watch::watch(
            &self.server,
            &self.request.context,
            self.resource.clone(),
            self.namespace(),
            filter,
            self.form(&wanted)?,
            &options,
        )?;
        if as_messages {
            return messages::answer(&self.request.parts.headers, events);
        }
        Ok(typed(200, wanted.encoding.content_type(), Body::stream(events)))
    }

    async fn create(&self, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let mut warnings = Vec::new();
        let done = self.write(Part::Main, budget).create(self.decode(budget)?, &mut warnings).await?;
        self.done(201, &wanted, Part::Main, done, &warnings).await
    }

    /// Creates something that is done rather than kept.
    async fn act(&self, part: Part, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.request.query.check_write("CreateOptions", false)?;
        let (write, sent) = (self.write(part, budget), self.decode(budget)?);
        match part {
            Part::Binding => pod::bind(&write, self.name(), sent).await?,
            _ => pod::evict(&write, self.name(), sent, &self.request.query).await?,
        }
        let bytes = serde_json::to_vec(&Status::done(201)).expect("writing to memory does not fail");
        Ok(self.respond(201, &wanted, bytes, &[]).await)
    }

    async fn log(&self) -> Result<Response<Body>, Status> {
        let log = pod::log(&self.server, &self.resource, self.namespace(), self.name(), &self.request.query).await?;
        let code = if log.is_some() { 200 } else { 204 };
        Ok(typed(code, "text/plain", log.unwrap_or_else(Body::empty)))
    }

    async fn update(&self, part: Part, budget: &Budget) -> Result<Response<Body>, Status> {
        let wanted = self.wanted(Shape::Object)?;
        self.request.query.check_write("UpdateOptions", false)?;
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
        self.request.query.check_write("PatchOptions", kind == PatchKind::Apply)?;
        let mut warnings = Vec::new();
        let write = self.write(part, budget);
        let before = self.server.store.revision();
        let patch = match kind {
            PatchKind::Json => Patch::json(&self.request.body, budget)?,
            PatchKind::Merge => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic if part == Part::Scale => Patch::merge(&self.request.body, budget)?,
            PatchKind::Strategic => Patch::strategic(&self.request.body, budget)?,
            PatchKind::Apply if part == Part::Scale => {
                let accepted = "application/json-patch+json, application/merge-patch+json";
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {accepted}"
                );
                return Err(Status::failure(415, "UnsupportedMediaType", message));
            }
            PatchKind::Apply => {
                let sent = decode::yaml(&self.request.body, budget)?;
                let force = self.request.query.flag("force");
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
        let (options, context) = self.delete_options()?;
        let done =
            delete::delete(&self.server, &context, &self.resource, self.namespace(), self.name(), &options).await?;
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
        let (options, context) = self.delete_options()?;
        let filter = self.filter()?;
        let range = ListOptions::parse(&self.request.query)?;
        let namespace = self.namespace();
        let store = &*self.server.store;
        let listed = read::list(store, &self.resource, namespace, &filter, &range, &self.request.query).await?;
        for (at, entry) in listed.entries.iter().enumerate() {
            // A store in memory never waits, so that nobody else would get on.
            if at > 0 && at.is_multiple_of(DELETED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let (namespace, name) = self.resource.identity(&entry.key);
            match delete::delete(&self.server, &context, &self.resource, namespace, name, &options).await {
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
                    Done::Kept(entry) => self.resource.read_object(&entry).await?,
                    Done::Dry(object) | Done::Gone(object) => object,
                };
                self.scale_form(wanted)?.object(&scale::of(&object, paths))
            }
            (_, _, Done::Kept(entry)) => self.form(wanted)?.entry(&self.resource, &self.resource.read(entry).await?),
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
        wanted.pretty || self.request.query.flag("pretty")
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
    fn delete_options(&self) -> Result<(DeleteOptions, RequestContext), Status> {
        let sent = if self.request.body.is_empty() {
            Value::Null
        } else {
            self.decode(&Budget::new(delete::OPTIONS_STEPS, delete::OPTIONS_BYTES))?.value
        };
        DeleteOptions::read(sent, &self.request.query, &self.request.context)
    }

    fn decode(&self, budget: &Budget) -> Result<Decoded, Status> {
        match Encoding::of_body(self.header(header::CONTENT_TYPE))? {
            Encoding::Json => decode::json(&self.request.body, budget),
            Encoding::Yaml => decode::yaml(&self.request.body, budget),
        }
    }

    fn write<'a>(&'a self, part: Part, budget: &'a Budget) -> Write<'a> {
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let agent = agent.split('/').next().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        Write {
            server: &self.server,
            context: &self.request.context,
            resource: &self.resource,
            namespace: self.namespace(),
            part,
            validation: self.request.query.field_validation(),
            manager: self.request.query.get("fieldManager").unwrap_or(agent).chars().take(128).collect(),
            api_version: self.resource.api_version(),
            budget,
        }
    }

    fn filter(&self) -> Result<Filter, Status> {
        Filter::new(&self.resource, self.request.query.labels()?, self.request.query.fields()?)
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
