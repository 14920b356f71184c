//! Whether a webhook is called for a request, judged without a server: for test kits that call webhooks themselves. In: selectors and match
//! conditions as in a webhook configuration, and a request. Out: whether the server would call the webhook, by the same selectors and the same
//! CEL. What only a server knows, such as what its authorizer allows, is an error that says so.

use konverge_cel::{Composer, Declared, Evaluation, Inputs, Permissions, ResourceCheck, Stop};
use konverge_core::{LabelSelector, Status};
use konverge_schema::Budget;
use serde_json::Value;

use super::match_conditions::{MatchConditions, Matching};
use super::matching::has_labels;

/// Selectors and match conditions of a webhook.
///
/// ```
/// use konverge_apiserver::WebhookCriteria;
/// use serde_json::json;
///
/// let criteria = json!({"matchConditions": [{"name": "by-people", "expression": "!request.userInfo.username.startsWith('system:')"}]});
/// let criteria = WebhookCriteria::read(&criteria).unwrap();
/// let object = json!({"kind": "Shop", "metadata": {"name": "s"}});
/// let by = |user: &str| json!({"operation": "CREATE", "userInfo": {"username": user}, "object": object});
/// assert!(criteria.matches(&by("alice"), None).unwrap());
/// assert!(!criteria.matches(&by("system:node:a"), None).unwrap());
/// ```
#[derive(Debug)]
pub struct WebhookCriteria {
    namespaces: LabelSelector,
    objects: LabelSelector,
    composer: Composer,
    conditions: MatchConditions,
    /// Whether a condition that fails refuses the request.
    fail: bool,
}

/// Why it is not known whether a webhook is called.
#[derive(Debug, thiserror::Error)]
pub enum CriteriaError {
    /// A selector or an expression is wrong: a server would not take the configuration.
    #[error("{0}")]
    Invalid(String),
    /// A match condition has failed for this request: the server refuses the request.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// A match condition asks the authorizer, which only a server has.
    #[error("a match condition asks what the user may do, which only a running server knows: {0:?}")]
    AsksAuthorizer(String),
}

impl WebhookCriteria {
    /// Reads `namespaceSelector`, `objectSelector`, `matchConditions` and `failurePolicy` of a webhook.
    pub fn read(webhook: &Value) -> Result<Self, CriteriaError> {
        let selector = |field: &str| {
            let selector = LabelSelector::from_object(&webhook[field]);
            selector.map_err(|error| CriteriaError::Invalid(format!("{field}: {error}")))
        };
        let declared = Declared { params: false, authorizer: true, patches: false };
        let composer = Composer::without_variables();
        for condition in webhook["matchConditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            composer.check(text("expression"), declared).map_err(|why| {
                CriteriaError::Invalid(format!("the match condition {:?} is wrong: {why}", text("name")))
            })?;
        }
        let conditions = MatchConditions::compile(&composer, &webhook["matchConditions"], declared);
        let fail = webhook["failurePolicy"] != "Ignore";
        Ok(Self {
            namespaces: selector("namespaceSelector")?,
            objects: selector("objectSelector")?,
            composer,
            conditions,
            fail,
        })
    }

    /// Whether the labels of namespaces matter.
    pub fn select_namespaces(&self) -> bool {
        !self.namespaces.is_everything()
    }

    /// Whether the webhook is called for a request, which has the fields of an AdmissionRequest. `namespace` is the Namespace of the
    /// object, or the object itself if it is one, and none for other objects without a namespace.
    pub fn matches(&self, request: &Value, namespace: Option<&Value>) -> Result<bool, CriteriaError> {
        let there = |field: &str| request.get(field).filter(|object| !object.is_null());
        let (object, old) = (there("object"), there("oldObject"));
        if namespace.is_some() && !has_labels(namespace, &self.namespaces) {
            return Ok(false);
        }
        let is_selected = |object: Option<&Value>| object.is_some() && has_labels(object, &self.objects);
        if !self.objects.is_everything() && !is_selected(object) && !is_selected(old) {
            return Ok(false);
        }
        let mut about = request.clone();
        if let Some(fields) = about.as_object_mut() {
            // Expressions see both as variables of their own.
            fields.retain(|field, _| field != "object" && field != "oldObject");
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let check = ResourceCheck::default();
        let inputs = Inputs {
            object,
            old_object: old,
            request: &about,
            namespace: None,
            params: None,
            authorizer: Some(&check),
        };
        let (permissions, budget) = (Permissions::default(), Budget::unlimited());
        let evaluation = Evaluation::new(&self.composer, &inputs, &permissions, budget);
        match self.conditions.matches(evaluation, self.fail) {
            Ok(Matching::Yes) => Ok(true),
            Ok(Matching::No) => Ok(false),
            Ok(Matching::Failed(why)) => {
                let (group, plural) = (text(&about["resource"]["group"]), text(&about["resource"]["resource"]));
                let refused = Status::forbidden(&group, &plural, &text(&about["name"]), &why);
                Err(CriteriaError::Refused(Box::new(refused)))
            }
            Err(Stop::Ask(question)) => Err(CriteriaError::AsksAuthorizer(question.verb)),
            Err(stop) => Err(CriteriaError::Invalid(stop.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn webhooks_are_called_as_a_server_calls_them() {
        let check = |criteria: Value, request: Value, namespace: Option<Value>, expect: Result<bool, &str>| {
            let found = WebhookCriteria::read(&criteria).and_then(|read| read.matches(&request, namespace.as_ref()));
            let found = found.map_err(|error| error.to_string());
            match (&found, expect) {
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{criteria} {request}: {error}"),
                _ => assert_eq!(found, expect.map_err(str::to_owned), "{criteria} {request}"),
            }
        };
        let conditions = |expressions: &[&str], policy: &str| {
            let condition = |expression: &&str| json!({"name": "c", "expression": expression});
            let conditions: Vec<Value> = expressions.iter().map(condition).collect();
            json!({"matchConditions": conditions, "failurePolicy": policy})
        };
        let request = |labels: Value| {
            json!({
                "operation": "UPDATE", "name": "s", "resource": {"group": "example.com", "resource": "shops"},
                "userInfo": {"username": "alice"},
                "object": {"metadata": {"name": "s", "labels": labels}, "spec": {"size": 3}},
                "oldObject": {"metadata": {"name": "s", "labels": {"old": "yes"}}},
            })
        };
        let plain = || request(json!({}));
        check(json!({}), plain(), None, Ok(true));
        check(
            conditions(&["object.spec.size > 2", "request.userInfo.username == 'alice'"], "Fail"),
            plain(),
            None,
            Ok(true),
        );
        check(conditions(&["object.spec.size > 2", "request.operation == 'CREATE'"], "Fail"), plain(), None, Ok(false));
        // An error refuses the request, unless failures are ignored or another condition is false.
        check(
            conditions(&["object.spec.colour == 'red'"], "Fail"),
            plain(),
            None,
            Err("shops.example.com \"s\" is forbidden: "),
        );
        check(conditions(&["object.spec.colour == 'red'"], "Ignore"), plain(), None, Ok(false));
        check(conditions(&["object.spec.colour == 'red'", "false"], "Fail"), plain(), None, Ok(false));
        check(conditions(&["object.spec.size +"], "Fail"), plain(), None, Err("the match condition \"c\" is wrong: "));
        let asks = "authorizer.group('').resource('pods').check('get').allowed()";
        check(conditions(&[asks], "Fail"), plain(), None, Err("asks what the user may do"));

        let objects = |value: &str| json!({"objectSelector": {"matchLabels": {"old": value}}});
        check(objects("yes"), plain(), None, Ok(true));
        check(objects("no"), plain(), None, Ok(false));
        check(objects("no"), request(json!({"old": "no"})), None, Ok(true));
        let wrong = json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
        check(wrong, plain(), None, Err("objectSelector: "));
        let namespaces = || json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
        let namespace = |team: &str| Some(json!({"metadata": {"labels": {"team": team}}}));
        check(namespaces(), plain(), namespace("a"), Ok(true));
        check(namespaces(), plain(), namespace("b"), Ok(false));
        check(namespaces(), plain(), None, Ok(true));
    }
}
