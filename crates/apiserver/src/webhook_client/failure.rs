//! What went wrong with a call, in the words of Go's HTTP client and of client-go: people search for these. In: errors of the
//! connection and answers that are failures. Out: a [`CallError`].

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use rustls::{AlertDescription, CertificateError};
use serde_json::Value;

use konverge_core::{Status, StatusDetails};

use super::{seconds, unavailable};

/// How much of an answer that is no JSON is repeated.
const SHOWN: usize = 2048;

/// Why a webhook gave no answer that can be used.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It was not reached, or did not answer.
    Transport(String),
    /// It answered that it failed.
    Status(Status),
    /// It answered something that is no JSON, or too much.
    Other(String),
    /// It cannot be called at all.
    Unusable(String),
    /// It was not called, because too many requests wait for its answers already.
    TooMany(String),
}

impl CallError {
    pub(super) fn transport(url: &str, why: &str) -> Self {
        Self::Transport(format!("Post {url:?}: {why}"))
    }

    /// What the client of the request is told if the server itself did not call the webhook: 429, whatever the failure policy. Who
    /// makes a webhook slow must not get past it.
    pub(crate) fn refusal(&self) -> Option<Status> {
        let Self::TooMany(why) = self else { return None };
        Some(Status::failure(429, "TooManyRequests", why.clone()).retry_after(1))
    }

    /// What is counted: the code of the answer, or 503.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Status(status) => status.code,
            Self::Unusable(_) => 500,
            Self::TooMany(_) => 429,
            Self::Transport(_) | Self::Other(_) => unavailable("").code,
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Transport(why) | Self::Other(why) | Self::Unusable(why) | Self::TooMany(why) => f.write_str(why),
            Self::Status(status) => f.write_str(&status.message),
        }
    }
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConnectError(pub String);

pub(super) fn of_dialling(address: &str, error: &io::Error) -> ConnectError {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    ConnectError(match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        io::ErrorKind::TimedOut => format!("dial tcp {address}: i/o timeout"),
        io::ErrorKind::HostUnreachable => format!("dial tcp {address}: connect: no route to host"),
        io::ErrorKind::NetworkUnreachable => format!("dial tcp {address}: connect: network is unreachable"),
        // Rust has no kind for a name that is not known.
        _ if error.to_string().contains("lookup") => format!("dial tcp: lookup {host}: no such host"),
        _ => format!("dial tcp {address}: {error}"),
    })
}

pub(super) fn of_handshake(error: &io::Error, host: &str) -> ConnectError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let invalid = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
    ConnectError(match tls {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            // Go tries the key of a CA with the same name, too, and says the same in the end.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                invalid("certificate signed by unknown authority")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                invalid("certificate has expired or is not yet valid: it has expired")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                invalid("certificate has expired or is not yet valid: it is not valid yet")
            }
            CertificateError::NotValidForName => {
                invalid(&format!("certificate is not valid for any names, but wanted to match {host}"))
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                invalid(&format!("certificate is not valid for any names, but wanted to match {host}"))
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
                invalid(&format!("certificate is valid for {}, not {host}", names.join(", ")))
            }
            other => invalid(&format!("{other:?}")),
        },
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {}", of_alert(*alert)),
        Some(other) => format!("tls: {other}"),
        None => of_io(error),
    })
}

/// What the other side of a handshake complains about.
fn of_alert(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::UnrecognisedName => "unrecognized name",
        other => return spaced(&format!("{other:?}")),
    };
    words.to_owned()
}

/// `BadCertificate` is `bad certificate`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// `DnsName("webhook.shop.svc")` is the name alone.
fn plain(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')')).trim_matches('"')
}

fn of_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

/// The words for an error of the HTTP client.
pub(super) fn go_words(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error.to_string();
    let mut next = Some(error);
    while let Some(at) = next {
        if let Some(connect) = at.downcast_ref::<ConnectError>() {
            return connect.0.clone();
        }
        if let Some(io) = at.downcast_ref::<io::Error>() {
            return of_io(io);
        }
        if at.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "EOF".to_owned();
        }
        deepest = at.to_string();
        next = at.source();
    }
    deepest
}

/// The JSON of an answer, or what its failure says.
pub(super) fn read(answer: &Response<Bytes>) -> Result<Value, CallError> {
    let (code, body) = (answer.status().as_u16(), answer.body());
    let content_type =
        answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !(200..=206).contains(&code) {
        let said = serde_json::from_slice::<Status>(body).ok().filter(|status| status.status != "Success");
        return Err(CallError::Status(said.unwrap_or_else(|| generic(answer, content_type))));
    }
    if body.is_empty() {
        let why = format!("0-length response with status code: {code} and content type: {content_type}");
        return Err(CallError::Other(why));
    }
    let unreadable =
        |why: serde_json::Error| CallError::Other(format!("couldn't get version/kind; json parse error: {why}"));
    let read: Value = serde_json::from_slice(body).map_err(unreadable)?;
    if read["kind"] == "Status"
        && let Ok(status) = serde_json::from_value::<Status>(read.clone())
        && status.status != "Success"
    {
        return Err(CallError::Status(status));
    }
    Ok(read)
}

/// The `Status` that client-go makes of an answer that has none.
fn generic(answer: &Response<Bytes>, content_type: &str) -> Status {
    let code = answer.status().as_u16();
    let is_text = content_type.is_empty() || content_type.starts_with("text/");
    let body = &answer.body()[..answer.body().len().min(SHOWN)];
    let said = if is_text { String::from_utf8_lossy(body).trim().to_owned() } else { "unknown".to_owned() };
    let (reason, message) = match code {
        409 => ("AlreadyExists", "the server reported a conflict".to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        400 => ("BadRequest", "the server rejected our request for an unknown reason".to_owned()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", said.clone()),
        406 if said.is_empty() || said == "unknown" => (
            "NotAcceptable",
            "the server was unable to respond with a content type that the client supports".to_owned(),
        ),
        406 => ("NotAcceptable", said.clone()),
        415 => ("UnsupportedMediaType", said.clone()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
        422 => ("Invalid", "the server rejected our request due to an error in our request".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        500.. => {
            ("InternalError", format!("an error on the server ({said:?}) has prevented the request from succeeding"))
        }
        _ => ("", format!("the server responded with the status code {code} but did not return more information")),
    };
    let mut status = Status::failure(code, reason, message).with_cause("UnexpectedServerResponse", &said, "");
    let StatusDetails { retry_after_seconds, .. } = status.details_mut();
    *retry_after_seconds = seconds(answer.headers()).unwrap_or_default();
    status
}

/// A duration in whole seconds, rounded up, as Go prints it: `10s`, `1m0s`.
pub(super) fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
