//! Bad clients against a real listener, with short limits. Each subject is a table of attacks; while they run, good
//! clients are served. Nothing is timed: a test waits for what must happen, and fails if it does not within `SOON`.

mod bind;
mod certificates;
mod client_certificates;
mod clients;
mod full;
mod gone;
mod http2;
mod never_reads;
mod service;
mod slow;
mod stop;
mod stop_signals;
mod tls;
mod upgrade;
mod websocket;
