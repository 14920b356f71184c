//! Who makes a request. In: what the listener found out about the client's certificate, and the headers. Out: a user, or the
//! refusal. The API server knows tokens; only the listener knows certificates.

use http::request::Parts;
use http::{HeaderValue, Response, header};
use konverge_apiserver::{ApiServer, Body, CertificateRefused, UserInfo};
use konverge_core::Status;
use konverge_serve::{ClientCertificate, Subject};

/// The object identifier 1.3.6.1.4.1.57683.2, under which Kubernetes looks for the uid of a user.
const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// The extra information by which audit logs recognise a credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user who makes a request.
///
/// The body is not looked at; the head is all that the future borrows, because a body need not be shared between threads.
pub(crate) async fn authenticate(api: &ApiServer, head: &Parts) -> Result<UserInfo, Status> {
    let certificate = match head.extensions.get() {
        Some(ClientCertificate::Trusted(subject)) => user_of(subject),
        Some(ClientCertificate::Refused(why)) => {
            tracing::info!(%why, "unable to authenticate a request: its client certificate is not believed");
            Err(CertificateRefused)
        }
        None => Ok(None),
    };
    api.authenticate(certificate, head.uri.path(), &head.headers).await
}

/// Answers a request whose credential is not believed.
pub(crate) async fn refuse(api: &ApiServer, request: Parts, refused: &Status) -> Response<Body> {
    let mut response = api.refuse(request, refused).await;
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// The user that a certificate is about: its common name, in the groups that are its organizations. None without a name.
fn user_of(subject: &Subject) -> Result<Option<UserInfo>, CertificateRefused> {
    let Some(name) = subject.values(Subject::COMMON_NAME).last().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let mut uids = subject.values(UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => "",
        (Some(uid), None) if !uid.is_empty() => uid,
        _ => return Err(CertificateRefused),
    };
    let fingerprint: String = subject.sha256().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(UserInfo {
        uid: uid.to_owned(),
        groups: subject.values(Subject::ORGANIZATION).map(str::to_owned).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into(),
        ..UserInfo::named(name)
    }))
}
