//! Values that only the server can give: the addresses of services, the selectors of jobs, the QoS classes of pods, who asks
//! for a certificate, how often a template has changed and since when a volume is in its phase. In: the object before and after a write, with its managed fields. Out: the object with these values, which
//! have no field manager. The table of behaviour says which kinds get what.

mod allocated;
mod app_armor;
mod certificate_signing_request;
mod claim;
mod daemonset;
mod ip_address;
mod job;
mod pod;
mod ranges;
mod service;
mod volume;

use serde_json::Value;

use konverge_core::Status;

use crate::behaviour::Assigns;
use crate::env::rfc3339;
use crate::meta;
use crate::resource::Resource;
use crate::subresource::Subresource;
use crate::write::WriteRequest;

pub(crate) use allocated::{Allocated, Reservation};
pub(crate) use app_armor::profile_of as app_armor_profile_of;
pub(crate) use claim::complete as complete_claim;
pub(crate) use ip_address::{IpAddressChanges, create_missing as create_missing_ip_addresses};
pub(crate) use pod::qos_class;
pub use ranges::{ClusterIpRange, NodePortRange, RangeError, ServiceRanges};

/// Gives an object what it lacks. What a service gets is reserved: no other service gets the same while this is held, and the
/// object has to be committed under the lock of services meanwhile.
pub(crate) async fn assign<'s>(
    write: &WriteRequest<'s>,
    old: Option<&Value>,
    new: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Reservation<'s>>, Status> {
    match (write.resource.behaviour.assigns, write.subresource) {
        (Some(Assigns::Pod), _) => pod::assign(old, new, &rfc3339(write.server.env.now()), warnings),
        (Some(Assigns::Job), Subresource::Main) => job::assign(old, new),
        (Some(Assigns::Claim), Subresource::Main) => claim::assign(old, new),
        (Some(Assigns::DaemonSet), Subresource::Main) => daemonset::assign(old, new),
        (Some(Assigns::Volume), _) => volume::assign(old, new, &rfc3339(write.server.env.now())),
        (Some(Assigns::CertificateSigningRequest), _) => certificate_signing_request::assign(write, old, new),
        (Some(Assigns::Service), Subresource::Main) => {
            if let Some(old) = old {
                service::carry_over(old, new);
                if old["spec"] == new["spec"] {
                    return Ok(None);
                }
            }
            let server = write.server;
            // Whoever committed under this lock before is seen in the store.
            let _lock = server.service_lock.lock().await;
            let mut held = server.addresses.lock();
            let key = write.resource.key(write.namespace, meta::text(new, "name"));
            let addresses = ip_address::resource(server).prefix(None);
            let taken = held.taken(&*server.store, &write.resource.prefix(None), &addresses, &key)?;
            service::assign(&server.service_ranges, &taken, server.env.random(), old, new)
                .map_err(|refused| refused.status(|error| write.invalid(meta::text(new, "name"), &[error])))?;
            return Ok(Some(held.reserve(&server.addresses, old, new)));
        }
        _ => {}
    }
    Ok(None)
}

/// Gives a new object fields that its creator manages, although the server decides their values.
pub(crate) fn prepare(resource: &Resource, old: Option<&Value>, new: &mut Value) {
    if let (Some(Assigns::DaemonSet), None) = (resource.behaviour.assigns, old) {
        daemonset::assign(None, new);
    }
}

/// Gives an object what it gets without looking at others: a job its selector, a service what it had.
pub(crate) fn assign_alone(resource: &Resource, old: Option<&Value>, new: &mut Value) {
    match (resource.behaviour.assigns, old) {
        (Some(Assigns::Job), old) => job::assign(old, new),
        (Some(Assigns::Claim), old) => claim::assign(old, new),
        (Some(Assigns::Service), Some(old)) => service::carry_over(old, new),
        _ => {}
    }
}
