//! Who has serde, schemars and kube among the dependencies may use their derives beside ours.

use konverge::prelude::*;

/// Imported by name, serde's and schemars' derives win over the prelude's.
mod theirs {
    use konverge::prelude::*;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Theirs", status = "Status")]
    pub(crate) struct TheirsSpec {
        pub ours: super::Ours,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Status {}
}

/// With our derives, inside a spec with theirs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ours {
    text: String,
}

/// kube's own derive on a spec with our derives.
mod kubes {
    use konverge::prelude::*;
    use kube::CustomResource;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Kubes", namespaced)]
    pub(crate) struct KubesSpec {
        pub ours: super::Ours,
    }

    impl Kind for Kubes {}
}

#[test]
fn both_derives_give_the_same_kind() {
    let ours = || Ours { text: "a".to_owned() };
    let theirs = serde_json::to_value(theirs::Theirs::new("a", theirs::TheirsSpec { ours: ours() })).unwrap();
    let kubes = serde_json::to_value(kubes::Kubes::new("a", kubes::KubesSpec { ours: ours() })).unwrap();
    assert_eq!(theirs["spec"], kubes["spec"]);
    let schema = |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
        let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        serde_json::to_value(&schema.properties.unwrap()["spec"]).unwrap()
    };
    assert_eq!(schema(theirs::Theirs::crd()), schema(kubes::Kubes::crd()));
    assert_eq!(theirs::Theirs::scope(), konverge::Scope::Cluster);
    assert_eq!(kubes::Kubes::scope(), konverge::Scope::Namespaced);
}
