//! Resident memory: of a server without objects, with some, and with many. Out: sizes, and what one more object costs in
//! relation to its JSON.

use std::time::Duration;

use super::load::{self, Until};
use crate::anchor;
use crate::child::{Server, Storage, Subject, Transport};
use crate::http;
use crate::process::Memory;
use crate::report::{Figure, Figures};
use crate::void::Void;
use crate::widget;

/// How long a server is left alone before it is looked at.
const SETTLE: Duration = Duration::from_secs(1);
const CLIENTS: usize = 16;

/// Loads a server to each of `loads` and looks at it.
pub async fn measure(subject: &Subject, loads: [usize; 2]) -> Result<Figures, Void> {
    let mut figures = Figures::default();
    let server = subject.start(Storage::Memory, Transport::Plain).await?;
    let idle = settled(&server).await?;
    figures.add(size("idle, after one /readyz", idle).anchored(anchor::IDLE_MB).aiming(15.0));
    drop(server);

    let server = subject.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    let mut seen = Vec::new();
    let mut first = 0;
    for count in loads {
        let created = load::create(&server, CLIENTS, first, Until::Number(count)).await?;
        figures.disturbed(&created.spent);
        first += created.count;
        let memory = settled(&server).await?;
        let figure = size(&format!("with {first} widgets"), memory);
        figures.add(if count == 10_000 { figure.anchored(anchor::LOADED_10K_MB) } else { figure });
        seen.push((first, memory.rss));
    }
    let json = server.endpoint.once(&http::get(&widget::path(0)), 200).await?.len();
    if let [(few, small), (many, large)] = seen[..] {
        let slope = large.saturating_sub(small) as f64 / (many - few) as f64;
        let note = format!("slope from {few} to {many}");
        figures.add(Figure::cost("for each widget", slope, "B").anchored(anchor::BYTES_PER_OBJECT).noting(note));
        let note = format!("a widget is {json} B of JSON");
        figures.add(Figure::cost("in relation to its JSON", slope / json as f64, "x").aiming(1.3).noting(note));
    }
    // Last, for the list itself takes memory.
    load::check_count(&server, first).await?;
    Ok(figures)
}

async fn settled(server: &Server) -> Result<Memory, Void> {
    tokio::time::sleep(SETTLE).await;
    server.process().memory()
}

fn size(what: &str, memory: Memory) -> Figure {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let [pss, anonymous, peak] = [memory.pss, memory.anonymous, memory.peak].map(mb);
    let note = format!("allocated {anonymous:.1} MB, PSS {pss:.1} MB, peak {peak:.1} MB");
    Figure::cost(what, mb(memory.rss), "MB").noting(note)
}
