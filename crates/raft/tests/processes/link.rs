//! Links between processes. Each member is reached at an address of ours, from where its bytes go on to where it listens; who sends them is
//! found out from the table of sockets. In: which links hold bytes back, in which direction, and how slow all of them are. Out: bytes, late
//! or not yet: as with TCP, what was held back arrives when the link works again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Where members listen; others reach them at 127.0.0.1.
pub(crate) const BEHIND: &str = "127.0.0.2";

pub(crate) struct Links {
    shared: Arc<Mutex<Shared>>,
    pub addresses: Vec<SocketAddr>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Shared {
    /// From, to.
    held: BTreeSet<(usize, usize)>,
    delay: Duration,
    /// Of each member.
    processes: BTreeMap<usize, u32>,
}

impl Links {
    pub(crate) fn new(count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let listener = |_| runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let listeners: Vec<TcpListener> = (0..count).map(listener).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        for (to, listener) in listeners.into_iter().enumerate() {
            let shared = shared.clone();
            runtime.spawn(async move {
                while let Ok((stream, from)) = listener.accept().await {
                    let port = listener.local_addr().unwrap().port();
                    tokio::spawn(connection(shared.clone(), stream, from, to, port));
                }
            });
        }
        Self { shared, addresses, _runtime: runtime }
    }

    pub(crate) fn belongs(&self, member: usize, process: u32) {
        self.shared.lock().unwrap().processes.insert(member, process);
    }

    /// Holds back what goes from one to the other.
    pub(crate) fn hold(&self, from: usize, to: usize) {
        self.shared.lock().unwrap().held.insert((from, to));
    }

    pub(crate) fn slow_down(&self, delay: Duration) {
        self.shared.lock().unwrap().delay = delay;
    }

    pub(crate) fn heal(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.held.clear();
        shared.delay = Duration::ZERO;
    }
}

async fn connection(shared: Arc<Mutex<Shared>>, asking: TcpStream, from: SocketAddr, to: usize, port: u16) {
    let processes = shared.lock().unwrap().processes.clone();
    // It may be gone already.
    let Some(from) = owner(from, &processes) else { return };
    // A connection needs both directions.
    pass(&shared, from, to).await;
    pass(&shared, to, from).await;
    let Ok(answering) = TcpStream::connect((BEHIND, port)).await else { return };
    let (ask_read, ask_write) = asking.into_split();
    let (answer_read, answer_write) = answering.into_split();
    tokio::spawn(pump(shared.clone(), ask_read, answer_write, from, to));
    let _ = pump(shared, answer_read, ask_write, to, from).await;
}

async fn pump(
    shared: Arc<Mutex<Shared>>,
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    from: usize,
    to: usize,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = read.read(&mut bytes).await?;
        pass(&shared, from, to).await;
        if count == 0 {
            return write.shutdown().await;
        }
        let delay = shared.lock().unwrap().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        write.write_all(&bytes[..count]).await?;
    }
}

/// Waits until the link lets something pass.
async fn pass(shared: &Mutex<Shared>, from: usize, to: usize) {
    while shared.lock().unwrap().held.contains(&(from, to)) {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Which member's process has the socket with this local address.
fn owner(address: SocketAddr, processes: &BTreeMap<usize, u32>) -> Option<usize> {
    let SocketAddr::V4(address) = address else { return None };
    // As the kernel writes it: the bytes of the address in the order of the machine, then the port.
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inode =
        row.filter(|row| row.get(1) == Some(&wanted.as_str())).find_map(|row| row.get(9).map(|s| s.to_string()))?;
    let socket = format!("socket:[{inode}]");
    let has = |process: u32| -> bool {
        let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        let target = |file: io::Result<std::fs::DirEntry>| std::fs::read_link(file.ok()?.path()).ok();
        files.filter_map(target).any(|target| target.to_str() == Some(&socket))
    };
    processes.iter().find(|(_, process)| has(**process)).map(|(member, _)| *member)
}
