//! The certificate that the operator has made for its webhooks, for its instances to show to each other. In: the Secret that all instances
//! share. Out: certificates for a member, which follow the Secret. The API server is needed when an instance starts, and not for elections.

use std::time::{Duration, SystemTime};

use konverge_raft::MemberCertificates;
use konverge_runtime::{Error, Result};
use konverge_serve::SharedCertificates;
use tokio::task::JoinHandle;

use crate::webhook::Trust;

/// How often the Secret is read. A new CA is trusted for ten minutes before it is used, so no instance comes too late.
const LOOK_AFTER: Duration = Duration::from_secs(60);

/// How long the API server may be away when an instance starts, and the pause between two attempts. Whoever started the process starts it
/// again.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The task that follows the Secret. It ends when this is dropped.
pub(super) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The certificates of the Secret, which is made if there is none.
pub(super) async fn shared(trust: Trust) -> Result<(MemberCertificates, Following)> {
    let first = tokio::time::timeout(FOUND_WITHIN, async {
        loop {
            match trust.look(None, SystemTime::now()).await {
                Ok(shared) => return shared,
                Err(error) => {
                    let why = format!("{error:#}");
                    tracing::warn!(why, "raft: the Secret with the certificates of the instances cannot be had yet");
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    });
    let first = first.await.map_err(|_| {
        Error::permanent(format!(
            "the Secret with the certificates of the instances could not be had within {FOUND_WITHIN:?}; let the operator read and write \
             it (--print-webhooks prints the rights), or give certificates with .tls_dir(…)"
        ))
    })?;
    let SharedCertificates { ca_pem, certificate_pem, key_pem, .. } = &first;
    let certificates = MemberCertificates::from_pem(ca_pem, certificate_pem, key_pem).map_err(Error::permanent)?;
    let following = tokio::spawn(follow(trust, first, certificates.clone()));
    Ok((certificates, Following(following)))
}

async fn follow(trust: Trust, mut known: SharedCertificates, certificates: MemberCertificates) {
    loop {
        tokio::time::sleep(LOOK_AFTER).await;
        // The API server may be away for hours, and nothing here depends on it.
        let Ok(found) = trust.look(Some(&known), SystemTime::now()).await else { continue };
        if found == known {
            continue;
        }
        match certificates.replace(&found.ca_pem, &found.certificate_pem, &found.key_pem) {
            Ok(()) => {
                tracing::info!("raft: new certificates are used");
                known = found;
            }
            Err(error) => tracing::warn!(%error, "raft: new certificates cannot be used; those before are used on"),
        }
    }
}
