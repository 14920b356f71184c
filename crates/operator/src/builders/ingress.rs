//! Ingress: HTTP from outside the cluster to services, by host and path.

use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::number::NumberOrText;
use super::wrapper::{kind, named, spec, texts, wrapper};

kind! {
    /// Sends requests from outside the cluster to services, by host and path.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let ingress = Ingress::new("web").rule(IngressRule::new().host("example.com").path("/", "web", 80));
    /// assert_eq!(ingress.address(), None);
    /// ```
    Ingress(networking::Ingress)
}
spec!(Ingress, networking::IngressSpec);

impl Ingress {
    /// An ingress called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let spec = Some(networking::IngressSpec::default());
        Self(networking::Ingress { metadata: named(name), spec, status: None })
    }

    /// The ingress class, which says which controller serves it.
    pub fn ingress_class(self, name: impl Into<String>) -> Self {
        self.spec(|spec| spec.ingress_class_name = Some(name.into()))
    }

    /// Adds a rule.
    pub fn rule(self, rule: IngressRule) -> Self {
        self.spec(|spec| spec.rules.get_or_insert_default().push(rule.into()))
    }

    /// Serves these hosts over TLS with the certificate in a Secret.
    pub fn tls(self, hosts: impl IntoIterator<Item = impl Into<String>>, secret: impl Into<String>) -> Self {
        let tls = networking::IngressTLS { hosts: Some(texts(hosts)), secret_name: Some(secret.into()) };
        self.spec(|spec| spec.tls.get_or_insert_default().push(tls))
    }

    /// The service for requests that match no rule.
    pub fn default_backend(self, service: impl Into<String>, port: impl NumberOrText) -> Self {
        let backend = backend(service, port);
        self.spec(|spec| spec.default_backend = Some(backend))
    }

    /// Its address outside the cluster, once there is one.
    pub fn address(&self) -> Option<&str> {
        let ingress = self.0.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
        ingress.ip.as_deref().or(ingress.hostname.as_deref())
    }
}

wrapper! {
    /// A rule of an [`Ingress`]: the services for the paths of a host.
    IngressRule(networking::IngressRule)
}

impl IngressRule {
    /// A rule for every host.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the rule to a host; `*.example.com` is all hosts below `example.com`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.0.host = Some(host.into());
        self
    }

    /// Sends `path` and everything below it to a service.
    pub fn path(self, path: impl Into<String>, service: impl Into<String>, port: impl NumberOrText) -> Self {
        self.to("Prefix", path, service, port)
    }

    /// Sends exactly `path` to a service.
    pub fn exact_path(self, path: impl Into<String>, service: impl Into<String>, port: impl NumberOrText) -> Self {
        self.to("Exact", path, service, port)
    }

    fn to(
        mut self,
        path_type: &str,
        path: impl Into<String>,
        service: impl Into<String>,
        port: impl NumberOrText,
    ) -> Self {
        self.0.http.get_or_insert_default().paths.push(networking::HTTPIngressPath {
            path: Some(path.into()),
            path_type: path_type.to_owned(),
            backend: backend(service, port),
        });
        self
    }
}

fn backend(service: impl Into<String>, port: impl NumberOrText) -> networking::IngressBackend {
    let port = match port.number_or_text() {
        IntOrString::Int(number) => networking::ServiceBackendPort { number: Some(number), name: None },
        IntOrString::String(name) => networking::ServiceBackendPort { number: None, name: Some(name) },
    };
    let service = networking::IngressServiceBackend { name: service.into(), port: Some(port) };
    networking::IngressBackend { service: Some(service), resource: None }
}
