//! Tests of operators, without a cluster: an API server in the same process, which starts in milliseconds.
//!
//! ```text
//! fake      a client over given objects, for unit tests: one reconcile, and what it did
//! cluster   the server as a whole, for integration tests: an operator runs, and one waits for what it does
//! admit     webhooks of an operator, called as an API server calls them
//! round_trips   whether objects survive conversions between the versions of a kind; generate: objects from a schema
//! call      what was asked of the server, as small values that print well
//! react     answers that are not the server's: errors, delays, lost connections
//! seed      what a test starts with; sample: an object from a manifest
//! machine   start → record → react → server
//! kinds     which kind a path names
//! permissions   operators under the rights that they declare
//! ```
//!
//! The semantics are those of the server that `konverge dev` runs: validation, defaults, server-side apply, finalizers,
//! owners, watches. Nothing is imitated, nothing listens, and no two tests share anything.
//!
//! ```
//! use konverge::prelude::*;
//! use konverge_testkit::Fake;
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
//! pub struct GreetingSpec {
//!     pub text: String,
//! }
//!
//! async fn reconcile(ctx: Context<Greeting>) -> Result<Action> {
//!     ctx.apply(ConfigMap::new(ctx.name()).data("text", &ctx.resource().spec.text)).await?;
//!     Ok(Action::await_change())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let operator = Operator::<Greeting>::new().reconcile(reconcile);
//! let fake = Fake::new().with(Greeting::new("hello", GreetingSpec { text: "good morning".into() }));
//!
//! let action = fake.reconcile(&operator, "hello").await?;
//!
//! assert_eq!(action, Action::await_change());
//! assert_eq!(fake.writes().lines(), ["apply ConfigMap default/hello"]);
//! # Ok(())
//! # }
//! ```

mod admit;
mod cluster;
mod fake;

mod generate;
mod round_trips;

mod call;
mod react;
mod sample;
mod seed;

mod kinds;
mod machine;
mod permissions;

pub use admit::{Admitted, NotAdmitted, Review};
pub use call::{Call, Calls, Verb};
pub use cluster::{Cluster, Running};
pub use fake::Fake;
pub use konverge::testing::{Retry, retry};
pub use konverge_apiserver::{Checked, CrdRegistry, RegisteredKind};
pub use permissions::Permissions;
pub use react::When;
pub use round_trips::{RoundTrips, round_trips};
pub use sample::from_yaml;
pub use seed::{Raw, Seed, Seeded, Typed};
