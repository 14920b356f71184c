//! Webhooks as their functions see requests and as clients see verdicts, without sockets.

use std::sync::Arc;

use konverge::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::webhook::{FailurePolicy, Operation, SideEffects};
use konverge_testkit::{Cluster, Fake, NotAdmitted, Review, Verb};

/// What a shop sells.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct ShopSpec {
    /// How many tills.
    #[serde(default)]
    pub tills: i32,
    /// When nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_from: Option<String>,
}

fn shop(tills: i32) -> Shop {
    Shop::new("s", ShopSpec { tills, open_from: None })
}

/// All that a validating function can do.
async fn validate(request: Admission<Shop>) -> Result<()> {
    let (shop, mut errors) = (request.object(), FieldErrors::new());
    if shop.spec.tills < 0 {
        errors.invalid("spec.tills", shop.spec.tills, "must not be negative");
    }
    if shop.spec.open_from.as_deref() == Some("") {
        errors.required("spec.openFrom", "say when it opens");
    }
    errors.into_result()?;
    match shop.spec.tills {
        13 => return Err(Denied::new("thirteen brings bad luck").code(409).reason("BadLuck").into()),
        14 => return Err(Error::permanent("fourteen is thirteen in disguise")),
        15 => return Err(Error::new("the registry of tills is away")),
        16 => panic!("sixteen tills"),
        17 => std::future::pending::<()>().await,
        18 if request.is_dry_run() => request.warn("only a rehearsal"),
        19 if request.user().username != "boss" => return Err(Denied::new("only the boss opens nineteen").into()),
        20 if request.get::<ConfigMap>("licence").await?.is_none() => {
            return Err(Denied::new("there is no licence for twenty").into());
        }
        21 if request.list_by::<ConfigMap>(Selector::new().insert("of", "s")).await?.len() != 1 => {
            return Err(Denied::new("there is no plan for twenty-one").into());
        }
        22 if request.state::<Arc<str>>()?.as_ref() != "open" => return Err(Denied::new("the market is closed").into()),
        _ => {}
    }
    if let Some(old) = request.old()?
        && old.spec.tills > shop.spec.tills
    {
        request.warn(format!("{} tills go", old.spec.tills - shop.spec.tills));
    }
    Ok(())
}

async fn defaults(request: Admission<Shop>) -> Result<Shop> {
    let mut shop = request.object().clone();
    shop.spec.open_from.get_or_insert_with(|| "9:00".into());
    shop.metadata.labels.get_or_insert_default().insert("opened-by/user".into(), request.user().username.clone());
    Ok(shop)
}

async fn keep(request: Admission<Shop>) -> Result<()> {
    Err(Error::permanent(format!("{} stays", request.name())))
}

fn operator() -> Operator<Shop> {
    let keep = Webhook::validating(keep).operations([Operation::Delete]).named("keep.shop.example.com").path("/keep");
    let state: Arc<str> = "open".into();
    Operator::<Shop>::new().default_with(defaults).validate(validate).webhook(keep).state(state)
}

fn fake() -> Fake {
    let plan = ConfigMap::new("plan").label("of", "s");
    Fake::new().with(ConfigMap::new("licence")).with(plan).knows::<Shop>()
}

#[tokio::test(start_paused = true)]
async fn verdicts() {
    let fake = fake();
    let create = |tills| Review::create(shop(tills));
    let update = |from, to| Review::update(shop(from), shop(to));
    let by_kubernetes_admin = "s by kubernetes-admin from 9:00";
    let says = |name: &str, why: &str| format!("admission webhook \"{name}\" denied the request: {why}");
    let validates = |why: &str| says("validate.shop.example.com", why);
    for (review, expect) in [
        (create(1), Ok(by_kubernetes_admin.to_owned())),
        (update(1, 2), Ok(by_kubernetes_admin.into())),
        (update(3, 1), Ok(format!("{by_kubernetes_admin} (2 tills go)"))),
        (create(18), Ok(by_kubernetes_admin.into())),
        (create(18).dry_run(), Ok(format!("{by_kubernetes_admin} (only a rehearsal)"))),
        (create(19).user("boss"), Ok("s by boss from 9:00".into())),
        (create(20), Ok(by_kubernetes_admin.into())),
        (create(21), Ok(by_kubernetes_admin.into())),
        (create(22), Ok(by_kubernetes_admin.into())),
        (
            create(-1),
            Err((
                422,
                "Invalid",
                validates(
                    "Shop.example.com \"s\" is invalid: spec.tills: Invalid value: -1: must not be negative \
                     [spec.tills: Invalid value: -1: must not be negative]",
                ),
            )),
        ),
        (create(13), Err((409, "BadLuck", validates("thirteen brings bad luck")))),
        (create(14), Err((403, "Forbidden", validates("fourteen is thirteen in disguise")))),
        (create(15), Err((500, "InternalError", validates("the registry of tills is away")))),
        (create(16), Err((500, "InternalError", validates("the webhook panicked: sixteen tills")))),
        (create(17), Err((500, "InternalError", validates("the webhook took longer than 9.5s")))),
        (create(19), Err((403, "Forbidden", validates("only the boss opens nineteen")))),
        (Review::delete(shop(1)), Err((403, "Forbidden", says("keep.shop.example.com", "s stays")))),
    ] {
        let shown = format!("{review:?}");
        let found = match fake.admit(&operator(), review).await {
            Ok(admitted) => {
                let (labels, spec) = (admitted.object.metadata.labels.unwrap_or_default(), admitted.object.spec);
                let by = labels.get("opened-by/user").cloned().unwrap_or_default();
                let warnings = admitted.warnings.join("; ");
                let warnings = if warnings.is_empty() { warnings } else { format!(" ({warnings})") };
                Ok(format!("s by {by} from {}{warnings}", spec.open_from.unwrap_or_default()))
            }
            Err(error) => {
                let denied = error.find::<NotAdmitted>().unwrap_or_else(|| panic!("{error:#}")).clone();
                let fields: Vec<String> =
                    denied.fields.iter().map(|(field, why)| format!(" [{field}: {why}]")).collect();
                Err((denied.code, denied.reason.clone().leak() as &str, format!("{denied}{}", fields.concat())))
            }
        };
        assert_eq!(found, expect, "{shown}");
    }
}

/// A webhook that may be ignored does not answer at all if it fails, so that the API server ignores it.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_may_be_ignored() {
    let advice = Webhook::validating(validate).failure_policy(FailurePolicy::Ignore);
    let operator = Operator::<Shop>::new().webhook(advice);
    for (tills, expect) in [
        (15, "500 Internal Server Error: the registry of tills is away"),
        (16, "500 Internal Server Error: the webhook panicked: sixteen tills"),
        (13, "admission webhook \"validate.shop.example.com\" denied the request: thirteen brings bad luck"),
    ] {
        let error = fake().admit(&operator, Review::create(shop(tills))).await.unwrap_err();
        assert_eq!(error.to_string(), expect);
    }
}

/// Kinds of others, as JSON, with what a Rust type would not know.
#[tokio::test]
async fn what_a_function_does_not_know_stays() -> Result<()> {
    async fn label(request: Admission<Shop>) -> Result<Shop> {
        let mut shop = request.object().clone();
        shop.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
        Ok(shop)
    }
    async fn raw(request: Admission<Value>) -> Result<Value> {
        let mut pod = request.object().clone();
        pod["spec"]["containers"][0]["image"] = "pinned".into();
        Ok(pod)
    }
    let fake = fake();
    let operator = Operator::<Shop>::new()
        .webhook(Webhook::mutating(label))
        .webhook(Webhook::mutating_dynamic(&ApiKind::of::<Pod>(), raw).side_effects(SideEffects::NoneOnDryRun));
    let webhooks = operator.test_webhooks(fake.client());
    let review = |kind: &str, object: Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"kind": kind}, "resource": {}, "operation": "CREATE", "object": object,
        }})
    };
    let patch = async |path: &str, review: Value| -> Result<Value> {
        use base64::Engine;
        let answer = webhooks.review(path, &review).await?;
        let patch = answer["response"]["patch"].as_str().unwrap_or_default().to_owned();
        Ok(konverge::serde_json::from_slice(&base64::prelude::BASE64_STANDARD.decode(patch)?)?)
    };
    let shop = json!({"metadata": {"name": "s"}, "spec": {"tills": 1, "unknown": {"a": 1}}});
    assert_eq!(
        patch("/mutate-example-com-v1-shop", review("Shop", shop)).await?,
        json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}])
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", "new": true}]}});
    assert_eq!(
        patch("/mutate--v1-pod", review("Pod", pod)).await?,
        json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "pinned"}])
    );
    Ok(())
}

/// What does not decode is a failure, which says where. Only a function that changes objects of the operator's own kind leaves them to
/// the schema of the CRD, which the API server looks at next.
#[tokio::test]
async fn what_does_not_decode() -> Result<()> {
    async fn same<T: Kind>(request: Admission<T>) -> Result<T> {
        Ok(request.object().clone())
    }
    let removed = Webhook::mutating(same::<Shop>).operations([Operation::Delete]).path("/removed");
    let status = Webhook::mutating(same::<Shop>).subresource("status").path("/status");
    let operator = Operator::<Shop>::new()
        .default_with(defaults)
        .validate(validate)
        .webhook(removed.named("removed.example.com"))
        .webhook(status.named("status.example.com"))
        .webhook(Webhook::mutating(same::<Pod>));
    let fake = fake();
    let webhooks = operator.test_webhooks(fake.client());
    let unreadable = "this operator cannot read the Shop: invalid type: string \"many\", expected i32";
    let no_pod = "this operator cannot read the Pod: invalid type: string \"many\"";
    for (path, operation, expect) in [
        ("/mutate-example-com-v1-shop", "CREATE", None),
        ("/mutate-example-com-v1-shop", "UPDATE", None),
        ("/validate-example-com-v1-shop", "CREATE", Some(unreadable)),
        ("/removed", "DELETE", Some(unreadable)),
        ("/status", "UPDATE", Some(unreadable)),
        ("/mutate--v1-pod", "CREATE", Some(no_pod)),
    ] {
        let broken = json!({"metadata": {"name": "s"}, "spec": {"tills": "many", "containers": "many"}});
        let kind = if path.ends_with("pod") { "Pod" } else { "Shop" };
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"kind": kind}, "resource": {}, "operation": operation, "object": broken, "oldObject": broken,
        }});
        let response = &webhooks.review(path, &review).await?["response"];
        let (status, message) = (&response["status"], response["status"]["message"].as_str().unwrap_or_default());
        match expect {
            None => {
                let warning = response["warnings"][0].as_str().unwrap_or_default();
                let expect = format!("mutate.shop.example.com has changed nothing: {unreadable}");
                assert!(warning.starts_with(&expect), "{path} {operation}: {response}");
                assert_eq!((&response["allowed"], status), (&json!(true), &Value::Null), "{path} {operation}");
            }
            Some(expect) => {
                assert!(message.starts_with(expect), "{path} {operation}: {response}");
                assert_eq!((&status["code"], &response["allowed"]), (&json!(400), &json!(false)), "{path} {operation}");
            }
        }
    }
    Ok(())
}

/// Certificates are renewed after months: the roles for it say that they are kept, whatever a short run used.
#[test]
fn the_roles_of_webhooks_are_kept() {
    let settings = Settings::from_args(["shop"]).unwrap();
    let mut kept = Vec::new();
    for manifest in operator().manifests(&settings) {
        let (kind, metadata) = (manifest["kind"].as_str().unwrap_or_default(), &manifest["metadata"]);
        if kind.ends_with("Role") {
            let is_kept = metadata["annotations"]["konverge.dev/keep-rights"] == "true";
            kept.push(format!("{kind} {} {is_kept}", metadata["name"].as_str().unwrap_or_default()));
        }
    }
    assert_eq!(kept, ["ClusterRole shop false", "Role shop-webhook true", "ClusterRole shop-webhook true"]);
}

/// The user reads what the schema says, also of a kind whose defaults a function fills in.
#[tokio::test]
async fn the_schema_speaks_before_the_type() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Shop>().await?;
    let operator = Operator::<Shop>::new().default_with(defaults).validate(validate);
    let running = cluster.run(operator.reconcile(async |_: Context<Shop>| Ok(Action::await_change())));
    running.ready().await?;
    let broken =
        json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "s"}, "spec": {"tills": "many"}});
    let error = cluster.create(broken).await.unwrap_err();
    let expect = "spec.tills: Invalid value: \"string\": spec.tills in body must be of type integer: \"string\"";
    assert!(format!("{error:#}").contains(expect), "{error:#}");
    running.stop().await
}

/// An old object that nobody can read does not keep somebody from repairing it.
#[tokio::test]
async fn an_old_object_that_cannot_be_read() -> Result<()> {
    async fn lenient(request: Admission<Shop>) -> Result<()> {
        if request.name() == "looks" {
            request.old()?;
        }
        Ok(())
    }
    let fake = fake();
    let operator = Operator::<Shop>::new().validate(lenient);
    let webhooks = operator.test_webhooks(fake.client());
    for (name, expect) in [("repairs", true), ("looks", false)] {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"kind": "Shop"}, "resource": {}, "operation": "UPDATE", "name": name,
            "object": {"metadata": {"name": name}, "spec": {}}, "oldObject": {"metadata": {"name": name}, "spec": 3},
        }});
        let answer = webhooks.review("/validate-example-com-v1-shop", &review).await?;
        assert_eq!(answer["response"]["allowed"], json!(expect), "{name}: {answer}");
    }
    Ok(())
}

/// Webhooks are called only for what their selectors and match conditions select, as by an API server.
#[tokio::test]
async fn admit_calls_only_what_is_selected() {
    let labelled = |label: &str| LabelSelector {
        match_labels: Some([(label.to_owned(), "yes".to_owned())].into()),
        ..LabelSelector::default()
    };
    let refusing = || Webhook::validating(async |_: Admission<Shop>| Err(Denied::new("called").into()));
    let by_boss = || refusing().match_condition("boss", "request.userInfo.username == 'boss'");
    let many = || by_boss().match_condition("many", "object.spec.tills > 2");
    let fake = fake().with(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "market", "labels": {"busy": "yes"},
    }}));
    let in_market = |mut shop: Shop| {
        shop.metadata.namespace = Some("market".into());
        shop
    };
    let with_label = |mut shop: Shop| {
        shop.metadata.labels.get_or_insert_default().insert("open".into(), "yes".into());
        shop
    };
    let create = |tills: i32| Review::create(shop(tills));
    let open_from = "object.spec.openFrom == 'dawn'";
    for (webhook, review, expect) in [
        (refusing(), create(1), Some("called")),
        (by_boss(), create(1), None),
        (by_boss(), create(1).user("boss"), Some("called")),
        (many(), create(1).user("boss"), None),
        (many(), create(3).user("boss"), Some("called")),
        (refusing().match_condition("dry", "!request.dryRun"), create(1).dry_run(), None),
        (refusing().match_condition("new", "request.options.kind == 'CreateOptions'"), create(1), Some("called")),
        (refusing().match_condition("dawn", open_from), create(1), Some("shops.example.com \"s\" is forbidden: ")),
        (refusing().match_condition("dawn", open_from).failure_policy(FailurePolicy::Ignore), create(1), None),
        (refusing().match_condition("half", "object."), create(1), Some("the match condition \"half\" is wrong: ")),
        (
            refusing().match_condition("may", "authorizer.path('/x').check('get').allowed()"),
            create(1),
            Some("the webhook validate.shop.example.com: a match condition asks what the user may do"),
        ),
        (refusing().objects(labelled("open")), create(1), None),
        (refusing().objects(labelled("open")), Review::create(with_label(shop(1))), Some("called")),
        (refusing().objects(labelled("open")), Review::update(with_label(shop(1)), shop(1)), Some("called")),
        (refusing().namespaces(labelled("busy")), create(1), None),
        (refusing().namespaces(labelled("busy")), Review::create(in_market(shop(1))), Some("called")),
    ] {
        let shown = format!("{review:?}");
        let found = fake.admit(&Operator::<Shop>::new().webhook(webhook), review).await;
        let found = found.map(drop).map_err(|error| format!("{error:#}"));
        match (&found, expect) {
            (Ok(()), None) => {}
            (Err(error), Some(expect)) if error.contains(expect) => {}
            _ => panic!("{shown}: {found:?} instead of {expect:?}"),
        }
    }
}

/// What an operator cannot be started with is said before it starts.
#[tokio::test]
async fn webhooks_that_no_server_would_take() {
    let webhook = || Webhook::validating(validate);
    for (operator, expect) in [
        (
            Operator::<Shop>::new().webhook(webhook()).webhook(webhook()),
            "two webhooks are at the path /validate-example-com-v1-shop and called validate.shop.example.com; add \
             `.named(\"validate.create-update.shop.example.com\").path(\"/validate-example-com-v1-shop-create-update\")` to the one \
             for CREATE and UPDATE",
        ),
        (
            Operator::<Shop>::new()
                .webhook(webhook())
                .webhook(webhook().path("/other").operations([Operation::Update])),
            "two webhooks are called validate.shop.example.com; add `.named(\"validate.update.shop.example.com\")` to the one for UPDATE",
        ),
        (
            Operator::<Shop>::new().webhook(webhook()).webhook(webhook().named("other.shop.example.com")),
            "two webhooks are at the path /validate-example-com-v1-shop; add \
             `.path(\"/validate-example-com-v1-shop-create-update\")` to the one for CREATE and UPDATE",
        ),
        (
            Operator::<Shop>::new().webhook(webhook().named("shops")),
            "\"shops\" is no name of a webhook: it needs at least",
        ),
        (Operator::<Shop>::new().webhook(webhook().path("shops")), "\"shops\" is no path of a webhook: it begins with"),
        (
            Operator::<Shop>::new().webhook(webhook().operations([])),
            "the webhook validate.shop.example.com is called for nothing",
        ),
        (
            Operator::<Shop>::new().webhook(webhook().timeout(Duration::from_secs(31))),
            "the webhook validate.shop.example.com has a timeout of 31s; it has to be whole seconds from 1 to 30",
        ),
    ] {
        let fake = fake();
        let operator = operator.reconcile(async |_: Context<Shop>| Ok(Action::await_change()));
        let error = fake.run_unrestricted(operator).stop().await.unwrap_err();
        assert!(error.to_string().starts_with(expect), "{error}");
    }
}

/// A read that fails says nothing about the object.
#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_no_verdict() {
    let fake = fake();
    fake.when::<ConfigMap>(Verb::READS).fail(500);
    let error = fake.admit(&operator(), Review::create(shop(20))).await.unwrap_err();
    assert_eq!(error.find::<NotAdmitted>().map(|denied| denied.code), Some(500), "{error:#}");
}

/// The API server of a cluster in this process calls the webhooks of an operator that runs beside the test.
#[tokio::test]
async fn a_cluster_calls_the_webhooks_of_its_operators() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Shop>().await?;
    let opens = async |request: Admission<Shop>| {
        let mut shop = request.object().clone();
        shop.spec.open_from.get_or_insert_with(|| "9:00".into());
        Ok(shop)
    };
    // It has a name and a path of its own beside that of `.validate`.
    let keep = Webhook::validating(keep).operations([Operation::Delete]);
    let operator = Operator::<Shop>::new().default_with(opens).validate(validate).webhook(keep);
    let running = cluster.run(operator.reconcile(async |_: Context<Shop>| Ok(Action::await_change())));
    running.ready().await?;
    let made = cluster.create(shop(1)).await?;
    assert_eq!(made.spec.open_from.as_deref(), Some("9:00"));
    for (tills, words) in [
        (-1, "spec.tills: Invalid value: -1: must not be negative"),
        (13, "thirteen brings bad luck"),
        (16, "the webhook panicked: sixteen tills"),
    ] {
        let bad = Shop::new("bad", ShopSpec { tills, open_from: None });
        let refused = cluster.create(bad).await.unwrap_err().to_string();
        let start = "admission webhook \"validate.shop.example.com\" denied the request: ";
        assert!(refused.contains(start) && refused.contains(words), "{refused}");
    }
    let kept = cluster.delete::<Shop>("s").await.unwrap_err().to_string();
    assert!(
        kept.contains("admission webhook \"validate.delete.shop.example.com\" denied the request: s stays"),
        "{kept}"
    );
    running.stop().await
}
