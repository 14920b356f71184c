//! Configuration of pods: ConfigMap, Secret.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use super::wrapper::{kind, named};

kind! {
    /// Configuration as texts by key.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let config = ConfigMap::new("my-config").data("config.yaml", "key: value");
    /// assert_eq!(config.get("config.yaml"), Some("key: value"));
    /// ```
    ConfigMap(core::ConfigMap)
}

impl ConfigMap {
    /// A config map called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::ConfigMap { metadata: named(name), ..Default::default() })
    }

    /// Sets `key` to `text`.
    pub fn data(mut self, key: impl Into<String>, text: impl Into<String>) -> Self {
        self.0.data.get_or_insert_default().insert(key.into(), text.into());
        self
    }

    /// Sets `key` to bytes.
    pub fn binary_data(mut self, key: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.binary_data.get_or_insert_default().insert(key.into(), ByteString(bytes.into()));
        self
    }

    /// Makes it immutable: the API server refuses changes of the data.
    pub fn immutable(mut self) -> Self {
        self.0.immutable = Some(true);
        self
    }

    /// The text of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.data.as_ref()?.get(key).map(String::as_str)
    }
}

kind! {
    /// Confidential data by key.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let secret = Secret::new("my-secret").data("password", "secret123");
    /// assert_eq!(secret.get_text("password"), Some("secret123"));
    /// ```
    Secret(core::Secret)
}

impl Secret {
    /// A secret called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::Secret { metadata: named(name), ..Default::default() })
    }

    /// A TLS Secret: a certificate and its key as PEM, for an Ingress.
    pub fn tls(name: impl Into<String>, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self::new(name).secret_type("kubernetes.io/tls").data("tls.crt", certificate).data("tls.key", key)
    }

    /// A registry Secret: the credentials with which pods pull images.
    pub fn registry(name: impl Into<String>, server: &str, user: &str, password: &str) -> Self {
        let auth = ByteString(format!("{user}:{password}").into_bytes());
        let config = json!({ "auths": { server: { "username": user, "password": password, "auth": auth } } });
        Self::new(name).secret_type("kubernetes.io/dockerconfigjson").data(".dockerconfigjson", config.to_string())
    }

    /// Sets `key` to text or bytes. They are given as they are: base64 is done when the object is serialised.
    pub fn data(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.0.data.get_or_insert_default().insert(key.into(), ByteString(value.into()));
        self
    }

    /// The type of the Secret; `Opaque` by default.
    pub fn secret_type(mut self, type_: impl Into<String>) -> Self {
        self.0.type_ = Some(type_.into());
        self
    }

    /// Makes it immutable: the API server refuses changes of the data.
    pub fn immutable(mut self) -> Self {
        self.0.immutable = Some(true);
        self
    }

    /// The bytes of `key`.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.data.as_ref()?.get(key).map(|value| value.0.as_slice())
    }

    /// The value of `key` as text; none if it is not UTF-8.
    pub fn get_text(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(self.get(key)?).ok()
    }
}
