//! Types that both paths of Konverge share, the API server and operators. No I/O, no clock, no async.
//!
//! ```text
//! key          the key of an object: namespace and name
//! kind         group, version, kind and resource names
//! name         which strings may name an object, a label, a namespace
//! nulls        JSON whose nulls count as absent, as in Go
//! quantity     amounts of resources: add, compare, write
//! quota        what objects use of a ResourceQuota, and which quotas apply to them
//! selector     label and field selectors: parse, match
//! garbage      the decisions of garbage collection
//! field        an error about one field of an object, in Kubernetes' words
//! status       the `Status` that answers every failed request
//! metrics_page the page that Prometheus reads, as text
//! kubernetes   the Kubernetes release that the product is made for
//! simulate     how annotations say what simulated pods do
//! kept_rights  how a role says that its rights are needed rarely
//! error_chain  an error with its causes, on one line
//! x509         certificates and requests for them: PEM, DER, names
//! ```
//!
//! This crate never knows its callers: neither the API server nor an operator.

mod error_chain;
mod field;
mod garbage;
mod kept_rights;
mod key;
mod kind;
mod kubernetes;
mod metrics_page;
mod name;
mod nulls;
mod quantity;
mod quota;
mod selector;
pub mod simulate;
mod status;
pub mod x509;

pub use error_chain::{ErrorChain, error_chain};
pub use field::{FieldError, FieldErrorKind, FieldPath};
pub use garbage::{
    Concerned, Decision, Deletion, Dependents, FOREGROUND_FINALIZER, NAMESPACE_CONTENT_FINALIZER, ORPHAN_FINALIZER,
    OwnerReference, OwnerState, Ownership, Propagation,
};
pub use kept_rights::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE, RIGHTS_TOGETHER};
pub use key::ObjectKey;
pub use kind::{GroupVersion, GroupVersionKind};
pub use kubernetes::{KUBERNETES_VERSION, kubernetes_minor};
pub use metrics_page::{MetricKind, MetricLabels, MetricSamples, MetricsPage, metric_number};
pub use name::{
    NameRule, check_annotations, check_finalizer, check_label_key, check_label_value, check_labels, check_name,
};
pub use nulls::{drop_nulls, from_stored, from_stored_value, from_value_without_nulls};
pub use quantity::{Quantity, QuantityError, ResourceList, resource_list};
pub use quota::{QuotaKind, ResourceQuota, pod_limits, pod_requests};
pub use selector::{FieldSelector, LabelSelector, SelectorError, check_label_selector};
pub use status::{Cause, Status, StatusDetails};
