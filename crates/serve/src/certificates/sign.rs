//! Signs the certificates that others ask for. In: a request (PKCS #10) and what the certificate may be used for. Out: the
//! certificate. Subject and alternative names are those that were read, written anew; other extensions that a request asks for are left
//! out. It never decides whether a request may be signed, and does not check the request's own signature: the API server has done that.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use konverge_core::x509;
use konverge_core::x509::der::{BIT_STRING, BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, value};
use rcgen::SigningKey;
use ring::rand::{SecureRandom, SystemRandom};

use super::issue::Authority;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_3: u8 = 0xa3;

/// Object identifiers, as DER has them.
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

/// The usages of Kubernetes that are bits of a key usage.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// The usages of Kubernetes that are extended key usages, in the order in which a certificate has them.
const EXTENDED_KEY_USAGES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// Clocks differ. As the signer of kube-controller-manager.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// A certificate with less than this ends when it was asked to; a longer one ends earlier by what it was backdated.
const SHORT: Duration = Duration::from_secs(8 * 3600);

/// Why a certificate cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// It is no PEM block of a request, or the request cannot be read.
    #[error("the certificate request cannot be read")]
    Request,
    /// Kubernetes has no such usages.
    #[error("unrecognized usage values: {0:?}")]
    Usages(Vec<String>),
    /// The CA has ended.
    #[error("the CA has expired")]
    Expired,
    /// The listener serves a certificate that its caller gave, or the CA has a key of another kind than those that are made here.
    #[error("there is no CA here that can sign")]
    NoAuthority,
    /// The system has no random numbers for a serial number.
    #[error("the system has no random numbers")]
    NoRandomNumbers,
}

/// A request for a certificate, as far as it matters for who may have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateRequest {
    /// The last common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// How many alternative names it has: DNS names,
    pub dns_names: usize,
    /// IP addresses,
    pub ip_addresses: usize,
    /// e-mail addresses
    pub email_addresses: usize,
    /// and URIs.
    pub uris: usize,
    /// Subject, key and alternative names as DER.
    subject: Vec<u8>,
    key: Vec<u8>,
    names: Vec<u8>,
}

impl CertificateRequest {
    /// The request in the first block of a PEM text, read as the API server reads it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SignError> {
        x509::CertificateRequest::from_pem(pem).map(Self::new).map_err(|_| SignError::Request)
    }

    fn new(request: x509::CertificateRequest) -> Self {
        let mut read = Self {
            common_name: request.subject.common_name().to_owned(),
            organizations: request.subject.organizations().map(str::to_owned).collect(),
            subject: request.subject.to_der(),
            key: request.key_info,
            ..Self::default()
        };
        // The kinds of names that a certificate of Kubernetes can have.
        for (tag, name) in &request.alternative_names {
            match tag {
                0x81 => read.email_addresses += 1,
                0x82 => read.dns_names += 1,
                0x86 => read.uris += 1,
                0x87 => read.ip_addresses += 1,
                _ => continue,
            }
            read.names.extend(value(*tag, name));
        }
        read
    }
}

impl Authority {
    /// Signs a request: a certificate as PEM that may be used for `usages`, in the words of Kubernetes, and is valid for `life`, but
    /// not longer than the CA.
    pub(super) fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        life: Duration,
        now: SystemTime,
    ) -> Result<String, SignError> {
        if self.key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(SignError::NoAuthority);
        }
        if now >= self.expires {
            return Err(SignError::Expired);
        }
        let end = if life < SHORT { now + life } else { now + life - BACKDATE };
        let algorithm = value(SEQUENCE, &value(OBJECT_IDENTIFIER, ECDSA_WITH_SHA256));
        let issuer = x509::Certificate::read(&self.certificate).ok_or(SignError::NoAuthority)?.subject;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| SignError::NoRandomNumbers)?;
        // A serial number is positive and has no leading zeros.
        serial[0] = serial[0] & 0x7f | 0x40;
        let certificate = [
            value(CONTEXT_0, &value(INTEGER, &[2])),
            value(INTEGER, &serial),
            algorithm.clone(),
            issuer.to_vec(),
            value(SEQUENCE, &[time(now - BACKDATE), time(end.min(self.expires))].concat()),
            request.subject.clone(),
            request.key.clone(),
            value(CONTEXT_3, &value(SEQUENCE, &extensions(request, usages)?)),
        ];
        let certificate = value(SEQUENCE, &certificate.concat());
        let signature = self.key.sign(&certificate).map_err(|_| SignError::NoAuthority)?;
        let signature = value(BIT_STRING, &[&[0], &*signature].concat());
        Ok(pem(&value(SEQUENCE, &[certificate, algorithm, signature].concat())))
    }
}

/// The extensions of a certificate that is signed.
fn extensions(request: &CertificateRequest, usages: &[String]) -> Result<Vec<u8>, SignError> {
    let known = |usage: &String| {
        KEY_USAGES.iter().any(|(name, _)| name == usage) || EXTENDED_KEY_USAGES.iter().any(|(name, _)| name == usage)
    };
    let unknown: Vec<String> = usages.iter().filter(|usage| !known(usage)).cloned().collect();
    if !unknown.is_empty() {
        return Err(SignError::Usages(unknown));
    }
    let has = |name: &str| usages.iter().any(|usage| usage == name);
    let bits = KEY_USAGES.iter().filter(|(name, _)| has(name)).fold(0_u16, |bits, (_, bit)| bits | 0x8000 >> bit);
    let mut extended: Vec<&[u8]> =
        EXTENDED_KEY_USAGES.iter().filter(|(name, _)| has(name)).map(|(_, identifier)| *identifier).collect();
    extended.dedup();
    let mut all = Vec::new();
    if bits != 0 {
        all.push(extension(KEY_USAGE, true, &named_bits(bits)));
    }
    if !extended.is_empty() {
        let identifiers: Vec<u8> = extended.iter().flat_map(|one| value(OBJECT_IDENTIFIER, one)).collect();
        all.push(extension(EXTENDED_KEY_USAGE, false, &value(SEQUENCE, &identifiers)));
    }
    all.push(extension(BASIC_CONSTRAINTS, true, &value(SEQUENCE, &[])));
    if !request.names.is_empty() {
        // Without a subject, the alternative names are all that there is.
        let alone = request.subject == value(SEQUENCE, &[]);
        all.push(extension(ALTERNATIVE_NAMES, alone, &value(SEQUENCE, &request.names)));
    }
    Ok(all.concat())
}

fn extension(kind: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let critical = if critical { value(BOOLEAN, &[0xff]) } else { Vec::new() };
    value(SEQUENCE, &[value(OBJECT_IDENTIFIER, kind), critical, value(OCTET_STRING, content)].concat())
}

/// A bit string without its last zeros.
fn named_bits(bits: u16) -> Vec<u8> {
    let [first, second] = bits.to_be_bytes();
    let bytes = if second == 0 { vec![first] } else { vec![first, second] };
    let unused = bytes.last().map_or(0, |last| last.trailing_zeros() as u8);
    value(BIT_STRING, &[vec![unused], bytes].concat())
}

/// Years until 2049 have two digits.
fn time(time: SystemTime) -> Vec<u8> {
    let time = rcgen::date_time_ymd(1970, 1, 1) + time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let clock = format!("{month:02}{day:02}{:02}{:02}{:02}Z", time.hour(), time.minute(), time.second());
    match year {
        ..2050 => value(UTC_TIME, format!("{:02}{clock}", year % 100).as_bytes()),
        _ => value(GENERALIZED_TIME, format!("{year:04}{clock}").as_bytes()),
    }
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::super::issue::{Issued, expires, vouches_for};
    use super::super::{ClientCa, ClientCertificate, Presented, Subject};
    use super::*;

    /// A request for `CN=alice, O=developers, O=system:masters`, made by openssl.
    const ALICE: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH4MIGgAgEAMD4xDjAMBgNVBAMMBWFsaWNlMRMwEQYDVQQKDApkZXZlbG9wZXJz
MRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABIa966l3l1d35hZ05/5Z8vraqtzQB8Z4Xh8HB2CpC2nmyUpdyorIPdW8TaFs
a56AH+YiCKAmbEZUT0gNMwbRnIugADAKBggqhkjOPQQDAgNHADBEAiB11kD8QFqO
knEY5hIUr+HI7H11Jr/B37ZsBpFBTvPjdQIgO+5egBJU3RL1wFd7NV83NMzQtPzM
MEprULjGvqj+6kk=
-----END CERTIFICATE REQUEST-----";

    const DAY: Duration = Duration::from_secs(86_400);

    fn usages(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn sign(authority: &Authority, request: &str, names: &[&str], now: SystemTime) -> Result<String, SignError> {
        authority.sign(&CertificateRequest::from_pem(request.as_bytes())?, &usages(names), DAY, now)
    }

    #[test]
    fn a_client_is_the_user_of_its_subject() {
        let now = SystemTime::now();
        let authority = Authority::new(now).unwrap();
        let clients = ClientCa::from_pem(&authority.certificate_pem).unwrap();
        let examine = |pem: &str, at: SystemTime| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            Presented::new(&clients, &[der], at).unwrap().examine(at)
        };
        let pem = sign(&authority, ALICE, &["digital signature", "client auth"], now).unwrap();
        let ClientCertificate::Trusted(subject) = examine(&pem, now) else { panic!("not believed") };
        assert_eq!(subject.values(Subject::COMMON_NAME).collect::<Vec<_>>(), ["alice"]);
        assert_eq!(subject.values(Subject::ORGANIZATION).collect::<Vec<_>>(), ["developers", "system:masters"]);
        assert!(matches!(examine(&pem, now + 2 * DAY), ClientCertificate::Refused(_)), "after its end");
        let server = sign(&authority, ALICE, &["server auth"], now).unwrap();
        assert!(matches!(examine(&server, now), ClientCertificate::Refused(_)), "for servers");
    }

    #[test]
    fn a_server_has_the_names_that_it_asked_for() {
        let now = SystemTime::now();
        let authority = Authority::new(now).unwrap();
        let names = usages(&["node-1.example", "10.1.2.3"]);
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "system:node:node-1");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let read = CertificateRequest::from_pem(request.as_bytes()).unwrap();
        assert_eq!((read.dns_names, read.ip_addresses, read.uris, read.email_addresses), (1, 1, 0, 0));
        assert_eq!(read.common_name, "system:node:node-1");
        let pem = sign(&authority, &request, &["key encipherment", "decipher only", "server auth"], now).unwrap();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let ends = expires(&certificate).unwrap();
        assert_eq!(ends.duration_since(now).unwrap().as_secs().div_ceil(60), (24 * 60) - 5);
        let issued = Issued { certificate, certificate_pem: pem, key_pem: String::new(), expires: ends };
        assert!(vouches_for(&authority.certificate, &issued, &names, now));
        assert!(!vouches_for(&authority.certificate, &issued, &usages(&["other.example"]), now));
    }

    #[test]
    fn what_cannot_be_signed() {
        let now = SystemTime::now();
        let authority = Authority::new(now).unwrap();
        let refused =
            |request: &str, names: &[&str], now| sign(&authority, request, names, now).unwrap_err().to_string();
        assert_eq!(refused(ALICE, &["flying"], now), "unrecognized usage values: [\"flying\"]");
        assert_eq!(refused("hello", &["any"], now), "the certificate request cannot be read");
        assert_eq!(refused(ALICE, &["any"], now + 4000 * DAY), "the CA has expired");
    }

    #[test]
    fn bits_and_times() {
        assert_eq!(named_bits(0x8000), [BIT_STRING, 2, 7, 0x80]);
        assert_eq!(named_bits(0xa000), [BIT_STRING, 2, 5, 0xa0]);
        assert_eq!(named_bits(0x0080), [BIT_STRING, 3, 7, 0, 0x80]);
        let at = |seconds| time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), [&[UTC_TIME, 13][..], b"700101000000Z"].concat());
        assert_eq!(at(2_524_608_000), [&[GENERALIZED_TIME, 15][..], b"20500101000000Z"].concat());
    }
}
