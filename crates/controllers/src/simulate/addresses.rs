//! Addresses of pods on a network that is not there. In: a pod's uid. Out: an address no other pod has. Never gives the same
//! twice while a pod has it, also not after a restart: what pods have already is read from the cache.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use konverge_core::LabelSelector;
use konverge_runtime::Cache;

/// Pods are in 10.244.0.0/14.
const FIRST: u32 = u32::from_be_bytes([10, 244, 0, 0]);
const MANY: u32 = 1 << 18;

/// Who has which address.
#[derive(Default)]
pub(super) struct Addresses {
    /// By uid.
    given: HashMap<String, u32>,
    taken: HashMap<u32, String>,
    next: u32,
    has_learnt: bool,
}

impl Addresses {
    /// The address of a pod; it keeps it as long as it lives.
    pub fn of(&mut self, uid: &str, pods: &Cache) -> String {
        if !self.has_learnt {
            self.has_learnt = true;
            for pod in pods.list(None, &LabelSelector::default()) {
                let ip = pod.pointer("/status/podIP").and_then(|ip| serde_json::from_str::<Ipv4Addr>(ip).ok());
                if let Some(ip) = ip {
                    self.give(pod.uid(), u32::from(ip));
                }
            }
        }
        let address = match self.given.get(uid) {
            Some(address) => *address,
            None => {
                let free = self.free();
                self.give(uid, free);
                free
            }
        };
        Ipv4Addr::from(address).to_string()
    }

    /// A pod is gone, and its address is free.
    pub fn release(&mut self, uid: &str) {
        if let Some(address) = self.given.remove(uid) {
            self.taken.remove(&address);
        }
    }

    fn give(&mut self, uid: &str, address: u32) {
        self.given.insert(uid.to_owned(), address);
        self.taken.insert(address, uid.to_owned());
    }

    /// The next address nobody has; the first and the last of every 256 look odd to people. If all are taken they repeat.
    fn free(&mut self) -> u32 {
        for _ in 0..MANY {
            self.next = (self.next + 1) % MANY;
            let address = FIRST + self.next;
            if !matches!(address & 255, 0 | 255) && !self.taken.contains_key(&address) {
                break;
            }
        }
        FIRST + self.next
    }
}
