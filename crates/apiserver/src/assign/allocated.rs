//! The addresses and ports of all services. In: the services in the store, read once and then followed change by change. Out:
//! what other services have. An IPAddress object that somebody else has created takes its address, too.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use konverge_core::{Status, from_stored, from_stored_value};
use konverge_store::{Entry, Range, ReadError, Store, Watch};

/// How many changes are processed at once.
const BATCH: usize = 1024;

/// The addresses and ports of all services.
#[derive(Default)]
pub(crate) struct Allocated {
    /// The changes since the last time; none before the first.
    changes: Option<Watch>,
    services: HashMap<Arc<str>, Held>,
    /// How many services have an address or a port: one, unless something else wrote to the store.
    addresses: HashMap<Ipv4Addr, usize>,
    ports: HashMap<u16, usize>,
    /// What writes have chosen that are not committed yet.
    reserved: Vec<(u64, Held)>,
    reservations: u64,
}

/// What a service was given in a write that is not committed yet. Nobody else gets it until this is dropped.
pub(crate) struct Reservation<'a> {
    all: &'a Mutex<Allocated>,
    number: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.all.lock().reserved.retain(|(number, _)| *number != self.number);
    }
}

/// What one service has.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub addresses: BTreeSet<Ipv4Addr>,
    pub ports: BTreeSet<u16>,
}

/// What all services but one have.
pub(super) struct Taken<'a> {
    all: &'a Allocated,
    own: Option<&'a Held>,
    /// The store, and the prefix of the IPAddress objects in it.
    objects: Option<(&'a dyn Store, &'a str)>,
}

impl Taken<'_> {
    pub(super) fn has_address(&self, address: &Ipv4Addr) -> bool {
        let own = self.own.is_some_and(|own| own.addresses.contains(address));
        let reserved = self.all.reserved.iter().any(|(_, held)| held.addresses.contains(address));
        let taken = reserved || self.all.addresses.get(address).is_some_and(|count| *count > usize::from(own));
        taken || !own && self.has_object(address)
    }

    fn has_object(&self, address: &Ipv4Addr) -> bool {
        let Some((store, prefix)) = self.objects else { return false };
        !matches!(store.get(&format!("{prefix}{address}"), None), Ok(None))
    }

    pub(super) fn has_port(&self, port: &u16) -> bool {
        let own = self.own.is_some_and(|own| own.ports.contains(port));
        let reserved = self.all.reserved.iter().any(|(_, held)| held.ports.contains(port));
        reserved || self.all.ports.get(port).is_some_and(|count| *count > usize::from(own))
    }
}

impl Allocated {
    /// What all services but that of `key` have now.
    pub(super) fn taken<'a>(
        &'a mut self,
        store: &'a dyn Store,
        services: &str,
        addresses: &'a str,
        key: &str,
    ) -> Result<Taken<'a>, Status> {
        self.catch_up(store, services).map_err(Status::internal)?;
        Ok(Taken { objects: Some((store, addresses)), ..self.but(key) })
    }

    pub(super) fn but(&self, key: &str) -> Taken<'_> {
        Taken { all: self, own: self.services.get(key), objects: None }
    }

    /// Reserves what a service has now and did not have before. `all` is the lock that this is behind.
    pub(super) fn reserve<'a>(&mut self, all: &'a Mutex<Self>, old: Option<&Value>, new: &Value) -> Reservation<'a> {
        let before = old.map(held_by).unwrap_or_default();
        let mut held = held_by(new);
        held.addresses.retain(|address| !before.addresses.contains(address));
        held.ports.retain(|port| !before.ports.contains(port));
        self.reservations += 1;
        self.reserved.push((self.reservations, held));
        Reservation { all, number: self.reservations }
    }

    fn catch_up(&mut self, store: &dyn Store, prefix: &str) -> Result<(), ReadError> {
        loop {
            let Some(changes) = &mut self.changes else {
                self.load(store, prefix)?;
                continue;
            };
            match changes.take(BATCH) {
                Ok(batch) if batch.is_empty() => return Ok(()),
                Ok(batch) => batch.into_iter().for_each(|change| match (change.before, change.after) {
                    (_, Some(after)) => self.set(&after.key, read(&after)),
                    (Some(before), None) => self.set(&before.key, Held::default()),
                    (None, None) => {}
                }),
                // The changes were compacted: all services are read again.
                Err(ReadError::Compacted { .. }) => self.changes = None,
                Err(error) => return Err(error),
            }
        }
    }

    fn load(&mut self, store: &dyn Store, prefix: &str) -> Result<(), ReadError> {
        let page = store.range(Range { prefix, ..Range::default() })?;
        let (reserved, reservations) = (std::mem::take(&mut self.reserved), self.reservations);
        *self = Self { reserved, reservations, ..Self::default() };
        page.entries.iter().for_each(|entry| self.set(&entry.key, read(entry)));
        self.changes = match store.watch(prefix, page.revision) {
            Ok(changes) => Some(changes),
            // More was written and compacted in between: all services are read again.
            Err(ReadError::Compacted { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Notes what a service has now.
    pub(super) fn set(&mut self, key: &Arc<str>, held: Held) {
        let before = self.services.remove(key).unwrap_or_default();
        count(&mut self.addresses, &before.addresses, &held.addresses);
        count(&mut self.ports, &before.ports, &held.ports);
        if !held.addresses.is_empty() || !held.ports.is_empty() {
            self.services.insert(key.clone(), held);
        }
    }
}

/// Subtracts from the counts what a service had, and adds what it has.
fn count<T: Copy + Eq + Hash>(counts: &mut HashMap<T, usize>, before: &BTreeSet<T>, after: &BTreeSet<T>) {
    for one in before {
        match counts.get_mut(one) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(one)),
        }
    }
    for one in after {
        *counts.entry(*one).or_default() += 1;
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    ports: Vec<Port>,
    health_check_node_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    node_port: u16,
}

fn read(entry: &Entry) -> Held {
    read_record(&entry.value)
}

/// Types are checked before an object is stored, so a record that cannot be read has no address.
pub(super) fn read_record(record: &[u8]) -> Held {
    held(from_stored(record).unwrap_or_default())
}

fn held_by(service: &Value) -> Held {
    held(from_stored_value(service).unwrap_or_default())
}

fn held(Service { spec }: Service) -> Held {
    let Spec { cluster_ip, cluster_ips, ports, health_check_node_port } = spec;
    let addresses = cluster_ips.iter().chain([&cluster_ip]).filter_map(|text| text.parse().ok()).collect();
    let ports = ports.iter().map(|port| port.node_port).chain([health_check_node_port]).filter(|port| *port != 0);
    Held { addresses, ports: ports.collect() }
}

#[cfg(test)]
mod tests {
    use konverge_store::{Commit, Memory, Revision};

    use super::*;

    const SERVICES: &str = "/services/";
    const ADDRESSES: &str = "/ipaddresses/";

    fn key(name: &str) -> String {
        format!("{SERVICES}{name}")
    }

    async fn put(store: &Memory, name: &str, address: &str, port: u16) -> Revision {
        let service = serde_json::json!({
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"nodePort": port}, {"nodePort": port}]},
        });
        store.commit(Commit::default().put(key(name), service.to_string())).await.unwrap()
    }

    /// Whether others than `name` have these.
    fn check(addresses: &mut Allocated, store: &Memory, name: &str, address: &str, port: u16, expect: (bool, bool)) {
        let taken = addresses.taken(store, SERVICES, ADDRESSES, &key(name)).unwrap();
        assert_eq!((taken.has_address(&address.parse().unwrap()), taken.has_port(&port)), expect, "{name} {address}");
    }

    #[tokio::test]
    async fn what_services_have_is_followed() {
        let store = Memory::default();
        let mut addresses = Allocated::default();
        put(&store, "a", "10.96.1.1", 30001).await;
        check(&mut addresses, &store, "b", "10.96.1.1", 30001, (true, true));
        check(&mut addresses, &store, "a", "10.96.1.1", 30001, (false, false));
        // Others come, and change what they have.
        put(&store, "b", "10.96.1.2", 30002).await;
        check(&mut addresses, &store, "a", "10.96.1.2", 30002, (true, true));
        put(&store, "b", "10.96.1.2", 30003).await;
        check(&mut addresses, &store, "a", "10.96.1.2", 30002, (true, false));
        // What two have is free only when both are gone.
        put(&store, "c", "10.96.1.1", 30004).await;
        check(&mut addresses, &store, "a", "10.96.1.1", 30001, (true, false));
        store.commit(Commit::default().delete(key("a"))).await.unwrap();
        check(&mut addresses, &store, "d", "10.96.1.1", 30001, (true, false));
        let newest = store.commit(Commit::default().delete(key("c"))).await.unwrap();
        // What happened was forgotten before it was looked at.
        store.compact(newest);
        check(&mut addresses, &store, "d", "10.96.1.1", 30004, (false, false));
        check(&mut addresses, &store, "d", "10.96.1.2", 30003, (true, true));
        put(&store, "d", "10.96.1.5", 30005).await;
        check(&mut addresses, &store, "b", "10.96.1.5", 30005, (true, true));
        // An IPAddress takes its address, except from the service that has it.
        store.commit(Commit::default().put(format!("{ADDRESSES}10.96.1.6"), "{}")).await.unwrap();
        check(&mut addresses, &store, "b", "10.96.1.6", 30006, (true, false));
        store.commit(Commit::default().put(format!("{ADDRESSES}10.96.1.5"), "{}")).await.unwrap();
        check(&mut addresses, &store, "d", "10.96.1.5", 30005, (false, false));
    }
}
