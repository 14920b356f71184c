//! Conversion webhooks: what converts the objects of a definition whose strategy is `Webhook`. In: objects and the version they are
//! wanted in. Out: what the webhook made of them, or why it failed, in kube-apiserver's words. Whether that is the same object in
//! another version is checked by the caller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use konverge_store::BoxFuture;

use super::{ConversionError, ConversionFailure, Converter, Converters};
use crate::server::Server;
use crate::webhook_client::{ClientConfig, TimeLimit};

/// How long a conversion may take. kube-apiserver waits for ever; here a watch that waits for a webhook which never answers would
/// look like one that has nothing to say.
const LIMIT: Duration = Duration::from_secs(30);

/// What makes the converters of definitions for a server.
pub(crate) fn converters(server: Weak<Server>) -> Arc<Converters> {
    Arc::new(move |definition: &Value| {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let versions = conversion["webhook"]["conversionReviewVersions"].as_array().into_iter().flatten();
        let mut known = versions.filter_map(Value::as_str).filter(|version| matches!(*version, "v1" | "v1beta1"));
        let converter: Arc<dyn Converter> = Arc::new(WebhookConverter {
            server: server.clone(),
            definition: definition["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            config: ClientConfig::read(&conversion["webhook"]["clientConfig"]),
            is_v1: known.next() != Some("v1beta1"),
        });
        Some(converter)
    })
}

struct WebhookConverter {
    server: Weak<Server>,
    /// The name of the definition.
    definition: String,
    config: ClientConfig,
    is_v1: bool,
}

#[derive(Serialize)]
struct Review<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    request: Request<'a>,
    response: Value,
}

#[derive(Serialize)]
struct Request<'a> {
    uid: &'a str,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: &'a str,
    objects: &'a [Value],
}

impl Converter for WebhookConverter {
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ConversionError>> {
        Box::pin(async move {
            let Some(server) = self.server.upgrade() else {
                let why = "the server is shutting down".to_owned();
                return Err(ConversionError { why, failure: ConversionFailure::Call });
            };
            let uid = uuid::Uuid::from_u128(server.env.random()).to_string();
            let review = Review {
                kind: "ConversionReview",
                api_version: if self.is_v1 { V1 } else { "apiextensions.k8s.io/v1beta1" },
                request: Request { uid: &uid, desired_api_version: to, objects: &objects },
                response: json!({"uid": "", "convertedObjects": null, "result": {"metadata": {}}}),
            };
            let body = serde_json::to_vec(&review).expect("writing to memory does not fail");
            drop(objects);
            let called = server.webhook_clients.post(&server, &self.config, body, TimeLimit::Untold(LIMIT)).await;
            let answered = called.map_err(|error| match error.refusal() {
                Some(refused) => ConversionError { why: refused.message, failure: ConversionFailure::NotCalled },
                None => ConversionError { why: error.to_string(), failure: ConversionFailure::Call },
            })?;
            converted(&uid, self.is_v1, answered)
                .map_err(|why| ConversionError { why, failure: ConversionFailure::MalformedResponse })
        })
    }

    fn converted(&self, versions: (&str, &str), took: Duration, failure: Option<ConversionFailure>) {
        if let Some(server) = self.server.upgrade() {
            server.conversion_metrics.converted(&self.definition, versions, took, failure);
        }
    }
}

const V1: &str = "apiextensions.k8s.io/v1";

/// The objects in an answer.
fn converted(uid: &str, is_v1: bool, mut review: Value) -> Result<Vec<Value>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if is_v1 && (&*version, &*kind) != (V1, "ConversionReview") {
        let slash = if version.contains('/') { "" } else { "/" };
        let expected = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        return Err(format!("expected webhook response of {expected}, got {slash}{version}, Kind={kind}"));
    }
    // The answer may be no object at all.
    let Some(response) = review.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".to_owned());
    };
    let received = text(&response["uid"]);
    if is_v1 && received != uid {
        return Err(format!("expected response.uid={uid:?}, got {received:?}"));
    }
    let status = text(&response["result"]["status"]);
    if status != "Success" {
        return Err(match text(&response["result"]["message"]) {
            message if message.is_empty() => format!("response.result.status was '{status}', not 'Success'"),
            message => message,
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_v1: bool, review: Value, expect: Result<usize, &str>) {
        let found = converted("u", is_v1, review.clone()).map(|objects| objects.len());
        assert_eq!(found, expect.map_err(str::to_owned), "{review}");
    }

    #[test]
    fn answers_of_conversion_webhooks() {
        let review = |response: Value| json!({"apiVersion": V1, "kind": "ConversionReview", "response": response});
        let success = json!({"status": "Success"});
        check(true, review(json!({"uid": "u", "result": success, "convertedObjects": [{}, {}]})), Ok(2));
        check(true, review(json!({"uid": "u", "result": success})), Ok(0));
        check(true, review(Value::Null), Err("no response provided"));
        check(true, review(json!({"uid": "x", "result": success})), Err("expected response.uid=\"u\", got \"x\""));
        check(true, review(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}})), Err("no"));
        let failed = json!({"uid": "u", "result": {"status": "Failure"}});
        check(true, review(failed), Err("response.result.status was 'Failure', not 'Success'"));
        let other = json!({"apiVersion": "v1", "kind": "Pod", "response": {"uid": "u"}});
        let why = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Pod";
        check(true, other, Err(why));
        for odd in [json!([]), json!(1), json!("x"), Value::Null, json!({"response": []})] {
            check(false, odd, Err("no response provided"));
        }
        // Earlier versions looked at neither the type nor the uid.
        check(false, json!({"response": {"result": success, "convertedObjects": [{}]}}), Ok(1));
    }
}
