//! An address becomes a listener. Options come in; a bound socket that knows its real address comes out, or an error
//! that says what to do. Nothing is accepted before `serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket};

use crate::certificates::{Certificates, ClientCa};
use crate::counters::Counters;
use crate::limits::Limits;

/// Connections the kernel finishes for us while all slots are taken; Linux cuts this to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The address of the interface; loopback unless told.
    pub address: IpAddr,
    /// The port; 0 picks a free one.
    pub port: u16,
    /// Plain HTTP, HTTPS, or both.
    pub tls: Tls,
    /// Whose client certificates are believed. With none, clients are not asked for one.
    pub client_ca: Option<ClientCa>,
    /// What clients may take.
    pub limits: Limits,
}

impl Default for BindOptions {
    fn default() -> Self {
        BindOptions {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            tls: Tls::Off,
            client_ca: None,
            limits: Limits::default(),
        }
    }
}

/// Plain HTTP, HTTPS, or both.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// Plain HTTP.
    #[default]
    Off,
    /// HTTPS with these certificates.
    On(Certificates),
    /// Both on the same port: HTTPS with these certificates for clients that begin with a TLS handshake, and plain HTTP for
    /// all others. For addresses that only this machine reaches.
    Either(Certificates),
}

/// A socket that listens and accepts nothing yet: clients that connect wait.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Tls,
    pub(crate) client_ca: Option<ClientCa>,
    pub(crate) client_addresses: bool,
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
}

impl Listener {
    /// Takes the address. To be called within a tokio runtime.
    pub fn bind(options: BindOptions) -> Result<Listener, BindError> {
        let wanted = SocketAddr::new(options.address, options.port);
        let (socket, address) = listen(wanted, &options.limits).map_err(|source| BindError::new(wanted, source))?;
        Ok(Listener {
            socket,
            address,
            tls: options.tls,
            client_ca: options.client_ca,
            client_addresses: false,
            limits: Arc::new(options.limits),
            counters: Arc::default(),
        })
    }

    /// The same listener, whose requests carry the address of their client: an extension of the type `SocketAddr`.
    #[must_use]
    pub fn with_client_addresses(self) -> Self {
        Listener { client_addresses: true, ..self }
    }

    /// What it has seen, for a metrics page that is there before it serves; that of [`Server::counters`].
    ///
    /// [`Server::counters`]: crate::Server::counters
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The address it really has; the port is never 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:6443`, or `https://127.0.0.1:6443` if it speaks only that.
    pub fn url(&self) -> String {
        let scheme = match self.tls {
            Tls::Off | Tls::Either(_) => "http",
            Tls::On(_) => "https",
        };
        format!("{scheme}://{}", self.address)
    }
}

fn listen(wanted: SocketAddr, limits: &Limits) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if wanted.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart need not wait until the last connections' ports are forgotten. On Windows this would mean that two
    // processes may share a port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // `::` accepts IPv4 as well, whatever the system's default is.
    if wanted.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        SockRef::from(&socket).set_only_v6(false)?;
    }
    // All of these are inherited by accepted connections.
    socket.set_send_buffer_size(limits.socket_buffer)?;
    find_lost_peers(&SockRef::from(&socket), limits)?;
    socket.bind(wanted)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// How many probes of a silent connection may stay without an answer.
const PROBES: u32 = 3;

/// Has the system notice peers that lost power or their network, in the same time as the PINGs of HTTP/2: while a watch over
/// HTTP/1.1 has nothing to say, and while bytes that were sent are not acknowledged.
fn find_lost_peers(socket: &SockRef<'_>, limits: &Limits) -> io::Result<()> {
    // The system counts whole seconds here.
    let seconds = |time: Duration| time.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(seconds(limits.ping_after));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let keepalive = keepalive.with_interval(seconds(limits.ping_answer / PROBES)).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(limits.ping_after + limits.ping_answer))?;
    Ok(())
}

/// Why the address could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Someone else listens there.
    #[error(
        "cannot listen on {address}: port {} is already in use; stop the process that holds it, \
         or choose another port (0 picks a free one)", address.port()
    )]
    Taken {
        /// What was asked for.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// The user may not use this port.
    #[error("cannot listen on {address}: not allowed; ports below 1024 often need privileges, choose a higher one")]
    Forbidden {
        /// What was asked for.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// The machine has no such address.
    #[error("cannot listen on {address}: this machine has no address {}; 127.0.0.1 always works", address.ip())]
    NoSuchAddress {
        /// What was asked for.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// What was asked for.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
}

impl BindError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::Taken { address, source },
            io::ErrorKind::PermissionDenied => BindError::Forbidden { address, source },
            io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress { address, source },
            _ => BindError::Other { address, source },
        }
    }

    /// What was asked for.
    pub fn address(&self) -> SocketAddr {
        match self {
            BindError::Taken { address, .. }
            | BindError::Forbidden { address, .. }
            | BindError::NoSuchAddress { address, .. }
            | BindError::Other { address, .. } => *address,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lost_peers_are_found() {
        let (listener, address) = listen("127.0.0.1:0".parse().unwrap(), &Limits::default()).unwrap();
        let (_client, accepted) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(45)));
    }
}
