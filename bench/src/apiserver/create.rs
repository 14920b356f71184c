//! Creates by clients that keep their connections. Out: rate, CPU for each, latencies; in memory, and on disk
//! with the fsync times of that disk beside them.

use std::time::Duration;

use super::load::{self, Until};
use crate::anchor;
use crate::child::{Storage, Subject, Transport};
use crate::machine;
use crate::report::{Figure, Figures};
use crate::void::Void;

/// What is measured: where objects are kept, how clients come, and how many.
const RUNS: [(Storage, Transport, &[usize]); 3] = [
    (Storage::Memory, Transport::Plain, &[1, 16, 64]),
    (Storage::Memory, Transport::Tls, &[16]),
    (Storage::Disk, Transport::Plain, &[1, 16, 64]),
];

/// Creates for `time` with each number of clients.
pub async fn measure(subject: &Subject, time: Duration) -> Result<Figures, Void> {
    let mut figures = Figures::default();
    for (storage, transport, numbers) in RUNS {
        if storage == Storage::Disk {
            let fsync = machine::fsync(&subject.disk, super::FSYNC_PROBES)?;
            figures.add(Figure::cost("fsync of 4 KiB, p50", fsync.millis(0.5), "ms").noting(fsync.summary()));
        }
        let server = subject.start_with_widgets(storage, transport).await?;
        let mut there = 0;
        for &clients in numbers {
            let created = load::create(&server, clients, there, Until::Elapsed(time)).await?;
            there += created.count;
            load::check_count(&server, there).await?;
            add(&mut figures, storage, transport, clients, &created);
        }
    }
    Ok(figures)
}

fn add(figures: &mut Figures, storage: Storage, transport: Transport, clients: usize, created: &load::Created) {
    let load::Created { count, latencies, spent } = created;
    figures.disturbed(spent);
    let tls = if transport == Transport::Tls { " over TLS" } else { "" };
    let plural = if clients == 1 { "" } else { "s" };
    let who = format!("{}{tls}, {clients} client{plural}", storage.durability());
    let cpu = Figure::cost(format!("CPU, {who}"), spent.server_each(*count), "µs").aiming(150.0);
    let note = format!("client {:.0} µs; {count} creates", spent.client_each(*count));
    let anchor = if clients == 1 { anchor::CREATE_CPU_ONE_US } else { anchor::CREATE_CPU_US };
    figures.add(cpu.anchored(anchor).noting(note));
    let rate = Figure::rate(format!("creates/s, {who}"), spent.rate(*count), "/s").noting(latencies.summary());
    let known = anchor::CREATE_RATE.iter().find(|(known, _)| *known == clients);
    figures.add(match (storage, known) {
        (Storage::Disk, Some((64, anchor))) => rate.anchored(*anchor).aiming(6000.0),
        (Storage::Disk, Some((_, anchor))) => rate.anchored(*anchor),
        _ => rate,
    });
    if storage == Storage::Disk && clients == 1 {
        let p50 = Figure::cost(format!("latency p50, {who}"), latencies.millis(0.5), "ms");
        figures.add(p50.anchored(anchor::CREATE_P50_MS).noting("aim: p50 of fsync and at most 0.3 ms"));
    }
}
