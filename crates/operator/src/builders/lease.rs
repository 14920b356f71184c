//! Lease: who holds a lock, and until when.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::number::{Count, int32};
use super::wrapper::{kind, named, spec};

kind! {
    /// A lock with a holder, which expires unless it is renewed.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let lease = Lease::new("backup").holder("node-1").duration(15);
    /// assert_eq!(lease.get_holder(), Some("node-1"));
    /// ```
    Lease(coordination::Lease)
}
spec!(Lease, coordination::LeaseSpec);

impl Lease {
    /// A lease called `name` that nobody holds.
    pub fn new(name: impl Into<String>) -> Self {
        Self(coordination::Lease { metadata: named(name), ..Default::default() })
    }

    /// Sets the holder.
    pub fn holder(self, holder: impl Into<String>) -> Self {
        self.spec(|spec| spec.holder_identity = Some(holder.into()))
    }

    /// Seconds after which it expires if it is not renewed.
    pub fn duration(self, seconds: impl Count) -> Self {
        let seconds = int32(seconds);
        self.spec(|spec| spec.lease_duration_seconds = Some(seconds))
    }

    /// When the holder acquired it.
    pub fn acquired(self, at: Timestamp) -> Self {
        self.spec(|spec| spec.acquire_time = Some(MicroTime(at)))
    }

    /// When the holder last renewed it.
    pub fn renewed(self, at: Timestamp) -> Self {
        self.spec(|spec| spec.renew_time = Some(MicroTime(at)))
    }

    /// The holder, if there is one.
    pub fn get_holder(&self) -> Option<&str> {
        self.0.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// Whether it has expired, or nobody holds it.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        let Some((spec, renewed)) = self.0.spec.as_ref().and_then(|spec| Some((spec, spec.renew_time.as_ref()?)))
        else {
            return true;
        };
        let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
        self.get_holder().is_none() || now.duration_since(renewed.0).as_secs() >= lasts
    }
}
