//! A TCP connection to a name that may have several addresses. In: a host and a port. Out: the first connection that is made. An
//! address that does not answer, such as one of IPv6 where only IPv4 is routed, costs a part of a second and not the minutes that a
//! system waits for it (RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;

/// How long an address may take until the next one is tried, too: Go's fallback delay.
const NEXT_AFTER: Duration = Duration::from_millis(300);

/// Connects to `host:port`.
pub(super) async fn dial(address: &str) -> io::Result<TcpStream> {
    race(interleaved(lookup_host(address).await?.collect()), TcpStream::connect).await
}

/// The addresses in an order in which both families come soon: the preferred family, which the resolver names first, and the other
/// one in turn.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == is_first);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [preferred.next(), others.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// The first connection that is made. The next address is tried when one fails, or has not answered for a while; those before it go
/// on. If none answers, the first error tells why. Whoever calls limits the time.
async fn race<S, F: Future<Output = io::Result<S>>>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<S> {
    let (mut left, mut running, mut failed) = (addresses.into_iter(), FuturesUnordered::new(), None);
    running.extend(left.next().map(&connect));
    let mut next_at = Instant::now() + NEXT_AFTER;
    loop {
        tokio::select! {
            biased;
            done = running.next(), if !running.is_empty() => match done {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => drop(failed.get_or_insert(error)),
                None => {}
            },
            () = tokio::time::sleep_until(next_at), if left.len() > 0 => {}
            // Nothing runs, and nothing is left.
            else => {
                let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
                return Err(failed.unwrap_or_else(nothing));
            }
        }
        running.extend(left.next().map(&connect));
        next_at = Instant::now() + NEXT_AFTER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn families_take_turns() {
        for (found, expect) in [
            (&[][..], &[][..]),
            (&["[::1]:1", "[::2]:1", "1.1.1.1:1"], &["[::1]:1", "1.1.1.1:1", "[::2]:1"]),
            (&["1.1.1.1:1", "[::1]:1", "[::2]:1"], &["1.1.1.1:1", "[::1]:1", "[::2]:1"]),
            (&["1.1.1.1:1", "2.2.2.2:1"], &["1.1.1.1:1", "2.2.2.2:1"]),
        ] {
            assert_eq!(interleaved(addresses(found)), addresses(expect), "{found:?}");
        }
    }

    /// Ports say what becomes of an address: 1 answers at once, 2 after 400 ms, 3 refuses, 4 is unreachable, 5 never answers.
    async fn connect(address: SocketAddr) -> io::Result<SocketAddr> {
        match address.port() {
            1 => Ok(address),
            2 => {
                tokio::time::sleep(Duration::from_millis(400)).await;
                Ok(address)
            }
            3 => Err(io::ErrorKind::ConnectionRefused.into()),
            4 => Err(io::ErrorKind::NetworkUnreachable.into()),
            _ => std::future::pending().await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_costs_little() {
        for (found, expect, millis) in [
            (&["[::1]:1"][..], Ok("[::1]:1"), 0),
            (&["[::1]:5", "1.1.1.1:1"], Ok("1.1.1.1:1"), 300),
            (&["[::1]:5", "[::2]:5", "[::3]:5", "1.1.1.1:1"], Ok("1.1.1.1:1"), 900),
            // One that fails does not cost the wait.
            (&["[::1]:4", "1.1.1.1:1"], Ok("1.1.1.1:1"), 0),
            // One that is slow may still be the first.
            (&["[::1]:2", "1.1.1.1:5"], Ok("[::1]:2"), 400),
            (&["[::1]:4", "1.1.1.1:3"], Err(io::ErrorKind::NetworkUnreachable), 0),
            (&[], Err(io::ErrorKind::InvalidInput), 0),
        ] {
            let begun = Instant::now();
            let connected = race(addresses(found), connect).await;
            let connected = connected.map(|address| address.to_string()).map_err(|error| error.kind());
            assert_eq!(connected.as_ref().map(String::as_str).map_err(|kind| *kind), expect, "{found:?}");
            assert_eq!(begun.elapsed().as_millis(), millis, "{found:?}");
        }
        let dead = tokio::time::timeout(Duration::from_secs(9), race(addresses(&["[::1]:5"]), connect)).await;
        assert!(dead.is_err(), "whoever calls limits the time");
    }
}
