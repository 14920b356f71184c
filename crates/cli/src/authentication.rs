//! Who makes a request. In: what the listener found out about the client's certificate, and the headers. Out: a user, or the
//! refusal. The API server knows tokens; only the listener knows certificates.

use http::Request;
use konverge_apiserver::{ApiServer, CertificateRefused, UserInfo};
use konverge_core::Status;
use konverge_serve::{ClientCertificate, Subject};

/// The object identifier 1.3.6.1.4.1.57683.2, under which Kubernetes looks for the uid of a user.
const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// The extra information by which audit logs recognise a credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user who makes a request.
pub(crate) fn authenticate<B>(api: &ApiServer, request: &Request<B>) -> Result<UserInfo, Status> {
    let certificate = match request.extensions().get() {
        Some(ClientCertificate::Trusted(subject)) => user_of(subject),
        Some(ClientCertificate::Refused(why)) => {
            tracing::info!(%why, "unable to authenticate a request: its client certificate is not believed");
            Err(CertificateRefused)
        }
        None => Ok(None),
    };
    api.authenticate(certificate, request.headers())
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
