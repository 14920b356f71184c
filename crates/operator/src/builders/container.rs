//! A container of a pod.

use k8s_openapi::api::core::v1 as core;

use super::number::{Count, int32, int64};
use super::wrapper::{put, texts, wrapper};
use super::{Probe, Resources, SecurityContext};

wrapper! {
    /// A container of a pod. `image` is required by the API server.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let container = Container::new("app").image("nginx:1.25").port(80).env("LOG_LEVEL", "info");
    /// assert_eq!(container.inner().image.as_deref(), Some("nginx:1.25"));
    /// ```
    Container(core::Container)
}

impl Container {
    /// A container called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::Container { name: name.into(), ..Default::default() })
    }

    /// The image to run.
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.0.image = Some(image.into());
        self
    }

    /// The image pull policy: `Always`, `IfNotPresent`, `Never`.
    pub fn image_pull_policy(mut self, policy: impl Into<String>) -> Self {
        self.0.image_pull_policy = Some(policy.into());
        self
    }

    /// Runs `command` instead of the image's entry point.
    pub fn command(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.command = Some(texts(command));
        self
    }

    /// Sets the arguments of the command.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.args = Some(texts(args));
        self
    }

    /// The working directory of the command.
    pub fn working_dir(mut self, path: impl Into<String>) -> Self {
        self.0.working_dir = Some(path.into());
        self
    }

    /// Adds a TCP port that the container listens on.
    pub fn port(self, port: impl Count) -> Self {
        self.listens(None, port, None)
    }

    /// Adds a TCP port with a name that services and probes can use.
    pub fn named_port(self, name: impl Into<String>, port: impl Count) -> Self {
        self.listens(Some(name.into()), port, None)
    }

    /// Adds a UDP port that the container listens on.
    pub fn udp_port(self, port: impl Count) -> Self {
        self.listens(None, port, Some("UDP".to_owned()))
    }

    fn listens(mut self, name: Option<String>, port: impl Count, protocol: Option<String>) -> Self {
        let port = core::ContainerPort { name, container_port: int32(port), protocol, ..Default::default() };
        put(&mut self.0.ports, port, |port| (port.container_port, port.protocol.clone()));
        self
    }

    /// Sets an environment variable.
    pub fn env(self, name: impl Into<String>, value: impl ToString) -> Self {
        self.variable(core::EnvVar { name: name.into(), value: Some(value.to_string()), value_from: None })
    }

    /// Sets an environment variable to the value of `key` in a Secret.
    pub fn env_from_secret(self, name: impl Into<String>, secret: impl Into<String>, key: impl Into<String>) -> Self {
        let secret = core::SecretKeySelector { name: secret.into(), key: key.into(), optional: None };
        self.variable_from(name, core::EnvVarSource { secret_key_ref: Some(secret), ..Default::default() })
    }

    /// Sets an environment variable to the value of `key` in a ConfigMap.
    pub fn env_from_configmap(
        self,
        name: impl Into<String>,
        config_map: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        let config_map = core::ConfigMapKeySelector { name: config_map.into(), key: key.into(), optional: None };
        self.variable_from(name, core::EnvVarSource { config_map_key_ref: Some(config_map), ..Default::default() })
    }

    /// Sets an environment variable to a field of the pod: `env_from_field("POD_NAME", "metadata.name")`.
    pub fn env_from_field(self, name: impl Into<String>, path: impl Into<String>) -> Self {
        let field = core::ObjectFieldSelector { field_path: path.into(), api_version: None };
        self.variable_from(name, core::EnvVarSource { field_ref: Some(field), ..Default::default() })
    }

    /// Sets an environment variable for every key of a Secret.
    pub fn all_env_from_secret(mut self, secret: impl Into<String>) -> Self {
        let secret = core::SecretEnvSource { name: secret.into(), optional: None };
        let source = core::EnvFromSource { secret_ref: Some(secret), ..Default::default() };
        self.0.env_from.get_or_insert_default().push(source);
        self
    }

    /// Sets an environment variable for every key of a ConfigMap.
    pub fn all_env_from_configmap(mut self, config_map: impl Into<String>) -> Self {
        let config_map = core::ConfigMapEnvSource { name: config_map.into(), optional: None };
        let source = core::EnvFromSource { config_map_ref: Some(config_map), ..Default::default() };
        self.0.env_from.get_or_insert_default().push(source);
        self
    }

    fn variable_from(self, name: impl Into<String>, source: core::EnvVarSource) -> Self {
        self.variable(core::EnvVar { name: name.into(), value: None, value_from: Some(source) })
    }

    fn variable(mut self, variable: core::EnvVar) -> Self {
        put(&mut self.0.env, variable, |variable| variable.name.clone());
        self
    }

    /// The CPU, memory and other resources it requests, and their limits.
    pub fn resources(mut self, resources: Resources) -> Self {
        self.0.resources = Some(resources.into());
        self
    }

    /// The liveness probe: the kubelet restarts the container when it fails.
    pub fn liveness_probe(mut self, probe: Probe) -> Self {
        self.0.liveness_probe = Some(probe.into());
        self
    }

    /// The readiness probe: services send the pod no requests while it fails.
    pub fn readiness_probe(mut self, probe: Probe) -> Self {
        self.0.readiness_probe = Some(probe.into());
        self
    }

    /// The startup probe: the other probes start when it has succeeded.
    pub fn startup_probe(mut self, probe: Probe) -> Self {
        self.0.startup_probe = Some(probe.into());
        self
    }

    /// Mounts the pod's volume `name` at `path`.
    pub fn volume_mount(self, name: impl Into<String>, path: impl Into<String>) -> Self {
        self.mount(name, path, |_| {})
    }

    /// Mounts the pod's volume `name` at `path`, for reading only.
    pub fn read_only_volume_mount(self, name: impl Into<String>, path: impl Into<String>) -> Self {
        self.mount(name, path, |mount| mount.read_only = Some(true))
    }

    /// Mounts one file or directory of the pod's volume `name` at `path`.
    pub fn volume_mount_sub_path(
        self,
        name: impl Into<String>,
        path: impl Into<String>,
        sub_path: impl Into<String>,
    ) -> Self {
        self.mount(name, path, |mount| mount.sub_path = Some(sub_path.into()))
    }

    fn mount(
        mut self,
        name: impl Into<String>,
        path: impl Into<String>,
        change: impl FnOnce(&mut core::VolumeMount),
    ) -> Self {
        let mut mount = core::VolumeMount { name: name.into(), mount_path: path.into(), ..Default::default() };
        change(&mut mount);
        put(&mut self.0.volume_mounts, mount, |mount| mount.mount_path.clone());
        self
    }

    /// The security context: user ids, capabilities, privileges.
    pub fn security_context(mut self, context: SecurityContext) -> Self {
        self.0.security_context = Some(context.into());
        self
    }

    /// Runs `command` in the container before it is stopped.
    pub fn pre_stop(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.lifecycle.get_or_insert_default().pre_stop = Some(run(command));
        self
    }

    /// Waits this many seconds before the container is stopped, so that load balancers notice and send requests elsewhere.
    pub fn pre_stop_sleep(mut self, seconds: impl Count) -> Self {
        let sleep = core::SleepAction { seconds: int64(seconds) };
        let handler = core::LifecycleHandler { sleep: Some(sleep), ..Default::default() };
        self.0.lifecycle.get_or_insert_default().pre_stop = Some(handler);
        self
    }

    /// Runs `command` in the container right after it has started.
    pub fn post_start(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.lifecycle.get_or_insert_default().post_start = Some(run(command));
        self
    }
}

fn run(command: impl IntoIterator<Item = impl Into<String>>) -> core::LifecycleHandler {
    let exec = core::ExecAction { command: Some(texts(command)) };
    core::LifecycleHandler { exec: Some(exec), ..Default::default() }
}
