//! What is watched besides the objects themselves, and how much of it. In: a kind, whom its changes concern, selectors. Out:
//! a target and a trigger for the engine.

use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_core::{FieldSelector, LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Change, Error, Mode, Object, Predicate, Result, Subscription, Target, Trigger};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::engine::{Engine, Named};
use crate::index::Index;
use crate::kind::{Kind, Scope};

type Map = Arc<dyn Fn(&Object) -> Vec<ObjectKey> + Send + Sync>;

/// Another kind that an operator watches, and which objects a change of it concerns.
///
/// ```
/// # use konverge::prelude::*;
/// # use konverge::Watch;
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// # pub struct ShopSpec { image: String }
/// // Every Shop is named after the ConfigMap it is set up with; of the Secrets only the names matter.
/// Operator::<Shop>::new()
///     .watch(Watch::new(|map: &ConfigMap| vec![map.key()]).matching_labels("for=shops"))
///     .watch(Watch::<Secret>::metadata(|secret| vec![ObjectKey::new(secret.namespace.as_deref(), "shop")]));
/// ```
///
/// What is watched in part is not read from: [`Context::get`](crate::Context::get) and
/// [`Context::list`](crate::Context::list) show all objects of a kind, whatever is watched of it.
#[must_use = "a watch does nothing until an operator has it"]
pub struct Watch<T> {
    selection: Selection,
    mode: Mode,
    predicate: Predicate,
    map: Map,
    kind: PhantomData<fn(T)>,
}

impl<T: Kind> Watch<T> {
    /// `map` says which objects a changed one concerns. It is asked for what it was and for what it is.
    pub fn new(map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        // One that does not parse concerns nobody here; the watch has reported it.
        let map = move |object: &Object| object.decode::<T>().map(|object| map(&object)).unwrap_or_default();
        Self::of(Mode::Full, Arc::new(map))
    }

    /// The same for a kind of which only the metadata matters: no more than that is sent and kept.
    pub fn metadata(map: impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        #[derive(Deserialize)]
        struct Partial {
            metadata: ObjectMeta,
        }
        let map = move |object: &Object| object.decode::<Partial>().map(|part| map(&part.metadata)).unwrap_or_default();
        Self::of(Mode::Metadata, Arc::new(map))
    }

    fn of(mode: Mode, map: Map) -> Self {
        Self { selection: Selection::default(), mode, predicate: Predicate::always(), map, kind: PhantomData }
    }

    /// Only objects with these labels, as `kubectl -l` takes it: `tier=gold,!retired`.
    pub fn matching_labels(mut self, selector: &str) -> Self {
        self.selection.labels(selector);
        self
    }

    /// Only objects with these fields, as `kubectl --field-selector` takes it: `type=kubernetes.io/tls`.
    pub fn matching_fields(mut self, selector: &str) -> Self {
        self.selection.fields(selector);
        self
    }

    /// Only these changes. Deletions always count.
    pub fn when(mut self, predicate: Predicate) -> Self {
        self.predicate = predicate;
        self
    }

    /// Begins to watch.
    pub(crate) fn begin(&self, engine: &Engine) -> Result<()> {
        let kind = T::kind(&());
        self.selection.check(&kind)?;
        let map = self.map.clone();
        let trigger = Trigger::mapped(&*kind, move |object| map(object)).when(self.predicate.clone());
        for place in engine.places::<T>() {
            let target = self.selection.of(engine.target::<T>(place)).mode(self.mode);
            engine.controller.watch(target, trigger.clone());
        }
        Ok(())
    }
}

/// What an object names, as a user's function tells.
type Names<R> = Arc<dyn Fn(&R) -> Vec<String> + Send + Sync>;

/// In which namespaces besides those that are looked at an object names something.
type Beyond<R> = Arc<dyn Fn(&R) -> BTreeSet<String> + Send + Sync>;

/// Watches the objects of kind `T` that those of kind `R` name: a change of one concerns those that name it. Other triggers
/// never read a cache, because it may be behind; this one may: whoever names something that it does not know of yet is about
/// to be woken by that itself.
pub(crate) fn references<R: Kind, T: Kind>(
    names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static,
) -> impl Fn(&Engine) -> Result<()> + Send + Sync + 'static {
    let names: Names<R> = Arc::new(names);
    let whom = names.clone();
    let named = Index::new(move |object: &R| {
        let own = object.meta().namespace.as_deref().filter(|_| T::scope() == Scope::Namespaced);
        let place = |name: String| match own {
            Some(namespace) if !name.contains('/') => format!("{namespace}/{name}"),
            _ => name,
        };
        whom(object).into_iter().map(place).collect()
    });
    move |engine| {
        let (named, primaries) = (named.clone(), engine.controller.primaries().to_vec());
        let who = move |object: &Object| {
            let key = object.key().to_string();
            primaries.iter().flat_map(|cache| named.find(cache, &key)).map(|object| object.key()).collect()
        };
        let trigger = Trigger::mapped(&*T::kind(&()), who);
        for place in engine.places::<T>() {
            engine.controller.watch(engine.target::<T>(place), trigger.clone());
        }
        if !engine.namespaces.is_empty() && T::scope() == Scope::Namespaced {
            engine.named.write().push(elsewhere::<R, T>(engine, names.clone(), trigger));
        }
        Ok(())
    }
}

/// For an operator that looks at some namespaces: watches those that an object names something in besides, each from the
/// first time on and until no object names anything there any more, and gives their caches.
fn elsewhere<R: Kind, T: Kind>(engine: &Engine, names: Names<R>, trigger: Trigger) -> Named {
    let inside = engine.namespaces.clone();
    let beyond: Beyond<R> = Arc::new(move |object| {
        // A function that panics about an object names nobody, as in the index.
        let names = catch_unwind(AssertUnwindSafe(|| names(object))).unwrap_or_default();
        let namespaces = names.iter().filter_map(|name| name.split_once('/')).map(|(namespace, _)| namespace);
        namespaces.filter(|namespace| inside.iter().all(|one| one != namespace)).map(str::to_owned).collect()
    });
    let index = Index::new({
        let beyond = beyond.clone();
        move |object: &R| beyond(object).into_iter().collect()
    });
    let primaries = engine.controller.primaries().to_vec();
    let is_named = move |namespace: &str| primaries.iter().any(|cache| !index.find(cache, namespace).is_empty());
    let open: Arc<Mutex<HashMap<String, (Cache, Subscription)>>> = Arc::default();
    let forget = {
        let (open, beyond, is_named) = (open.clone(), beyond.clone(), is_named.clone());
        move |change: Change| {
            // Most operators name nothing abroad.
            if open.lock().is_empty() {
                return;
            }
            let of = |object: Option<&Arc<Object>>| -> BTreeSet<String> {
                object.and_then(|object| object.decode().ok()).map(|object| beyond(&object)).unwrap_or_default()
            };
            for namespace in &of(change.before()) - &of(change.after()) {
                // Whoever names it from now on finds it closed, and opens it again.
                let mut open = open.lock();
                if !is_named(&namespace) {
                    open.remove(&namespace);
                }
            }
        }
    };
    let told: Vec<Subscription> =
        engine.controller.primaries().iter().map(|cache| cache.subscribe(forget.clone())).collect();
    Box::new(move |engine, object| {
        // They are told for as long as this is kept.
        let _ = &told;
        let Some(object) = object.downcast_ref::<R>() else { return Vec::new() };
        let watched = |namespace: String| {
            let mut open = open.lock();
            if let Some((cache, _)) = open.get(&namespace) {
                return cache.clone();
            }
            let (cache, subscription) =
                engine.controller.watch_while(engine.target::<T>(Some(&namespace)), trigger.clone());
            // An object that has changed meanwhile was told of before there was something to forget.
            if is_named(&namespace) {
                open.insert(namespace, (cache.clone(), subscription));
            }
            cache
        };
        beyond(object).into_iter().map(watched).collect()
    })
}

/// Which objects of a kind are looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// What is wrong with a selector: it is said where an error can be returned.
    wrong: Option<String>,
}

impl Selection {
    pub fn labels(&mut self, selector: &str) {
        match LabelSelector::parse(selector) {
            Ok(labels) => self.labels = labels,
            Err(error) => self.wrong = Some(format!("the label selector {selector:?} does not read: {error}")),
        }
    }

    pub fn fields(&mut self, selector: &str) {
        match FieldSelector::parse(selector) {
            Ok(fields) => self.fields = fields,
            Err(error) => self.wrong = Some(format!("the field selector {selector:?} does not read: {error}")),
        }
    }

    /// Whether the selectors can be used.
    pub fn check(&self, kind: &str) -> Result<()> {
        match &self.wrong {
            Some(wrong) => Err(Error::permanent(format!("{kind} cannot be watched: {wrong}"))),
            None => Ok(()),
        }
    }

    /// A target that is no more than this.
    pub fn of(&self, target: Target) -> Target {
        target.labelled(&self.labels).fielded(self.fields.to_string())
    }
}
