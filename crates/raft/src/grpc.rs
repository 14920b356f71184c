//! Messages over gRPC. `client` asks, `server` answers, `tls` is whom both believe. In and out: the bytes of `wire`.

mod client;
mod codec;
mod refusals;
mod server;
mod tls;

pub(crate) use client::{GrpcTransport, ServerNames};
pub(crate) use server::{ENDS_WITHIN, GrpcServer};
pub use tls::MemberCertificates;
pub(crate) use tls::follow;

/// The path of the only method.
const PATH: &str = "/konverge.raft.v1.Raft/Call";

/// The largest message: a batch of entries, one entry of the largest value, and what surrounds them; or a piece of a snapshot.
const MAX_MESSAGE: usize = 8 << 20;
