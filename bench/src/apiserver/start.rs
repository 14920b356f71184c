//! From the start of the process to a server that answers. Out: wall and CPU over many starts, each of a new server.

use crate::anchor;
use crate::child::{Storage, Subject, Transport};
use crate::latency::Latencies;
use crate::meter::Meter;
use crate::process::Process;
use crate::report::{Figure, Figures};
use crate::void::Void;

/// Starts so many servers one after the other, with each kind of storage.
pub async fn measure(subject: &Subject, starts: usize) -> Result<Figures, Void> {
    let mut figures = Figures::default();
    for storage in [Storage::Memory, Storage::Disk] {
        let (mut ready, mut answered, mut cpu) = (Latencies::default(), Latencies::default(), Latencies::default());
        let meter = Meter::start(Process::own())?;
        for _ in 0..starts {
            let started = subject.start(storage, Transport::Plain).await?.started;
            ready.record(started.ready);
            answered.record(started.answered);
            cpu.record(started.cpu);
        }
        figures.disturbed(&meter.stop()?);
        let class = storage.durability();
        let figure = |what: &str, times: &Latencies| {
            let note = format!("{starts} runs: {:.1} to {:.1}", times.millis(0.0), times.millis(1.0));
            Figure::cost(format!("{what}, {class}"), times.millis(0.5), "ms").noting(note)
        };
        figures.add(figure("exec to ready line", &ready).anchored(anchor::READY_MS).aiming(50.0));
        figures.add(figure("exec to first /readyz", &answered).anchored(anchor::READY_MS));
        figures.add(figure("CPU to ready", &cpu).anchored(anchor::READY_CPU_MS));
    }
    Ok(figures)
}
