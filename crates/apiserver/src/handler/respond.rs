//! The answer of a request about objects, as its client wants to read it. In: what a verb has read or written. Out: the response, with
//! its representation, its encoding and its warnings. The audit log is told what is answered.

use std::sync::Arc;

use http::{Response, header};
use tokio::sync::OwnedSemaphorePermit;

use konverge_core::Status;
use konverge_schema::Budget;

use super::Handler;
use crate::body::Body;
use crate::negotiate::{ConvertTo, Encoding, MediaTypeOptions, ResponseKind};
use crate::protobuf::ProtobufForm;
use crate::render::Representation;
use crate::response::{encode, failure, typed, warn};
use crate::subresource::Subresource;
use crate::table::{IncludeObject, TablePrinter};
use crate::write::WriteOutcome;
use crate::{crd, meta, scale};

impl Handler {
    /// The answer to an update: 201 if it created the object.
    pub(super) async fn respond_to_update(
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

    pub(super) async fn respond_with(
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
    pub(super) async fn text_room(&self, accepted: &MediaTypeOptions, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let plain = accepted.encoding == Encoding::Json && !self.is_pretty(accepted);
        if plain { None } else { self.server.workers.text_room(bytes).await }
    }

    fn is_pretty(&self, accepted: &MediaTypeOptions) -> bool {
        accepted.pretty || self.request.query.flag("pretty")
    }

    pub(super) async fn respond(
        &self,
        code: u16,
        accepted: &MediaTypeOptions,
        json: Vec<u8>,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        if let Some(audit) = &self.request.context.audit {
            audit.answers(&json);
        }
        self.encode(code, accepted, json, warnings).await
    }

    /// The answer to a request that is done and has no object to show.
    pub(super) async fn respond_status(
        &self,
        code: u16,
        accepted: &MediaTypeOptions,
        status: &Status,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        if let Some(audit) = &self.request.context.audit {
            audit.answers_status(status, code);
        }
        let json = serde_json::to_vec(status).expect("writing to memory does not fail");
        self.encode(code, accepted, json, warnings).await
    }

    async fn encode(
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

    pub(super) fn accepted(&self, kind: ResponseKind) -> Result<MediaTypeOptions, Status> {
        MediaTypeOptions::accept(self.header(header::ACCEPT), kind, self.resource.custom)
    }

    pub(super) fn protobuf_form(&self, representation: &Representation) -> Result<ProtobufForm, Status> {
        let form = ProtobufForm::of(&self.resource, representation);
        form.ok_or_else(|| Status::internal("this kind has no protobuf messages; ask for application/json"))
    }

    pub(super) fn representation(&self, accepted: &MediaTypeOptions) -> Result<Representation, Status> {
        self.representation_of(accepted, || TablePrinter::of(&self.resource))
    }

    pub(super) fn scale_representation(&self, accepted: &MediaTypeOptions) -> Result<Representation, Status> {
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
}

/// The answer to a write that is refused. It has its warnings, too: they may explain the refusal.
pub(super) fn refused(status: Status, warnings: &[String], budget: &Budget) -> Result<Response<Body>, Status> {
    // A request that is over its small budget runs again, and so does one whose definition has changed.
    if warnings.is_empty() || budget.check().is_err() || crd::is_outdated(&status) {
        return Err(status);
    }
    let mut response = failure(&status);
    warn(&mut response, warnings.iter().map(String::as_str));
    Ok(response)
}
