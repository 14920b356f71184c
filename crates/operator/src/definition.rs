//! The definition of a custom resource. In: what `#[kube(..)]` says about a kind, and the schema of its type. Out: its
//! `CustomResourceDefinition`. The derive has checked the attributes, so nothing here can fail.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
    SelectableField,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_runtime::Condition;
use kube::core::Rule;
use kube::core::cel::MergeStrategy;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::structural::structural;

/// What `#[kube(..)]` says about a kind.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of a CRD, under the names they have there")]
pub struct Definition {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub columns: &'static [Column],
    pub selectable: &'static [&'static str],
    pub scale: Option<Scale>,
    pub status: bool,
    pub served: bool,
    pub storage: bool,
    /// Whether the version is deprecated, and the warning for it; an empty one leaves it to Kubernetes.
    pub deprecated: Option<&'static str>,
    pub annotations: &'static [(&'static str, &'static str)],
    pub labels: &'static [(&'static str, &'static str)],
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of a CRD, under the names they have there")]
pub struct Column {
    pub name: &'static str,
    pub type_: &'static str,
    pub json_path: &'static str,
    pub description: Option<&'static str>,
    pub format: Option<&'static str>,
    pub priority: Option<i32>,
}

/// Where the scale subresource reads and writes.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of a CRD, under the names they have there")]
pub struct Scale {
    pub spec_replicas_path: &'static str,
    pub status_replicas_path: &'static str,
    pub label_selector_path: Option<&'static str>,
}

impl Definition {
    /// The CRD, with `schema` for its only version.
    pub fn crd(self, schema: Option<JSONSchemaProps>) -> CustomResourceDefinition {
        let pairs = |pairs: &[(&str, &str)]| {
            some(pairs).map(|pairs| pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        let metadata = ObjectMeta {
            name: Some(format!("{}.{}", self.plural, self.group)),
            annotations: pairs(self.annotations),
            labels: pairs(self.labels),
            ..ObjectMeta::default()
        };
        let names = CustomResourceDefinitionNames {
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
            singular: Some(self.singular.to_owned()),
            short_names: texts(self.short_names),
            categories: texts(self.categories),
            ..CustomResourceDefinitionNames::default()
        };
        let subresources = CustomResourceSubresources {
            status: self.status.then(|| CustomResourceSubresourceStatus(serde_json::json!({}))),
            scale: self.scale.as_ref().map(Scale::published),
        };
        let version = CustomResourceDefinitionVersion {
            name: self.version.to_owned(),
            served: self.served,
            storage: self.storage,
            deprecated: self.deprecated.map(|_| true),
            deprecation_warning: self.deprecated.filter(|warning| !warning.is_empty()).map(str::to_owned),
            additional_printer_columns: some(self.columns).map(|all| all.iter().map(Column::published).collect()),
            selectable_fields: some(self.selectable)
                .map(|paths| paths.iter().map(|path| SelectableField { json_path: dotted(path) }).collect()),
            subresources: (self.status || self.scale.is_some()).then_some(subresources),
            schema: Some(CustomResourceValidation { open_api_v3_schema: schema }),
        };
        let spec = CustomResourceDefinitionSpec {
            group: self.group.to_owned(),
            names,
            scope: if self.namespaced { "Namespaced" } else { "Cluster" }.to_owned(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        };
        CustomResourceDefinition { metadata, spec, status: None }
    }
}

impl Column {
    fn published(&self) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: self.type_.to_owned(),
            json_path: dotted(self.json_path),
            description: self.description.map(str::to_owned),
            format: self.format.map(str::to_owned),
            priority: self.priority,
        }
    }
}

impl Scale {
    fn published(&self) -> CustomResourceSubresourceScale {
        CustomResourceSubresourceScale {
            spec_replicas_path: dotted(self.spec_replicas_path),
            status_replicas_path: dotted(self.status_replicas_path),
            label_selector_path: self.label_selector_path.map(dotted),
        }
    }
}

/// The schema of an object made of these parts, before it is made structural.
pub fn object_schema(description: &str, spec: Schema, spec_required: bool, status: Option<Schema>) -> Schema {
    let mut schema = json_schema!({ "type": "object", "properties": { "spec": spec } });
    let object = schema.ensure_object();
    if !description.is_empty() {
        object.insert("description".to_owned(), description.into());
    }
    if spec_required {
        object.insert("required".to_owned(), serde_json::json!(["spec"]));
    }
    if let (Some(status), Some(properties)) = (status, object.get_mut("properties")) {
        properties["status"] = status.to_value();
    }
    schema
}

/// The schema of `K` as a CRD may hold it.
pub fn structural_schema<K: JsonSchema>() -> JSONSchemaProps {
    let mut schema = structural::<K>();
    add_conditions(&mut schema);
    serde_json::from_value(schema).expect("a structural schema holds only what JSONSchemaProps knows")
}

/// Lets every status have conditions, whether its type has a field for them or not: they are set one by one, and a
/// server drops what its schema does not know. Those of a field are told apart by their type, too, as in every kind.
fn add_conditions(schema: &mut Value) {
    let status = schema.pointer_mut("/properties/status").filter(|status| status["type"] == "object");
    let Some(Value::Object(status)) = status else { return };
    // One without any field has no properties yet.
    let Value::Object(status) = status.entry("properties").or_insert_with(|| serde_json::json!({})) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| {
        serde_json::json!({
            "description": "What is true of the object, one entry for each question.",
            "type": "array",
            "items": Condition::json_schema(&mut SchemaGenerator::default()),
        })
    });
    // The key of a map has to be there in every entry.
    let has_type = |items: &Value| items["required"].as_array().is_some_and(|all| all.contains(&"type".into()));
    if conditions["type"] == "array"
        && has_type(&conditions["items"])
        && conditions.get("x-kubernetes-list-type").is_none()
    {
        conditions["x-kubernetes-list-type"] = "map".into();
        conditions["x-kubernetes-list-map-keys"] = serde_json::json!(["type"]);
    }
}

/// Adds a CEL rule to a schema.
pub fn validation(schema: &mut Schema, rule: impl Into<Rule>) {
    kube::core::validate(schema, rule).expect("a rule is text, which is JSON");
}

/// Says in a schema how server-side apply merges this list, map or struct.
pub fn merge_strategy(schema: &mut Schema, strategy: impl Into<MergeStrategy>) {
    let mut value = std::mem::take(schema).to_value();
    kube::core::merge_strategy(&mut value, strategy.into()).expect("a merge strategy is text, which is JSON");
    *schema = value.try_into().expect("it was a schema before");
}

fn some<T>(all: &[T]) -> Option<&[T]> {
    (!all.is_empty()).then_some(all)
}

fn texts(all: &[&str]) -> Option<Vec<String>> {
    some(all).map(|all| all.iter().map(|text| (*text).to_owned()).collect())
}

/// The API wants paths to begin with a dot; people forget it.
fn dotted(path: &str) -> String {
    if path.starts_with('.') { path.to_owned() } else { format!(".{path}") }
}
