//! The kinds of this operator, and how they are wired. `konverge create api` and `konverge create webhook` add to this file; what
//! you change in it stays.

use konverge::prelude::*;

pub mod memcached {
    //! Memcached of the group cache.example.com. Names without a version are those of v1, which is reconciled and stored.

    pub mod v1;
    pub mod v1alpha1;

    mod v1alpha1_v1;

    pub mod controller;
    pub mod webhook;

    pub use v1::*;
}

pub mod redis {
    //! Redis of the group cache.example.com. Names without a version are those of v1, which is reconciled and stored.

    pub mod v1;
    pub mod v1alpha1;
    pub mod v1beta1;

    mod v1alpha1_v1beta1;

    mod v1beta1_v1;

    mod v1alpha1_v1;

    pub mod controller;
    pub mod webhook;

    pub use v1::*;
}

pub mod fleet {
    //! Fleet of the group fleet.example.com. Names without a version are those of v1, which is reconciled and stored.

    pub mod v1;

    pub mod controller;
    pub mod webhook;

    pub use v1::*;
}

pub mod region {
    //! Region of the group fleet.example.com. Names without a version are those of v1, which is reconciled and stored.

    pub mod v1;

    pub use v1::*;
}

/// The operator with all its controllers.
pub fn operator() -> Operator<memcached::Memcached> {
    Operator::from(memcached()).and(redis()).and(fleet()).and(region())
}

/// The controller of Memcached with what surrounds it.
pub fn memcached() -> Controller<memcached::Memcached> {
    memcached::controller::controller()
        .version::<memcached::v1alpha1::Memcached>()
        .default_with(memcached::webhook::defaults)
        .validate(memcached::webhook::validate)
}

/// The controller of Redis with what surrounds it.
pub fn redis() -> Controller<redis::Redis> {
    redis::controller::controller()
        .version::<redis::v1alpha1::Redis>()
        .version::<redis::v1beta1::Redis>()
        .validate(redis::webhook::validate)
}

/// The controller of Fleet with what surrounds it.
pub fn fleet() -> Controller<fleet::Fleet> {
    fleet::controller::controller().default_with(fleet::webhook::defaults)
}

/// Nothing is done about objects of Region; their CRD belongs to this operator.
pub fn region() -> Controller<region::Region> {
    Controller::new().reconcile(|_| async { Ok(Action::await_change()) })
}
