//! Protobuf messages as JSON: a small table and bytes made by hand, then messages made by chance from the whole table.

use serde_json::{Map, Value, json};

use super::message::Decoder;
use super::table::{self, Item, MessageId, Shape, Table};
use super::{ProtobufError, ProtobufObject};
use crate::budget::{Budget, OverBudget};

const TABLE: &str = "\
@meta/v1 m.v1
p.T v1
  1 name string
  2 nick? string
  3 alias? *string
  4 count? int32
  5 replicas? *int32
  6 size int64
  7 on? bool
  8 off? *bool
  9 ratio? *double
  10 raw? bytes
  11 blob bytes
  12 inner Inner
  13 other? *Inner
  14 inners? [Inner
  15 numbers? [int32
  16 labels? {string
  17 limits? {quantity
  18 . Source
  19 at? time
  20 deleted? *time
  21 born~ time
  22 tick? *micro-time
  23 port? int-or-string
  24 target? *int-or-string
  25 data? json
  26 verbs meta/v1.Verbs
  27 extra? {meta/v1.Verbs
  28 schema? *Choice
  29 doubles? [double
  30 files? {bytes
  31 quantity? quantity
  32 names [string
p.Inner
  1 a? string
  2 b? *int64
  3 deep? *Inner
p.Source
  1 host? *Inner
  2 kind string
p.Choice transparent
  1 allows bool
  2 inner *Inner
m.v1.Verbs transparent
  1 items [string
";

/// What Go has of a `T` for which nothing was sent.
fn zero() -> Map<String, Value> {
    let zero = json!({
        "name": "", "size": 0, "blob": null, "inner": {}, "kind": "", "at": null, "port": 0, "data": null,
        "verbs": null, "quantity": "0", "names": null,
    });
    zero.as_object().unwrap().clone()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

/// A field that is a double.
fn double(field: u64, value: f64) -> Vec<u8> {
    [varint(field << 3 | 1), value.to_bits().to_le_bytes().to_vec()].concat()
}

/// A field that is a text, bytes or a message.
fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn entry(field: u64, key: &str, value: Vec<u8>) -> Vec<u8> {
    bytes(field, [bytes(1, key), value].concat())
}

fn decode(message: &[u8], budget: &Budget) -> Result<Map<String, Value>, ProtobufError> {
    let table = Table::parse(TABLE).unwrap();
    Decoder::new(&table, budget).object(table.kind("v1", "T").unwrap(), message)
}

/// Decodes to the zero value with these fields added, or in place of its own.
#[track_caller]
fn check(message: Vec<u8>, expect: Value) {
    let mut object = zero();
    for (name, value) in expect.as_object().unwrap() {
        object.insert(name.clone(), value.clone());
    }
    assert_eq!(Value::Object(decode(&message, Budget::unlimited()).unwrap()), Value::Object(object));
}

#[track_caller]
fn refused(message: Vec<u8>, expect: &str) {
    let error = decode(&message, Budget::unlimited()).unwrap_err();
    assert_eq!(error, ProtobufError::Malformed(expect.to_owned()));
}

#[test]
fn what_was_not_sent_is_gos_zero_value() {
    check(vec![], json!({}));
}

#[test]
fn plain_values_are_dropped_when_empty_and_pointers_are_kept() {
    check(bytes(1, "web"), json!({"name": "web"}));
    check([bytes(2, ""), number(4, 0), number(7, 0), bytes(10, "")].concat(), json!({}));
    check([bytes(2, "w"), number(4, 3), number(7, 1)].concat(), json!({"nick": "w", "count": 3, "on": true}));
    check([bytes(3, ""), number(5, 0), number(8, 0)].concat(), json!({"alias": "", "replicas": 0, "off": false}));
    check(bytes(13, ""), json!({"other": {}}));
    check(bytes(11, ""), json!({"blob": ""}));
}

#[test]
fn numbers() {
    check([number(4, -1), number(6, i64::MIN)].concat(), json!({"count": -1, "size": i64::MIN}));
    // More bits than the field has, as Go truncates them.
    check(number(5, 1 << 32 | 7), json!({"replicas": 7}));
    check(double(9, 0.5), json!({"ratio": 0.5}));
    check(double(9, 3.0), json!({"ratio": 3}));
    check(double(9, 0.0), json!({"ratio": 0}));
    check([number(15, 1), number(15, -2)].concat(), json!({"numbers": [1, -2]}));
    check([bytes(15, [varint(1), varint(300)].concat()), number(15, 4)].concat(), json!({"numbers": [1, 300, 4]}));
    check(bytes(15, ""), json!({}));
    check(bytes(29, 1.5f64.to_bits().to_le_bytes()), json!({"doubles": [1.5]}));
    refused(double(9, f64::NAN), "json: unsupported value: NaN");
    refused(double(9, f64::NEG_INFINITY), "json: unsupported value: -Inf");
    refused(bytes(29, "short"), "unexpected EOF");
}

#[test]
fn texts_and_bytes() {
    check(bytes(1, "größe"), json!({"name": "größe"}));
    // Each byte that is no UTF-8 on its own, as Go writes them.
    check(bytes(1, b"a\xe2\x82b\xff"), json!({"name": "a\u{fffd}\u{fffd}b\u{fffd}"}));
    check([bytes(10, "hi"), bytes(11, [0xff, 0xfe])].concat(), json!({"raw": "aGk=", "blob": "//4="}));
    check(entry(30, "key", bytes(2, "v")), json!({"files": {"key": "dg=="}}));
    check(entry(30, "key", vec![]), json!({"files": {"key": ""}}));
}

#[test]
fn messages_lists_and_maps() {
    check(bytes(12, bytes(1, "x")), json!({"inner": {"a": "x"}}));
    check([bytes(14, ""), bytes(14, number(2, 0))].concat(), json!({"inners": [{}, {"b": 0}]}));
    check([bytes(32, "a"), bytes(32, "")].concat(), json!({"names": ["a", ""]}));
    check(
        [entry(16, "a", bytes(2, "1")), entry(16, "b", vec![]), bytes(16, ""), entry(16, "a", bytes(2, "2"))].concat(),
        json!({"labels": {"a": "2", "b": "", "": ""}}),
    );
    check(entry(17, "cpu", bytes(2, bytes(1, "100m"))), json!({"limits": {"cpu": "100m"}}));
    check(bytes(18, [bytes(1, ""), bytes(2, "disk")].concat()), json!({"host": {}, "kind": "disk"}));
    check(bytes(26, [bytes(1, "get"), bytes(1, "list")].concat()), json!({"verbs": ["get", "list"]}));
    check(bytes(26, ""), json!({}));
    check(
        [entry(27, "a", bytes(2, bytes(1, "x"))), entry(27, "b", bytes(2, ""))].concat(),
        json!({"extra": {"a": ["x"], "b": null}}),
    );
    check(bytes(28, number(1, 1)), json!({"schema": true}));
    check(bytes(28, ""), json!({"schema": false}));
    check(bytes(28, [number(1, 1), bytes(2, bytes(1, "x"))].concat()), json!({"schema": {"a": "x"}}));
}

#[test]
fn the_last_value_wins_and_messages_merge() {
    check([bytes(1, "old"), number(6, 1), bytes(1, "new")].concat(), json!({"name": "new", "size": 1}));
    check([bytes(12, bytes(1, "x")), bytes(12, number(2, 5))].concat(), json!({"inner": {"a": "x", "b": 5}}));
    check(
        [bytes(13, bytes(3, bytes(1, "x"))), bytes(13, bytes(3, number(2, 5)))].concat(),
        json!({"other": {"deep": {"a": "x", "b": 5}}}),
    );
}

#[test]
fn types_with_json_of_their_own() {
    let moment = |field, seconds, nanos| bytes(field, [number(1, seconds), number(2, nanos)].concat());
    check(moment(19, 1_700_000_000, 999_999_999), json!({"at": "2023-11-14T22:13:20Z"}));
    check(moment(21, 0, 0), json!({"born": "1970-01-01T00:00:00Z"}));
    check(moment(21, -62_135_596_800, 0), json!({}));
    check([moment(21, 5, 0), bytes(21, "")].concat(), json!({}));
    check(bytes(20, ""), json!({"deleted": null}));
    check(moment(22, 1_700_000_000, 1_234_567), json!({"tick": "2023-11-14T22:13:20.001234Z"}));
    check(moment(22, 1, -1_000), json!({"tick": "1970-01-01T00:00:00.999999Z"}));
    refused(moment(19, i64::MAX, 0), "a time 9223372036854775807 seconds from 1970 is out of range");

    check(bytes(23, [number(1, 0), number(2, 80)].concat()), json!({"port": 80}));
    check(bytes(24, [number(1, 1), bytes(3, "http")].concat()), json!({"target": "http"}));
    check(bytes(24, ""), json!({"target": 0}));
    refused(bytes(24, number(1, 2)), "impossible IntOrString.Type");

    check(bytes(25, bytes(1, r#"{"a":[1,null]}"#)), json!({"data": {"a": [1, null]}}));
    check(bytes(25, ""), json!({"data": null}));
    refused(
        bytes(25, bytes(1, "{")),
        "a field that holds JSON cannot be read: EOF while parsing an object at line 1 column 1",
    );
    check(bytes(31, bytes(1, "1Gi")), json!({"quantity": "1Gi"}));
}

#[test]
fn unknown_fields_are_skipped() {
    let group = [varint(99 << 3 | 3), number(1, 1), varint(98 << 3 | 3), varint(98 << 3 | 4), varint(99 << 3 | 4)];
    let fixed = [varint(97 << 3 | 5), vec![1, 2, 3, 4]].concat();
    check([number(99, 1), bytes(98, "x"), double(96, 1.0), fixed, group.concat(), bytes(1, "a")].concat(), {
        json!({"name": "a"})
    });
    check(bytes(12, [bytes(50, "x"), bytes(1, "a")].concat()), json!({"inner": {"a": "a"}}));
    check(bytes(16, [bytes(1, "k"), bytes(2, "v"), number(3, 1)].concat()), json!({"labels": {"k": "v"}}));
}

#[test]
fn malformed_messages() {
    refused(vec![0x0a], "unexpected EOF");
    refused(vec![0x0a, 5, b'a'], "unexpected EOF");
    refused(vec![0x80], "unexpected EOF");
    refused([vec![0x0a], varint(u64::MAX)].concat(), "proto: negative length found during unmarshaling");
    refused([vec![0x0a], varint(i64::MAX as u64)].concat(), "unexpected EOF");
    refused(vec![0xff; 11], "proto: integer overflow");
    refused(varint(99 << 3 | 7), "proto: illegal wireType 7");
    refused(vec![0x02, 0], "proto: T: illegal tag 0 (wire type 2)");
    refused(vec![0x0c], "proto: T: wiretype end group for non-group");
    refused([varint(99 << 3 | 3), number(1, 1)].concat(), "unexpected EOF");
    refused(number(1, 5), "proto: wrong wireType = 0 for field name");
    refused(bytes(4, "x"), "proto: wrong wireType = 2 for field count");
    refused(vec![0x0b, 0x0c], "proto: wrong wireType = 3 for field name");
    refused(number(14, 5), "proto: wrong wireType = 0 for field inners");
    refused(bytes(16, number(1, 1)), "proto: wrong wireType = 0 for field key");
    refused(bytes(16, number(2, 1)), "proto: wrong wireType = 0 for field value");
    refused(bytes(12, &bytes(1, "ab")[..3]), "unexpected EOF");
}

#[test]
fn depth_and_work_are_bounded() {
    let mut nested = Vec::new();
    for _ in 0..200 {
        nested = bytes(3, nested);
    }
    refused(bytes(13, nested), "the object is nested more than 120 levels deep; make it flatter");

    // Two bytes each, and an object in memory.
    let many: Vec<u8> = std::iter::repeat_n([14 << 3 | 2, 0], 100_000).flatten().collect();
    let over = |steps, bytes| decode(&many, &Budget::new(steps, bytes)).unwrap_err();
    assert_eq!(over(1_000, u64::MAX), OverBudget::Steps.into());
    assert_eq!(over(u64::MAX, 1_000_000), OverBudget::Bytes.into());
    let cancelled = Budget::new(u64::MAX, u64::MAX - 1);
    cancelled.cancel();
    assert_eq!(decode(&many, &cancelled).unwrap_err(), OverBudget::Cancelled.into());
}

#[test]
fn envelopes() {
    let names = |api_version: &str, kind: &str| bytes(1, [bytes(1, api_version), bytes(2, kind)].concat());
    let body = |fields: &[Vec<u8>]| [b"k8s\0".to_vec(), fields.concat()].concat();
    let read = |body: &[u8]| ProtobufObject::read(body).map(|object| object.decode(Budget::unlimited()));
    let malformed = |text: &str| Err(ProtobufError::Malformed(text.to_owned()));

    assert_eq!(read(b""), malformed("empty data"));
    assert_eq!(read(b"k8s\0"), malformed("empty body"));
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(read(b"k8s"), malformed(prefix));
    assert_eq!(read(b"{\"kind\":\"Pod\"}"), malformed(prefix));
    assert_eq!(read(&body(&[vec![0x0a, 9]])), malformed("unexpected EOF"));
    assert_eq!(read(&body(&[number(2, 1)])), malformed("proto: wrong wireType = 0 for field Raw"));

    // The content type and encoding do not matter, nor does the order.
    let message = bytes(2, [bytes(1, bytes(1, "a")), entry(2, "k", bytes(2, "v"))].concat());
    let rest = [bytes(3, "gzip"), bytes(4, "application/json"), number(9, 1)].concat();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(read(&body(&[message.clone(), rest, names("v1", "ConfigMap")])), Ok(Ok(map)));
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    assert_eq!(read(&body(&[names("v1", "ConfigMap")])), Ok(Ok(nothing)));

    let unknown = |api_version: &str, kind: &str| {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Ok(Err(ProtobufError::UnknownKind { api_version, kind }))
    };
    assert_eq!(read(&body(&[message.clone(), names("v2", "ConfigMap")])), unknown("v2", "ConfigMap"));
    assert_eq!(read(&body(&[message])), unknown("", ""));
}

/// Numbers that look like chance, and are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// A message of the table that can be decoded.
    fn message(&mut self, table: &Table, id: MessageId, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for field in &table.message(id).fields {
            let (item, times) = match field.shape {
                Shape::One(item) => (item, self.below(2)),
                Shape::Inline(id) => (Item::Message(id), 1),
                Shape::List(item) | Shape::Map(item) => (item, self.below(3)),
            };
            for _ in 0..times {
                let Some(value) = self.item(table, item, field.number.into(), depth) else { continue };
                match field.shape {
                    Shape::Map(_) => {
                        let value = self.item(table, item, 2, depth).expect("as deep as the other");
                        out.extend(entry(field.number.into(), ["a", "b", ""][self.below(3)], value));
                    }
                    _ => out.extend(value),
                }
            }
        }
        out
    }

    fn item(&mut self, table: &Table, item: Item, field: u64, depth: usize) -> Option<Vec<u8>> {
        let small = self.below(300) as i64;
        Some(match item {
            Item::String | Item::Bytes => bytes(field, &"some text"[..self.below(9)]),
            Item::Bool => number(field, small % 2),
            Item::Int32 | Item::Int64 => number(field, small - 100),
            Item::Double => double(field, small as f64 / 4.0),
            Item::Time | Item::MicroTime => bytes(field, [number(1, small), number(2, small)].concat()),
            Item::Quantity => bytes(field, bytes(1, "5")),
            Item::IntOrString => bytes(field, [number(1, small % 2), number(2, small), bytes(3, "x")].concat()),
            Item::Json => bytes(field, bytes(1, r#"{"f:a":{}}"#)),
            Item::Message(_) if depth == 0 => return None,
            Item::Message(id) => bytes(field, self.message(table, id, depth - 1)),
        })
    }

    fn mutate(&mut self, message: &mut Vec<u8>) {
        let at = self.below(message.len() + 1);
        match self.below(4) {
            0 => message.truncate(at),
            1 => message.insert(at, self.below(256) as u8),
            2 => {
                let copied = message[at..message.len().min(at + self.below(40))].to_vec();
                let to = self.below(message.len() + 1);
                message.splice(to..to, copied);
            }
            _ => {
                if let Some(byte) = message.get_mut(at) {
                    *byte = self.below(256) as u8;
                }
            }
        }
    }
}

/// Any kind, any content, any damage: an answer or an error, and work in proportion to the bytes.
#[test]
fn damaged_messages_cost_no_more_than_their_length() {
    let table = table::kubernetes();
    let kinds = [
        ("v1", "Pod"),
        ("v1", "PersistentVolume"),
        ("apps/v1", "Deployment"),
        ("batch/v1", "CronJob"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("resource.k8s.io/v1", "ResourceClaim"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("v1", "DeleteOptions"),
    ];
    for (seed, (api_version, kind)) in (1..).zip(kinds.iter().cycle()).take(900) {
        let id = table.kind(api_version, kind).expect(kind);
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let mut message = random.message(table, id, 5);
        let whole = Decoder::new(table, Budget::unlimited()).object(id, &message);
        assert!(whole.is_ok(), "{kind}, seed {seed}: {whole:?}");
        for _ in 0..8 {
            random.mutate(&mut message);
            let budget = Budget::new(1 << 40, 1 << 40);
            let _ = Decoder::new(table, &budget).object(id, &message);
            let spent = (1 << 40) - budget.steps_left();
            // The zero value of a pod alone takes some steps; a byte more takes a few more.
            assert!(spent < 2_000 + 60 * message.len() as u64, "{kind}, seed {seed}: {spent} for {}", message.len());
        }
    }
}
