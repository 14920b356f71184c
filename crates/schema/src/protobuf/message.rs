//! A message as JSON. In: its bytes and its row in the table. Out: the object that Go's JSON has of it.
//!
//! A message is read in two steps. First its fields are collected in the order they were sent; then the fields of the
//! table are written one by one, each with everything that was sent for it. So fields that were not sent get Go's
//! zero value, the last of several scalars wins, and several messages for one field merge: that is how gogo decodes
//! them, and the same as reading their bytes one after the other.

use serde_json::{Map, Value};

use super::ProtobufError;
use super::scalar;
use super::table::{Field, Item, MessageId, Omit, Shape, Table, is_empty};
use super::wire::{Reader, Wire, malformed};
use crate::budget::{Budget, OverBudget};

/// How deep messages may be nested. Only the schemas of CRDs nest without an end of their own, and JSON that is deeper
/// than this is refused everywhere else, too.
const MAX_DEPTH: usize = 120;

/// What an object takes besides its fields. Two bytes of a message make one, so it is paid for by what it takes in
/// memory, and not as the two characters that it is in JSON.
const OBJECT_BYTES: usize = 128;

/// As many fields of a message are looked at in the time of one step.
const FIELDS_PER_STEP: usize = 8;

/// Decodes messages of one table.
pub(super) struct Decoder<'a> {
    table: &'a Table,
    budget: &'a Budget,
}

/// What was sent for one field of a message: the field's index in the table, and the value.
type Sent<'a> = (usize, Wire<'a>);

impl<'a> Decoder<'a> {
    pub(super) fn new(table: &'a Table, budget: &'a Budget) -> Self {
        Self { table, budget }
    }

    /// The fields of a whole object.
    pub(super) fn object(&self, id: MessageId, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
        let mut fields = Map::new();
        self.fields(id, &[(0, Wire::Bytes(bytes))], &mut fields, 0)?;
        Ok(fields)
    }

    fn message(&self, id: MessageId, sent: &[Sent<'_>], depth: usize) -> Result<Value, ProtobufError> {
        if self.table.message(id).transparent {
            return self.transparent(id, sent, depth);
        }
        let mut fields = Map::new();
        self.produce(OBJECT_BYTES)?;
        self.fields(id, sent, &mut fields, depth)?;
        Ok(Value::Object(fields))
    }

    /// Writes the fields of a message into an object.
    fn fields(
        &self,
        id: MessageId,
        sent: &[Sent<'_>],
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let collected = self.collect(id, sent, depth)?;
        let mut rest = collected.as_slice();
        for (at, field) in self.table.message(id).fields.iter().enumerate() {
            let sent = next_field(at, &mut rest);
            if let Shape::Inline(inner) = field.shape {
                self.fields(inner, sent, out, depth + 1)?;
            } else if let Some(value) = self.field(field, sent, depth)? {
                self.produce(field.name.len() + 4)?;
                out.insert(field.name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// The JSON of the last field that is set, or of the first field if none is.
    fn transparent(&self, id: MessageId, sent: &[Sent<'_>], depth: usize) -> Result<Value, ProtobufError> {
        let collected = self.collect(id, sent, depth)?;
        let mut rest = collected.as_slice();
        let mut last = Value::Null;
        for (at, field) in self.table.message(id).fields.iter().enumerate() {
            let sent = next_field(at, &mut rest);
            if at == 0 || !sent.is_empty() {
                last = self.field(field, sent, depth)?.unwrap_or_default();
            }
        }
        Ok(last)
    }

    /// What was sent for the fields of a message, in the order of the table and then of sending.
    fn collect<'m>(&self, id: MessageId, sent: &[Sent<'m>], depth: usize) -> Result<Vec<Sent<'m>>, ProtobufError> {
        let message = self.table.message(id);
        if depth >= MAX_DEPTH {
            return Err(malformed(format!("the object is nested more than {MAX_DEPTH} levels deep; make it flatter")));
        }
        self.spend(1 + message.fields.len() / FIELDS_PER_STEP)?;
        let mut collected = Vec::new();
        for (_, wire) in sent {
            let Wire::Bytes(bytes) = *wire else { continue };
            let mut reader = Reader::new(bytes, message.name);
            while let Some((number, wire)) = reader.next()? {
                self.spend(1)?;
                let Ok(at) = message.fields.binary_search_by_key(&number, |field| field.number) else { continue };
                let field = &message.fields[at];
                if !fits(field.shape, wire) {
                    return Err(wire.unexpected(field.name));
                }
                collected.push((at, wire));
            }
        }
        collected.sort_by_key(|(at, _)| *at);
        Ok(collected)
    }

    /// The JSON of a field, or nothing if Go leaves the field out.
    fn field(&self, field: &Field, sent: &[Sent<'_>], depth: usize) -> Result<Option<Value>, ProtobufError> {
        let nothing = || Ok((field.omit != Omit::Empty).then_some(Value::Null));
        match field.shape {
            Shape::List(item) => match self.list(item, sent, depth)? {
                items if items.is_empty() => nothing(),
                items => Ok(Some(items.into())),
            },
            Shape::Map(item) => match self.map(item, sent, depth)? {
                entries if entries.is_empty() => nothing(),
                entries => Ok(Some(entries.into())),
            },
            // Bytes are a list, which tells that it was sent even without a pointer.
            Shape::One(Item::Bytes) if sent.is_empty() => nothing(),
            Shape::One(_) if field.pointer && sent.is_empty() => nothing(),
            Shape::One(item) => {
                let value = self.item(item, sent, depth)?;
                let left_out = match field.omit {
                    Omit::Never => false,
                    Omit::Empty => !field.pointer && is_empty(item, &value),
                    Omit::Zero => value.is_null(),
                };
                Ok((!left_out).then_some(value))
            }
            // `fields` writes them.
            Shape::Inline(_) => Ok(None),
        }
    }

    fn list(&self, item: Item, sent: &[Sent<'_>], depth: usize) -> Result<Vec<Value>, ProtobufError> {
        let mut items = Vec::new();
        for one in sent {
            match (one.1, packed(item)) {
                (Wire::Bytes(bytes), Some(fixed)) => {
                    let mut numbers = Reader::new(bytes, "");
                    while let Some(number) = numbers.packed(fixed)? {
                        self.spend(1)?;
                        items.push(self.item(item, &[(0, number)], depth)?);
                    }
                }
                _ => items.push(self.item(item, std::slice::from_ref(one), depth)?),
            }
        }
        Ok(items)
    }

    /// The entries of a map, which are messages with a key and a value.
    fn map(&self, item: Item, sent: &[Sent<'_>], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
        let mut entries = Map::new();
        for (_, entry) in sent {
            let Wire::Bytes(bytes) = *entry else { continue };
            let (mut key, mut value) = (&[][..], None);
            let mut reader = Reader::new(bytes, "Entry");
            while let Some((number, wire)) = reader.next()? {
                self.spend(1)?;
                match (number, wire) {
                    (1, Wire::Bytes(bytes)) => key = bytes,
                    (1, wire) => return Err(wire.unexpected("key")),
                    (2, wire) if fits(Shape::One(item), wire) => value = Some((0, wire)),
                    (2, wire) => return Err(wire.unexpected("value")),
                    _ => {}
                }
            }
            self.produce(key.len() + 4)?;
            entries.insert(super::text(key), self.item(item, value.as_slice(), depth)?);
        }
        Ok(entries)
    }

    /// The JSON of a single value: Go's zero value if nothing was sent.
    fn item(&self, item: Item, sent: &[Sent<'_>], depth: usize) -> Result<Value, ProtobufError> {
        let last = sent.last().map(|(_, wire)| *wire);
        let number = match last {
            Some(Wire::Varint(number)) => number,
            _ => 0,
        };
        let bytes = match last {
            Some(Wire::Bytes(bytes)) => bytes,
            _ => &[],
        };
        // A message is paid for by its fields.
        if !matches!(item, Item::Message(_)) {
            self.produce(bytes.len() + 8)?;
        }
        Ok(match item {
            Item::String => super::text(bytes).into(),
            Item::Bytes => scalar::base64(bytes).into(),
            Item::Bool => (number != 0).into(),
            // Go keeps the lower 32 bits.
            Item::Int32 => (number as u32 as i32).into(),
            Item::Int64 => (number as i64).into(),
            Item::Double => match last {
                Some(Wire::Fixed64(bits)) => scalar::double(f64::from_bits(bits))?,
                _ => 0.into(),
            },
            Item::Time => scalar::time(bytes)?,
            Item::MicroTime => scalar::micro_time(bytes)?,
            Item::Quantity => scalar::quantity(bytes)?,
            Item::IntOrString => scalar::int_or_string(sent.iter().map(|(_, wire)| *wire))?,
            Item::Json => {
                // To read JSON takes a step for each eight bytes, as in a body that is JSON.
                self.spend(bytes.len() / 8)?;
                scalar::json(bytes)?
            }
            Item::Message(id) => return self.message(id, sent, depth + 1),
        })
    }

    fn spend(&self, steps: usize) -> Result<(), ProtobufError> {
        self.within(self.budget.spend(steps as u64))
    }

    fn produce(&self, bytes: usize) -> Result<(), ProtobufError> {
        self.within(self.budget.produce(bytes))
    }

    fn within(&self, within: bool) -> Result<(), ProtobufError> {
        if within {
            return Ok(());
        }
        Err(self.budget.check().err().unwrap_or(OverBudget::Steps).into())
    }
}

/// Splits what was sent for a field from the front of what was sent for this and later fields.
fn next_field<'s, 'm>(at: usize, rest: &mut &'s [Sent<'m>]) -> &'s [Sent<'m>] {
    let end = rest.iter().position(|(field, _)| *field != at).unwrap_or(rest.len());
    let (sent, later) = rest.split_at(end);
    *rest = later;
    sent
}

/// Whether a value of this wire type can be sent for a field.
fn fits(shape: Shape, wire: Wire<'_>) -> bool {
    match (shape, wire) {
        (Shape::One(item) | Shape::List(item), Wire::Varint(_)) => packed(item) == Some(false),
        (Shape::One(item) | Shape::List(item), Wire::Fixed64(_)) => packed(item) == Some(true),
        (Shape::One(item), Wire::Bytes(_)) => packed(item).is_none(),
        (_, Wire::Bytes(_)) => true,
        _ => false,
    }
}

/// Whether the values are numbers, which a list may hold one after the other in one field; if so, whether all of them
/// take eight bytes.
fn packed(item: Item) -> Option<bool> {
    match item {
        Item::Bool | Item::Int32 | Item::Int64 => Some(false),
        Item::Double => Some(true),
        _ => None,
    }
}
