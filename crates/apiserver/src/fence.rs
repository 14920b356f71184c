//! Writes that are begun in a term of leader election. In: the header that names a Lease, the number of a term and its holder. Out: a
//! condition of the commit, or a refusal. The Lease is checked in the same commit as the write, so a leader that was paused, or whose
//! request was in the network for too long, changes nothing after another one has taken over. kube-apiserver has no such check; who sends no
//! such header is not concerned.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use konverge_core::Status;
use konverge_store::Condition;

use crate::context::RequestContext;
use crate::record;
use crate::server::Server;

/// `NAMESPACE/LEASE/TERM/HOLDER`
static TERM: HeaderName = HeaderName::from_static("konverge-term");

/// The term of a request, as it was sent.
pub(crate) fn of_request(headers: &HeaderMap) -> Option<Arc<str>> {
    headers.get(&TERM).map(|term| String::from_utf8_lossy(term.as_bytes()).into())
}

/// What has to be true when the request is committed: the Lease is as it is now, and names the term of the request. Nothing for a request
/// without a term. The Lease may be renewed before the commit; then the write is tried again, and this is asked again.
pub(crate) fn conditions(server: &Server, context: &RequestContext) -> Result<Option<Condition>, Status> {
    let Some(term) = &context.term else { return Ok(None) };
    let mut parts = term.splitn(4, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let (Some(namespace), Some(name), Some(number), Some(holder)) = (next(), next(), next(), next()) else {
        return Err(Status::bad_request(format!(
            "the header {TERM} is {term:?}; it takes NAMESPACE/LEASE/TERM/HOLDER"
        )));
    };
    let leases = server.registry.find("coordination.k8s.io", "v1", "leases").ok_or_else(|| over(term))?;
    let key = leases.key(Some(namespace), name);
    let entry = server.store.get(&key, None).map_err(Status::internal)?.ok_or_else(|| over(term))?;
    let lease = record::decode(&entry);
    let spec = &lease["spec"];
    let is_same_term = number.parse::<i64>().is_ok_and(|number| spec["leaseTransitions"] == number);
    let is_current = is_same_term && spec["holderIdentity"] == holder;
    match is_current {
        true => Ok(Some(Condition::Unchanged(entry.key, entry.revision))),
        false => Err(over(term)),
    }
}

/// Who holds the Lease now is for those who may read it.
fn over(term: &str) -> Status {
    let why = format!("the term {term} is over: its Lease does not name this holder in this term");
    Status::failure(409, "Conflict", why)
}
