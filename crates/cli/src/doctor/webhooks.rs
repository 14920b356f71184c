//! Webhooks that API servers call. In: webhook configurations, CRDs with conversions, and what is known of whom they call. Out: a finding. `callees` takes them
//! apart, `observe` looks whether somebody answers, and `judge` decides.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use konverge_serve::certificate_expiries;
use serde_json::Value;

use super::checks::WEBHOOKS;
use super::credentials::date;
use super::finding::{Finding, Outcome};
use crate::counted::counted;
use crate::description::text;
use crate::observer::Observer;

/// How many webhooks are looked at.
const MOST: usize = 100;

/// How long a connection to this machine may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A CA that ends sooner than this is warned of. Operators of this framework renew theirs earlier.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Whom an API server calls.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Callee {
    /// `ValidatingWebhookConfiguration shop: validate.shop.example.com`
    name: String,
    /// Whether requests are refused if nobody answers.
    is_required: bool,
    client: Value,
}

/// Whether somebody is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    Yes,
    /// Nobody is, and why.
    No(String),
    Unknown,
}

/// The webhooks of configurations, and the conversions of CRDs.
pub(super) fn callees(objects: &[Value]) -> Vec<Callee> {
    let mut callees = Vec::new();
    for object in objects {
        let owner = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            callees.push(Callee {
                name: format!("{owner}: {}", text(&webhook["name"])),
                is_required: webhook["failurePolicy"] != "Ignore",
                client: webhook["clientConfig"].clone(),
            });
        }
        let conversion = &object["spec"]["conversion"];
        if conversion["strategy"] == "Webhook" {
            let client = conversion["webhook"]["clientConfig"].clone();
            callees.push(Callee { name: format!("{owner}: conversion"), is_required: true, client });
        }
    }
    callees.truncate(MOST);
    callees
}

/// Looks whether somebody answers: Services have Endpoints, and addresses of this machine have a listener if the server is on this machine, too.
pub(super) async fn observe(observer: &Observer, callee: &Callee, is_local: bool) -> Answering {
    let service = &callee.client["service"];
    if let Some(name) = service["name"].as_str() {
        let namespace = text(&service["namespace"]);
        match observer.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await {
            Ok(None) => return Answering::No(format!("there is no Service {namespace}/{name}")),
            Ok(Some(found)) if found["spec"]["type"] == "ExternalName" => return Answering::Unknown,
            Ok(Some(_)) => {}
            Err(_) => return Answering::Unknown,
        }
        let query = format!("&labelSelector=kubernetes.io%2Fservice-name%3D{name}");
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let Ok(slices) = observer.list(&path, &query, MOST).await else { return Answering::Unknown };
        let endpoints = slices.items.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] != false;
        return match endpoints.into_iter().any(is_ready) {
            true => Answering::Yes,
            false => Answering::No(format!("no Pod behind the Service {namespace}/{name} is ready")),
        };
    }
    match callee.client["url"].as_str().and_then(loopback).filter(|_| is_local) {
        None => Answering::Unknown,
        Some((host, port)) => {
            let connected = tokio::time::timeout(CONNECT_WITHIN, tokio::net::TcpStream::connect((host, port))).await;
            match connected {
                Ok(Ok(_)) => Answering::Yes,
                _ => Answering::No(format!("nobody listens at {host}:{port}; is the operator stopped?")),
            }
        }
    }
}

/// The address of a URL that is one of this machine.
fn loopback(url: &str) -> Option<(IpAddr, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']);
    let host = if host == "localhost" { IpAddr::from([127, 0, 0, 1]) } else { host.parse().ok()? };
    host.is_loopback().then(|| (host, uri.port_u16().unwrap_or(443)))
}

/// What is wrong with the certificates that the server is to trust.
fn authority(client: &Value, now: Timestamp) -> Option<(Outcome, String)> {
    let bundle = text(&client["caBundle"]);
    if bundle.is_empty() {
        // A server then trusts the system's CAs, which no Service has a certificate of.
        return client["service"].is_object().then(|| (Outcome::Problem, "it has no caBundle".to_owned()));
    }
    let expiries = STANDARD.decode(&bundle).map(|pem| certificate_expiries(&pem)).unwrap_or_default();
    let last = expiries.iter().max().and_then(|at| Timestamp::try_from(*at).ok());
    match last {
        None => Some((Outcome::Problem, "its caBundle is no certificate in PEM".to_owned())),
        Some(end) if end <= now => Some((Outcome::Problem, format!("its CA has expired at {}", date(end)))),
        Some(end) if end.duration_since(now) < SOON => {
            Some((Outcome::Warning, format!("its CA expires at {}", date(end))))
        }
        Some(_) => None,
    }
}

/// Whether all webhooks can be called.
pub(super) fn judge(callees: &[(Callee, Answering)], now: Timestamp) -> Finding {
    let (mut worst, mut details) = (Outcome::Ok, Vec::new());
    for (callee, answering) in callees {
        let found = match answering {
            Answering::No(why) => Some((Outcome::Problem, why.clone())),
            _ => authority(&callee.client, now),
        };
        let Some((outcome, why)) = found else { continue };
        let (outcome, meaning) = match (outcome, callee.is_required) {
            (Outcome::Problem, true) => (Outcome::Problem, "; every request that it is for is refused"),
            (Outcome::Problem, false) => (Outcome::Warning, "; it is passed over, because its failurePolicy is Ignore"),
            (other, _) => (other, ""),
        };
        details.push(format!("{}: {why}{meaning}", callee.name));
        if worst != Outcome::Problem {
            worst = outcome;
        }
    }
    match details.len() {
        0 if callees.is_empty() => WEBHOOKS.ok("there are none"),
        0 => WEBHOOKS.ok(format!("{} can be called", counted(callees.len(), "webhook"))),
        count => WEBHOOKS
            .found(
                worst,
                format!("{count} of {} cannot be called, or soon not any more", counted(callees.len(), "webhook")),
                &[
                    "start the operator that serves it: `konverge dev`, `konverge run` or `konverge deploy`",
                    "or take it out, if nobody serves it any more: kubectl delete KIND NAME",
                ],
            )
            .with(details),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome::{Ok as Fine, Problem, Warning};
    use serde_json::json;

    fn ca(year: i32) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 3);
        STANDARD.encode(params.self_signed(&key).unwrap().pem())
    }

    #[test]
    fn what_is_called_and_whether_it_answers() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let check = |policy: &str, ca: &str, answering: Answering, outcome: Outcome, part: &str| {
            let configuration = json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "shop"}, "webhooks": [
                {"name": "a.b.c", "failurePolicy": policy, "clientConfig": {"caBundle": ca, "service": {"name": "s", "namespace": "n"}}}]});
            let callees: Vec<_> = callees(&[configuration]).into_iter().map(|one| (one, answering.clone())).collect();
            let found = judge(&callees, now);
            assert_eq!(found.outcome, outcome, "{found:?}");
            assert!(format!("{} {}", found.what, found.details.join(" ")).contains(part), "{found:?}");
        };
        let good = ca(2030);
        check("Fail", &good, Answering::Yes, Fine, "1 webhook can be called");
        check("Fail", &good, Answering::Unknown, Fine, "");
        check("Fail", &good, Answering::No("nobody".into()), Problem, "nobody; every request");
        check("Ignore", &good, Answering::No("nobody".into()), Warning, "passed over");
        check("Fail", "", Answering::Yes, Problem, "no caBundle");
        check("Fail", "Zm9v", Answering::Yes, Problem, "no certificate in PEM");
        check("Fail", &ca(2025), Answering::Yes, Problem, "has expired at 2025-01-03");
        check("Fail", &ca(2026), Answering::Yes, Warning, "expires at 2026-01-03");
        assert_eq!(judge(&[], now).outcome, Fine);
        let definition = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "shops.example.com"}, "spec": {
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://127.0.0.1:9/c"}}}}});
        let found = callees(&[
            definition,
            json!({"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "None"}}}),
        ]);
        assert_eq!(
            found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["CustomResourceDefinition shops.example.com: conversion"]
        );
    }

    #[test]
    fn addresses_of_this_machine() {
        for (url, expect) in [
            ("https://127.0.0.1:9443/a", Some(("127.0.0.1", 9443))),
            ("https://[::1]:9443/a", Some(("::1", 9443))),
            ("https://localhost/a", Some(("127.0.0.1", 443))),
            ("https://example.com/a", None),
            ("https://10.0.0.1:1/a", None),
        ] {
            assert_eq!(loopback(url), expect.map(|(host, port)| (host.parse().unwrap(), port)), "{url}");
        }
    }
}
