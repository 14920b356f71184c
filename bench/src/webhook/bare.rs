//! The webhooks without a framework: hyper over rustls, serde_json, and kube's types of reviews. The patch is written by hand, as
//! kube's example does it. There are no limits, metrics or timeouts, so this is what the parts cost by themselves.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::pod_rules::{LABEL, VALUE, unpinned};
use super::review::Hook;
use crate::invalid_run::InvalidRun;

/// Serves until the process is killed.
pub(super) async fn serve(port: u16, cert_dir: &Path) -> Result<(), InvalidRun> {
    let acceptor = acceptor(cert_dir)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that goes away is no failure of the server; the client reports what it misses.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}

fn acceptor(cert_dir: &Path) -> Result<TlsAcceptor, InvalidRun> {
    let unusable = |error: &dyn std::fmt::Display| InvalidRun::new(format!("the certificate cannot be used: {error}"));
    let certificate = CertificateDer::from_pem_file(cert_dir.join("tls.crt")).map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_file(cert_dir.join("tls.key")).map_err(|error| unusable(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| unusable(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_mutating = request.uri().path() == Hook::Mutate.path();
    let response = match request.into_body().collect().await {
        Ok(body) => review(&body.to_bytes(), is_mutating),
        Err(error) => AdmissionResponse::invalid(error),
    };
    let body = serde_json::to_vec(&response.into_review()).unwrap_or_default();
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}

fn review(body: &[u8], is_mutating: bool) -> AdmissionResponse {
    let review: AdmissionReview<Pod> = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return AdmissionResponse::invalid(error),
    };
    let request: AdmissionRequest<Pod> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return AdmissionResponse::invalid(error),
    };
    let response = AdmissionResponse::from(&request);
    let Some(pod) = &request.object else { return response };
    if !is_mutating {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        return match unpinned(containers.filter_map(|container| container.image.as_deref())) {
            Some(image) => response.deny(format!("{image} must have a tag other than latest")),
            None => response,
        };
    }
    let path = PointerBuf::from_tokens(["metadata", "labels", LABEL]);
    let add = PatchOperation::Add(AddOperation { path, value: VALUE.into() });
    response.with_patch(Patch(vec![add])).unwrap_or_else(AdmissionResponse::invalid)
}
