//! Server-side apply, and the field ownership that other writes record.
//! In: the live object, the new object or the applied configuration, and the field manager. Out: the object with its
//! `metadata.managedFields`, or the conflicts.
//!
//! ```text
//!  update   compare live and new ─▶ take changed fields from others ─▶ own them
//!  apply    check ─▶ merge ─▶ prune what is no longer applied ─▶ compare ─▶ conflicts or take ─▶ own
//! ```
//!
//! It knows nothing of defaults, admission or storage. A manager that wrote in another version of a kind owns the same
//! paths in this version: built-in kinds, and custom resources without conversion, have the same fields in every served
//! version.

mod compare;
mod conflict;
mod empty_object;
mod last_applied;
mod merge;
mod owned_fields;
mod prune;
mod remove;
mod type_ref;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use compare::Changes;
use conflict::find_conflicts;
pub use conflict::{ApplyError, Conflict, Conflicts};
pub use empty_object::empty_object;
use type_ref::TypeRef;

use crate::arena::{Arena, TypeId};
use crate::field_set::{FieldSet, equal_values};
use crate::managed_fields::{
    ManagedEntry, ManagedFields, Operation, is_reset, set_managed_fields, take_managed_fields,
};

/// A field manager that writes one object: who writes, which kind, through which endpoint, and when.
///
/// ```
/// use konverge_schema::{FieldSet, FieldManager, empty_object, kubernetes};
/// use serde_json::json;
///
/// let arena = kubernetes();
/// let ty = arena.named("io.k8s.api.core.v1.ConfigMap").expect("is published");
/// let a = FieldManager {
///     arena,
///     ty,
///     api_version: "v1",
///     kind: "ConfigMap",
///     subresource: "",
///     manager: "a",
///     reset: &FieldSet::default(),
///     empty_object: &empty_object(arena, ty),
///     now: "2026-01-01T00:00:00Z",
/// };
/// let config = |value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": value}});
/// let live = a.apply(None, &config("1"), false)?;
///
/// let b = FieldManager { manager: "b", ..a };
/// let refused = b.apply(Some(&live), &config("2"), false).expect_err("a owns it");
/// assert_eq!(refused.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .data.k"#);
/// assert_eq!(b.apply(Some(&live), &config("2"), true)?["data"]["k"], "2");
/// # Ok::<(), konverge_schema::ApplyError>(())
/// ```
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The types.
    pub arena: &'a Arena,
    /// The type of the object.
    pub ty: TypeId,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    /// The kind of the object: `Deployment`.
    pub kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
    /// The name of the field manager.
    pub manager: &'a str,
    /// Fields that this endpoint does not write, with everything below them: `status` for the object itself.
    pub reset: &'a FieldSet,
    /// The empty object of the kind: [`empty_object`] for built-in kinds, `{}` for custom resources.
    pub empty_object: &'a Value,
    /// The time, as RFC 3339 in UTC with whole seconds.
    pub now: &'a str,
}

/// Fields that no manager owns, because the server sets them on every object.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
    .map(|name| ["metadata", name]);
    let top: [&[&str]; 3] = [&["apiVersion"], &["kind"], &["metadata"]];
    FieldSet::of_fields(top.into_iter().chain(metadata.iter().map(|path| &path[..])))
});

/// The manager of the fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The only manager whose client-side apply is migrated to server-side apply.
const KUBECTL: &str = "kubectl";

/// Every field and list item of the object, except for structs that are implied by their fields.
pub fn to_field_set(arena: &Arena, ty: TypeId, object: &Value) -> FieldSet {
    owned_fields::fields_of(TypeRef::new(arena, ty), object)
}

/// What `new` changes in `old`.
pub fn compare(arena: &Arena, ty: TypeId, old: &Value, new: &Value) -> Changes {
    compare::compare(TypeRef::new(arena, ty), old, new)
}

/// Merges a configuration into an object: maps and lists of type map or set are merged entry by entry, atomic values are
/// replaced, nothing is removed.
pub fn merge(arena: &Arena, ty: TypeId, live: &mut Value, config: &Value) {
    merge::merge(TypeRef::new(arena, ty), live, config);
}

/// The object without these fields.
pub fn remove_fields(arena: &Arena, ty: TypeId, object: &Value, fields: &FieldSet) -> Value {
    remove::remove(TypeRef::new(arena, ty), object, fields)
}

/// The object with nothing but these fields.
pub fn extract_fields(arena: &Arena, ty: TypeId, object: &Value, fields: &FieldSet) -> Value {
    remove::extract(TypeRef::new(arena, ty), object, fields)
}

/// Checks that a configuration fits its type. The error is the text that server-side apply answers with.
pub fn check_applied(arena: &Arena, ty: TypeId, config: &Value) -> Result<(), String> {
    type_ref::check(TypeRef::new(arena, ty), config)
}

impl<'a> FieldManager<'a> {
    /// Brings `managedFields` of a created, replaced or patched object up to date; `live` is `None` for a
    /// create. A client may set `managedFields` as well: a valid list replaces the live one, `[]` and `[{}]` reset it. A
    /// write that changes no field changes no manager.
    pub fn update(&self, live: Option<&Value>, new: &mut Value) {
        let given = take_managed_fields(new);
        let kept = live.and_then(|live| live.pointer("/metadata/managedFields"));
        // Through a subresource managers cannot be set.
        let given = given.filter(|given| self.subresource.is_empty() && Some(given) != kept);

        let changes = self.changes(live.unwrap_or(self.empty_object), new);
        if live.is_some() && given.is_none() && changes.is_empty() {
            return set_managed_fields(new, kept.cloned());
        }
        let kept = || kept.and_then(|kept| ManagedFields::decode(kept).ok()).unwrap_or_default();
        let mut managed = match given {
            None => kept(),
            Some(given) if is_reset(&given) => ManagedFields::default(),
            Some(given) => ManagedFields::decode(&given).ok().filter(|m| !m.entries.is_empty()).unwrap_or_else(kept),
        };
        // An object without managers is tracked from its first apply on.
        if live.is_some() && managed.entries.is_empty() {
            return;
        }
        self.reconcile(&mut managed);
        self.record_update(&mut managed, changes, self.manager);
        managed.write_to(new);
    }

    /// Merges an applied configuration into the live object, `None` if it is to be created. Fields that the
    /// manager applied before and no longer applies are removed, unless other managers own them, too. A field that another
    /// manager owns with another value is a conflict, unless forced. The caller defaults and validates the result.
    pub fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, ApplyError> {
        self.check_request(config)?;
        let mut managed = live.map_or(Ok(ManagedFields::default()), ManagedFields::of)?;
        let base = live.map_or_else(|| self.nothing(), without_managed_fields);
        type_ref::check(self.type_ref(), config)
            .map_err(|why| ApplyError::Typed { object: self.describe(config), why })?;
        if live.is_some() && managed.entries.is_empty() {
            let changes = self.changes(self.empty_object, &base);
            self.record_update(&mut managed, changes, BEFORE_FIRST_APPLY);
        }
        self.reconcile(&mut managed);

        let again = (self.manager == KUBECTL && !force).then(|| managed.clone());
        let applied = match (self.merge_and_own(&base, config, managed, force), again) {
            (Err(conflicts), Some(managed)) => {
                let allowed =
                    last_applied::fields_to_take_over(self.type_ref(), &base, self.api_version).unwrap_or_default();
                let refused = conflicts.outside(&allowed);
                if !refused.0.is_empty() {
                    return Err(ApplyError::Conflict(refused));
                }
                self.merge_and_own(&base, config, managed, true)
            }
            (other, _) => other,
        };
        let (mut object, managed) = applied.map_err(ApplyError::Conflict)?;
        if self.manager == KUBECTL {
            last_applied::refresh(&mut object, config);
        }
        managed.write_to(&mut object);
        Ok(object)
    }

    fn type_ref(&self) -> TypeRef<'a> {
        TypeRef::new(self.arena, self.ty)
    }

    fn nothing(&self) -> Value {
        Value::Object(Map::new())
    }

    fn entry(&self, manager: &str, operation: Operation) -> ManagedEntry {
        ManagedEntry {
            manager: if manager.is_empty() { "unknown" } else { manager }.into(),
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
            time: None,
            fields: FieldSet::default(),
        }
    }

    /// The changes of fields that this endpoint writes and that can be owned.
    fn changes(&self, old: &Value, new: &Value) -> Changes {
        compare::compare(self.type_ref(), old, new).without(self.reset).except(&NEVER_OWNED)
    }

    /// Adapts field sets that were recorded for an older version of the type.
    fn reconcile(&self, managed: &mut ManagedFields) {
        for entry in &mut managed.entries {
            if let Some(fields) = owned_fields::reconciled(self.type_ref(), &entry.fields) {
                entry.fields = fields;
            }
        }
    }

    /// Makes a manager the owner of the changed fields.
    fn record_update(&self, managed: &mut ManagedFields, changes: Changes, manager: &str) {
        let Changes { added: mut taken, modified, removed } = changes;
        taken.add_all(modified);
        for entry in &mut managed.entries {
            entry.fields.remove_all(&taken);
            entry.fields.remove_all(&removed);
        }
        if !taken.is_empty() {
            let entry = managed.entry(self.entry(manager, Operation::Update));
            entry.fields.add_all(taken);
            entry.time = Some(self.now.into());
        }
        managed.entries.retain(|entry| !entry.fields.is_empty());
        managed.cap_updaters();
    }

    fn check_request(&self, config: &Value) -> Result<(), ApplyError> {
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return Err(ApplyError::BadRequest(format!("invalid object type: {}", group_version_kind(config))));
        }
        match config.pointer("/metadata/managedFields") {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(ApplyError::BadRequest("metadata.managedFields must be nil".into())),
        }
    }

    fn describe(&self, config: &Value) -> String {
        let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        format!("{}/{}; {}", text("/metadata/namespace"), text("/metadata/name"), group_version_kind(config))
    }

    fn merge_and_own(
        &self,
        base: &Value,
        config: &Value,
        mut managed: ManagedFields,
        force: bool,
    ) -> Result<(Value, ManagedFields), Conflicts> {
        let mut object = base.clone();
        merge::merge(self.type_ref(), &mut object, config);

        let mut set = owned_fields::fields_of(self.type_ref(), config);
        set.remove_all_below(self.reset);
        let this = self.entry(self.manager, Operation::Apply);
        let entry = managed.entry(this.clone());
        let last = std::mem::replace(&mut entry.fields, set);
        entry.api_version = self.api_version.into();
        if !last.difference(&entry.fields).is_empty() {
            object = prune::prune(self.type_ref(), &object, &managed, &last);
        }

        let changes = compare::compare(self.type_ref(), base, &object).without(self.reset);
        let Changes { added: mut taken, modified, removed } = changes;
        taken.add_all(modified);
        if !force {
            find_conflicts(&managed, &this, &taken)?;
        }
        let changed = !equal_values(base, &object);
        for entry in &mut managed.entries {
            if !entry.is_same_manager(&this) {
                entry.fields.remove_all(&taken);
                entry.fields.remove_all(&removed);
                continue;
            }
            entry.fields.remove_all(&NEVER_OWNED);
            if changed {
                entry.time = Some(self.now.into());
            }
        }
        managed.entries.retain(|entry| !entry.fields.is_empty());
        Ok((object, managed))
    }
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for the core group.
fn group_version_kind(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    format!("{group}/{version}, Kind={}", text("kind"))
}

/// A copy without `managedFields`, which are the larger part of many objects.
fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let metadata = |value: &Value| {
        let kept = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "managedFields");
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let copy = |(name, value): (&String, &Value)| {
        let value = if name == "metadata" { metadata(value) } else { value.clone() };
        (name.clone(), value)
    };
    Value::Object(fields.iter().map(copy).collect())
}

#[cfg(test)]
mod tests;
