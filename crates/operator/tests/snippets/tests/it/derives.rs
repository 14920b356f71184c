//! The derives with all the attributes people use, against the JSON that serde's own derives write and read.

use std::collections::BTreeMap;

use konverge::prelude::*;
use konverge::serde_json::{Value, from_value, json, to_value};

/// Writes `value` as `json`, and reads it back as `value`.
#[track_caller]
fn check<T: Serialize + konverge::serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: T, json: Value) {
    assert_eq!(to_value(&value).unwrap(), json);
    assert_eq!(from_value::<T>(json).unwrap(), value);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Names {
    two_words: String,
    #[serde(rename = "type")]
    type_: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maybe: Option<u8>,
    #[serde(default = "seven")]
    seven: u32,
    #[serde(default = "Self::eight")]
    eight: u32,
    #[serde(flatten)]
    rest: BTreeMap<String, i64>,
}

fn seven() -> u32 {
    7
}

impl Names {
    fn eight() -> u32 {
        8
    }
}

#[test]
fn names_and_field_defaults() {
    let names = |maybe, rest: &[(&str, i64)]| Names {
        two_words: "a".to_owned(),
        type_: "b".to_owned(),
        maybe,
        seven: 7,
        eight: 8,
        rest: rest.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
    };
    check(names(None, &[]), json!({ "twoWords": "a", "type": "b", "seven": 7, "eight": 8 }));
    check(
        names(Some(1), &[("x", -1)]),
        json!({ "twoWords": "a", "type": "b", "maybe": 1, "seven": 7, "eight": 8, "x": -1 }),
    );
    assert_eq!(from_value::<Names>(json!({ "twoWords": "a", "type": "b" })).unwrap(), names(None, &[]));
    let missing = from_value::<Names>(json!({ "type": "b" })).unwrap_err();
    assert_eq!(missing.to_string(), "missing field `twoWords`");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Defaults {
    replicas: u32,
    name: String,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { replicas: 3, name: "web".to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default = "made")]
struct Made {
    replicas: u32,
}

fn made() -> Made {
    Made { replicas: 9 }
}

#[test]
fn container_defaults() {
    assert_eq!(from_value::<Defaults>(json!({})).unwrap(), Defaults::default());
    assert_eq!(from_value::<Defaults>(json!({ "replicas": 1 })).unwrap().name, "web");
    assert_eq!(from_value::<Made>(json!({})).unwrap(), Made { replicas: 9 });
    let unknown = from_value::<Defaults>(json!({ "nope": 1 })).unwrap_err().to_string();
    assert_eq!(unknown, "unknown field `nope`, expected `replicas` or `name`");
    let schema = konverge::schemars::schema_for!(Defaults).to_value();
    assert_eq!(schema["properties"]["replicas"]["default"], 3);
    assert_eq!(schema["title"], "Defaults");
    assert_eq!(konverge::schemars::schema_for!(Made).to_value()["properties"]["replicas"]["default"], 9);
}

mod private {
    use konverge::prelude::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Private {
        hidden: i32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Wrapper(Vec<i32>);

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Pair(i32, String);

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Unit;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(transparent)]
    pub(super) struct Transparent {
        inner: String,
    }

    pub(super) fn all() -> (Private, Wrapper, Pair, Unit, Transparent) {
        let transparent = Transparent { inner: "t".to_owned() };
        (Private { hidden: 1 }, Wrapper(vec![1, 2]), Pair(1, "b".to_owned()), Unit, transparent)
    }
}

#[test]
fn private_fields_tuples_and_units() {
    let (private, wrapper, pair, unit, transparent) = private::all();
    check(private, json!({ "hidden": 1 }));
    check(wrapper, json!([1, 2]));
    check(pair, json!([1, "b"]));
    check(unit, json!(null));
    check(transparent, json!("t"));
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Plain {
    /// The first.
    #[default]
    One = 1,
    #[serde(rename = "zwei", alias = "two")]
    Two,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum External {
    Struct { field: i32 },
    Newtype(String),
    Tuple(i32, i32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Internal {
    Small { size: u8 },
    Large { size: u8, spare: bool },
    Empty,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Number(i32),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Number(i64),
    Text(String),
}

#[test]
fn enums() {
    check(Plain::One, json!("one"));
    check(Plain::Two, json!("zwei"));
    assert_eq!(from_value::<Plain>(json!("two")).unwrap(), Plain::Two);
    check(External::Struct { field: 1 }, json!({ "struct": { "field": 1 } }));
    check(External::Newtype("a".to_owned()), json!({ "newtype": "a" }));
    check(External::Tuple(1, 2), json!({ "tuple": [1, 2] }));
    check(Internal::Small { size: 1 }, json!({ "type": "Small", "size": 1 }));
    check(Internal::Large { size: 1, spare: true }, json!({ "type": "Large", "size": 1, "spare": true }));
    check(Internal::Empty, json!({ "type": "Empty" }));
    check(Adjacent::Number(1), json!({ "kind": "Number", "value": 1 }));
    check(Adjacent::Text("a".to_owned()), json!({ "kind": "Text", "value": "a" }));
    check(Untagged::Number(1), json!(1));
    check(Untagged::Text("a".to_owned()), json!("a"));
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Generic<T, const N: usize> {
    items: Vec<T>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Borrowed<'a> {
    text: &'a str,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Tree {
    children: Vec<Self>,
    parent: Option<Box<Tree>>,
}

#[test]
fn parameters_and_recursion() {
    check(Generic::<i32, 2> { items: vec![1, 2] }, json!({ "items": [1, 2] }));
    assert_eq!(to_value(Borrowed { text: "a" }).unwrap(), json!({ "text": "a" }));
    let text = konverge::serde_json::from_str::<Borrowed>(r#"{"text":"a"}"#).unwrap();
    assert_eq!(text, Borrowed { text: "a" });
    let leaf = Tree { children: vec![], parent: None };
    check(
        Tree { children: vec![leaf.clone()], parent: Some(Box::new(leaf)) },
        json!({ "children": [{ "children": [], "parent": null }], "parent": { "children": [], "parent": null } }),
    );
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
struct Even(u32);

impl TryFrom<String> for Even {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            Ok(number) if number % 2 == 0 => Ok(Self(number)),
            _ => Err(format!("{text} is not even")),
        }
    }
}

impl From<Even> for String {
    fn from(even: Even) -> Self {
        even.0.to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct With {
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    number: u32,
    #[serde(serialize_with = "as_text::serialize", deserialize_with = "as_text::deserialize", default)]
    #[schemars(with = "String")]
    other: u32,
    #[serde(skip)]
    skipped: u32,
}

mod as_text {
    use konverge::serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(number: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&number.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[test]
fn conversions() {
    check(Even(2), json!("2"));
    assert_eq!(from_value::<Even>(json!("3")).unwrap_err().to_string(), "3 is not even");
    check(With { number: 1, other: 2, skipped: 0 }, json!({ "number": "1", "other": "2" }));
    let schema = konverge::schemars::schema_for!(With).to_value();
    assert_eq!(schema["properties"]["other"], json!({ "type": "string", "default": "0" }));
}

/// The derives of serde and schemars themselves, found behind `konverge`.
mod own_derives {
    use konverge::schemars::JsonSchema;
    use konverge::serde::{Deserialize, Serialize};

    #[konverge::types]
    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(super) struct One<T> {
        pub value: T,
    }

    #[konverge::types]
    pub(super) mod several {
        use konverge::prelude::*;

        /// With our derives it changes nothing.
        #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub(crate) struct Two {
            pub value: i32,
        }

        #[derive(Debug, PartialEq, konverge::serde::Serialize, konverge::serde::Deserialize)]
        pub(crate) enum Three {
            A,
        }
    }
}

#[test]
fn own_derives_behind_konverge() {
    check(own_derives::One { value: 1 }, json!({ "value": 1 }));
    check(own_derives::several::Two { value: 1 }, json!({ "value": 1 }));
    check(own_derives::several::Three::A, json!("A"));
}

#[test]
fn schemas_keep_comments_and_checks() {
    /// A comment of the type.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Checked {
        /// A comment of the field.
        #[schemars(length(min = 3, max = 10), regex(pattern = "^[a-z]+$"))]
        name: String,
        #[schemars(range(min = 1, max = 5))]
        count: u32,
        #[validate(length(min = 1))]
        list: Vec<String>,
    }
    let schema = konverge::schemars::schema_for!(Checked).to_value();
    assert_eq!(schema["description"], "A comment of the type.");
    let name = json!({
        "type": "string", "description": "A comment of the field.", "minLength": 3, "maxLength": 10, "pattern": "^[a-z]+$"
    });
    assert_eq!(schema["properties"]["name"], name);
    assert_eq!(schema["properties"]["count"]["maximum"], 5);
    assert_eq!(schema["properties"]["list"]["minItems"], 1);
}
