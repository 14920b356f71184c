//! The defaults of built-in kinds. In: a table of rules by type, which is written by hand, and an object. Out: the object as Go
//! has it after decoding and defaulting. Never validates, and changes the text of a value, but never its meaning. Defaults that
//! the published types declare are filled in by the schema.

mod image;
mod pod_resources;
mod rule;

use std::sync::OnceLock;

use hashbrown::{HashMap, HashSet};
use serde_json::Value;

use konverge_schema::{Arena, Budget, EmptyLists, OverBudget, Shape, TypeId, canonicalize, kubernetes};

use crate::resource::Resource;
use rule::Rule;

/// Fills in the defaults of an object: those that its types declare, then those that Go adds. Go decodes an object of a built-in
/// kind first: an empty text is no text by then, and gets its default.
pub(crate) fn fill(resource: &Resource, object: &mut Value, budget: &Budget) -> Result<(), OverBudget> {
    static TABLE: OnceLock<DefaultsTable> = OnceLock::new();
    let schema = &resource.schema;
    let canonical = |object: &mut Value, empty| {
        let (version, kind) = (resource.api_version(), &resource.kind);
        if resource.custom { Ok(false) } else { canonicalize(&version, kind, object, empty, budget) }
    };
    let has_empty = canonical(object, EmptyLists::Kept)?;
    konverge_schema::default(&schema.arena, schema.root, object, budget)?;
    if !resource.custom {
        let table = TABLE.get_or_init(|| {
            let table = DefaultsTable::read(include_str!("../data/kubernetes.defaults"), kubernetes());
            table.expect("a test reads the committed table")
        });
        table.fill(&schema.arena, schema.root, object);
    }
    if has_empty {
        // An empty list of managed fields asks to forget all managers, and is gone once that is done.
        let forget = object["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
        canonical(object, EmptyLists::Dropped)?;
        if forget {
            object["metadata"]["managedFields"] = Value::Array(Vec::new());
        }
    }
    Ok(())
}

/// The rules of every type that has some.
struct DefaultsTable {
    rules: HashMap<TypeId, Vec<Rule>>,
    /// Types that have rules, or contain types that do. Nothing else is visited.
    touched: HashSet<TypeId>,
}

impl DefaultsTable {
    fn read(text: &'static str, types: &Arena) -> Result<Self, String> {
        let mut aliases = HashMap::new();
        let mut rules: HashMap<TypeId, Vec<Rule>> = HashMap::new();
        let mut open = None;
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: {line:?} is not understood", at + 1);
            if let Some(alias) = line.strip_prefix('@') {
                let (alias, package) = alias.split_once(' ').ok_or_else(wrong)?;
                aliases.insert(alias, package);
            } else if let Some(rule) = line.strip_prefix("  ") {
                let id = open.ok_or_else(wrong)?;
                rules.entry(id).or_default().push(Rule::read(rule).ok_or_else(wrong)?);
            } else {
                let (alias, name) = line.split_once('.').ok_or_else(wrong)?;
                let id = aliases.get(alias).and_then(|package| types.named(&format!("{package}.{name}")));
                open = Some(id.filter(|id| !rules.contains_key(id)).ok_or_else(wrong)?);
            }
        }
        let touched = holders(types, &rules);
        Ok(Self { rules, touched })
    }

    /// Top-down, so that what a rule adds is filled in as well.
    fn fill(&self, arena: &Arena, ty: TypeId, value: &mut Value) {
        if !self.touched.contains(&ty) {
            return;
        }
        for rule in self.rules.get(&ty).into_iter().flatten() {
            rule.apply(value);
        }
        match (&arena.node(ty).shape, value) {
            (Shape::Struct { fields, .. }, Value::Object(map)) => {
                for field in fields.iter().filter(|field| self.touched.contains(&field.ty)) {
                    if let Some(value) = map.get_mut(&*field.name) {
                        self.fill(arena, field.ty, value);
                    }
                }
            }
            (Shape::Map { value: ty, .. }, Value::Object(map)) => {
                map.values_mut().for_each(|value| self.fill(arena, *ty, value));
            }
            (Shape::List { item, .. }, Value::Array(items)) => {
                items.iter_mut().for_each(|value| self.fill(arena, *item, value));
            }
            _ => {}
        }
    }
}

/// The types with rules and all that hold one of them.
fn holders(types: &Arena, rules: &HashMap<TypeId, Vec<Rule>>) -> HashSet<TypeId> {
    let mut held_by: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
    let mut seen = HashSet::new();
    let mut pending: Vec<TypeId> = types.names().map(|(_, id)| id).collect();
    while let Some(id) = pending.pop() {
        if seen.insert(id) {
            types.node(id).shape.each_type(|inner| {
                held_by.entry(inner).or_default().push(id);
                pending.push(inner);
            });
        }
    }
    let mut touched = HashSet::new();
    let mut pending: Vec<TypeId> = rules.keys().copied().collect();
    while let Some(id) = pending.pop() {
        if touched.insert(id) {
            pending.extend(held_by.get(&id).into_iter().flatten());
        }
    }
    touched
}

#[cfg(test)]
mod tests;
