//! Kubernetes objects against OpenAPI schemas. Pure: no I/O, no clock, no server.
//!
//! ```text
//!  published table ─┐
//!                   ├─▶ Arena ─▶ prune · default · validate · apply · strategic merge
//!  a CRD's schema  ─┘
//! ```
//!
//! Every operation on an object walks the object beside its type in one [`Arena`]. Built-in kinds and custom resources
//! differ only in where their types come from. This crate depends on no server.

mod arena;
mod budget;
mod checks;
mod format;
mod go_format;
mod items_by_key;
mod path;
mod pattern;

mod crd_diff;
mod json_schema_props;
mod openapi;
mod structural;

mod builtin_types;
mod canonical;
mod decode;
mod default;
mod embedded;
mod protobuf;
mod prune;
mod validate;
mod validate_builtin;

mod apply;
mod field_set;
mod managed_fields;
mod merge_patch;
mod strategic;

pub use apply::{
    ApplyError, Changes, Conflict, Conflicts, FieldManager, check_applied, compare, empty_object, extract_fields,
    merge, remove_fields, to_field_set,
};
pub use arena::{Arena, Field, ListKind, Node, OBJECT_META, Patch, Scalar, Shape, TypeId};
pub use budget::{Budget, OverBudget, size};
pub use builtin_types::kubernetes;
pub use canonical::{EmptyLists, canonicalize};
pub use checks::{Bound, Checks, Clause};
pub use crd_diff::{CrdChange, crd_diff};
pub use decode::{DecodeError, canonical_quantity, check_restorable, check_types, quantity};
pub use default::default;
pub use embedded::{EmbeddedResource, visit_embedded};
pub use field_set::{FieldSet, FieldSetPath, FieldsV1Error, PathElement};
pub use format::Format;
pub use go_format::{go_plain, go_type_name, quote as go_quote};
pub use items_by_key::ItemsByKey;
pub use managed_fields::{ManagedEntry, ManagedFields, ManagedFieldsError, Operation};
pub use merge_patch::merge_patch;
pub use openapi::{CompileError, compile};
pub use pattern::{Pattern, translate_pattern};
pub use protobuf::{ProtobufEncoder, ProtobufError, ProtobufKind, ProtobufObject, protobuf_envelope};
pub use prune::{NullRules, prune};
pub use strategic::{StrategicError, strategic_merge_patch};
pub use structural::{check_schema, unknown_formats};
pub use validate::{validate, validate_update};
pub use validate_builtin::{check_lists, check_required};
