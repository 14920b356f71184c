//! The items of a list of type map, found by their keys. In: the list before an update. Out: the item that was what another
//! item is now. Looking at each item once keeps the work in proportion to the list.

use std::collections::HashMap;

use serde_json::Value;

use crate::budget::Budget;

/// A list, indexed by the fields that identify its items.
#[derive(Debug)]
pub struct ItemsByKey<'o> {
    keys: &'o [Box<str>],
    items: &'o [Value],
    index: HashMap<Vec<&'o Value>, usize>,
}

impl<'o> ItemsByKey<'o> {
    /// Indexes a list by these fields. Items that lack one cannot be found, and of equal ones the first is.
    ///
    /// ```
    /// use konverge_schema::{Budget, ItemsByKey};
    /// use serde_json::json;
    /// let old = [json!({"name": "web", "port": 80}), json!({"port": 81})];
    /// let keys = ["name".into()];
    /// let items = ItemsByKey::new(&keys, &old, Budget::unlimited());
    /// assert_eq!(items.find(&json!({"name": "web", "port": 82})), Some(&old[0]));
    /// assert_eq!(items.find(&json!({"port": 81})), None);
    /// ```
    pub fn new(keys: &'o [Box<str>], items: &'o [Value], budget: &Budget) -> Self {
        let mut index = HashMap::new();
        // Without keys nothing identifies an item. Whoever is over its budget returns soon.
        if !keys.is_empty() && budget.spend(items.len() as u64) {
            for (at, item) in items.iter().enumerate() {
                if let Some(key) = key_of(item, keys) {
                    index.entry(key).or_insert(at);
                }
            }
        }
        Self { keys, items, index }
    }

    /// The item with the same keys.
    pub fn find(&self, item: &Value) -> Option<&'o Value> {
        self.index.get(&key_of(item, self.keys)?).map(|at| &self.items[*at])
    }
}

/// The values of the keys, if each is there and is simple.
fn key_of<'v>(item: &'v Value, keys: &[Box<str>]) -> Option<Vec<&'v Value>> {
    let item = item.as_object()?;
    let simple = |value: &&Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    keys.iter().map(|name| item.get(&**name).filter(simple)).collect()
}
