//! The account of an operator that `konverge dev` runs: it may do what it declares, as on a cluster. In: the manifests that the operator
//! prints, and a client of an administrator. Out: a service account with its roles, and a kubeconfig with its token.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use konverge::kube::Client;
use konverge_apiserver::UserInfo;
use serde_json::{Value, json};

use crate::kubeconfig::{self, write_private};

/// Who the changes are recorded for.
const MANAGER: &str = "konverge-dev";

/// Says on roles and bindings which operator they are for, so that those are deleted that it does not print any more.
const OPERATOR_LABEL: &str = "konverge.dev/operator";

/// Where an account is whose manifest names no namespace.
const DEFAULT: &str = "default";

/// How long the token of an operator is good for: longer than any `konverge dev` runs. It ends with its account at the latest.
const TOKEN_SECONDS: u64 = 365 * 24 * 3600;

/// What operators may do that `konverge dev` runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperatorRights {
    /// What they declare, as on a cluster.
    #[default]
    Declared,
    /// Everything.
    All,
}

/// The service account that an operator runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperatorAccount {
    namespace: String,
    name: String,
}

impl OperatorAccount {
    /// Creates the account and gives it the rights that are in the manifests: those of `--print-rbac`, and the roles among those
    /// of `--print-webhooks`. Roles that are there already are brought up to date; those that it had and that are not printed any
    /// more are deleted.
    pub(crate) async fn open(client: &Client, manifests: &[Value]) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let account = manifests.iter().find(|manifest| manifest["kind"] == "ServiceAccount");
        let Some(account) = account else { return Err("it prints no ServiceAccount".to_owned()) };
        let name = text(&account["metadata"]["name"]);
        let mut applied = Vec::new();
        for manifest in manifests {
            if let Some(kind) = AccountKind::of(&text(&manifest["kind"])) {
                applied.push(kind.apply(client, &name, manifest).await?);
            }
        }
        for kind in AccountKind::ALL {
            kind.delete_others(client, &name, &applied).await?;
        }
        let namespace = text(&account["metadata"]["namespace"]);
        Ok(Self { namespace: if namespace.is_empty() { DEFAULT.to_owned() } else { namespace }, name })
    }

    /// The account as a user.
    pub(crate) fn user(&self) -> UserInfo {
        let Self { namespace, name } = self;
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", &*of_namespace, "system:authenticated"].map(str::to_owned).into();
        UserInfo { groups, ..UserInfo::named(format!("system:serviceaccount:{namespace}:{name}")) }
    }

    /// Writes a kubeconfig like that of the administrator, with a token of the account, next to it.
    pub(crate) async fn kubeconfig(&self, client: &Client, administrator: &Path) -> Result<PathBuf, String> {
        let Self { namespace, name } = self;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let asked = json!({"spec": {"expirationSeconds": TOKEN_SECONDS}});
        let answer = send(client, "POST", &path, "application/json", &asked).await?;
        let token = answer["status"]["token"].as_str().ok_or("the server gave no token")?;
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", administrator.display());
        let text = std::fs::read_to_string(administrator).map_err(|error| failed(&error))?;
        let written = administrator.with_file_name("operator.kubeconfig");
        let text = kubeconfig::with_token(&text, token).ok_or_else(|| failed(&"it has no token to replace"))?;
        write_private(&written, &text).map_err(|error| format!("{}: {error}", written.display()))?;
        Ok(written)
    }
}

impl std::fmt::Display for OperatorAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A kind of object that an account is made of.
struct AccountKind {
    kind: &'static str,
    api: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl AccountKind {
    /// What an account is made of, beside itself.
    const ALL: [Self; 5] = [
        Self { kind: "ServiceAccount", api: "/api/v1", plural: "serviceaccounts", namespaced: true },
        Self { kind: "Role", api: RBAC, plural: "roles", namespaced: true },
        Self { kind: "RoleBinding", api: RBAC, plural: "rolebindings", namespaced: true },
        Self { kind: "ClusterRole", api: RBAC, plural: "clusterroles", namespaced: false },
        Self { kind: "ClusterRoleBinding", api: RBAC, plural: "clusterrolebindings", namespaced: false },
    ];

    /// None for kinds that give no rights.
    fn of(kind: &str) -> Option<&'static Self> {
        const ALL: &[AccountKind] = &AccountKind::ALL;
        ALL.iter().find(|known| known.kind == kind)
    }

    fn path(&self, namespace: &str, name: &str) -> String {
        let namespace = if namespace.is_empty() { DEFAULT } else { namespace };
        let place = if self.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        format!("{}{place}/{}/{name}", self.api, self.plural)
    }

    /// Makes an object look like its manifest, and marks it as one of this operator. Returns its path.
    async fn apply(&self, client: &Client, operator: &str, manifest: &Value) -> Result<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = self.path(&text(&manifest["metadata"]["namespace"]), &text(&manifest["metadata"]["name"]));
        let mut marked = manifest.clone();
        marked["metadata"]["labels"][OPERATOR_LABEL] = operator.into();
        let query = format!("?fieldManager={MANAGER}&force=true");
        send(client, "PATCH", &format!("{path}{query}"), "application/apply-patch+yaml", &marked).await?;
        Ok(path)
    }

    /// Deletes the objects of this operator that are not among these paths.
    async fn delete_others(&self, client: &Client, operator: &str, kept: &[String]) -> Result<(), String> {
        let list = format!("{}/{}?labelSelector={OPERATOR_LABEL}%3D{operator}", self.api, self.plural);
        let list = send(client, "GET", &list, "application/json", &Value::Null).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for object in list["items"].as_array().into_iter().flatten() {
            let path = self.path(&text(&object["metadata"]["namespace"]), &text(&object["metadata"]["name"]));
            if !kept.contains(&path) {
                send(client, "DELETE", &path, "application/json", &Value::Null).await?;
            }
        }
        Ok(())
    }
}

async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, String> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.body(body).map_err(|error| error.to_string())?;
    client.request(request).await.map_err(|error| format!("{:#}", konverge::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_user_of_its_namespace() {
        let account = OperatorAccount { namespace: "shop".into(), name: "web".into() };
        let user = account.user();
        assert_eq!(user.name, "system:serviceaccount:shop:web");
        assert!(user.groups.contains(&"system:serviceaccounts:shop".to_owned()), "{user:?}");
        assert_eq!(account.to_string(), "shop/web");
    }
}
