//! The control plane against the API server of this project, in one process: what a user of the cluster sees.

mod collecting;
mod daemons;
mod life;
mod namespaces;
mod rollouts;
mod stage;
mod stateful;
mod storage;
