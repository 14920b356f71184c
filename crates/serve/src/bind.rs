//! An address becomes a listener. Options come in; a bound socket that knows its real address comes out, or an error
//! that says what to do. Nothing is accepted before `serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

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
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
}

impl Listener {
    /// Takes the address. To be called within a tokio runtime.
    pub fn bind(options: BindOptions) -> Result<Listener, BindError> {
        let wanted = SocketAddr::new(options.address, options.port);
        let (socket, address) =
            listen(wanted, options.limits.socket_buffer).map_err(|source| BindError::new(wanted, source))?;
        Ok(Listener {
            socket,
            address,
            tls: options.tls,
            client_ca: options.client_ca,
            limits: Arc::new(options.limits),
            counters: Arc::default(),
        })
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

fn listen(wanted: SocketAddr, socket_buffer: u32) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if wanted.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart need not wait until the last connections' ports are forgotten. On Windows this would mean that two
    // processes may share a port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // Both are inherited by accepted connections. Keep-alive finds HTTP/1.1 watchers that lost power.
    socket.set_keepalive(true)?;
    socket.set_send_buffer_size(socket_buffer)?;
    socket.bind(wanted)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
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
