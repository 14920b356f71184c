//! Creates by clients with kept-alive connections. Out: rate, CPU per create, latencies; in memory, and on disk together with
//! the time of an fsync on that disk.

use std::time::Duration;

use super::load::{self, Until};
use crate::baseline;
use crate::child::{ServerProgram, Storage, Transport};
use crate::invalid_run::InvalidRun;
use crate::machine;
use crate::report::{Figure, Figures};

/// The measurements: storage, transport, and numbers of clients.
const RUNS: [(Storage, Transport, &[usize]); 3] = [
    (Storage::Memory, Transport::Plain, &[1, 16, 64]),
    (Storage::Memory, Transport::Tls, &[16]),
    (Storage::Disk, Transport::Plain, &[1, 16, 64]),
];

/// Creates widgets for `time` with each number of clients.
pub(super) async fn measure(program: &ServerProgram, time: Duration) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    for (storage, transport, numbers) in RUNS {
        if storage == Storage::Disk {
            let fsync = machine::fsync(&program.disk, super::FSYNC_PROBES)?;
            figures.add(Figure::cost("fsync of 4 KiB, p50", fsync.millis(0.5), "ms").with_note(fsync.summary()));
        }
        let server = program.start_with_widgets(storage, transport).await?;
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
    let implementation = format!("{}{tls}, {clients} client{plural}", storage.durability());
    let cpu = Figure::cost(format!("CPU, {implementation}"), spent.server_each(*count), "µs").with_aim(150.0);
    let note = format!("client {:.0} µs; {count} creates", spent.client_each(*count));
    let baseline = if clients == 1 { baseline::CREATE_CPU_ONE_US } else { baseline::CREATE_CPU_US };
    figures.add(cpu.with_baseline(baseline).with_note(note));
    let rate =
        Figure::rate(format!("creates/s, {implementation}"), spent.rate(*count), "/s").with_note(latencies.summary());
    let known = baseline::CREATE_RATE.iter().find(|(known, _)| *known == clients);
    figures.add(match (storage, known) {
        (Storage::Disk, Some((64, baseline))) => rate.with_baseline(*baseline).with_aim(6000.0),
        (Storage::Disk, Some((_, baseline))) => rate.with_baseline(*baseline),
        _ => rate,
    });
    if storage == Storage::Disk && clients == 1 {
        let p50 = Figure::cost(format!("latency p50, {implementation}"), latencies.millis(0.5), "ms");
        figures.add(p50.with_baseline(baseline::CREATE_P50_MS).with_note("aim: p50 of fsync and at most 0.3 ms"));
    }
}
