//! The server behind a real socket, on a port of the system's choice. Connections can be cut as a network would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use konverge_apiserver::ApiServer;

/// A listener; it closes with its owner.
pub(crate) struct Network {
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
    connections: Connections,
}

type Connections = Arc<Mutex<Vec<JoinHandle<()>>>>;

impl Network {
    pub(crate) async fn listen(server: ApiServer) -> Self {
        Self::listen_at(server, ([127, 0, 0, 1], 0).into()).await
    }

    pub(crate) async fn listen_at(server: ApiServer, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        let opened = connections.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = TowerToHyperService::new(server.clone());
                let serving = tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // How a connection ends is the client's to judge.
                    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
                });
                opened.lock().unwrap().push(serving);
            }
        });
        Self { address, accepting, connections }
    }

    /// Ends every connection in the middle of whatever it carries.
    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}
