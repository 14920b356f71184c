//! The collector: what goes when its owner, or its namespace, goes. In: committed changes. Out: deletions and small
//! patches, made like anybody else's. It decides nothing by itself: owner references, finalizers and deletion
//! timestamps say what is to be done, and each step can be repeated without harm.
//!
//! ```text
//! owner gone            → dependents that have no other owner are deleted
//! foregroundDeletion    → dependents first, then the finalizer
//! orphan                → dependents forget the owner, then the finalizer
//! namespace terminating → everything in it, then the namespace
//! ```

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Weak};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use konverge_core::{GroupVersion, Status};
use konverge_store::{Change, Entry, Range, ReadError, Watch};

use crate::change::{Done, Write};
use crate::delete::{DeleteOptions, delete};
use crate::meta::{self, FOREGROUND, ORPHAN};
use crate::part::Part;
use crate::record;
use crate::resource::Resource;
use crate::server::Server;

/// Everything is under here.
const ALL: &str = "/registry/";

/// How many changes are looked at together, and how many deletions are under way at once: enough that a disk store
/// can commit them in groups.
const BATCH: usize = 256;
const AT_ONCE: usize = 64;

/// Follows the server's changes until it closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let Some((mut dependents, mut watch)) = server.upgrade().map(|server| Dependents::learn(&server)) else { return };
    if let Some(server) = server.upgrade() {
        dependents.catch_up(&server).await;
    }
    loop {
        tokio::select! {
            batch = watch.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                match batch {
                    Ok(batch) => dependents.follow(&server, &batch).await,
                    Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => {
                        (dependents, watch) = Dependents::learn(&server);
                        dependents.catch_up(&server).await;
                    }
                }
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// Who depends on whom.
#[derive(Default)]
struct Dependents {
    /// The keys of dependents by the uid of their owner.
    of: HashMap<String, BTreeSet<Arc<str>>>,
    /// The uids of those whose end is being worked on: they are known to be gone also if their kind went with them, and
    /// nobody can be asked for them any more.
    ended: BTreeSet<String>,
}

/// What is to be looked at because of some changes.
#[derive(Default)]
struct Agenda {
    objects: BTreeSet<Arc<str>>,
    namespaces: BTreeSet<String>,
}

impl Dependents {
    /// Learns what is there, and watches from then on.
    fn learn(server: &Server) -> (Self, Watch) {
        loop {
            let page = server.store.range(Range { prefix: ALL, ..Range::default() });
            let page = page.expect("the newest revision can always be read");
            // Between the two, more may have been written and compacted: then everything is learnt anew.
            let Ok(watch) = server.store.watch(ALL, page.revision) else { continue };
            let mut dependents = Self::default();
            for entry in &page.entries {
                dependents.link(entry);
            }
            return (dependents, watch);
        }
    }

    fn link(&mut self, entry: &Entry) {
        for uid in owners(entry) {
            self.of.entry(uid).or_default().insert(entry.key.clone());
        }
    }

    fn unlink(&mut self, entry: &Entry) {
        for uid in owners(entry) {
            if let Some(keys) = self.of.get_mut(&uid) {
                keys.remove(&entry.key);
                if keys.is_empty() {
                    self.of.remove(&uid);
                }
            }
        }
    }

    /// Goes through everything once: what happened while nobody followed.
    async fn catch_up(&mut self, server: &Arc<Server>) {
        let page = server.store.range(Range { prefix: ALL, ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        let mut agenda = Agenda::default();
        for entry in &page.entries {
            if mentions(entry, "ownerReferences") || mentions(entry, "deletionTimestamp") {
                agenda.objects.insert(entry.key.clone());
            }
        }
        self.work(server, agenda).await;
    }

    async fn follow(&mut self, server: &Arc<Server>, batch: &[Change]) {
        let mut agenda = Agenda::default();
        self.ended.clear();
        for change in batch {
            if let Some(before) = &change.before {
                self.unlink(before);
            }
            match (&change.before, &change.after) {
                (_, Some(after)) => {
                    self.link(after);
                    if mentions(after, "deletionTimestamp")
                        || (change.before.is_none() && mentions(after, "ownerReferences"))
                    {
                        agenda.objects.insert(after.key.clone());
                    }
                }
                (Some(before), None) => self.gone(server, before, &mut agenda),
                (None, None) => {}
            }
        }
        self.work(server, agenda).await;
    }

    /// What an object's end is the reason to look at.
    fn gone(&mut self, server: &Server, before: &Entry, agenda: &mut Agenda) {
        let object = record::decode(before);
        if let Some(keys) = self.of.get(meta::text(&object, "uid")) {
            agenda.objects.extend(keys.iter().cloned());
        }
        self.ended.insert(meta::text(&object, "uid").to_owned());
        // An owner may have waited for it.
        for owner in references(&object) {
            if let Found::There(entry) | Found::Waiting(entry) = find(server, &object, owner) {
                agenda.objects.insert(entry.key);
            }
        }
        let namespace = meta::text(&object, "namespace");
        if !namespace.is_empty() {
            agenda.namespaces.insert(namespace.to_owned());
        }
    }

    async fn work(&self, server: &Arc<Server>, agenda: Agenda) {
        let mut looks: Vec<Step<'_>> = Vec::new();
        for key in &agenda.objects {
            looks.push(Box::pin(self.look(server, key)));
        }
        all(looks).await;
        let mut ends: Vec<Step<'_>> = Vec::new();
        for name in &agenda.namespaces {
            ends.push(Box::pin(finish_namespace(server, name)));
        }
        all(ends).await;
    }

    /// Does the next thing for one object.
    async fn look(&self, server: &Arc<Server>, key: &str) -> Result<(), Status> {
        let Some((resource, entry)) = read(server, key) else { return Ok(()) };
        let object = resource.view(&entry);
        if meta::is_terminating(&object) {
            if &*resource.kind == "Namespace" && resource.group.is_empty() {
                return empty_namespace(server, meta::text(&object, "name")).await;
            }
            if meta::finalizers(&object).contains(&ORPHAN) {
                return self.orphan(server, &resource, &object).await;
            }
            if meta::finalizers(&object).contains(&FOREGROUND) {
                return self.foreground(server, &resource, &object).await;
            }
        }
        self.reconsider(server, &resource, &object).await
    }

    /// Makes dependents forget the owner, then lets it go.
    async fn orphan(&self, server: &Arc<Server>, resource: &Arc<Resource>, owner: &Value) -> Result<(), Status> {
        let uid = meta::text(owner, "uid");
        for key in self.of.get(uid).into_iter().flatten() {
            if let Some((resource, entry)) = read(server, key) {
                forget(server, &resource, &resource.view(&entry), &BTreeSet::from([uid.to_owned()])).await?;
            }
        }
        drop_finalizer(server, resource, owner, ORPHAN).await
    }

    /// Deletes dependents, and lets the owner go when none is left that it has to wait for.
    async fn foreground(&self, server: &Arc<Server>, resource: &Arc<Resource>, owner: &Value) -> Result<(), Status> {
        let uid = meta::text(owner, "uid");
        let mut waiting = false;
        for key in self.of.get(uid).into_iter().flatten() {
            let Some((resource, entry)) = read(server, key) else { continue };
            let dependent = resource.view(&entry);
            let blocks = references(&dependent).any(|one| one["uid"] == uid && one["blockOwnerDeletion"] == true);
            waiting |= blocks;
            self.reconsider(server, &resource, &dependent).await?;
        }
        // Deletions that were done at once come back as changes, and then nothing is waited for any more.
        let still = waiting && self.of.get(uid).into_iter().flatten().any(|key| read(server, key).is_some());
        if still { Ok(()) } else { drop_finalizer(server, resource, owner, FOREGROUND).await }
    }

    /// Deletes an object none of whose owners is left; one that still has some forgets the others.
    async fn reconsider(&self, server: &Arc<Server>, resource: &Arc<Resource>, object: &Value) -> Result<(), Status> {
        let (mut kept, mut waiting, mut lost) = (0, false, BTreeSet::new());
        for owner in references(object) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            let found = if self.ended.contains(uid) { Found::Absent } else { find(server, object, owner) };
            match found {
                Found::There(_) | Found::Unknown => kept += 1,
                Found::Waiting(_) => waiting = true,
                Found::Absent => {
                    lost.insert(uid.to_owned());
                }
            }
        }
        if kept == 0 && (waiting || !lost.is_empty()) {
            if meta::is_terminating(object) {
                return Ok(());
            }
            let uid = meta::text(object, "uid");
            // Where who waits for whom is a circle, somebody has to go first.
            let foreground = waiting && blocks_owner(object) && !self.is_awaited_by_a_dependent(server, uid);
            let options = DeleteOptions::of(uid, foreground);
            let (namespace, name) = place(object);
            return done(delete(server, resource, namespace, name, &options).await);
        }
        if kept > 0 && !lost.is_empty() {
            return forget(server, resource, object, &lost).await;
        }
        Ok(())
    }

    /// Whether something that depends on this owner waits in turn for what depends on it.
    fn is_awaited_by_a_dependent(&self, server: &Server, uid: &str) -> bool {
        let mut dependents = self.of.get(uid).into_iter().flatten().filter_map(|key| read(server, key));
        dependents.any(|(_, entry)| waits(&record::decode(&entry)))
    }
}

/// How an owner is doing.
enum Found {
    There(Entry),
    /// It is there, and is deleted after its dependents.
    Waiting(Entry),
    Absent,
    /// Its kind is not known here, or it cannot be reached from the dependent: nothing is concluded.
    Unknown,
}

fn find(server: &Server, dependent: &Value, owner: &Value) -> Found {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let Some(version) = GroupVersion::parse(text("apiVersion")) else { return Found::Unknown };
    let Some(row) = server.kinds.of_kind(&version.group, text("kind")) else {
        return Found::Unknown;
    };
    let namespace = meta::text(dependent, "namespace");
    if row.namespaced && namespace.is_empty() {
        return Found::Unknown;
    }
    let key = row.key(row.namespaced.then_some(namespace), text("name"));
    let Ok(Some(entry)) = server.store.get(&key, None) else { return Found::Absent };
    let object = record::decode(&entry);
    if meta::text(&object, "uid") != text("uid") {
        return Found::Absent;
    }
    if waits(&object) { Found::Waiting(entry) } else { Found::There(entry) }
}

/// Whether an object goes after what depends on it.
fn waits(object: &Value) -> bool {
    meta::is_terminating(object) && meta::finalizers(object).contains(&FOREGROUND)
}

/// Takes owners out of an object's references.
async fn forget(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    object: &Value,
    uids: &BTreeSet<String>,
) -> Result<(), Status> {
    change(server, resource, object, |mut object| {
        let left: Vec<Value> = references(&object)
            .filter(|one| !uids.contains(one["uid"].as_str().unwrap_or_default()))
            .cloned()
            .collect();
        let metadata = meta::of_mut(&mut object);
        if left.is_empty() {
            metadata.remove("ownerReferences");
        } else {
            metadata.insert("ownerReferences".into(), left.into());
        }
        object
    })
    .await
}

async fn drop_finalizer(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    object: &Value,
    finalizer: &str,
) -> Result<(), Status> {
    change(server, resource, object, |mut object| {
        let names: Vec<String> = meta::finalizers(&object).into_iter().map(str::to_owned).collect();
        let left: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != finalizer).collect();
        meta::set_finalizers(&mut object, &left);
        object
    })
    .await
}

/// Deletes everything in a namespace that is going.
async fn empty_namespace(server: &Arc<Server>, namespace: &str) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let options = DeleteOptions::default();
    for row in kinds.stored().filter(|row| row.namespaced) {
        let page = server.store.range(Range { prefix: &row.prefix(Some(namespace)), ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        let mut deletions: Vec<Step<'_>> = Vec::new();
        for entry in &page.entries {
            deletions.push(Box::pin(async {
                let (namespace, name) = row.identity(&entry.key);
                done(delete(server, row, namespace, name, &options).await)
            }));
        }
        all(deletions).await;
    }
    finish_namespace(server, namespace).await
}

/// Lets a namespace go that is going and empty.
async fn finish_namespace(server: &Arc<Server>, namespace: &str) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let namespaces = &server.kinds.find("", "v1", "namespaces").expect("namespaces are built in");
    let Some((_, entry)) = read(server, &namespaces.key(None, namespace)) else { return Ok(()) };
    let object = namespaces.view(&entry);
    let holds = |row: &Arc<Resource>| {
        let page =
            server.store.range(Range { prefix: &row.prefix(Some(namespace)), limit: Some(1), ..Range::default() });
        page.is_ok_and(|page| !page.entries.is_empty())
    };
    if !meta::is_terminating(&object) || kinds.stored().filter(|row| row.namespaced).any(holds) {
        return Ok(());
    }
    let write = Write { part: Part::Finalize, ..server.internal_write(namespaces) };
    let emptied = |object: &Value| {
        let mut object = object.clone();
        object["spec"]["finalizers"] = json!([]);
        Ok(object)
    };
    done(write.patch(namespace, &mut Vec::new(), emptied).await)
}

/// Changes an object, whatever else was changed in it meanwhile.
async fn change(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    object: &Value,
    with: impl Fn(Value) -> Value,
) -> Result<(), Status> {
    let (namespace, name) = place(object);
    let uid = meta::text(object, "uid").to_owned();
    let write = Write { namespace, ..server.internal_write(resource) };
    let changed = |object: &Value| {
        // Another object of the same name is nobody's business here.
        if meta::text(object, "uid") == uid { Ok(with(object.clone())) } else { Ok(object.clone()) }
    };
    done(write.patch(name, &mut Vec::new(), changed).await)
}

/// Somebody else may have been faster; that is as good.
pub(crate) fn done(outcome: Result<Done, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 404 && status.code != 409 => Err(status),
        _ => Ok(()),
    }
}

/// One thing to do.
type Step<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// Does things side by side, whatever becomes of each.
async fn all(steps: Vec<Step<'_>>) {
    stream::iter(steps).buffer_unordered(AT_ONCE).for_each(report).await;
}

pub(crate) async fn report(outcome: Result<(), Status>) {
    if let Err(status) = outcome {
        tracing::warn!(code = status.code, message = %status.message, "the collector could not do its work");
    }
}

fn read(server: &Server, key: &str) -> Option<(Arc<Resource>, Entry)> {
    let row = server.kinds.of_key(key)?;
    let entry = server.store.get(key, None).ok()??;
    Some((row, entry))
}

fn place(object: &Value) -> (Option<&str>, &str) {
    let namespace = Some(meta::text(object, "namespace")).filter(|namespace| !namespace.is_empty());
    (namespace, meta::text(object, "name"))
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    meta::of(object).get("ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

fn blocks_owner(object: &Value) -> bool {
    references(object).any(|owner| owner["blockOwnerDeletion"] == true)
}

fn owners(entry: &Entry) -> Vec<String> {
    if !mentions(entry, "ownerReferences") {
        return Vec::new();
    }
    references(&record::decode(entry)).filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect()
}

/// Whether a record may have such a field: cheap, and never no when it has.
fn mentions(entry: &Entry, field: &str) -> bool {
    std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(field))
}
