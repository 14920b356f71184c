//! JSON as protobuf. In: the JSON of an object as this program stores it, and its row in the table. Out: the bytes that the
//! code which gogo generates for Kubernetes would write of the same object, field by field:
//!
//! - fields come in the order of their numbers, and maps in the order of their keys;
//! - a plain field is always there, even if it is empty, and so are the fields of a message that is held by value;
//! - a pointer, a list, a map and bytes are there if they are set.
//!
//! A message begins with its length, so everything is written from its end to its start: then each length is known when its
//! turn comes, and nothing is moved or measured twice. The work is linear in the size of the JSON.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::scalar::ZERO_TIME_SECONDS;
use super::table::{Field, Item, MessageId, Shape, Table, kubernetes};
use super::tape::{self, Token, TokenKind};
use super::wire::malformed;
use super::{PREFIX, ProtobufError};

/// The message of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtobufKind(MessageId);

impl ProtobufKind {
    /// The message of a kind, if the kind has one: custom resources have none.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        kubernetes().kind(api_version, kind).map(Self)
    }
}

/// Encodes objects. What it needs for one object is used again for the next.
///
/// ```
/// use konverge_schema::ProtobufEncoder;
/// let json = br#"{"kind":"Binding","apiVersion":"v1","metadata":{},"target":{"name":"node-1"}}"#;
/// let body = ProtobufEncoder::default().object(json).unwrap();
/// assert!(body.starts_with(b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Binding"));
/// ```
#[derive(Debug, Default)]
pub struct ProtobufEncoder {
    tokens: Vec<Token>,
    open: Vec<u32>,
    /// The fields of the messages that are being written: the field's index, and the token of its value.
    fields: Vec<(u16, u32)>,
    /// The items of the lists and the values of the maps that are being written.
    items: Vec<u32>,
    out: Backwards,
}

impl ProtobufEncoder {
    /// An object with its envelope. The JSON says which kind it is.
    pub fn object(&mut self, json: &[u8]) -> Result<Vec<u8>, ProtobufError> {
        self.read(json)?;
        let (api_version, kind) = (self.member(json, b"apiVersion"), self.member(json, b"kind"));
        // The oldest document of discovery does not say its version.
        let version = if api_version.is_empty() { "v1" } else { &api_version };
        let Some(message) = ProtobufKind::find(version, &kind) else {
            return Err(ProtobufError::UnknownKind { api_version, kind });
        };
        self.in_envelope((&api_version, &kind), message, json)?;
        Ok(self.out.written().to_vec())
    }

    /// The message of an object, without an envelope. Fields of the JSON that the message does not have are left out.
    pub fn message(&mut self, kind: ProtobufKind, json: &[u8]) -> Result<&[u8], ProtobufError> {
        self.read(json)?;
        self.out.clear();
        Writer::new(self, json).message(kind.0, Some(0))?;
        Ok(self.out.written())
    }

    /// The message of an object as an item of a list: the `items` of every list are field 2.
    pub fn item(&mut self, kind: ProtobufKind, json: &[u8]) -> Result<&[u8], ProtobufError> {
        self.message(kind, json)?;
        self.out.tag_and_length(2, 0);
        Ok(self.out.written())
    }

    /// An event of a watch, `ADDED` for instance: a frame with the object in its envelope, which has these names for the
    /// apiVersion and the kind.
    pub fn event(
        &mut self,
        event: &str,
        names: (&str, &str),
        kind: ProtobufKind,
        json: &[u8],
    ) -> Result<&[u8], ProtobufError> {
        self.read(json)?;
        self.in_envelope(names, kind, json)?;
        let out = &mut self.out;
        // A RawExtension in a WatchEvent: a message with one field, in a field.
        out.tag_and_length(1, 0);
        out.tag_and_length(2, 0);
        let object = out.len();
        out.bytes(event.as_bytes());
        out.tag_and_length(1, object);
        let length = u32::try_from(out.len()).map_err(|_| malformed("the event is too large for a frame"))?;
        out.bytes(&length.to_be_bytes());
        Ok(out.written())
    }

    fn in_envelope(&mut self, names: (&str, &str), kind: ProtobufKind, json: &[u8]) -> Encoded {
        self.out.clear();
        self.out.bytes(ENVELOPE_TAIL);
        Writer::new(self, json).message(kind.0, Some(0))?;
        self.out.envelope_head(names, self.out.len() - ENVELOPE_TAIL.len());
        Ok(())
    }

    fn read(&mut self, json: &[u8]) -> Encoded {
        tape::read(json, &mut self.tokens, &mut self.open).map_err(|_| malformed("the object is not JSON"))?;
        match self.tokens.first().map(|token| token.kind) {
            Some(TokenKind::Object) => Ok(()),
            _ => Err(malformed("the object is not a JSON object")),
        }
    }

    /// The text of a field of the object.
    fn member(&self, json: &[u8], name: &[u8]) -> String {
        let end = self.tokens[0].next;
        let mut key = 1;
        while key + 1 < end {
            let value = self.tokens[key as usize + 1];
            if self.tokens[key as usize].text(json) == name {
                return value.string(json).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
            }
            key = value.next;
        }
        String::new()
    }
}

/// The envelope of a message whose bytes come in pieces: what comes before them, and what comes after.
pub fn protobuf_envelope(names: (&str, &str), message_bytes: usize) -> (Vec<u8>, &'static [u8]) {
    let mut out = Backwards::default();
    out.envelope_head(names, message_bytes);
    (out.written().to_vec(), ENVELOPE_TAIL)
}

/// An envelope ends with an empty content encoding and an empty content type.
const ENVELOPE_TAIL: &[u8] = b"\x1a\0\x22\0";

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

type Encoded = Result<(), ProtobufError>;

/// Writes the messages of one JSON text.
struct Writer<'e> {
    table: &'static Table,
    json: &'e [u8],
    tokens: &'e [Token],
    fields: &'e mut Vec<(u16, u32)>,
    items: &'e mut Vec<u32>,
    out: &'e mut Backwards,
}

impl<'e> Writer<'e> {
    fn new(encoder: &'e mut ProtobufEncoder, json: &'e [u8]) -> Self {
        let ProtobufEncoder { tokens, fields, items, out, .. } = encoder;
        fields.clear();
        items.clear();
        Self { table: kubernetes(), json, tokens, fields, items, out }
    }

    fn token(&self, at: u32) -> Token {
        self.tokens[at as usize]
    }

    /// A value that is there: null is as good as nothing.
    fn present(&self, value: Option<u32>) -> Option<u32> {
        value.filter(|at| self.token(*at).kind != TokenKind::Null)
    }

    /// The fields of a message, without its length. Without a value they are Go's zero values.
    fn message(&mut self, id: MessageId, value: Option<u32>) -> Encoded {
        let message = self.table.message(id);
        if message.transparent {
            return self.transparent(&message.fields, value);
        }
        let begin = self.fields.len();
        if let Some(object) = value {
            self.collect(id, object)?;
        }
        for (at, field) in message.fields.iter().enumerate().rev() {
            let found = match self.fields.last() {
                Some((of, token)) if self.fields.len() > begin && usize::from(*of) == at => Some(*token),
                _ => None,
            };
            if found.is_some() {
                self.fields.pop();
            }
            match field.shape {
                Shape::Inline(inner) => {
                    let end = self.out.len();
                    self.message(inner, value)?;
                    self.out.tag_and_length(field.number, end);
                }
                _ => self.field(field, found)?,
            }
        }
        self.fields.truncate(begin);
        Ok(())
    }

    /// Finds the values of a message's fields in an object, and notes them in the order of the table.
    fn collect(&mut self, id: MessageId, object: u32) -> Encoded {
        let message = self.table.message(id);
        let token = self.token(object);
        if token.kind != TokenKind::Object {
            return Err(self.wrong_type(object, message.name));
        }
        let begin = self.fields.len();
        let (mut key, mut hint) = (object + 1, 0);
        while key + 1 < token.next {
            let name = self.token(key).text(self.json);
            if let Some(found) = message.find(name, &mut hint) {
                self.fields.push((found, key + 1));
            }
            key = self.token(key + 1).next;
        }
        self.fields[begin..].sort_unstable();
        // Of two values of one field the last one counts, as in every reader of JSON.
        if self.fields[begin..].windows(2).any(|pair| pair[0].0 == pair[1].0) {
            let mut kept = begin;
            for at in begin..self.fields.len() {
                if self.fields.get(at + 1).is_none_or(|next| next.0 != self.fields[at].0) {
                    self.fields[kept] = self.fields[at];
                    kept += 1;
                }
            }
            self.fields.truncate(kept);
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, value: Option<u32>) -> Encoded {
        let value = self.present(value);
        match field.shape {
            Shape::One(Item::Bytes) if value.is_none() => Ok(()),
            Shape::One(_) if field.pointer && value.is_none() => Ok(()),
            Shape::One(item) => self.one(field.number, item, value),
            Shape::List(item) => match value {
                Some(list) => self.list(field, item, list),
                None => Ok(()),
            },
            Shape::Map(item) => match value {
                Some(map) => self.map(field, item, map),
                None => Ok(()),
            },
            // `message` writes them.
            Shape::Inline(_) => Ok(()),
        }
    }

    fn list(&mut self, field: &Field, item: Item, list: u32) -> Encoded {
        let token = self.token(list);
        if token.kind != TokenKind::List {
            return Err(self.wrong_type(list, field.name));
        }
        let begin = self.items.len();
        let mut at = list + 1;
        while at < token.next {
            self.items.push(at);
            at = self.token(at).next;
        }
        while self.items.len() > begin {
            let value = self.items.pop();
            let value = self.present(value);
            self.one(field.number, item, value)?;
        }
        Ok(())
    }

    fn map(&mut self, field: &Field, item: Item, map: u32) -> Encoded {
        let token = self.token(map);
        if token.kind != TokenKind::Object {
            return Err(self.wrong_type(map, field.name));
        }
        let begin = self.items.len();
        let mut key = map + 1;
        while key + 1 < token.next {
            self.items.push(key);
            key = self.token(key + 1).next;
        }
        let (json, tokens) = (self.json, self.tokens);
        let text = |key: &u32| tokens[*key as usize].string(json).unwrap_or_default();
        if !self.items[begin..].is_sorted_by(|a, b| text(a) < text(b)) {
            self.items[begin..].sort_by(|a, b| text(a).cmp(&text(b)));
        }
        while self.items.len() > begin {
            let Some(key) = self.items.pop() else { break };
            let end = self.out.len();
            let value = self.present(Some(key + 1));
            if value.is_some() || item != Item::Bytes {
                self.one(2, item, value)?;
            }
            self.one(1, Item::String, Some(key))?;
            self.out.tag_and_length(field.number, end);
        }
        Ok(())
    }

    /// A value with its tag: Go's zero value if there is none.
    fn one(&mut self, number: u32, item: Item, value: Option<u32>) -> Encoded {
        let end = self.out.len();
        let wire = match item {
            Item::Bool | Item::Int32 | Item::Int64 => VARINT,
            Item::Double => FIXED64,
            _ => BYTES,
        };
        match item {
            Item::Bool => self.out.varint(u64::from(self.boolean(value)?)),
            Item::Int32 | Item::Int64 => {
                let integer = self.integer(value)?;
                self.out.varint(integer as u64);
            }
            Item::Double => {
                let number = self.double(value)?;
                self.out.bytes(&number.to_le_bytes());
            }
            Item::String => {
                let text = self.string(value)?;
                self.out.bytes(&text);
            }
            Item::Bytes => {
                let text = self.string(value)?;
                let bytes = STANDARD.decode(&text).map_err(|_| malformed("a field is not base64"))?;
                self.out.bytes(&bytes);
            }
            Item::Time => self.time(value, false)?,
            Item::MicroTime => self.time(value, true)?,
            Item::Quantity => {
                let text = match value {
                    None => Cow::Borrowed(&b"0"[..]),
                    Some(at) if self.token(at).kind == TokenKind::Number => {
                        Cow::Borrowed(self.token(at).text(self.json))
                    }
                    Some(_) => self.string(value)?,
                };
                self.out.bytes(&text);
                self.out.tag_and_length(1, end);
            }
            Item::IntOrString => {
                let string = value.filter(|at| self.token(*at).kind != TokenKind::Number);
                let text = self.string(string)?;
                let integer = if string.is_some() { 0 } else { self.integer(value)? };
                self.out.bytes(&text);
                self.out.tag_and_length(3, end);
                self.out.varint(integer as u64);
                self.out.varint(2 << 3 | VARINT);
                self.out.varint(u64::from(string.is_some()));
                self.out.varint(1 << 3 | VARINT);
            }
            Item::Json => {
                if let Some(at) = value {
                    self.out.bytes(self.token(at).quoted(self.json));
                    self.out.tag_and_length(1, end);
                }
            }
            Item::Message(id) => self.message(id, value)?,
        }
        if wire == BYTES {
            self.out.varint((self.out.len() - end) as u64);
        }
        self.out.varint(u64::from(number) << 3 | wire);
        Ok(())
    }

    /// A message whose JSON is that of one of its fields: the one that holds such a value.
    fn transparent(&mut self, fields: &[Field], value: Option<u32>) -> Encoded {
        let kind = value.map_or(TokenKind::Null, |at| self.token(at).kind);
        for field in fields.iter().rev() {
            match (field.shape, kind) {
                (Shape::List(item), TokenKind::List) => match value {
                    Some(list) => self.list(field, item, list)?,
                    None => continue,
                },
                (Shape::One(item @ Item::Message(_)), TokenKind::Object) => self.one(field.number, item, value)?,
                // A schema instead of `true` allows as well.
                (Shape::One(Item::Bool), kind) => {
                    self.out.varint(u64::from(matches!(kind, TokenKind::True | TokenKind::Object)));
                    self.out.varint(u64::from(field.number) << 3 | VARINT);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Seconds and nanoseconds; a time that is not set is an empty message.
    fn time(&mut self, value: Option<u32>, micro: bool) -> Encoded {
        let text = self.string(value)?;
        if text.is_empty() {
            return Ok(());
        }
        let (seconds, nanoseconds) = match whole_seconds(&text) {
            Some(seconds) => (seconds, 0),
            None => {
                let parsed = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<jiff::Timestamp>().ok());
                let moment = parsed.ok_or_else(|| malformed("a field is not a time"))?;
                // The subsecond part counts from the second before, as in Go.
                let nanoseconds = moment.as_nanosecond();
                (nanoseconds.div_euclid(1_000_000_000) as i64, nanoseconds.rem_euclid(1_000_000_000) as u64)
            }
        };
        if seconds == ZERO_TIME_SECONDS && nanoseconds == 0 {
            return Ok(());
        }
        let nanoseconds = if micro { nanoseconds / 1000 * 1000 } else { 0 };
        self.out.varint(nanoseconds);
        self.out.varint(2 << 3 | VARINT);
        self.out.varint(seconds as u64);
        self.out.varint(1 << 3 | VARINT);
        Ok(())
    }

    fn boolean(&self, value: Option<u32>) -> Result<bool, ProtobufError> {
        match value.map(|at| (at, self.token(at).kind)) {
            None | Some((_, TokenKind::False)) => Ok(false),
            Some((_, TokenKind::True)) => Ok(true),
            Some((at, _)) => Err(self.wrong_type(at, "bool")),
        }
    }

    fn integer(&self, value: Option<u32>) -> Result<i64, ProtobufError> {
        let Some(at) = value else { return Ok(0) };
        let text = std::str::from_utf8(self.token(at).text(self.json)).unwrap_or_default();
        let whole = text.parse().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i64)
        });
        whole.filter(|_| self.token(at).kind == TokenKind::Number).ok_or_else(|| self.wrong_type(at, "integer"))
    }

    fn double(&self, value: Option<u32>) -> Result<f64, ProtobufError> {
        let Some(at) = value else { return Ok(0.0) };
        let text = std::str::from_utf8(self.token(at).text(self.json)).unwrap_or_default();
        let number = text.parse().ok().filter(|_| self.token(at).kind == TokenKind::Number);
        number.ok_or_else(|| self.wrong_type(at, "number"))
    }

    fn string(&self, value: Option<u32>) -> Result<Cow<'e, [u8]>, ProtobufError> {
        let Some(at) = value else { return Ok(Cow::Borrowed(&[])) };
        self.token(at).string(self.json).ok_or_else(|| self.wrong_type(at, "string"))
    }

    #[cold]
    fn wrong_type(&self, at: u32, expect: &str) -> ProtobufError {
        malformed(format!("{expect} cannot be encoded from {:?}", self.token(at).kind))
    }
}

/// The seconds since 1970 of a time as Go writes it, without a fraction and in UTC.
fn whole_seconds(text: &[u8]) -> Option<i64> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2, b'Z'] = text else {
        return None;
    };
    let digits = |digits: &[u8]| {
        digits
            .iter()
            .try_fold(0i64, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (digits(&[y1, y2, y3, y4])?, digits(&[m1, m2])?, digits(&[d1, d2])?);
    let (hours, minutes, seconds) = (digits(&[h1, h2])?, digits(&[n1, n2])?, digits(&[s1, s2])?);
    // Years begin with March here, so that a leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// Bytes that are written from the last to the first.
#[derive(Debug, Default)]
struct Backwards {
    buffer: Vec<u8>,
    /// What is written begins here and goes to the end of the buffer.
    start: usize,
}

impl Backwards {
    fn clear(&mut self) {
        self.start = self.buffer.len();
    }

    fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn written(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() > self.start {
            self.grow(bytes.len());
        }
        let start = self.start - bytes.len();
        self.buffer[start..self.start].copy_from_slice(bytes);
        self.start = start;
    }

    fn varint(&mut self, mut number: u64) {
        if number < 0x80 {
            return self.bytes(&[number as u8]);
        }
        let (mut digits, mut length) = ([0; 10], 0);
        while number >= 0x80 {
            digits[length] = number as u8 | 0x80;
            number >>= 7;
            length += 1;
        }
        digits[length] = number as u8;
        self.bytes(&digits[..=length]);
    }

    /// The length of everything that was written since there were `end` bytes, and the tag of the field that it is.
    fn tag_and_length(&mut self, number: u32, end: usize) {
        self.varint((self.len() - end) as u64);
        self.varint(u64::from(number) << 3 | BYTES);
    }

    fn envelope_head(&mut self, (api_version, kind): (&str, &str), message_bytes: usize) {
        self.varint(message_bytes as u64);
        self.varint(2 << 3 | BYTES);
        let end = self.len();
        self.bytes(kind.as_bytes());
        self.tag_and_length(2, end);
        let inner = self.len();
        self.bytes(api_version.as_bytes());
        self.tag_and_length(1, inner);
        self.tag_and_length(1, end);
        self.bytes(&PREFIX);
    }

    /// Makes room for so many more bytes, at least as many as there are.
    #[cold]
    fn grow(&mut self, more: usize) {
        let written = self.len();
        let mut larger = vec![0; (written + more).next_power_of_two().max(1024) * 2];
        let start = larger.len() - written;
        larger[start..].copy_from_slice(self.written());
        (self.buffer, self.start) = (larger, start);
    }
}

#[cfg(test)]
mod tests;
