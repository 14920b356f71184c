//! The cluster of the settings. In: kubeconfig files and a context, or neither. Out: kube's configuration of a client. Files are
//! read; nothing is sent.

use std::path::PathBuf;

use kube::config::{Config, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::Settings;

/// Why there is no configuration of a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A kubeconfig that was named cannot be used.
    #[error("cannot use the kubeconfig {}", .file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The files cannot be merged, or do not have the context.
    #[error("cannot use the kubeconfig with {}", context.as_ref().map_or("its current context".into(), |name| format!("the context {name:?}")))]
    Context {
        /// The context that was asked for.
        context: Option<String>,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No kubeconfig was named, there is none at the usual places, and the program runs in no Pod.
    #[error(
        "there is no cluster to talk to: no --kubeconfig, no KUBECONFIG, no ~/.kube/config that can be used, and this is \
         not a Pod"
    )]
    Unknown {
        /// What was tried.
        source: InferConfigError,
    },
}

impl Settings {
    /// The configuration of the cluster: from the kubeconfig files and the context of the settings; without them from what
    /// kubectl would use, or from the Pod's service account.
    pub async fn cluster(&self) -> Result<Config, ClusterError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let in_context = |source| ClusterError::Context { context: self.context.clone(), source };
        if self.kubeconfig.is_empty() {
            return match &self.context {
                None => Config::infer().await.map_err(|source| ClusterError::Unknown { source }),
                Some(_) => Config::from_kubeconfig(&options).await.map_err(in_context),
            };
        }
        let mut merged = Kubeconfig::default();
        for file in &self.kubeconfig {
            let broken = |source| ClusterError::Kubeconfig { file: file.clone(), source };
            merged = merged.merge(Kubeconfig::read_from(file).map_err(broken)?).map_err(broken)?;
        }
        Config::from_custom_kubeconfig(merged, &options).await.map_err(in_context)
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::ErrorChain;

    use super::*;

    /// A kubeconfig with a cluster, a user and a context of this name.
    fn kubeconfig(name: &str) -> String {
        format!(
            "apiVersion: v1
kind: Config
current-context: {name}
clusters: [{{name: {name}, cluster: {{server: 'https://{name}.example.com:6443'}}}}]
users: [{{name: {name}, user: {{token: secret}}}}]
contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: of-{name}}}}}]
"
        )
    }

    #[tokio::test]
    async fn files_are_merged_and_the_context_chooses() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (a, b) = (file("a", &kubeconfig("a")), file("b", &kubeconfig("b")));
        let check = async |files: &[&PathBuf], context: Option<&str>, expect: Result<&str, &str>| {
            let kubeconfig = files.iter().map(|file| (*file).clone()).collect();
            let settings = Settings { kubeconfig, context: context.map(String::from), ..Settings::default() };
            let found = settings.cluster().await.map(|config| config.cluster_url.to_string());
            let found =
                found.map_err(|error| ErrorChain(&error).to_string().replace(folder.path().to_str().unwrap(), ""));
            match expect {
                Ok(url) => assert_eq!(found.as_deref(), Ok(url)),
                Err(start) => assert!(found.as_ref().is_err_and(|error| error.starts_with(start)), "{found:?}"),
            }
        };
        check(&[&a], None, Ok("https://a.example.com:6443/")).await;
        check(&[&a, &b], None, Ok("https://a.example.com:6443/")).await;
        check(&[&a, &b], Some("b"), Ok("https://b.example.com:6443/")).await;
        check(&[&a], Some("c"), Err("cannot use the kubeconfig with the context \"c\": ")).await;
        check(&[&folder.path().join("none")], None, Err("cannot use the kubeconfig /none: ")).await;
        check(&[&file("broken", "{")], None, Err("cannot use the kubeconfig /broken: ")).await;
        check(&[&file("empty", "apiVersion: v1")], None, Err("cannot use the kubeconfig with its current context: "))
            .await;
    }
}
