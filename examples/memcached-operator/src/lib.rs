//! memcached-operator: the operator as a whole.

pub mod kinds;

use konverge::prelude::*;

/// The operator with all its controllers, for `main` and for tests. Metrics, state and background tasks of your own go here.
pub fn operator() -> Operator<kinds::memcached::Memcached> {
    kinds::operator()
}
