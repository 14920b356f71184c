//! An object of a built-in kind as kube-apiserver shows it: decoded into Go structs, stored and written as JSON again.
//! In: an object whose types were checked and whose unknown fields were pruned. Out: the same with quantities and times in
//! their canonical text, without fields that `omitempty` leaves out, and with those that Go always writes.
//!
//! What Go knows of its structs is in the table of protobuf messages, which the decoder of protobuf bodies reads, too: so an
//! object is the same whichever way it was sent.

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use crate::budget::{Budget, OverBudget};
use crate::decode::canonical_quantity;
use crate::protobuf::table::{self, Field, Item, MessageId, Omit, Shape, Table, is_empty};

/// The moment that Go calls zero and writes as null.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// What becomes of lists and maps that are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyLists {
    /// They stay, as after decoding: defaulting tells an empty list from none.
    Kept,
    /// They go, as storing drops them.
    Dropped,
}

/// Brings an object into the form that kube-apiserver has it in. Kinds that are not built in are left alone. Returns whether there
/// are empty lists or maps that storing would drop.
///
/// ```
/// use konverge_schema::{Budget, EmptyLists, canonicalize};
/// use serde_json::json;
/// let mut claim = json!({"spec": {"resources": {"requests": {"storage": "1024Mi"}}, "volumeName": "", "accessModes": []}});
/// canonicalize("v1", "PersistentVolumeClaim", &mut claim, EmptyLists::Dropped, Budget::unlimited()).unwrap();
/// assert_eq!(claim["spec"], json!({"resources": {"requests": {"storage": "1Gi"}}}));
/// assert_eq!(claim["status"], json!({}));
/// ```
pub fn canonicalize(
    api_version: &str,
    kind: &str,
    object: &mut Value,
    empty: EmptyLists,
    budget: &Budget,
) -> Result<bool, OverBudget> {
    let table = table::kubernetes();
    let canonical = Canonical { table, empty, found_empty: Cell::new(false), budget };
    if let (Some(message), Value::Object(fields)) = (table.kind(api_version, kind), object) {
        canonical.fields(message, fields)?;
    }
    Ok(canonical.found_empty.get())
}

struct Canonical<'a> {
    table: &'a Table,
    empty: EmptyLists,
    found_empty: Cell<bool>,
    budget: &'a Budget,
}

impl Canonical<'_> {
    fn fields(&self, id: MessageId, object: &mut Map<String, Value>) -> Result<(), OverBudget> {
        for field in &self.table.message(id).fields {
            if let Shape::Inline(inner) = field.shape {
                self.fields(inner, object)?;
                continue;
            }
            match object.get_mut(field.name) {
                Some(value) => {
                    if !self.field(field, value)? {
                        object.remove(field.name);
                    }
                }
                None => {
                    let mut value = Value::Null;
                    if self.field(field, &mut value)? {
                        self.produce(field.name.len() + 8)?;
                        object.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes the value of a field, which is null if it was not sent. Says whether Go writes the field.
    fn field(&self, field: &Field, value: &mut Value) -> Result<bool, OverBudget> {
        match (field.shape, &mut *value) {
            (Shape::List(item), Value::Array(items)) if !items.is_empty() => {
                items.iter_mut().try_for_each(|value| self.item(item, value))?;
                return Ok(true);
            }
            (Shape::Map(item), Value::Object(entries)) if !entries.is_empty() => {
                entries.values_mut().try_for_each(|value| self.item(item, value))?;
                return Ok(true);
            }
            (Shape::List(_), Value::Array(_)) | (Shape::Map(_), Value::Object(_)) if self.empty == EmptyLists::Kept => {
                self.found_empty.set(true);
                return Ok(true);
            }
            // Storing an empty list or map makes it one that is not there.
            (Shape::List(_) | Shape::Map(_), _) => *value = Value::Null,
            (Shape::One(Item::Bytes), Value::Null) => {}
            (Shape::One(_), Value::Null) if field.pointer => {}
            (Shape::One(item), _) => {
                self.item(item, value)?;
                return Ok(match field.omit {
                    Omit::Never => true,
                    Omit::Empty => field.pointer || !is_empty(item, value),
                    Omit::Zero => !value.is_null(),
                });
            }
            (Shape::Inline(_), _) => {}
        }
        Ok(field.omit == Omit::Never)
    }

    /// Changes a single value. Null becomes Go's zero value.
    fn item(&self, item: Item, value: &mut Value) -> Result<(), OverBudget> {
        match (item, &mut *value) {
            (Item::String | Item::Bytes, Value::Null) => *value = "".into(),
            (Item::Bool, Value::Null) => *value = false.into(),
            (Item::Int32 | Item::Int64 | Item::Double | Item::IntOrString, Value::Null) => *value = 0.into(),
            (Item::Double, Value::Number(number)) => {
                if let Some(whole) = whole(number) {
                    *value = whole.into();
                }
            }
            (Item::Time, Value::String(text)) => *value = time(text, "%Y-%m-%dT%H:%M:%SZ"),
            (Item::MicroTime, Value::String(text)) => *value = time(text, "%Y-%m-%dT%H:%M:%S.%6fZ"),
            (Item::Quantity, Value::Null) => *value = "0".into(),
            (Item::Quantity, quantity) => {
                if let Some(text) = canonical_quantity(quantity) {
                    *value = text.into();
                }
            }
            (Item::Bytes, Value::String(text)) => text.retain(|c| !matches!(c, '\r' | '\n')),
            // Go also reads bytes from a list of numbers.
            (Item::Bytes, Value::Array(numbers)) => {
                let bytes: Vec<u8> = numbers.iter().filter_map(|number| u8::try_from(number.as_u64()?).ok()).collect();
                *value = STANDARD.encode(bytes).into();
            }
            (Item::Message(id), _) => self.message(id, value)?,
            _ => {}
        }
        Ok(())
    }

    fn message(&self, id: MessageId, value: &mut Value) -> Result<(), OverBudget> {
        let message = self.table.message(id);
        if message.transparent {
            // A list that is a type of its own is there even if it is empty.
            if let [Field { shape: Shape::List(_), .. }] = &*message.fields
                && value.as_array().is_none_or(Vec::is_empty)
            {
                *value = Value::Array(Vec::new());
                return Ok(());
            }
            // The form of the value tells which of the fields it is.
            let meant = message.fields.iter().find(|field| {
                matches!(
                    (field.shape, &*value),
                    (Shape::List(_), Value::Array(_)) | (Shape::One(Item::Message(_)), Value::Object(_))
                )
            });
            return meant.map_or(Ok(()), |field| self.field(field, value).map(|_| ()));
        }
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(fields) => self.fields(id, fields),
            _ => Ok(()),
        }
    }

    fn produce(&self, bytes: usize) -> Result<(), OverBudget> {
        if self.budget.produce(bytes) { Ok(()) } else { Err(self.budget.check().err().unwrap_or(OverBudget::Bytes)) }
    }
}

/// A number without a fraction, which Go writes as an integer.
fn whole(number: &Number) -> Option<i64> {
    let value = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < 1e15)?;
    (value != 0.0 || value.is_sign_positive()).then_some(value as i64)
}

/// A moment in UTC with the precision that its type has.
fn time(text: &str, format: &str) -> Value {
    if text == ZERO_TIME {
        return Value::Null;
    }
    match text.parse::<Timestamp>() {
        Ok(moment) => {
            let moment = moment.strftime(format).to_string();
            if moment.starts_with("0001-01-01T00:00:00Z") { Value::Null } else { moment.into() }
        }
        // Times that Go reads and this parser does not, such as an hour of one digit, stay as they are.
        Err(_) => text.into(),
    }
}

#[cfg(test)]
mod tests;
