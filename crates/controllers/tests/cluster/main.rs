//! The control plane against the API server of this project, in one process: what a user of the cluster sees.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

mod autoscalers;
mod budgets;
mod certificates;
mod collecting;
mod cronjobs;
mod daemons;
mod endpoints;
mod guards;
mod idle;
mod jobs;
mod lifecycle;
mod namespaces;
mod quotas;
mod rollouts;
mod stage;
mod stateful;
mod storage;
