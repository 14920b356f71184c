//! The admission plugins of a server that the program runs. In: flags. Out: the plugins, or which name is wrong.

use konverge_apiserver::{AdmissionPlugins, PluginError};

/// Which admission plugins run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdmissionArgs {
    /// Admission plugins to run besides those that run by default, by their names in kube-apiserver. The default is that of
    /// kube-apiserver, but `konverge apiserver` without --controllers leaves out ServiceAccount, which would refuse every
    /// pod, and StorageObjectInUseProtection, whose finalizers nobody would remove
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run, although kube-apiserver does by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
}

impl AdmissionArgs {
    /// The plugins that run, if `default` are those without flags. Logs which of the wanted ones have no effect.
    pub(crate) fn plugins(&self, default: AdmissionPlugins) -> Result<AdmissionPlugins, PluginError> {
        // An empty list is written as `--enable-admission-plugins=`.
        let named = |names: &[String]| names.iter().filter(|name| !name.is_empty()).cloned().collect::<Vec<_>>();
        let (enable, disable) = (named(&self.enable_admission_plugins), named(&self.disable_admission_plugins));
        let plugins = default.with(&enable, &disable)?;
        for plugin in AdmissionPlugins::missing().filter(|missing| enable.iter().any(|name| name == missing)) {
            tracing::warn!(
                plugin,
                "enabling this plugin has no effect: this server does not have it, and admits what it would refuse"
            );
        }
        Ok(plugins)
    }
}
