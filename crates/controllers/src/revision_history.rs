//! The ControllerRevisions of StatefulSets and DaemonSets. In: a set, its template, the existing revisions. Out: the revision of
//! the current template, created or renumbered if necessary, and old ones deleted. `kubectl rollout history` and `undo` read
//! them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{CacheOf, Controller, Error, Missing, Patch, Result, Target, WriteError};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::controller_ref;
use crate::hash::template_hash;
use crate::meta::{HasMeta, Meta, StringMap};
use crate::requests::DeleteOptions;
use crate::template::same_template;

/// The label of pods with the hash or name of their revision.
pub(crate) const POD_REVISION: &str = "controller-revision-hash";

/// How many characters of a set's name are in the names of its revisions.
const LONGEST_PREFIX: usize = 223;

/// The default of `revisionHistoryLimit`.
const LIMIT: i32 = 10;

/// How many names are tried after collisions before the reconcile fails.
const TRIES: i32 = 16;

/// A ControllerRevision.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Revision {
    pub metadata: Meta,
    pub revision: i64,
    /// A patch that makes the set what it was.
    pub data: Value,
}

/// The revision of the present template.
#[derive(Debug, PartialEq)]
enum Present {
    /// It is the newest.
    Is(Arc<Revision>),
    /// It is there but older: the set went back to it, and it becomes the newest.
    Was(Arc<Revision>, i64),
    /// There is none; it gets this number.
    New(i64),
}

impl HasMeta for Revision {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Revision {
    /// The template it is of.
    pub(crate) fn template(&self) -> Value {
        let mut template = self.data["spec"]["template"].clone();
        if let Value::Object(fields) = &mut template {
            fields.remove("$patch");
        }
        template
    }
}

/// The revisions of all sets of one kind.
pub(crate) struct RevisionHistory {
    ctx: ControllerContext,
    revisions: CacheOf<Revision>,
    api: ApiResource,
    owner_api: ApiResource,
    /// The label of a revision that has its hash.
    label: &'static str,
}

impl RevisionHistory {
    /// The revisions of the sets of kind `K`. A changed revision wakes the controller.
    pub(crate) fn new<K>(ctx: &ControllerContext, controller: &Controller, label: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + k8s_openapi::Resource,
    {
        let target = Target::of::<apps::ControllerRevision>();
        let revisions = controller.watch(target, controller_ref::trigger("ControllerRevision", "apps", K::KIND));
        controller_ref::index_orphans(&revisions);
        Self {
            ctx: ctx.clone(),
            revisions: CacheOf::new(revisions),
            api: ApiResource::erase::<apps::ControllerRevision>(&()),
            owner_api: ApiResource::erase::<K>(&()),
            label,
        }
    }

    /// The revisions of a set, the oldest first, after it adopted matching orphans.
    pub(crate) async fn of(&self, owner: &Meta, selector: &LabelSelector) -> Result<Vec<Arc<Revision>>> {
        let candidates = controller_ref::candidates(self.revisions.cache(), owner);
        let candidates = candidates.iter().filter_map(|revision| self.revisions.decoded(revision).ok()).collect();
        let sorted = controller_ref::sort(owner, selector, candidates);
        let mut mine = controller_ref::claim(&self.ctx, &self.owner_api, owner, &self.api, sorted).await?;
        mine.sort_by(|a, b| order(a).cmp(&order(b)));
        Ok(mine)
    }

    /// The revision of the present template, and how many names were taken until now. `revisions` is as [`RevisionHistory::of`]
    /// says, and knows of it afterwards. Nothing if the namespace is going.
    pub(crate) async fn present(
        &self,
        owner: &Meta,
        template: &Value,
        revisions: &mut Vec<Arc<Revision>>,
        mut collisions: i32,
    ) -> Result<Option<(Arc<Revision>, i32)>> {
        let (number, is) = match present(template, revisions) {
            Present::Is(revision) => return Ok(Some((revision, collisions))),
            Present::Was(revision, number) => (number, Some(revision)),
            Present::New(number) => (number, None),
        };
        if let Some(revision) = is {
            let meta = &revision.metadata;
            let patch = json!([meta.uid_test(), {"op": "add", "path": "/revision", "value": number}]);
            let patched = self.ctx.patch(&self.api, &meta.key(), "", Patch::Json(patch)).await?;
            let renumbered: Arc<Revision> = Arc::new(serde_json::from_value(patched)?);
            revisions.retain(|other| other.metadata.uid != renumbered.metadata.uid);
            revisions.push(renumbered.clone());
            return Ok(Some((renumbered, collisions)));
        }
        for _ in 0..TRIES {
            let object = self.object(owner, template, number, collisions);
            let made = match self.ctx.create(&self.api, &object).await {
                Ok(made) => Some(made),
                Err(WriteError::Exists { .. }) => self.there(owner, &object).await?,
                Err(error) if error.is_of_ending_namespace() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            match made.map(serde_json::from_value::<Revision>).transpose()? {
                Some(made) if same_template(&made.template(), template) => {
                    let made = Arc::new(made);
                    revisions.push(made.clone());
                    return Ok(Some((made, collisions)));
                }
                _ => collisions += 1,
            }
        }
        Err(Error::new(format!("no name for a revision of {} is free", owner.key())))
    }

    /// Deletes revisions.
    pub(crate) async fn forget(&self, revisions: &[Arc<Revision>]) -> Result<()> {
        let deletes = revisions.iter().map(|revision| async move {
            let options = DeleteOptions { uid: &revision.metadata.uid, ..DeleteOptions::default() };
            self.ctx.delete(&self.api, &revision.metadata.key(), &options).await
        });
        self.ctx.in_parallel(deletes).await.into_iter().try_for_each(|deleted| deleted.map(drop))
    }

    /// Wakes the sets whose selector matches orphaned revisions.
    pub(crate) fn offer_orphans<'s>(
        &self,
        controller: &Controller,
        namespace: &str,
        sets: impl Iterator<Item = (&'s Meta, &'s Value)>,
    ) {
        let orphans = controller_ref::orphans(self.revisions.cache(), namespace);
        let orphans: Vec<Arc<Revision>> =
            orphans.iter().filter_map(|orphan| self.revisions.decoded(orphan).ok()).collect();
        if !orphans.is_empty() {
            sets.for_each(|(meta, selector)| {
                controller_ref::offer(controller, meta, selector, "ControllerRevision", &orphans);
            });
        }
    }

    /// The revision that has the name already, if it is of this set.
    async fn there(&self, owner: &Meta, object: &Value) -> Result<Option<Value>> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let there = self.ctx.writer.get(&self.api, &ObjectKey::new(Some(&owner.namespace), name)).await;
        let there = match there {
            Ok(there) => there,
            Err(WriteError::NotFound { missing: Missing::Object, .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(there.inspect(|there| self.ctx.observe(&self.api, &there.to_string())).filter(|there| {
            let owners = there["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|reference| reference["uid"] == owner.uid.as_str())
        }))
    }

    fn object(&self, owner: &Meta, template: &Value, number: i64, collisions: i32) -> Value {
        let hash = template_hash(template, (collisions > 0).then_some(collisions));
        let prefix = owner.name.get(..LONGEST_PREFIX).unwrap_or(&owner.name);
        let mut labels: StringMap = serde_json::from_value(template["metadata"]["labels"].clone()).unwrap_or_default();
        labels.insert(self.label.into(), hash.clone());
        let mut data = json!({"spec": {"template": template}});
        data["spec"]["template"]["$patch"] = "replace".into();
        json!({
            "apiVersion": self.api.api_version,
            "kind": self.api.kind,
            "metadata": {
                "name": format!("{prefix}-{hash}"),
                "namespace": owner.namespace,
                "labels": labels,
                "annotations": owner.annotations,
                "ownerReferences": [owner.as_controller(&self.owner_api)],
            },
            "data": data,
            "revision": number,
        })
    }
}

/// How many old revisions are kept: all, if that is what is asked for.
pub(crate) fn limit(asked: Option<i32>) -> usize {
    usize::try_from(asked.unwrap_or(LIMIT)).unwrap_or(usize::MAX)
}

/// The given number of revisions that are not needed, the oldest first.
pub(crate) fn surplus(
    revisions: &[Arc<Revision>],
    is_needed: impl Fn(&Revision) -> bool,
    many: usize,
) -> Vec<Arc<Revision>> {
    revisions.iter().filter(|revision| !is_needed(revision)).take(many).cloned().collect()
}

/// Which revision is of a template. They are in order, the oldest first.
fn present(template: &Value, revisions: &[Arc<Revision>]) -> Present {
    let newest = revisions.last().map_or(0, |newest| newest.revision);
    let same = |revision: &&Arc<Revision>| same_template(&revision.template(), template);
    match revisions.iter().rfind(same) {
        Some(revision) if revision.revision == newest => Present::Is(revision.clone()),
        Some(revision) => Present::Was(revision.clone(), newest + 1),
        None => Present::New(newest + 1),
    }
}

fn order(revision: &Revision) -> (i64, Option<jiff::Timestamp>, &str) {
    (revision.revision, revision.metadata.created(), &revision.metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64, image: &str) -> Arc<Revision> {
        let data = json!({"spec": {"template": {"$patch": "replace", "spec": {"image": image}}}});
        let metadata = Meta { name: format!("web-{number}"), ..Meta::default() };
        Arc::new(Revision { metadata, revision: number, data })
    }

    #[test]
    fn templates_find_their_revision() {
        let check = |revisions: &[(i64, &str)], image: &str, expect: &str| {
            let revisions: Vec<_> = revisions.iter().map(|(number, image)| revision(*number, image)).collect();
            let got = match present(&json!({"spec": {"image": image}}), &revisions) {
                Present::Is(revision) => format!("is {}", revision.revision),
                Present::Was(revision, number) => format!("was {}, becomes {number}", revision.revision),
                Present::New(number) => format!("new {number}"),
            };
            assert_eq!(got, expect, "{image}");
        };
        check(&[], "a", "new 1");
        check(&[(1, "a")], "a", "is 1");
        check(&[(1, "a")], "b", "new 2");
        check(&[(1, "a"), (2, "b")], "a", "was 1, becomes 3");
        check(&[(2, "b"), (7, "a")], "c", "new 8");
        // Of several of one template the newest counts.
        check(&[(1, "a"), (2, "a"), (3, "b")], "a", "was 2, becomes 4");
    }

    #[test]
    fn the_oldest_that_nobody_needs_go() {
        let check = |needed: &[i64], many: usize, expect: &[i64]| {
            let revisions: Vec<_> = (1..=4).map(|number| revision(number, "a")).collect();
            let gone = surplus(&revisions, |revision| needed.contains(&revision.revision), many);
            assert_eq!(gone.iter().map(|revision| revision.revision).collect::<Vec<_>>(), expect);
        };
        check(&[4], 0, &[]);
        check(&[4], 2, &[1, 2]);
        check(&[1, 4], 2, &[2, 3]);
        check(&[1, 2, 3, 4], 2, &[]);
        assert_eq!((limit(None), limit(Some(0)), limit(Some(-1))), (10, 0, usize::MAX));
    }
}
