//! The engine of an operator: from a change in the cluster to the writes that answer it.
//!
//! ```text
//! connect    a configuration → a client that notices when its server is gone
//! client     what every request passes on its way: gates for writes, metrics, the pause a busy server asks for
//! gate       who may write; term_gate: only the leader
//! json_text  fields of JSON text, without decoding it
//! request    what a request does to which object
//! watch      API → changes: list, watch, resume, relist
//! cache      changes → what is there, with indexes; knows its own writes
//! trigger    a change → whom it wakes, and why
//! queue      wakeups → the key that is due next
//! worker     a due key → a reconcile → what comes next; the boundary around user code
//! reconciler what a user writes; meter: who is told about the work; history: why the newest reconciles ran
//! retry      the retry policy: when a failed object is tried again, and how loud the failure is
//! liveness   whether watches, workers and the recorder still do their work
//! write      apply, patch, delete: only when something would change
//! status     conditions and the rest, written only if different
//! recorder   Kubernetes Events: aggregated, limited
//! controller names all of them in order: the spine
//! ```
//!
//! This is an implementation crate: operators depend on `konverge`, which exports what they need. The items here are public
//! for the other crates of this repository and follow no promise of stability.
//!
//! This crate never knows the API server of this project: whatever it does, it does over the Kubernetes protocol. It needs
//! no Rust type for a kind: [`Target`], [`Caches`], [`Trigger`], [`Writer`] and [`Recorder`] go by `ApiResource` and
//! [`Object`], and only [`CacheOf`] decodes.

mod controller;

mod client;
mod connect;
mod gate;
pub mod json_text;
mod object;
mod request;
mod term_gate;
mod watch;

mod cache;

mod trigger;

mod queue;
mod token_bucket;

mod reconciler;
mod retry;

mod history;
mod liveness;
mod meter;
mod ownership;
mod worker;

#[cfg(test)]
mod captured_log;

mod error;
mod failure_log;
mod recorder;
mod status;
mod write;

pub use cache::{
    Cache, CacheFigures, CacheOf, Caches, Change, DecodeCache, LookUp, NotCaughtUp, Origin, ShardPart, Subscription,
};
pub use client::{ClientLayers, RequestMeter};
pub use connect::connect;
pub use controller::{Controller, ControllerOptions};
pub use error::{Act, Error, FieldConflict, FieldErrors, Missing, Result, Rule, TimedOut, WriteError};
pub use failure_log::FailureLog;
pub use gate::{WriteGate, WriteOutcome, WritePass, WriteRefused};
pub use history::{History, ReconcileRecord};
pub use konverge_leadership::{
    HeldShard, Leadership, LeaseElection, LeaseSpread, LeaseTiming, Seat, ShardElection, ShardSeats, Shards,
    ShardsStatus, Standing, Term,
};
pub use liveness::Liveness;
pub use meter::{Meter, WorkerMeter};
pub use object::{DecodeError, Mode, Object, OwnerReference, ParseError};
pub use queue::{
    Added, Ageing, Backoff, Causes, Job, Priority, Queue, QueueOptions, QueueStats, Rate, Requeue, Settled, Wakeup,
};
pub use reconciler::{Action, BoxFuture, Reconciler, Run, Verdict, panic_message};
pub use recorder::{
    Clock, Event, EventLog, EventReader, HistoryFilter, RecordedEvent, Recorder, RecorderCounts, RecorderOptions,
    RecorderTask, Severity, Subject,
};
pub use request::{RequestInfo, Verb};
pub use retry::{Retry, retry};
pub use status::{
    Condition, ConditionStatus, Conditions, DEGRADED, OtherFields, PROGRESSING, READY, StatusUpdate, is_true,
};
pub use term_gate::TermGate;
pub use trigger::{Cause, ObjectFilter, Predicate, Trigger, What};
pub use watch::{Lists, NotServed, Target, WatchSettings, WatchState, explain_not_served};
pub use write::{
    Adopt, Applied, ApplyOptions, Child, Conflicts, Deleted, FieldManager, Finalized, Member, OWNER_ANNOTATION,
    OWNER_LABEL, Owner, OwnerCheck, Patch, SET_LABEL, SetReport, SetStep, Writer, WriterOptions,
};
