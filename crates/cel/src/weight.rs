//! What a call takes that its cost does not count. In: a function and its arguments, before it is called. Out: whether the budget
//! of the request pays for it.
//!
//! The costs of cel-go count what is directly in a list. But lists can be doubled for the cost of one step, texts can be
//! multiplied by each other, and a list that has another one twice is as long as all of it together when it is compared or
//! written. Thirty such steps would fill the memory.

use konverge_schema::Budget;
use serde_json::Value as Json;

use crate::value::{List, Map, Value};

/// What an item of a new list takes. A request has 20 million steps, so that its lists stay below 100 MB.
const STEPS_PER_ITEM: u64 = 16;

/// How many bytes of a text are written in one step, so that its texts stay below 160 MB.
const BYTES_PER_STEP: usize = 8;

/// Functions that look at everything inside their arguments, or make more of them than their cost says.
pub(crate) fn is_heavy(function: &str) -> bool {
    let functions = ["_+_", "@in", "distinct", "flatten", "format", "indexOf", "join", "lastIndexOf", "replace"];
    functions.contains(&function) || function.starts_with("sets.")
}

/// Pays for a call of such a function. `false` says that the budget is used up.
pub(crate) fn pay(function: &str, args: &[Value<'_>], budget: &Budget) -> bool {
    match (function, args) {
        ("_+_", [Value::List(one), Value::List(other)]) => {
            budget.spend((one.len() + other.len()) as u64 * STEPS_PER_ITEM)
        }
        ("_+_", _) => true,
        ("replace", [Value::String(text), Value::String(old), Value::String(new), ..]) => {
            let places = text.len() / old.len().max(1) + 1;
            budget.spend((places.saturating_mul(new.len()) / BYTES_PER_STEP) as u64)
        }
        _ => args.iter().all(|arg| pay_for_content(arg, budget)),
    }
}

/// Pays for looking at everything inside a list or a map.
pub(crate) fn pay_for_content(value: &Value<'_>, budget: &Budget) -> bool {
    match value {
        Value::String(text) => budget.spend((text.len() / BYTES_PER_STEP) as u64),
        Value::List(List::Json { items, .. } | List::Dynamic(items)) => {
            items.iter().all(|item| pay_for_json(item, budget))
        }
        Value::List(List::Owned { items, .. }) => {
            items.iter().all(|item| budget.spend(1) && pay_for_content(item, budget))
        }
        Value::Map(Map::Json { map, .. } | Map::Dynamic(map)) => map.values().all(|value| pay_for_json(value, budget)),
        Value::Map(Map::Owned(entries)) => {
            entries.values().all(|(_, value)| budget.spend(1) && pay_for_content(value, budget))
        }
        Value::Object(object) => object.fields.values().all(|value| budget.spend(1) && pay_for_content(value, budget)),
        Value::Optional(Some(inner)) => pay_for_content(inner, budget),
        _ => true,
    }
}

fn pay_for_json(json: &Json, budget: &Budget) -> bool {
    let own = match json {
        Json::String(text) => text.len() / BYTES_PER_STEP,
        _ => 0,
    };
    budget.spend(1 + own as u64)
        && match json {
            Json::Array(items) => items.iter().all(|item| pay_for_json(item, budget)),
            Json::Object(fields) => fields.values().all(|value| pay_for_json(value, budget)),
            _ => true,
        }
}
