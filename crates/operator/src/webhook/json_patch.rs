//! What a function changed, as a JSON Patch (RFC 6902). In: the text of an object as it was sent, and of the same object before
//! and after the function as its Rust type writes it. Out: the operations. Pure.
//!
//! A Rust type may not know all fields of an object, and may show fields that nobody set. Neither must get into the patch:
//! only what differs between `before` and `after` is carried over to the object that was sent ([`carry_over`]).
//!
//! Most functions change few fields of a large object. Texts are compared as bytes, and only what differs is decoded, instead of three
//! trees of the whole object.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use konverge_runtime::json_text::{Members, items, member, members, string, unescaped};
use serde_json::{Map, Value, json};

/// The operations that make `sent` differ as `after` differs from `before`; none if nothing differs.
pub(super) fn patch(sent: &str, before: &str, after: &str) -> serde_json::Result<Vec<Value>> {
    let mut patch = Patch::default();
    patch.compare(sent, before, after)?;
    Ok(patch.operations)
}

/// Operations, and the path of the values that are compared next.
#[derive(Default)]
struct Patch {
    path: String,
    operations: Vec<Value>,
}

impl Patch {
    /// Appends what makes `sent` differ as `after` differs from `before`.
    fn compare(&mut self, sent: &str, before: &str, after: &str) -> serde_json::Result<()> {
        if before == after {
            return Ok(());
        }
        match [sent, before, after].map(|text| text.trim_ascii_start().as_bytes().first().copied()) {
            [Some(b'{'), Some(b'{'), Some(b'{')] => {
                if let Some((name, before, after)) = only_difference(before, after)
                    && let Some(sent) = member(sent, &name)
                {
                    return self.at_field(&name, |patch| patch.compare(sent, before, after));
                }
                self.compare_fields(&fields(sent), &fields(before), &fields(after))
            }
            [Some(b'['), Some(b'['), Some(b'[')] => {
                let lists = [sent, before, after].map(|text| items(text).collect::<Vec<_>>());
                match &lists {
                    [sent, before, after] if is_in_place(sent, before, after) => {
                        self.compare_items(sent, before, after)
                    }
                    _ => self.compare_values(sent, before, after),
                }
            }
            _ => self.compare_values(sent, before, after),
        }
    }

    fn compare_fields(&mut self, sent: &Fields<'_>, before: &Fields<'_>, after: &Fields<'_>) -> serde_json::Result<()> {
        for (name, sent) in sent {
            self.at_field(name, |patch| match (before.get(name), after.get(name)) {
                (Some(before), Some(after)) => patch.compare(sent, before, after),
                (None, Some(after)) => {
                    diff(&value(sent)?, &value(after)?, &mut patch.path, &mut patch.operations);
                    Ok(())
                }
                (Some(_), None) => {
                    patch.operations.push(json!({"op": "remove", "path": patch.path}));
                    Ok(())
                }
                (None, None) => Ok(()),
            })?;
        }
        for (name, after) in after.iter().filter(|(name, _)| !sent.contains_key(*name)) {
            let is_unchanged = match before.get(name) {
                Some(before) => before == after || value(before)? == value(after)?,
                None => false,
            };
            if !is_unchanged {
                let added = value(after)?;
                self.at_field(name, |patch| {
                    patch.operations.push(json!({"op": "add", "path": patch.path, "value": added}));
                });
            }
        }
        Ok(())
    }

    /// The items of lists [in place](is_in_place).
    fn compare_items(&mut self, sent: &[&str], before: &[&str], after: &[&str]) -> serde_json::Result<()> {
        for (at, ((sent, before), after)) in sent.iter().zip(before).zip(after).enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("/{at}"));
            self.compare(sent, before, after)?;
            self.path.truncate(length);
        }
        for added in after.iter().skip(before.len()) {
            self.operations.push(json!({"op": "add", "path": format!("{}/-", self.path), "value": value(added)?}));
        }
        remove_from_end(&self.path, before.len(), after.len(), &mut self.operations);
        Ok(())
    }

    /// What no text can tell is decoded.
    fn compare_values(&mut self, sent: &str, before: &str, after: &str) -> serde_json::Result<()> {
        let sent = value(sent)?;
        let mut wanted = sent.clone();
        carry_over(&mut wanted, &value(before)?, &value(after)?);
        diff(&sent, &wanted, &mut self.path, &mut self.operations);
        Ok(())
    }

    fn at_field<R>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        push_field(&mut self.path, name);
        let done = act(self);
        self.path.truncate(length);
        done
    }
}

/// The text of each field of an object by its name. Of two fields with the same name the last one counts, as in a [`Value`].
type Fields<'a> = BTreeMap<Cow<'a, str>, &'a str>;

fn fields(text: &str) -> Fields<'_> {
    members(text).map(|(name, value)| (unescaped(name), value)).collect()
}

fn value(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text)
}

/// The only field whose values differ in two objects that have the same fields in the same order, with both values. What
/// follows it is compared at once and not read.
fn only_difference<'a>(before: &'a str, after: &'a str) -> Option<(Cow<'a, str>, &'a str, &'a str)> {
    let (mut befores, mut afters): (Members<'a>, Members<'a>) = (members(before), members(after));
    loop {
        let ((name, before), (other_name, after)) = (befores.next()?, afters.next()?);
        if name != other_name {
            return None;
        }
        if before != after {
            return (befores.rest() == afters.rest()).then(|| (unescaped(name), before, after));
        }
    }
}

/// Whether every item that `after` has in common with `before` is at the place where it was, so that items can be compared by
/// place: what is more is new, what is less was at the end. See [`place_of`].
fn is_in_place(sent: &[&str], before: &[&str], after: &[&str]) -> bool {
    if sent.len() != before.len() {
        return false;
    }
    let mut places = HashMap::new();
    for (at, item) in before.iter().enumerate() {
        places.entry(identity(item)).or_insert(at);
    }
    after.iter().enumerate().all(|(at, item)| {
        let (identity, expected) = (identity(item), (at < before.len()).then_some(at));
        let place = places.get(&identity).copied();
        match identity {
            Identity::Name(_) => place == expected,
            // Only values tell whether lists and objects without a name are equal to one that was there before.
            Identity::Text(text) if place.is_none() => !text.starts_with(['{', '[']),
            Identity::Text(_) => place == expected,
        }
    })
}

/// How an item of a list is told apart from others.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Name(Cow<'a, str>),
    Text(&'a str),
}

fn identity(item: &str) -> Identity<'_> {
    member(item, "name").and_then(string).map_or(Identity::Text(item), Identity::Name)
}

/// Changes `target` as `before` was changed to `after`, and leaves alone what both have in common.
fn carry_over(target: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (&mut *target, before, after) {
        (Value::Object(target), Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                target.remove(key);
            }
            for (key, after) in after {
                match (target.get_mut(key), before.get(key)) {
                    (Some(there), Some(before)) => carry_over(there, before, after),
                    (None, Some(before)) if before == after => {}
                    _ => drop(target.insert(key.clone(), after.clone())),
                }
            }
        }
        // Items are told apart by where they were. An item that is new, or has moved, is taken from `after` as it is, unless
        // an equal one or one of the same name was there before.
        (Value::Array(items), Value::Array(before), Value::Array(after)) if items.len() == before.len() => {
            let carried = after.iter().enumerate().map(|(at, after)| match place_of(after, at, before) {
                Some(place) => {
                    let mut item = items[place].clone();
                    carry_over(&mut item, &before[place], after);
                    item
                }
                None => after.clone(),
            });
            *items = carried.collect();
        }
        _ => *target = after.clone(),
    }
}

/// Where an item was before: the one with its name, else one that is equal, else the one at the same place.
fn place_of(after: &Value, at: usize, before: &[Value]) -> Option<usize> {
    if let Some(name) = name_of(after) {
        return before.iter().position(|item| name_of(item) == Some(name));
    }
    before.iter().position(|item| item == after).or((at < before.len()).then_some(at))
}

/// The name of an item of a list, such as a container or a variable.
fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Appends the operations that make `to` of `from`, which are at `path`.
fn diff(from: &Value, to: &Value, path: &mut String, operations: &mut Vec<Value>) {
    if from == to {
        return;
    }
    let length = path.len();
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            diff_fields(from, to, path, operations);
        }
        (Value::Array(from), Value::Array(to)) => {
            for (at, (from, to)) in from.iter().zip(to).enumerate() {
                path.push_str(&format!("/{at}"));
                diff(from, to, path, operations);
                path.truncate(length);
            }
            for to in to.iter().skip(from.len()) {
                operations.push(json!({"op": "add", "path": format!("{path}/-"), "value": to}));
            }
            remove_from_end(path, from.len(), to.len(), operations);
        }
        _ => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

fn diff_fields(from: &Map<String, Value>, to: &Map<String, Value>, path: &mut String, operations: &mut Vec<Value>) {
    let length = path.len();
    for key in from.keys().chain(to.keys().filter(|key| !from.contains_key(*key))) {
        push_field(path, key);
        match (from.get(key), to.get(key)) {
            (Some(from), Some(to)) => diff(from, to, path, operations),
            (None, Some(to)) => operations.push(json!({"op": "add", "path": path, "value": to})),
            (_, None) => operations.push(json!({"op": "remove", "path": path})),
        }
        path.truncate(length);
    }
}

/// Removes the last items of a list from the end, so that no index moves.
fn remove_from_end(path: &str, before: usize, after: usize, operations: &mut Vec<Value>) {
    operations.extend((after..before).rev().map(|at| json!({"op": "remove", "path": format!("{path}/{at}")})));
}

/// Appends a field to a JSON pointer.
fn push_field(path: &mut String, name: &str) {
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests;
