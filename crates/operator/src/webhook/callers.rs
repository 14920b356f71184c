//! Who may call webhooks. In: the file with the CA of API servers' client certificates, and what a connection showed. Out: nothing, or
//! why a request is refused. Without such a file anybody may ask who reaches the port: an answer changes nothing in the cluster, but
//! it takes work, and it may tell what the operator knows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Extensions, StatusCode};
use konverge_runtime::{Error, Result};
use konverge_serve::{ClientCa, ClientCertificate};
use parking_lot::Mutex;

/// The CA whose certificates callers have to show. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    file: PathBuf,
    ca: ClientCa,
    /// What the file had when it was read last.
    known: Arc<Mutex<String>>,
}

impl Callers {
    pub(super) fn from_file(file: &Path) -> Result<Self> {
        let pem = read(file)?;
        let ca = ClientCa::from_pem(&pem).map_err(|error| unusable(file, &konverge_core::ErrorChain(&error)))?;
        Ok(Self { file: file.to_owned(), ca, known: Arc::new(Mutex::new(pem)) })
    }

    /// For the listener, which looks at the certificates.
    pub(super) fn ca(&self) -> ClientCa {
        self.ca.clone()
    }

    /// Reads the file again: CAs are replaced while operators run. If it cannot be read, those of before are believed.
    pub(super) fn look(&self) -> Result<()> {
        let (pem, mut known) = (read(&self.file)?, self.known.lock());
        if pem == *known {
            return Ok(());
        }
        self.ca.replace(&pem).map_err(|error| unusable(&self.file, &konverge_core::ErrorChain(&error)))?;
        *known = pem;
        Ok(())
    }

    /// Refuses a request whose connection showed no certificate that is believed.
    pub(super) fn check(&self, request: &Extensions) -> Result<(), (StatusCode, String)> {
        let why = match request.get::<ClientCertificate>() {
            Some(ClientCertificate::Trusted(_)) => return Ok(()),
            Some(ClientCertificate::Refused(why)) => format!("the client certificate is not believed: {why}"),
            None => "only API servers may call, and this connection showed no client certificate; let yours show one of the CA in \
                     --webhook-client-ca, or take that setting away"
                .to_owned(),
        };
        Err((StatusCode::FORBIDDEN, why))
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::permanent(format!("--webhook-client-ca {}: {why}; it has to be a file with CA certificates", file.display()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use konverge_serve::SharedCertificates;

    use super::*;

    #[test]
    fn certificates_are_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        let error = Callers::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("ca.crt") && error.contains("has to be a file with CA certificates"), "{error}");
        std::fs::write(&file, "junk").unwrap();
        let error = Callers::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("no X.509 certificate in it"), "{error}");

        let made = SharedCertificates::make(&["caller".to_owned()], SystemTime::now()).unwrap();
        std::fs::write(&file, &made.ca_pem).unwrap();
        let callers = Callers::from_file(&file).unwrap();
        let refused = |certificate: Option<ClientCertificate>| {
            let mut extensions = Extensions::new();
            certificate.map(|certificate| extensions.insert(certificate));
            callers.check(&extensions).err().map(|(code, why)| (code.as_u16(), why))
        };
        let (code, why) = refused(Some(ClientCertificate::Refused("it has expired".into()))).unwrap();
        assert_eq!((code, &*why), (403, "the client certificate is not believed: it has expired"));
        assert!(refused(None).unwrap().1.starts_with("only API servers may call"));

        std::fs::write(&file, "").unwrap();
        assert!(callers.look().is_err(), "half a file is none");
        std::fs::write(&file, &made.ca_pem).unwrap();
        assert!(callers.look().is_ok());
    }
}
