//! A Kubernetes API server in one process.

mod resource;

pub use resource::{Column, Resource, ResourceSchema, Subresource, Verb, Verbs};
