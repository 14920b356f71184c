//! Reviews: questions about users and rights that are sent as objects. In: a review. Out: the same with its answer as the
//! status. Nothing is stored.

mod access;
mod authentication;

use serde_json::Value;

use konverge_core::Status;

use crate::write::WriteRequest;

/// Whether there is an answer to reviews of this resource.
pub(crate) fn answers(group: &str, plural: &str) -> bool {
    match group {
        "authentication.k8s.io" => matches!(plural, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => true,
        _ => false,
    }
}

/// Answers a review.
pub(crate) async fn answer(write: &WriteRequest<'_>, review: Value) -> Result<Value, Status> {
    match &*write.resource.plural {
        "selfsubjectreviews" => Ok(authentication::self_review(write)),
        "tokenreviews" => authentication::token_review(write, review).await,
        "selfsubjectrulesreviews" => access::rules_review(write, &review),
        _ => access::review(write, review).await,
    }
}
