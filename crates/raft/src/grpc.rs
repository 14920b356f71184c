//! Messages over gRPC. `client` asks, `server` answers, `tls` is whom both believe. In and out: the bytes of `wire`.

mod client;
mod codec;
mod server;
mod tls;

pub(crate) use client::GrpcTransport;
pub(crate) use server::{ENDS_WITHIN, GrpcServer};
pub(crate) use tls::TlsFiles;

/// The path of the only method.
const PATH: &str = "/konverge.raft.v1.Raft/Call";

/// The largest message: a batch of entries, one entry of the largest value, and what surrounds them; or a piece of a snapshot.
const MAX_MESSAGE: usize = 8 << 20;
