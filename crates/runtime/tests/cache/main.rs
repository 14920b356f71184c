//! Watch, cache and trigger against the API server in process, with faults in between.

mod faults;
mod figures;
mod kinds;
mod relist;
mod sharing;
mod stale;
mod trouble;
