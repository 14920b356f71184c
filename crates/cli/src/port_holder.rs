//! Which process listens on a port, for a message. A best effort: it asks Linux' `/proc`, sees only what this user may
//! see, and says nothing where it does not know.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// `process 4711 (python3)`
pub(crate) fn holder(address: SocketAddr) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening(&table, address.port()))
        .collect();
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        holds(&process.path(), &inodes).then(|| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        })
    })
}

/// The inodes of the sockets that listen on this port, of a table like `/proc/net/tcp`.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 9 && row[1].ends_with(&port) && row[3] == LISTEN).map(|row| row[9].into()).collect()
}

fn holds(process: &Path, inodes: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    files.flatten().any(|file| {
        let Ok(target) = fs::read_link(file.path()) else { return false };
        let Some(target) = target.to_str() else { return false };
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|held| held == inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:0BB8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 200 1 0 20 4 30 10 -1
   2: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 300 1 0 20 4 30 10 -1
   3: short";

    #[test]
    fn only_listeners_count() {
        for (port, expect) in [(6443, &["100"][..]), (3000, &["300"]), (80, &[])] {
            assert_eq!(listening(TABLE, port), expect, "{port}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let found = holder(listener.local_addr().expect("an address")).expect("someone");
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
    }
}
