//! Reading: the whole list, the list in pages, the list as a watch sends it, and one object. Out: wall, CPU for each object
//! and bytes. Every list is counted; all rounds of one way have to be equally long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::load::{self, Listed, Until};
use crate::anchor;
use crate::child::{Server, Storage, Subject, Transport};
use crate::http::{self, Connection};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::report::{Figure, Figures};
use crate::void::{Void, expect};
use crate::widget::{self, WIDGETS};

const PAGE: usize = 500;
const CLIENTS: usize = 16;

/// A way to list.
#[derive(Clone, Copy)]
enum Way {
    Whole,
    Pages,
    Watch,
}

/// Lists `count` widgets `rounds` times in each way, and gets single ones `gets` times.
pub async fn measure(subject: &Subject, count: usize, rounds: usize, gets: usize) -> Result<Figures, Void> {
    let mut figures = Figures::default();
    let server = subject.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    load::create(&server, CLIENTS, 0, Until::Number(count)).await?;
    for (way, name) in [(Way::Whole, "whole"), (Way::Pages, "limit=500"), (Way::Watch, "watch-list")] {
        add(&mut figures, way, name, count, list(&server, way, count, rounds).await?);
    }
    for (clients, name) in [(1, "1 client"), (CLIENTS, "16 clients")] {
        let (latencies, spent) = get(&server, count, gets, clients).await?;
        figures.disturbed(&spent);
        let note = format!("client {:.0} µs; {}", spent.client_each(gets), latencies.summary());
        figures.add(Figure::cost(format!("CPU to get one, {name}"), spent.server_each(gets), "µs").noting(note));
    }
    drop(server);
    let server = subject.start_with_widgets(Storage::Memory, Transport::Tls).await?;
    load::create(&server, CLIENTS, 0, Until::Number(count)).await?;
    add(&mut figures, Way::Whole, "whole over TLS", count, list(&server, Way::Whole, count, rounds).await?);
    Ok(figures)
}

/// How lists of one way went.
struct Lists {
    latencies: Latencies,
    /// The length of one.
    bytes: usize,
    spent: Spent,
}

fn add(figures: &mut Figures, way: Way, name: &str, count: usize, lists: Lists) {
    let Lists { latencies, bytes, spent } = lists;
    figures.disturbed(&spent);
    let rounds = latencies.len();
    let objects = count * rounds;
    let note = format!("client {:.2} µs; {count} objects, {rounds} rounds", spent.client_each(objects));
    let cpu = Figure::cost(format!("CPU for each object, {name}"), spent.server_each(objects), "µs");
    let wall = Figure::cost(format!("wall, {name}"), latencies.millis(0.5), "ms");
    let sent = format!("{:.1} MB, {} B for each; {}", bytes as f64 / 1e6, bytes / count, latencies.summary());
    figures.add(cpu.aiming(2.0).anchored(anchor::LIST_CPU_US).noting(note));
    figures.add(match way {
        Way::Whole => wall.aiming(40.0).anchored(anchor::LIST_MS).noting(sent),
        Way::Pages | Way::Watch => wall.noting(sent),
    });
}

async fn list(server: &Server, way: Way, count: usize, rounds: usize) -> Result<Lists, Void> {
    let mut latencies = Latencies::default();
    let mut lengths = Vec::new();
    // The first round is counted, object by object; the others have to be as long as it was.
    let mut connection = server.endpoint.connect().await?;
    let (listed, expected) = once(&mut connection, server, way).await?;
    expect("listed objects", count_of(way, &listed)?, count)?;
    let meter = Meter::start(server.process())?;
    for _ in 0..rounds {
        let begun = Instant::now();
        let (_, length) = once(&mut connection, server, way).await?;
        latencies.record(begun.elapsed());
        lengths.push(length);
    }
    let spent = meter.stop()?;
    expect("bytes of all lists", lengths.iter().sum(), expected * rounds)?;
    Ok(Lists { latencies, bytes: expected, spent })
}

/// One list, in pieces as they came, and its length.
async fn once(connection: &mut Connection, server: &Server, way: Way) -> Result<(Vec<Vec<u8>>, usize), Void> {
    let mut pieces = Vec::new();
    match way {
        Way::Whole => pieces.push(connection.call(&http::get(WIDGETS), 200).await?),
        Way::Pages => {
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
        Way::Watch => {
            // The watch goes on after the list, so its connection cannot be used again.
            let mut connection = server.endpoint.connect().await?;
            let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            let status = connection.open(&http::get(&format!("{WIDGETS}?{query}"))).await?;
            expect("status of the watch", status, 200)?;
            let mut events = Vec::new();
            while !ends_with_bookmark(&events) {
                let more = tokio::time::timeout(Duration::from_secs(30), connection.more(&mut events));
                if !more.await.map_err(|_| Void::new("the watch-list does not end"))?? {
                    return Err(Void::new("the watch ended before the list did"));
                }
            }
            pieces.push(events);
        }
    }
    let length = pieces.iter().map(Vec::len).sum();
    Ok((pieces, length))
}

fn count_of(way: Way, pieces: &[Vec<u8>]) -> Result<usize, Void> {
    let mut count = 0;
    for piece in pieces {
        count += match way {
            Way::Whole | Way::Pages => Listed::parse(piece)?.items.len(),
            Way::Watch => {
                let mut lines = serde_json::Deserializer::from_slice(piece).into_iter::<serde_json::Value>();
                let added = |line: Result<serde_json::Value, _>| line.is_ok_and(|event| event["type"] == "ADDED");
                lines.by_ref().map(added).filter(|added| *added).count()
            }
        };
    }
    Ok(count)
}

/// The token in a list's metadata, which comes before its items. Found without reading all of the list.
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

async fn get(server: &Server, count: usize, gets: usize, clients: usize) -> Result<(Latencies, Spent), Void> {
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
            Ok::<_, Void>(latencies)
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut latencies = Latencies::with_capacity(gets);
    for reader in readers {
        latencies.extend(reader.await.map_err(|error| Void::new(error.to_string()))??);
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
