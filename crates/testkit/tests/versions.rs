//! Several versions of one kind: the CRD, the conversions and what they keep, the webhook as an API server calls it, and the
//! migration of what is stored.

#![allow(unreachable_pub, reason = "the derive makes public types, and a test has nobody to reach them")]

use std::fmt;

use konverge::kube::api::{Api, Patch, PatchParams};
use konverge::kube::{Client, Config};
use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::{BindAddress, Health, HealthSettings, MetricsSettings, WebhookSettings};
use konverge_testkit::{Cluster, round_trips};

type Crd = konverge::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The first version: one text for two things, and a note that nobody needs any more.
mod v1beta1 {
    use konverge::prelude::*;

    /// A shop.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Shop", namespaced, status = "ShopStatus")]
    #[kube(deprecated = "example.com/v1beta1 Shop is deprecated; use example.com/v1 Shop")]
    pub struct ShopSpec {
        /// The name and the number of tills: `main:3`.
        #[schemars(regex(pattern = "^[a-z0-9-]{1,20}(:[0-9]{1,3})?$"))]
        pub place: String,
        /// A note.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    /// What is there.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub struct ShopStatus {
        /// How many tills are open.
        #[serde(default)]
        pub open: u8,
    }
}

/// The version that is stored.
mod v1 {
    use konverge::prelude::*;

    /// A shop.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
    pub struct ShopSpec {
        /// Where it is.
        #[schemars(regex(pattern = "^[a-z0-9-]{1,20}$"))]
        pub street: String,
        /// How many tills.
        #[schemars(range(min = 0, max = 999))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tills: Option<u32>,
        /// Who works there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub staff: Vec<Person>,
    }

    /// Somebody.
    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Person {
        /// Their name.
        pub name: String,
        /// What they do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<String>,
    }

    /// What is there.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub struct ShopStatus {
        /// How many tills are open.
        #[serde(default)]
        pub open: u8,
    }
}

/// Why a place is none.
#[derive(Debug)]
pub struct NoPlace(String);

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no number of tills", self.0)
    }
}

impl TryFrom<v1beta1::Shop> for v1::Shop {
    type Error = NoPlace;

    fn try_from(old: v1beta1::Shop) -> Result<Self, NoPlace> {
        assert!(old.spec.place != "cellar", "nobody goes there");
        let (street, tills) = match old.spec.place.split_once(':') {
            Some((street, tills)) => (street, Some(tills.parse().map_err(|_| NoPlace(tills.to_owned()))?)),
            None => (old.spec.place.as_str(), None),
        };
        let spec = v1::ShopSpec { street: street.to_owned(), tills, staff: Vec::new() };
        Ok(v1::Shop {
            metadata: old.metadata,
            spec,
            status: old.status.map(|status| v1::ShopStatus { open: status.open }),
        })
    }
}

impl From<v1::Shop> for v1beta1::Shop {
    fn from(new: v1::Shop) -> Self {
        let place = match new.spec.tills {
            Some(tills) => format!("{}:{tills}", new.spec.street),
            None => new.spec.street,
        };
        v1beta1::Shop {
            metadata: new.metadata,
            spec: v1beta1::ShopSpec { place, note: None },
            status: new.status.map(|status| v1beta1::ShopStatus { open: status.open }),
        }
    }
}

fn operator() -> Operator<v1::Shop> {
    Operator::<v1::Shop>::new()
        .version::<v1beta1::Shop>()
        .reconcile(async |_: Context<v1::Shop>| Ok(Action::await_change()))
}

/// The next version, whose conversions know nothing of the status.
mod v2 {
    use konverge::prelude::*;

    /// A shop.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Shop", namespaced, status = "ShopStatus")]
    pub struct ShopSpec {
        /// Where it is.
        pub street: String,
    }

    /// What is there.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub struct ShopStatus {
        /// How many tills are open.
        #[serde(default)]
        pub open: u8,
    }
}

impl From<v2::Shop> for v1::Shop {
    fn from(new: v2::Shop) -> Self {
        let spec = v1::ShopSpec { street: new.spec.street, tills: None, staff: Vec::new() };
        v1::Shop { metadata: new.metadata, spec, status: None }
    }
}

impl From<v1::Shop> for v2::Shop {
    fn from(old: v1::Shop) -> Self {
        v2::Shop { metadata: old.metadata, spec: v2::ShopSpec { street: old.spec.street }, status: None }
    }
}

fn forgetful() -> Operator<v1::Shop> {
    Operator::<v1::Shop>::new().version::<v2::Shop>().reconcile(async |_: Context<v1::Shop>| Ok(Action::await_change()))
}

const V1: &str = "example.com/v1";
const BETA: &str = "example.com/v1beta1";

fn shop(version: &str, spec: Value) -> Value {
    json!({"apiVersion": version, "kind": "Shop",
           "metadata": {"name": "main", "namespace": "default", "uid": "1", "labels": {"a": "b"}}, "spec": spec})
}

#[tokio::test]
async fn objects_survive_every_version() -> Result<()> {
    let checked = round_trips(&operator()).await?;
    // Objects are made so that they match the patterns.
    assert_eq!((checked.objects, checked.refused), (400, 0), "{checked:?}");
    let kept: Vec<&str> = checked.kept_in_annotations.iter().map(String::as_str).collect();
    // `main:007` comes back as it was written, though v1 has a number there; the rest has no place in the other version.
    assert_eq!(kept, ["v1 → v1beta1: spec.staff", "v1beta1 → v1: spec.note", "v1beta1 → v1: spec.place"]);
    Ok(())
}

#[test]
fn what_a_version_cannot_express_is_kept_unless_somebody_changes_it() -> Result<()> {
    let conversions = operator().test_conversions();
    let staff = json!([{"name": "ann", "role": "boss"}, {"name": "bob"}]);
    let stored = shop(V1, json!({"street": "main", "tills": 3, "staff": staff}));
    let mut old = conversions.convert(stored.clone(), BETA)?;
    assert_eq!(old["spec"], json!({"place": "main:3"}));
    assert_eq!(old["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(conversions.kept_in_annotation(&old, "v1"), ["spec.staff"]);
    assert_eq!(conversions.convert(old.clone(), V1)?, stored);

    // A user of the old version changes what it has, and adds what only it has.
    old["spec"] = json!({"place": "side:4", "note": "hi"});
    let new = conversions.convert(old.clone(), V1)?;
    assert_eq!(new["spec"], json!({"street": "side", "tills": 4, "staff": staff}));
    assert_eq!(conversions.kept_in_annotation(&new, "v1beta1"), ["spec.note"]);
    let back = conversions.convert(new, BETA)?;
    assert_eq!(back["spec"], json!({"place": "side:4", "note": "hi"}));

    // Conditions are no part of the status type.
    let mut with_status = shop(V1, json!({"street": "main"}));
    with_status["status"] = json!({"open": 1, "conditions": [{"type": "Ready", "status": "True"}]});
    let there = conversions.convert(with_status.clone(), BETA)?;
    assert_eq!(there["status"], with_status["status"]);
    assert_eq!(conversions.convert(there, V1)?, with_status);
    Ok(())
}

/// A conversion that leaves the status out loses neither it nor the conditions beside its type.
#[test]
fn a_status_that_is_left_out_comes_back_whole() -> Result<()> {
    let conversions = forgetful().test_conversions();
    let mut stored = shop(V1, json!({"street": "main"}));
    stored["status"] = json!({"open": 1, "conditions": [{"type": "Ready", "status": "True"}]});
    let there = conversions.convert(stored.clone(), "example.com/v2")?;
    assert_eq!(there["status"], json!(null));
    assert_eq!(conversions.convert(there, V1)?, stored);
    Ok(())
}

/// Users write annotations. What their version can express, they have to say there, where it is checked.
#[test]
fn annotations_say_nothing_that_the_version_can_express() -> Result<()> {
    let conversions = operator().test_conversions();
    let staff = json!([{"name": "eve"}]);
    let mut forged = shop(BETA, json!({"place": "main:3"}));
    forged["status"] = json!({"open": 1});
    forged["metadata"]["annotations"] = json!({"conversion.konverge.dev/v1": json!([
        {"path": ["spec", "tills"], "now": 3, "was": 100_000},
        {"path": ["status", "open"], "now": 1, "was": 99},
        {"path": ["status"], "now": {"open": 1}, "was": {"open": 98}},
        {"path": ["spec", "staff"], "was": staff},
    ]).to_string()});
    let new = conversions.convert(forged.clone(), V1)?;
    assert_eq!(new["spec"], json!({"street": "main", "tills": 3, "staff": staff}));
    assert_eq!(new["status"], json!({"open": 1}));
    // Nor without a status: the version has one, and conditions would be beside its type.
    forged.as_object_mut().map(|fields| fields.remove("status"));
    let kept =
        |was: &Value| json!({"conversion.konverge.dev/v1": json!([{"path": ["status"], "was": was}]).to_string()});
    let conditions = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    for was in [json!({"open": 99}), json!({"open": 99, "conditions": []}), conditions.clone()] {
        forged["metadata"]["annotations"] = kept(&was);
        assert_eq!(conversions.convert(forged.clone(), V1)?["status"], json!(null), "{was}");
    }
    // A version that leaves the status out has no place for conditions.
    let mut without = shop("example.com/v2", json!({"street": "main"}));
    without["metadata"]["annotations"] = kept(&conditions);
    assert_eq!(forgetful().test_conversions().convert(without, V1)?["status"], conditions);
    Ok(())
}

#[test]
fn what_cannot_be_converted_is_named() {
    let conversions = operator().test_conversions();
    let huge = json!([{"name": "ann", "role": "x".repeat(100_000)}]);
    let mut forged = shop(BETA, json!({"place": "main"}));
    forged["metadata"]["annotations"] = json!({"conversion.konverge.dev/v1": "junk"});
    for (object, desired, expect) in [
        (shop(BETA, json!({"place": "main:x"})), V1, "v1beta1 to v1: \"x\" is no number of tills"),
        (shop(BETA, json!({"place": "cellar"})), V1, "the conversion panicked: nobody goes there"),
        (shop(BETA, json!({"place": 3})), V1, "it is no v1beta1: invalid type"),
        (shop(V1, json!({"street": "main", "staff": huge})), BETA, "v1beta1 cannot express"),
        (shop("example.com/v7", json!({})), V1, "there is no version v7 of Shop; there is v1, v1beta1"),
        (shop(V1, json!({"street": "main"})), "example.com/v8", "there is no version v8 of Shop"),
        (shop(V1, json!({"street": "main"})), "other.com/v1", "is no version of the group example.com"),
        (forged, V1, "somebody changed its annotation conversion.konverge.dev/"),
    ] {
        let error = conversions.convert(object, desired).unwrap_err().to_string();
        assert!(error.starts_with(&format!("Shop default/main cannot be converted to {desired}: ")), "{error}");
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn the_definition_has_all_versions() {
    let crd = operator().definitions().remove(0);
    let versions: Vec<_> =
        crd.spec.versions.iter().map(|version| (version.name.as_str(), version.storage, version.deprecated)).collect();
    assert_eq!(versions, [("v1", true, None), ("v1beta1", false, Some(true))]);
    for (version, required) in crd.spec.versions.iter().zip(["street", "place"]) {
        let schema = json!(version.schema);
        let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], json!([required]), "{schema:#}");
    }
    let conversion = json!(crd.spec.conversion);
    assert_eq!(conversion["strategy"], "Webhook");
    assert_eq!(conversion["webhook"]["conversionReviewVersions"], json!(["v1"]));
    assert_eq!(conversion["webhook"]["clientConfig"]["service"]["path"], "/convert");
}

/// An API server's part: it trusts the CA of the operator, which is in the Secret that replicas share.
async fn caller(cluster: &Cluster, port: u16) -> Result<Client> {
    use base64::Engine;
    let secrets: Api<konverge::k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(cluster.client());
    let ca = loop {
        // The operator makes the Secret before it serves its certificate.
        let secret = secrets.get_opt("shops-webhook-cert").await?;
        match secret.and_then(|secret| secret.data?.remove("ca.crt")) {
            Some(ca) => break String::from_utf8(ca.0).map_err(Error::new)?,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let text: String = ca.lines().filter(|line| !line.starts_with("-----")).collect();
    let mut client = Config::new(format!("https://127.0.0.1:{port}").parse()?);
    client.root_cert = Some(vec![base64::prelude::BASE64_STANDARD.decode(text)?]);
    let client = Client::try_from(client)?;
    // Until the certificate is served that the Secret has.
    while convert(&client, review(&[], V1)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(client)
}

async fn convert(caller: &Client, body: String) -> Result<(u16, Value)> {
    use http_body_util::BodyExt;
    let request = http::Request::post("/convert").header("content-type", "application/json");
    let response = caller.send(request.body(konverge::kube::client::Body::from(body.into_bytes()))?).await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(Error::new)?.to_bytes();
    Ok((code, konverge::serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into())))
}

fn review(objects: &[Value], desired: &str) -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
           "request": {"uid": "7", "desiredAPIVersion": desired, "objects": objects}})
    .to_string()
}

#[tokio::test]
async fn reviews_of_any_size_are_answered() -> Result<()> {
    let cluster = Cluster::start().await?;
    // Taken and given back: the test has to know where to call.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let settings = Settings {
        name: "shops".into(),
        metrics: MetricsSettings { enabled: false, ..MetricsSettings::default() },
        health: HealthSettings { enabled: false, ..HealthSettings::default() },
        webhook: WebhookSettings { address: BindAddress::loopback(port), ..WebhookSettings::default() },
        ..Settings::default()
    };
    let metrics = Metrics::new();
    let operator = operator().settings(settings).client(cluster.client()).metrics(metrics.clone());
    let mut crd = operator.definitions().remove(0);
    let url = json!(crd.spec.conversion.take())["webhook"]["clientConfig"]["url"].clone();
    assert_eq!(url, format!("https://127.0.0.1:{port}/convert"));
    cluster.create(json!(crd)).await?;
    let task = tokio::spawn(operator.run_until(std::future::pending()));
    let caller = tokio::time::timeout(Duration::from_secs(20), caller(&cluster, port)).await.expect("it serves")?;

    // More than is converted at once on a thread that serves.
    let many: Vec<Value> = (0..1000).map(|at| shop(V1, json!({"street": "main", "tills": at}))).collect();
    let (code, answer) = convert(&caller, review(&many, BETA)).await?;
    let response = &answer["response"];
    assert_eq!((code, &response["uid"], &response["result"]["status"]), (200, &json!("7"), &json!("Success")));
    let places: Vec<&str> = response["convertedObjects"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["spec"]["place"].as_str())
        .collect();
    assert_eq!((places.len(), places[0], places[999]), (1000, "main:0", "main:999"));

    let (code, answer) = convert(&caller, review(&[], V1)).await?;
    assert_eq!((code, &answer["response"]["convertedObjects"]), (200, &json!([])));
    let bad = [shop(BETA, json!({"place": "main"})), shop(BETA, json!({"place": "cellar"}))];
    let (code, answer) = convert(&caller, review(&bad, V1)).await?;
    let result = &answer["response"]["result"];
    assert_eq!((code, &result["status"]), (200, &json!("Failed")));
    let expect = "Shop default/main cannot be converted to example.com/v1: the conversion panicked: nobody goes there";
    assert_eq!(result["message"], expect);
    for body in ["junk".to_owned(), "{}".to_owned(), review(&[], V1).replace("\"7\"", "\"\"")] {
        assert_eq!(convert(&caller, body).await?.0, 400);
    }
    assert_eq!(convert(&caller, review(&[], V1)).await?.0, 200);
    let page = metrics.page();
    assert!(page.contains("webhook=\"/convert\""), "{page}");
    task.abort();
    Ok(())
}

#[tokio::test]
async fn an_api_server_converts_by_calling_the_operator() -> Result<()> {
    let cluster = Cluster::start().await?;
    let settings = Settings {
        name: "shops".into(),
        metrics: MetricsSettings { enabled: false, ..MetricsSettings::default() },
        health: HealthSettings { enabled: false, ..HealthSettings::default() },
        webhook: WebhookSettings { address: BindAddress::loopback(0), ..WebhookSettings::default() },
        ..Settings::default()
    };
    let health = Health::new();
    let operator = operator().settings(settings).client(cluster.client()).health(health.clone());
    // The first release had one version, and objects of it are stored.
    let mut first = operator.definitions().remove(0);
    first.spec.conversion = None;
    first.spec.versions.retain(|version| version.name == "v1beta1");
    first.spec.versions[0].storage = true;
    cluster.create(json!(first)).await?;
    cluster.create(shop(BETA, json!({"place": "main:3", "note": "old"}))).await?;
    let api = Api::<Crd>::all(cluster.client());
    api.patch("shops.example.com", &PatchParams::default(), &Patch::Merge(json!(operator.definitions().remove(0))))
        .await?;

    let task = tokio::spawn(operator.run_until(std::future::pending()));
    while !format!("{health:?}").contains("\"webhooks\"") || !health.is_ready() {
        assert!(!task.is_finished(), "the operator ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let main: v1::Shop = cluster.get("main").await?;
    assert_eq!((main.spec.street.as_str(), main.spec.tills), ("main", Some(3)));
    // The operator migrates by itself.
    cluster
        .wait_until::<Crd>("shops.example.com", |crd| {
            crd.status.as_ref().and_then(|status| status.stored_versions.clone()) == Some(vec!["v1".to_owned()])
        })
        .await?;
    // A user of the new version adds what the old one cannot say, and a user of the old one changes something else.
    let bob = v1::Person { name: "bob".into(), role: None };
    cluster.edit("main", move |shop: &mut v1::Shop| shop.spec.staff = vec![bob.clone()]).await?;
    let old: v1beta1::Shop = cluster.edit("main", |shop: &mut v1beta1::Shop| shop.spec.place = "side:4".into()).await?;
    assert_eq!((old.spec.place.as_str(), old.spec.note.as_deref()), ("side:4", Some("old")));
    let new: v1::Shop = cluster.get("main").await?;
    assert_eq!((new.spec.street.as_str(), new.spec.tills, new.spec.staff.len()), ("side", Some(4), 1));
    assert_eq!(cluster.list::<v1beta1::Shop>().await?.len(), 1);
    // What cannot be converted is refused, with the reason.
    let cellar = shop(BETA, json!({"place": "cellar"}));
    let refused = format!("{:#}", cluster.create(cellar).await.unwrap_err());
    assert!(refused.contains("the conversion panicked: nobody goes there"), "{refused}");
    task.abort();
    Ok(())
}

/// The API server of a cluster in this process converts by the operator that runs beside the test, and by its replica if one ends.
#[tokio::test]
async fn a_cluster_converts_by_the_operators_that_it_runs() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.create(json!(operator().definitions().remove(0))).await?;
    let (first, second) = (cluster.run(operator()), cluster.run(operator()));
    first.ready().await?;
    second.ready().await?;
    cluster.create(shop(BETA, json!({"place": "main:3", "note": "old"}))).await?;
    second.stop().await?;
    let main: v1::Shop = cluster.get("main").await?;
    assert_eq!((main.spec.street.as_str(), main.spec.tills), ("main", Some(3)));
    first.stop().await?;
    let alone = format!("{:#}", cluster.get::<v1beta1::Shop>("main").await.unwrap_err());
    assert!(alone.contains("conversion webhook for example.com/v1, Kind=Shop failed"), "{alone}");
    Ok(())
}

/// The error of an operator that does not get ready says what it waits for.
#[tokio::test(start_paused = true)]
async fn an_operator_without_its_definition_is_not_ready() -> Result<()> {
    let cluster = Cluster::start().await?;
    let running = cluster.run(operator());
    let why = running.ready().await.unwrap_err().to_string();
    assert!(why.starts_with("the operator is not ready within 30s: "), "{why}");
    assert!(why.contains("webhooks: the CRD shops.example.com is not installed"), "{why}");
    Ok(())
}

#[tokio::test]
async fn what_is_stored_in_an_old_version_is_written_anew() -> Result<()> {
    let cluster = Cluster::start().await?;
    let plain = |stored: &str| {
        let version = |name: &str| {
            json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "shops.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop"},
                     "versions": [version("v1"), version("v1beta1")]},
        })
    };
    cluster.create(plain("v1beta1")).await?;
    for at in 0..7 {
        let mut one = shop(BETA, json!({"place": "main"}));
        one["metadata"] = json!({"name": format!("shop-{at}"), "namespace": "default", "finalizers": ["a.b/c"]});
        cluster.create(one).await?;
    }
    let client = cluster.client();
    let nothing = konverge::migrate_storage(&client, "shops.example.com").await?;
    assert!(nothing.is_unchanged() && nothing.objects == 0, "{nothing:?}");

    let api = Api::<Crd>::all(client.clone());
    api.patch("shops.example.com", &PatchParams::default(), &Patch::Merge(plain("v1"))).await?;
    let stored = async || -> Result<Vec<String>> {
        Ok(api.get("shops.example.com").await?.status.and_then(|status| status.stored_versions).unwrap_or_default())
    };
    assert_eq!(stored().await?, ["v1beta1", "v1"]);
    let written_at = async || -> Result<Vec<Option<String>>> {
        let shops: Vec<v1beta1::Shop> = cluster.list().await?;
        Ok(shops.into_iter().map(|shop| shop.metadata.resource_version).collect())
    };
    let before = written_at().await?;
    // A webhook may refuse with 409: that is not somebody else who wrote the object.
    cluster.when::<v1::Shop>([konverge_testkit::Verb::Update]).times(1).fail(409);
    let refused = konverge::migrate_storage(&client, "shops.example.com").await.unwrap_err();
    assert!(format!("{refused:#}").contains("its old versions have to stay: default/shop-"), "{refused:#}");
    assert_eq!(stored().await?, ["v1beta1", "v1"]);
    let migrated = konverge::migrate_storage(&client, "shops.example.com").await?;
    assert_eq!((migrated.version.as_str(), migrated.objects, migrated.overtaken), ("v1", 7, 0));
    let after = written_at().await?;
    assert!(
        before.iter().zip(&after).all(|(before, after)| before != after),
        "each of {before:?} is stored anew: {after:?}"
    );
    assert_eq!(stored().await?, ["v1"]);
    assert!(konverge::migrate_storage(&client, "shops.example.com").await?.is_unchanged());
    let missing = konverge::migrate_storage(&client, "none.example.com").await.unwrap_err();
    assert!(format!("{missing:#}").contains("not found"), "{missing:#}");
    Ok(())
}
