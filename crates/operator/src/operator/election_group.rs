//! Election groups: controllers that are elected apart from the rest of their operator. In: what controllers say of their groups. Out: one
//! election for each group, or why that cannot be.

use std::fmt;
use std::sync::Arc;

use konverge_runtime::{Error, Result, Term};
use serde::de::DeserializeOwned;

use super::campaign::LeaderCallbacks;
use crate::controller::Controller;
use crate::settings::{Settings, object_name};

/// A group of controllers with a Lease of its own: see [`Controller::election_group`](crate::Controller::election_group).
///
/// ```
/// # use konverge::prelude::*;
/// use konverge::ElectionGroup;
/// # async fn backups(_: Context<CronJob>) -> Result<Action> { Ok(Action::await_change()) }
/// let group = ElectionGroup::new("backups")
///     .lease("backup-operator") // the Lease of another operator, which this one replaces
///     .on_started_leading(|term| println!("backups: leading in {term}"));
/// Controller::<CronJob>::new().reconcile(backups).election_group(group);
/// ```
#[derive(Clone, Default)]
pub struct ElectionGroup {
    name: String,
    lease: Option<String>,
    callbacks: LeaderCallbacks,
}

impl ElectionGroup {
    /// The group of this name. Its Lease is called like that of the operator, a hyphen and this name. Controllers that name the same
    /// group share its Lease.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Elects by the Lease of this name, in the namespace of the operator's Lease: for a program whose Lease has this name already, such
    /// as a Go operator that runs beside this one until it is replaced.
    pub fn lease(mut self, name: impl Into<String>) -> Self {
        self.lease = Some(name.into());
        self
    }

    /// Calls this when this instance begins to lead the group, with its term. It has to return soon.
    pub fn on_started_leading(mut self, told: impl Fn(&Term) + Send + Sync + 'static) -> Self {
        self.callbacks.started.push(Arc::new(told));
        self
    }

    /// Calls this when a term of this instance in the group is over. Writes for that term are refused by then. It has to return soon.
    pub fn on_stopped_leading(mut self, told: impl Fn(&Term) + Send + Sync + 'static) -> Self {
        self.callbacks.stopped.push(Arc::new(told));
        self
    }

    /// Calls this when another instance leads the group, or this one, with its identity. It has to return soon.
    pub fn on_new_leader(mut self, told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.callbacks.new_leader.push(Arc::new(told));
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ElectionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, lease, .. } = self;
        f.debug_struct("ElectionGroup").field("name", name).field("lease", lease).finish_non_exhaustive()
    }
}

impl From<&str> for ElectionGroup {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for ElectionGroup {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static, P> Controller<R, P> {
    /// Elects this controller apart from the rest of its operator: it is in a group with a Lease of its own, so that one replica may run
    /// this controller while another runs the others. Controllers that name the same group are elected together.
    ///
    /// Use it when an operator has several controllers, each of which one replica can do, and one replica cannot do all of them. A
    /// controller that one replica cannot do alone needs shards ([`Operator::shards`](crate::Operator::shards)).
    ///
    /// - The group has a term of its own. Every write of its reconciles, `ctx.client()`, status, finalizers and events included, is
    ///   refused when that term is over, whoever leads the rest of the operator.
    /// - A replica that leads one group leaves the Lease of another to other replicas for a moment when it becomes free. A Lease that is
    ///   held stays where it is: a replica that starts later gets groups only as others give theirs up.
    /// - Background tasks, registrations of webhooks and the migration of stored versions go with the operator's own Lease.
    /// - Without leader election (`--leader-elect`) there is one instance, which runs all groups. With shards or Raft the operator does
    ///   not start.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # async fn databases(_: Context<StatefulSet>) -> Result<Action> { Ok(Action::await_change()) }
    /// # async fn backups(_: Context<CronJob>) -> Result<Action> { Ok(Action::await_change()) }
    /// Operator::<StatefulSet>::new()
    ///     .reconcile(databases)
    ///     .and(Controller::<CronJob>::new().reconcile(backups).election_group("backups"));
    /// ```
    ///
    /// [`ElectionGroup`] gives the Lease another name, and has functions that are told who leads the group.
    pub fn election_group(mut self, group: impl Into<ElectionGroup>) -> Self {
        self.spec.group = Some(group.into());
        self
    }
}

/// A group as all of its controllers describe it.
pub(super) struct PlannedGroup {
    pub name: Arc<str>,
    pub lease: String,
    pub callbacks: LeaderCallbacks,
}

/// The groups of an operator, from what its controllers say, under these settings.
pub(super) fn planned<'a>(
    groups: impl IntoIterator<Item = &'a ElectionGroup>,
    settings: &Settings,
) -> Result<Vec<PlannedGroup>> {
    let mut merged: Vec<ElectionGroup> = Vec::new();
    for group in groups {
        match merged.iter_mut().find(|known| known.name == group.name) {
            Some(known) => known.merge(group)?,
            None => merged.push(group.clone()),
        }
    }
    if let Some(group) = merged.first().filter(|_| settings.shards > 0) {
        return Err(Error::permanent(format!(
            "shards let every replica work on a part of the objects of all controllers, and the election group {} lets one replica work \
             on all objects of some; remove --shards, or .election_group(…)",
            group.name
        )));
    }
    let own = settings.lease_name();
    let mut planned: Vec<PlannedGroup> = Vec::new();
    for ElectionGroup { name, lease, callbacks } in merged {
        let lease = lease.unwrap_or_else(|| format!("{own}-{name}"));
        object_name(&lease).map_err(|why| {
            Error::permanent(format!(
                "the Lease of the election group {name:?} would be called {lease:?}: {why}; give the group another name, or the Lease \
                 one with ElectionGroup::lease(…)"
            ))
        })?;
        let taken =
            planned.iter().find(|known| known.lease == lease).map(|known| format!("the election group {}", known.name));
        if let Some(other) = taken.or_else(|| (lease == own).then(|| "the operator itself".to_owned())) {
            return Err(Error::permanent(format!(
                "the election group {name} would have the Lease {lease}, which {other} has; give the group another one with \
                 ElectionGroup::lease(…)"
            )));
        }
        planned.push(PlannedGroup { name: name.into(), lease, callbacks });
    }
    Ok(planned)
}

impl ElectionGroup {
    /// Adds what another controller says of the same group.
    fn merge(&mut self, other: &Self) -> Result<()> {
        if let (Some(first), Some(second)) = (&self.lease, &other.lease)
            && first != second
        {
            return Err(Error::permanent(format!(
                "the election group {} would have two Leases, {first} and {second}; give all its controllers the same",
                self.name
            )));
        }
        self.lease = self.lease.take().or_else(|| other.lease.clone());
        self.callbacks.extend(&other.callbacks);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &[ElectionGroup], shards: usize, expect: &str) {
        let settings = Settings { name: "shop".into(), shards, ..Settings::default() };
        let told = match planned(groups, &settings) {
            Ok(planned) => {
                let shown = planned.iter().map(|group| format!("{}={}", group.name, group.lease));
                shown.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert!(
            if expect.ends_with('…') { told.starts_with(expect.trim_end_matches('…')) } else { told == expect },
            "{told}"
        );
    }

    #[test]
    fn each_group_has_one_lease_of_its_own() {
        let group = ElectionGroup::new;
        check(&[], 0, "");
        check(&[], 3, "");
        check(&[group("a"), group("b"), group("a")], 0, "a=shop-lock-a b=shop-lock-b");
        check(&[group("a").lease("x"), group("a")], 0, "a=x");
        check(&[group("a"), group("a").lease("x")], 0, "a=x");
        check(
            &[group("a").lease("x"), group("a").lease("y")],
            0,
            "the election group a would have two Leases, x and y…",
        );
        check(
            &[group("a").lease("x"), group("b").lease("x")],
            0,
            "the election group b would have the Lease x, which the election group a has…",
        );
        check(
            &[group("a").lease("shop-lock")],
            0,
            "the election group a would have the Lease shop-lock, which the operator itself has…",
        );
        check(&[group("Nightly backups")], 0, "the Lease of the election group \"Nightly backups\" would be called …");
        check(&[group("")], 0, "the Lease of the election group \"\" would be called \"shop-lock-\"…");
        check(
            &[group("a")],
            3,
            "shards let every replica work on a part of the objects of all controllers, and the election group a…",
        );
    }
}
