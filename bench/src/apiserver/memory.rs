//! Resident memory of a server without objects, with few, and with many. Out: sizes, and the memory of one object compared to
//! its JSON.

use std::time::Duration;

use super::load::{self, Until};
use crate::baseline;
use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::http;
use crate::invalid_run::InvalidRun;
use crate::process::Memory;
use crate::report::{Figure, Figures};
use crate::widget;

/// How long to wait before memory is measured.
const SETTLE: Duration = Duration::from_secs(1);
const CLIENTS: usize = 16;

/// Measures a server with each of these numbers of objects.
pub(super) async fn measure(program: &ServerProgram, loads: [usize; 2]) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let server = program.start(Storage::Memory, Transport::Plain).await?;
    let idle = settled(&server).await?;
    figures.add(size("idle, after one /readyz", idle).with_baseline(baseline::IDLE_MB).with_aim(15.0));
    drop(server);

    let server = program.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    let mut seen = Vec::new();
    let mut first = 0;
    for count in loads {
        let created = load::create(&server, CLIENTS, first, Until::Number(count)).await?;
        figures.disturbed(&created.spent);
        first += created.count;
        let memory = settled(&server).await?;
        let figure = size(&format!("with {first} widgets"), memory);
        figures.add(if count == 10_000 { figure.with_baseline(baseline::LOADED_10K_MB) } else { figure });
        seen.push((first, memory.rss));
    }
    let json = server.endpoint.once(&http::get(&widget::path(0)), 200).await?.len();
    if let [(few, small), (many, large)] = seen[..] {
        let slope = large.saturating_sub(small) as f64 / (many - few) as f64;
        let note = format!("slope from {few} to {many}");
        figures
            .add(Figure::cost("for each widget", slope, "B").with_baseline(baseline::BYTES_PER_OBJECT).with_note(note));
        let note = format!("a widget is {json} B of JSON");
        figures.add(Figure::cost("in relation to its JSON", slope / json as f64, "x").with_aim(1.3).with_note(note));
    }
    // The last step, because the list itself takes memory.
    load::check_count(&server, first).await?;
    Ok(figures)
}

async fn settled(server: &Server) -> Result<Memory, InvalidRun> {
    tokio::time::sleep(SETTLE).await;
    server.process().memory()
}

fn size(what: &str, memory: Memory) -> Figure {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let [pss, anonymous, peak] = [memory.pss, memory.anonymous, memory.peak].map(mb);
    let note = format!("allocated {anonymous:.1} MB, PSS {pss:.1} MB, peak {peak:.1} MB");
    Figure::cost(what, mb(memory.rss), "MB").with_note(note)
}
