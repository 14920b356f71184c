//! How the kubelet finds out whether a container is well.

use k8s_openapi::api::core::v1 as core;

use super::number::{Count, NumberOrText, int32};
use super::wrapper::{texts, wrapper};

wrapper! {
    /// A probe: how the kubelet checks a container.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let probe = Probe::http("/health", 8080).period(10);
    /// assert_eq!(probe.inner().period_seconds, Some(10));
    /// ```
    Probe(core::Probe)
}

impl Probe {
    /// Succeeds if `GET path` answers with a status from 200 to 399.
    pub fn http(path: impl Into<String>, port: impl NumberOrText) -> Self {
        Self::get(path, port, None)
    }

    /// Succeeds if `GET path` over TLS answers with a status from 200 to 399. The certificate is not checked.
    pub fn https(path: impl Into<String>, port: impl NumberOrText) -> Self {
        Self::get(path, port, Some("HTTPS".to_owned()))
    }

    fn get(path: impl Into<String>, port: impl NumberOrText, scheme: Option<String>) -> Self {
        let port = port.number_or_text();
        let get = core::HTTPGetAction { path: Some(path.into()), port, scheme, ..Default::default() };
        Self(core::Probe { http_get: Some(get), ..Default::default() })
    }

    /// Succeeds if the port accepts connections.
    pub fn tcp(port: impl NumberOrText) -> Self {
        let socket = core::TCPSocketAction { port: port.number_or_text(), host: None };
        Self(core::Probe { tcp_socket: Some(socket), ..Default::default() })
    }

    /// Succeeds if the gRPC health service on this port says `SERVING`.
    pub fn grpc(port: impl Count) -> Self {
        let grpc = core::GRPCAction { port: int32(port), ..Default::default() };
        Self(core::Probe { grpc: Some(grpc), ..Default::default() })
    }

    /// Succeeds if the command, run in the container, exits with 0.
    pub fn exec(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let exec = core::ExecAction { command: Some(texts(command)) };
        Self(core::Probe { exec: Some(exec), ..Default::default() })
    }

    /// Seconds between two probes.
    pub fn period(mut self, seconds: impl Count) -> Self {
        self.0.period_seconds = Some(int32(seconds));
        self
    }

    /// Seconds before the first probe.
    pub fn initial_delay(mut self, seconds: impl Count) -> Self {
        self.0.initial_delay_seconds = Some(int32(seconds));
        self
    }

    /// Seconds after which an attempt without an answer has failed.
    pub fn timeout(mut self, seconds: impl Count) -> Self {
        self.0.timeout_seconds = Some(int32(seconds));
        self
    }

    /// The failure threshold: so many failed attempts in a row make the probe fail.
    pub fn failure_threshold(mut self, times: impl Count) -> Self {
        self.0.failure_threshold = Some(int32(times));
        self
    }

    /// The success threshold: so many successful attempts in a row make the probe succeed again.
    pub fn success_threshold(mut self, times: impl Count) -> Self {
        self.0.success_threshold = Some(int32(times));
        self
    }
}
