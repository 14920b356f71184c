//! Objects from manifests. In: the text of a YAML file, such as a sample that users apply. Out: the object as its Rust type, or what is
//! wrong with the text.

use std::panic::Location;

use konverge::{Error, Kind, Result};
use serde_json::Value;

/// An object from YAML: for tests that begin with the samples of a project, so that the samples stay valid.
///
/// Fails if the text has more than one document, is of another kind or group, or does not fit the type. The version may be another one of
/// the same group: the fields decide then.
///
/// ```
/// use konverge::prelude::*;
/// use konverge_testkit::{Fake, from_yaml};
///
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// # pub struct ShopSpec { pub replicas: i32 }
/// # fn main() -> Result<()> {
/// let sample = "{apiVersion: example.com/v1, kind: Shop, metadata: {name: corner}, spec: {replicas: 2}}"; // include_str!(…)
/// let shop: Shop = from_yaml(sample)?;
/// assert_eq!(shop.spec.replicas, 2);
/// let fake = Fake::new().with(shop);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn from_yaml<T: Kind>(text: &str) -> Result<T> {
    // Which file it is was lost when it became a text; the line that asked for it names the file.
    let asked = Location::caller();
    let object: Value = serde_saphyr::from_str(text)
        .map_err(|error| Error::permanent(format!("the manifest that {asked} reads is no YAML: {error}")))?;
    let api = T::resource();
    let part = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (part("apiVersion"), part("kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if (group, kind.as_str()) != (api.group.as_str(), api.kind.as_str()) {
        let wanted = format!("{} {}", api.api_version, api.kind);
        return Err(Error::permanent(format!(
            "the manifest that {asked} reads is of {api_version:?} {kind:?}, not of {wanted}"
        )));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(object).map_err(|error| {
        Error::permanent(format!("the {kind} {name:?} that {asked} reads does not fit its type: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use konverge::prelude::{ConfigMap, Deployment};

    use super::*;

    #[track_caller]
    fn check<T: Kind>(text: &str, expect: &str) {
        let told = match from_yaml::<T>(text) {
            Ok(object) => format!("{:?}", object.meta().name.as_deref().unwrap_or_default()),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(expect), "{told}");
    }

    #[test]
    fn manifests_are_of_their_type() {
        check::<ConfigMap>("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", "a");
        check::<ConfigMap>("# a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", "b");
        let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: c}}";
        check::<ConfigMap>(deployment, "is of \"apps/v1\" \"Deployment\", not of v1 ConfigMap");
        check::<Deployment>("{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: c}}", "expected apps/v1");
        check::<Deployment>("{apiVersion: apps/v1, kind: Deployment, metadata: {name: c}, spec: 3}", "invalid type");
        // A failure names the object, and the line beside which the file is named.
        let unfit = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: c}, spec: 3}";
        check::<Deployment>(unfit, "the Deployment \"c\" that ");
        check::<Deployment>(unfit, "sample.rs:");
        check::<Deployment>("a: [", "sample.rs:");
        check::<ConfigMap>("{apiVersion: v1, kind: ConfigMap, metadata: {name: [1]}}", "invalid type");
    }
}
