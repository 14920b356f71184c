//! The time from the start of the process until it responds. Out: wall and CPU time over many starts of new servers.

use crate::baseline;
use crate::child::{ServerProgram, Storage, Transport};
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::meter::Meter;
use crate::process::Process;
use crate::report::{Figure, Figures};

/// Starts servers one after the other, with each storage.
pub(super) async fn measure(program: &ServerProgram, starts: usize) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    for storage in [Storage::Memory, Storage::Disk] {
        let (mut ready, mut answered, mut cpu) = (Latencies::default(), Latencies::default(), Latencies::default());
        let meter = Meter::start(Process::own())?;
        for _ in 0..starts {
            let started = program.start(storage, Transport::Plain).await?.started;
            ready.record(started.ready);
            answered.record(started.answered);
            cpu.record(started.cpu);
        }
        figures.disturbed(&meter.stop()?);
        let class = storage.durability();
        let figure = |what: &str, times: &Latencies| {
            let note = format!("{starts} runs: {:.1} to {:.1}", times.millis(0.0), times.millis(1.0));
            Figure::cost(format!("{what}, {class}"), times.millis(0.5), "ms").with_note(note)
        };
        figures.add(figure("exec to ready line", &ready).with_baseline(baseline::READY_MS).with_aim(50.0));
        figures.add(figure("exec to first /readyz", &answered).with_baseline(baseline::READY_MS));
        figures.add(figure("CPU to ready", &cpu).with_baseline(baseline::READY_CPU_MS));
    }
    Ok(figures)
}
