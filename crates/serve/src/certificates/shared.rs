//! A CA and a certificate that several processes share, as texts: they serve it, and may show it to each other. In: the texts that all of them have, and the time.
//! Out: the texts that they should have next. Where the texts are kept, the caller knows. Pure, but for the making of keys.
//!
//! ```text
//! bundle    serving      what is due
//! A         by A         the CA A ends soon: make B, which everybody is to trust first
//! B A       by A         everybody has had time to learn of B: serve a certificate of B
//! B A       by B         nobody serves a certificate of A any more: forget A
//! B         by B
//! ```

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::issue::{AUTHORITY_LIFE, Authority, Issued, begins, expires, vouches_for};
use super::{CertificateError, Current, due, with_local};

/// How long a new CA is only trusted before certificates of it are served: everybody who is told of it by then is in time.
const LEARN_WITHIN: Duration = Duration::from_secs(600);

/// A CA and a server certificate under it, for processes that share them, for example through a Secret.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use konverge_serve::SharedCertificates;
///
/// let (names, now) = (["webhook.shop.svc".to_owned()], SystemTime::now());
/// let made = SharedCertificates::make(&names, now)?;
/// assert_eq!(made.next(&names, now)?, None, "nothing is due");
/// let year_later = now + Duration::from_secs(350 * 86_400);
/// let renewed = made.next(&names, year_later)?.expect("the certificate ends soon");
/// assert_eq!(renewed.ca_pem, made.ca_pem, "under the same CA");
/// # Ok::<(), konverge_serve::CertificateError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedCertificates {
    /// The CAs that clients are to trust: first the one that signs, then those whose certificates may still be served.
    pub ca_pem: String,
    /// The key of the first CA. Without it a new CA is made, so that removing it asks for a rotation.
    pub ca_key_pem: String,
    /// The server certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

impl SharedCertificates {
    /// A new CA, and a certificate for localhost, its addresses and these names.
    pub fn make(names: &[String], now: SystemTime) -> Result<Self, CertificateError> {
        let authority = Authority::new(now)?;
        let issued = authority.issue_for_peers(&with_local(names), now)?;
        Ok(Self {
            ca_pem: pem_of(&authority.certificate),
            ca_key_pem: authority.key.serialize_pem(),
            certificate_pem: issued.certificate_pem,
            key_pem: issued.key_pem,
        })
    }

    /// What follows these, if something is due: the certificate or the CA ends soon, a name is missing, a part is unusable, or a
    /// rotation goes on. Each step may be taken by any of the processes.
    pub fn next(&self, names: &[String], now: SystemTime) -> Result<Option<Self>, CertificateError> {
        let names = with_local(names);
        let former = self.trusted(now);
        let serving = self.serving();
        let Some(authority) = self.authority(&former).filter(|authority| authority.outlives_a_certificate(now)) else {
            return self.with_new_authority(&former, serving, &names, now).map(Some);
        };
        let is_good = |authority: &Trusted| {
            serving
                .as_ref()
                .is_some_and(|serving| authority.vouches_for(serving, &names, now) && !due(serving.expires, now))
        };
        let mut next = self.clone();
        let age = now.duration_since(authority.expires - AUTHORITY_LIFE).unwrap_or_default();
        // A certificate of a former CA is served until everybody trusts the new one.
        let is_early = age < LEARN_WITHIN && former.iter().skip(1).any(is_good);
        if !former.first().is_some_and(is_good) && !is_early {
            let issued = authority.issue_for_peers(&names, now)?;
            (next.certificate_pem, next.key_pem) = (issued.certificate_pem, issued.key_pem);
        }
        // Another process may serve the former certificate for a moment longer.
        let keeps_former = age < 2 * LEARN_WITHIN;
        let kept = if keeps_former { former.len() } else { 1 };
        next.ca_pem = former.iter().take(kept).map(|trusted| trusted.pem.as_str()).collect();
        Ok((next != *self).then_some(next))
    }

    /// When the server certificate ends; none if it cannot be read.
    pub fn expires(&self) -> Option<SystemTime> {
        Some(self.serving()?.expires)
    }

    /// When the first CA ends; none if it cannot be read.
    pub fn ca_expires(&self) -> Option<SystemTime> {
        expires(&CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).ok()?)
    }

    /// A new CA before the trusted ones. The certificate that is served stays while one of those vouches for it.
    fn with_new_authority(
        &self,
        former: &[Trusted],
        serving: Option<Issued>,
        names: &[String],
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let authority = Authority::new(now)?;
        let is_good = |serving: &Issued| former.iter().any(|trusted| trusted.vouches_for(serving, names, now));
        let serving = match serving.filter(is_good) {
            Some(serving) => serving,
            None => authority.issue_for_peers(names, now)?,
        };
        // The CA of the certificate that is served is needed most, however many came after it.
        let (needed, others): (Vec<&Trusted>, Vec<&Trusted>) =
            former.iter().partition(|trusted| trusted.vouches_for(&serving, names, now));
        let former = needed.into_iter().chain(others).take(MOST_FORMER).map(|trusted| trusted.pem.clone());
        Ok(Self {
            ca_pem: std::iter::once(pem_of(&authority.certificate)).chain(former).collect(),
            ca_key_pem: authority.key.serialize_pem(),
            certificate_pem: serving.certificate_pem,
            key_pem: serving.key_pem,
        })
    }

    /// The CAs that have begun and not ended. One from a clock that was far ahead would be kept for years in which clients that
    /// look at the dates of CAs, as Go's, believe nothing of it.
    fn trusted(&self, now: SystemTime) -> Vec<Trusted> {
        let certificates = CertificateDer::pem_slice_iter(self.ca_pem.as_bytes()).filter_map(Result::ok);
        let trusted = certificates.filter_map(|certificate| {
            let expires = expires(&certificate).filter(|expires| *expires > now)?;
            begins(&certificate).filter(|begins| *begins <= now)?;
            Some(Trusted { pem: pem_of(&certificate), certificate: certificate.into_owned(), expires })
        });
        trusted.collect()
    }

    /// The first CA with its key, if both can be used and belong together.
    fn authority(&self, trusted: &[Trusted]) -> Option<Authority> {
        let first = trusted.first()?;
        let key = KeyPair::from_pem(&self.ca_key_pem).ok()?;
        let authority = Authority {
            certificate: first.certificate.clone(),
            certificate_pem: first.pem.clone(),
            key,
            expires: first.expires,
        };
        authority.is_whole().then_some(authority)
    }

    /// The server certificate, if it can be used.
    fn serving(&self) -> Option<Issued> {
        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).ok()?.into_owned();
        let expires = expires(&certificate)?;
        let (certificate_pem, key_pem) = (self.certificate_pem.clone(), self.key_pem.clone());
        let issued = Issued { certificate, certificate_pem, key_pem, expires };
        Current::made(&issued).ok().map(|_| issued)
    }
}

/// How many former CAs are kept when one more is made: rotations that follow each other at once must not make the list long.
const MOST_FORMER: usize = 3;

/// A CA that clients trust.
struct Trusted {
    certificate: CertificateDer<'static>,
    pem: String,
    expires: SystemTime,
}

impl Trusted {
    fn vouches_for(&self, issued: &Issued, names: &[String], now: SystemTime) -> bool {
        vouches_for(&self.certificate, issued, names, now)
    }
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Without the keys, which must not get into a log.
impl fmt::Debug for SharedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCertificates")
            .field("expires", &self.expires())
            .field("ca_expires", &self.ca_expires())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    fn names() -> [String; 1] {
        ["webhook.shop.svc".to_owned()]
    }

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY
    }

    /// Whether a client that trusts `bundle` would believe the certificate that `serving` has.
    fn is_believed(bundle: &SharedCertificates, serving: &SharedCertificates, now: SystemTime) -> bool {
        let serving = serving.serving().unwrap();
        bundle.trusted(now).iter().any(|trusted| trusted.vouches_for(&serving, &names(), now))
    }

    fn authorities(shared: &SharedCertificates) -> usize {
        shared.ca_pem.matches("BEGIN CERTIFICATE").count()
    }

    /// Thirty years, looked at every twenty days: at each time, whoever is a step behind and whoever is a step ahead believe each
    /// other, and steps are rare.
    #[test]
    fn processes_a_step_apart_believe_each_other() {
        let mut now = start();
        let mut before = SharedCertificates::make(&names(), now).unwrap();
        let mut steps = 0;
        for _ in 0..30 * 18 {
            now += 20 * DAY;
            // A process looks every minute, so the steps of one time come one after the other.
            for _ in 0..4 {
                if let Some(after) = before.next(&names(), now).unwrap() {
                    assert!(is_believed(&before, &before, now) && is_believed(&after, &after, now));
                    assert!(is_believed(&after, &before, now), "who is told already, calls who is behind");
                    assert!(is_believed(&before, &after, now), "who is not told yet, calls who is ahead");
                    (before, steps) = (after, steps + 1);
                }
                now += LEARN_WITHIN + MINUTE;
            }
        }
        assert!((30..60).contains(&steps), "{steps} steps in thirty years");
    }

    #[test]
    fn a_rotation_that_somebody_asks_for() {
        let now = start();
        let made = SharedCertificates::make(&names(), now).unwrap();
        let asked = SharedCertificates { ca_key_pem: String::new(), ..made.clone() };
        let told = asked.next(&names(), now).unwrap().unwrap();
        assert_eq!((authorities(&told), &told.certificate_pem), (2, &made.certificate_pem));
        assert_eq!(
            told.next(&names(), now + LEARN_WITHIN - MINUTE).unwrap(),
            None,
            "everybody learns of the new CA first"
        );
        let served = told.next(&names(), now + LEARN_WITHIN).unwrap().unwrap();
        assert_ne!(served.certificate_pem, made.certificate_pem);
        assert!(is_believed(&told, &served, now + LEARN_WITHIN) && is_believed(&served, &told, now + LEARN_WITHIN));
        let done = served.next(&names(), now + 2 * LEARN_WITHIN).unwrap().unwrap();
        assert_eq!((authorities(&done), &done.certificate_pem), (1, &served.certificate_pem));
        assert_eq!(done.next(&names(), now + 2 * LEARN_WITHIN).unwrap(), None);
    }

    #[test]
    fn what_is_broken_is_made_anew() {
        let now = start();
        let made = SharedCertificates::make(&names(), now).unwrap();
        let other = SharedCertificates::make(&names(), now).unwrap();
        let junk = || "junk".to_owned();
        for broken in [
            SharedCertificates { ca_pem: junk(), ..made.clone() },
            SharedCertificates { ca_key_pem: other.ca_key_pem.clone(), ..made.clone() },
            SharedCertificates { certificate_pem: junk(), ..made.clone() },
            SharedCertificates { key_pem: other.key_pem.clone(), ..made.clone() },
            SharedCertificates { certificate_pem: String::new(), key_pem: String::new(), ..made.clone() },
            SharedCertificates { ca_pem: junk(), ca_key_pem: junk(), certificate_pem: junk(), key_pem: junk() },
        ] {
            let next = broken.next(&names(), now).unwrap().unwrap();
            assert!(is_believed(&next, &next, now), "{broken:?}");
        }
        // Clocks that jump: long after, and long before.
        for then in [now + 4000 * DAY, now - 1000 * DAY] {
            let next = made.next(&names(), then).unwrap().unwrap();
            assert!(is_believed(&next, &next, then), "{then:?}");
            let back = next.next(&names(), now).unwrap().unwrap_or(next);
            assert!(is_believed(&back, &back, now), "{then:?} and back");
        }
        // Nothing stays of a clock that was nearly as far ahead as a CA lasts.
        let ahead = SharedCertificates::make(&names(), now + 3600 * DAY).unwrap();
        let next = ahead.next(&names(), now).unwrap().expect("the CA has not begun");
        assert!(is_believed(&next, &next, now) && !next.ca_pem.contains(&ahead.ca_pem));
        let more = [names()[0].clone(), "another.example.com".to_owned(), "*.web.shop.svc".to_owned()];
        let next = made.next(&more, now).unwrap().unwrap();
        assert_eq!((&next.ca_pem, next.next(&more, now).unwrap()), (&made.ca_pem, None));
    }
}
