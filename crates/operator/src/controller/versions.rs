//! Further versions of a controller's kind.

use std::fmt::Display;

use super::Controller;
use crate::kind::Kind;
use crate::versions::Versions;

impl<R: Kind, P> Controller<R, P> {
    /// Serves the kind in another version, too: `T` is its type there. The version of `R` is the one that is stored and that
    /// reconciles and webhooks see, whichever version a client uses.
    ///
    /// The conversions are `From` or, if they may fail, `TryFrom` in both directions. They are about the spec and the status:
    /// names, labels, annotations and the rest of the metadata are kept by the framework, and conditions that the status type
    /// has no field for, too. What a version cannot express is not lost: while an object is in that version, the annotation
    /// `conversion.konverge.dev/VERSION` keeps it (64 KiB at most; an object with more cannot be read in that version). It
    /// comes back where nobody changed the field through the other version.
    ///
    /// The CRD has all versions, those with `#[kube(served = false)]` or `#[kube(deprecated)]` as they say. API servers convert
    /// by calling the operator, at the path `/convert` of its webhooks; the operator tells them its certificates. Objects that
    /// are stored in another version are written anew when the operator starts, and `status.storedVersions` of the CRD is
    /// shortened then, so that an old version can be removed.
    ///
    /// ```
    /// mod v1 {
    ///     use konverge::prelude::*;
    ///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    ///     #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, deprecated = "use v2")]
    ///     pub struct ShopSpec { pub size: u32 }
    /// }
    ///
    /// mod v2 {
    ///     use konverge::prelude::*;
    ///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    ///     #[kube(group = "example.com", version = "v2", kind = "Shop", namespaced)]
    ///     pub struct ShopSpec { pub replicas: u32, pub team: Option<String> }
    /// }
    ///
    /// impl From<v1::Shop> for v2::Shop {
    ///     fn from(old: v1::Shop) -> Self {
    ///         let spec = v2::ShopSpec { replicas: old.spec.size, team: None };
    ///         v2::Shop { metadata: old.metadata, spec }
    ///     }
    /// }
    ///
    /// impl From<v2::Shop> for v1::Shop {
    ///     fn from(new: v2::Shop) -> Self {
    ///         v1::Shop { metadata: new.metadata, spec: v1::ShopSpec { size: new.spec.replicas } }
    ///     }
    /// }
    ///
    /// use konverge::prelude::*;
    /// let operator = Operator::<v2::Shop>::new().version::<v1::Shop>();
    /// let crd = &operator.definitions()[0];
    /// let versions = crd.spec.versions.iter().map(|version| (version.name.as_str(), version.storage));
    /// assert_eq!(versions.collect::<Vec<_>>(), [("v2", true), ("v1", false)]);
    /// ```
    pub fn version<T>(mut self) -> Self
    where
        T: Kind + TryFrom<R, Error: Display>,
        R: TryFrom<T, Error: Display>,
    {
        let kind = self.spec.kind.clone();
        self.spec.versions.get_or_insert_with(|| Versions::new(kind)).add::<R, T>();
        self
    }
}
