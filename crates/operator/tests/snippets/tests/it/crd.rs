//! A kind of one's own: its CRD as data, and an API server that takes the CRD and then holds objects to it.

use std::collections::{BTreeMap, BTreeSet};

use konverge::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use konverge::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use konverge::kube::Client;
use konverge::kube::core::object::{HasSpec, HasStatus};
use konverge::prelude::*;
use konverge::serde_json::{Value, json, to_value};

use crate::cluster::{apply, apply_value, client};

/// A shop.
///
/// With goods.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Shop",
    namespaced,
    status = "ShopStatus",
    derive = "PartialEq",
    derive = "Default",
    plural = "shoppes",
    singular = "shoppe",
    shortname = "sh",
    shortname = "shp",
    category = "all",
    selectable = "spec.city",
    validation = Rule::new("self.metadata.name.size() < 20").message("a short name, please"),
    validation = "self.spec.tills >= 0"
)]
#[kube(printcolumn(name = "City", type_ = "string", json_path = ".spec.city", priority = 1))]
#[kube(printcolumn = r#"{"name":"Tills", "type":"integer", "jsonPath":".spec.tills", "description":"how many"}"#)]
#[kube(scale(
    spec_replicas_path = ".spec.tills",
    status_replicas_path = ".status.tills",
    label_selector_path = ".status.selector"
))]
#[kube(annotation("example.com/team", "shops"), label("team", "shops"), deprecated = "shops close")]
#[kube(attr = "allow(clippy::derive_partial_eq_without_eq)")]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShopSpec {
    /// Where it is.
    #[schemars(length(min = 2))]
    #[x_kube(validation = ("self == oldSelf", "shops do not move"))]
    city: String,
    #[serde(default)]
    tills: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShopStatus {
    tills: i32,
    selector: Option<String>,
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    conditions: Vec<Condition>,
}

#[test]
fn everything_kube_can_say() {
    let crd = to_value(Shop::crd()).unwrap();
    assert_eq!(Shop::crd_name(), "shoppes.example.com");
    assert_eq!(Shop::shortnames(), ["sh", "shp"]);
    assert_eq!(
        crd["metadata"],
        json!({
            "name": "shoppes.example.com",
            "annotations": { "example.com/team": "shops" },
            "labels": { "team": "shops" }
        })
    );
    let names = json!({
        "kind": "Shop", "plural": "shoppes", "singular": "shoppe", "shortNames": ["sh", "shp"], "categories": ["all"]
    });
    assert_eq!(crd["spec"]["names"], names);
    assert_eq!((&crd["spec"]["scope"], &crd["spec"]["group"]), (&json!("Namespaced"), &json!("example.com")));
    let mut version = crd["spec"]["versions"][0].clone();
    let schema = version["schema"]["openAPIV3Schema"].take();
    assert_eq!(
        version,
        json!({
            "name": "v1",
            "served": true,
            "storage": true,
            "deprecated": true,
            "deprecationWarning": "shops close",
            "additionalPrinterColumns": [
                { "name": "City", "type": "string", "jsonPath": ".spec.city", "priority": 1 },
                { "name": "Tills", "type": "integer", "jsonPath": ".spec.tills", "description": "how many" }
            ],
            "selectableFields": [{ "jsonPath": ".spec.city" }],
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.tills",
                    "statusReplicasPath": ".status.tills",
                    "labelSelectorPath": ".status.selector"
                }
            },
            "schema": { "openAPIV3Schema": null }
        })
    );
    assert_eq!(schema["description"], "A shop.\n\nWith goods.");
    assert_eq!(schema["required"], json!(["spec"]));
    assert_eq!(
        schema["x-kubernetes-validations"],
        json!([
            { "rule": "self.metadata.name.size() < 20", "message": "a short name, please" },
            { "rule": "self.spec.tills >= 0" }
        ])
    );
    assert_eq!(
        schema["properties"]["spec"],
        json!({
            "type": "object",
            "description": "A shop.\n\nWith goods.",
            "required": ["city"],
            "properties": {
                "city": {
                    "type": "string",
                    "description": "Where it is.",
                    "minLength": 2,
                    "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "shops do not move" }]
                },
                "tills": { "type": "integer", "format": "int32", "default": 0 }
            }
        })
    );
    let conditions = &schema["properties"]["status"]["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(schema["properties"]["status"]["nullable"], true);
}

#[test]
fn objects_of_a_kind() {
    let mut shop = Shop::new("corner", ShopSpec { city: "Bern".to_owned(), tills: 2 });
    assert_eq!(
        to_value(&shop).unwrap(),
        json!({
            "apiVersion": "example.com/v1",
            "kind": "Shop",
            "metadata": { "name": "corner" },
            "spec": { "city": "Bern", "tills": 2 }
        })
    );
    assert_eq!(shop.spec().tills, 2);
    assert!(shop.status().is_none());
    *shop.status_mut() = Some(ShopStatus { tills: 1, ..Default::default() });
    let json = to_value(&shop).unwrap();
    assert_eq!(json["status"]["tills"], 1);
    assert_eq!(konverge::serde_json::from_value::<Shop>(json).unwrap(), shop);
    assert_eq!(Shop::group_version_kind().to_string(), "example.com/v1, Kind=Shop");
    assert_eq!(Shop::resource().plural, "shoppes");
    assert_eq!(Shop::scope(), konverge::Scope::Namespaced);
    assert_eq!(Shop::default().spec, ShopSpec::default());
}

#[test]
fn settings_that_are_rarely_used() {
    #[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Policy", root = "PolicyObject", default, doc = "A policy.")]
    #[kube(served = false, storage = false, deprecated)]
    struct PolicySpec {}

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
    #[kube(group = "example.com", version = "v1", kind = "Foreign", schema = "disabled")]
    struct ForeignSpec {}

    let crd = to_value(PolicyObject::crd()).unwrap();
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["spec"]["names"], json!({ "kind": "Policy", "plural": "policies", "singular": "policy" }));
    let version = &crd["spec"]["versions"][0];
    assert_eq!((&version["served"], &version["storage"]), (&json!(false), &json!(false)));
    assert_eq!((&version["deprecated"], &version["deprecationWarning"]), (&json!(true), &Value::Null));
    let schema = &version["schema"]["openAPIV3Schema"];
    assert_eq!((&schema["description"], &schema["required"]), (&json!("A policy."), &Value::Null));
    let bare = json!({ "apiVersion": "example.com/v2", "kind": "Policy", "metadata": { "name": "a" } });
    konverge::serde_json::from_value::<PolicyObject>(bare).unwrap();
    assert_eq!(PolicyObject::scope(), konverge::Scope::Cluster);
    assert_eq!(to_value(Foreign::crd()).unwrap()["spec"]["versions"][0]["schema"], json!({}));
}

/// Applies a CRD and waits until its kind is served.
async fn install<K: CustomResourceExt>(client: &Client) {
    apply::<CustomResourceDefinition>(client, &K::crd()).await.unwrap();
}

/// The schema of a field, and what an API server with that schema says to values of the field.
struct Case<'a> {
    field: &'a str,
    schema: Value,
    taken: Vec<Value>,
    refused: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Size {
    /// Not much.
    #[default]
    Small,
    Large,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Source {
    /// From a registry.
    Image { name: String },
    /// From a repository.
    Git(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Storage {
    Disk {
        size: String,
        #[serde(default)]
        fast: bool,
    },
    Bucket {
        url: String,
    },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Number(i32),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Mixed {
    Off,
    On { level: i32 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Flat {
    own: i32,
    #[serde(flatten)]
    source: Source,
    #[serde(flatten)]
    size: BTreeMap<String, String>,
}

#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Zoo", namespaced)]
struct ZooSpec {
    int8: Option<i8>,
    int64: Option<i64>,
    uint8: Option<u8>,
    uint16: Option<u16>,
    uint32: Option<u32>,
    uint64: Option<u64>,
    size_t: Option<usize>,
    float: Option<f32>,
    letter: Option<char>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    positive: Option<i32>,
    size: Option<Size>,
    #[serde(default)]
    plain: Size,
    source: Option<Source>,
    storage: Option<Storage>,
    adjacent: Option<Adjacent>,
    either: Option<Either>,
    shape: Option<Shape>,
    mixed: Option<Mixed>,
    tree: Option<Tree>,
    flat: Option<Flat>,
    anything: Option<Value>,
    #[serde(default)]
    set: BTreeSet<String>,
    #[serde(default)]
    map: BTreeMap<String, u32>,
    #[serde(default)]
    by_number: BTreeMap<u32, String>,
    #[serde(default)]
    any_map: BTreeMap<String, Value>,
    pair: Option<(i32, String)>,
    /// A port.
    port: Option<IntOrString>,
    #[serde(default)]
    nothing: (),
}

#[tokio::test]
async fn schemas_that_kubernetes_accepts() {
    const ANY: &str = "x-kubernetes-preserve-unknown-fields";
    let client = client().await;
    install::<Zoo>(&client).await;
    let spec =
        to_value(Zoo::crd()).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
    // The published type of a schema holds bounds as floats.
    let integer = |format: &str, min: Option<i64>, max: Option<i64>| {
        let mut schema = json!({ "type": "integer", "format": format, "nullable": true });
        for (key, limit) in [("minimum", min), ("maximum", max)] {
            if let Some(limit) = limit {
                schema[key] = (limit as f64).into();
            }
        }
        schema
    };
    let case = |field, schema, taken: Value, refused: Value| Case {
        field,
        schema,
        taken: taken.as_array().unwrap().clone(),
        refused: refused.as_array().unwrap().clone(),
    };
    let cases = [
        case("int8", integer("int32", Some(-128), Some(127)), json!([-128, null]), json!([128, 1.5, "1"])),
        case("int64", integer("int64", None, None), json!([i64::MAX]), json!([])),
        case("uint8", integer("int32", Some(0), Some(255)), json!([255]), json!([-1, 256])),
        case("uint16", integer("int32", Some(0), Some(65535)), json!([65535]), json!([65536])),
        case(
            "uint32",
            integer("int64", Some(0), Some(4_294_967_295)),
            json!([u32::MAX]),
            json!([-1, 4_294_967_296i64]),
        ),
        case("uint64", integer("int64", Some(0), None), json!([0]), json!([-1])),
        case("size_t", integer("int64", Some(0), None), json!([0]), json!([-1])),
        case("float", json!({ "type": "number", "format": "float", "nullable": true }), json!([1.5, 1]), json!(["1"])),
        case(
            "letter",
            json!({ "type": "string", "minLength": 1, "maxLength": 1, "nullable": true }),
            json!(["a"]),
            json!(["", "ab"]),
        ),
        case(
            "positive",
            json!({
                "type": "integer", "format": "int32", "minimum": 0.0, "exclusiveMinimum": true, "nullable": true
            }),
            json!([1]),
            json!([0]),
        ),
        case(
            "size",
            json!({ "type": "string", "enum": ["Large", "Small"] }),
            json!(["Small"]),
            json!(["Medium", null]),
        ),
        case(
            "plain",
            json!({ "type": "string", "enum": ["Large", "Small"], "default": "Small" }),
            json!(["Large"]),
            json!(["Medium"]),
        ),
        case(
            "source",
            json!({
                "type": "object",
                "nullable": true,
                "oneOf": [{ "required": ["image"] }, { "required": ["git"] }],
                "properties": {
                    "image": {
                        "type": "object",
                        "description": "From a registry.",
                        "required": ["name"],
                        "properties": { "name": { "type": "string" } }
                    },
                    "git": { "type": "string", "description": "From a repository." }
                }
            }),
            json!([{ "image": { "name": "a" } }, { "git": "b" }]),
            json!([{}, { "git": "b", "image": { "name": "a" } }, { "image": {} }]),
        ),
        case(
            "storage",
            json!({
                "type": "object",
                "nullable": true,
                "oneOf": [
                    { "properties": { "type": { "enum": ["Disk"] } }, "required": ["type", "size"] },
                    { "properties": { "type": { "enum": ["Bucket"] } }, "required": ["type", "url"] },
                    { "properties": { "type": { "enum": ["Nothing"] } }, "required": ["type"] }
                ],
                "properties": {
                    "type": { "type": "string", "enum": ["Disk", "Bucket", "Nothing"] },
                    "size": { "type": "string" },
                    "fast": { "type": "boolean" },
                    "url": { "type": "string" }
                }
            }),
            json!([{ "type": "Disk", "size": "1Gi" }, { "type": "Bucket", "url": "s3://a" }, { "type": "Nothing" }]),
            json!([{ "type": "Disk" }, { "size": "1Gi" }, { "type": "Tape" }]),
        ),
        case(
            "adjacent",
            json!({
                "type": "object",
                "nullable": true,
                "oneOf": [
                    { "properties": { "kind": { "enum": ["Number"] } }, "required": ["kind", "value"] },
                    { "properties": { "kind": { "enum": ["Text"] } }, "required": ["kind", "value"] }
                ],
                "properties": {
                    "kind": { "type": "string", "enum": ["Number", "Text"] },
                    "value": { "x-kubernetes-int-or-string": true }
                }
            }),
            json!([{ "kind": "Number", "value": 1 }, { "kind": "Text", "value": "a" }]),
            json!([{ "kind": "Number" }, { "kind": "Word", "value": "a" }, { "kind": "Text", "value": [] }]),
        ),
        case("either", json!({ "x-kubernetes-int-or-string": true, "nullable": true }), json!([1, "a"]), json!([[]])),
        case(
            "shape",
            json!({
                "type": "object",
                "nullable": true,
                "anyOf": [{ "required": ["radius"] }, { "required": ["width", "height"] }],
                "properties": {
                    "radius": { "type": "number", "format": "double" },
                    "width": { "type": "number", "format": "double" },
                    "height": { "type": "number", "format": "double" }
                }
            }),
            json!([{ "radius": 1 }, { "width": 1, "height": 2 }]),
            json!([{}, { "width": 1 }]),
        ),
        case("mixed", json!({ ANY: true, "nullable": true }), json!(["Off", { "On": { "level": 1 } }]), json!([])),
        case(
            "tree",
            json!({
                "type": "object",
                "nullable": true,
                "required": ["name", "children"],
                "properties": {
                    "name": { "type": "string" },
                    "children": { "type": "array", "items": { ANY: true } }
                }
            }),
            json!([{ "name": "a", "children": [{ "name": "b", "children": [] }] }]),
            json!([{ "name": "a" }]),
        ),
        case(
            "flat",
            json!({
                "type": "object",
                "nullable": true,
                "required": ["own"],
                "oneOf": [{ "required": ["image"] }, { "required": ["git"] }],
                ANY: true,
                "properties": {
                    "own": { "type": "integer", "format": "int32" },
                    "image": {
                        "type": "object",
                        "description": "From a registry.",
                        "required": ["name"],
                        "properties": { "name": { "type": "string" } }
                    },
                    "git": { "type": "string", "description": "From a repository." }
                }
            }),
            json!([{ "own": 1, "git": "a", "other": "b" }]),
            json!([{ "own": 1, "other": "b" }]),
        ),
        case("anything", json!({ ANY: true }), json!([1, "a", [], { "a": 1 }]), json!([])),
        case(
            "set",
            json!({
                "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set", "default": []
            }),
            json!([["a", "b"]]),
            json!([["a", "a"]]),
        ),
        case(
            "map",
            json!({
                "type": "object",
                "default": {},
                "additionalProperties":
                    { "type": "integer", "format": "int64", "minimum": 0.0, "maximum": 4_294_967_295.0 }
            }),
            json!([{ "a": 1 }]),
            json!([{ "a": -1 }]),
        ),
        case(
            "by_number",
            json!({ "type": "object", "default": {}, "additionalProperties": { "type": "string" } }),
            json!([{ "1": "a" }]),
            json!([{ "1": 1 }]),
        ),
        case(
            "any_map",
            json!({ "type": "object", "default": {}, ANY: true }),
            json!([{ "a": { "b": 1 } }]),
            json!([[]]),
        ),
        case(
            "pair",
            json!({
                "type": "array",
                "nullable": true,
                "items": { "x-kubernetes-int-or-string": true },
                "minItems": 2,
                "maxItems": 2
            }),
            json!([[1, "a"]]),
            json!([[1], [1, "a", 2]]),
        ),
        case(
            "port",
            json!({ "x-kubernetes-int-or-string": true, "description": "A port." }),
            json!([80, "http"]),
            json!([{}]),
        ),
    ];
    for Case { field, schema, taken, refused } in cases {
        assert_eq!(spec["properties"][field], schema, "schema of {field}");
        let object = |name: &str, value: &Value| {
            json!({
                "apiVersion": "example.com/v1",
                "kind": "Zoo",
                "metadata": { "name": name },
                "spec": { field: value }
            })
        };
        for value in &taken {
            let name = field.replace('_', "-");
            let stored = apply_value::<Zoo>(&client, object(&name, value))
                .await
                .unwrap_or_else(|message| panic!("{field} refuses {value}: {message}"));
            let read: Zoo = konverge::serde_json::from_value(stored.clone())
                .unwrap_or_else(|error| panic!("{field} does not read {stored}: {error}"));
            // What the type writes is what the server takes.
            apply(&client, &Zoo::new(name, read.spec))
                .await
                .unwrap_or_else(|message| panic!("{field} as written: {message}"));
        }
        for value in &refused {
            let answer = apply_value::<Zoo>(&client, object("refused", value)).await;
            assert!(answer.is_err(), "{field} takes {value}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_real_kind_from_crd_to_status() {
    let client = client().await;
    install::<Shop>(&client).await;
    install::<konverge_snippets::WebApp>(&client).await;
    let shop = apply(&client, &Shop::new("corner", ShopSpec { city: "Bern".to_owned(), tills: 2 })).await.unwrap();
    assert!(shop.metadata.uid.is_some());
    let short = apply(&client, &Shop::new("corner", ShopSpec { city: "B".to_owned(), tills: 2 })).await.unwrap_err();
    assert!(short.contains("spec.city") && short.contains("should be at least 2 chars long"), "{short}");
    let unknown = apply_value::<Shop>(
        &client,
        json!({
            "apiVersion": "example.com/v1",
            "kind": "Shop",
            "metadata": { "name": "corner" },
            "spec": { "city": "Bern", "roof": "red" }
        }),
    );
    let unknown = unknown.await.unwrap_err();
    assert!(unknown.contains("spec.roof"), "{unknown}");
}
