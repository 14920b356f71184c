//! Objects as protobuf. In: a body with Kubernetes' envelope. Out: the JSON that kube-apiserver has of the object after it
//! decoded the same body. And the other way round, for answers. Go clients send built-in kinds this way and nothing else.
//!
//! ```text
//! body ─▶ ProtobufObject::read (envelope: apiVersion, kind, message) ─▶ decode (message by the table of fields) ─▶ JSON
//! JSON ─▶ tape (tokens, flat) ─▶ ProtobufEncoder (message by the same table, from its end to its start) ─▶ body
//! ```
//!
//! Numbers, names and Go types of all fields are data: the table that `cargo xtask codegen` derives. The decoder never
//! knows a kind. It copes with anything as input: work and output are paid for from the budget, nesting is limited,
//! and nothing is allocated for a length that a message only announces.

mod encode;
mod message;
mod scalar;
pub(crate) mod table;
mod tape;
mod wire;

use serde_json::Value;

use crate::budget::{Budget, OverBudget};
use message::Decoder;
use wire::{Reader, Wire, text};

pub use encode::{ProtobufEncoder, ProtobufKind, protobuf_envelope};

/// The first bytes of every body.
const PREFIX: [u8; 4] = *b"k8s\0";

/// An object in Kubernetes' protobuf envelope, whose message is not decoded yet.
///
/// ```
/// use konverge_schema::{Budget, ProtobufObject};
/// let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x07\x0a\x05\x0a\x03dev";
/// let object = ProtobufObject::read(body).unwrap();
/// assert_eq!((object.api_version.as_str(), object.kind.as_str()), ("v1", "Namespace"));
/// let decoded = object.decode(Budget::unlimited()).unwrap();
/// assert_eq!(decoded["metadata"]["name"], "dev");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufObject<'a> {
    /// `apps/v1`; empty if the envelope does not say it.
    pub api_version: String,
    /// `Deployment`; empty if the envelope does not say it.
    pub kind: String,
    message: &'a [u8],
}

/// Why a body or a message cannot be decoded. The texts are those of kube-apiserver where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The bytes are not what they should be.
    #[error("{0}")]
    Malformed(String),
    /// No built-in kind has this name.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// As the envelope has it.
        api_version: String,
        /// As the envelope has it.
        kind: String,
    },
    /// Decoding takes more than the request may use.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl<'a> ProtobufObject<'a> {
    /// Reads the envelope. The content type and encoding that an envelope can name are ignored, as kube-apiserver
    /// ignores them.
    pub fn read(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let malformed = |text: &str| Err(ProtobufError::Malformed(text.to_owned()));
        let envelope = match body.strip_prefix(&PREFIX) {
            _ if body.is_empty() => return malformed("empty data"),
            None => {
                return malformed(
                    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
                );
            }
            Some([]) => return malformed("empty body"),
            Some(envelope) => envelope,
        };
        let mut object = Self { api_version: String::new(), kind: String::new(), message: &[] };
        let mut fields = Reader::new(envelope, "Unknown");
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (1, Wire::Bytes(names)) => object.read_names(names)?,
                (2, Wire::Bytes(message)) => object.message = message,
                (3 | 4, Wire::Bytes(_)) => {}
                (1, wire) => return Err(wire.unexpected("TypeMeta")),
                (2, wire) => return Err(wire.unexpected("Raw")),
                (3, wire) => return Err(wire.unexpected("ContentEncoding")),
                (4, wire) => return Err(wire.unexpected("ContentType")),
                _ => {}
            }
        }
        Ok(object)
    }

    fn read_names(&mut self, names: &[u8]) -> Result<(), ProtobufError> {
        let mut fields = Reader::new(names, "TypeMeta");
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (1, Wire::Bytes(api_version)) => self.api_version = text(api_version),
                (2, Wire::Bytes(kind)) => self.kind = text(kind),
                (1, wire) => return Err(wire.unexpected("APIVersion")),
                (2, wire) => return Err(wire.unexpected("Kind")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Decodes the message as the kind that `api_version` and `kind` name. The object has both.
    ///
    /// Fields are what Go's JSON has after decoding: a plain field with `omitempty` is left out when it is empty, one
    /// without is there even if it was not sent, and a pointer is there if it was sent, whatever its value. Fields
    /// that the table does not know are skipped. Quantities stay as they were written; [`check_types`](crate::check_types) refuses
    /// those that cannot be read.
    pub fn decode(&self, budget: &Budget) -> Result<Value, ProtobufError> {
        let table = table::kubernetes();
        let Some(message) = table.kind(&self.api_version, &self.kind) else {
            let (api_version, kind) = (self.api_version.clone(), self.kind.clone());
            return Err(ProtobufError::UnknownKind { api_version, kind });
        };
        let mut object = Decoder::new(table, budget).object(message, self.message)?;
        object.insert("apiVersion".to_owned(), self.api_version.as_str().into());
        object.insert("kind".to_owned(), self.kind.as_str().into());
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
