//! What a member keeps: its log with its vote (`log` in memory, `disk` in a file), and the state with its snapshot (`machine`), which are
//! judged by openraft's own conformance suite; and the newest changes of the state for whoever watches (`changes`).

mod changes;
#[cfg(feature = "persist")]
mod disk;
mod log;
mod machine;
#[cfg(test)]
mod tests;

use std::error::Error;

use openraft::{ErrorSubject, ErrorVerb, StorageError, StorageIOError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::member::MemberId;

pub(crate) use changes::Found;
#[cfg(feature = "persist")]
pub(crate) use disk::{Disk, DiskLog};
pub(crate) use log::MemoryLog;
pub(crate) use machine::Machine;
#[cfg(feature = "persist")]
pub(crate) use machine::SnapshotStore;

pub(crate) type Entry = openraft::Entry<crate::member::Types>;
pub(crate) type StorageResult<T> = Result<T, StorageError<MemberId>>;

/// How many bytes of entries are sent at once; at least one entry is. Messages have room for a value of the largest size besides.
pub(crate) const BATCH_BYTES: usize = 1 << 20;

/// An error of the storage, as openraft has it. It stops the member: what is stored is not known any more.
fn failed(verb: ErrorVerb, error: &(impl Error + 'static)) -> StorageError<MemberId> {
    StorageIOError::new(ErrorSubject::Store, verb, openraft::AnyError::new(error)).into()
}

fn encode(value: &impl Serialize) -> StorageResult<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| failed(ErrorVerb::Write, &error))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> StorageResult<T> {
    postcard::from_bytes(bytes).map_err(|error| failed(ErrorVerb::Read, &error))
}
