//! Who has which address and port. In: the services in the store. Out: what others have taken. Read anew each time, but
//! a service that did not change is not parsed twice; nothing is kept that the services themselves do not say.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::Deserialize;

use konverge_core::Status;
use konverge_store::{Entry, Range, Revision, Store};

/// The addresses and ports of each service, as of its revision.
#[derive(Debug, Default)]
pub(crate) struct Addresses(HashMap<Arc<str>, (Revision, Held)>);

/// What one service has.
#[derive(Clone, Debug, Default)]
struct Held {
    addresses: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

/// What services have.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub addresses: HashSet<Ipv4Addr>,
    pub ports: HashSet<u16>,
}

impl Addresses {
    /// What all services but that of `key` have now.
    pub(super) fn taken(&mut self, store: &dyn Store, prefix: &str, key: &str) -> Result<Taken, Status> {
        let page = store.range(Range { prefix, ..Range::default() }).map_err(Status::internal)?;
        let mut known = HashMap::with_capacity(page.entries.len());
        let mut taken = Taken::default();
        for entry in page.entries {
            let (_, held) = match self.0.remove(&entry.key) {
                Some((revision, held)) if revision == entry.revision => (revision, held),
                _ => (entry.revision, read(&entry)),
            };
            if &*entry.key != key {
                taken.addresses.extend(&held.addresses);
                taken.ports.extend(&held.ports);
            }
            known.insert(entry.key, (entry.revision, held));
        }
        self.0 = known;
        Ok(taken)
    }
}

fn read(entry: &Entry) -> Held {
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
    // What does not read has nothing that could be given away twice: types are checked before they are kept.
    let Spec { cluster_ip, cluster_ips, ports, health_check_node_port } =
        serde_json::from_slice::<Service>(&entry.value).unwrap_or_default().spec;
    let addresses = cluster_ips.iter().chain([&cluster_ip]).filter_map(|text| text.parse().ok()).collect();
    let ports = ports.iter().map(|port| port.node_port).chain([health_check_node_port]).filter(|port| *port != 0);
    Held { addresses, ports: ports.collect() }
}
