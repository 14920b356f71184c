//! The page `/permissions`: which rights a user has and which it used. In: the name of a user. Out: the report as JSON; without a
//! name, the users that made requests.

use http::Response;
use serde_json::json;

use konverge_apiserver::{ApiServer, Body, UserInfo};
use konverge_core::Status;

use super::json_page;
use super::query::Query;

/// Answers a request for the page.
pub(super) fn answer(api: &ApiServer, query: &Query) -> Result<Response<Body>, Status> {
    let Some(user) = query.get("user") else { return Ok(json_page(&json!({"users": api.users_seen()}))) };
    let report = api.permissions(&UserInfo::named(user));
    Ok(json_page(&serde_json::to_value(report).map_err(Status::internal)?))
}
