//! Reads: the whole list, the list in pages, the list as a watch streams it, and single objects. Out: wall time, CPU per object,
//! and bytes. The objects of the first list are counted; all lists of one method must have the same length.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::load::{self, Listed, Until};
use crate::baseline;
use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::http::{self, Connection};
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::report::{Figure, Figures};
use crate::widget::{self, WIDGETS};

const PAGE: usize = 500;
const CLIENTS: usize = 16;

/// A method to list.
#[derive(Clone, Copy)]
enum Method {
    Whole,
    Pages,
    Watch,
}

/// Lists `count` widgets `rounds` times by each method, and gets single widgets `gets` times.
pub(super) async fn measure(
    program: &ServerProgram,
    count: usize,
    rounds: usize,
    gets: usize,
) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let server = program.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    load::create(&server, CLIENTS, 0, Until::Number(count)).await?;
    for (method, name) in [(Method::Whole, "whole"), (Method::Pages, "limit=500"), (Method::Watch, "watch-list")] {
        add(&mut figures, method, name, count, list(&server, method, count, rounds).await?);
    }
    for (clients, name) in [(1, "1 client"), (CLIENTS, "16 clients")] {
        let (latencies, spent) = get(&server, count, gets, clients).await?;
        figures.disturbed(&spent);
        let note = format!("client {:.0} µs; {}", spent.client_each(gets), latencies.summary());
        figures.add(Figure::cost(format!("CPU to get one, {name}"), spent.server_each(gets), "µs").with_note(note));
    }
    drop(server);
    let server = program.start_with_widgets(Storage::Memory, Transport::Tls).await?;
    load::create(&server, CLIENTS, 0, Until::Number(count)).await?;
    add(&mut figures, Method::Whole, "whole over TLS", count, list(&server, Method::Whole, count, rounds).await?);
    Ok(figures)
}

/// The measurements of one method.
struct Lists {
    latencies: Latencies,
    /// The length of one list.
    bytes: usize,
    spent: Spent,
}

fn add(figures: &mut Figures, method: Method, name: &str, count: usize, lists: Lists) {
    let Lists { latencies, bytes, spent } = lists;
    figures.disturbed(&spent);
    let rounds = latencies.len();
    let objects = count * rounds;
    let note = format!("client {:.2} µs; {count} objects, {rounds} rounds", spent.client_each(objects));
    let cpu = Figure::cost(format!("CPU for each object, {name}"), spent.server_each(objects), "µs");
    let wall = Figure::cost(format!("wall, {name}"), latencies.millis(0.5), "ms");
    let sent = format!("{:.1} MB, {} B for each; {}", bytes as f64 / 1e6, bytes / count, latencies.summary());
    figures.add(cpu.with_aim(2.0).with_baseline(baseline::LIST_CPU_US).with_note(note));
    figures.add(match method {
        Method::Whole => wall.with_aim(40.0).with_baseline(baseline::LIST_MS).with_note(sent),
        Method::Pages | Method::Watch => wall.with_note(sent),
    });
}

async fn list(server: &Server, method: Method, count: usize, rounds: usize) -> Result<Lists, InvalidRun> {
    let mut latencies = Latencies::default();
    let mut lengths = Vec::new();
    // The objects of the first list are counted; the others must have the same length.
    let mut connection = server.endpoint.connect().await?;
    let (listed, expected) = once(&mut connection, server, method).await?;
    expect("listed objects", count_of(method, &listed)?, count)?;
    let meter = Meter::start(server.process())?;
    for _ in 0..rounds {
        let begun = Instant::now();
        let (_, length) = once(&mut connection, server, method).await?;
        latencies.record(begun.elapsed());
        lengths.push(length);
    }
    let spent = meter.stop()?;
    expect("bytes of all lists", lengths.iter().sum(), expected * rounds)?;
    Ok(Lists { latencies, bytes: expected, spent })
}

/// Reads one list. Returns its bodies and their total length.
async fn once(
    connection: &mut Connection,
    server: &Server,
    method: Method,
) -> Result<(Vec<Vec<u8>>, usize), InvalidRun> {
    let mut pieces = Vec::new();
    match method {
        Method::Whole => pieces.push(connection.call(&http::get(WIDGETS), 200).await?),
        Method::Pages => {
            let mut path = format!("{WIDGETS}?limit={PAGE}");
            loop {
                let body = connection.call(&http::get(&path), 200).await?;
                let token = continue_token(&body);
                pieces.push(body);
                match token {
                    Some(token) => path = format!("{WIDGETS}?limit={PAGE}&continue={token}"),
                    None => break,
                }
            }
        }
        Method::Watch => {
            // The watch goes on after the list, so its connection cannot be used again.
            let mut connection = server.endpoint.connect().await?;
            let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            let status = connection.open(&http::get(&format!("{WIDGETS}?{query}"))).await?;
            expect("status of the watch", status, 200)?;
            let mut events = Vec::new();
            while !ends_with_bookmark(&events) {
                let more = tokio::time::timeout(Duration::from_secs(30), connection.more(&mut events));
                if !more.await.map_err(|_| InvalidRun::new("the watch-list does not end"))?? {
                    return Err(InvalidRun::new("the watch ended before the list did"));
                }
            }
            pieces.push(events);
        }
    }
    let length = pieces.iter().map(Vec::len).sum();
    Ok((pieces, length))
}

fn count_of(method: Method, pieces: &[Vec<u8>]) -> Result<usize, InvalidRun> {
    let mut count = 0;
    for piece in pieces {
        count += match method {
            Method::Whole | Method::Pages => Listed::parse(piece)?.items.len(),
            Method::Watch => {
                let mut lines = serde_json::Deserializer::from_slice(piece).into_iter::<serde_json::Value>();
                let added = |line: Result<serde_json::Value, _>| line.is_ok_and(|event| event["type"] == "ADDED");
                lines.by_ref().map(added).filter(|added| *added).count()
            }
        };
    }
    Ok(count)
}

/// The continue token in the metadata of a list, which comes before its items. Found without parsing the list.
fn continue_token(body: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&body[..body.len().min(1024)]);
    let (head, _) = head.split_once("\"items\"")?;
    let (_, rest) = head.split_once("\"continue\":\"")?;
    let (token, _) = rest.split_once('"')?;
    (!token.is_empty()).then(|| token.replace('/', "%2F"))
}

fn ends_with_bookmark(events: &[u8]) -> bool {
    let tail = &events[events.len().saturating_sub(400)..];
    events.ends_with(b"\n") && String::from_utf8_lossy(tail).contains("k8s.io/initial-events-end")
}

async fn get(server: &Server, count: usize, gets: usize, clients: usize) -> Result<(Latencies, Spent), InvalidRun> {
    let requests: Arc<[Vec<u8>]> = (0..100).map(|at| http::get(&widget::path(at * count / 100))).collect();
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(server.endpoint.connect().await?);
    }
    let each = gets / clients;
    let meter = Meter::start(server.process())?;
    let readers = connections.into_iter().map(|mut connection| {
        let requests = requests.clone();
        tokio::spawn(async move {
            let mut latencies = Latencies::with_capacity(each);
            for request in requests.iter().cycle().take(each) {
                let begun = Instant::now();
                connection.call(request, 200).await?;
                latencies.record(begun.elapsed());
            }
            Ok::<_, InvalidRun>(latencies)
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut latencies = Latencies::with_capacity(gets);
    for reader in readers {
        latencies.extend(reader.await.map_err(|error| InvalidRun::new(error.to_string()))??);
    }
    Ok((latencies, meter.stop()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_the_metadata_only() {
        for (body, expect) in [
            (r#"{"metadata":{"resourceVersion":"3","continue":"3/default/a"},"items":[]}"#, Some("3%2Fdefault%2Fa")),
            (r#"{"metadata":{"resourceVersion":"3","continue":""},"items":[]}"#, None),
            (r#"{"metadata":{"resourceVersion":"3"},"items":[{"continue":"x"}]}"#, None),
        ] {
            assert_eq!(continue_token(body.as_bytes()).as_deref(), expect, "{body}");
        }
    }
}
