//! How many requests a server that the program runs works on at the same time. In: flags. Out: the limits.

use konverge_apiserver::InFlightLimits;

/// The flags, by their names in kube-apiserver.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InFlightArgs {
    /// How many requests that read are answered at the same time; others get 429 and are repeated by their clients. Watches do
    /// not count. 0: as many as come
    #[arg(long, value_name = "NUMBER", default_value_t = InFlightLimits::KUBERNETES.reading)]
    pub max_requests_inflight: usize,
    /// The same for requests that write
    #[arg(long, value_name = "NUMBER", default_value_t = InFlightLimits::KUBERNETES.writing)]
    pub max_mutating_requests_inflight: usize,
}

impl InFlightArgs {
    pub(crate) fn limits(&self) -> InFlightLimits {
        InFlightLimits { reading: self.max_requests_inflight, writing: self.max_mutating_requests_inflight }
    }
}
