//! The IPAddress objects of services: one for each cluster IP, with the service as its parent. In: the record of a service before
//! and after a write. Out: what is written in the same commit. So there is never a service without its IPAddress, unless somebody
//! deletes that; the next start of the server creates it again.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};

use konverge_store::{Commit, CommitError, Condition, Range, Write as StoreWrite};

use super::allocated::read_record;
use crate::behaviour::Assigns;
use crate::resource::Resource;
use crate::server::Server;
use crate::{meta, record};

/// How many objects the start of the server creates in one commit.
const BATCH: usize = 500;

/// What a commit of a service does to IPAddress objects.
#[derive(Default)]
pub(crate) struct IpAddressChanges {
    pub conditions: Vec<Condition>,
    pub writes: Vec<StoreWrite>,
}

impl IpAddressChanges {
    /// The changes that go with a service: an object for each address that it gets, and none for those that it gives back.
    /// Nothing for other kinds.
    pub(crate) fn of(
        server: &Server,
        resource: &Resource,
        key: &str,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Self {
        let mut changes = Self::default();
        if resource.behaviour.assigns != Some(Assigns::Service) {
            return changes;
        }
        let (namespace, name) = resource.identity(key);
        let service = Parent { namespace: namespace.unwrap_or_default(), name };
        let ip_addresses = self::resource(server);
        let had = before.map(read_record).unwrap_or_default().addresses;
        let has = after.map(read_record).unwrap_or_default().addresses;
        for address in has.difference(&had) {
            let key: Arc<str> = ip_addresses.key(None, &address.to_string()).into();
            // If somebody else has created it meanwhile, another address is chosen.
            changes.conditions.push(Condition::Absent(key.clone()));
            changes.writes.push(StoreWrite::Put(key, service.ip_address(server, &ip_addresses, *address)));
        }
        for address in had.difference(&has) {
            let key: Arc<str> = ip_addresses.key(None, &address.to_string()).into();
            if service.owns(server, &key) {
                changes.writes.push(StoreWrite::Delete(key));
            }
        }
        changes
    }
}

/// Creates the IPAddress objects that services in the store lack, at the start of the server.
pub(crate) async fn create_missing(server: &Server) -> Result<(), CommitError> {
    let services = server.registry.find("", "v1", "services").expect("services are built in");
    let ip_addresses = resource(server);
    let Ok(page) = server.store.range(Range { prefix: &services.prefix(None), ..Range::default() }) else {
        return Ok(());
    };
    let (mut missing, mut seen) = (Vec::new(), HashSet::new());
    for entry in &page.entries {
        let (namespace, name) = services.identity(&entry.key);
        let service = Parent { namespace: namespace.unwrap_or_default(), name };
        for address in read_record(&entry.value).addresses {
            let key: Arc<str> = ip_addresses.key(None, &address.to_string()).into();
            if seen.insert(address) && matches!(server.store.get(&key, None), Ok(None)) {
                missing.push(StoreWrite::Put(key, service.ip_address(server, &ip_addresses, address)));
            }
        }
    }
    for writes in missing.chunks(BATCH) {
        server.store.commit(Commit { conditions: Vec::new(), writes: writes.to_vec() }).await?;
    }
    Ok(())
}

pub(super) fn resource(server: &Server) -> Arc<Resource> {
    server.registry.find("networking.k8s.io", "v1", "ipaddresses").expect("IPAddresses are built in")
}

/// The service that an IPAddress is for.
struct Parent<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Parent<'_> {
    fn ip_address(&self, server: &Server, resource: &Resource, address: Ipv4Addr) -> bytes::Bytes {
        let mut object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {
                "name": address.to_string(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": {"resource": "services", "namespace": self.namespace, "name": self.name}},
        });
        meta::initialize(&mut object, resource, &*server.env);
        record::encode(&object)
    }

    /// Whether the IPAddress under this key is for this service.
    fn owns(&self, server: &Server, key: &str) -> bool {
        let Ok(Some(entry)) = server.store.get(key, None) else { return false };
        let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let parent = &object["spec"]["parentRef"];
        let group = parent["group"].as_str().unwrap_or_default();
        group.is_empty()
            && parent["resource"] == "services"
            && parent["namespace"] == self.namespace
            && parent["name"] == self.name
    }
}
