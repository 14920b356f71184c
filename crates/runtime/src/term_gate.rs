//! Only the leader writes. In: whether this instance leads, and which term a task works for. Out: each write is sent or refused, and a
//! write that is under way is given up when its term ends. The election's own writes have to use a client without this gate.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use konverge_leadership::{Leadership, Term};

use crate::gate::{WriteGate, WritePass, WriteRefused};
use crate::request::RequestInfo;

/// Lets writes pass while this instance leads. A reconcile that was begun in an earlier term may not write any more, also if this
/// instance leads again: it acts on what it saw then.
///
/// A task that works for a term ([`Leadership::scope`]) is asked about the leadership of that term: with shards, each reconcile works for
/// the term of the shard that its object is in. All other tasks are asked about the leadership that the gate was made for.
///
/// What this promises against every API server: no write is sent after the deadline of a term, and nobody waits for one longer. A write
/// that is still in the network at that time may be carried out later; the API server of this project refuses it then, because each
/// write names its term.
pub struct TermGate(Leadership);

impl TermGate {
    /// A gate for writes of this instance.
    pub fn new(leadership: Leadership) -> Self {
        Self(leadership)
    }

    /// The leadership that the current task is asked about, and the term that it works for.
    fn asked(&self) -> (Leadership, Option<Arc<Term>>) {
        match Leadership::of_this_task() {
            Some((leadership, term)) => (leadership, Some(term)),
            None => (self.0.clone(), None),
        }
    }
}

impl WriteGate for TermGate {
    /// Looks at the term once. The pass names that term and ends with it, whichever term follows.
    fn check(&self, _: &RequestInfo) -> Result<WritePass, WriteRefused> {
        let (leadership, begun) = self.asked();
        let Some(current) = leadership.term() else {
            let leader =
                leadership.leader().map_or_else(|| "nobody does".to_owned(), |leader| format!("{leader} does"));
            return Err(WriteRefused::new("NotLeading", format!("this instance does not lead; {leader}")));
        };
        if let Some(begun) = begun.filter(|begun| begun.number != current.number) {
            let message = format!("this was begun in {begun}, which is over; now it is {current}");
            return Err(WriteRefused::new("TermOver", message));
        }
        let over = leadership.ended(&current);
        let pass = match &current.fence {
            Some(fence) => WritePass::default().header(HeaderName::from_static(Term::HEADER), header_value(fence)?),
            None => WritePass::default(),
        };
        Ok(pass.until(async move {
            over.await;
            WriteRefused::new("TermOver", format!("{current} is over"))
        }))
    }
}

/// A write that cannot name its term is not sent: the server could not refuse it when the term is over.
fn header_value(fence: &str) -> Result<HeaderValue, WriteRefused> {
    HeaderValue::from_str(fence).map_err(|_| {
        let message = format!(
            "the header {} cannot carry {fence:?}; give this instance a host name without control characters",
            Term::HEADER
        );
        WriteRefused::new("InvalidTerm", message)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use konverge_leadership::Seat;
    use tokio::time::Instant;

    use super::*;
    use crate::reconciler::BoxFuture;

    fn write() -> RequestInfo {
        let request = http::Request::delete("/api/v1/nodes/n").body(()).unwrap();
        RequestInfo::of(&request.into_parts().0)
    }

    fn leads(seat: &Seat, number: u64, seconds: u64) {
        let term = Term::of_lease("shop", "lock", number, &"web-0".into());
        seat.lead(term, Instant::now() + Duration::from_secs(seconds));
    }

    /// The fence that a pass of this gate names.
    fn fence(gate: &TermGate) -> HeaderValue {
        gate.check(&write()).unwrap().header.unwrap().1
    }

    /// Why a pass of this gate ends, when it does.
    fn revoked(gate: &TermGate) -> BoxFuture<WriteRefused> {
        gate.check(&write()).unwrap().revoked.unwrap()
    }

    fn refused(gate: &TermGate) -> String {
        gate.check(&write()).err().map(|refused| format!("{}: {refused}", refused.reason())).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_leader_writes_and_only_for_its_term() {
        let (leadership, seat) = Leadership::vacant();
        let gate = TermGate::new(leadership.clone());
        assert_eq!(refused(&gate), "NotLeading: this instance does not lead; nobody does");
        seat.follow(Some("web-1".into()));
        assert_eq!(refused(&gate), "NotLeading: this instance does not lead; web-1 does");
        leads(&seat, 3, 10);
        assert_eq!(refused(&gate), "");
        assert_eq!(fence(&gate), "shop/lock/3/web-0");
        let third = leadership.term().unwrap();
        leads(&seat, 4, 10);
        let stale = leadership.sync_scope(third, || refused(&gate));
        assert_eq!(stale, "TermOver: this was begun in term 3 of web-0, which is over; now it is term 4 of web-0");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(refused(&gate), "NotLeading: this instance does not lead; web-0 does");
    }

    /// An instance takes part in several elections; each task is asked about its own.
    #[tokio::test(start_paused = true)]
    async fn a_task_is_asked_about_the_leadership_that_it_works_for() {
        let (all, _seat_of_all) = Leadership::vacant();
        let (shard, seat) = Leadership::vacant();
        let gate = TermGate::new(all);
        leads(&seat, 3, 10);
        let third = shard.term().unwrap();
        assert_eq!(refused(&gate), "NotLeading: this instance does not lead; nobody does");
        assert_eq!(shard.sync_scope(third.clone(), || refused(&gate)), "");
        assert_eq!(shard.sync_scope(third.clone(), || fence(&gate)), "shop/lock/3/web-0");
        let revoked = tokio::spawn(shard.sync_scope(third.clone(), || revoked(&gate)));
        leads(&seat, 4, 10);
        assert_eq!(revoked.await.unwrap().reason(), "TermOver");
        assert!(shard.sync_scope(third, || refused(&gate)).starts_with("TermOver"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_under_way_is_given_up_at_the_deadline_and_not_before() {
        let (leadership, seat) = Leadership::vacant();
        let gate = TermGate::new(leadership);
        leads(&seat, 1, 10);
        let revoked = tokio::spawn(revoked(&gate));
        tokio::time::sleep(Duration::from_secs(9)).await;
        leads(&seat, 1, 10);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!revoked.is_finished(), "the term was extended");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(revoked.is_finished(), "the term is over");
        // Such a term does not begin again: what was begun in it was cut off.
        leads(&seat, 1, 10);
        assert!(gate.check(&write()).is_err());
    }

    /// What a pass says is about the term that was checked, also if another one has begun since.
    #[tokio::test(start_paused = true)]
    async fn a_pass_is_of_one_term() {
        let (leadership, seat) = Leadership::vacant();
        let gate = TermGate::new(leadership);
        leads(&seat, 3, 10);
        let pass = gate.check(&write()).unwrap();
        leads(&seat, 4, 10);
        assert_eq!(pass.header.unwrap().1, "shop/lock/3/web-0");
        let why = pass.revoked.unwrap().now_or_never().expect("the term is over");
        assert_eq!(why.to_string(), "term 3 of web-0 is over");
    }

    #[test]
    fn a_term_that_no_header_can_carry_writes_nothing() {
        let (leadership, seat) = Leadership::vacant();
        let gate = TermGate::new(leadership);
        for (holder, expect) in [("web-0", ""), ("bücher", ""), ("web\n0", "InvalidTerm: ")] {
            let term = Term::of_lease("shop", "lock", 1, &holder.into());
            seat.follow(None);
            seat.lead(term, Instant::now() + Duration::from_secs(10));
            let refused = refused(&gate);
            assert!(
                if expect.is_empty() { refused.is_empty() } else { refused.starts_with(expect) },
                "{holder}: {refused}"
            );
        }
    }
}
