//! The page `/leader`. In: the elections that this instance takes part in, and its shards. Out: who leads, as JSON.

use std::sync::Arc;

use konverge_runtime::{HeldShard, Leadership, Shards};
use serde_json::{Value, json};

/// Who leads.
pub(crate) struct LeaderPage {
    pub leadership: Leadership,
    pub groups: Vec<GroupPage>,
    /// The shards, if the objects are divided among the instances.
    pub shards: Option<Shards>,
}

/// Who leads an election group.
pub(crate) struct GroupPage {
    pub name: Arc<str>,
    pub lease: String,
    pub leadership: Leadership,
}

impl LeaderPage {
    pub(super) fn json(&self) -> Value {
        let mut page = leader(&self.leadership);
        if !self.groups.is_empty() {
            page["groups"] = self.groups.iter().map(GroupPage::json).collect();
        }
        if let Some(shards) = &self.shards {
            page["shards"] = shards_page(shards);
        }
        page
    }
}

impl GroupPage {
    fn json(&self) -> Value {
        let mut page = leader(&self.leadership);
        page["group"] = (&*self.name).into();
        page["lease"] = self.lease.as_str().into();
        page
    }
}

/// Who leads, in the words of a Lease.
fn leader(leadership: &Leadership) -> Value {
    let (term, leader) = (leadership.term(), leadership.leader());
    json!({
        "leader": term.is_some(),
        "holderIdentity": leader.as_deref(),
        "term": term.map(|term| term.number),
    })
}

/// Which shards this instance holds, in which terms and since when.
fn shards_page(shards: &Shards) -> Value {
    let status = shards.status();
    let held = |held: HeldShard| json!({"shard": held.shard, "term": held.term, "since": held.since});
    json!({
        "identity": &**shards.identity(),
        "count": shards.count(),
        "instances": status.replicas,
        "held": shards.held().into_iter().map(held).collect::<Vec<_>>(),
        "waiting": status.waiting,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_tells_who_leads_it() {
        let (backups, _seat) = Leadership::vacant();
        let group = GroupPage { name: "backups".into(), lease: "shop-lock-backups".into(), leadership: backups };
        let page = LeaderPage { leadership: Leadership::always("web-0"), groups: vec![group], shards: None };
        let expect = json!({
            "leader": true, "holderIdentity": "web-0", "term": 1,
            "groups": [
                {"group": "backups", "lease": "shop-lock-backups", "leader": false, "holderIdentity": null, "term": null},
            ],
        });
        assert_eq!(page.json(), expect);
    }
}
