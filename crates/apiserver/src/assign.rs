//! What the server gives objects that no writer can know: the addresses of services, the selectors of jobs, the classes
//! of pods. In: the object as it was and as it shall be, once it is settled whose fields are whose. Out: the object with
//! what it was given, which is nobody's. A row of the table of behaviour says which kind is given what.

mod addresses;
mod job;
mod pod;
mod service;

use serde_json::Value;

use konverge_core::Status;

use crate::behaviour::Assigns;
use crate::change::Write;
use crate::meta;
use crate::part::Part;
use crate::turns::Turn;

pub(crate) use addresses::Addresses;

/// Gives an object what it lacks. If this gives a turn, the object has to be committed in it.
pub(crate) async fn assign<'s>(
    write: &Write<'s>,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Option<Turn<'s>>, Status> {
    match (write.resource.behaviour.assigns, write.part) {
        (Some(Assigns::Pod), part) => pod::assign(part, old, new),
        (Some(Assigns::Job), Part::Main) => job::assign(old, new),
        (Some(Assigns::Service), Part::Main) => {
            if let Some(old) = old {
                service::keep(old, new);
                if old["spec"] == new["spec"] {
                    return Ok(None);
                }
            }
            let server = write.server;
            let turn = server.services.next().await;
            let mut held = server.addresses.lock();
            let key = write.resource.key(write.namespace, meta::text(new, "name"));
            let taken = held.taken(&*server.store, &write.resource.prefix(None), &key)?;
            service::assign(&taken, server.env.random(), old, new)
                .map_err(|refused| refused.status(|error| write.invalid(meta::text(new, "name"), &[error])))?;
            return Ok(Some(turn));
        }
        _ => {}
    }
    Ok(None)
}
