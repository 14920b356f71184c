//! Webhooks over HTTPS, as an API server calls them: with the address and the CAs of the configuration that the operator wrote.
//! Whatever is sent, the server answers the next request.

use std::sync::Arc;

use konverge::kube::{Client, Config};
use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::webhook::Operation;
use konverge::{BindAddress, Health, HealthSettings, MetricsSettings, WebhookSettings};
use konverge_testkit::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Nothing but a number.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
pub struct ShopSpec {
    /// How many tills.
    pub tills: i32,
}

const PATH: &str = "/validate-example-com-v1-shop";

async fn validate(request: Admission<Shop>) -> Result<()> {
    assert!(request.object().spec.tills != 16, "sixteen tills");
    if request.object().spec.tills > 100 {
        request.warn("that is a lot");
        return Err(Denied::new("too many tills").into());
    }
    Ok(())
}

async fn keep(_: Admission<Namespace>) -> Result<()> {
    Ok(())
}

/// An operator with webhooks that API servers reach at a loopback address.
struct Served {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<()>>,
    health: Health,
    metrics: Metrics,
}

impl Served {
    /// Starts one, and returns when API servers are told of it. `change` is for settings that differ.
    async fn start(cluster: &Cluster, change: impl FnOnce(&mut Settings)) -> Result<Self> {
        // Taken and given back: the settings need the port before the operator has it, for the URL in the configuration.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut settings = Settings {
            name: "shops".into(),
            metrics: MetricsSettings { enabled: false, ..MetricsSettings::default() },
            health: HealthSettings { enabled: false, ..HealthSettings::default() },
            webhook: WebhookSettings {
                address: BindAddress::loopback(port),
                url: Some(format!("https://127.0.0.1:{port}")),
                ..WebhookSettings::default()
            },
            ..Settings::default()
        };
        change(&mut settings);
        let (health, metrics) = (Health::new(), Metrics::new());
        let operator = Operator::<Shop>::new()
            .reconcile(async |_: Context<Shop>| Ok(Action::await_change()))
            .validate(validate)
            .webhook(Webhook::validating(keep).operations([Operation::Delete]))
            .settings(settings)
            .client(cluster.client())
            .health(health.clone())
            .metrics(metrics.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(operator.run_until(async move { drop(stopped.await) }));
        // Before the check is registered there is nothing that is not ready.
        while !format!("{health:?}").contains("\"webhooks\"") || !health.is_ready() {
            assert!(!task.is_finished(), "the operator ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { port, stop: Some(stop), task, health, metrics })
    }

    async fn stop(mut self) -> Result<()> {
        drop(self.stop.take());
        (&mut self.task).await?
    }

    /// A client that trusts what the configuration in the cluster says.
    async fn caller(&self, cluster: &Cluster) -> Result<Client> {
        self.caller_with(cluster, None).await
    }

    /// The same, which shows the certificate in a Secret.
    async fn caller_with(&self, cluster: &Cluster, identity: Option<&Secret>) -> Result<Client> {
        use base64::Engine;
        let api: konverge::kube::Api<
            konverge::k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
        > = konverge::kube::Api::all(cluster.client());
        let entry = api.get("shops").await?.webhooks.unwrap_or_default().remove(0).client_config;
        let bundle = String::from_utf8(entry.ca_bundle.unwrap_or_default().0).unwrap_or_default();
        let der = |pem: &str| {
            let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
            base64::prelude::BASE64_STANDARD.decode(text)
        };
        let blocks = bundle.split_inclusive("-----END CERTIFICATE-----\n").filter(|block| !block.trim().is_empty());
        let mut config = Config::new(format!("https://127.0.0.1:{}", self.port).parse()?);
        config.root_cert = Some(blocks.map(der).collect::<Result<_, _>>()?);
        if let Some(identity) = identity {
            let encoded = |key: &str| base64::prelude::BASE64_STANDARD.encode(data(identity, key));
            config.auth_info.client_certificate_data = Some(encoded("tls.crt"));
            config.auth_info.client_key_data = Some(encoded("tls.key").into());
        }
        Ok(Client::try_from(config)?)
    }
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install::<Shop>().await?;
    Ok(cluster)
}

fn review(tills: i32, padding: usize) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "42", "kind": {"group": "example.com", "version": "v1", "kind": "Shop"},
        "resource": {"group": "example.com", "version": "v1", "resource": "shops"}, "operation": "CREATE", "name": "s",
        "namespace": "default", "object": {"metadata": {"name": "s", "annotations": {"a": "x".repeat(padding)}},
        "spec": {"tills": tills}},
    }})
    .to_string()
}

/// Code and body of an answer.
async fn send(caller: &Client, method: &str, path: &str, content_type: &str, body: String) -> Result<(u16, String)> {
    use http_body_util::BodyExt;
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = caller.send(request.body(konverge::kube::client::Body::from(body.into_bytes()))?).await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(Error::new)?.to_bytes();
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}

async fn post(caller: &Client, body: String) -> Result<(u16, String)> {
    send(caller, "POST", PATH, "application/json", body).await
}

#[tokio::test]
async fn whatever_is_sent_the_next_request_is_answered() -> Result<()> {
    const JSON: &str = "application/json";
    let cluster = cluster().await?;
    let served = Served::start(&cluster, |_| {}).await?;
    let caller = served.caller(&cluster).await?;
    let allowed = (
        200,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"42","allowed":true}}"#,
    );
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (method, path, content_type, body, expect) in [
        ("POST", PATH, JSON, review(1, 0), allowed),
        ("POST", PATH, "application/json; charset=utf-8", review(1, 0), allowed),
        ("POST", PATH, JSON, review(1, 6 << 20), allowed),
        ("POST", PATH, JSON, review(1, 10_000_000), (413, "the body has more than 7340032 bytes\n")),
        (
            "POST",
            PATH,
            JSON,
            "junk".into(),
            (400, "the body is no AdmissionReview: expected value at line 1 column 1\n"),
        ),
        ("POST", PATH, JSON, String::new(), (400, "the body is no AdmissionReview: EOF while parsing a value")),
        ("POST", PATH, JSON, deep, (400, "the body is no AdmissionReview: ")),
        ("POST", PATH, "text/plain", review(1, 0), (415, "the content type is \"text/plain\", and a webhook takes")),
        ("GET", PATH, JSON, String::new(), (405, "a webhook takes a review by POST\n")),
        (
            "POST",
            "/",
            JSON,
            review(1, 0),
            (404, "there is no webhook at /; there is /validate--v1-namespace-delete, /vali"),
        ),
        ("POST", PATH, JSON, review(16, 0), (200, "the webhook panicked: sixteen tills")),
        ("POST", PATH, JSON, review(101, 0), (200, "too many tills")),
    ] {
        let (code, answer) = send(&caller, method, path, content_type, body).await?;
        assert!(code == expect.0 && answer.contains(expect.1), "{method} {path} {content_type}: {code} {answer}");
        assert_eq!(post(&caller, review(1, 0)).await?, (allowed.0, allowed.1.to_owned()));
    }
    // What is no TLS at all, and who hangs up in the middle.
    for junk in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\xff\xff junk", b""] {
        let mut connection = TcpStream::connect(("127.0.0.1", served.port)).await?;
        connection.write_all(junk).await?;
        connection.shutdown().await?;
        let _ = connection.read_to_end(&mut Vec::new()).await;
        assert_eq!(post(&caller, review(1, 0)).await?.0, 200);
    }
    let page = served.metrics.page();
    for line in [
        r#"controller_runtime_webhook_requests_total{webhook="/validate-example-com-v1-shop",code="413"} 1"#,
        r#"controller_runtime_webhook_requests_total{webhook="/validate-example-com-v1-shop",code="500"} 0"#,
        r#"controller_runtime_webhook_requests_in_flight{webhook="/validate-example-com-v1-shop"} 0"#,
        r#"webhook_requests_total{webhook="/validate-example-com-v1-shop",operation="CREATE",verdict="failed"} 1"#,
        r#"webhook_requests_total{webhook="/validate-example-com-v1-shop",operation="CREATE",verdict="denied"} 1"#,
        r#"controller_runtime_webhook_latency_seconds_count{webhook="/validate-example-com-v1-shop"}"#,
        r#"konverge_webhook_certificate_expiry_timestamp_seconds{certificate="ca"}"#,
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    served.stop().await
}

fn data(secret: &Secret, key: &str) -> String {
    let data = secret.inner().data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

/// Replicas that start together share one CA, whoever wins the race for the Secret; and one that starts in the middle of a
/// rotation leaves those alone that still serve the former certificate.
#[tokio::test]
async fn replicas_share_one_ca() -> Result<()> {
    let cluster = cluster().await?;
    let start = || Served::start(&cluster, |_| {});
    let (a, b, c) = tokio::join!(start(), start(), start());
    let replicas = [a?, b?, c?];
    let secret = cluster.get::<Secret>("shops-webhook-cert").await?;
    assert_eq!(secret.inner().type_.as_deref(), Some("kubernetes.io/tls"));
    for replica in &replicas {
        let caller = replica.caller(&cluster).await?;
        assert_eq!(post(&caller, review(1, 0)).await?.0, 200);
    }
    // Somebody asks for a new CA.
    let forget = |secret: &mut Secret| {
        *secret = std::mem::take(secret).patch(|secret| {
            secret.data.get_or_insert_default().remove("ca.key");
        });
    };
    cluster.edit("shops-webhook-cert", forget).await?;
    let late = start().await?;
    let rotated = cluster.get::<Secret>("shops-webhook-cert").await?;
    assert_eq!(data(&rotated, "ca.crt").matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(data(&rotated, "tls.crt"), data(&secret, "tls.crt"), "everybody learns of the new CA first");
    for replica in replicas.iter().chain([&late]) {
        let caller = replica.caller(&cluster).await?;
        assert_eq!(post(&caller, review(1, 0)).await?.0, 200);
    }
    for replica in replicas.into_iter().chain([late]) {
        replica.stop().await?;
    }
    Ok(())
}

/// Entries of others in the same configuration stay, and so do configurations of others.
#[tokio::test]
async fn only_own_entries_are_written() -> Result<()> {
    let cluster = cluster().await?;
    let others: Value = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "shops"},
        "webhooks": [{
            "name": "somebody.else.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://else.example.com/"},
        }],
    });
    cluster.create(others).await?;
    let served = Served::start(&cluster, |_| {}).await?;
    let api: konverge::kube::Api<
        konverge::k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
    > = konverge::kube::Api::all(cluster.client());
    let names: Vec<String> =
        api.get("shops").await?.webhooks.unwrap_or_default().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["somebody.else.example.com", "validate.shop.example.com", "validate.delete.namespace.core"]);
    served.stop().await
}

/// Certificates that somebody else brings are served as they change, and no configuration is written without a CA.
#[tokio::test]
async fn a_directory_of_certificates() -> Result<()> {
    let cluster = cluster().await?;
    let folder = tempfile::tempdir()?;
    let elsewhere = self::cluster().await?;
    Served::start(&elsewhere, |_| {}).await?.stop().await?;
    let brought = elsewhere.get::<Secret>("shops-webhook-cert").await?;
    for file in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(folder.path().join(file), data(&brought, file))?;
    }
    let directory = folder.path().to_owned();
    let served = Served::start(&cluster, |settings| settings.webhook.cert_dir = Some(directory)).await?;
    assert_eq!(post(&served.caller(&cluster).await?, review(1, 0)).await?.0, 200);
    assert!(cluster.find::<Secret>("shops-webhook-cert").await?.is_none(), "no Secret is needed");
    assert!(served.health.is_ready());

    // New files are served within a second; the limit only ends a test that would wait for ever.
    let other = self::cluster().await?;
    Served::start(&other, |_| {}).await?.stop().await?;
    let newer = other.get::<Secret>("shops-webhook-cert").await?;
    let begun = std::time::Instant::now();
    for file in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(folder.path().join(file), data(&newer, file))?;
    }
    // Each over a new connection, which trusts the former CA only.
    while post(&served.caller(&elsewhere).await?, review(1, 0)).await.is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the former certificate is still served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    served.stop().await
}

/// With a CA for callers, nobody else is answered, and the CA can be replaced while the operator runs.
#[tokio::test]
async fn only_callers_with_a_certificate_are_answered() -> Result<()> {
    let mut identities = Vec::new();
    for _ in 0..2 {
        let elsewhere = cluster().await?;
        Served::start(&elsewhere, |_| {}).await?.stop().await?;
        identities.push(elsewhere.get::<Secret>("shops-webhook-cert").await?);
    }
    let (folder, cluster) = (tempfile::tempdir()?, cluster().await?);
    let (ca, certificates) = (folder.path().join("callers.crt"), folder.path().join("served"));
    std::fs::write(&ca, data(&identities[0], "ca.crt"))?;
    // Files are looked at more often than a Secret.
    std::fs::create_dir(&certificates)?;
    for file in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(certificates.join(file), data(&identities[0], file))?;
    }
    let file = ca.clone();
    let served = Served::start(&cluster, |settings| {
        (settings.webhook.client_ca, settings.webhook.cert_dir) = (Some(file), Some(certificates));
    })
    .await?;
    let (code, why) = post(&served.caller(&cluster).await?, review(1, 0)).await?;
    assert_eq!(code, 403);
    assert!(why.starts_with("only API servers may call"), "{why}");
    let (code, why) = post(&served.caller_with(&cluster, Some(&identities[1])).await?, review(1, 0)).await?;
    assert_eq!(code, 403);
    assert!(why.starts_with("the client certificate is not believed"), "{why}");
    assert_eq!(post(&served.caller_with(&cluster, Some(&identities[0])).await?, review(1, 0)).await?.0, 200);

    std::fs::write(&ca, data(&identities[1], "ca.crt"))?;
    let begun = std::time::Instant::now();
    while post(&served.caller_with(&cluster, Some(&identities[1])).await?, review(1, 0)).await?.0 != 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the new CA is not believed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    served.stop().await
}

/// A missing rule is named, and the listener serves meanwhile.
#[tokio::test]
async fn what_is_missing_fails_readiness() -> Result<()> {
    let cluster = Arc::new(cluster().await?);
    cluster.when::<Secret>([konverge_testkit::Verb::Get]).times(1).fail(403);
    let starting = cluster.clone();
    let served = Served::start(&starting, |_| {}).await?;
    assert_eq!(post(&served.caller(&cluster).await?, review(1, 0)).await?.0, 200);
    served.stop().await
}
