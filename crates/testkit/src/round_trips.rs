//! Whether objects survive conversions. In: an operator whose kinds have several versions. Out: how many objects went through every
//! version and came back, and what only annotations kept; or the first object that did not, with the seed that makes it again.

use std::collections::BTreeSet;

use konverge::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::testing::{InProcess, TestConversions};
use konverge::{Controller, Error, Result};
use konverge_apiserver::CrdRegistry;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::generate::{Random, value};

/// How many objects of each version are made.
const OBJECTS: u64 = 200;

/// What [`round_trips`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundTrips {
    /// How many objects went to another version and came back.
    pub objects: u64,
    /// How many objects were made and are not valid by schema and rules, so that they were left out. Most are refused by rules in CEL, which
    /// nobody can make objects from.
    pub refused: u64,
    /// The fields that only an annotation kept, as `v1 → v2: spec.team`. Users of the other version do not see them.
    pub kept_in_annotations: BTreeSet<String>,
}

/// Checks the conversions between the versions of an operator's kinds, with objects that are made from the schemas of the CRD:
/// in one line of a test.
///
/// 200 objects of each version are made, by types, bounds, enums, formats and patterns. Each that is valid by schema and rules is
/// converted to each other version, has to be valid there, too, and is converted back, where it has to be what it was. A conversion that fails or panics fails the check. The error
/// has the object.
///
/// ```
/// # mod v1 {
/// #     use konverge::prelude::*;
/// #     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// #     pub struct ShopSpec { pub size: u32 }
/// # }
/// # mod v2 {
/// #     use konverge::prelude::*;
/// #     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v2", kind = "Shop", namespaced)]
/// #     pub struct ShopSpec { pub replicas: u32 }
/// # }
/// # impl From<v1::Shop> for v2::Shop {
/// #     fn from(old: v1::Shop) -> Self {
/// #         v2::Shop { metadata: old.metadata, spec: v2::ShopSpec { replicas: old.spec.size } }
/// #     }
/// # }
/// # impl From<v2::Shop> for v1::Shop {
/// #     fn from(new: v2::Shop) -> Self {
/// #         v1::Shop { metadata: new.metadata, spec: v1::ShopSpec { size: new.spec.replicas } }
/// #     }
/// # }
/// # use konverge::prelude::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let operator = Operator::<v2::Shop>::new().version::<v1::Shop>();
/// let checked = konverge_testkit::round_trips(&operator).await?;
/// assert!(checked.kept_in_annotations.is_empty());
/// # Ok(())
/// # }
/// ```
pub async fn round_trips<R, P>(operator: &Controller<R, P>) -> Result<RoundTrips>
where
    R: DeserializeOwned + Send + Sync + 'static,
    P: InProcess,
{
    let (conversions, registry) = (operator.test_conversions(), CrdRegistry::new().await?);
    let mut seen = RoundTrips { objects: 0, refused: 0, kept_in_annotations: BTreeSet::new() };
    let definitions = conversions.definitions();
    if definitions.is_empty() {
        return Err(Error::permanent("no kind of the operator has several versions; .version::<T>() adds one"));
    }
    for mut definition in definitions {
        // Objects of a version that is not served could not be judged.
        definition.spec.versions.iter_mut().for_each(|version| version.served = true);
        registry.register(&json!(definition)).await?;
        for version in &definition.spec.versions {
            check_version(&conversions, &registry, &definition, &version.name, &mut seen).await?;
        }
    }
    Ok(seen)
}

/// Objects of one version through all others.
async fn check_version(
    conversions: &TestConversions,
    registry: &CrdRegistry,
    definition: &CustomResourceDefinition,
    from: &str,
    seen: &mut RoundTrips,
) -> Result<()> {
    let spec = &definition.spec;
    let (mut valid, mut refused) = (Vec::new(), String::new());
    for seed in 0..OBJECTS {
        match registry.check(&made(definition, from, seed)).await {
            Ok(checked) => valid.push((seed, checked.object)),
            Err(status) => {
                seen.refused += 1;
                refused = status.message;
            }
        }
    }
    if valid.is_empty() {
        return Err(Error::permanent(format!(
            "none of {OBJECTS} objects made from the schema of {from} is valid, so that nothing was checked; the last one: {refused}. \
             Objects are made by types, bounds, enums, formats and patterns; where rules in CEL ask for more, write objects by hand and \
             convert them there and back with `operator.test_conversions().convert(…)`"
        )));
    }
    for to in spec.versions.iter().map(|version| version.name.as_str()).filter(|to| *to != from) {
        let (there, own) = (format!("{}/{to}", spec.group), format!("{}/{from}", spec.group));
        for (seed, object) in &valid {
            let failed = |why: String| {
                Error::permanent(format!("{from} → {to}, seed {seed}: {why}\nthe object was:\n{object:#}"))
            };
            let there = conversions.convert(object.clone(), &there).map_err(|error| failed(error.to_string()))?;
            if let Err(status) = registry.check(&there).await {
                return Err(failed(format!("it is not valid there: {}\nit is:\n{there:#}", status.message)));
            }
            let kept = conversions.kept_in_annotation(&there, from);
            seen.kept_in_annotations.extend(kept.iter().map(|path| format!("{from} → {to}: {}", without_names(path))));
            let back = conversions.convert(there.clone(), &own).map_err(|error| failed(error.to_string()))?;
            if significant(&back) != significant(object) {
                return Err(failed(format!("it came back as\n{back:#}\nand was there\n{there:#}")));
            }
            seen.objects += 1;
        }
    }
    Ok(())
}

/// An object of one version, made from its schema.
fn made(definition: &CustomResourceDefinition, version: &str, seed: u64) -> Value {
    let spec = &definition.spec;
    let schema = spec.versions.iter().find(|one| one.name == version).and_then(|one| one.schema.clone());
    let schema = schema.map(|schema| json!(schema.open_api_v3_schema)).unwrap_or_default();
    let mut object = value(&schema, &mut Random::new(seed));
    object["apiVersion"] = format!("{}/{version}", spec.group).into();
    object["kind"] = spec.names.kind.as_str().into();
    object["metadata"] =
        json!({"name": format!("object-{seed}"), "labels": {"some": "label"}, "annotations": {"some": "note"}});
    object
}

/// A path without the names of items, which depend on the seed.
fn without_names(path: &str) -> String {
    let parts = path.split("[name=").enumerate();
    let plain = parts.map(|(at, part)| {
        if at == 0 { part.to_owned() } else { format!("[]{}", part.split_once(']').map_or("", |(_, rest)| rest)) }
    });
    plain.collect()
}

/// An object without what means nothing: fields that are null or empty, and how a number is written.
fn significant(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), significant(field)));
            Value::Object(fields.filter(|(_, field)| !is_empty(field)).collect())
        }
        Value::Array(items) => items.iter().map(significant).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
