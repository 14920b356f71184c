//! Where it listens, and what it says when it cannot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use konverge_serve::{BindError, BindOptions, Limits, Listener};

use crate::clients::good_client;
use crate::service::{serve, serve_with};

#[tokio::test]
async fn a_free_port_is_picked_and_told() {
    let (server, _) = serve(Limits::default());
    assert_ne!(server.local_addr().port(), 0);
    assert_eq!(server.url(), format!("http://{}", server.local_addr()));
    good_client(server.local_addr()).await;
}

#[tokio::test]
async fn ipv6_has_brackets() {
    // Not every machine has it.
    if TcpListener::bind("[::1]:0").is_ok() {
        let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let (server, _) = serve_with(BindOptions { address, ..BindOptions::default() });
        assert!(server.url().starts_with("http://[::1]:"));
        good_client(server.local_addr()).await;
    }
}

#[tokio::test]
async fn errors_name_the_address_and_the_way_out() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("an address").port();
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    for (address, port, expect) in [
        (IpAddr::V4(Ipv4Addr::LOCALHOST), taken, format!("127.0.0.1:{taken}: port {taken} is already in use; stop")),
        (elsewhere, 0, "192.0.2.1:0: this machine has no address 192.0.2.1".to_string()),
    ] {
        let error: BindError =
            Listener::bind(BindOptions { address, port, ..BindOptions::default() }).expect_err("refused");
        assert!(error.to_string().contains(&expect), "{error}");
        assert_eq!((error.address().ip(), error.address().port()), (address, port));
    }
}

#[tokio::test]
async fn a_port_is_free_again_at_once() {
    let (server, _) = serve(Limits::default());
    let address = server.local_addr();
    good_client(address).await;
    server.stop(std::time::Duration::ZERO).await;
    let (server, _) = serve_with(BindOptions { port: address.port(), ..BindOptions::default() });
    good_client(server.local_addr()).await;
}
