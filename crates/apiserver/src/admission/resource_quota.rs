//! ResourceQuota: no more is created in a namespace than its quotas allow. What a write uses is added to `status.used` in the
//! same commit as the object, so the number is exact however many write at the same time. What a deletion gives back is
//! recalculated by a controller.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;

use konverge_core::{QuotaKind, ResourceList, ResourceQuota as Quota, Status};
use konverge_store::{Condition, Entry, Write as StoreWrite};

use super::{Admission, Attributes, Operation, Plugin, Verdict, lookup};
use crate::record;
use crate::subresource::Subresource;
use crate::work;

const QUOTAS: lookup::Kind = ("", "resourcequotas");

/// How many namespaces can be charged at the same time. Others that fall on the same lock wait for one commit.
const LOCKS: usize = 64;

/// Lets one write at a time be charged to the quotas of a namespace. The conditions of the commit would do alone, but of many
/// writes at once all but one would have to begin again.
pub(crate) struct QuotaLocks(Vec<Arc<Mutex<()>>>);

impl Default for QuotaLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Arc::default()).collect())
    }
}

impl QuotaLocks {
    fn of(&self, namespace: &str) -> Arc<Mutex<()>> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        self.0[(hasher.finish() % LOCKS as u64) as usize].clone()
    }
}

pub(super) struct ResourceQuota;

impl Plugin for ResourceQuota {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.namespace.is_some()
            && match (attributes.operation, attributes.subresource) {
                (Operation::Create, Subresource::Main) => true,
                (Operation::Update, Subresource::Resize) => true,
                (Operation::Update, Subresource::Main | Subresource::Status) => {
                    matches!(&*attributes.resource.plural, "pods" | "services" | "persistentvolumeclaims")
                        && attributes.resource.group.is_empty()
                }
                _ => false,
            }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        Box::pin(async move {
            // Most namespaces have no quota.
            if lookup::is_empty(attributes.server, QUOTAS, attributes.namespace)? {
                return Ok(());
            }
            let Some(kind) = QuotaKind::of(&attributes.resource.group, &attributes.resource.plural) else {
                return Ok(());
            };
            let concerned = match (attributes.old, attributes.subresource) {
                (None, _) => true,
                (Some(old), Subresource::Main) => kind.can_change(old, object),
                (Some(_), Subresource::Resize) => true,
                // What a claim really has is in its status.
                (Some(_), _) => &*attributes.resource.plural == "persistentvolumeclaims",
            };
            if !concerned {
                return Ok(());
            }
            if !attributes.context.dry_run {
                let lock = attributes.server.quota_locks.of(attributes.namespace.unwrap_or_default());
                // The write whose turn it is may need a slot to go on.
                admission.turn = Some(work::without_slot(lock.lock_owned()).await);
            }
            // Read again: another write may have been charged while this one waited.
            let quotas = lookup::list(attributes, QUOTAS, attributes.namespace)?;
            charge(attributes, &kind, object, quotas, admission)
        })
    }
}

/// Charges a write to all quotas that cover its object, or refuses it.
fn charge(
    attributes: &Attributes<'_>,
    kind: &QuotaKind,
    object: &Value,
    quotas: Vec<(Entry, Value)>,
    admission: &mut Admission,
) -> Result<(), Status> {
    let used = kind.usage(object, false);
    let mut charged = Vec::new();
    for (entry, stored) in quotas {
        let quota = Quota::read(&stored);
        if quota.hard.is_empty() && quota.wanted.keys().any(|name| kind.tracks(name)) {
            admission.warn(format!(
                "resource quota {:?} limits nothing yet: the resource quota controller has not written its status",
                quota.name
            ));
        }
        let mut limited: Vec<&str> = quota.limits(kind).collect();
        // A quota that is created a second time is refused by the commit.
        let is_quota = (&*attributes.resource.group, &*attributes.resource.plural) == QUOTAS;
        let is_itself = is_quota && quota.name == attributes.name;
        if limited.is_empty() || is_itself || !quota.covers(kind, object) {
            continue;
        }
        if let Some(missing) = kind.missing(limited.iter().copied(), object) {
            return Err(attributes.forbidden(format!("failed quota: {}: {missing}", quota.name)));
        }
        limited.sort_unstable();
        if limited.iter().any(|name| !quota.used.contains_key(*name)) {
            let (name, limited) = (&quota.name, limited.join(","));
            return Err(attributes.forbidden(format!("status unknown for quota: {name}, resources: {limited}")));
        }
        charged.push((entry, stored, quota));
    }
    let negative: Vec<&str> = used.iter().filter(|(_, used)| used.is_negative()).map(|(name, _)| &**name).collect();
    if !charged.is_empty() && !negative.is_empty() {
        let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
        return Err(attributes.forbidden(why));
    }
    for (entry, mut stored, quota) in charged {
        let before = attributes.old.filter(|old| quota.covers(kind, old)).map(|old| kind.usage(old, false));
        let added = increase(&used, before.as_ref(), &quota.hard);
        if added.is_empty() {
            continue;
        }
        let total = added.iter().map(|(name, added)| {
            let mut total = quota.used.get(name).copied().unwrap_or_default();
            total.add(added);
            (name.clone(), total)
        });
        let total: ResourceList = total.collect();
        let exceeded: Vec<&String> =
            total.iter().filter(|(name, total)| *total > &quota.hard[*name]).map(|(name, _)| name).collect();
        // What a status reports has happened already.
        if !exceeded.is_empty() && attributes.subresource != Subresource::Status {
            let show = |list: &ResourceList| {
                let parts = exceeded.iter().filter_map(|name| Some(format!("{name}={}", list.get(*name)?)));
                parts.collect::<Vec<_>>().join(",")
            };
            return Err(attributes.forbidden(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name,
                show(&added),
                show(&quota.used),
                show(&quota.hard)
            )));
        }
        if !attributes.context.dry_run {
            for (name, total) in total {
                stored["status"]["used"][name] = total.to_string().into();
            }
            admission.conditions.push(Condition::Unchanged(entry.key.clone(), entry.revision));
            admission.writes.push(StoreWrite::Put(entry.key, record::encode(&stored)));
        }
    }
    Ok(())
}

/// What a write uses more than before of what a quota limits.
fn increase(used: &ResourceList, before: Option<&ResourceList>, hard: &ResourceList) -> ResourceList {
    let limited = used.iter().filter(|(name, _)| hard.contains_key(*name));
    limited
        .map(|(name, used)| {
            let mut more = *used;
            if let Some(before) = before.and_then(|before| before.get(name)) {
                more.subtract(before);
            }
            (name.clone(), more)
        })
        .filter(|(_, more)| !more.is_zero() && !more.is_negative())
        .collect()
}
