//! Webhooks as the guide has them, word for word: they compile, and one operator can have them all.

use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge_snippets::WebApp;

use crate::cluster::client;

const GUIDE: &str = include_str!("../../../../../../docs/guide/webhooks.md");
const THIS_FILE: &str = include_str!("webhooks.rs");

async fn validate(_: Admission<WebApp>) -> Result<()> {
    Ok(())
}

async fn keep(request: Admission<WebApp>) -> Result<()> {
    Err(Denied::new(format!("{} stays", request.name())).into())
}

async fn no_latest_tag(_: Admission<Pod>) -> Result<()> {
    Ok(())
}

async fn no_shells(_: Admission<Value>) -> Result<()> {
    Ok(())
}

fn operator(operator: Operator<WebApp>) -> Operator<WebApp> {
// From the guide:
use konverge::webhook::{FailurePolicy, Operation};

operator
    .validate(validate)                                 // async fn(Admission<WebApp>) -> Result<()>
    .webhook(Webhook::validating(keep).operations([Operation::Delete]))
    .webhook(
        Webhook::validating(no_latest_tag)              // async fn(Admission<Pod>) -> Result<()>
            .match_condition("not-of-kubelets", "!request.userInfo.username.startsWith('system:node:')")
            .failure_policy(FailurePolicy::Ignore)
            .timeout(Duration::from_secs(3)),
    )
    .webhook(Webhook::validating_dynamic(&ApiKind::of::<Pod>(), no_shells).subresource("exec").operations([Operation::Connect]))
// End of the snippet.
}

#[test]
fn it_is_what_the_guide_says() {
    let (_, rest) = THIS_FILE.split_once("// From the guide:\n").unwrap();
    let (snippet, _) = rest.split_once("// End of the snippet.\n").unwrap();
    assert!(GUIDE.contains(&format!("```rust\n{snippet}```")), "the guide has another text");
}

#[tokio::test]
async fn all_webhooks_of_the_guide_stand_beside_each_other() {
    let webhooks = operator(Operator::<WebApp>::new()).test_webhooks(client().await);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "example.com", "version": "v1", "kind": "WebApp"}, "name": "web", "operation": "DELETE",
        "resource": {"group": "example.com", "version": "v1", "resource": "webapps"},
        "oldObject": {"metadata": {"name": "web"}, "spec": {"image": "nginx", "replicas": 1}},
    }});
    // Answered only if an API server would take all of them.
    let answer = webhooks.review("/validate-example-com-v1-webapp-delete", &review).await.unwrap();
    assert_eq!(answer["response"]["status"]["message"], "web stays", "{answer}");
    for (operation, expect) in [
        (konverge::webhook::Operation::Update, "validate.webapp.example.com"),
        (konverge::webhook::Operation::Delete, "validate.delete.webapp.example.com"),
    ] {
        let called = webhooks.called_for("example.com", "webapps", "", operation);
        assert_eq!(called.iter().map(|webhook| webhook.name.as_str()).collect::<Vec<_>>(), [expect]);
    }
}
