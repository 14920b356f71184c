//! Answers as protobuf: lists and the events of watches. In: records, and what the client sees of them. Out: the bytes that
//! kube-apiserver sends. One object goes through `response::encode`, which finds its kind in its JSON.
//!
//! An envelope begins with the length of the list in it, so the length is known before the first byte is sent. A list of
//! ordinary size is encoded once and kept until it is sent, within the memory that there is for such answers. A larger one is
//! encoded twice: first to measure it, and again piece by piece while its client reads.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};

use konverge_core::Status;
use konverge_schema::{ProtobufEncoder, ProtobufError, ProtobufKind, protobuf_envelope};
use konverge_store::Revision;

use crate::body::Body;
use crate::conversion::Readable;
use crate::partial::ListMeta;
use crate::read::Listed;
use crate::render::Representation;
use crate::resource::Resource;
use crate::work::Workers;

/// Lists whose records are longer than this are encoded twice rather than kept in memory.
const KEPT_BYTES: usize = 8 * 1024 * 1024;

/// After encoding this many bytes other requests are served: a millisecond or so.
const LOOK_BYTES: usize = 256 * 1024;

/// How much of a list is encoded at a time while it is sent.
const PIECE_BYTES: usize = 64 * 1024;

/// What the head of an envelope takes at most, besides its names.
const HEAD_BYTES: usize = 64;

/// Which messages the objects of a resource and their lists are.
#[derive(Clone)]
pub(crate) struct ProtobufForm {
    api_version: String,
    kind: String,
    list_kind: String,
    message: ProtobufKind,
    list: ProtobufKind,
}

impl ProtobufForm {
    /// The messages of what a client sees of objects: none for tables, and none for whole custom resources.
    pub(crate) fn of(resource: &Resource, representation: &Representation) -> Option<Self> {
        let (api_version, kind, list_kind) = match representation {
            Representation::Object => {
                (resource.api_version(), resource.kind.to_string(), resource.list_kind.to_string())
            }
            Representation::Metadata(version) => {
                let (kind, list_kind) = ("PartialObjectMetadata", "PartialObjectMetadataList");
                (version.api_version().to_owned(), kind.to_owned(), list_kind.to_owned())
            }
            Representation::Table { .. } => return None,
        };
        let message = ProtobufKind::find(&api_version, &kind)?;
        let list = ProtobufKind::find(&api_version, &list_kind)?;
        Some(Self { api_version, kind, list_kind, message, list })
    }

    /// Appends an event of a watch.
    pub(crate) fn write_event(
        &self,
        event: &str,
        resource: &Resource,
        entry: &Readable,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        // The message of metadata leaves out every other field.
        let mut json = Vec::with_capacity(entry.value.len() + 64);
        resource.write_object(entry, revision, &mut json);
        self.encode_event(event, &json, out).map_err(|error| unreadable(resource, entry, &error))
    }

    /// Appends an event with this object: a bookmark.
    pub(crate) fn write_json_event(&self, event: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
        self.encode_event(event, json, out).map_err(not_encodable)
    }

    fn encode_event(&self, event: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), ProtobufError> {
        let mut encoder = ProtobufEncoder::default();
        out.extend_from_slice(encoder.event(event, (&self.api_version, &self.kind), self.message, json)?);
        Ok(())
    }

    /// A list.
    pub(crate) async fn list(self, resource: Arc<Resource>, listed: Listed, workers: &Workers) -> Result<Body, Status> {
        let revision = listed.revision.0.to_string();
        let token = listed.more.unwrap_or_default();
        let remaining = listed.remaining.map(|count| count as u64);
        let meta = ListMeta { resource_version: &revision, continue_token: &token, remaining_item_count: remaining };
        let bytes: usize = listed.entries.iter().map(|entry| entry.value.len()).sum();
        let mut items =
            Items { encoder: ProtobufEncoder::default(), json: Vec::new(), message: self.message, resource };
        let names = (self.api_version.as_str(), self.list_kind.as_str());
        if bytes > KEPT_BYTES {
            let meta = items.list_meta(self.list, &meta)?;
            let mut length = meta.len();
            let mut looked = 0;
            for entry in &listed.entries {
                length += items.item(entry)?.len();
                rest(&mut looked, entry.value.len()).await;
            }
            let (head, tail) = protobuf_envelope(names, length);
            let pieces = items.pieces([head, meta].concat(), listed.entries.into_iter(), tail);
            return Ok(Body::stream(pieces));
        }
        let room = workers.text_room(bytes).await;
        let gap = HEAD_BYTES + names.0.len() + names.1.len();
        let mut out = vec![0; gap];
        out.extend_from_slice(&items.list_meta(self.list, &meta)?);
        let mut looked = 0;
        for entry in &listed.entries {
            out.extend_from_slice(items.item(entry)?);
            rest(&mut looked, entry.value.len()).await;
        }
        let (head, tail) = protobuf_envelope(names, out.len() - gap);
        let start = gap - head.len();
        out[start..gap].copy_from_slice(&head);
        out.extend_from_slice(tail);
        Ok(Body::full(Bytes::from(out).slice(start..)).holding(room))
    }
}

/// Appends an event that ends a watch.
pub(crate) fn write_error_event(status: &Status, out: &mut Vec<u8>) {
    let json = serde_json::to_vec(status).expect("writing to memory does not fail");
    let message = ProtobufKind::find("v1", "Status").expect("the table has the message of failures");
    let mut encoder = ProtobufEncoder::default();
    let frame = encoder.event("ERROR", ("v1", "Status"), message, &json);
    out.extend_from_slice(frame.expect("a Status has the fields of its message"));
}

/// The `Status` for an object whose fields are not of the types that its kind has.
pub(crate) fn not_encodable(error: ProtobufError) -> Status {
    Status::internal(format!("the object cannot be encoded to protobuf: {error}; ask for application/json"))
}

/// The same for one object among others: without its name, nobody would know which one to repair.
fn unreadable(resource: &Resource, entry: &Readable, error: &ProtobufError) -> Status {
    let object = resource.object(entry);
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let separator = if namespace.is_empty() { "" } else { "/" };
    Status::internal(format!(
        "{} {namespace}{separator}{name} cannot be encoded to protobuf: {error}; read it as application/json, and correct or \
         delete it",
        resource.kind
    ))
}

/// Lets other requests be served after much work.
async fn rest(looked: &mut usize, more: usize) {
    *looked += more;
    if *looked >= LOOK_BYTES {
        *looked = 0;
        tokio::task::yield_now().await;
    }
}

/// Encodes the items of a list.
struct Items {
    encoder: ProtobufEncoder,
    json: Vec<u8>,
    message: ProtobufKind,
    resource: Arc<Resource>,
}

impl Items {
    /// An item as a field of the list.
    fn item(&mut self, entry: &Readable) -> Result<&[u8], Status> {
        let Self { encoder, json, message, resource } = self;
        json.clear();
        resource.write_object(entry, entry.revision, json);
        encoder.item(*message, json).map_err(|error| unreadable(resource, entry, &error))
    }

    fn list_meta(&mut self, list: ProtobufKind, meta: &ListMeta<'_>) -> Result<Vec<u8>, Status> {
        self.json.clear();
        self.json.extend_from_slice(b"{\"metadata\":");
        meta.write(&mut self.json);
        self.json.push(b'}');
        self.encoder.message(list, &self.json).map(<[u8]>::to_vec).map_err(not_encodable)
    }

    /// The bytes of a list whose items were measured.
    fn pieces(
        self,
        head: Vec<u8>,
        entries: std::vec::IntoIter<Readable>,
        tail: &'static [u8],
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold((self, head, entries, false), move |(mut items, mut out, mut entries, ended)| async move {
            if ended {
                return None;
            }
            // A client that reads fast would otherwise occupy this thread for the whole list.
            tokio::task::yield_now().await;
            let mut looked = 0;
            while out.len() < PIECE_BYTES && looked < LOOK_BYTES {
                let Some(entry) = entries.next() else {
                    out.extend_from_slice(tail);
                    return Some((Bytes::from(out), (items, Vec::new(), entries, true)));
                };
                looked += entry.value.len();
                match items.item(&entry) {
                    Ok(item) => out.extend_from_slice(item),
                    // Encoding is deterministic, and it was encoded before to be measured.
                    Err(_) => return None,
                }
            }
            Some((Bytes::from(out), (items, Vec::with_capacity(PIECE_BYTES + 4096), entries, false)))
        })
    }
}
