//! More connections than there is room for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::Limits;
use tokio::io::AsyncWriteExt;

use crate::clients::{connect, good_client, read_answer, until};
use crate::service::serve;

const GET: &[u8] = b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn who_comes_too_late_waits() {
    let (server, _) = serve(Limits { connections: 10, ..Limits::default() });
    let counters = server.counters();
    let mut first = Vec::new();
    for _ in 0..10 {
        let mut stream = connect(server.local_addr()).await;
        stream.write_all(GET).await.expect("a request");
        assert!(read_answer(&mut stream).await.ends_with("ok"));
        first.push(stream);
    }
    let mut late = connect(server.local_addr()).await;
    late.write_all(GET).await.expect("a request");
    until("the limit is noticed", || counters.full.load(Ordering::Relaxed) == 1).await;
    assert_eq!(counters.open.load(Ordering::Relaxed), 10);
    assert_eq!(counters.accepted.load(Ordering::Relaxed), 10);
    // Those inside are still served, and one that leaves makes room.
    first[3].write_all(GET).await.expect("a request");
    assert!(read_answer(&mut first[3]).await.ends_with("ok"));
    drop(first.pop());
    assert!(read_answer(&mut late).await.ends_with("ok"));
}

#[tokio::test]
async fn slow_clients_make_room_by_being_cut() {
    let (server, _) = serve(Limits { connections: 50, header: Duration::from_millis(200), ..Limits::default() });
    let mut slow = Vec::new();
    for _ in 0..200 {
        slow.push(connect(server.local_addr()).await);
    }
    // Behind four times what fits.
    good_client(server.local_addr()).await;
    let counters = server.counters();
    drop(slow);
    until("all gone", || counters.open.load(Ordering::Relaxed) == 0).await;
}
