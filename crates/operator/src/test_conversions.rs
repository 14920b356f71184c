//! The conversions of an operator without a listener, for tests. In: objects. Out: the same objects in other versions, by the
//! code that serves API servers.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::controller::{AnyController, Controller};
use crate::test_reconciler::InProcess;
use crate::versions::{Lost, Versions, kept_for};
use crate::webhook;

/// Converts objects of the kinds of an operator that have several versions.
///
/// `konverge-testkit` wraps this; it is public for other test kits.
pub struct TestConversions(Vec<(Versions, CustomResourceDefinition)>);

impl<R: DeserializeOwned + Send + Sync + 'static, P: InProcess> Controller<R, P> {
    /// The conversions for a test, with those of controllers that were added by [`Operator::and`](crate::Operator::and).
    pub fn test_conversions(&self) -> TestConversions {
        let own = self.spec.versions.clone().zip(AnyController::definition(&self.spec));
        let others = self.process.process().into_iter().flat_map(|process| process.versions());
        TestConversions(own.into_iter().chain(others).collect())
    }
}

impl TestConversions {
    /// The CRDs of the kinds with several versions, with all their versions.
    pub fn definitions(&self) -> Vec<CustomResourceDefinition> {
        self.0.iter().map(|(_, definition)| definition.clone()).collect()
    }

    /// An object in another version, `group/version`. The error says why there is none, and names the object.
    pub fn convert(&self, object: Value, desired: &str) -> Result<Value> {
        let kinds: Vec<Versions> = self.0.iter().map(|(versions, _)| versions.clone()).collect();
        webhook::convert(&kinds, object, desired).map_err(Error::permanent)
    }

    /// The fields of the version `version` that an object in another version keeps in an annotation.
    pub fn kept_in_annotation(&self, object: &Value, version: &str) -> Vec<String> {
        kept_for(object, version).iter().map(Lost::path).collect()
    }
}
