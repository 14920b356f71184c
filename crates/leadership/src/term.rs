//! A period in which one instance leads. A plain value.

use std::fmt;
use std::sync::Arc;

use crate::leadership::Leadership;

/// One period in which one instance leads.
///
/// Its number only grows from leader to leader, so that of two terms the later one is known. When an instance loses the lead and
/// wins it again, that is another term with another number. Only if somebody writes the largest number there is into a Lease by hand,
/// the count begins anew, with the seconds since 2020.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Which term it is: greater than that of every term before it.
    pub number: u64,
    /// The identity of the instance that leads.
    pub holder: Arc<str>,
    /// What an API server can check a write against, in the header [`Term::HEADER`]: the namespace and the name of a Lease, this number
    /// and this holder. None if no Lease says who leads.
    pub fence: Option<Arc<str>>,
}

impl Term {
    /// The header that names the term of a write: `shop/web-lock/7/web-0_5f3a`. The API server of this project refuses a write whose
    /// term the Lease does not confirm at the moment of the commit; others ignore it.
    pub const HEADER: &str = "konverge-term";

    /// A term that a Lease confirms.
    pub fn of_lease(namespace: &str, name: &str, number: u64, holder: &Arc<str>) -> Self {
        let fence = Some(format!("{namespace}/{name}/{number}/{holder}").into());
        Self { number, holder: holder.clone(), fence }
    }

    /// The term that the current task works for, if it was begun within one ([`Leadership::scope`]).
    pub fn of_this_task() -> Option<Arc<Self>> {
        Leadership::of_this_task().map(|(_, term)| term)
    }
}

/// `term 7 of web-0`
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {} of {}", self.number, self.holder)
    }
}
