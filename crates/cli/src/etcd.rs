//! The program under the name `etcd`: what envtest starts before kube-apiserver, and asks whether it is healthy. It says so,
//! stores nothing, and stops on SIGTERM. Flags that would change what is stored are named as having no effect.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use konverge_serve::{BindError, BindOptions, CertificateError, Certificates, Listener, RequestBody, StopSignals, Tls};
use tower_service::Service;

use crate::args::LogFormat;
use crate::log;
use crate::run::{GRACE, SHUTDOWN_TIMEOUT};

/// Where etcd listens if nobody says.
const CLIENT_URLS: &str = "http://localhost:2379";

/// Flags that are obeyed.
const OBEYED: [&str; 5] = ["listen-client-urls", "cert-file", "key-file", "help", "version"];

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EtcdError {
    #[error("{0}")]
    Flags(String),
    #[error("cannot read {path}")]
    Read { path: String, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the system refused")]
    System(#[from] io::Error),
}

/// Runs until it is asked to stop. The arguments are those after the name of the program.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<(), EtcdError> {
    let flags = parse(arguments).map_err(EtcdError::Flags)?;
    if flags.contains_key("help") || flags.contains_key("h") {
        println!(
            "Usage:\n  etcd [flags]\n\nThis is konverge, which stands in for etcd where only its health is asked for. It stores \
             nothing.\n\n  --listen-client-urls '{CLIENT_URLS}'\n  --cert-file ''\n  --key-file ''\n\nAll other flags have no effect."
        );
        return Ok(());
    }
    if flags.contains_key("version") {
        println!("konverge {} in place of etcd; it stores nothing", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    log::start(LogFormat::Text, 0, false);
    eprintln!("etcd: this is konverge, which stores nothing here: its kube-apiserver keeps objects in memory");
    for name in flags.keys().filter(|name| !OBEYED.contains(&name.as_str())) {
        eprintln!("etcd: --{name} has no effect");
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(&flags))
}

async fn serve(flags: &BTreeMap<String, String>) -> Result<(), EtcdError> {
    let mut stop = StopSignals::listen(SHUTDOWN_TIMEOUT)?;
    let mut servers = Vec::new();
    for url in flags.get("listen-client-urls").map_or(CLIENT_URLS, String::as_str).split(',') {
        let (address, encrypted) = address(url).map_err(EtcdError::Flags)?;
        let tls = if encrypted { Tls::On(certificates(flags)?) } else { Tls::Off };
        let options = BindOptions { address: address.ip(), port: address.port(), tls, ..BindOptions::default() };
        servers.push(Listener::bind(options)?.serve(Health));
    }
    stop.asked().await;
    for server in servers {
        server.stop(GRACE).await;
    }
    Ok(())
}

fn certificates(flags: &BTreeMap<String, String>) -> Result<Certificates, EtcdError> {
    let read = |flag: &str| {
        let missing = || EtcdError::Flags(format!("an https URL in --listen-client-urls needs --{flag}"));
        let path = flags.get(flag).ok_or_else(missing)?;
        fs::read_to_string(path).map_err(|source| EtcdError::Read { path: path.clone(), source })
    };
    Ok(Certificates::given(&read("cert-file")?, &read("key-file")?)?)
}

/// The flags of a command line, as Go's package `flag` reads it. Those that take no value have the value `true`.
fn parse(arguments: impl IntoIterator<Item = String>) -> Result<BTreeMap<String, String>, String> {
    let mut flags = BTreeMap::new();
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            return Err(format!("'{argument}' is not a valid flag"));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = arguments.next_if(|next| !next.starts_with('-'));
                (flag.to_owned(), value.unwrap_or_else(|| "true".to_owned()))
            }
        };
        flags.insert(name, value);
    }
    Ok(flags)
}

/// The address of a URL, and whether it is encrypted.
fn address(url: &str) -> Result<(SocketAddr, bool), String> {
    let (encrypted, rest) = match url.trim().split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(format!("{url:?} is no URL that this program can listen on; write http://127.0.0.1:2379")),
    };
    let host = rest.trim_end_matches('/');
    // Also names are resolved, as localhost.
    let mut found = host.to_socket_addrs().map_err(|error| format!("cannot listen on {url:?}: {error}"))?;
    let first = found.next().ok_or_else(|| format!("cannot listen on {url:?}: it has no address"))?;
    // A name may have addresses of both families, and clients try IPv4 in any case.
    let address = std::iter::once(first).chain(found).find(|address| matches!(address.ip(), IpAddr::V4(_)));
    Ok((address.unwrap_or(first), encrypted))
}

/// Answers `/health`, as etcd does.
#[derive(Clone)]
struct Health;

impl Service<Request<RequestBody>> for Health {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let (code, kind, text) = match (request.uri().path(), request.method()) {
            ("/health", &Method::GET) => (StatusCode::OK, "application/json", r#"{"health":"true","reason":""}"#),
            ("/health", _) => (StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "Method Not Allowed\n"),
            _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n"),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        let arguments = ["--data-dir=/a", "--unsafe-no-fsync", "-name", "b", "--listen-client-urls=http://127.0.0.1:1"];
        let flags = parse(arguments.map(str::to_owned)).expect("flags");
        let flags: Vec<_> = flags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expect = [
            ("data-dir", "/a"),
            ("listen-client-urls", "http://127.0.0.1:1"),
            ("name", "b"),
            ("unsafe-no-fsync", "true"),
        ];
        assert_eq!(flags, expect);
        assert_eq!(parse(["start".to_owned()]), Err("'start' is not a valid flag".to_owned()));
    }

    #[test]
    fn addresses() {
        for (url, expect) in [
            ("http://127.0.0.1:2379", Some("127.0.0.1:2379 false")),
            ("https://[::1]:2379/", Some("[::1]:2379 true")),
            ("http://localhost:7", Some("127.0.0.1:7 false")),
            ("unix://a", None),
            ("http://127.0.0.1", None),
        ] {
            let found = address(url).ok().map(|(address, encrypted)| format!("{address} {encrypted}"));
            assert_eq!(found.as_deref(), expect, "{url}");
        }
    }
}
