//! Kubernetes objects against OpenAPI schemas. Pure: no I/O, no clock, no server.
//!
//! ```text
//!  published table ─┐
//!                   ├─▶ Arena ─▶ prune · default · validate · apply · strategic merge
//!  a CRD's schema  ─┘
//! ```
//!
//! One [`Arena`] of types serves every question asked about an object. Built-in kinds and custom
//! resources differ only in where their types come from. This crate never knows which server asks.

mod arena;

pub use arena::{Arena, Field, ListKind, Node, Patch, Scalar, Shape, TypeId};
