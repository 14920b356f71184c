//! Three and five real processes on loopback, with their logs on disk and faulty links between them. Each says when it led, by a clock that
//! all of them share; clients read and write through all of them the whole time. In: a seed. Out: nothing, or which promise was broken: two
//! led at the same time, something acknowledged was lost, a read saw an old value, or nobody led when everything worked again.
//!
//! ```text
//! scenarios   what goes wrong, in an order that the seed decides      member    one process
//! cluster     starts, kills and asks processes                        link      what happens to bytes between them
//! clock       a library that has a process see another time           history   what clients saw
//! ```
//!
//! `KONVERGE_SEEDS=20 cargo test -p konverge-raft --test processes` runs more of them, `KONVERGE_SEED=17` one, `KONVERGE_ELECTION_MS=350`
//! with this election timeout. `KONVERGE_KILLS=200` measures how long others take to take over, and nothing else.

#![allow(clippy::unwrap_used, reason = "it is a test, although it has a `main` of its own")]

mod clock;
mod cluster;
#[allow(dead_code, reason = "its own tests run with those of the library")]
#[path = "../../src/simulation/history.rs"]
mod history;
mod link;
mod member;
mod scenarios;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("member") => member::run(&args[2..]),
        // What `cargo test` asks for before it filters.
        Some("--list") => println!("processes: test"),
        _ => scenarios::run(),
    }
}
