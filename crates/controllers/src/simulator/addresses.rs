//! Addresses of simulated pods. In: a pod's uid. Out: an address that no other pod has. After a restart of the simulator, the
//! addresses in use are read from the statuses in the cache.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use konverge_core::LabelSelector;
use konverge_runtime::Cache;

/// The pod network is 10.244.0.0/14.
const FIRST: u32 = u32::from_be_bytes([10, 244, 0, 0]);
const COUNT: u32 = 1 << 18;

/// Which pod has which address.
#[derive(Default)]
pub(super) struct Addresses {
    /// Address by uid.
    by_uid: HashMap<String, u32>,
    taken: HashMap<u32, String>,
    next: u32,
    is_loaded: bool,
}

impl Addresses {
    /// The address of a pod. The pod keeps it until [`Addresses::release`].
    pub(super) fn of(&mut self, uid: &str, pods: &Cache) -> String {
        if !self.is_loaded {
            self.is_loaded = true;
            for pod in pods.list(None, &LabelSelector::default()) {
                let ip = pod.pointer("/status/podIP").and_then(|ip| serde_json::from_str::<Ipv4Addr>(ip).ok());
                if let Some(ip) = ip {
                    self.assign(pod.uid(), u32::from(ip));
                }
            }
        }
        let address = match self.by_uid.get(uid) {
            Some(address) => *address,
            None => {
                let free = self.free();
                self.assign(uid, free);
                free
            }
        };
        Ipv4Addr::from(address).to_string()
    }

    /// Frees the address of a deleted pod.
    pub(super) fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_uid.remove(uid) {
            self.taken.remove(&address);
        }
    }

    fn assign(&mut self, uid: &str, address: u32) {
        self.by_uid.insert(uid.to_owned(), address);
        self.taken.insert(address, uid.to_owned());
    }

    /// The next free address. The first and the last of every 256 are skipped, because they look like network and broadcast
    /// addresses. If all are taken, addresses repeat.
    fn free(&mut self) -> u32 {
        for _ in 0..COUNT {
            self.next = (self.next + 1) % COUNT;
            let address = FIRST + self.next;
            if !matches!(address & 255, 0 | 255) && !self.taken.contains_key(&address) {
                break;
            }
        }
        FIRST + self.next
    }
}
