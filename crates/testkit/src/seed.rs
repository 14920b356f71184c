//! What a test starts with. In: an object of any kind. Out: the object as JSON, and the CRD of its kind if it needs
//! one. Which of the two it is follows from its type, so that a test only says `.with(object)`.

use konverge::Kind;
use serde_json::{Value, json};

/// An object that a [`Fake`](crate::Fake) can start with and a [`Cluster`](crate::Cluster) can be given: custom resources,
/// builders, the types of `k8s-openapi`, and JSON. `Origin` is found by the compiler.
pub trait Seed<Origin> {
    /// The object, and what the server must know to take it.
    fn seed(self) -> Seeded;
}

/// An object and its kind's CRD.
#[derive(Clone, Debug)]
pub struct Seeded {
    pub(crate) definition: Option<Value>,
    pub(crate) object: Option<Value>,
}

/// A type that knows its kind.
pub enum Typed {}

/// JSON, of a kind that is built in or known to the server already.
pub enum Raw {}

impl Seeded {
    /// The kind, without an object of it.
    pub(crate) fn kind<T: Kind>() -> Self {
        Self { definition: T::definition().map(|crd| json!(crd)), object: None }
    }
}

impl<T: Kind> Seed<Typed> for T {
    fn seed(self) -> Seeded {
        Seeded { object: Some(typed(&self)), ..Seeded::kind::<T>() }
    }
}

impl Seed<Raw> for Value {
    fn seed(self) -> Seeded {
        Seeded { definition: None, object: Some(self) }
    }
}

/// An object as JSON that says of which kind it is.
pub(crate) fn typed<T: Kind>(object: &T) -> Value {
    let mut value = json!(object);
    let api = T::resource();
    value["apiVersion"] = api.api_version.into();
    value["kind"] = api.kind.into();
    value
}
