//! Each Ticket gets a number, and none is given twice: the next one is in the state that the instances of the operator replicate. It is
//! a library, so that tests can run it.

use konverge::prelude::*;
use konverge::{RaftElection, Replicated, ReplicatedError};

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Ticket", namespaced, status = "TicketStatus")]
pub struct TicketSpec {
    /// Who it is for.
    pub guest: String,
}

/// What the operator says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TicketStatus {
    /// Its number.
    pub number: Option<u64>,
}

/// The key with the next number.
const NEXT: &str = "tickets/next";

/// Takes the next number. Two who take one at the same time get two: whoever comes second finds another version, and tries again.
async fn take_number(replicated: &Replicated) -> Result<u64> {
    loop {
        let found = replicated.get(NEXT).await?;
        let text = found.as_ref().map(|found| String::from_utf8_lossy(&found.value).into_owned());
        let next: u64 = text.as_deref().unwrap_or("1").parse()?;
        let version = found.map(|found| found.version);
        match replicated.compare_and_put(NEXT, version, (next + 1).to_string()).await {
            Ok(_) => return Ok(next),
            Err(ReplicatedError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives the Ticket a number, once.
pub async fn reconcile(ctx: Context<Ticket>) -> Result<Action> {
    let number = ctx.resource().status.as_ref().and_then(|status| status.number);
    if number.is_none() {
        let number = take_number(ctx.replicated()?).await?;
        ctx.set_status(TicketStatus { number: Some(number) }).await?;
    }
    Ok(Action::await_change())
}

/// The operator, for `main` and for tests.
pub fn operator(raft: impl Into<RaftElection>) -> Operator<Ticket> {
    Operator::<Ticket>::new()
        .configure(|settings| settings.name = "tickets".into())
        .reconcile(reconcile)
        .with_leader_election(raft)
}
