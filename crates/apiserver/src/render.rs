//! Renders answers. In: records or objects, and the representation that the client accepts. Out: bytes of whole objects, of
//! their metadata, or of a table. Lists are rendered while they are sent, never as one piece.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Value, json};

use konverge_store::Revision;

use crate::conversion::Readable;
use crate::env::Environment;
use crate::partial::{ListMeta, MetaVersion, open_list, partial_metadata, write_metadata};
use crate::read::Listed;
use crate::record;
use crate::resource::Resource;
use crate::table::{Headings, IncludeObject, TableOptions, TablePrinter};

/// How much of a list is rendered at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// How much is parsed for one piece of a table or of metadata, which show little of each object: a millisecond or so.
const LOOK_BYTES: usize = 256 * 1024;

/// After this many pieces that are copied rather than parsed, other requests are served.
const COPIED_PIECES: usize = 4;

/// What a client sees of objects.
#[derive(Clone)]
pub(crate) enum Representation {
    /// Whole objects.
    Object,
    /// Their metadata.
    Metadata(MetaVersion),
    /// Rows of a table.
    Table { printer: Arc<TablePrinter>, version: MetaVersion, include: IncludeObject, env: Arc<dyn Environment> },
}

impl Representation {
    /// One stored object.
    pub(crate) fn entry(&self, resource: &Resource, entry: &Readable) -> Vec<u8> {
        match self {
            Representation::Object => {
                let mut out = Vec::with_capacity(entry.value.len() + 64);
                resource.write_object(entry, entry.revision, &mut out);
                out
            }
            _ => self.object(&resource.object(entry)),
        }
    }

    /// One object.
    pub(crate) fn object(&self, object: &Value) -> Vec<u8> {
        match self {
            Representation::Object => {
                let mut out = Vec::with_capacity(1024);
                record::write_object(object, &mut out);
                out
            }
            Representation::Metadata(version) => partial_metadata(object, *version),
            Representation::Table { .. } => {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                let meta = ListMeta { resource_version: version, ..ListMeta::default() };
                self.table([object], &meta, Headings::Shown)
            }
        }
    }

    /// A list of objects that are not in the store.
    pub(crate) fn objects(&self, resource: &Resource, objects: &[Value]) -> Vec<u8> {
        let (mut out, meta) = (Vec::with_capacity(1024), ListMeta::default());
        match self {
            Representation::Object => {
                let item = |object: &Value| {
                    let mut object = object.clone();
                    if let Some(fields) = object.as_object_mut() {
                        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
                    }
                    object
                };
                let items: Vec<Value> = objects.iter().map(item).collect();
                let list = json!({
                    "kind": &*resource.list_kind, "apiVersion": resource.api_version(), "metadata": {}, "items": items,
                });
                record::write_object(&list, &mut out);
            }
            Representation::Metadata(version) => {
                open_list(&mut out, &meta, *version);
                for (at, object) in objects.iter().enumerate() {
                    out.extend_from_slice(if at > 0 { b"," } else { b"" });
                    write_metadata(&mut out, object, *version);
                }
                out.extend_from_slice(b"]}");
            }
            Representation::Table { .. } => out = self.table(objects, &meta, Headings::Shown),
        }
        out
    }

    /// Brings the objects of a list into the order of a table: FlowSchemas are shown as requests meet them.
    pub(crate) fn sort(&self, resource: &Resource, entries: &mut [Readable]) {
        if matches!(self, Representation::Table { .. }) && &*resource.plural == "flowschemas" {
            // A schema without a number does not exist, and the sort keeps the order of names.
            entries.sort_by_cached_key(|entry| resource.object(entry)["spec"]["matchingPrecedence"].as_i64());
        }
    }

    /// A list, piece by piece.
    pub(crate) fn list(&self, resource: Arc<Resource>, listed: Listed) -> ListPieces {
        let revision = listed.revision.0.to_string();
        let token = listed.more.unwrap_or_default();
        let remaining = listed.remaining.map(|count| count as u64);
        let meta = ListMeta { resource_version: &revision, continue_token: &token, remaining_item_count: remaining };
        ListPieces::new(self.clone(), resource, listed.entries, &meta)
    }

    /// Appends the object of a watch event; `first` says that nothing was sent before.
    pub(crate) fn write_event(
        &self,
        resource: &Resource,
        entry: &Readable,
        revision: Revision,
        first: bool,
        out: &mut Vec<u8>,
    ) {
        if let Representation::Object = self {
            return resource.write_object(entry, revision, out);
        }
        let mut object = resource.object(entry);
        object["metadata"]["resourceVersion"] = revision.0.to_string().into();
        match self {
            Representation::Metadata(version) => out.extend_from_slice(&partial_metadata(&object, *version)),
            _ => {
                let headings = if first { Headings::Shown } else { Headings::Left };
                let revision = revision.0.to_string();
                let meta = ListMeta { resource_version: &revision, ..ListMeta::default() };
                out.extend_from_slice(&self.table([&object], &meta, headings));
            }
        }
    }

    /// The object of a bookmark: nothing but its kind and metadata.
    pub(crate) fn bookmark(&self, resource: &Resource, metadata: Value) -> Value {
        let bare = json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes).unwrap_or_default();
        match self {
            Representation::Object => bare,
            Representation::Metadata(version) => parse(partial_metadata(&bare, *version)),
            Representation::Table { .. } => {
                let version = bare["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                let meta = ListMeta { resource_version: version, ..ListMeta::default() };
                parse(self.table([&bare], &meta, Headings::Left))
            }
        }
    }

    fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        meta: &ListMeta<'_>,
        headings: Headings,
    ) -> Vec<u8> {
        let Representation::Table { printer, version, include, env } = self else { return Vec::new() };
        let options = TableOptions { version: *version, include: *include, headings, now: env.now() };
        printer.render(objects, meta, &options)
    }
}

/// The pieces of a list, made while they are sent.
pub(crate) struct ListPieces {
    representation: Representation,
    /// The options of a table; ages in all rows are relative to the same moment.
    options: Option<TableOptions>,
    resource: Arc<Resource>,
    entries: std::vec::IntoIter<Readable>,
    /// What is ready to be sent.
    out: Vec<u8>,
    first: bool,
    ended: bool,
    made: usize,
}

impl ListPieces {
    fn new(
        representation: Representation,
        resource: Arc<Resource>,
        entries: Vec<Readable>,
        meta: &ListMeta<'_>,
    ) -> Self {
        let mut out = Vec::with_capacity(if entries.is_empty() { 256 } else { PIECE_BYTES + 4096 });
        let mut options = None;
        match &representation {
            Representation::Object => {
                // Neither a kind nor an apiVersion has characters that JSON would escape.
                let head =
                    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\"", resource.list_kind, resource.api_version());
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(b",\"metadata\":");
                meta.write(&mut out);
                out.extend_from_slice(b",\"items\":[");
            }
            Representation::Metadata(version) => open_list(&mut out, meta, *version),
            Representation::Table { printer, version, include, env } => {
                let headings = Headings::Shown;
                let table = TableOptions { version: *version, include: *include, headings, now: env.now() };
                printer.open(&mut out, meta, &table);
                options = Some(table);
            }
        }
        Self {
            representation,
            options,
            resource,
            entries: entries.into_iter(),
            out,
            first: true,
            ended: false,
            made: 0,
        }
    }

    /// Everything at once, for an encoding that cannot be sent in pieces.
    pub(crate) async fn into_bytes(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            all.extend_from_slice(&piece);
        }
        all
    }

    /// Everything, while it is sent.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(self, |mut pieces| async move {
            let piece = pieces.next().await?;
            Some((Bytes::from(piece), pieces))
        })
    }

    /// The next piece. Between pieces other requests are served: a client that reads fast would otherwise occupy this thread
    /// for the whole list.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let parses = !matches!(self.representation, Representation::Object);
        if self.made > 0 && !self.ended && (parses || self.made.is_multiple_of(COPIED_PIECES)) {
            tokio::task::yield_now().await;
        }
        self.made += 1;
        self.next_piece()
    }

    fn next_piece(&mut self) -> Option<Vec<u8>> {
        let mut looked = 0;
        while !self.ended && self.out.len() < PIECE_BYTES && looked < LOOK_BYTES {
            let Some(entry) = self.entries.next() else {
                self.out.extend_from_slice(b"]}");
                self.ended = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                self.out.push(b',');
            }
            looked += entry.value.len();
            match (&self.representation, &self.options) {
                (Representation::Metadata(version), _) => {
                    write_metadata(&mut self.out, &self.resource.object(&entry), *version)
                }
                (Representation::Table { printer, .. }, Some(options)) => {
                    printer.row(&mut self.out, &self.resource.object(&entry), options);
                }
                _ => self.resource.write_item(&entry, &mut self.out),
            }
        }
        if self.out.is_empty() {
            return None;
        }
        let room = if self.ended { 0 } else { PIECE_BYTES + 4096 };
        Some(std::mem::replace(&mut self.out, Vec::with_capacity(room)))
    }
}
