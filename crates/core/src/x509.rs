//! Certificates and requests for them, as everybody here reads them. In: PEM or DER. Out: the names of a subject, the parts of a
//! request or a certificate. Nothing is signed or verified here.
//!
//! The API server decides by the subject of a request who may ask for a certificate, the signer signs it, and the listener takes the
//! same subject for a user. If two of them read one text differently, somebody is signed as another user than was checked: so all
//! of them read it here, and as Go does.

mod certificate;
pub mod der;
mod name;
mod pem;
mod request;

pub use certificate::Certificate;
pub use name::Name;
pub use pem::{PemBlock, pem_blocks};
pub use request::CertificateRequest;
