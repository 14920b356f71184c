//! What a call of a webhook adds to a create: CPU of the API server, and latency. Three servers take turns: without webhooks,
//! with a validating one, and with a mutating and a validating one. The webhooks are served over TLS in this process, on the
//! core of the clients, and answer as soon as they have read the uid.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use konverge_serve::{
    BindOptions, Certificates, Listener, RequestBody, Server as WebhookServer, SharedCertificates, Tls,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Scale;
use super::kinds::{CONFIG_MAPS, config_map};
use super::load::{self, Created, Until};
use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::compare::median;
use crate::http::{self as client};
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::report::{Figure, Figures};
use crate::widget;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// The label that the mutating webhook adds.
const LABEL: &str = "reviewed";

/// The servers by the webhooks that they ask.
const SERVERS: [(&str, &[Hook]); 3] = [
    ("no webhook", &[]),
    ("1 validating", &[Hook::Validating]),
    ("1 mutating, 1 validating", &[Hook::Mutating, Hook::Validating]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Validating,
    Mutating,
}

/// Runs the stage.
pub(super) async fn measure(program: &ServerProgram, scale: &Scale) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let (webhooks, counted) = Webhooks::serve()?;
    let mut servers = Vec::new();
    for (_, hooks) in SERVERS {
        let server = program.start(Storage::Memory, Transport::Plain).await?;
        for hook in hooks {
            webhooks.register(&server, *hook).await?;
        }
        servers.push(server);
    }
    let mut first = 0;
    for clients in [1, 16] {
        let mut samples: [Vec<Created>; 3] = Default::default();
        for _ in 0..scale.compared {
            for (((_, hooks), server), samples) in SERVERS.iter().zip(&servers).zip(&mut samples) {
                let before = counted.load(Relaxed);
                let count = if clients == 1 { scale.compared_creates / 4 } else { scale.compared_creates };
                let created =
                    load::create_with(server, clients, first, Until::Number(first + count), config_map).await?;
                expect("calls of webhooks", counted.load(Relaxed) - before, created.count * hooks.len())?;
                check(server, first, hooks.contains(&Hook::Mutating)).await?;
                first += created.count;
                figures.disturbed(&created.spent);
                samples.push(created);
            }
        }
        add(&mut figures, clients, samples);
    }
    Ok(figures)
}

/// Whether an object has the label exactly if a webhook adds it.
async fn check(server: &Server, number: usize, is_labelled: bool) -> Result<(), InvalidRun> {
    let path = format!("{CONFIG_MAPS}/{}", widget::name(number));
    let object = server.endpoint.once(&client::get(&path), 200).await?;
    let object: Value = serde_json::from_slice(&object).map_err(|error| InvalidRun::new(error.to_string()))?;
    expect("the label", object["metadata"]["labels"][LABEL] == "true", is_labelled)
}

fn add(figures: &mut Figures, clients: usize, samples: [Vec<Created>; 3]) {
    let plural = if clients == 1 { "" } else { "s" };
    let cpu = samples.each_ref().map(|samples| each(samples, |created| created.spent.server_each(created.count)));
    let p50 = samples.each_ref().map(|samples| each(samples, |created| created.latencies.millis(0.5) * 1e3));
    for (((name, _), samples), cpu) in SERVERS.into_iter().zip(samples).zip(&cpu) {
        let mut latencies = Latencies::default();
        samples.into_iter().for_each(|created| latencies.extend(created.latencies));
        let figure = Figure::cost(format!("CPU, {name}, {clients} client{plural}"), median(cpu), "µs");
        figures.add(figure.with_note(latencies.summary()));
    }
    for (at, (name, hooks)) in SERVERS.into_iter().enumerate().skip(1) {
        for (what, costs) in [("CPU", &cpu), ("latency p50", &p50)] {
            let of_call = |(with, without): (&f64, &f64)| (with - without) / hooks.len() as f64;
            let added: Vec<f64> = costs[at].iter().zip(&costs[0]).map(of_call).collect();
            let figure =
                Figure::cost(format!("added {what} of a call, {name}, {clients} client{plural}"), median(&added), "µs");
            let most = added.iter().copied().fold(f64::MIN, f64::max);
            let least = added.iter().copied().fold(f64::MAX, f64::min);
            figures.add(figure.with_note(format!("rounds: {least:.0}–{most:.0}")));
        }
    }
}

fn each(samples: &[Created], of: impl Fn(&Created) -> f64) -> Vec<f64> {
    samples.iter().map(of).collect()
}

/// The webhooks, which answer until this is dropped.
struct Webhooks {
    server: WebhookServer,
    ca_bundle: String,
}

impl Webhooks {
    /// Begins to answer. Returns also how often they have been called.
    fn serve() -> Result<(Self, Arc<AtomicUsize>), InvalidRun> {
        let unusable = |error: &dyn std::fmt::Display| InvalidRun::new(format!("webhooks cannot be served: {error}"));
        let made = SharedCertificates::make(&[], SystemTime::now()).map_err(|error| unusable(&error))?;
        let certificates =
            Certificates::given(&made.certificate_pem, &made.key_pem).map_err(|error| unusable(&error))?;
        let options = BindOptions { tls: Tls::On(certificates), ..BindOptions::default() };
        let answers = Answers::default();
        let counted = answers.0.clone();
        let server = Listener::bind(options).map_err(|error| unusable(&error))?.serve(answers);
        Ok((Self { server, ca_bundle: BASE64_STANDARD.encode(made.ca_pem) }, counted))
    }

    /// Tells an API server to ask a webhook about ConfigMaps that are created.
    async fn register(&self, server: &Server, hook: Hook) -> Result<(), InvalidRun> {
        let (plural, kind) = match hook {
            Hook::Validating => ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
            Hook::Mutating => ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "bench"},
            "webhooks": [{
                "name": "configmaps.bench.konverge.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {
                    "url": format!("https://{}/{}", self.server.local_addr(), hook.path()), "caBundle": self.ca_bundle,
                },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                }],
            }],
        });
        let path = format!("{CONFIGURATIONS}/{plural}");
        let create = client::request("POST", &path, "application/json", configuration.to_string().as_bytes());
        server.endpoint.once(&create, 201).await.map_err(|invalid| invalid.during("registering a webhook"))?;
        Ok(())
    }
}

impl Hook {
    fn path(self) -> &'static str {
        match self {
            Self::Validating => "validate",
            Self::Mutating => "mutate",
        }
    }
}

/// Answers reviews and counts them.
#[derive(Clone, Default)]
struct Answers(Arc<AtomicUsize>);

/// The part of a review that an answer needs.
#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: ReviewRequest<'a>,
}

#[derive(Deserialize)]
struct ReviewRequest<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

impl tower_service::Service<Request<RequestBody>> for Answers {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        self.0.fetch_add(1, Relaxed);
        Box::pin(async move {
            let is_mutating = request.uri().path() == "/mutate";
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            // What cannot be read is answered with an empty body, which makes the create fail and the run invalid.
            let answer = serde_json::from_slice(&body).map(|review| answer(&review, is_mutating)).unwrap_or_default();
            let mut response = Response::new(Full::from(answer));
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

fn answer(review: &Review<'_>, is_mutating: bool) -> String {
    let mut response = json!({"uid": review.request.uid, "allowed": true});
    if is_mutating {
        let patch = json!([{"op": "add", "path": format!("/metadata/labels/{LABEL}"), "value": "true"}]);
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}
