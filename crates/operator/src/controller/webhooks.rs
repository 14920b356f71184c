//! Webhooks of a controller: those of its own kind in few words, and any others.

use std::future::Future;

use konverge_runtime::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Controller;
use crate::webhook::{Admission, Webhook};

impl<R: DeserializeOwned + Send + Sync + 'static, P> Controller<R, P> {
    /// A function that refuses objects of this kind before they are stored, or lets them pass: a validating admission webhook.
    /// See [`Webhook`] for what it may return, and for options.
    ///
    /// The operator serves it over HTTPS, makes the certificates, and registers it with the API server.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge::webhook::Admission;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String, replicas: u32 }
    ///
    /// async fn validate(request: Admission<Shop>) -> Result<()> {
    ///     let (shop, mut errors) = (request.object(), FieldErrors::new());
    ///     if shop.spec.replicas > 100 {
    ///         errors.invalid("spec.replicas", shop.spec.replicas, "must be at most 100");
    ///     }
    ///     if shop.spec.image.is_empty() {
    ///         errors.required("spec.image", "say what to run");
    ///     }
    ///     Ok(errors.into_result()?)
    /// }
    ///
    /// Operator::<Shop>::new().validate(validate);
    /// ```
    pub fn validate<F, Fut>(self, validate: F) -> Self
    where
        F: Fn(Admission<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let webhook = Webhook::validating_dynamic(&self.spec.kind, validate);
        self.webhook(webhook)
    }

    /// A function that returns objects of this kind as they are to be stored: a mutating admission webhook, which
    /// controller-runtime calls a defaulter. It runs before [`Controller::validate`] and before the validation of the API
    /// server. It has to be idempotent.
    ///
    /// Only what it changes is stored. An object that does not decode is not shown to it: the API server refuses it by the schema
    /// of the CRD. For plain defaults `#[serde(default)]` is simpler: they are in the CRD, and need no
    /// webhook.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge::webhook::Admission;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    ///
    /// async fn defaults(request: Admission<Shop>) -> Result<Shop> {
    ///     let mut shop = request.object().clone();
    ///     let team = request.namespace().split('-').next().unwrap_or_default().to_owned();
    ///     shop.metadata.labels.get_or_insert_default().entry("team".into()).or_insert(team);
    ///     Ok(shop)
    /// }
    ///
    /// Operator::<Shop>::new().default_with(defaults);
    /// ```
    pub fn default_with<F, Fut>(self, defaults: F) -> Self
    where
        R: Serialize,
        F: Fn(Admission<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R>> + Send + 'static,
    {
        let webhook = Webhook::mutating_dynamic(&self.spec.kind, defaults);
        self.webhook(webhook)
    }

    /// Adds a webhook with options, or for another kind, such as Pods: see [`Webhook`].
    pub fn webhook<T: DeserializeOwned + Send + Sync + 'static>(mut self, webhook: Webhook<T>) -> Self {
        let is_own = webhook.spec().kind.resource() == self.spec.kind.resource() && (self.spec.definition)().is_some();
        let webhook = if is_own { webhook.with_own_schema() } else { webhook };
        self.spec.webhooks.push(webhook.erased());
        self
    }
}
