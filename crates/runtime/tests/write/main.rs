//! The last stages of an operator against an API server in the same process: what they send, and what they do when it
//! goes wrong.

mod apply;
mod cluster;
mod events;
mod finalizer;
mod gate;
mod refusal;
mod set;
mod status;
