//! Reviews of who somebody is: SelfSubjectReview and TokenReview.

use serde_json::{Map, Value, json};

use konverge_core::Status;

use crate::authenticate::{self, authenticated};
use crate::env::rfc3339;
use crate::user::UserInfo;
use crate::write::WriteRequest;

/// Who makes the request.
pub(super) fn self_review(write: &WriteRequest<'_>) -> Value {
    json!({
        "apiVersion": write.resource.api_version(),
        "kind": &*write.resource.kind,
        "metadata": {"creationTimestamp": rfc3339(write.server.env.now())},
        "status": {"userInfo": user_info(&write.context.user)},
    })
}

/// Whose a token is.
pub(super) async fn token_review(write: &WriteRequest<'_>, mut review: Value) -> Result<Value, Status> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = review["spec"]["audiences"].as_array().into_iter().flatten();
    let audiences: Vec<String> = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
    review["status"] = match authenticate::authenticate_token(write.server, token, &audiences).await {
        Ok(found) => json!({
            "authenticated": true,
            "user": user_info(&authenticated(found.user)),
            "audiences": found.audiences,
        }),
        // kube-apiserver has an empty user here.
        Err(why) => json!({"user": {}, "error": why}),
    };
    Ok(review)
}

/// A user as reviews show one: empty fields are left out.
fn user_info(user: &UserInfo) -> Value {
    let mut shown = Map::new();
    shown.insert("username".into(), user.name.clone().into());
    if !user.uid.is_empty() {
        shown.insert("uid".into(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        shown.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        shown.insert("extra".into(), json!(user.extra));
    }
    shown.into()
}
